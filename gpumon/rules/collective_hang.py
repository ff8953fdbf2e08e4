"""Knows ``collective-hang``: ranks wait for each other in a collective that never ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Job, Rank, Severity, Subject
from gpumon.progress import LABELLED_S, is_debugged, patience_s
from gpumon.rules import use_at_once
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.standstill import Member, cause_of, culprit_of, member_of, told
from gpumon.rules.timeouts import hang_told
from gpumon.signals import label, mean_of
from gpumon.window import Window

WATCHDOG_S = 600.0
"""PyTorch's NCCL watchdog ends a job after this."""
_COMPUTES_PCT = 80.0
_WRITES_BYTES_PER_S = 5e5
_SENDS_BYTES_PER_S = 10e6
_NEARLY = 0.8


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When standing still is more than a pause."""

    least_s: float = 60.0
    """Shorter than this nothing is called a hang."""
    pauses: float = 3.0
    """It must last so many times as long as the longest pause of this job so far."""
    steps: float = 10.0
    """And so many times as long as its slowest steps."""
    computing_s: float = 600.0
    """So long at least where the rank that the others wait for computes on the CPU, writes, or sends a checkpoint."""


@rule(
    "collective-hang",
    limits=Limits,
    every_s=2.0,
    clear_s=10.0,
    suppressed_by=("gpu-lost", "driver-stuck", "xid"),
    at_once=use_at_once.collective_hang,
)
def collective_hang(window: Window, limits: Limits) -> Conclusions:
    """Ranks wait for each other in a collective that does not end: GPUs look busy and nothing happens.

    What it sees:
        A job on several GPUs that has trained stands still for longer than its pauses explain: at least 60 s, three
        times its longest pause so far, ten of its slowest steps. Standing still means, with the probe, that no rank's
        heart beats. Without it: every GPU is either idle, or fully busy at no more than 60 % of its usual power, with
        next to no traffic and idle tensor cores, as a waiting kernel is. The rank that is idle, gone, stopped or waits
        for data is named: the busy ones are its victims. In a log: the watchdogs' lines, from which the rank that had
        not begun the collective, or began another one, is named. In a single reading: all busy GPUs of several draw
        next to nothing and are cold, which is only possible.

    Why it matters:
        All GPUs of the job are lost until somebody notices. PyTorch's watchdog ends the job after ten minutes by
        default, everything since the last checkpoint with it.

    What to do:
        Dump the stacks of all ranks with ``py-spy`` before they are ended; the one that is not in a collective is to
        blame. Then look for branches that depend on the rank and for uneven batches. NCCL 2.24 and later answers
        ``echo "verbose status" | nc localhost 28028``.

    When it is wrong:
        Rank 0 may write or evaluate while the others wait: it looks the same from outside. One that computes on the
        CPU, writes slowly or sends is given ten minutes, one that says so to the probe a quarter of an hour; the first
        long pause that does nothing of this is reported.
        Starts, servers and jobs that a debugger holds as a whole are never judged.
    """
    yield from hang_told(window, use_at_once.FIXES_OF_HANGS)
    processes = {process.pid: process for process in window.last.processes}
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    for job in window.jobs:
        owners = [processes[pid] for pid in job.trainers if pid in processes]
        seen = max(window.baseline(job, "ranks_seen") or 0, len(job.gpu_uuids))
        is_alone = seen < 2 and all((owner.world_size or 1) < 2 for owner in owners)
        if is_alone or job.kind == "serving" or job.trained_since_s is None or job.phase in {"start", "end"}:
            continue
        if is_debugged(owners):
            continue
        members = [member_of(window, gpus[uuid], owners) for uuid in job.gpu_uuids if uuid in gpus]
        quiet_s = window.baseline(job, "quiet_s")
        if quiet_s is None:
            subject = Subject(kind="job", job=job.id)
            because = "neither power and use of its GPUs nor a probe tell whether it gets on"
            yield Abstention(rule="collective-hang", because=because, subject=subject)
            continue
        ranks = [member.rank for member in members if member.rank is not None]
        has_beat = any(rank.heartbeat_age_s is not None for rank in ranks)
        if not has_beat and not any(member.look == "spins" for member in members):
            continue
        culprit = culprit_of(members)
        patience = _patience_s(window, job, ranks, culprit, limits)
        if quiet_s >= _NEARLY * patience:
            yield _finding(window, job, members, culprit, _Wait(quiet_s, patience, has_beat))


class _Wait(NamedTuple):
    """How long nothing has moved, and how long that would be no matter."""

    quiet_s: float
    patience_s: float
    has_beat: bool


def _patience_s(window: Window, job: Job, ranks: Sequence[Rank], culprit: Member | None, limits: Limits) -> float:
    longest, slowest = window.baseline(job, "longest_pause_s") or 0.0, window.baseline(job, "step_p99_s") or 0.0
    least = limits.least_s
    if any(rank.phase in {"eval", "checkpoint"} for rank in ranks):
        least = max(least, LABELLED_S)
    elif culprit is not None and culprit.look == "idles" and _is_at_work(window, culprit):
        least = max(least, limits.computing_s)
    return patience_s(longest * limits.pauses / 3.0, slowest * limits.steps / 10.0, least_s=least)


def _is_at_work(window: Window, culprit: Member) -> bool:
    """It computes on the CPU or writes, however slowly, or the machine sends much: GPUs that hang send nothing."""
    sends = window.mean(window.last.host, "net_tx_bytes_per_s", 30.0) or 0.0
    if culprit.trainer is None or culprit.is_dead:
        return False
    busy = window.mean(culprit.trainer, "main_thread_cpu_pct", 30.0) or 0.0
    writes = window.mean(culprit.trainer, "write_bytes_per_s", 30.0) or 0.0
    return busy >= _COMPUTES_PCT or writes >= _WRITES_BYTES_PER_S or sends >= _SENDS_BYTES_PER_S


def _finding(window: Window, job: Job, members: Sequence[Member], culprit: Member | None, wait: _Wait) -> Finding:
    spinning = [one.gpu for one in members if one.look == "spins"]
    gone = int(window.baseline(job, "ranks_seen") or 0) - len(job.trainers)
    cause, text = cause_of(culprit, gone)
    power = mean_of(gpu.power_w for gpu in spinning)
    usual = mean_of(window.baseline(gpu, "power_train_w") for gpu in spinning)
    victims = len(members) - (culprit is not None)
    word: Confidence = "likely" if culprit is not None or wait.has_beat or gone > 0 else "possible"
    severity: Severity = "critical" if word == "likely" else "warning"
    if culprit is None:
        who = f"{len(members)} GPUs wait in a collective"
    else:
        who = f"GPU {label(culprit.gpu, window.last.gpus)} left a collective, {victims} wait{'s' * (victims == 1)}"
    spins = f"; {len(spinning)} spin at {power:.0f} W, usually {usual:.0f}" if power and usual else ""
    pids = " ".join(str(pid) for pid in job.trainers)
    left_s = WATCHDOG_S - wait.quiet_s
    return Finding(
        rule="collective-hang",
        severity=severity,
        confidence=word,
        # About the whole job, and the GPU at fault: every other complaint about this job follows from it.
        subject=Subject(
            kind="job",
            job=job.id,
            gpu=None if culprit is None else culprit.gpu.index,
            uuid=None if culprit is None else culprit.gpu.uuid,
            pid=None if culprit is None or culprit.trainer is None else culprit.trainer.pid,
        ),
        summary=who,
        strength=wait.quiet_s / wait.patience_s,
        cause=cause,
        cause_text=f"{text}{spins}",
        fix_text="py-spy dump each rank" + (f"; watchdog in {units.duration(left_s)}" if left_s >= 30 else ""),
        evidence=(
            Evidence(
                name="no step on any rank for" if wait.has_beat else "no sign of work for",
                value=round(wait.quiet_s),
                unit="s",
                judged_by=f"≥ {wait.patience_s:.0f} s: its pauses and steps",
                field="heartbeat_age_s" if wait.has_beat else "power_w",
            ),
            *(Evidence(name=f"GPU {one.gpu.index}", value=told(one)) for one in members[:8]),
        ),
        cost=Cost(lost_pct=100.0),
        fixes=(f"for p in {pids}; do py-spy dump --pid $p; done", *use_at_once.FIXES_OF_HANGS),
        onset_s=wait.quiet_s,
    )
