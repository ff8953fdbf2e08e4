"""How the live screen is opened: the sampler, a first picture, then Textual; and what its end means.

Importing Textual costs more than everything that the first values need: so they do not wait for it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpumon.alerts import MuteList
from gpumon.config import Config
from gpumon.ui import tty
from gpumon.ui.glyphs import ascii_row
from gpumon.ui.opening import Opening
from gpumon.ui.palette import Palette
from gpumon.ui.sampler import Sampler
from gpumon.ui.view import SPANS_S, ViewState

if TYPE_CHECKING:
    from gpumon.ui.palette import Depth
    from gpumon.ui.sampler import PacedSource

CRASHED = 70
FIRST_S = 0.4
"""How long Textual waits for the first values; those of a slower driver it shows itself.

One that takes 0.3 s is shown 0.2 s sooner for it, one that takes 0.6 s at most 0.2 s later, one that takes 1 s as soon.
"""


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
    mutes = MuteList()
    sampler = Sampler(make_source, config, mutes)
    sampler.start()
    with Opening() as opening:
        view, palette = _show_first(opening, sampler, config, no_color=no_color, notice=notice)
        _settle_textual(palette.depth)
        from gpumon.ui.app import GpumonApp

        app = GpumonApp(
            sampler,
            config,
            view,
            palette,
            mutes=mutes,
            opening=opening,
            notice=notice,
            can_paint=os.environ.get("GPUMON_PAINT") != "0",
        )
        if sampler.error is not None:
            raise sampler.error
        app.run(mouse=False)
    sampler.stop()
    if app.failure is not None:
        raise app.failure
    return CRASHED if app.return_code else 0


def _show_first(
    opening: Opening, sampler: Sampler, config: Config, *, no_color: bool, notice: str | None
) -> tuple[ViewState, Palette]:
    """Find out how to draw on this terminal, and put the first values on it if they are there soon."""
    depth = tty.depth(no_color=no_color or config.theme == "mono")
    tier = tty.tier(is_ascii=config.ascii)
    asks_background = config.theme == "auto" and depth > 0 and os.environ.get("TERM") != "linux"
    may_ask = opening.is_holding and tty.has_room(tty.OUTPUT)
    interview = tty.Interview(
        asks_background=may_ask and asks_background, asks_width=may_ask and tier == "blocks" and tty.may_be_wide()
    )
    from gpumon.ui.layout import layout  # takes as long as the sampler and the terminal need to answer

    frame = sampler.wait_for_first(FIRST_S)
    interview.listen()
    opening.typed = interview.typed
    theme = config.theme if config.theme != "auto" else "light" if tty.is_light(interview.background) else "dark"
    palette = Palette(theme, depth)
    view = ViewState(
        span_s=next((span for span in SPANS_S if span >= config.span_s), SPANS_S[-1]),
        interval_s=config.interval_s,
        toast=notice,
        tier="ascii" if interview.is_wide else tier,
        has_color=palette.has_color,
        is_read_only=config.read_only,
    )
    if frame is not None:
        rows = layout(frame, view, *tty.size())
        opening.show([ascii_row(row) for row in rows] if view.tier == "ascii" else rows, palette)
    return view, palette


def _settle_textual(depth: Depth) -> None:
    """Textual reads these once, at import: no 24-bit colour, no size from the shell, no filters."""
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "256" if depth == 256 else "standard"
    os.environ["TEXTUAL_ANIMATIONS"] = "none"
    for name in ("COLUMNS", "LINES", "TEXTUAL", "TEXTUAL_DRIVER", "TEXTUAL_FILTERS"):
        os.environ.pop(name, None)
