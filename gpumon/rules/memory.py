"""Knows what the rules about GPU memory share: how full it is, who holds it, and how fast what a job keeps grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from gpumon.model import Finding, Gpu, Job, Process, Rank, Subject
from gpumon.rules import scope
from gpumon.signals import leaves, trainer_of
from gpumon.window import Window

GIB = 1024.0**3
MIB = 1024.0**2

BLOCKS = 8
MARGIN_BYTES = GIB
"""Left for what is allocated outside the framework's pool: workspaces, communication buffers."""
_RAW_S = 1100.0
_WARM_UP_STEPS = 100
_STEPS = (400, 800, 1600, 3200, 6400)
_SHARE_OF_MEAN = 0.3
_NEARLY = 0.8
_POOLS = ("jax", "tensorflow")
_FLOOR = "allocated_min_bytes"


class Holding(NamedTuple):
    """A GPU that a job trains on, with the process that does it and what its probe says."""

    gpu: Gpu
    job: Job
    trainer: Process | None
    """None where no process is seen, as in a log."""
    rank: Rank | None


class Growth(NamedTuple):
    """How what a process keeps from step to step grows."""

    bytes: float
    """Over the stretch looked at."""
    steps: int
    seconds: float

    @property
    def bytes_per_step(self) -> float:
        """Mean growth per step."""
        return self.bytes / max(1, self.steps)

    @property
    def bytes_per_s(self) -> float:
        """Mean growth per second."""
        return self.bytes / self.seconds


@lru_cache(maxsize=1)
def holdings(window: Window) -> tuple[Holding, ...]:
    """Every GPU with memory of its own that a job works on; servers hold what they hold on purpose.

    Several rules ask for them of the same window, one after the other.
    """
    found = []
    processes = {process.pid: process for process in window.last.processes}
    for gpu in leaves(window.last.gpus):
        job = window.job_of(gpu.uuid)
        if gpu.is_lost or gpu.memory_is_shared or job is None or job.kind == "serving":
            continue
        trainer = trainer_of(job, gpu.uuid, processes)
        if trainer is not None or not job.trainers:
            found.append(Holding(gpu, job, trainer, None if trainer is None else window.rank_of(trainer.pid)))
    return tuple(found)


def used_pct(gpu: Gpu) -> float | None:
    """How full its memory is."""
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return 100.0 * gpu.memory_used_bytes / gpu.memory_total_bytes


def is_pool(trainer: Process | None) -> bool:
    """Its framework takes most of the memory at the start and gives it out by itself."""
    if trainer is None:
        return False
    named = (trainer.framework or "").lower()
    libraries = " ".join(trainer.libraries or ()).lower()
    return any(pool in named or f"lib{pool}" in libraries for pool in _POOLS)


def room_bytes(gpu: Gpu, rank: Rank) -> float | None:
    """How much more the process could allocate: what is free, and what its pool keeps beyond its peak."""
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    reserve = gpu.memory_reserved_bytes or 0
    cached = (rank.reserved_bytes or 0) - (rank.allocated_peak_bytes or rank.allocated_bytes or 0)
    return max(0.0, gpu.memory_total_bytes - reserve - gpu.memory_used_bytes + max(0, cached) - MARGIN_BYTES)


def growth_of(window: Window, rank: Rank, least_bytes: float) -> Growth | None:
    """Steady growth of the floor, the least that is allocated between two steps, of about ``least_bytes`` or more.

    A stretch of 400 to 6400 steps is cut into eight; each part must lie above the one before by a share of the mean
    rise. A cache that fills, a staircase and a pool that empties again have flat parts or give back.
    """
    nearly: Growth | None = None
    pace = window.mean(rank, "step_s", 60.0)
    if not pace or rank.step is None or rank.allocated_min_bytes is None:
        return None
    span_s = window.span_s + window.interval_s
    lengths = [steps for steps in _STEPS if rank.step >= steps + _WARM_UP_STEPS and steps * pace <= span_s]
    for steps in lengths:
        found = _growth_over(window, rank, steps, steps * pace, _NEARLY * least_bytes)
        if found is not None and found.bytes >= least_bytes:
            return found
        nearly = found or nearly
    return nearly


def _growth_over(window: Window, rank: Rank, steps: int, seconds: float, least_bytes: float) -> Growth | None:
    """Steady growth over a stretch; most of the time nothing rises, which its first and last part tell."""
    first = _block(window, rank, seconds, 0)
    last = None if first is None else _block(window, rank, seconds, BLOCKS - 1)
    if first is None or last is None or (last - first) * BLOCKS / (BLOCKS - 1) < least_bytes:
        return None
    between = [_block(window, rank, seconds, number) for number in range(1, BLOCKS - 1)]
    known = [block for block in between if block is not None]
    return _steady([first, *known, last], seconds, steps) if len(known) == len(between) else None


def _block(window: Window, rank: Rank, seconds: float, number: int) -> float | None:
    """Level of one of the eight parts of a stretch, 0 is the oldest: a median where single samples are still known."""
    width_s = seconds / BLOCKS
    ago_s = width_s * (BLOCKS - 1 - number)
    if seconds > _RAW_S * window.interval_s:
        return window.bins(rank, _FLOOR, end_s=window.last.time_s - ago_s, width_s=width_s, count=1)[0]
    known = [floor for floor in window.series(rank, _FLOOR, width_s, ago_s=ago_s) if floor is not None]
    return median(known) if known else None


def _steady(blocks: Sequence[float], seconds: float, steps: int) -> Growth | None:
    rises = [later - earlier for earlier, later in pairwise(blocks)]
    total = sum(rises)
    if total <= 0 or min(rises) < _SHARE_OF_MEAN * total / len(rises):
        return None
    # Eight means lie seven eighths of the stretch apart.
    grown = total * len(blocks) / len(rises)
    return Growth(grown, steps, seconds)


def increase(window: Window, rank: Rank, field: str, seconds: float) -> float | None:
    """How much a count rose; a count that fell began anew. None where it is not reported."""
    values = window.series(rank, field, seconds)
    if len(values) > 1 and values[-1] is not None and values.count(values[-1]) == len(values):
        return 0.0  # nearly always, and seen fast
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    return sum(max(0.0, later - earlier) for earlier, later in pairwise(known))


def subject_of(found: Sequence[Holding]) -> Subject:
    """One GPU with its process, or the job where several of its GPUs are concerned."""
    first = found[0]
    if len(found) == 1:
        pid = None if first.trainer is None else first.trainer.pid
        return Subject(kind="gpu", gpu=first.gpu.index, uuid=first.gpu.uuid, pid=pid, job=first.job.id)
    return Subject(kind="job", job=first.job.id)


def who(found: Sequence[Holding], window: Window) -> str:
    """``GPU 0``, ``GPUs 0–3``, ``3 GPUs``."""
    return scope.names([one.gpu for one in found], window.last.gpus)


def merged(found: Sequence[tuple[Holding, Finding]], window: Window) -> Iterator[Finding]:
    """One finding for a job where most of its GPUs have the same: the worst one's numbers, about all of them."""
    of_gpu = {one.gpu.uuid: finding for one, finding in found}
    for group in grouped([one for one, _ in found]):
        worst = max((of_gpu[one.gpu.uuid] for one in group), key=lambda finding: finding.strength)
        if len(group) > 1:
            summary = worst.summary.replace(_single(worst, window), who(group, window), 1)
            worst = replace(worst, subject=subject_of(group), summary=summary)
        yield worst


def _single(finding: Finding, window: Window) -> str:
    gpu = next(gpu for gpu in window.last.gpus if gpu.uuid == finding.subject.uuid)
    return scope.names([gpu], window.last.gpus)


def grouped(found: Sequence[Holding]) -> list[list[Holding]]:
    """By job where most of its GPUs are concerned, else one by one."""
    groups: dict[str, list[Holding]] = {}
    for one in found:
        groups.setdefault(one.job.id, []).append(one)
    result: list[list[Holding]] = []
    for group in groups.values():
        if len(group) > 1 and 2 * len(group) > len(group[0].job.gpu_uuids):
            result.append(group)
        else:
            result += [[one] for one in group]
    return result
