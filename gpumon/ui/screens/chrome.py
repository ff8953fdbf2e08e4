"""What every screen but the overview has above and below its own rows: where one is, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon import units
from gpumon.ui.panels.footer import age
from gpumon.ui.panels.line import fill, spread, width_of
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

if TYPE_CHECKING:
    from gpumon.monitor import Frame

Key = tuple[str, str]
"""A key as it is written, and what it does."""


def title_row(frame: Frame, view: ViewState, where: Sequence[str], width: int, columns: int | None = None) -> Row:
    """``gpumon node07 › GPU 5 · H100 80GB      10 min, 6 s/col · 14:08:31``; the rear parts of ``where`` give way."""
    end: list[Piece] = []
    if view.paused_at_s is not None:
        end += [(f" PAUSED {units.clock(view.paused_at_s)} ", "bold reverse accent"), (" ", "")]
    elif view.scroll_blocks:
        end += [(" SCROLLED BACK ", "bold reverse accent"), (" ", "")]
    span = units.duration(view.span_s)
    per_column = "" if columns is None else f", {view.span_s / columns:g} s/col"
    end += [(f"{span}{per_column} · ", "muted"), (units.clock(frame.window.last.time_s), ""), (" ", "")]
    start: list[Piece] = [(" gpumon", "bold")]
    if frame.info.kind != "live":
        start += [(" ", ""), (f" {frame.info.kind.upper()} ", "bold reverse accent")]
    start.append((f" {frame.window.last.host.name or frame.info.name} › ", "muted"))
    shown = list(where)
    while len(shown) > 1 and width_of(start) + len(" · ".join(shown)) + width_of(end) + 1 > width:
        shown.pop()
    start.append((shown[0], "bold"))
    start.append(("".join(f" · {part}" for part in shown[1:]), "muted"))
    if width_of(start) + width_of(end) + 1 > width:
        end = [(units.clock(frame.window.last.time_s), ""), (" ", "")]
    return spread(start, end, width)


def footer_row(frame: Frame, view: ViewState, keys: Sequence[Key], width: int) -> Row:
    """The keys, most telling last to go, and the age of what is shown."""
    if view.self_cpu_pct is not None and frame.sample_ms is not None and width >= 110:
        cost = f"self {view.self_cpu_pct:.1f}% {frame.sample_ms:.0f}ms · "
    else:
        cost = ""
    end: list[Piece] = [(cost, "muted"), age(frame, view), (" ", "")]
    shown = list(keys)
    while len(shown) > 1 and _length(shown) + width_of(end) + 1 > width:
        shown.pop(-2 if len(shown) > 2 else 0)
    pieces: list[Piece] = [(" ", "")]
    for key, does in shown:
        pieces += [(key, "accent"), (f" {does}  ", "muted")]
    return spread(pieces, end, width)


def _length(keys: Sequence[Key]) -> int:
    return 1 + sum(len(key) + len(does) + 3 for key, does in keys)


def rule_row(start: Sequence[Piece], width: int, end: Sequence[Piece] = ()) -> Row:
    """A titled rule over the whole width: ``─ title … ──── end ─``; the end gives way."""
    head: list[Piece] = [("─ ", "rule"), *start, (" ", "")]
    tail: list[Piece] = [(" ", ""), *end, (" ─", "rule")] if end else []
    if width_of(head) + width_of(tail) >= width:
        tail = []
    missing = width - width_of(head) - width_of(tail)
    return fill([*head, ("─" * max(0, missing), "rule"), *tail], width)
