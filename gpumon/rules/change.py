"""Knows how much a level scatters, and the one moment at which it changed for good, or that there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

_LEAST_SPREAD = 0.01
"""Of a logarithm: below a percent nothing is told apart, however even the readings are."""
_SURE = 8.0
"""Standard errors between the two levels. Neighbours resemble each other, so this is less than it seems."""
_ABRUPT_SHARE = 0.6
"""Share of the change that must come at the moment itself; the rest of it is a drift."""


class Change(NamedTuple):
    """Two levels and the place between them."""

    at: int
    """The first value of the new level."""
    rise: float
    """New mean minus old mean."""


def change_point(values: Sequence[float], *, before: int, after: int) -> Change | None:
    """Where the mean of a series changed: at least ``before`` values on the old level, ``after`` on the new one.

    The split that leaves the least scatter, if its levels lie clearly apart, the middle halves of their values do not
    overlap, and most of the change comes at once.
    """
    count = len(values)
    if count < before + after:
        return None
    sums = [0.0, *accumulate(values)]
    total = sums[count]
    # The more of the squares the two means take up, the less is left as scatter.
    taken = [
        old * old / at + (total - old) * (total - old) / (count - at)
        for at, old in enumerate(sums[before : count - after + 1], before)
    ]
    index = before + taken.index(max(taken))
    if index in {before, count - after}:
        return None  # the edge is not a moment: the best split may lie beyond
    rise = (total - sums[index]) / (count - index) - sums[index] / index
    scatter = sum(value * value for value in values) - taken[index - before]
    spread = max(_LEAST_SPREAD, math.sqrt(max(0.0, scatter) / count))
    error = spread * math.sqrt(1.0 / index + 1.0 / (count - index))
    old, new = sorted(values[:index]), sorted(values[index:])
    sign = 1.0 if rise >= 0 else -1.0
    is_apart = sign * (_at(new, 0.5 - sign * 0.25) - _at(old, 0.5 + sign * 0.25)) > 0
    if abs(rise) < _SURE * error or not is_apart:
        return None
    near = max(2, min(before, after) // 2)
    around = _mean(values[index : index + near]) - _mean(values[index - near : index])
    return Change(at=index, rise=rise) if sign * around >= _ABRUPT_SHARE * abs(rise) else None


def deviation(values: Sequence[float]) -> float:
    """Root mean square about the mean; 0 without values."""
    if not values:
        return 0.0
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
