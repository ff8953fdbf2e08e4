"""The last row: the keys that work here and now, and what gpumon itself costs."""

from __future__ import annotations

from gpumon.monitor import Frame
from gpumon.signals import stale_after_s
from gpumon.ui.panels.line import fill, spread, width_of
from gpumon.ui.panels.state import oldest_age_s
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

Key = tuple[str, str]

MUST: tuple[Key, ...] = (("?", "help"), ("Space", "go on"), ("End", "now"), ("q", "quit"))
"""Ways out and back: they stay whatever the width."""


def footer_row(frame: Frame, view: ViewState, width: int, sample_ms: float | None) -> Row:
    """Keys of the focused part at the left, our own bill at the right."""
    bill = _bill(frame, view, width, sample_ms)
    keys = _keys(frame, view)
    must = [key for key in keys if key in MUST]
    room = width - width_of(bill) - 2
    for kept in (keys, *(keys[:count] for count in range(len(keys) - 1, 1, -1))):
        listed = [key for key in keys if key in kept or key in must]
        pieces = _listed(listed)
        if width_of(pieces) <= room:
            return spread(pieces, bill, width)
    quit_only = _listed([("q", "quit"), ("?", "help")])
    return fill(quit_only if width_of(quit_only) <= width else _listed([("q", "quit")]), width)


def _keys(frame: Frame, view: ViewState) -> list[Key]:
    """Most useful first after help; what does not fit goes from behind, never ``q``."""
    keys: list[Key] = [("?", "help")]
    if view.paused_at_s is not None:
        keys.append(("Space", "go on"))
    elif view.scroll_blocks:
        keys.append(("End", "now"))
    if frame.headline.alert is not None:
        keys.append(("e", "why"))
    if view.part == "jobs":
        keys.append(("Enter", "its job"))
        if not view.is_read_only:
            keys.append(("K", "signal"))
    elif view.part == "alerts":
        keys += [("Enter", "diagnosis"), ("m", "mute")]
    else:
        keys.append(("Enter", "detail"))
    keys += [("a", "alerts"), ("+-", "span"), ("Tab", "part"), ("<>", "scroll"), ("Space", "pause")]
    if view.paused_at_s is not None:
        keys.remove(("Space", "pause"))
    return [*keys, ("q", "quit")]


def _listed(keys: list[Key]) -> list[Piece]:
    pieces: list[Piece] = []
    for name, does in keys:
        pieces += [("  " if pieces else " ", ""), (name, "accent"), (f" {does}", "muted")]
    return pieces


def age(frame: Frame, view: ViewState) -> Piece:
    """How old the oldest source is: yellow from two intervals on, bold as soon as its values are grey."""
    age_s = int(oldest_age_s(frame, view))
    style = "muted"
    if age_s >= max(2.0, 2.0 * view.interval_s):
        style = "bold data-text" if age_s >= stale_after_s(view.interval_s) else "data-text"
    return (f"age {age_s}s", style)


def _bill(frame: Frame, view: ViewState, width: int, sample_ms: float | None) -> list[Piece]:
    told = age(frame, view)
    if width < 60:
        return [told, (" ", "")] if width >= 36 else []
    cpu = "–" if view.self_cpu_pct is None else f"{view.self_cpu_pct:.1f}%"
    cost = "–" if sample_ms is None else f"{sample_ms:.0f}ms"
    return [(f"self {cpu} {cost} · ", "muted"), told, (" ", "")]
