"""What gpumon's footer says of its own CPU, read from a recorded screen."""

from __future__ import annotations

import re
from statistics import mean

from tests.bench.cost.screen import Screen

LAG_S = 6.0
"""What stands there is of the last five seconds: at first of those before the measurement."""
_BILL = re.compile(r"self (\d+\.\d+)%")


def own_cpu_pct(screen: Screen) -> float | None:
    """The mean of what it said over time; None where it said nothing."""
    texts = screen.texts()
    said = [
        float(found[1]) for at_s, lines in texts if at_s > texts[0][0] + LAG_S and (found := _BILL.search(lines[-1]))
    ]
    return mean(said) if said else None
