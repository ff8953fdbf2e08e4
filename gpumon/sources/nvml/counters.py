"""Knows what a growing counter says about the time between two readings, and when it says nothing."""

from __future__ import annotations

from collections import deque


class Counter:
    """Turns the readings of one growing counter into its mean rate.

    A counter that is missing, new or smaller than before (driver reload, wrap) has no rate: None, never 0 or less.
    """

    __slots__ = ("_readings", "_window_s")

    def __init__(self, window_s: float = 0.0) -> None:
        """With ``window_s`` the mean reaches at least that far back, where a counter moves in coarse steps."""
        self._window_s = window_s
        self._readings: deque[tuple[float, float]] = deque()

    def rate(self, at_s: float, count: float | None) -> float | None:
        """Per second, since the previous reading (or the window's start); None when that is unknown."""
        readings = self._readings
        if count is None:
            readings.clear()
            return None
        if readings and count < readings[-1][1]:
            readings.clear()
        while len(readings) > 1 and at_s - readings[1][0] >= self._window_s:
            readings.popleft()
        base = readings[0] if readings else None
        if base is not None and at_s <= base[0]:
            return None
        readings.append((at_s, count))
        return None if base is None else (count - base[1]) / (at_s - base[0])
