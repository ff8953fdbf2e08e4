"""What the reader chose to look at: span, place in time, focus, pause; the picture is Frame + ViewState.

Nothing here changes what is sampled or judged. A ``ViewState`` is frozen; keys make a new one.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from gpumon.model import Alert, Process
from gpumon.ui.glyphs import Tier

Part = Literal["gpus", "jobs", "alerts"]
PARTS: tuple[Part, ...] = ("gpus", "jobs", "alerts")

SPANS_S: tuple[float, ...] = (
    60, 120, 300, 600, 1200,
    3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000,
)  # fmt: skip
"""1 2 5 10 20 min, 1 2 5 10 20 50 100 h."""

INTERVALS_S: tuple[float, ...] = (0.5, 1.0, 2.0, 5.0)
BLOCKS = 10
"""A window is ten blocks; charts move by one."""


class ViewState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a panel may look at besides the Frame."""

    span_s: float = 600.0
    scroll_blocks: int = 0
    """Blocks back from now; 0 follows."""
    crosshair: int | None = None
    """Columns left of the newest one; None while there is no cross-hair."""

    part: Part = "gpus"
    """Which part has the focus."""
    gpu: str | None = None
    """UUID of the selected GPU; None means the first."""
    process: str | None = None
    """``pid:started`` of the selected process (as the history names it)."""
    alert: str | None = None
    """``alert_key`` of the selected alert."""
    gpu_offset: int = 0
    job_offset: int = 0
    alert_offset: int = 0
    """First visible row of each part."""
    density: str | None = None
    """panel, R4, R2, R1, cells; None lets the size decide."""
    is_overlaid: bool = True
    """Detail: temperature and clock share a chart where there is room and colour."""

    paused_at_s: float | None = None
    """The shown frame's time while the picture is paused."""
    age_s: float = 0.0
    """Since the newest frame came, in whole seconds: the only `now` a panel sees."""
    interval_s: float = 1.0
    self_cpu_pct: float | None = None
    """gpumon's own CPU over the last 5 s; None until known."""
    toast: str | None = None
    """Answer to a key, for the headline's second row."""

    tier: Tier = "blocks"
    has_color: bool = True
    is_read_only: bool = False
    started_s: float | None = None
    """The time of the first frame."""

    @property
    def block_s(self) -> float:
        """Seconds in one block of the window."""
        return self.span_s / BLOCKS

    @property
    def is_stale(self) -> bool:
        """No frame for three intervals (at least 3 s, so that a busy machine does not flicker)."""
        return self.age_s >= max(3.0, 3.0 * self.interval_s)

    def end_s(self, time_s: float) -> float:
        """Right edge of every chart: the end of the current block, or of the one scrolled back to."""
        block_s = self.block_s
        return (math.floor(time_s / block_s) + 1 - self.scroll_blocks) * block_s


def process_key(process: Process) -> str:
    """A process's identity over time, as the history names it."""
    return f"{process.pid}:{process.started_s}"


def alert_key(alert: Alert) -> str:
    """An alert's identity: rule, subject and onset."""
    return f"{alert.finding.rule}:{alert.finding.subject.key()}:{alert.since_s}"


def longer(span_s: float) -> float:
    """The next longer span, the longest for the longest."""
    return next((span for span in SPANS_S if span > span_s), SPANS_S[-1])


def shorter(span_s: float) -> float:
    """The next shorter span, the shortest for the shortest."""
    return next((span for span in reversed(SPANS_S) if span < span_s), SPANS_S[0])


def next_interval(interval_s: float) -> float:
    """The next longer sampling interval; after the longest the shortest."""
    return next((interval for interval in INTERVALS_S if interval > interval_s), INTERVALS_S[0])
