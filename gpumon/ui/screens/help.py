"""Which keys there are and what the marks mean: one page at 80×24."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpumon.ui import glyphs
from gpumon.ui.board import BoardScreen
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

if TYPE_CHECKING:
    from gpumon.monitor import Frame

Entry = tuple[str, str]
"""Keys as they are written, and what they do."""

MOVE: tuple[Entry, ...] = (
    ("↑↓ j k", "select a row"),
    ("Tab", "GPUs → jobs → alerts"),
    ("0 … 9", "select that GPU"),
    ("PgUp PgDn Home End", "scroll"),
)
TIME: tuple[Entry, ...] = (
    ("+ -", "longer, shorter span"),
    ("< >", "scroll back, forward"),
    ("←→", "cross-hair, values"),
    ("Space", "pause the picture"),
    ("i", "sampling interval"),
)
LOOK: tuple[Entry, ...] = (
    ("Enter", "open the selected row"),
    ("Esc", "back; ends cross-hair, scroll"),
    ("e", "why: explain the headline"),
    ("a", "alerts and their log"),
    ("n p", "next, previous GPU or job"),
    (", . r", "sort the ranks (job); reverse"),
    ("o", "overlay the lines (detail)"),
    ("?", "this page"),
)
ACT: tuple[Entry, ...] = (
    ("m", "mute the alert's rule"),
    ("y", "copy the fix, or show it"),
    ("K F9", "signal a process, asks first"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend; fg comes back"),
    ("q", "quit, from anywhere"),
)
LEFT = (("MOVE", MOVE), ("TIME", TIME))
RIGHT = (("LOOK", LOOK), ("ACT", ACT))

COLUMN = 39
"""Where the right half begins at 80 columns."""


def _section(title: str, entries: Sequence[Entry], key_width: int) -> list[Row]:
    rows: list[Row] = [((f" {title}", "bold"),)]
    for keys, does in entries:
        width = max(key_width, len(keys) + 2)
        rows.append((("  ", ""), (keys.ljust(width), "accent"), (does, "")))
    return rows


def _half(sections: Sequence[tuple[str, Sequence[Entry]]], key_width: int) -> list[Row]:
    rows: list[Row] = []
    for title, entries in sections:
        if rows:
            rows.append(())
        rows += _section(title, entries, key_width)
    return rows


def legend(view: ViewState) -> Row:
    """What the fills and marks mean, drawn as the charts draw them."""
    pieces: list[Piece] = []
    words = (("useful", "useful"), ("data", "waits for data"), ("throttled", "throttled"), ("peer", "waits for a GPU"))
    roles = {"throttled": "harm"}
    for kind, word in words:
        char = "█" if view.has_color and view.tier != "ascii" else glyphs.shade(kind, view.tier)
        pieces += [(f" {char}", roles.get(kind, kind)), (f" {word}", "muted")]
    pieces += [
        (f"  {glyphs.shade('idle', view.tier)} idle  ", "muted"),
        ("■", "harm"),
        (" crit ", "muted"),
        ("▲", "data-text"),
        (" warn", "muted"),
    ]
    return tuple(pieces)


def help_rows(view: ViewState, width: int, height: int, offset: int = 0) -> list[Row]:
    """The page; where it is higher than the screen, the part from ``offset`` on."""
    way_out = "Esc or ? closes"
    title: Row = ((" gpumon help", "bold"), (way_out.rjust(max(0, width - 13)) + " ", "muted"))
    if width >= 2 * COLUMN:
        left, right = _half(LEFT, 9), _half(RIGHT, 9)
        body: list[Row] = [()]
        for y in range(max(len(left), len(right))):
            pieces = left[y] if y < len(left) else ()
            gap = COLUMN - sum(len(text) for text, _ in pieces)
            body.append((*pieces, (" " * gap, ""), *(right[y] if y < len(right) else ())))
    else:
        body = _half((*LEFT, *RIGHT), 7)
    body += [(), legend(view)]
    room = max(1, height - 2)
    last_offset = max(0, len(body) - room)
    offset = min(offset, last_offset)
    shown = body[offset : offset + room]
    shown += [()] * (room - len(shown))
    more = f"↓ {last_offset - offset} more rows: j" if offset < last_offset else ""
    footer: Row = ((" ", ""), ("q", "accent"), (" quit", "muted"), (more.rjust(max(0, width - 8)), "muted"))
    return [title, *shown, footer][:height]


class HelpScreen(BoardScreen[None]):
    """All keys of this version."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,question_mark,h,f1", "app.pop_screen", "back"),
        ("down,j,pagedown", "move(1)", "down"),
        ("up,k,pageup", "move(-1)", "up"),
    ]
    _offset = 0

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002 - the same for every frame
        """The page does not depend on the frame."""
        return help_rows(view, width, height, self._offset)

    def rows_without_frame(self, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """Help is there before the first sample."""
        return help_rows(view, width, height, self._offset)

    def action_move(self, rows: int) -> None:
        """Scroll, where the page is higher than the screen."""
        width, height = self.size
        page = len(help_rows(self.board_app.view, width, 1000)) if width < 2 * COLUMN else 20
        self._offset = min(max(0, self._offset + rows), max(0, page - height))
        self.draw()
