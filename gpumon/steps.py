"""Knows what the steps of a job are like: how long, how much waiting, in which rhythm, and whether it stands still."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from gpumon.model import Job, Rank
from gpumon.rules.measured import Sampled, percentile, rhythm, sampled_of, steps_of
from gpumon.rules.memory import increase
from gpumon.rules.standstill import cause_of, culprit_of, member_of
from gpumon.signals import LEAST_STACKS, trainer_of
from gpumon.window import Window

LOOK_S = 60.0
"""What is told of now is a mean over this long: a single step says nothing."""
SINGLES_S = 120.0
"""So far back single steps are kept."""
STALLS = 1.5
"""A step this many times as long as the usual one stalls."""
_NOTICEABLE = 0.1
"""A wait of this part of the usual step can be seen."""
_COMPILES_LEAST, _COMPILES_PCT = 3, 5.0
"""Less is the usual beginning: a last batch of another size, an evaluation."""
_STILL_S = 10.0
_STILL_STEPS = 5.0


class Pace(NamedTuple):
    """The steps of the last minute or two; None where the probe tells nothing of it."""

    step_s: float | None = None
    """Mean."""
    wait_pct: float | None = None
    """Share of the steps' time spent waiting for data."""
    p50_s: float | None = None
    p95_s: float | None = None
    wait_p95_s: float | None = None
    every: int | None = None
    """Every so many steps one stalls."""
    samples_per_s: float | None = None
    is_sampled: bool = False
    """No step is known: its stack is looked at now and then."""
    sampled: Sampled | None = None
    """What that showed."""

    @property
    def steps_per_s(self) -> float | None:
        """While it trains."""
        return 1.0 / self.step_s if self.step_s else None


def pace_of(window: Window, rank: Rank) -> Pace:
    """How long the steps of a rank take; a rank that has not done one for a while has no pace."""
    if rank.is_sampled:
        sampled = sampled_of(window, rank, LOOK_S)
        return Pace(wait_pct=None if sampled is None else sampled.wait_pct, is_sampled=True, sampled=sampled)
    found = steps_of(window, rank, LOOK_S)
    if found is not None:
        step_s: float | None = found.step_s
        wait_pct: float | None = found.wait_pct
    else:
        step_s = window.mean(rank, "step_s", LOOK_S) or rank.step_s
        wait_s = window.mean(rank, "data_wait_s", LOOK_S)
        wait_s = rank.data_wait_s if wait_s is None else wait_s
        wait_pct = None if not step_s or wait_s is None else 100.0 * min(1.0, wait_s / step_s)
    return Pace(
        step_s=step_s or None,
        wait_pct=wait_pct,
        samples_per_s=window.mean(rank, "samples_per_s", LOOK_S) or rank.samples_per_s,
    )


def detailed(window: Window, rank: Rank) -> Pace:
    """The same with what single steps tell: the usual one, the long ones, and in which rhythm they come."""
    pace = pace_of(window, rank)
    lengths = window.step_samples(rank, SINGLES_S)
    waits = window.samples(rank, SINGLES_S)
    return pace._replace(
        p50_s=percentile(lengths, 0.5),
        p95_s=percentile(lengths, 0.95),
        wait_p95_s=percentile(waits, 0.95),
        every=stall_rhythm(lengths, waits),
    )


def stall_rhythm(lengths: Sequence[float], waits: Sequence[float]) -> int | None:
    """Every so many steps one stalls: it waits for its data, or takes half as long again as the usual one."""
    if not lengths:
        return None
    usual_s = median(lengths)
    if len(waits) == len(lengths):
        longest = percentile(waits, 0.95) or 0.0
        found = rhythm(waits, max(0.5 * longest, _NOTICEABLE * usual_s))
        if found is not None:
            return found
    return rhythm(lengths, STALLS * usual_s)


def job_pace(paces: Sequence[Pace]) -> Pace:
    """A job's pace from its ranks': they go in step, and the one that waits longest holds up all."""
    steps = [pace.step_s for pace in paces if pace.step_s is not None]
    waits = [pace.wait_pct for pace in paces if pace.wait_pct is not None]
    samples = [pace.samples_per_s for pace in paces if pace.samples_per_s is not None]
    return Pace(
        step_s=sum(steps) / len(steps) if steps else None,
        wait_pct=max(waits, default=None),
        samples_per_s=sum(samples) if samples else None,
        is_sampled=any(pace.is_sampled for pace in paces),
    )


class Compiled(NamedTuple):
    """What a program that trains compiled again within the last minute."""

    times: int
    pct: float
    """Share of the time."""


def recompiled(window: Window, rank: Rank) -> Compiled | None:
    """Whether it compiles again and again, and feels it: what the compiler took for constant changes."""
    times = increase(window, rank, "compiles", LOOK_S)
    if not times or times < _COMPILES_LEAST:
        return None
    spent_s = sum(value for value in window.series(rank, "compile_s", LOOK_S) if value is not None)
    pct = 100.0 * spent_s / max(1.0, sum(window.covered(LOOK_S)))
    return Compiled(round(times), min(100.0, pct)) if pct >= _COMPILES_PCT else None


def used_bytes(rank: Rank) -> int | None:
    """What its steps need of the memory that the framework holds: the highest use, not that of a random moment."""
    return rank.allocated_bytes if rank.allocated_peak_bytes is None else rank.allocated_peak_bytes


def wait_shares(lengths: Sequence[float | None], waits: Sequence[float | None]) -> list[float | None]:
    """Share of a step spent waiting for data, column by column."""
    return [
        100.0 * min(1.0, wait / length) if length and wait is not None else None
        for length, wait in zip(lengths, waits, strict=True)
    ]


def sampled_shares(stacks: Sequence[float | None], waits: Sequence[float | None]) -> list[float | None]:
    """Share of samples that waited, column by column: each of the last twenty samples or a few more."""
    known: list[tuple[float, float]] = []
    found: list[float | None] = []
    for seen, waited in zip(stacks, waits, strict=True):
        if seen is None or waited is None:
            found.append(None)
            continue
        if known and seen < known[-1][0]:
            known = []  # somebody began anew
        known.append((seen, waited))
        while len(known) > 1 and seen - known[1][0] >= LEAST_STACKS:
            del known[0]
        count = seen - known[0][0]
        is_enough = count >= LEAST_STACKS
        found.append(100.0 * (waited - known[0][1]) / count if is_enough else None)
    return found


def rank_on(window: Window, uuid: str) -> Rank | None:
    """What the probe of the process that works on a GPU reports."""
    job = window.job_of(uuid)
    if job is None or not window.last.ranks:
        return None
    trainer = trainer_of(job, uuid, {process.pid: process for process in window.last.processes})
    return None if trainer is None else window.rank_of(trainer.pid)


def is_measured(window: Window, uuid: str) -> bool:
    """The time that a GPU waits for data is measured inside its process, not inferred from outside."""
    rank = rank_on(window, uuid)
    return rank is not None and window.mean(rank, "data_wait_s", LOOK_S) is not None


class Standstill(NamedTuple):
    """A job of which no rank has done a step for a while."""

    quiet_s: float
    why: str | None
    """``rank 2 idles``; None where nobody stands out."""
    culprit: int | None
    """Its pid."""
    label: Literal["eval", "checkpoint"] | None
    """What a probe says that it does instead."""


def standstill_of(window: Window, job: Job) -> Standstill | None:
    """For how long nothing has moved, and who keeps it; None while it goes on, starts or ends."""
    quiet_s = window.baseline(job, "quiet_s")
    if quiet_s is None or job.trained_since_s is None or job.phase in ("start", "end"):
        return None
    if quiet_s < max(_STILL_S, _STILL_STEPS * (window.baseline(job, "step_p99_s") or 0.0)):
        return None
    label = next((rank.phase for rank in window.ranks_of(job) if rank.phase in ("eval", "checkpoint")), None)
    processes = {process.pid: process for process in window.last.processes}
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    owners = [processes[pid] for pid in job.trainers if pid in processes]
    members = [member_of(window, gpus[uuid], owners) for uuid in job.gpu_uuids if uuid in gpus]
    culprit = culprit_of(members)
    gone = max(0, int(window.baseline(job, "ranks_seen") or 0) - len(job.trainers))
    cause, why = cause_of(culprit, gone)
    pid = None if culprit is None or culprit.trainer is None else culprit.trainer.pid
    return Standstill(quiet_s, None if cause is None else why, pid, label)
