"""Which numbers the rows show: means since they were last renewed, at the pace of the screen, not of the samples."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.ui.panels.chart import Shares
from gpumon.ui.panels.state import recent
from gpumon.window import Window

SLOW_FROM_GPUS = 5
SLOW_S = 2.0
"""With this many GPUs everything but utilization is renewed every other second: half the bytes."""


class Values(NamedTuple):
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
        self._elapsed_s = 0.0

    def follow(self, frame: Frame) -> None:
        """Take over the frame's numbers if it is time."""
        window = frame.window
        if self.frame is frame:
            return
        since_s = window.elapsed_s - self._elapsed_s
        pace_s = SLOW_S if len(window.last.gpus) >= SLOW_FROM_GPUS else 0.0
        if self.frame is not None and 0.0 <= since_s < pace_s - 0.5 * min(window.interval_s, 1.0):
            if _same_gpus(self.frame, frame):
                return
            since_s = 0.0
        mean_s = since_s if 0.0 < since_s <= 10.0 else window.interval_s
        self.frame = frame
        self._elapsed_s = window.elapsed_s
        self.values = {gpu.uuid: _values(window, gpu, mean_s) for gpu in window.last.gpus}
        self.shares = {gpu.uuid: recent(window, gpu) for gpu in window.last.gpus}
        self.version += 1


def _same_gpus(old: Frame, new: Frame) -> bool:
    """Nothing was lost or added: such a change is shown at once."""
    before, after = old.window.last.gpus, new.window.last.gpus
    return len(before) == len(after) and all(
        a.uuid == b.uuid and a.is_lost == b.is_lost for a, b in zip(before, after, strict=True)
    )


def _values(window: Window, gpu: Gpu, seconds: float) -> Values:
    return Values(
        _mean(window, gpu, "power_w", gpu.power_w, seconds),
        _mean(window, gpu, "temperature_c", gpu.temperature_c, seconds),
        _mean(window, gpu, "sm_clock_mhz", gpu.sm_clock_mhz, seconds),
        gpu.memory_used_bytes,
    )


def _mean(window: Window, gpu: Gpu, field: str, newest: float | None, seconds: float) -> int | None:
    """None as soon as the newest value is missing: nothing old is shown as new."""
    if newest is None or gpu.is_lost:
        return None
    mean = window.mean(gpu, field, seconds)
    return round(newest if mean is None else mean)
