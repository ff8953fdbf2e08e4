"""How a value is written: the unit follows from the field's suffix, the digits are fixed so that nothing jumps."""

from __future__ import annotations

import time
from collections.abc import Callable

GIB = 1024**3
MISSING = "–"

UNIT_OF_SUFFIX: dict[str, str] = {
    "_pct": "%",
    "_bytes": "B",
    "_bytes_per_s": "B/s",
    "_w": "W",
    "_j": "J",
    "_c": "°C",
    "_mhz": "MHz",
    "_s": "s",
    "_cores": "cores",
}
"""Every float field of the model ends in one of these; the longest match wins (a test checks it)."""

UNITLESS = frozenset({"load_1"})
"""Numbers that are counts by definition of the field."""


def unit_of(field: str) -> str:
    """Unit of a field by its suffix; empty for counts and names.

    Dotted names (``throttled_pct.sw_thermal``, ``budget.data_pct``) take the unit of the part that has one.
    """
    for part in reversed(field.split(".")):
        for suffix in sorted(UNIT_OF_SUFFIX, key=len, reverse=True):
            if part.endswith(suffix):
                return UNIT_OF_SUFFIX[suffix]
    return ""


def duration(seconds: float) -> str:
    """``41 s``, ``6 min``, ``2h14m``, ``3d04h``: at most six characters, whole units."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02d}m"
    return f"{hours // 24}d{hours % 24:02d}h"


def gib(count_bytes: float) -> float:
    """Bytes as GiB, which the screen calls ``G``."""
    return count_bytes / GIB


def memory(count_bytes: float | None, width: int = 0) -> str:
    """GiB with one decimal, none from 1000 on: ``76.1``, ``1031``; missing is ``–``."""
    if count_bytes is None:
        return MISSING.rjust(width)
    value = count_bytes / GIB
    return (f"{value:.0f}" if value >= 999.95 else f"{value:.1f}").rjust(width)


def number(value: float | None, width: int = 0, digits: int = 0) -> str:
    """A right-aligned number with a true minus sign; missing is ``–``."""
    if value is None:
        return MISSING.rjust(width)
    return minus(f"{value:.{digits}f}").rjust(width)


def rate(bytes_per_s: float | None) -> str:
    """Seven characters, three digits: ``141 M/s``, ``0.1 G/s``; 10⁶ and 10⁹ bytes; missing is ``–``."""
    if bytes_per_s is None:
        return MISSING.rjust(7)
    if bytes_per_s >= 999.5e6:
        return f"{bytes_per_s / 1e9:3.1f} G/s" if bytes_per_s < 9.95e9 else f"{bytes_per_s / 1e9:3.0f} G/s"
    return f"{bytes_per_s / 1e6:3.0f} M/s"


def step(seconds: float) -> str:
    """``0.618 s``, ``12.4 s``: three significant digits of a step's time."""
    return f"{seconds:.3f} s" if seconds < 9.9995 else f"{seconds:.1f} s"


def ordinal(number: int) -> str:
    """``2nd``, ``3rd``, ``4th``, ``11th``, ``21st``."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in {11, 12, 13} else "th"
    return f"{number}{ending}"


def minus(text: str) -> str:
    """Write the minus sign as the screen does."""
    return text.replace("-", "−")


def clock(time_s: float, form: str = "%H:%M:%S") -> str:
    """Wall-clock time of an epoch in the machine's zone."""
    return time.strftime(form, time.localtime(time_s))


def value(field: str, amount: float | None) -> str:
    """A value with its unit as prose and tables show it: ``87 °C``, ``76.1 G``, ``44%``, ``141 M/s``."""
    if amount is None:
        return MISSING
    unit = unit_of(field)
    writer = _WRITERS.get(unit)
    return writer(amount) if writer else minus(f"{amount:.0f} {unit}".rstrip())


_WRITERS: dict[str, Callable[[float], str]] = {
    "%": lambda amount: minus(f"{amount:.0f}%"),
    "B": lambda amount: f"{memory(amount)} G",
    "B/s": lambda amount: rate(amount).strip(),
    "s": lambda amount: step(amount) if amount < 60 else duration(amount),
    "cores": lambda amount: f"{amount:g} cores",
}
