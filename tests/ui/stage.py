"""The real app as a stage for tests: frames are given, keys are typed, rows are read; no thread, no terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from textual.pilot import Pilot

from builders import ListSource
from gpumon.config import Config
from gpumon.monitor import Frame, frames
from gpumon.rules import RULES
from gpumon.sources.demo import simulate
from gpumon.ui.app import GpumonApp
from gpumon.ui.board import BoardScreen
from gpumon.ui.palette import Palette, Theme
from gpumon.ui.row import Row
from gpumon.ui.view import ViewState

Story = Callable[[GpumonApp, Pilot[Any]], Awaitable[None]]


@cache
def demo(scenario: str, seconds: float = 631.0) -> Frame:
    """The last frame of a simulated run."""
    for frame in frames(ListSource(simulate(scenario, seconds), name=scenario), rules=RULES):
        last = frame
    return last


@cache
def probed(scenario: str, seconds: float = 631.0) -> Frame:
    """The same where the training processes carry probes."""
    for frame in frames(ListSource(simulate(scenario, seconds, probe=True), name=scenario), rules=RULES):
        last = frame
    return last


def play(
    frame: Frame,
    story: Story,
    *,
    size: tuple[int, int] = (80, 24),
    theme: Theme = "dark",
    view: ViewState | None = None,
) -> None:
    """Run a story on an app that shows the frame."""

    async def run() -> None:
        palette = Palette(theme)
        shown = view or ViewState(has_color=palette.has_color)
        app = GpumonApp(None, Config(), shown, palette)
        async with app.run_test(size=size) as pilot:
            app.call_later(app.take, frame)
            await pilot.pause()
            await story(app, pilot)

    asyncio.run(run())


def screen_rows(app: GpumonApp) -> list[Row]:
    """The rows of the screen on top."""
    screen = app.screen
    assert isinstance(screen, BoardScreen)
    return list(screen.board.rows)


def text(app: GpumonApp) -> list[str]:
    """The same as lines of text."""
    return lines(screen_rows(app))


def lines(rows: Any) -> list[str]:
    """Rows without their styles."""
    return ["".join(piece for piece, _ in row) for row in rows]


def style_at(row: Row, column: int) -> str:
    """The style of one cell."""
    x = 0
    for piece, style in row:
        x += len(piece)
        if column < x:
            return style
    return ""
