"""Which numbers the rows show: means since they were last renewed, at the pace of the screen, not of the samples."""

from __future__ import annotations

import msgspec

from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.ui.panels.chart import Shares
from gpumon.ui.panels.state import recent

SLOW_FROM_GPUS = 5
SLOW_S = 2.0
"""With this many GPUs everything but utilization is renewed every other second: half the bytes."""
BILL_S = 10.0
"""How often gpumon's own cost is renewed."""
MOST_FRAMES = 10
"""A mean is of no more frames than this, however long the screen was away."""


class Values(msgspec.Struct, frozen=True):
    """The slow numbers of one GPU, rounded as they are shown."""

    power_w: int | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = None
    memory_bytes: int | None = None


class Pace:
    """Remembers the frame whose slow numbers are on the screen."""

    def __init__(self) -> None:
        self.frame: Frame | None = None
        """The frame that host and job table show."""
        self.values: dict[str, Values] = {}
        self.shares: dict[str, Shares | None] = {}
        """The time budget of the last seconds, per GPU."""
        self.version = 0
        self.sample_ms: float | None = None
        """Mean cost of a sample while the last ten seconds were sampled."""
        self._costs: list[float] = []
        self._billed_s = 0.0
        self._elapsed_s = 0.0
        self._passed: list[tuple[Gpu, ...]] = []
        """The GPUs of the frames since then: what the means are of."""

    def follow(self, frame: Frame) -> None:
        """Take over the frame's numbers if it is time."""
        window = frame.window
        if self.frame is frame:
            return
        self._bill(frame)
        since_s = window.elapsed_s - self._elapsed_s
        self._passed.append(window.last.gpus)
        pace_s = SLOW_S if len(window.last.gpus) >= SLOW_FROM_GPUS else 0.0
        if self.frame is not None and 0.0 <= since_s < pace_s - 0.5 * min(window.interval_s, 1.0):
            if _same_gpus(self.frame, frame):
                return
            since_s = 0.0
        passed = self._passed[-MOST_FRAMES:] if 0.0 < since_s <= MOST_FRAMES else [window.last.gpus]
        self._passed = []
        self.frame = frame
        self._elapsed_s = window.elapsed_s
        self.values = {gpu.uuid: _values(gpu, place, passed) for place, gpu in enumerate(window.last.gpus)}
        self.shares = {gpu.uuid: recent(window, gpu) for gpu in window.last.gpus}
        self.version += 1

    def _bill(self, frame: Frame) -> None:
        if frame.sample_ms is not None:
            self._costs.append(frame.sample_ms)
        elapsed_s = frame.window.elapsed_s
        if self._costs and (self.sample_ms is None or not 0.0 <= elapsed_s - self._billed_s < BILL_S):
            self.sample_ms = sum(self._costs) / len(self._costs)
            self._costs = []
            self._billed_s = elapsed_s


def _same_gpus(old: Frame, new: Frame) -> bool:
    """Nothing was lost or added: such a change is shown at once."""
    before, after = old.window.last.gpus, new.window.last.gpus
    return len(before) == len(after) and all(
        a.uuid == b.uuid and a.is_lost == b.is_lost for a, b in zip(before, after, strict=True)
    )


def _values(gpu: Gpu, place: int, passed: list[tuple[Gpu, ...]]) -> Values:
    if gpu.is_lost:
        return Values()
    same = [gpus[place] for gpus in passed if place < len(gpus) and gpus[place].uuid == gpu.uuid]
    return Values(
        _mean(gpu.power_w, [one.power_w for one in same]),
        _mean(gpu.temperature_c, [one.temperature_c for one in same]),
        _mean(gpu.sm_clock_mhz, [one.sm_clock_mhz for one in same]),
        gpu.memory_used_bytes,
    )


def _mean(newest: float | None, passed: list[float | None]) -> int | None:
    """None as soon as the newest value is missing: nothing old is shown as new."""
    if newest is None:
        return None
    known = [value for value in passed if value is not None]
    return round(sum(known) / len(known)) if known else round(newest)
