"""Knows which rows of a log that does not number its GPUs were taken at the same moment, by their times and values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gpumon.logs.reading import Facts

LOOK_AHEAD = 64
"""Rows that are looked at before the first is given."""
GPUS_MAX = 16
"""In one machine."""
_ONE_LOOK = 8
"""Rows without times and GPUs, so few that they are one look at many GPUs rather than seconds of one."""
_AT_ONCE_S = 0.05
_NEXT_S = 0.004
"""From one GPU to the next; asking one again takes longer."""
_PAUSE = 4.0
"""The pause between two polls is so many times what passes within one."""
_STEADY = ("name", "memory_total_bytes", "memory_used_bytes", "temperature_c")
"""What differs between GPUs and changes little from one moment to the next."""
_MUCH = 0.02


class Polls(NamedTuple):
    """How the rows follow each other."""

    gpus: int = 1
    first: int = 0
    """The GPU of the first row."""


def polls(times: Sequence[float | None], rows: Sequence[Facts]) -> Polls:
    """Look at the first rows of a log."""
    known = [time for time in times if time is not None]
    if len(known) < 2 or len(known) < len(rows):
        return _by_values(rows)
    gaps = [after - before for before, after in pairwise(known)]
    if len(rows) <= GPUS_MAX and min(gaps) >= 0.0 and (max(gaps) < _NEXT_S or _is_jumping(rows, sum(gaps))):
        return Polls(len(rows))
    return _by_pauses(gaps)


def _by_pauses(gaps: Sequence[float]) -> Polls:
    for gpus in range(2, GPUS_MAX + 1):
        for first in range(gpus):
            # The row after gap i has the number i + 1; a pause comes before each first GPU.
            pauses = [gap for i, gap in enumerate(gaps) if (i + 1 + first) % gpus == 0]
            within = [gap for i, gap in enumerate(gaps) if (i + 1 + first) % gpus != 0]
            if len(pauses) >= 2 and within and min(within) >= 0.0 and min(pauses) > _PAUSE * max(within):
                return Polls(gpus, first)
    return Polls()


def _is_jumping(rows: Sequence[Facts], within_s: float) -> bool:
    """Neighbouring rows differ in what cannot change so fast."""
    return within_s < _AT_ONCE_S and any(_differ(one, two) for one, two in pairwise(rows))


def _by_values(rows: Sequence[Facts]) -> Polls:
    """Rows of several GPUs repeat every so many rows, where their neighbours differ."""
    if len(rows) <= _ONE_LOOK:
        return Polls(max(1, len(rows)))
    if _share_that_differs(rows, 1) < 0.5:
        return Polls()
    return next((Polls(gpus) for gpus in range(2, GPUS_MAX + 1) if _share_that_differs(rows, gpus) < 0.1), Polls())


def _share_that_differs(rows: Sequence[Facts], apart: int) -> float:
    pairs = list(zip(rows, rows[apart:], strict=False))
    return sum(_differ(one, two) for one, two in pairs) / len(pairs) if len(pairs) > apart else 1.0


def _differ(one: Facts, two: Facts) -> bool:
    for field in _STEADY:
        mine, other = one.get(field), two.get(field)
        if mine is None or other is None or mine == other:
            continue
        if isinstance(mine, str) or abs(mine - other) > _MUCH * max(mine, other):
            return True
    return False
