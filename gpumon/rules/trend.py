"""Knows where a noisy series is heading: a robust slope, and whether it goes that way all the time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gpumon.window import Known, Window

_POINTS = 60


def points_of(window: Window, subject: Known, field: str, seconds: float) -> list[tuple[float, float]]:
    """Seconds from now (negative) and value, thinned to means of equal stretches; gaps are left out."""
    width_s = seconds / _POINTS
    sums: dict[int, list[float]] = {}
    for age, value in zip(window.ages(seconds), window.series(subject, field, seconds), strict=True):
        if value is not None:
            entry = sums.setdefault(int(age / width_s), [0.0, 0.0, 0.0])
            entry[0] -= age
            entry[1] += value
            entry[2] += 1.0
    return [(at / count, total / count) for _, (at, total, count) in sorted(sums.items(), reverse=True)]


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Per second, by the median of the slopes between all pairs (Theil-Sen): outliers do not move it."""
    pairs = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, earlier in enumerate(points)
        for later in points[number + 1 :]
        if later[0] > earlier[0]
    ]
    return median(pairs) if pairs else None


def keeps_on(points: Sequence[tuple[float, float]], seconds: float, *, blocks: int, rises: bool) -> bool:
    """Whether it moves the same way from each block of the time to the next, within every block as well."""
    parts: list[list[tuple[float, float]]] = [[] for _ in range(blocks)]
    for at, value in points:
        parts[min(blocks - 1, int((at + seconds) / seconds * blocks))].append((at, value))
    if any(len(part) < 2 for part in parts):
        return False
    slopes = [slope(part) or 0.0 for part in parts]
    return all(value > 0 if rises else value < 0 for value in slopes)
