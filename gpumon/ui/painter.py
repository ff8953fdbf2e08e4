"""When it is safe to write changed cells past Textual, and how; the only file that does so.

Textual's way from a changed cell to the terminal costs 3 ms a frame; this costs a tenth of that. Rows are
stored before they are painted and ``Board.render_lines`` reads them, so whatever Textual repaints later is
right: there is nothing to invalidate, and the slow path stays the reference. ``GPUMON_PAINT=0`` switches
this off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, Protocol

from textual.widget import Widget

from gpumon.ui.palette import RESET, Palette
from gpumon.ui.row import Row

SYNC_START = "\x1b[?2026h"
SYNC_END = "\x1b[?2026l"


class Span(NamedTuple):
    """Cells ``start`` to ``end`` (exclusive) of row ``y``."""

    y: int
    start: int
    end: int


class Output(Protocol):
    """What the painter needs of the terminal."""

    @property
    def has_sync(self) -> bool:
        """The terminal shows what is between two marks at once (mode 2026)."""

    @property
    def is_stalled(self) -> bool:
        """It takes no bytes at the moment."""

    def write(self, data: str) -> None:
        """Send control sequences and text."""


class Painter:
    """Writes spans of a Board's rows straight to the terminal."""

    def __init__(self, output: Output, palette: Palette) -> None:
        """``palette`` is the Board's: both ways must send the same colours."""
        self._output = output
        self._sgr = palette.sgr

    def may_paint(self, board: Widget) -> bool:
        """False whenever the cells on the terminal may not be the Board's alone."""
        app = board.app
        screen = app.screen
        return (
            board.parent is screen  # not one under a dialog
            and board.outer_size == app.size
            and len(screen.displayed_children) == 1  # a toast, a tooltip or any other widget would make it two
            and not self._output.is_stalled
            and not screen.selections
            and not app.get_line_filters()
        )

    def paint(self, board: Widget, rows: Sequence[Row], spans: Sequence[Span]) -> bool:
        """Write the spans in one go; False, with nothing written, where Textual has to draw."""
        if not self.may_paint(board):
            return False
        out = [SYNC_START] if self._output.has_sync else []
        for y, of_row in groupby(spans, key=itemgetter(0)):
            self._cut(out, rows[y], of_row)
        if self._output.has_sync:
            out.append(SYNC_END)
        self._output.write("".join(out))
        return True

    def _cut(self, out: list[str], row: Row, spans: Iterable[Span]) -> None:
        """Spans of one row, from left to right."""
        sgr = self._sgr
        number = x = 0
        for y, start, end in spans:
            out.append(f"\x1b[{y + 1};{start + 1}H")
            while True:
                text, style = row[number]
                next_x = x + len(text)
                if next_x > start:
                    part = text[max(0, start - x) : end - x]
                    code = sgr(style)
                    out.append(f"{code}{part}{RESET}" if code else part)
                    if next_x >= end:
                        break  # the next span may begin in this piece
                x = next_x
                number += 1
