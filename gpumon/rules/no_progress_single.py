"""Knows ``no-progress-single``: a job on one GPU has stopped doing anything at all."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Job, Process, Severity, Subject
from gpumon.progress import patience_s
from gpumon.rules import crashes_by_log
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import busy_pct, workers_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When standing still counts."""

    least_s: float = 60.0
    """It must last at least so long, and three times as long as its longest pause so far."""
    alone_s: float = 300.0
    """Without loader workers it is a warning from here on, before that information: it may wait for somebody."""
    labelled_s: float = 900.0
    """Where the probe says that it evaluates or writes a checkpoint."""
    cpu_pct: float = 2.0
    """A main thread that uses more CPU does something."""
    io_bytes_per_s: float = 10_000.0
    """So does a process that reads or writes more."""


class _Still(NamedTuple):
    """A job that does nothing."""

    job: Job
    owner: Process
    workers: Sequence[Process]
    quiet_s: float
    cpu_pct: float


_DEBUGGERS = re.compile(r"\b(i?pdb|debugpy|pydevd|cuda-gdb|gdb)\b")
_LOOK_S = 45.0
_NEARLY = 0.8


@rule(
    "no-progress-single",
    limits=Limits,
    every_s=5.0,
    clear_s=5.0,
    suppressed_by=("gpu-lost", "driver-stuck", "xid", "shm-full"),
)
def no_progress_single(window: Window, limits: Limits) -> Conclusions:
    """A job on a single GPU stands still: no kernel, no CPU time, no reading or writing, and the process lives.

    What it sees:
        For a minute, or three times its longest pause so far: the GPU idle, the main thread and the loader's workers
        below 2 % CPU, nothing read or written, after the job had trained. A stopped process (state T) is named. In a
        kernel's log: a Python program that was blocked for more than two minutes.

    Why it matters:
        Nothing ends such a job: a worker that died in a lock, or a full /dev/shm, makes the trainer wait for ever.

    What to do:
        ``py-spy dump`` shows the line it waits in. Try num_workers=0; give the DataLoader a timeout, so that it fails
        instead of waiting. A stopped process goes on with ``kill -CONT``.

    When it is wrong:
        A program that asks a question, sits at a breakpoint or waits for a licence or an upload looks the same, so the
        word is never more than possible. What was never seen to compute is left to idle-reserved. Notebooks, servers,
        starts and processes under a debugger are not judged.
    """
    yield from crashes_by_log.hung_tasks(window)
    processes = {process.pid: process for process in window.last.processes}
    busy = {gpu.uuid: busy_pct(gpu) for gpu in window.last.gpus}
    for job in window.jobs:
        if job.kind in ("serving", "notebook") or job.trained_since_s is None or job.phase in ("start", "end"):
            continue
        owners = [processes[pid] for pid in job.trainers if pid in processes]
        is_one = len(owners) == 1 and len(job.gpu_uuids) == 1 and (owners[0].world_size or 1) < 2
        if not is_one or (busy.get(job.gpu_uuids[0]) or 0.0) >= 5.0:
            continue
        if owners[0].main_thread_cpu_pct is None and owners[0].state != "T":
            idle_pct = window.share(job.gpu_uuids[0], "utilization_pct", limits.least_s, below=1.0)
            if idle_pct is not None and idle_pct >= 99.0:
                because = "what its process does cannot be read"
                yield Abstention(rule="no-progress-single", because=because, subject=Subject(kind="job", job=job.id))
            continue
        still = _still(window, job, owners[0], processes, limits)
        if still is not None and (owners[0].state == "T" or _has_worked(window, job.gpu_uuids[0])):
            patience = _patience_s(window, still, limits)
            if still.quiet_s >= _NEARLY * patience:
                yield _finding(still, patience, limits)


def _has_worked(window: Window, uuid: str) -> bool:
    """It was seen to compute: what did nothing from the first look on is idle, not stuck."""
    count = min(1440, int(window.elapsed_s / 60.0) + 1)
    most = window.bins(uuid, "utilization_pct", end_s=window.last.time_s, width_s=60.0, count=count, how="max")
    return any(value is not None and value >= 5.0 for value in most)


def _still(window: Window, job: Job, owner: Process, processes: Mapping[int, Process], limits: Limits) -> _Still | None:
    workers = workers_of(job, owner.pid, processes)
    if owner.state == "t" or _DEBUGGERS.search(owner.command or ""):
        return None
    quiet_s = _quiet_s(window, job, (owner, *workers), limits)
    cpu_pct = window.mean(owner, "main_thread_cpu_pct", min(_LOOK_S, max(quiet_s, 1.0))) or 0.0
    return _Still(job, owner, workers, quiet_s, cpu_pct)


def _quiet_s(window: Window, job: Job, everybody: Sequence[Process], limits: Limits) -> float:
    """How long ago the last sample was in which anything moved."""
    seconds = max(limits.labelled_s, 3 * (window.baseline(job, "longest_pause_s") or 0.0))
    ages = window.ages(seconds)
    quiet_s = ages[0] if ages else 0.0
    signs: list[tuple[str | Process, str, float]] = [(job.gpu_uuids[0], "utilization_pct", 5.0)]
    for process in everybody:
        name = "main_thread_cpu_pct" if process.pid in job.trainers else "cpu_pct"
        signs.append((process, name, limits.cpu_pct))
        signs += [(process, field, limits.io_bytes_per_s) for field in ("rchar_bytes_per_s", "write_bytes_per_s")]
    for subject, field, level in signs:
        for age, value in zip(reversed(ages), reversed(window.series(subject, field, seconds)), strict=True):
            if age >= quiet_s:
                break
            if value is not None and value >= level:
                quiet_s = age
                break
    return quiet_s


def _patience_s(window: Window, still: _Still, limits: Limits) -> float:
    rank = window.rank_of(still.owner.pid)
    is_labelled = rank is not None and rank.phase in ("eval", "checkpoint")
    longest = window.baseline(still.job, "longest_pause_s") or 0.0
    slowest = window.baseline(still.job, "step_p99_s") or 0.0
    return patience_s(longest, slowest, least_s=limits.labelled_s if is_labelled else limits.least_s)


def _finding(still: _Still, patience: float, limits: Limits) -> Finding:
    job, owner, workers = still.job, still.owner, still.workers
    is_stopped = owner.state == "T"
    severity: Severity = "warning" if workers or is_stopped or still.quiet_s >= limits.alone_s else "info"
    confidence: Confidence = "certain" if is_stopped else "possible"
    cause, text = "unknown", "it sleeps: a lock, a question, or something remote"
    if is_stopped:
        cause, text = "stopped", f"pid {owner.pid} was stopped (Ctrl-Z or SIGSTOP)"
    elif workers:
        cause, text = "workers-asleep", f"its {len(workers)} workers sleep as well: perhaps a deadlock"
    dump = f"py-spy dump --pid {owner.pid}"
    resume = f"kill -CONT {owner.pid}"
    fixes: tuple[str, ...] = (
        f"{dump}: the line it waits in",
        "a run with num_workers=0 tells whether the loader is to blame",
    )
    fixes += ("DataLoader(timeout=120): it fails instead of waiting", "end it and resume from the last checkpoint")
    return Finding(
        rule="no-progress-single",
        severity=severity,
        confidence=confidence,
        subject=Subject(kind="job", job=job.id, pid=owner.pid),
        summary=f"{job.name[:24]} stands still",
        strength=still.quiet_s / patience,
        cause=cause,
        cause_text=text,
        fix_text=resume if is_stopped else dump,
        evidence=(
            Evidence(name="nothing moved for", value=units.duration(still.quiet_s), judged_by=f"≥ {patience:.0f} s"),
            Evidence(
                name="main thread", value=round(still.cpu_pct, 1), unit="% CPU", judged_by=f"< {limits.cpu_pct:g}%"
            ),
            Evidence(name="state", value=owner.state),
            Evidence(name="loader workers", value=float(len(workers)) if workers else None),
        ),
        fixes=(resume, *fixes) if is_stopped else fixes,
        command=resume if is_stopped else dump,
        onset_s=still.quiet_s,
    )
