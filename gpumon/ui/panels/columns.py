"""Where each element of a GPU's row stands for a given width; the same for every row and every frame."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from gpumon.units import GIB

Field = Literal["power", "temperature", "clock", "memory", "use", "budget"]

TIMELINE_X = 21
SPARKS_FROM = 110
"""Narrower screens show numbers only."""
_R2_SIZES = ((100, 30), (100, 20), (60, 30), (60, 20), (50, 20), (40, 20), (40, 10), (30, 10))
_R1_SIZES = ((100, 20), (100, 10), (60, 20), (60, 10), (50, 10), (40, 10), (30, 10))
_R1_DROPPED: tuple[frozenset[Field], ...] = (
    frozenset(),
    frozenset({"use"}),
    frozenset({"use", "memory"}),
    frozenset({"use", "memory", "clock"}),
    frozenset({"use", "memory", "clock", "power"}),
)
"""What goes first when a row of numbers gets narrow."""


class Widths(msgspec.Struct, frozen=True):
    """Digits that the biggest card needs; set once at the start."""

    power: int = 3
    memory: int = 4
    """With its decimal."""

    @classmethod
    def of(cls, power_limits_w: list[float], memory_totals_bytes: list[int]) -> Widths:
        """Widths for these limits."""
        return cls(
            4 if max(power_limits_w, default=0.0) >= 999.5 else 3,
            5 if max(memory_totals_bytes, default=0) >= 99.95 * GIB else 4,
        )


class Columns(msgspec.Struct, frozen=True):
    """Cells of each element of one density; 0 is an element that is left out."""

    lines: int
    timeline: int
    spark: int
    power: int
    temperature: int
    clock: int
    memory: int
    use: int
    budget: int
    has_decimals: bool

    @property
    def upper(self) -> int:
        """Lines of the upper signals, and of the state; the lower ones, and the budget, have the rest."""
        return (self.lines + 1) // 2

    @property
    def after(self) -> int:
        """First cell right of the timeline."""
        return TIMELINE_X + self.timeline


@lru_cache(maxsize=16)
def several_lines(width: int, widths: Widths, present: frozenset[Field], lines: int = 2) -> Columns:
    """R2: power over memory, temperature over clock, each pair in one column; tall screens give it more lines."""
    pair = max(2 * widths.power + 1, 2 * widths.memory + 1) if present & {"power", "memory"} else 0
    heat = 4 if present & {"temperature", "clock"} else 0
    groups = (pair > 0) + (heat > 0)
    fixed = TIMELINE_X + (1 + pair if pair else 0) + (1 + heat if heat else 0)
    timeline, spark = 40, 0
    if width >= SPARKS_FROM:
        timeline, spark = next(
            (size for size in _R2_SIZES if fixed + size[0] + groups * (size[1] + 1) <= width), (40, 0)
        )
    if fixed + timeline > width:
        timeline = 30
    return Columns(lines, timeline, spark, pair, heat, heat, pair, 4, 10, has_decimals=True)


@lru_cache(maxsize=16)
def one_line(width: int, widths: Widths, present: frozenset[Field]) -> Columns:
    """R1: numbers, from 110 columns on with sparklines and a budget bar."""
    if width >= SPARKS_FROM:
        power, heat, clock, memory = (
            cells if field in present else 0
            for field, cells in (("power", widths.power), ("temperature", 3), ("clock", 4), ("memory", 3))
        )
        signals = sum(1 for cells in (power, heat, clock) if cells)
        fixed = TIMELINE_X + sum(1 + cells for cells in (power, heat, clock, memory) if cells) + 7
        for timeline, spark in _R1_SIZES:
            if fixed + timeline + signals * (1 + spark) <= width:
                return Columns(1, timeline, spark, power, heat, clock, memory, 0, 6, has_decimals=False)
    for dropped in _R1_DROPPED:
        kept = present - dropped
        power, heat, clock, memory, use = (
            cells if field in kept else 0
            for field, cells in (("power", 4), ("temperature", 3), ("clock", 4), ("memory", widths.memory), ("use", 3))
        )
        fixed = TIMELINE_X + sum(1 + cells for cells in (power, heat, clock, memory, use) if cells) + (use > 0)
        for timeline in (60, 50, 40, 30):
            if fixed + timeline <= width:
                return Columns(1, timeline, 0, power, heat, clock, memory, use, 0, has_decimals=True)
    return Columns(1, 20, 0, 0, 3, 0, 0, 0, 0, has_decimals=True)
