"""How figures are kept and printed: medians with what they lay between, and whether a target is met."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple


class Spread(NamedTuple):
    """Several readings of one thing."""

    readings: tuple[float, ...]

    @property
    def middle(self) -> float:
        """Their median."""
        return median(self.readings)

    def text(self, digits: int = 2) -> str:
        """``0.47 (0.44–0.51)``."""
        middle = f"{self.middle:.{digits}f}"
        if len(self.readings) < 2:
            return middle
        return f"{middle} ({min(self.readings):.{digits}f}–{max(self.readings):.{digits}f})"


def spread(readings: Iterable[float]) -> Spread:
    """Of whatever gives numbers."""
    return Spread(tuple(readings))


def ratio(above: Spread, below: Spread) -> Spread:
    """Round by round: what disturbs a round disturbs both."""
    return Spread(tuple(a / b for a, b in zip(above.readings, below.readings, strict=True) if b))


class Line(NamedTuple):
    """One target and what was measured."""

    what: str
    measured: str
    target: str
    is_met: bool | None
    """None where there is nothing to judge."""


def judged(what: str, found: Spread, most: float, unit: str, digits: int = 2) -> Line:
    """A line for ``found ≤ most``."""
    return Line(what, f"{found.text(digits)}{unit}", f"≤ {most:g}{unit}", found.middle <= most)


def lines_table(lines: Sequence[Line]) -> str:
    """The targets as a Markdown table."""
    words = {True: "yes", False: "**no**", None: ""}
    rows = [f"| {line.what} | {line.measured} | {line.target} | {words[line.is_met]} |" for line in lines]
    return "\n".join(["| | measured | target | met |", "|---|---|---|---|", *rows])


def machine() -> str:
    """What the figures were measured on."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} cores of {name}, Python {sys.version.split()[0]}, load {load}"
