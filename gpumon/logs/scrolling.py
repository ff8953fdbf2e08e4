"""Knows what nvidia-smi's scrolling monitors (dmon, pmon) have in common: titles, units, dates and times, cells."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gpumon.logs.values import moment, number

_DAY_S = 86_400.0
_SKEW_S = 60.0
"""A clock that goes back by more than this has passed midnight, one that goes back by less was set."""
_DATE = re.compile(r"(\d{4})[-/]?(\d{2})[-/]?(\d{2})")
_TIME = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,6}))?")
_NAME = re.compile(r"[a-z][a-z0-9]{0,11}")
_UNIT_WORDS = frozenset(
    "idx w c % mhz mb errs mb/s bool gpm:% gpm:mib/s # c/g name yyyymmdd hh:mm:ss mib mib/s kb/s gb/s".split()
)
_TYPES = frozenset({"C", "G", "C+G", "M", "M+C", "C+M"})
_PREFIX_MAX = 48
_CELLS_MAX = 160
_KNOWN_MAX, _KNOWN_LENGTH = 4096, 12

Convert = Callable[[float], object]


class Title(NamedTuple):
    """The line that names the columns."""

    names: tuple[str, ...]
    """In lower case."""
    separator: str | None
    """None where blanks part the cells, as they do unless ``--format csv`` was asked for."""
    prefix: str = ""
    """What somebody's ``ts`` wrote before the line."""


class Column(NamedTuple):
    """A field of the model that a column holds."""

    field: str
    convert: Convert
    least: float
    most: float
    """A value beyond these is of another column: the line is damaged."""


class Row(NamedTuple):
    """The cells of a line under their title, and when it was written as far as it says."""

    cells: list[str]
    time_s: float | None


class OutOfRangeError(ValueError):
    """A cell holds what its column cannot hold."""


def title_of(line: str) -> Title | None:
    """The names of the columns, if a line is a title of dmon or pmon."""
    mark = line.find("#", 0, _PREFIX_MAX)
    body = (line[mark + 1 :] if mark >= 0 else line).strip().lower()
    if not body.startswith(("gpu", "date", "time")):
        return None
    separator = "," if "," in body else None
    names = tuple(name.strip() for name in body.split(separator))
    if len(names) > _CELLS_MAX or "gpu" not in names[:3] or not set(names[: names.index("gpu")]) <= {"date", "time"}:
        return None
    if not all(map(_NAME.fullmatch, names)):
        return None
    return Title(names, separator, line[: max(0, mark)].strip())


def units_of(line: str) -> tuple[str, ...] | None:
    """The units, if a line is the one that follows a title."""
    mark = line.find("#", 0, _PREFIX_MAX)
    if mark < 0:
        return None
    body = line[mark + 1 :].strip().lower()
    units = tuple(unit.strip() for unit in body.split("," if "," in body else None))
    return units if len(units) > 1 and "idx" in units[:3] and set(units) <= _UNIT_WORDS else None


def cells_of(line: str, separator: str | None, most: int = _CELLS_MAX) -> list[str]:
    """The cells of a row; the last of ``most`` takes the rest of the line."""
    if separator is None:
        return line.split(None, most - 1)
    return [cell.strip() for cell in line.split(separator, most - 1)]


def may_be_row(line: str) -> bool:
    """Whether a line begins as a row does: with an index, a date or a time; a title may have a time before it."""
    return (line[:1].isdigit() or line.lstrip(" \t")[:1].isdigit()) and "#" not in line[:_PREFIX_MAX]


def is_of_process(cells: Sequence[str], gpu_at: int) -> bool:
    """Whether a row is one of pmon: the GPU, a process, and what it uses it for."""
    return len(cells) > gpu_at + 2 and cells[gpu_at + 2] in _TYPES


def index_of(cell: str) -> int | None:
    """A GPU's index; None where the cell holds something else."""
    return int(cell) if len(cell) <= 4 and cell.isascii() and cell.isdigit() else None


def value_of(cell: str, column: Column) -> object | None:
    """What a cell says, in the model's unit; None where it says nothing.

    Raises:
        OutOfRangeError: no such value can stand in this column.
    """
    try:
        value: float | None = float(cell)
    except ValueError:
        value = number(cell)
    if value is None:
        return None
    if not column.least <= value <= column.most:
        raise OutOfRangeError(f"{cell[:12]} as {column.field}")
    return column.convert(value)


class Cells:
    """One column's cells; the same few recur again and again."""

    def __init__(self, at: int, column: Column) -> None:
        self.field = column.field
        self._at = at
        self._column = column
        self._known: dict[str, object] = {"-": None}

    def read(self, row: list[str]) -> object | None:
        """What the column's cell of a row says.

        Raises:
            OutOfRangeError: no such value can stand in this column.
        """
        cell = row[self._at]
        try:
            return self._known[cell]
        except KeyError:
            value = value_of(cell, self._column)
            if len(self._known) < _KNOWN_MAX and len(cell) <= _KNOWN_LENGTH:
                self._known[cell] = value
            return value


class Clock:
    """Turns the dates and times of rows into one time line; where there is no date, it counts the midnights."""

    def __init__(self) -> None:
        self._day_s = 0.0
        self._before_s: float | None = None
        self._said_s: float | None = None
        self._date_s: float | None = None

    def hear(self, line: str) -> None:
        """Keep the time in a line that precedes the log: ``date; nvidia-smi dmon``."""
        text = line.strip()
        self._said_s = moment(text) if 12 <= len(text) <= 40 else None

    def said(self) -> float | None:
        """The time that preceded, once."""
        said_s, self._said_s = self._said_s, None
        return said_s

    def at(self, date: str | None, time: str | None) -> float | None:
        """The time of a row by its own cells."""
        of_day = None if time is None else _TIME.fullmatch(time)
        if of_day is None:  # a date alone times the first row of its day
            date_s = None if date is None else _day(date)
            is_new, self._date_s = date_s != self._date_s, date_s
            return date_s if is_new else None
        hours, minutes, seconds, fraction = of_day.groups()
        passed_s = int(hours) * 3600.0 + int(minutes) * 60.0 + int(seconds) + float(f"0.{fraction or 0}")
        day_s = None if date is None else _day(date)
        if day_s is not None:
            self._day_s = day_s
        elif self._before_s is None:
            said_s = self.said()
            self._day_s = 0.0 if said_s is None else said_s // _DAY_S * _DAY_S
        elif self._day_s + passed_s < self._before_s - _SKEW_S:
            self._day_s += _DAY_S
        self._before_s = self._day_s + passed_s
        return self._before_s

    def row(self, cells: list[str], names: Sequence[str], gpu_at: int) -> Row | None:
        """A row's cells with its time; what somebody put before the row may be a time. None where they do not fit."""
        surplus = len(cells) - len(names)
        if surplus < 0:
            return None
        time_s: float | None = None
        if surplus:
            before = " ".join(cells[:surplus]).strip("[]")
            time_s = moment(before)
            if time_s is None and _TIME.fullmatch(before):
                time_s = self.at(None, before)
            if time_s is None:
                return None
            cells = cells[surplus:]
        if gpu_at:
            date = cells[names.index("date")] if "date" in names[:gpu_at] else None
            time = cells[names.index("time")] if "time" in names[:gpu_at] else None
            time_s = self.at(date, time)
        return Row(cells, time_s)


@lru_cache(maxsize=64)
def _day(text: str) -> float | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not (1990 <= year < 2100 and 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]):
        return None
    return float(calendar.timegm((year, month, day, 0, 0, 0)))
