"""Knows for how long something held a GPU's clock down, by counters or by the bits of single readings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from gpumon.fields import LIMITERS
from gpumon.model import Finding, Gpu, Subject
from gpumon.signals import limiter_pct
from gpumon.window import Window

UNKNOWN = "neither counters nor names of the clock's limiters are reported"


def boards(window: Window) -> Iterator[Gpu]:
    """Whole GPUs that are there: clocks, heat, power and links are the card's, not those of its MIG instances."""
    return (gpu for gpu in window.last.gpus if not gpu.is_lost and gpu.mig_parent_uuid is None)


def is_counted(gpu: Gpu, limiter: str) -> bool:
    """The driver counts this limiter's time; else only its bit at single instants is known."""
    return limiter in (gpu.throttled_pct or {})


def held_s(window: Window, gpu: Gpu, limiter: str, seconds: float) -> float:
    """Seconds within the last ``seconds`` in which a limiter held the clock."""
    if window.mean(gpu, f"throttled_pct.{limiter}", seconds) == 0.0:
        return 0.0  # nearly always, and read fast
    series = window.series(gpu, f"throttled_pct.{limiter}", seconds)
    return sum(cover * value / 100.0 for value, cover in zip(series, window.covered(seconds), strict=True) if value)


def is_repeated(window: Window, gpu: Gpu, limiter: str, seconds: float) -> bool:
    """Set in two readings in a row: once may be a change of the performance state."""
    return any(one and two for one, two in pairwise(window.series(gpu, f"throttled_pct.{limiter}", seconds)))


def duties_pct(window: Window, gpu: Gpu, seconds: float) -> dict[str, float] | None:
    """Limiter -> share of the time in which it held the clock; None where nothing about limiters is reported."""
    if gpu.throttled_pct is None and gpu.clocks_event_reasons is None:
        return None
    means = {name: window.mean(gpu, f"throttled_pct.{name}", seconds) for name in LIMITERS if _is_known(gpu, name)}
    return {name: mean for name, mean in means.items() if mean is not None} or None


def together(findings: Sequence[Finding], cards: int, words: str) -> Iterator[Finding]:
    """One finding about the machine where more than half of its GPUs say the same: settings are made for all of them.

    ``words`` follow the number in its summary: ``GPUs work at …``.
    """
    if len(findings) < 2 or 2 * len(findings) <= cards:
        yield from findings
        return
    worst = max(findings, key=lambda finding: finding.strength)
    one = f" -i {worst.subject.gpu}"  # without it a command is for all of them
    yield msgspec.structs.replace(
        worst,
        subject=Subject(kind="host"),
        summary=f"{len(findings)} GPUs {words}",
        fix_text=(worst.fix_text or "").replace(one, ""),
        fixes=tuple(fix.replace(one, "") for fix in worst.fixes),
    )


def _is_known(gpu: Gpu, limiter: str) -> bool:
    return limiter_pct(gpu, limiter) is not None
