"""Knows the times that rows of a CSV log carry: dates, epochs in any unit, time since the start, time of the day."""

from __future__ import annotations

import re

from gpumon.logs import values

_NUMBER = re.compile(r"\d{1,20}(?:[.,]\d{0,12})?(?: ?(?:s|ms|us|ns))?")
_AMERICAN = re.compile(r"(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})[ T](\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)")
_OF_DAY = re.compile(r"(\d{1,4}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?")
_FROM_S = 1e8
"""An epoch is above, a time since the start below."""
_PER_S = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_TO_SECOND = 17
"""Characters of ``2025/06/21 12:34:``."""
_DAY_S = 86400.0


class Clock:
    """Reads the times of one column; the first one decides whether they are dates or count from the log's start."""

    def __init__(self, unit: str | None = None) -> None:
        """``unit``: s, ms, us, ns, or ``epoch`` where a small number is no time at all."""
        self.is_relative = False
        """The times have no date: only their differences mean something."""
        self.has_zone = False
        self._unit = unit
        self._minute = ""
        self._minute_s = 0.0
        self._days_s = 0.0
        self._before_s = 0.0

    def read(self, cell: str) -> float | None:
        """Seconds, since the epoch or, where ``is_relative``, since any moment."""
        if cell[:_TO_SECOND] == self._minute:
            try:
                second = float(cell[_TO_SECOND:])
            except ValueError:
                second = -1.0
            if 0.0 <= second < 61.0:
                return self._minute_s + second
        return self._parsed(cell.strip(" \t\"'[]"))

    def _parsed(self, text: str) -> float | None:
        if _NUMBER.fullmatch(text):
            return self._counted(text)
        match = _AMERICAN.match(text)
        if match is not None:
            month, day, year, rest = match.groups()
            if int(month) > 12:
                month, day = day, month
            text = f"{year}-{month}-{day} {rest}"
        time_s = values.moment(text)
        if time_s is not None:
            self.has_zone = values.has_zone(text)
            self._keep(text, time_s)
            return time_s
        match = _OF_DAY.fullmatch(text)
        return None if match is None else self._of_day(*match.groups())

    def _keep(self, text: str, time_s: float) -> None:
        """Remember the minute: most of the following times are in it."""
        second = text[_TO_SECOND:]
        if text[16:17] == ":" and second.replace(".", "", 1).isdigit() and second.isascii():
            self._minute, self._minute_s = text[:_TO_SECOND], time_s - float(second)

    def _counted(self, text: str) -> float | None:
        number = values.number(text)
        if number is None:
            return None
        unit = self._unit
        if unit in _PER_S:
            number /= _PER_S[unit or "s"]
        elif number >= _FROM_S:
            while number >= 1e11:
                number /= 1e3
        if number < _FROM_S:
            if unit == "epoch":
                return None
            self.is_relative = True
        else:
            self.has_zone = True
        return number

    def _of_day(self, hour: str, minute: str, second: str, fraction: str | None) -> float:
        self.is_relative = True
        time_s = int(hour) * 3600.0 + int(minute) * 60.0 + int(second) + float(f"0.{fraction or 0}")
        if time_s < self._before_s - _DAY_S / 2:
            self._days_s += _DAY_S
        self._before_s = time_s
        return self._days_s + time_s
