"""Knows ``training-died``: a job ended, and something says that it was not meant to."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon import units
from gpumon.model import Ending, Evidence, Finding, Job, Subject
from gpumon.rules import crashes_by_log, crashes_by_message
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.verdict import Verdict, verdict_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ends are reported, and for how long."""

    least_s: float = 120.0
    """A job that lived for less is a short script; only a row of them counts, as a crash loop."""
    shown_s: float = 1800.0
    """How long it is shown, unless the same program trains again before."""


@rule(
    "training-died",
    limits=Limits,
    every_s=1.0,
    clear_s=2.0,
    suppressed_by=("gpu-lost", "xid", "collective-hang"),
)
def training_died(window: Window, limits: Limits) -> Conclusions:
    """A training job is over and did not end by itself: it was killed, it crashed, or one rank left the others.

    What it sees:
        A job's processes are gone, and something tells why: a kill by the kernel, an Xid or a lost GPU within the last
        minute, a segmentation fault, an exit code where the parent told, a stretch without progress, or one rank that
        ended ten seconds before the others. A process with the probe says farewell at its end; one that goes without
        was killed. Three runs of one command line that end within five minutes, in half an hour, leave nothing behind
        and say no farewell are a crash loop. In a kernel's log: a segmentation fault of a Python program, or in a
        library of CUDA, NCCL or PyTorch. In a program's own output: an error of CUDA or NCCL, a worker that crashed.

    Why it matters:
        The GPUs stand idle from now on, and nobody is told: the log simply stops.

    What to do:
        Read the end of the log of the rank that ended first, mend the cause, resume from the last checkpoint.

    When it is wrong:
        The exit code is known to a process's parent alone. Without any trace of a fault it stays with training-ended.
        A scheduler's time limit and a program that leaves by os._exit() look like a kill.
        Short scripts, notebooks and servers are not watched.
    """
    yield from crashes_by_log.crashed(window)
    told = crashes_by_message.ended(window)
    if told is not None:
        yield told
    for ending in latest(window):
        if not is_watched(window, ending, limits.shown_s):
            continue
        verdict = verdict_of(window, ending)
        is_long = ending.lived_s >= limits.least_s
        if verdict is not None and verdict.is_death and (is_long or verdict.cause == "crash-loop"):
            yield finding_of(window, ending, verdict)


def latest(window: Window) -> Iterator[Ending]:
    """Newest first, without runs of a program that another run of it has followed and also ended."""
    confirmed = [ending for ending in reversed(window.ended_jobs) if ending.is_confirmed]
    for number, ending in enumerate(confirmed):
        if not any(_follows(later.job, ending) for later in confirmed[:number]):
            yield ending


def is_watched(window: Window, ending: Ending, shown_s: float) -> bool:
    """A training job that ended lately, and does not train again."""
    if ending.job.kind in ("serving", "notebook"):
        return False
    if window.elapsed_s - ending.elapsed_s > shown_s and not ending.remaining:
        return False
    return not any(job.phase == "train" and _follows(job, ending) for job in window.jobs)


def _follows(job: Job, ending: Ending) -> bool:
    """The same program by the same user, started when this run was over: not one that runs beside it."""
    earlier = ending.job
    is_same = job.name == earlier.name and job.user == earlier.user
    return is_same and job.started_s is not None and job.started_s >= ending.ended_s - 1.0


def finding_of(window: Window, ending: Ending, verdict: Verdict) -> Finding:
    """About the job, with what was last seen of it."""
    job = ending.job
    ago_s = window.elapsed_s - ending.elapsed_s
    word = "lost a rank" if ending.remaining else "died" if verdict.is_death else "ended"
    resume = "resume it from its last checkpoint"
    first = next(iter(ending.exits), None)
    return Finding(
        rule="training-died" if verdict.is_death else "training-ended",
        severity="critical" if verdict.is_death else "info",
        confidence=verdict.confidence,
        subject=Subject(kind="job", job=job.id, pid=first),
        summary=f"{job.name[:24]} {word} after {units.duration(ending.lived_s)}",
        cause=verdict.cause,
        cause_text=verdict.text[:70],
        fix_text=verdict.fix,
        evidence=(
            *verdict.evidence,
            Evidence(name="ended first", value=None if first is None else _first(ending, first)),
            Evidence(name="GPUs that are free now", value=None if ending.remaining else float(len(job.gpu_uuids))),
            Evidence(name="exit code", value=_codes(ending)),
        ),
        fixes=(verdict.fix, resume) if verdict.is_death else (),
        explained_by=("ram-pressure",) if verdict.cause == "oom-kill" else (),
        onset_s=ago_s + (max(ending.exits.values(), default=0.0) if ending.remaining else 0.0),
    )


def _first(ending: Ending, pid: int) -> str:
    rank = ending.ranks.get(pid)
    return f"pid {pid}" if rank is None else f"rank {rank}, pid {pid}"


def _codes(ending: Ending) -> str:
    known = sorted(set(ending.codes.values()))
    return ", ".join(map(str, known)) if known else "unknown: only its parent learns it"
