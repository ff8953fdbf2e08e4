"""Knows what stands before a kernel message in every kind of log, and which moment it means."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from gpumon.logs.values import has_zone, moment

_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PIECE = re.compile(
    r"[ \t]{0,40}(?:"
    r"\d{1,3},\d{1,12},(?P<kmsg>\d{1,18}),[^;]{1,80};"
    r"|<\d{1,3}>(?:1 )?"
    r"|\[ {0,12}(?P<uptime>\d{1,9}\.\d{6}) {0,1}(?:< {0,12}[\d.]{1,20}>)?\]"
    r"|\[ {0,12}\+(?P<delta>\d{1,9}\.\d{6})\]"
    r"|\[ {0,8}[TC]\d{1,8}\]"
    rf"|\[?(?:(?:{_DAYS}) )?(?P<iso>\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)"
    r"(?: [A-Z]{3,4}(?= ))?\]?"
    rf"|\[?(?P<ctime>(?:{_DAYS}) (?:{_MONTHS}) {{1,2}}\d{{1,2}} {_CLOCK} (?:[A-Z]{{3,4}} )?\d{{4}})\]?"
    rf"|(?P<syslog>(?:\d{{4}} )?(?:{_MONTHS}) {{1,2}}\d{{1,2}} (?:\d{{4}} )?{_CLOCK})(?= )"
    rf"|\[(?P<minute>(?:{_MONTHS}) {{0,2}}\d{{1,2}} \d\d:\d\d)\]"
    r"|(?P<unix>1\d{9}\.\d{3,9})(?= )"
    r"|(?:kern|user|daemon|syslog) {0,3}:(?:emerg|alert|crit|err|warn|notice|info|debug) {0,3}:"
    r"|std(?:out|err) [FP] "
    r"|(?:[\w.\-]{1,64} )?kernel(?:\[[^\]]{0,10}\])?(?::| - - -)"
    rf"|[\w./\-]{{1,128}}[:\-](?=(?:{_MONTHS}) |\d{{4}}-\d|\[)"
    r")[ \t]?"
)
_PIECES_MAX = 8
_YEARLESS = re.compile(
    rf"(?:(\d{{4}}) )?({_MONTHS}) {{0,2}}(\d{{1,2}}) (?:(\d{{4}}) )?(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?"
)
_NUMBER_OF = {name: number for number, name in enumerate(_MONTHS.split("|"), 1)}
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_MESSAGE_KEYS = ("MESSAGE", "message", "log", "msg", "body", "line")
_TIME_KEYS = (
    "__REALTIME_TIMESTAMP",
    "_SOURCE_REALTIME_TIMESTAMP",
    "@timestamp",
    "timestamp",
    "time",
    "ts",
    "_time",
    "date",
)
_AGAIN_S = 60.0
_DAY_S = 86_400.0
_FAR_S = 4e9
"""No log of a GPU is from after 2096."""


class Head(NamedTuple):
    """A line taken apart."""

    message: str
    wall: str | None = None
    """A date with its time, as written."""
    uptime_s: float | None = None
    delta_s: float | None = None
    """Since the line before."""
    number: float | None = None
    """Seconds, milli-, micro- or nanoseconds since the epoch."""


def split(line: str) -> Head:
    """The message of a line and the stamps before it."""
    if line.startswith("{"):
        return _of_json(line)
    found: dict[str, str] = {}
    position = 0
    for _ in range(_PIECES_MAX):
        piece = _PIECE.match(line, position)
        if piece is None:
            break
        if piece.lastgroup is not None:
            found[piece.lastgroup] = piece[piece.lastgroup]
        position = piece.end()
    message = line[position:]
    if "kmsg" in found:
        message = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), message)
        return Head(message, uptime_s=int(found["kmsg"]) / 1e6)
    return Head(
        message,
        wall=next((found[name] for name in ("iso", "ctime", "syslog", "minute") if name in found), None),
        uptime_s=float(found["uptime"]) if "uptime" in found else None,
        delta_s=float(found["delta"]) if "delta" in found else None,
        number=float(found["unix"]) if "unix" in found else None,
    )


def _of_json(line: str) -> Head:
    """A line that a log collector has wrapped; what is not one stays as it is."""
    try:
        table = json.loads(line)
    except (ValueError, RecursionError):
        return Head(line)
    if not isinstance(table, dict):
        return Head(line)
    message = next((table[key] for key in _MESSAGE_KEYS if isinstance(table.get(key), str)), None)
    if message is None:
        return Head(line)
    inner = split(message) if not message.startswith("{") else Head(message)
    stamp = next((table[key] for key in _TIME_KEYS if isinstance(table.get(key), (str, int, float))), None)
    return _stamped(inner, stamp)


def _stamped(head: Head, stamp: Any) -> Head:  # noqa: ANN401 - any JSON value
    if isinstance(stamp, str) and not stamp.isdigit():
        return head._replace(wall=head.wall or stamp[:64])
    try:
        return head if stamp is None or head.wall is not None else head._replace(number=float(stamp))
    except (ValueError, OverflowError):
        return head


class Clock:
    """The moment of each line: by its date, by the time since boot once a line has both, else from 0."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        """``now_s`` tells the year of dates that have none: the latest in which they are not in the future."""
        self._now_s = now_s
        self.has_zone = False
        """Of the last moment: it is UTC."""
        self._boot_s: float | None = None
        self._shift_s = 0.0
        self._uptime_s = 0.0
        self._last_s: float | None = None

    def pass_by(self, delta_s: float) -> None:
        """A line that tells only how long after the one before it came."""
        self._last_s = (self._last_s or 0.0) + delta_s

    def note_uptime(self, uptime_s: float) -> None:
        """A line without a date: where the time since boot went back, it is of another boot, after the last."""
        if uptime_s < self._uptime_s - _AGAIN_S:
            self._shift_s += self._uptime_s
        self._uptime_s = uptime_s

    def moment_of(self, head: Head) -> float | None:
        """Epoch, or seconds since boot where no line has told a date; None before the first stamp."""
        time_s = self._wall_s(head)
        if head.uptime_s is not None:
            time_s = self._with_uptime(head.uptime_s, time_s)
        if time_s is None:
            # Further lines of a message, and lines that tell only the time since the last one.
            time_s = self._last_s
        if time_s is None or not 0.0 <= time_s < _FAR_S:
            return None
        self._last_s = time_s
        return time_s

    def _wall_s(self, head: Head) -> float | None:
        if head.number is not None:
            self.has_zone = True
            return _seconds(head.number)
        if head.wall is None:
            return None
        found = moment(head.wall)
        self.has_zone = found is not None and has_zone(head.wall)
        return found if found is not None else self._yearless(head.wall)

    def _with_uptime(self, uptime_s: float, wall_s: float | None) -> float:
        if wall_s is not None:
            # Dates are whole seconds; the time since boot is exact.
            if self._boot_s is None or abs(wall_s - self._boot_s - uptime_s) >= 2.0:
                self._boot_s = wall_s - uptime_s
            return self._boot_s + uptime_s
        if self._boot_s is not None:
            return self._boot_s + uptime_s
        self.note_uptime(uptime_s)
        return self._shift_s + uptime_s

    def _yearless(self, wall: str) -> float | None:
        found = _YEARLESS.match(wall)
        if found is None:
            return None
        year = int(found[1] or found[4] or 0)
        latest_s = self._now_s() + _DAY_S
        this_year = datetime.fromtimestamp(min(max(0.0, latest_s), _FAR_S), timezone.utc).year
        # The 29th of February is one in four years.
        for candidate in (year,) if year else range(this_year, this_year - 9, -1):
            time_s = _epoch(candidate, found)
            if time_s is not None and (year or time_s <= latest_s):
                return time_s
        return None


def _epoch(year: int, found: re.Match[str]) -> float | None:
    month, day = _NUMBER_OF[found[2]], int(found[3])
    hour, minute, second = int(found[5]), int(found[6]), int(found[7] or 0)
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    return whole.timestamp() + (float(f"0.{found[8]}") if found[8] else 0.0)


def _seconds(number: float) -> float:
    """Seconds since the epoch, whatever the unit."""
    for factor in (1.0, 1e3, 1e6, 1e9):
        if number / factor < _FAR_S:
            return number / factor
    return _FAR_S


def facts_of(found: Mapping[str, float] | None, count: int) -> dict[str, float]:
    """Numbers of an event that a log tells afterwards: how many equal lines, and that it is no news of this moment."""
    return {**(found or {}), **({"count": float(count)} if count > 1 else {}), "logged": 1.0}
