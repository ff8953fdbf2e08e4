"""Knows what a probe measured of a rank's steps over a window: how much they wait, copy, and in which rhythm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from gpumon.model import Rank
from gpumon.signals import LEAST_STACKS
from gpumon.window import Window

LEAST_STEPS = 20
"""Fewer prove nothing: one slow batch would."""
_LONGEST_S = 600.0
_STALLS_LEAST = 5
_REGULAR_SHARE = 0.7
_SURE = 1.96
"""Standard deviations: 95 % of cases lie within so many."""


class Steps(NamedTuple):
    """Sums over many steps. Shares are means: where every fourth step waits long, the median wait is nothing."""

    steps: int
    step_s: float
    wait_pct: float
    """Share of the steps' time spent waiting for data."""
    copy_pct: float | None
    """Share of the steps' time spent copying to the device; None where the probe could not time it on the GPU."""
    seconds: float
    """The stretch of time they took."""


@lru_cache(maxsize=2)
def _known(_window: Window) -> dict[tuple[int, float], Steps | None]:
    """What was summed of a window already: several rules ask for the same, one after the other."""
    return {}


def steps_of(window: Window, rank: Rank, seconds: float) -> Steps | None:
    """The last steps of a rank, at least twenty of them within ten minutes; None where there are fewer."""
    known, key = _known(window), (rank.pid, seconds)
    if key not in known:
        found = _sum(window, rank, seconds)
        if found is not None and found.steps < LEAST_STEPS:
            longer_s = min(_LONGEST_S, 1.2 * LEAST_STEPS * found.step_s)
            found = _sum(window, rank, longer_s) if longer_s > seconds else None
        known[key] = found if found is not None and found.steps >= LEAST_STEPS else None
    return known[key]


def _sum(window: Window, rank: Rank, seconds: float) -> Steps | None:
    numbers, lengths, waits, copies = (
        window.series(rank, field, seconds) for field in ("step", "step_s", "data_wait_s", "h2d_s")
    )
    covers = window.covered(seconds)
    count = total = waited = copied = copied_of = 0.0
    before: float | None = None
    for number, length, wait, copy, cover in zip(numbers, lengths, waits, copies, covers, strict=True):
        # Steps since the last sample; a probe that does not count, or began anew, did as many as fit.
        done = number - before if number is not None and before is not None and number >= before else None
        before = number if number is not None else before
        if not length or wait is None:
            continue
        steps = done if done is not None else cover / length
        count += steps
        total += steps * length
        waited += steps * min(wait, length)
        if copy is not None:
            copied += steps * min(copy, length)
            copied_of += steps * length
    if count <= 0 or total <= 0:
        return None
    return Steps(
        steps=round(count),
        step_s=total / count,
        wait_pct=100.0 * waited / total,
        copy_pct=100.0 * copied / copied_of if copied_of >= total / 2 else None,
        seconds=seconds,
    )


class Sampled(NamedTuple):
    """How often a process was found waiting for data, and between which shares the true one lies, most likely."""

    stacks: int
    wait_pct: float
    low_pct: float
    high_pct: float


def share_of(stacks: int, waits: int) -> Sampled:
    """The share by so many samples, with Wilson's 95 % interval, which holds for few of them and near 0 and 100."""
    share, square = waits / stacks, _SURE**2
    middle = (share + square / (2 * stacks)) / (1 + square / stacks)
    width = _SURE / (1 + square / stacks) * sqrt(share * (1 - share) / stacks + square / (4 * stacks**2))
    low, high = max(0.0, middle - width), min(1.0, middle + width)
    return Sampled(stacks, 100.0 * share, 100.0 * low, 100.0 * high)


def sampled_of(window: Window, rank: Rank, seconds: float) -> Sampled | None:
    """What the stacks of a rank told; None where they were too few."""
    if not rank.is_sampled:
        return None
    counted = zip(*(window.series(rank, field, seconds) for field in ("sampled_stacks", "sampled_waits")), strict=True)
    known = [(stacks, waits) for stacks, waits in counted if stacks is not None and waits is not None]
    stacks = waits = 0.0
    for before, after in pairwise(known):
        if after[0] >= before[0]:  # else somebody began anew
            stacks, waits = stacks + after[0] - before[0], waits + max(0.0, after[1] - before[1])
    return share_of(round(stacks), round(min(waits, stacks))) if stacks >= LEAST_STACKS else None


class Rhythm(NamedTuple):
    """How the waits lie among the steps."""

    wait_p95_s: float | None
    every: int | None
    """Every so many steps one waits long; None where there is no such rhythm."""


def rhythm_of(window: Window, rank: Rank, steps: Steps) -> Rhythm:
    """How the single waits of these steps lie."""
    samples = window.samples(rank, steps.seconds)
    p95 = percentile(samples, 0.95)
    return Rhythm(p95, rhythm(samples, max(0.5 * (p95 or 0.0), 0.1 * steps.step_s)))


def percentile(samples: Sequence[float], share: float) -> float | None:
    """The value that this share of the samples does not exceed; None where there are too few."""
    if len(samples) < LEAST_STEPS:
        return None
    return sorted(samples)[int(share * (len(samples) - 1))]


def rhythm(samples: Sequence[float], long_s: float) -> int | None:
    """The usual distance between steps that take so long; with N workers that are too slow, it is N."""
    if len(samples) < LEAST_STEPS:
        return None
    stalls = [place for place, wait in enumerate(samples) if wait >= long_s]
    distances = Counter(after - before for before, after in pairwise(stalls))
    if len(stalls) <= _STALLS_LEAST:
        return None
    every, times = distances.most_common(1)[0]
    return every if every >= 2 and times >= _REGULAR_SHARE * sum(distances.values()) else None
