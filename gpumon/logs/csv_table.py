"""Turns the rows of one CSV table into facts, as its header says, and fast: a cell seen before is only looked up."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from operator import getitem, itemgetter
from typing import Any

from gpumon.logs import csv_columns as of
from gpumon.logs import values
from gpumon.logs.csv_clock import Clock
from gpumon.logs.csv_columns import Column, Convert, Share
from gpumon.logs.reading import Place
from gpumon.reasons import REASON_NAMES

_MILLISECONDS = re.compile(r"\d{3}")
_CELLS_MAX = 16_384
"""Remembered cells of a column; of power to the hundredth of a watt there may be more."""
_COUNTER_S = 0.9
"""A share of the time is taken over at least so much."""
_LIMITS_CLOCKS = ({"sw_power_cap"}, {"sw_thermal"}, {"hw_slowdown", "hw_thermal"}, {"hw_slowdown", "hw_power_brake"})
"""Where one of each is reported and none is active, nothing holds the clocks down."""


Row = tuple[float | None, Place | None, dict[str, Any]]
"""What one row says: when, of which GPU, what. A plain tuple, because there are millions."""


class _Cells(dict[str, Any]):
    """Cell -> ``(field, value)``, or None where it says nothing."""

    def __init__(self, field: str, convert: Convert) -> None:
        super().__init__()
        self._field, self._convert = field, convert
        self._is_open = isinstance(convert, Share)

    def __missing__(self, cell: str) -> tuple[str, Any] | None:
        text = cell.strip(" \t\"'")
        value = self._convert(text)
        pair = None if value is None else (self._field, value)
        if value is None and "is lost" in text.lower():
            pair = ("is_lost", True)
        if pair is None and self._is_open:
            return None
        if len(self) >= _CELLS_MAX:
            self.clear()
        self[cell] = pair
        return pair


class _LastCell:
    """The last cell of a row that was cut has lost its unit, and maybe digits too."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._unit = ""

    def __call__(self, cell: str) -> object:
        unit = cell.partition(" ")[2]
        if cell[:1].isdigit():
            if self._unit and not unit:
                return None
            self._unit = unit
        return self._convert(cell)


class _Places(dict[Any, Place | None]):
    """Cells that name a GPU -> the GPU."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self._columns = columns

    def __missing__(self, cells: str | tuple[str, ...]) -> Place | None:
        names = {}
        for column, cell in zip(self._columns, (cells,) if isinstance(cells, str) else cells, strict=True):
            text = cell.strip(" \t\"'")
            if text:
                names[column.field] = column.convert(text)
        place = Place(names.get(of.INDEX), names.get(of.BUS), names.get(of.UUID))
        if len(self) >= _CELLS_MAX:
            self.clear()
        self[cells] = found = None if place == Place() else place
        return found


class Table:
    """One header's rows."""

    def __init__(self, columns: Sequence[Column | None], separator: str, first: Sequence[str]) -> None:
        """``first``: the cells of the first row, which show how times are written."""
        self.separator = separator
        self.width = len(columns)
        self.columns = tuple(columns)
        self.is_of_uses = any(column is not None and column.field == "use.pid" for column in columns)
        self.clock: Clock | None = None
        self._time_at = 0
        self._find_time(first)
        named = [(i, column) for i, column in enumerate(columns) if column is not None and column.field in of.PLACES]
        self.has_places = bool(named)
        self._place_cells: Callable[[Sequence[str]], Any] = itemgetter(*(i for i, _ in named)) if named else len
        self._places = _Places([column for _, column in named])
        self.is_keyed = self.has_places or self.clock is not None
        """A line with the right number of cells whose keys can be read is a row, even if nothing else in it can."""
        plain = [(i, column) for i, column in enumerate(columns) if column is not None and _is_fact(column)]
        plain.sort(key=lambda pair: pair[1].rank)
        self._pick = _picker([i for i, _ in plain])
        self._cells = tuple(
            _Cells(column.field, _LastCell(column.convert) if i == self.width - 1 > 0 else column.convert)
            for i, column in plain
        )
        self.fields = frozenset(column.field for _, column in plain)
        self._reasons, self._times = self._named("reason."), self._named("counter.")
        self.host_fields = self._named("host.")
        """Fields of the machine, each with its name in the model."""
        self._covers_limits = all(any(f"reason.{name}" in self.fields for name in names) for names in _LIMITS_CLOCKS)
        self._has_parts = bool(self._reasons or self._times) or not self.fields.isdisjoint({"free.memory", "max.card"})
        self._counters: dict[Place | None, tuple[float, dict[str, float], dict[str, float] | None]] = {}

    def row(self, cells: Sequence[str]) -> Row | None:
        """What a row of the right number of cells says; None where it is no row of this table."""
        time_s = place = None
        if self.clock is not None:
            time_s = self.clock.read(cells[self._time_at])
            if time_s is None:
                return None
        if self.has_places:
            place = self._places[self._place_cells(cells)]
            if place is None:
                return None
        facts = dict(filter(None, map(getitem, self._cells, self._pick(cells))))
        if self._has_parts:
            self._put_together(facts, time_s, place)
        return time_s, place, facts

    def of_host(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Take out of a row's facts what it says of the machine."""
        return {name: facts.pop(field) for field, name in self.host_fields if field in facts}

    def doubts(self) -> list[str]:
        """Names of utilizations that may be of 1 or of 100, after all rows."""
        converts = (column.convert for column in self.columns if column is not None)
        return [convert.name for convert in converts if isinstance(convert, Share) and convert.is_doubtful]

    def cells(self, line: str) -> list[str] | None:
        """The cells of a row that the separator alone does not cut rightly; None where their number stays wrong."""
        separators = (self.separator, *(one for one in (", ", ",", ";", "\t") if one != self.separator))
        for separator in separators:
            cells = line.rstrip(" ,;\t").split(separator) if separator.strip() else line.rstrip().split(separator)
            if len(cells) == self.width > 1:
                return cells
        if '"' in line:
            try:
                cells = next(csv.reader([line], delimiter=self.separator[0], skipinitialspace=True), [])
            except csv.Error:
                cells = []
            if len(cells) == self.width:
                return cells
        return self._rejoined(line.split(self.separator))

    def resembles(self, cells: Sequence[str]) -> bool:
        """Whether cells of the wrong number begin like a row of this table, so that it is one, cut or damaged."""
        if self.clock is not None and self._time_at == 0:
            return self.clock.read(cells[0]) is not None
        known = [
            (column, cell.strip()) for column, cell in zip(self.columns, cells, strict=False) if column is not None
        ]
        return len(known) > 1 and all(
            values.is_missing(cell) or column.convert(cell) is not None for column, cell in known[:-1]
        )

    def is_row(self, cells: Sequence[str]) -> bool:
        """Whether cells are surely a row of this table, met after lines of other kinds."""
        if len(cells) != self.width:
            return False
        known = [(column, cell.strip()) for column, cell in zip(self.columns, cells, strict=True) if column is not None]
        return bool(known) and all(
            column.field == of.TIME or values.is_missing(cell) or column.convert(cell) is not None
            for column, cell in known
        ) and self.row(cells) is not None  # fmt: skip

    def _find_time(self, first: Sequence[str]) -> None:
        """Of several columns with times, the first with dates, else the first that counts."""
        found: tuple[int, Clock] | None = None
        for i, (column, cell) in enumerate(zip(self.columns, first, strict=True)):
            if column is None or column.field.partition(".")[0] != of.TIME:
                continue
            clock = Clock(column.field.partition(".")[2] or None)
            if clock.read(cell) is not None and (found is None or (found[1].is_relative and not clock.is_relative)):
                found = (i, clock)
        if found is not None:
            self._time_at, self.clock = found

    def _rejoined(self, cells: list[str]) -> list[str] | None:
        """A name may hold the separator, and so may Python's times (``12:34:56,789``): join what is too much there."""
        extra = len(cells) - self.width
        at = self._time_at
        if extra == 1 and self.clock is not None and _MILLISECONDS.fullmatch(cells[at + 1]) and ":" in cells[at]:
            return [*cells[:at], f"{cells[at]}.{cells[at + 1]}", *cells[at + 2 :]]
        names = [i for i, column in enumerate(self.columns) if column is not None and column.convert is of.words
                 and column.field != of.TIME]  # fmt: skip
        if extra <= 0 or extra > 3 or len(names) != 1:
            return None
        at = names[0]
        return [*cells[:at], self.separator.join(cells[at : at + extra + 1]), *cells[at + extra + 1 :]]

    def _named(self, beginning: str) -> tuple[tuple[str, str], ...]:
        """Those fields of a family, each with what follows the family's name."""
        return tuple((field, field[len(beginning) :]) for field in self.fields if field.startswith(beginning))

    def _put_together(self, facts: dict[str, Any], time_s: float | None, place: Place | None) -> None:
        """Make one fact of what several columns say together."""
        flags = {name: facts.pop(field) for field, name in self._reasons if field in facts}
        if flags and "clocks_event_reasons" not in facts:
            active = tuple(name for name in REASON_NAMES if flags.get(name))
            if active or (self._covers_limits and len(flags) == len(self._reasons)):
                facts["clocks_event_reasons"] = active
        free = facts.pop("free.memory", None)
        if free is not None and "memory_total_bytes" not in facts and "memory_used_bytes" in facts:
            facts["memory_total_bytes"] = facts["memory_used_bytes"] + free + facts.get("memory_reserved_bytes", 0)
        card, host = facts.pop("max.card", None), facts.pop("max.host", None)
        if card is not None and host is not None:
            facts.setdefault("pcie_gen_max", min(card, host))
        counters = {name: facts.pop(field) for field, name in self._times if field in facts}
        if counters and time_s is not None:
            shares = self._shares(counters, time_s, place)
            if shares:
                facts["throttled_pct"] = shares

    def _shares(self, counters: dict[str, float], time_s: float, place: Place | None) -> dict[str, float] | None:
        """Reason -> share of the time since the last look in which it held the clocks down, from microseconds."""
        before_s, before, shares = self._counters.get(place, (time_s, counters, None))
        passed_s = time_s - before_s
        if 0.0 <= passed_s < _COUNTER_S and place in self._counters:
            return shares
        if passed_s > 0.0:
            grown = {name: counters[name] - before[name] for name in counters if name in before}
            shares = {name: min(100.0, us / passed_s / 1e4) for name, us in grown.items() if us >= 0.0}
        self._counters[place] = (time_s, counters, shares)
        return shares


def _is_fact(column: Column) -> bool:
    return column.field not in of.PLACES and column.field.partition(".")[0] not in {of.TIME, of.COUNT}


def _picker(positions: Sequence[int]) -> Callable[[Sequence[str]], Sequence[str]]:
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda _cells: ()
    at = positions[0]
    return lambda cells: (cells[at],)
