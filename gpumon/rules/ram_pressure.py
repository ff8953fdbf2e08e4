"""Knows ``ram-pressure``: the machine or a job's container runs out of memory, or the kernel has killed for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Event, Evidence, Finding, Job, Process, Severity, Subject
from gpumon.rules import crashes_by_log
from gpumon.rules.logged import is_logged
from gpumon.rules.memory_by_message import ram_told
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.trend import keeps_on, points_of, slope
from gpumon.rules.verdict import AFTER_S, BEFORE_S
from gpumon.signals import workers_of
from gpumon.window import Known, Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When memory counts as short."""

    free_pct: float = 10.0
    """Share of the memory (of the container's limit) that is available: below it is a warning."""
    critical_free_pct: float = 5.0
    """Below it is critical."""
    shared_free_pct: float = 15.0
    """The same where the GPU uses the host's memory, as on GB10: such machines stop without a word."""
    shared_critical_free_pct: float = 8.0
    """And critical there."""
    window_s: float = 10.0
    """The seconds over which that is averaged: workers that start use more for a moment."""
    forecast_min: float = 15.0
    """Memory that falls all the time and will be gone in so many minutes is a warning."""
    stalled_pct: float = 5.0
    """Share of half a minute in which everybody waited for memory."""
    swap_in_mb_per_s: float = 10.0
    """What comes back from swap, over half a minute."""
    killed_s: float = 300.0
    """How long a kill by the kernel stays an alert."""


class _Room(NamedTuple):
    """Memory of the machine or of a container."""

    subject: Subject
    who: str
    key: Known
    field: str
    total: int
    is_free: bool
    """The series counts what is free; else what is used."""


_FORECAST_S = 600.0
_STALL_S = 30.0


@rule("ram-pressure", limits=Limits, every_s=2.0, clear_s=20.0)
def ram_pressure(window: Window, limits: Limits) -> Conclusions:
    """The machine, or a job's container, is about to run out of memory, or the kernel has killed for it.

    What it sees:
        Available memory below 10 % (critical below 5 %), or falling steadily so that it is gone in 15 min; everybody
        waiting for memory 5 % of the time, or 10 MB/s coming back from swap; the kernel's count of processes that it
        killed. A job with a limit of its own is judged by that limit, without the page cache. In a program's output: a
        worker that was killed, or an allocation in the machine's memory that failed.

    Why it matters:
        First everything slows down, the loader before all; then the kernel kills the largest process, which is the
        training. Its log ends without an error.

    What to do:
        Fewer loader workers or a lower prefetch_factor: they hold workers × prefetch × batch in memory. Map the data
        instead of loading it, raise the container's limit (--memory, --mem), and see worker-ram-leak.

    When it is wrong:
        The page cache is never counted, so a machine that reads a lot is not short. In a container the kernel's count
        covers its neighbours too; a kill that hit nobody here is information there.
    """
    host = window.last.host
    killed = _killed(window, limits) or ram_told(window)
    if killed is not None:
        yield killed
    elif host.memory_total_bytes is None or host.memory_available_bytes is None:
        if window.jobs and host.memory_available_bytes is None:
            because = "the machine's available memory is not reported"
            yield Abstention(rule="ram-pressure", because=because, subject=Subject(kind="host"))
    else:
        room = _Room(Subject(kind="host"), "the machine", host, "memory_available_bytes", host.memory_total_bytes, True)
        yield from _judged(window, room, limits)
    for job, process, limit in _limited(window):
        who = f"{job.name[:20]}'s container"
        room = _Room(Subject(kind="job", job=job.id), who, process, "memory_charged_bytes", limit, False)
        yield from _judged(window, room, limits)


def _limited(window: Window) -> Iterator[tuple[Job, Process, int]]:
    """Jobs with a memory limit below the machine's memory, and a process whose group counts."""
    total = window.last.host.memory_total_bytes
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        for pid in job.trainers:
            process = processes.get(pid)
            limit = None if process is None else process.memory_limit_bytes
            if process is not None and limit and process.memory_charged_bytes is not None:
                if total is None or limit < 0.98 * total:
                    yield job, process, limit
                break


def _judged(window: Window, room: _Room, limits: Limits) -> Iterator[Finding]:
    mean = window.mean(room.key, room.field, limits.window_s)
    if mean is None:
        return
    is_shared = room.is_free and any(gpu.memory_is_shared for gpu in window.last.gpus)
    warn_pct = limits.shared_free_pct if is_shared else limits.free_pct
    critical_pct = limits.shared_critical_free_pct if is_shared else limits.critical_free_pct
    free = mean if room.is_free else room.total - mean
    free_pct = max(0.1, 100.0 * free / room.total)
    found: list[tuple[float, Severity, Confidence, str, str]] = []
    if free_pct < warn_pct / 0.8:
        is_critical = free_pct < critical_pct
        text = f"{units.gib(free):.1f} GiB of {units.gib(room.total):.0f} left"
        severity: Severity = "critical" if is_critical else "warning"
        found.append((warn_pct / free_pct, severity, "certain", f"{room.who} has {free_pct:.0f}% memory left", text))
    left_min = _left_min(window, room, free)
    if left_min is not None and left_min < limits.forecast_min / 0.8:
        text = f"falls steadily, {units.gib(free):.0f} GiB left"
        summary = f"{room.who}: no memory in {left_min:.0f} min"
        found.append((limits.forecast_min / max(0.1, left_min), "warning", "likely", summary, text))
    if room.is_free:
        found += _stalls(window, limits)
    if not found:
        return
    strength, severity, confidence, summary, text = max(found, key=lambda one: (one[1] == "critical", one[0]))
    yield _finding(window, room, free_pct, warn_pct, (strength, severity, confidence, summary, text))


def _stalls(window: Window, limits: Limits) -> Iterator[tuple[float, Severity, Confidence, str, str]]:
    host = window.last.host
    stalled = window.mean(host, "memory_pressure_pct", _STALL_S)
    if stalled is not None and stalled >= 0.8 * limits.stalled_pct:
        text = f"everybody waited for memory {stalled:.0f}% of the time"
        yield stalled / limits.stalled_pct, "warning", "certain", "the machine stalls for memory", text
    swapped = window.mean(host, "swap_in_bytes_per_s", _STALL_S)
    if swapped is not None and swapped >= 0.8e6 * limits.swap_in_mb_per_s:
        text = f"{swapped / 1e6:.0f} MB/s come back from swap"
        yield swapped / 1e6 / limits.swap_in_mb_per_s, "warning", "certain", "the machine swaps", text


def _left_min(window: Window, room: _Room, free: float) -> float | None:
    """Minutes until it is gone, where it has fallen in every part of ten minutes."""
    if not window.covers(_FORECAST_S):
        return None
    before = window.mean(room.key, room.field, 60.0, ago_s=_FORECAST_S - 60.0)
    lost = 0.0 if before is None else (before if room.is_free else room.total - before) - free
    # A fall within a day's noise is none.
    if lost < 0.01 * room.total:
        return None
    points = points_of(window, room.key, room.field, _FORECAST_S)
    per_s = slope(points)
    if not per_s or not keeps_on(points, _FORECAST_S, blocks=5, rises=not room.is_free):
        return None
    lost_per_s = -per_s if room.is_free else per_s
    return free / lost_per_s / 60.0 if lost_per_s > 0 else None


def _finding(
    window: Window,
    room: _Room,
    free_pct: float,
    warn_pct: float,
    concluded: tuple[float, Severity, Confidence, str, str],
) -> Finding:
    strength, severity, confidence, summary, text = concluded
    low = warn_pct / 100.0 * room.total
    began_s = began_ago_s(
        window, room.key, room.field, lambda value: (value if room.is_free else room.total - value) < low
    )
    fixes, short = _fixes(window, room.subject)
    return Finding(
        rule="ram-pressure",
        severity=severity,
        confidence=confidence,
        subject=room.subject,
        summary=summary,
        strength=strength,
        cause="host-memory" if room.is_free else "container-memory",
        cause_text=text,
        fix_text=short,
        evidence=(
            Evidence(
                name="memory left",
                value=float(round(free_pct)),
                unit="%",
                judged_by=f"≥ {warn_pct:g}% of {units.gib(room.total):.0f} GiB",
                field=room.field,
            ),
            Evidence(name="largest process", value=_largest(window)),
        ),
        fixes=fixes,
        onset_s=began_s,
    )


def _killed(window: Window, limits: Limits) -> Finding | None:
    """The kernel killed a process for memory lately."""
    events = [(age, one) for age, one in window.aged_events(limits.killed_s) if one.kind == "oom-kill"]
    events = [(age, one) for age, one in events if is_logged(one) or _is_news(window, age, one)]
    steps = _steps(window, limits.killed_s) if window.last.host.oom_kills else []
    if not events and not steps:
        return None
    pids = {int((one.values or {}).get("beside_pid", one.pid or 0)) for _, one in events}
    is_ours = bool(pids & _pids(window)) or any(
        -AFTER_S <= age - (window.elapsed_s - ending.elapsed_s) <= BEFORE_S
        for ending in window.ended_jobs
        for age, _ in (*events, *steps)
    )
    number = max(len(events), int(sum(step for _, step in steps)))
    victim = next((one.pid for _, one in events if one.pid), None)
    who = f"pid {victim}" if victim else "a process" if number == 1 else f"{number} processes"
    summary = f"the kernel killed {who} for memory"
    told = next((one for _, one in events if is_logged(one)), None)
    if told is not None and (name := crashes_by_log.program_of(told)):
        summary = f"{name[:15]} killed for memory (pid {told.pid})"
        is_ours = is_ours or crashes_by_log.is_training(told)
    where = "its container is" if told is not None and "cgroup" in (told.text or "") else ""
    is_container = window.last.host.sees_host_pids is False
    severity: Severity = "critical" if is_ours or _was_short(window) else "info" if is_container else "warning"
    return Finding(
        rule="ram-pressure",
        severity=severity,
        confidence="certain",
        subject=Subject(kind="host"),
        summary=summary,
        cause="oom-kill",
        cause_text=f"{where} out of memory: the kernel ends the largest process".strip(),
        fix_text="fewer workers, or more memory for the job",
        evidence=(
            Evidence(name="killed by the kernel", value=float(number), judged_by="≥ 1"),
            *(Evidence(name="the kernel's line", value=one.text) for _, one in events[:1] if one.text),
            Evidence(name="largest process", value=_largest(window)),
        ),
        fixes=(*_fixes(window, Subject(kind="host"))[0], "dmesg | grep -i 'killed process'"),
        command="dmesg | grep -i 'killed process'",
        onset_s=max([age for age, _ in steps] + [age for age, _ in events]),
    )


def _is_news(window: Window, age_s: float, event: Event) -> bool:
    """It happened while gpumon watched."""
    return event.time_s is None or window.last.time_s - event.time_s < 2 * age_s + 60


def _steps(window: Window, seconds: float) -> list[tuple[float, float]]:
    """When the kernel's count of kills rose, and by how much."""
    counted = zip(window.ages(seconds), window.series("host", "oom_kills", seconds), strict=True)
    known = [(age, value) for age, value in counted if value is not None]
    return [(age, new - old) for (_, old), (age, new) in pairwise(known) if new > old]


def _pids(window: Window) -> set[int]:
    jobs = (*window.jobs, *(ending.job for ending in window.ended_jobs))
    return {pid for job in jobs for pid in (*job.trainers, *(one for pids in job.helpers.values() for one in pids))}


def _was_short(window: Window) -> bool:
    total = window.last.host.memory_total_bytes
    known = [value for value in window.series("host", "memory_available_bytes", 300.0) if value is not None]
    is_host_short = total is not None and bool(known) and min(known) < 0.15 * total
    return is_host_short or any(
        (process.memory_charged_bytes or 0) > 0.9 * limit for _, process, limit in _limited(window)
    )


def _largest(window: Window) -> str | None:
    known = [one for one in window.last.processes if one.memory_rss_bytes]
    if not known:
        return None
    largest = max(known, key=lambda one: one.memory_rss_bytes or 0)
    return f"{(largest.name or 'pid')[:16]} {largest.pid}: {units.gib(largest.memory_rss_bytes or 0):.1f} GiB"


def _fixes(window: Window, subject: Subject) -> tuple[tuple[str, ...], str]:
    """In order, and the short one; with the number of workers where there are any."""
    processes = {process.pid: process for process in window.last.processes}
    jobs = [job for job in window.jobs if subject.kind == "host" or job.id == subject.job]
    workers = max((len(workers_of(job, pid, processes)) for job in jobs for pid in job.trainers), default=0)
    fewer = f"num_workers {workers} → {max(1, workers // 2)}" if workers > 1 else "load less at once"
    more = "raise the container's limit (--memory, --mem)" if subject.kind == "job" else "end what is not needed here"
    ordered = (
        f"{fewer}; prefetch_factor 2: memory is workers × prefetch × batch",
        "memory-map the data instead of loading it whole",
        more,
    )
    return ordered, f"{fewer}; or {more}" if subject.kind == "job" else f"{fewer}; lower prefetch_factor"
