"""Knows what the columns of ``--format=csv,noheader`` can be, from units and from how their values go together.

Only what is certain is used: a column that could be two things is named and left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from gpumon.logs import csv_columns as of
from gpumon.logs import values
from gpumon.logs.csv_columns import Column
from gpumon.logs.csv_polls import LOOK_AHEAD, polls

ROWS_MAX = 20_000
"""Rows looked at before the columns are decided: memory that is free looks like all of it until something runs."""
BYTES_MAX = 4 << 20
_CELLS_MAX = 256
_NVIDIA_TIME = re.compile(r"\d{4}/\d{2}/\d{2} \d{2}:\d{2}:\d{2}\.\d{3}")
_FIGURE = r"(?<!\d)\d{1,9}(?:[.,]\d{1,6})?"
_SHAPES = {
    "time": re.compile(r"\d{4}[/-]\d{2}[/-]\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"),
    "%": re.compile(_FIGURE + r" ?%"),
    "MiB": re.compile(_FIGURE + r" ?MiB"),
    "W": re.compile(_FIGURE + r" ?W"),
    "MHz": re.compile(_FIGURE + r" ?MHz"),
    "state": re.compile(r"P\d{1,2}"),
    "uuid": re.compile(r"GPU-[0-9a-fA-F-]{8,40}"),
    "bus": re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]"),
    "whole": re.compile(r"\d{1,12}"),
    "number": re.compile(_FIGURE),
    "name": re.compile(r"(?:NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID)\b[\w .()/-]{0,60}"),
}
_MEASURED = frozenset({"%", "MiB", "W", "MHz"})
_TELLS = frozenset({"state", "uuid", "bus", "name"})
_JUMP_PCT = 20.0
"""Utilization jumps so far from one row to the next; a fan does not."""
_GROWN = 0.05
MISSING = "missing"
"""The shape of a cell without a value."""
_WORDS_MAX = 64


class Guess(NamedTuple):
    """What the columns are, and those that could be several things."""

    columns: tuple[Column | None, ...]
    doubts: tuple[str, ...]


def shape(cell: str) -> str | None:
    """Of what kind a cell plainly is."""
    if len(cell) <= _WORDS_MAX and values.is_missing(cell):
        return MISSING
    return next((name for name, pattern in _SHAPES.items() if pattern.fullmatch(cell)), None)


def cells_of(line: str) -> list[str]:
    """Without a header to say, the separator is nvidia-smi's, or else what divides most."""
    separator = next((one for one in ("\t", ";", ", ") if one in line), ",")
    return [cell.strip() for cell in line.split(separator)]


def begins(line: str) -> bool:
    """Whether a line is surely a row of ``nvidia-smi --query-gpu``, though nothing says what its columns are."""
    if not line[:1].isalnum() or len(line) > 4096:
        return False
    cells = cells_of(line)
    if not 2 <= len(cells) <= _CELLS_MAX:
        return False
    shapes = [shape(cell) for cell in cells]
    if None in shapes:
        return False
    measured, told = _MEASURED.intersection(shapes), _TELLS.intersection(shapes)
    if shapes[0] == "time" and _NVIDIA_TIME.fullmatch(cells[0]):
        return True
    return len(measured) >= 2 or bool(measured and ("time" in shapes or told)) or shapes.count("MiB") > 1


class Unheaded:
    """Rows that wait until enough of them tell what their columns are."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """Rows, and dates between them."""
        self._rows: list[list[str]] = []
        self._bytes = 0

    @property
    def first(self) -> str:
        """The first row."""
        return next(line for line in self.lines if len(cells_of(line)) == len(self._rows[0]))

    @property
    def is_full(self) -> bool:
        """No more rows are looked at."""
        return len(self._rows) >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, line: str) -> bool:
        """One more row; False where it is none."""
        cells = cells_of(line)
        if self._rows and len(cells) != len(self._rows[0]):
            return False
        self._rows.append(cells)
        self.note(line)
        return True

    def note(self, line: str) -> None:
        """A line between the rows."""
        self.lines.append(line)
        self._bytes += len(line)

    def guess(self) -> Guess:
        """Decide."""
        return _Guesser(list(zip(*self._rows, strict=True))).guess()


class _Guesser:
    """Columns of cells, and what has been found about them."""

    def __init__(self, cells: Sequence[Sequence[str]]) -> None:
        self._shapes = [_shape_of(column) for column in cells]
        self._values = [
            [of.within(cell, 0.0, 1e12) for cell in column] if one in {"%", "MiB", "W", "MHz", "whole"} else []
            for column, one in zip(cells, self._shapes, strict=True)
        ]
        self._found: dict[int, Column] = {}
        self._doubts: dict[int, str] = {}
        self._steps = self._steps_of(cells)
        """Pairs of rows that follow each other for one GPU."""

    def guess(self) -> Guess:
        for one, name in (
            ("time", "timestamp"),
            ("uuid", "uuid"),
            ("bus", "pci.bus_id"),
            ("name", "name"),
            ("state", "pstate"),
        ):
            for i in self._of(one)[:1]:
                self._is(i, name)
        self._shares()
        self._memory()
        self._watts()
        for i in self._of("MHz"):
            self._doubts[i] = "a clock of SM, graphics, memory or video, now or at most"
        self._numbers()
        columns = tuple(self._found.get(i) for i in range(len(self._shapes)))
        by_reason: dict[str, list[str]] = {}
        for i, why in sorted(self._doubts.items()):
            by_reason.setdefault(why, []).append(str(i + 1))
        return Guess(columns, tuple(_doubt(which, why) for why, which in by_reason.items()))

    def _steps_of(self, cells: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
        rows = range(len(cells[0]))
        keys: Sequence[object] | None = None
        named = [i for i, one in enumerate(self._shapes) if one in {"uuid", "bus"} or self._counts_up(i)]
        if named:
            keys = cells[named[0]]
        elif "time" in self._shapes:
            stamps = [values.moment(cell) for cell in cells[self._shapes.index("time")][:LOOK_AHEAD]]
            gpus = polls(stamps, ({},) * len(stamps)).gpus
            keys = [row % gpus for row in rows]
        newest: dict[object, int] = {}
        steps = []
        for row in rows:
            key = None if keys is None else keys[row]
            if key in newest:
                steps.append((newest[key], row))
            newest[key] = row
        return steps

    def _of(self, one: str) -> list[int]:
        return [i for i, mine in enumerate(self._shapes) if mine == one]

    def _is(self, i: int, name: str) -> None:
        self._found[i] = of.NVIDIA_SMI[name]

    def _shares(self) -> None:
        """The memory's utilization is never above the GPU's; a fan's speed never jumps."""
        at = self._of("%")
        if len(at) == 2 and self._always(at[0], at[1], lambda gpu, memory: memory <= gpu + 5.0) and self._jumps(at[0]):
            self._is(at[0], "utilization.gpu")
            self._is(at[1], "utilization.memory")
        elif len(at) == 1 and self._jumps(at[0]):
            self._is(at[0], "utilization.gpu")
        else:
            for i in at:
                self._doubts[i] = "utilization.gpu, utilization.memory or fan.speed"

    def _memory(self) -> None:
        """The largest is all of it where it never changes and another does; two that add up are used and free."""
        at = [i for i in self._of("MiB") if any(value is not None for value in self._values[i])]
        still = [i for i in at if len({value for value in self._values[i] if value is not None}) == 1]
        moving = [i for i in at if i not in still]
        total = [i for i in still if all(self._always(i, j, lambda all_of_it, some: some <= all_of_it) for j in at)]
        if len(moving) == 2 and self._add_up(*moving):
            names = {1: "memory.used", -1: "memory.free"}
            signs = [self._follows_work(i) for i in moving]
            if set(signs) == set(names):
                for i, sign in zip(moving, signs, strict=True):
                    self._is(i, names[sign])
                moving = []
        elif len(moving) == 1:
            sign = self._follows_work(moving[0])
            if sign or (total and total[0] > moving[0]):  # used before total is the usual order
                self._is(moving[0], "memory.free" if sign < 0 else "memory.used")
                moving = []
        if not moving and len(total) == 1 and len(at) > 1:
            self._is(total[0], "memory.total")
        for i in at:
            if i not in self._found:
                self._doubts[i] = "memory.used, memory.free or memory.total"

    def _watts(self) -> None:
        at = self._of("W")
        drawn = [i for i in at if len({value for value in self._values[i] if value is not None}) > 1]
        limits = [i for i in at if i not in drawn]
        if len(drawn) == 1:
            self._is(drawn[0], "power.draw")
            if len(limits) == 1 and self._always(limits[0], drawn[0], lambda limit, draw: draw < 1.2 * limit):
                self._is(limits[0], "power.limit")
        for i in at:
            if i not in self._found:
                self._doubts[i] = "power.draw, power.limit or another limit"

    def _numbers(self) -> None:
        """GPUs are counted up again and again; the one number that wanders within what GPUs bear is a temperature."""
        has_units = bool(_MEASURED.intersection(one or "" for one in self._shapes))
        at = self._of("whole")
        wandering = [i for i in at if self._wanders(i)] if has_units else []
        for i in at:
            if self._counts_up(i):
                self._is(i, "index")
            elif wandering == [i]:
                self._is(i, "temperature.gpu")
            elif not has_units or i in wandering:
                self._doubts[i] = "index, a temperature, a percentage, MiB, MHz or a count"

    # --- how values behave -----------------------------------------------------------------------

    def _always(self, one: int, other: int, holds: Callable[[float, float], bool]) -> bool:
        pairs = zip(self._values[one], self._values[other], strict=True)
        return all(holds(mine, its) for mine, its in pairs if mine is not None and its is not None)

    def _jumps(self, i: int) -> bool:
        return any(step > _JUMP_PCT for step in self._changes(i))

    def _changes(self, i: int) -> Iterator[float]:
        """By how much a GPU's value changes from one of its rows to the next."""
        known = self._values[i]
        pairs = ((known[before], known[after]) for before, after in self._steps)
        return (abs(after - before) for before, after in pairs if before is not None and after is not None)

    def _add_up(self, one: int, other: int) -> bool:
        sums = {mine + its for mine, its in zip(self._values[one], self._values[other], strict=True)
                if mine is not None and its is not None}  # fmt: skip
        return bool(sums) and max(sums) - min(sums) <= 0.001 * max(sums)

    def _follows_work(self, i: int) -> int:
        """1 where it is more in rows with work than in rows without, -1 where it is less, 0 where that is not clear."""
        share = next((j for j, column in self._found.items() if column is of.NVIDIA_SMI["utilization.gpu"]), None)
        if share is None:
            return 0
        known = [(value, work) for value, work in zip(self._values[i], self._values[share], strict=True)
                 if value is not None and work is not None]  # fmt: skip
        idle = [value for value, work in known if work == 0.0]
        busy = [value for value, work in known if work >= _JUMP_PCT]
        if not idle or not busy:
            return 0
        grown = (fmean(busy) - fmean(idle)) / max(1.0, *idle, *busy)
        return 0 if abs(grown) < _GROWN else 1 if grown > 0 else -1

    def _counts_up(self, i: int) -> bool:
        known = self._values[i]
        if self._shapes[i] != "whole":
            return False
        top = max((value for value in known if value is not None), default=0.0)
        return 1.0 <= top < 16.0 and len(known) >= 2 * (top + 1) and all(
            after == (0.0 if before == top else (before or 0.0) + 1.0) for before, after in pairwise(known)
        )  # fmt: skip

    def _wanders(self, i: int) -> bool:
        known = [value for value in self._values[i] if value is not None]
        if not known or not 15.0 <= min(known) <= max(known) <= 110.0 or len(set(known)) < 3:
            return False
        return all(step <= _JUMP_PCT for step in self._changes(i))


def _doubt(which: Sequence[str], why: str) -> str:
    return f"column {which[0]} could be {why}" if len(which) == 1 else f"columns {', '.join(which)} could be {why}"


def _shape_of(column: Sequence[str]) -> str | None:
    shapes = {shape(cell) for cell in set(column)} - {MISSING}
    if shapes == {"whole", "number"}:
        return "number"
    return shapes.pop() if len(shapes) == 1 else None
