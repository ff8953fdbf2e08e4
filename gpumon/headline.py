"""Knows the one sentence that the screen leads with, and how long it stays."""

from __future__ import annotations

import math
from functools import cache

from gpumon import units
from gpumon.alerts import RANK, Headline, HeadlineState, may_lead
from gpumon.model import Alert, Finding, Job, Subject
from gpumon.signals import label, leaves, mean_of, stale_after_s
from gpumon.window import Window

NO_JOB = "No job is using these GPUs. Start one; it appears here within 2 s."
HOST_PIDS = "PIDs belong to the host: run the container with --pid=host to see processes"

_RECOVERED_S = 60.0
_STEADY_S = 5.0
_SPAN_S = 600.0
_REFRESH_S = 5.0
_NAMED_GPUS = 4
"""More silent ones are counted."""
_RANK: dict[HeadlineState, int] = {"healthy": 0, "starting": 0, "training": 0, "empty": 0}
_RANK |= {"warning": 1, "stale": 2, "critical": 3}


class HeadlineFold:
    """Frames in, headlines out. A change to another alert waits for 5 s, unless it is for the worse."""

    def __init__(self) -> None:
        self._shown: Headline | None = None
        self._shown_key = ""
        self._changed_s = 0.0
        self._firing: dict[str, Alert] = {}
        self._recovered: tuple[float, Alert] | None = None
        self._energy_j: float | None = None
        self._quiet: tuple[float, str, str] | None = None
        self._quiet_for: tuple[str, ...] = ()

    def append(self, window: Window, alerts: tuple[Alert, ...]) -> Headline:
        """The headline of this instant."""
        self._count_energy(window)
        self._notice_recovery(window, alerts)
        key, wanted = self._wanted(window, alerts)
        shown = self._shown
        if shown is not None and key != self._shown_key:
            is_worse = _RANK[wanted.state] > _RANK[shown.state]
            is_quiet = max(_RANK[wanted.state], _RANK[shown.state]) == 0
            if not is_worse and not is_quiet and window.elapsed_s - self._changed_s < _STEADY_S:
                return shown
        if key != self._shown_key:
            self._changed_s = window.elapsed_s
        self._shown, self._shown_key = wanted, key
        return wanted

    def _wanted(self, window: Window, alerts: tuple[Alert, ...]) -> tuple[str, Headline]:
        leading = [alert for alert in alerts if may_lead(alert) and alert.finding.rule != "driver-stuck"]
        top = leading[0] if leading else None
        if top is not None and top.finding.severity == "critical":
            return _key(top), _of_alert(top, leading, window)
        silent = _silent(window)
        if silent is not None:
            return "stale", _stale(window, *silent)
        if top is not None and top.finding.severity == "warning":
            return _key(top), _of_alert(top, leading, window)
        seen = [job for job in window.jobs if _is_seen(job, window)]
        starting = [job for job in seen if job.phase == "start"]
        if starting and len(starting) == len(seen):
            return "starting", Headline(
                state="starting", text=_starting(starting[0], window), detail=self._detail(window, alerts)
            )
        if self._recovered is not None:
            return "recovered", Headline(
                state="healthy", text=_recovered(self._recovered[1], window), detail=self._detail(window, alerts)
            )
        if top is not None and top.finding.rule == "data-starved" and top.finding.cost:
            share = top.finding.cost.lost_pct or 0.0
            text = f"waits for data {share:.0f}% in the first epoch; judged when the cache is warm"
            return "training", Headline(state="training", text=text, alert=top, detail=self._detail(window, alerts))
        return "healthy", self._healthy(window, alerts)

    def _healthy(self, window: Window, alerts: tuple[Alert, ...]) -> Headline:
        jobs = tuple(job.id for job in window.jobs)
        shown = (*jobs, _muted(alerts))
        if self._quiet is None or window.elapsed_s - self._quiet[0] >= _REFRESH_S or shown != self._quiet_for:
            self._quiet = (window.elapsed_s, _busy(window), self._detail(window, alerts))
            self._quiet_for = shown
        state: HeadlineState = "empty" if self._quiet[1] in {NO_JOB, HOST_PIDS} else "healthy"
        return Headline(state=state, text=self._quiet[1], detail=self._quiet[2])

    def _detail(self, window: Window, alerts: tuple[Alert, ...]) -> str:
        muted, watched_s = _muted(alerts), _watched_s(window)
        if watched_s is not None:
            watching = f"watching for {watched_s:.0f} s: waiting for data is judged from {_judged_s():g} s on"
            return f"{muted}   {watching}" if muted else watching
        if muted:
            return f"{muted}{self._energy()}"
        past = next((alert for alert in alerts if alert.state == "resolved" and RANK[alert.finding.severity]), None)
        if past is None or past.cleared_s is None:
            return f"no alert in {units.duration(window.elapsed_s)}{self._energy()}"
        lasted = units.duration(past.cleared_s - past.since_s)
        began = units.clock(past.since_s, "%H:%M")
        return f"last alert {began} {past.finding.rule}, recovered after {lasted}{self._energy()}{_run(window)}"

    def _energy(self) -> str:
        if self._energy_j is None:
            return ""
        kwh = self._energy_j / 3.6e6
        return f"   energy {kwh:.2f} kWh" if kwh < 10 else f"   energy {kwh:.1f} kWh"

    def _count_energy(self, window: Window) -> None:
        powers = [gpu.power_w for gpu in window.last.gpus if gpu.power_w is not None and not gpu.is_lost]
        if powers:
            self._energy_j = (self._energy_j or 0.0) + sum(powers) * window.passed_s

    def _notice_recovery(self, window: Window, alerts: tuple[Alert, ...]) -> None:
        firing = {_key(alert): alert for alert in alerts if alert.is_firing()}
        for alert in alerts:
            was = self._firing.get(_key(alert))
            is_over = alert.state == "resolved" and _key(alert) not in firing
            if is_over and was is not None and may_lead(was) and RANK[was.finding.severity]:
                self._recovered = (window.elapsed_s, alert)
                self._quiet = None
        self._firing = firing
        if self._recovered is not None and window.elapsed_s - self._recovered[0] >= _RECOVERED_S:
            self._recovered = None


def _muted(alerts: tuple[Alert, ...]) -> str:
    """``2 alerts muted``; empty where none would otherwise be shown."""
    count = sum(
        alert.is_firing()
        and alert.muted_until_s is not None
        and alert.suppressed_by is None
        and alert.finding.severity != "info"
        for alert in alerts
    )
    return f"{count} alert{'s' * (count > 1)} muted" if count else ""


@cache
def _judged_s() -> float:
    """How long a loader is watched before it is judged; asked for only once there are rules that judge."""
    from gpumon.rules.data_starved import Limits

    return Limits().window_s


def _watched_s(window: Window) -> float | None:
    """How long the job that was seen training last has been; None once its loader has been judged, or without one."""
    now_s, judged_s = window.last.time_s, _judged_s()
    ages_s = [
        now_s - job.trained_since_s
        for job in window.jobs
        if job.trained_since_s is not None and job.phase != "end" and job.kind != "serving"
    ]
    youngest_s = min(ages_s, default=judged_s)
    return youngest_s if youngest_s < judged_s - window.interval_s else None


def _key(alert: Alert) -> str:
    return f"{alert.finding.rule} {alert.finding.subject.key()}"


def _of_alert(top: Alert, leading: list[Alert], window: Window) -> Headline:
    finding = top.finding
    text = finding.summary
    since_s: float | None = top.since_s
    sentence, bracket, rest = text.partition(" (")
    if bracket:
        # ``GPU 3 lost since 14:05 (fell off the bus, Xid 79)``: the time belongs before the brackets.
        text, since_s = f"{sentence} since {units.clock(top.since_s, '%H:%M')}{bracket}{rest}", None
    return Headline(
        state="critical" if finding.severity == "critical" else "warning",
        text=text,
        alert=top,
        since_s=since_s,
        confidence=None if since_s is None else finding.confidence,
        cause=finding.cause_text,
        fix=finding.fix_text,
        cost=cost_text(top, window),
        more=sum(other.finding.severity == finding.severity for other in leading) - 1,
    )


def cost_text(alert: Alert, window: Window) -> str | None:
    """What an alert costs, with its own word: ``gain ≤ 1.8×``, ``cost job −33%, 15 GPU-min``."""
    cost = alert.finding.cost
    if cost is None:
        return None
    if cost.speedup_max is not None:
        return f"gain ≤ {cost.speedup_max:.1f}×"
    if cost.lost_pct is None:
        return None
    job = _job_of(alert.finding, window)
    if cost.lost_pct >= 100.0 and alert.finding.rule == "gpu-lost":
        owners = [one for one in window.last.processes if alert.finding.subject.uuid in one.gpu_memory_bytes]
        ranks = [one.rank for one in owners if one.rank is not None]
        return f"cost its job (rank {ranks[0]})" if ranks else "cost its job"
    whose = "job " if job is not None and len(job.gpu_uuids) > 1 else ""
    minutes = (alert.lost_gpu_s or 0.0) / 60.0
    spent = f", {minutes:.0f} GPU-min" if minutes >= 1 else ""
    return f"cost {whose}−{cost.lost_pct:.0f}%{spent}"


def _job_of(finding: Finding, window: Window) -> Job | None:
    if finding.subject.uuid is not None:
        return window.job_of(finding.subject.uuid)
    return next((job for job in window.jobs if job.id == finding.subject.job), None)


def _silent(window: Window) -> tuple[str, float] | None:
    """Who has said nothing and for how long: the driver, else the GPUs whose calls hang while others answer."""
    late_s = stale_after_s(window.interval_s)
    age_s = window.last.host.driver_age_s
    if age_s is not None and age_s >= late_s:
        return "driver", age_s
    ages_s = {gpu.index: gpu.age_s or 0.0 for gpu in window.last.gpus if gpu.mig_parent_uuid is None}
    late = [index for index, age_s in ages_s.items() if age_s >= late_s]
    if not late:
        return None
    who = f"GPU {late[0]}" if len(late) == 1 else f"GPUs {', '.join(map(str, late))}"
    return (who if len(late) <= _NAMED_GPUS else f"{len(late)} GPUs"), max(ages_s[index] for index in late)


def _stale(window: Window, who: str, silent_s: float) -> Headline:
    then = units.clock(window.last.time_s - silent_s)
    return Headline(
        state="stale",
        text=f"{who} not answering for {units.duration(silent_s)}; numbers are from {then}",
        cause=(window.last.host.driver_error or "unknown yet").partition(": ")[0],
        fix="wait; then dmesg | grep -i nvrm",
        cost="q still quits",
    )


def _is_seen(job: Job, window: Window) -> bool:
    """Any of its processes can be looked up: of a bare PID (ended, or hidden from us) nobody knows that it starts."""
    return any(
        one.started_s is not None or one.name is not None or one.command is not None
        for one in window.last.processes
        if one.pid in job.trainers
    )


def _starting(job: Job, window: Window) -> str:
    since_s = job.started_s if job.started_s is not None else job.phase_since_s
    age = units.duration(window.last.time_s - (window.last.time_s if since_s is None else since_s))
    return f"{job.name} for {age}: rules wait until it trains steadily"


def _recovered(alert: Alert, window: Window) -> str:
    lasted = units.duration((alert.cleared_s or alert.since_s) - alert.since_s)
    minutes = (alert.lost_gpu_s or 0.0) / 60.0
    cost = f" (cost {minutes:.0f} GPU-min)" if minutes >= 1 else ""
    return f"{_who(alert.finding.subject, window)} recovered after {lasted}{cost}"


def _who(subject: Subject, window: Window) -> str:
    if subject.kind == "gpu":
        gpu = next((gpu for gpu in window.last.gpus if gpu.uuid == subject.uuid), None)
        if gpu is None:
            return "a GPU" if subject.gpu is None else f"GPU {subject.gpu}"
        return f"GPU {label(gpu, window.last.gpus)}"
    return {"job": "the job", "process": f"pid {subject.pid}"}.get(subject.kind, "the host")


def _busy(window: Window) -> str:
    gpus = [gpu for gpu in leaves(window.last.gpus) if not gpu.is_lost]
    used = [gpu for gpu in gpus if window.job_of(gpu.uuid)] if window.jobs else gpus
    busy = sum((window.mean(gpu, "utilization_pct", 10.0) or gpu.utilization_pct or 0.0) >= 5.0 for gpu in used)
    if not window.jobs and not busy:
        return HOST_PIDS if window.last.host.sees_host_pids is False else NO_JOB
    parts = [f"{len(window.jobs)} job{'s' * (len(window.jobs) > 1)}"] if window.jobs else []
    ranks = sum(len(job.trainers) for job in window.jobs)
    if ranks > len(window.jobs):
        parts.append(f"{ranks} ranks")
    parts.append(_count(busy, len(gpus)))
    span_s = min(_SPAN_S, window.elapsed_s + window.passed_s, _oldest_s(window))
    useful = mean_of(window.mean(gpu, "budget.useful_pct", span_s) for gpu in used)
    if useful is not None and span_s > 0:
        parts.append(f"useful {useful:.0f}% of {units.duration(span_s)}")
    return ", ".join(parts)


def _count(busy: int, gpus: int) -> str:
    if busy == gpus:
        return "1 GPU busy" if gpus == 1 else f"all {gpus} GPUs busy"
    return f"{busy} of {gpus} GPUs busy" if gpus > 1 else "GPU idle"


def _oldest_s(window: Window) -> float:
    """Age of the oldest job."""
    started = [job.started_s for job in window.jobs if job.started_s is not None]
    return max(1.0, window.last.time_s - min(started)) if started else math.inf


def _run(window: Window) -> str:
    age_s = _oldest_s(window)
    return f"   run {units.duration(age_s)}" if age_s < math.inf else ""
