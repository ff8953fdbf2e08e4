"""Knows how logs write numbers, sizes, bus ids and times, and the many words for "unknown"."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_MISSING = frozenset(
    {"", "-", "--", "n/a", "na", "nan", "none", "null", "not supported", "not available", "not active/unknown"}
)
_MISSING_BEGINNINGS = ("unknown", "err!", "error", "not supported", "n/a", "requested functionality", "insufficient")
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:[.,]\d{0,20})?|[.,]\d{1,20})(?:[eE][+-]?\d{1,3})?")
_GROUPED = re.compile(r"\d{1,3}(?:[,' \u00a0\u202f]\d{3}){1,8}(?:\.\d{0,20})?")
_BLANK_FLOAT = 140737488355328.0
"""DCGM's words for "no value": this and everything above it, and as 32 and 64 bit integers the following."""
_BLANK_INT32 = range(0x7FFFFFF0, 0x80000000)
_TEXT_MAX = 64

_UNITS = {"b": 1, "byte": 1, "bytes": 1}
for _power, _letter in enumerate("kmgtp", 1):
    _UNITS |= {f"{_letter}ib": 1024**_power, f"{_letter}b": 1024**_power, _letter: 1024**_power}
_BUS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-9a-fA-F]))?")


def is_missing(cell: str) -> bool:
    """Whether a cell says that there is no value: ``[N/A]``, ``ERR!``, ``[Unknown Error]``, ``-`` and the like."""
    word = cell.strip(" \t[]*()\"'").lower()
    return word in _MISSING or word.startswith(_MISSING_BEGINNINGS)


@lru_cache(maxsize=8192)
def number(cell: str) -> float | None:
    """The number that a cell begins with, whatever unit follows; None where there is none, or a blank of DCGM."""
    text = cell[:_TEXT_MAX].strip(" \t\"'")
    grouped = _GROUPED.match(text)
    match = _NUMBER.match(text)
    if match is None or (text[match.end() : match.end() + 1].isalnum() and not text[match.end()].isalpha()):
        return None
    found = match.group()
    # "16,384 MiB" has a group of three and no unit of its own; "71,50 W" is a decimal comma.
    if grouped is not None and len(grouped.group()) > len(found.replace(",", "")) and not _is_decimal(found):
        found = re.sub(r"[,' \u00a0\u202f]", "", grouped.group())
    value = float(found.replace(",", "."))
    return None if is_blank(value) else value


def _is_decimal(text: str) -> bool:
    _, comma, fraction = text.partition(",")
    return bool(comma) and len(fraction) != 3


def is_blank(value: float) -> bool:
    """Whether a number stands for "no value": not finite, or one of DCGM's blanks."""
    return not math.isfinite(value) or abs(value) >= _BLANK_FLOAT or (value.is_integer() and int(value) in _BLANK_INT32)


def integer(cell: str) -> int | None:
    """The same as a whole number; None for a fraction as well."""
    value = number(cell)
    return int(value) if value is not None and value.is_integer() else None


def byte_count(cell: str, unit: str = "MiB") -> int | None:
    """``16384 MiB`` in bytes; a cell without a unit is in ``unit``."""
    value = number(cell)
    if value is None or value < 0:
        return None
    named = re.search(r"([A-Za-z]{1,5})\s{0,4}$", cell.strip()[:_TEXT_MAX])
    factor = _UNITS.get((named.group(1) if named else unit).lower(), _UNITS[unit.lower()])
    return round(value * factor)


def bus_id(cell: str) -> str | None:
    """``00000000:3B:00.0``, ``PCI:0000:3b:00`` or ``3b:00.0`` in one form: eight digits of domain, lower case."""
    match = _BUS.fullmatch(cell[:_TEXT_MAX].strip().upper().removeprefix("GPU").lstrip(" ").removeprefix("PCI:"))
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):08x}:{int(bus, 16):02x}:{int(device, 16):02x}.{int(function or '0', 16):x}"


# --- times ---------------------------------------------------------------------------------------

_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_ISO = re.compile(
    r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})[T ,]{1,3}(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?"
    r"\s?(Z|UTC|GMT|[+-]\d{2}:?\d{2})?"
)
_CTIME = re.compile(
    r"[A-Za-z]{3}\.?,? +([A-Za-z]{3}) +(\d{1,2}) +(\d{1,2}):(\d{2}):(\d{2})(?:\.\d{1,9})?"
    r"(?: +(AM|PM))?(?: +([A-Z]{2,5}|[+-]\d{2,4}))? +(\d{4})"
)
_DATE = re.compile(
    r"[A-Za-z]{3}\.?,? +(\d{1,2}) +([A-Za-z]{3}) +(\d{4}),? +(\d{1,2}):(\d{2}):(\d{2})(?:\.\d{1,9})?(?: +(AM|PM))?"
)
_YEARS = range(1990, 2100)


@lru_cache(maxsize=4096)
def moment(text: str) -> float | None:
    """The time a text begins with, as epoch seconds; one without a zone is taken as it stands.

    Understands ``2025/06/21 12:34:56.789``, ISO with and without zone, ``Mon Jun  3 12:00:00 2024`` and what
    ``date`` prints in English.
    """
    text = text[:_TEXT_MAX].strip()
    match = _ISO.match(text)
    if match is not None:
        year, month, day, hour, minute, second, fraction, zone = match.groups()
        return _epoch((year, month, day, hour, minute, second or "0"), fraction, zone)
    match = _CTIME.match(text)
    if match is not None:
        name, day, hour, minute, second, half, zone, year = match.groups()
        zone = zone if zone in ("UTC", "GMT") else None
        return _epoch((year, _month(name), day, _hour(hour, half), minute, second), None, zone)
    match = _DATE.match(text)
    if match is not None:
        day, name, year, hour, minute, second, half = match.groups()
        return _epoch((year, _month(name), day, _hour(hour, half), minute, second), None, None)
    return None


def has_zone(text: str) -> bool:
    """Whether a time that ``moment`` understands says of which zone it is."""
    text = text[:_TEXT_MAX].strip()
    match = _ISO.match(text)
    if match is not None:
        return match.group(8) is not None
    match = _CTIME.match(text)
    return match is not None and match.group(7) in ("UTC", "GMT")


def _month(name: str) -> str:
    return str(_MONTHS.get(name.lower(), 0))


def _hour(hour: str, half: str | None) -> str:
    if half is None:
        return hour
    return str(int(hour) % 12 + (12 if half == "PM" else 0))


def _epoch(parts: tuple[str, ...], fraction: str | None, zone: str | None) -> float | None:
    year, month, day, hour, minute, second = map(int, parts)
    if year not in _YEARS:
        return None
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    if zone is not None and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or "0"))
        whole = whole - shift if zone[0] == "+" else whole + shift
    return whole.timestamp() + (float(f"0.{fraction}") if fraction else 0.0)
