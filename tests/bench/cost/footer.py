"""What gpumon's footer says of its own CPU, read from a recorded screen."""

from __future__ import annotations

import re
from statistics import mean

from tests.bench.cost.screen import Screen

_BILL = re.compile(r"self (\d+\.\d+)%")


def own_cpu_pct(screen: Screen) -> float | None:
    """The mean of what it said over time; None where it said nothing."""
    said = [float(found[1]) for _, lines in screen.texts() if (found := _BILL.search(lines[-1]))]
    return mean(said[len(said) // 5 :]) if said else None
