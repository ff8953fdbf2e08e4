"""How what a probe reports is written: step, wait and memory of a rank, in columns and in a section's rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpumon import units
from gpumon.model import Job, Rank
from gpumon.steps import Pace, job_pace, pace_of, used_bytes
from gpumon.ui.panels.line import right
from gpumon.ui.row import Piece
from gpumon.window import Window

STEP, WAIT, MEMORY = 9, 6, 13
CELLS = STEP + WAIT + MEMORY
HEADS = right("STEP", STEP) + right("WAIT", WAIT) + right("ALLOC/RESV G", MEMORY)
NO_PROBE = "step – start with  gpumon run -- python …  for step time and allocated memory"
NO_PROBE_SHORT = "step – for step time, alloc:  gpumon run -- python …"
LOUD_PCT = 10.0
"""From this wait on a rank is among those that an alert means."""
SAMPLED = "sampled"
"""Stands where a probe would tell the step: the wait beside it is that of now and then."""


class Told(msgspec.Struct, frozen=True):
    """What one probe tells."""

    rank: int | None
    pace: Pace
    used_bytes: int | None
    reserved_bytes: int | None


NOTHING = Told(None, Pace(), None, None)


def told_of(window: Window, jobs: Sequence[Job]) -> dict[int, Told]:
    """What the probes in these jobs' processes tell, by pid."""
    pids = {pid for job in jobs for pid in job.trainers}
    return {rank.pid: _told(window, rank) for rank in window.last.ranks if rank.pid in pids}


def _told(window: Window, rank: Rank) -> Told:
    return Told(rank.rank, pace_of(window, rank), used_bytes(rank), rank.reserved_bytes)


def together(told: Sequence[Told]) -> Told:
    """Of several ranks: the pace they share, and the sum of their memory; missing as soon as one part is."""
    if not told:
        return NOTHING
    used = [one.used_bytes for one in told if one.used_bytes is not None]
    reserved = [one.reserved_bytes for one in told if one.reserved_bytes is not None]
    return Told(
        None,
        job_pace([one.pace for one in told]),
        sum(used) if len(used) == len(told) else None,
        sum(reserved) if len(reserved) == len(told) else None,
    )


def cells(told: Told, *, is_starved: bool) -> list[Piece]:
    """The three columns; a wait that an alert is about is yellow."""
    pace = told.pace
    is_loud = is_starved and (pace.wait_pct or 0.0) >= LOUD_PCT
    return [
        (right(SAMPLED if pace.is_sampled and pace.step_s is None else step(pace.step_s), STEP), ""),
        (right(units.value("_pct", pace.wait_pct), WAIT), "bold data-text" if is_loud else ""),
        (right(memory(told), MEMORY), ""),
    ]


def step(seconds: float | None) -> str:
    """``0.618 s``."""
    return units.MISSING if seconds is None else units.step(seconds)


def memory(told: Told) -> str:
    """``58.1/71.4``: what the steps use of what the framework holds."""
    if told.used_bytes is None and told.reserved_bytes is None:
        return units.MISSING
    return f"{units.memory(told.used_bytes)}/{units.memory(told.reserved_bytes)}"


def sentence(told: Mapping[int, Told], job: Job) -> str:
    """``step 0.618 s · data wait 43% on rank 2 · alloc 58.1/71.4 G``: the same where there is no room for columns."""
    members = [told[pid] for pid in job.trainers if pid in told]
    of_job = together(members)
    waits = sorted(members, key=lambda one: one.pace.wait_pct or 0.0)
    wait = f"data wait {units.value('_pct', of_job.pace.wait_pct)}"
    if len(waits) > 1 and waits[-1].rank is not None:
        first, second = waits[-1].pace.wait_pct or 0.0, waits[-2].pace.wait_pct or 0.0
        wait += f" on rank {waits[-1].rank}" if first - second >= LOUD_PCT else ""
    if of_job.pace.is_sampled and of_job.pace.step_s is None:
        return f"{SAMPLED}: {wait}"
    return f"step {step(of_job.pace.step_s)} · {wait} · alloc {memory(of_job)} G"
