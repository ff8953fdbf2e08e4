"""What an open screen costs: CPU, bytes, driver calls and memory, all programs in turn, round by round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import NamedTuple

from tests.bench.cost.box import Box
from tests.bench.cost.clock import cpu_s, uss_bytes
from tests.bench.cost.contenders import GPUMON, HOUR_S, Contender, opened
from tests.bench.cost.footer import own_cpu_pct
from tests.bench.cost.report import Spread, spread
from tests.bench.cost.screen import Screen

SETTLE_S = 10.0
"""After the start, before anything is counted."""


class Cost(NamedTuple):
    """One program over one stretch of time."""

    cpu_pct: float
    bytes_per_s: float
    calls_per_s: float
    uss_mib: float
    own_cpu_pct: float | None = None
    """What gpumon's own footer says of the same stretch."""


def measure(screen: Screen, box: Box, seconds: float) -> Cost:
    """Watch an open screen for so long."""
    cpu, sent, calls = cpu_s(screen.pid), screen.bytes, box.calls(screen.pid)
    screen.watch(seconds)
    return Cost(
        100 * (cpu_s(screen.pid) - cpu) / seconds,
        (screen.bytes - sent) / seconds,
        (box.calls(screen.pid) - calls) / seconds,
        uss_bytes(screen.pid) / 2**20,
    )


def run_once(contender: Contender, box: Box, seconds: float, past_s: int = HOUR_S) -> Cost:
    """Start, settle, measure, end. gpumon has an hour of history, so that its charts are full and move on."""
    is_ours = contender is GPUMON
    with opened(contender, box, past_s=past_s if is_ours else 0) as screen:
        screen.watch(SETTLE_S)
        if not is_ours:
            return measure(screen, box, seconds)
        screen.forget()
        screen.type(b"\x0c")  # all cells once, so that the footer can be read afterwards
        screen.watch(1.0)
        cost = measure(screen, box, seconds)
        return cost._replace(own_cpu_pct=own_cpu_pct(screen))


def rounds(
    contenders: Sequence[Contender], box: Box, count: int, seconds: float, tell: Callable[[str], None]
) -> dict[str, list[Cost]]:
    """Every contender once a round."""
    found: dict[str, list[Cost]] = {contender.name: [] for contender in contenders}
    for number in range(count):
        for contender in contenders:
            cost = run_once(contender, box, seconds)
            tell(f"round {number + 1}: {contender.name} {cost.cpu_pct:.2f} %, {cost.bytes_per_s:.0f} B/s")
            found[contender.name].append(cost)
    return found


def cpu_of(costs: Sequence[Cost]) -> Spread:
    """In percent of a core."""
    return spread(cost.cpu_pct for cost in costs)


def table(found: dict[str, list[Cost]]) -> str:
    """A line a program."""
    rows = ["| | CPU % of a core | bytes/s | driver calls/s | USS MiB |", "|---|---|---|---|---|"]
    for name, costs in found.items():
        rows.append(
            f"| {name} | {cpu_of(costs).text()} | {mean(cost.bytes_per_s for cost in costs):.0f}"
            f" | {mean(cost.calls_per_s for cost in costs):.0f} | {spread(cost.uss_mib for cost in costs).middle:.1f} |"
        )
    return "\n".join(rows)
