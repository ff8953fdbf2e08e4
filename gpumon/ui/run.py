"""How the live screen is opened: terminal first, then the sampler, then Textual; and what its end means."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.alerts import MuteList
from gpumon.config import Config
from gpumon.ui import tty
from gpumon.ui.sampler import Sampler
from gpumon.ui.view import SPANS_S, ViewState

if TYPE_CHECKING:
    from gpumon.ui.palette import Depth
    from gpumon.ui.sampler import PacedSource

CRASHED = 70


def run_app(
    make_source: Callable[[], PacedSource], config: Config, *, no_color: bool = False, notice: str | None = None
) -> int:
    """Show the live screen until the user leaves it; returns the exit code.

    Args:
        make_source: called on the sampler's thread.
        config: the effective configuration, the command line's options applied.
        no_color: ``--no-color``.
        notice: said in the headline's second row for the first seconds.

    Raises:
        NotATerminal: no screen can be drawn here.
        GpumonError: what ended sampling, for the command line to print.
    """
    tty.require_terminal()
    gc.disable()  # what start-up makes stays; collecting begins after the first picture
    depth = tty.depth(no_color=no_color or config.theme == "mono")
    tier = tty.tier(is_ascii=config.ascii)
    mutes = MuteList()
    sampler = Sampler(make_source, config, mutes)
    sampler.start()
    asks_background = config.theme == "auto" and depth > 0 and os.environ.get("TERM") != "linux"
    with tty.Interview(asks_background=asks_background, asks_width=tier == "blocks" and tty.may_be_wide()) as interview:
        _settle_textual(depth)
        from gpumon.ui.app import GpumonApp
        from gpumon.ui.palette import Palette

        interview.listen()
    theme = config.theme if config.theme != "auto" else "light" if tty.is_light(interview.background) else "dark"
    palette = Palette(theme, depth)
    view = ViewState(
        span_s=next((span for span in SPANS_S if span >= config.span_s), SPANS_S[-1]),
        interval_s=config.interval_s,
        tier="ascii" if interview.is_wide else tier,
        has_color=palette.has_color,
        is_read_only=config.read_only,
    )
    app = GpumonApp(
        sampler,
        config,
        view,
        palette,
        mutes=mutes,
        typed=interview.typed,
        notice=notice,
        can_paint=os.environ.get("GPUMON_PAINT") != "0",
    )
    if sampler.error is not None:  # no driver, most of the time: known before the screen opens
        raise sampler.error
    app.run(mouse=False)
    sampler.stop()
    if app.failure is not None:
        raise app.failure
    return CRASHED if app.return_code else 0


def _settle_textual(depth: Depth) -> None:
    """Textual reads these once, at import: no 24-bit colour, no size from the shell, no filters."""
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "256" if depth == 256 else "standard"
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    for name in ("COLUMNS", "LINES", "TEXTUAL", "TEXTUAL_DRIVER", "TEXTUAL_FILTERS"):
        os.environ.pop(name, None)
