"""Which columns a chart of the live screen has now, drawn once and kept until a column closes.

A chart changes when a bin closes, once more when the newest bin is half full, and when its window moves on by
a block; in between the very same pieces are handed out, so that a row that holds them stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpumon.monitor import Frame
from gpumon.rings import How
from gpumon.ui.panels.chart import (
    Chart,
    Look,
    Shares,
    budget_bar,
    limiter_band,
    slice_of,
    sparkline,
    timeline,
    visible_loss,
)  # fmt: skip
from gpumon.ui.row import Piece
from gpumon.ui.view import ViewState

Result = TypeVar("Result")

HARMFUL_LIMITERS = ("sw_thermal", "hw_thermal", "hw_power_brake")
LIMITED_PCT = 25.0
"""Of a bin: from here on a limiter counts as holding the clock down."""
_BUDGET = ("budget.useful_pct", "budget.data_pct", "budget.throttled_pct", "budget.peer_pct")
_CLOCK_STEP_S = 1.0
_KEPT = 4000


class Grid(msgspec.Struct, frozen=True):
    """The columns of every chart with the same number of them."""

    end_s: float
    """Right edge of the last column that is shown."""
    width_s: float
    shown: int
    """Columns drawn so far; the others lie in the future."""
    is_half: bool
    """The newest one is not closed yet."""


class Stamp:
    """Compared by identity: cheaper than comparing what it stands for, chart by chart."""

    __slots__ = ("frame_number", "state")

    def __init__(self, state: object) -> None:
        self.state = state
        self.frame_number = -1

    def is_of(self, frame_number: int) -> bool:
        """Whether it was checked for this frame already."""
        return self.frame_number == frame_number


class Charts:
    """Draws charts of the newest frame and remembers them; owned by the screen."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[object, object]] = {}
        self._columns: dict[tuple[object, ...], tuple[float, int, int, list[float | None]]] = {}
        """Closed columns: their width, clock steps, the number of the last one, values."""
        self._grids: dict[int, Grid] = {}
        self._stamps: dict[int, Stamp] = {}
        self._frame_number = 0
        self._anchor_s: float | None = None
        self._steps = 0
        """Clock steps seen: columns of before have another place now."""

    def begin(self, frame: Frame, view: ViewState) -> None:
        """Look at another frame."""
        self._window = frame.window
        self._view = view
        self.look = Look(view.tier, view.has_color)
        self._grids = {}
        self._frame_number += 1
        anchor_s = frame.window.last.time_s - frame.window.elapsed_s
        if self._anchor_s is None or abs(anchor_s - self._anchor_s) > _CLOCK_STEP_S:
            self._anchor_s = anchor_s
            self._steps += 1
        if len(self._kept) > _KEPT or len(self._columns) > _KEPT:
            self._kept.clear()
            self._columns.clear()

    def keep(self, key: tuple[object, ...], stamp: object, make: Callable[[], Result]) -> Result:
        """What ``make`` returned when the stamp was last different; the same object until it differs again."""
        known = self._kept.get(key)
        if known is not None and known[0] == stamp:
            return known[1]  # type: ignore[return-value]  # one key, one kind of thing
        made = make()
        if known is not None and known[1] == made:
            made = known[1]
        self._kept[key] = (stamp, made)
        return made

    def grid(self, count: int) -> Grid:
        """The columns of this frame's window, ``count`` from edge to edge."""
        known = self._grids.get(count)
        if known is None:
            known = self._grids[count] = self._make_grid(count)
        return known

    def _make_grid(self, count: int) -> Grid:
        view, now_s = self._view, self._window.last.time_s
        width_s = view.span_s / count
        end_s = view.end_s(now_s)
        elapsed = (now_s - (end_s - view.span_s)) / width_s + 1e-6
        closed = min(count, int(elapsed))
        is_half = closed < count and elapsed - closed >= 0.5
        shown = closed + is_half
        return Grid(end_s - (count - shown) * width_s, width_s, shown, is_half)

    def stamp(self, count: int) -> Stamp:
        """What every chart of so many columns depends on; the same object until one of its columns closes."""
        known = self._stamps.get(count)
        if known is None or not known.is_of(self._frame_number):
            grid = self.grid(count)
            state = (grid, self._steps, self.look)
            if known is None or known.state != state:
                known = self._stamps[count] = Stamp(state)
            known.frame_number = self._frame_number
        return known

    def values(self, subject: str, field: str, count: int, how: How = "mean") -> list[float | None]:
        """The columns of one series that are shown; closed ones are asked for once."""
        grid = self.grid(count)
        closed = grid.shown - grid.is_half
        right = round(grid.end_s / grid.width_s) - grid.is_half
        key = (subject, field, count, how)
        known = self._columns.get(key)
        missing = closed
        values: list[float | None] = []
        if known is not None and known[:2] == (grid.width_s, self._steps) and 0 <= right - known[2] < closed:
            values = known[3]
            missing = max(right - known[2], closed - len(values))
            if closed - len(values) > right - known[2]:
                values, missing = [], closed
        if missing:
            end_s = right * grid.width_s
            empty = self._empty(end_s, grid.width_s, missing)
            values = values + [None] * empty + self._window.bins(
                subject, field, end_s=end_s, width_s=grid.width_s, count=missing - empty, how=how
            )  # fmt: skip
        values = values[len(values) - closed :]
        self._columns[key] = (grid.width_s, self._steps, right, values)
        if not grid.is_half:
            return values
        return values + self._window.bins(
            subject, field, end_s=grid.end_s, width_s=grid.width_s, count=1, how=how
        )  # fmt: skip

    def _empty(self, end_s: float, width_s: float, count: int) -> int:
        """How many of so many columns end before anything was sampled: nearly all of them in the first picture."""
        window = self._window
        began_s = window.time_of(window.elapsed_s - window.span_s) - 2 * window.interval_s
        return min(count, max(0, int((began_s - end_s) // width_s) + count))

    def slices(self, uuid: str, count: int) -> list[Shares | None]:
        """The time budget of each column that is shown."""
        return self.keep(("slices", uuid, count), self.stamp(count), lambda: self._make_slices(uuid, count))

    def _make_slices(self, uuid: str, count: int) -> list[Shares | None]:
        return list(map(slice_of, *(self.values(uuid, field, count) for field in _BUDGET)))

    def timeline(self, uuid: str, count: int, height: int) -> Chart:
        """The time budget over time."""
        return self.keep(
            ("timeline", uuid, count, height),
            self.stamp(count),
            lambda: timeline(self.slices(uuid, count), count, height, self.look),
        )

    def budget(self, uuid: str, count: int) -> Shares | None:
        """The time budget of the whole span: what the timeline adds up to."""
        return self.keep(("budget", uuid, count), self.stamp(count), lambda: self._sum(uuid, count))

    def _sum(self, uuid: str, count: int) -> Shares | None:
        known = [part for part in self.slices(uuid, count) if part is not None]
        if not known:
            return None
        return Shares(*(sum(amounts) / len(known) for amounts in zip(*known, strict=True)))

    def bar(self, uuid: str, count: int, width: int) -> tuple[Piece, ...]:
        """The time budget of the whole span as a bar."""
        return self.keep(
            ("bar", uuid, count, width),
            self.stamp(count),
            lambda: budget_bar(self.budget(uuid, count), width, self.look),
        )

    def losses(self, uuids: tuple[str, ...], count: int) -> frozenset[str]:
        """Which losses show in any of the timelines."""
        return self.keep(("losses", count), (uuids, self.stamp(count)), lambda: self._seen(uuids, count))

    def _seen(self, uuids: tuple[str, ...], count: int) -> frozenset[str]:
        losses = {visible_loss(part) for uuid in uuids for part in self.slices(uuid, count)}
        return frozenset(kind for kind in losses if kind is not None)

    def spark(
        self, subject: str, field: str, count: int, scale: tuple[float, float], role: str, *,
        how: How = "mean", height: int = 1, limit: float | None = None, is_clock: bool = False,
    ) -> Chart:  # fmt: skip
        """A signal on its fixed scale, red where it is at its limit or a limiter holds it down."""

        def make() -> Chart:
            values = self.values(subject, field, count, how)
            wrong: list[bool] = []
            if limit is not None:
                wrong = [value is not None and value >= limit - 1.0 for value in values]
            elif is_clock:
                wrong = [share is not None and share >= LIMITED_PCT for share in self.harmful(subject, count)]
            return sparkline(values, scale, count, height, role=role, look=self.look, wrong=wrong)

        return self.keep(("spark", subject, field, count, height), (scale, limit, self.stamp(count)), make)

    def harmful(self, uuid: str, count: int) -> list[float | None]:
        """How much of each column heat or the power brake held the clock down, in percent."""
        shares = [self.values(uuid, f"throttled_pct.{name}", count) for name in HARMFUL_LIMITERS]
        return [
            max((share for share in column if share is not None), default=None) for column in zip(*shares, strict=True)
        ]

    def band(self, uuid: str, count: int) -> tuple[Piece, ...]:
        """Limiters over time, one cell a column."""
        return self.keep(
            ("band", uuid, count),
            self.stamp(count),
            lambda: tuple(
                limiter_band(
                    self.harmful(uuid, count), self.values(uuid, "throttled_pct.sw_power_cap", count), count, self.look
                )
            ),
        )

    def column_of(self, time_s: float, count: int) -> int | None:
        """The column in which a moment lies, None outside the window."""
        start_s = self._view.end_s(self._window.last.time_s) - self._view.span_s
        column = int((time_s - start_s) * count / self._view.span_s)
        return column if time_s >= start_s and column < count else None
