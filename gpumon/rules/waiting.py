"""Knows how much of its time a job waits for data: each of its GPUs, and all of them where they go in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.model import Gpu, Job, Process, Rank
from gpumon.rules.measured import Sampled, Steps, sampled_of, steps_of
from gpumon.signals import trainer_of
from gpumon.window import Window

SERIES = "budget.data_pct"
_PARTS = 4
_BELONGS = 0.25
"""A GPU that shows this part of the job's wait is among those that cause it."""


class Waiting(NamedTuple):
    """One GPU that waits for data, or does not."""

    gpu: Gpu
    trainer: Process | None
    rank: Rank | None
    share_pct: float
    steps: Steps | None
    """What the probe measured; None from outside."""
    sampled: Sampled | None = None
    """What its stack showed now and then, where somebody samples it and it was seen waiting at all.

    Where it never was, its loader may be one that no table knows.
    """


class Waits(NamedTuple):
    """What a job loses by waiting for data, and whose waits these are."""

    share_pct: float
    quarters_pct: tuple[float, ...]
    """The same of each quarter of the time, as far as known: a burst is in one of them only."""
    group: tuple[Waiting, ...]

    def measured(self) -> list[Steps]:
        """What probes measured."""
        return [one.steps for one in self.group if one.steps is not None]

    def sampled(self) -> list[Sampled]:
        """What samples of stacks showed."""
        return [one.sampled for one in self.group if one.sampled is not None]


def waiting_of(window: Window, job: Job, gpu: Gpu, processes: Mapping[int, Process], seconds: float) -> Waiting:
    """How much a GPU waits, by the probe of its process, else as the loader looks from outside."""
    trainer = trainer_of(job, gpu.uuid, processes)
    rank = window.rank_of(trainer.pid) if trainer is not None else None
    steps = steps_of(window, rank, seconds) if rank is not None else None
    if steps is None:
        sampled = sampled_of(window, rank, seconds) if rank is not None and rank.sampled_waits else None
        share = window.mean(gpu, SERIES, seconds) or 0.0
        if sampled is not None:
            share = min(sampled.wait_pct, 100.0 - (window.mean(gpu, "utilization_pct", seconds) or 0.0))
        return Waiting(gpu, trainer, rank, share, None, sampled)
    # A loop that runs ahead of its GPU waits in the loader instead of for the GPU: only gaps of the GPU are lost time.
    use = window.mean(gpu, "utilization_pct", steps.seconds)
    share = steps.wait_pct if use is None else min(steps.wait_pct, 100.0 - use)
    return Waiting(gpu, trainer, rank, share, steps)


def waits_in_step(window: Window, seen: Sequence[Waiting], seconds: float) -> Waits:
    """What GPUs lose together that meet at every step: each waits for whoever waits."""
    span_s = max((one.steps.seconds for one in seen if one.steps is not None), default=seconds)
    columns = [_column(window, one, span_s) for one in seen]
    worst = [max((value for value in row if value is not None), default=None) for row in zip(*columns, strict=True)]
    covers, ages = window.covered(span_s), window.ages(span_s)
    sums, times = [0.0] * _PARTS, [0.0] * _PARTS
    for value, cover, age in zip(worst, covers, ages, strict=True):
        if value is not None:
            part = min(_PARTS - 1, int(age / span_s * _PARTS))
            sums[part] += value * cover
            times[part] += cover
    quarters = tuple(total / time for total, time in zip(sums, times, strict=True) if time > 0)
    most = max((one.share_pct for one in seen), default=0.0)
    known_s = sum(times)
    share = most if len(seen) == 1 or known_s < span_s / 2 else max(most, sum(sums) / known_s)
    group = tuple(one for one in seen if one.share_pct >= _BELONGS * share)
    return Waits(share, quarters, group)


def _column(window: Window, one: Waiting, seconds: float) -> Sequence[float | None]:
    """The share of each sample; a measured one scaled to what the GPU feels."""
    if one.steps is None or one.rank is None:
        return window.series(one.gpu, SERIES, seconds)
    felt = one.share_pct / one.steps.wait_pct if one.steps.wait_pct > 0 else 0.0
    lengths, waits = (window.series(one.rank, field, seconds) for field in ("step_s", "data_wait_s"))
    return [
        100.0 * felt * min(1.0, wait / length) if length and wait is not None else None
        for length, wait in zip(lengths, waits, strict=True)
    ]
