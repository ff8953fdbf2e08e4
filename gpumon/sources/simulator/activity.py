"""What one GPU or MIG instance was doing and when, and how the driver's utilization windows show it."""

from __future__ import annotations

from collections import deque

RING_DEPTH = 100
IDLE_RING_S = 2.0
"""After this long without a kernel the driver's ring holds nothing."""

Segment = tuple[float, float, float, float, float]
"""(end of the step before, first kernel, own work done, step ended): idle, computing, waiting in a collective; and
the share of the computing time in which a kernel runs, less than 1 where the host launches too slowly."""


class Activity:
    """Steps in, busy shares and utilization windows out."""

    __slots__ = (
        "_gaps",
        "_segments",
        "_window_start",
        "busy_pct",
        "compute_s",
        "idle_s",
        "last_compute_s",
        "last_spin_s",
        "spin_s",
        "utilization_pct",
        "window_s",
    )

    def __init__(self, window_s: float, phase_s: float, start_s: float) -> None:
        """Windows begin ``phase_s`` before ``start_s``: the driver's clock knows nothing of ours."""
        self.window_s = window_s
        self._window_start = start_s - phase_s
        self._segments: deque[Segment] = deque()
        self._gaps: list[tuple[float, float, float]] = []
        self.compute_s = self.spin_s = 0.0
        self.last_compute_s = self.last_spin_s = 0.0
        self.idle_s = 0.0
        self.utilization_pct = 0.0
        self.busy_pct = 0.0

    def record(self, free_s: float, start_s: float, done_s: float, end_s: float, density: float = 1.0) -> None:
        """Add one step; steps are added in order and may reach into the future."""
        self._segments.append((free_s, start_s, done_s, end_s, density))

    def stop(self, at_s: float) -> None:
        """Forget whatever was to happen after ``at_s``: the process is gone."""
        self._segments = deque(
            (free, min(start, at_s), min(done, at_s), min(end, at_s), density)
            for free, start, done, end, density in self._segments
            if free < at_s
        )

    def consume(self, begin_s: float, end_s: float) -> None:
        """Account for [begin, end)."""
        compute = spin = 0.0
        covered = begin_s
        segments, gaps = self._segments, self._gaps
        while segments:
            free, start, done, end, density = segments[0]
            if free >= end_s:
                break
            if start > covered:
                gaps.append((covered, min(end_s, start), 1.0))
                covered = start
            if done > covered and covered < end_s:
                until = min(end_s, done)
                compute += density * (until - covered)
                if density < 1.0:
                    gaps.append((covered, until, 1.0 - density))
                covered = done
            if end > covered and covered < end_s:
                spin += (min(end_s, end)) - covered
                covered = end
            if end > end_s:
                break
            segments.popleft()
        if covered < end_s:
            gaps.append((covered, end_s, 1.0))
        self.idle_s = 0.0 if compute + spin else self.idle_s + end_s - begin_s
        self.last_compute_s, self.last_spin_s = compute, spin
        self.compute_s += compute
        self.spin_s += spin

    def take_windows(self, now_s: float) -> tuple[float, ...]:
        """The windows that ended since the last call, oldest first: integer percent, as the driver gives them."""
        first, width = self._window_start, self.window_s
        count = int((now_s - first) / width)
        if count <= 0:
            return ()
        end = first + count * width
        idle = [0.0] * (count + 1)
        rest = []
        for begin, high, weight in self._gaps:
            low = begin
            if high > end:
                rest.append((max(end, low), high, weight))
            at = int((low - first) / width) if low > first else 0
            edge = first + (at + 1) * width
            while high > edge and at < count:
                idle[at] += weight * (edge - low)
                low, at, edge = edge, at + 1, edge + width
            idle[at] += weight * (high - low)
        self._gaps = rest
        self._window_start = end
        scale = 100.0 / width
        values = [float(round(100.0 - gap * scale)) if gap else 100.0 for gap in idle[:count]]
        self.utilization_pct = values[-1] if values[-1] > 0 else 0.0
        if self.idle_s > IDLE_RING_S:
            return ()
        return tuple(values[-RING_DEPTH:])

    def reset_interval(self, seconds: float | None) -> None:
        """Begin a new sampling interval after one of ``seconds``."""
        if seconds:
            self.busy_pct = 100.0 * (self.compute_s + self.spin_s) / seconds
        self.compute_s = self.spin_s = 0.0
