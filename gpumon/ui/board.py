"""A whole screen as one widget: rows of styled text in, only the changed cells out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.reactive import var
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from gpumon.ui.glyphs import BANDS, EIGHTHS, MARKS, SHADES, ascii_row
from gpumon.ui.painter import Painter, Span
from gpumon.ui.palette import Palette
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import Part, ViewState

if TYPE_CHECKING:
    from gpumon.monitor import Frame

MERGED_GAP = 6
"""Unchanged cells between two changes that are cheaper to send again than to jump over."""

NARROW = frozenset(map(chr, range(32, 127))).union(*EIGHTHS.values(), SHADES.values(), BANDS, MARKS.values(), "─×°−…")
"""What our own rows are made of: known without asking for the width of each character."""

T = TypeVar("T")


class Brush(msgspec.Struct, frozen=True):
    """How rows become cells: one for the whole program."""

    palette: Palette
    is_ascii: bool = False
    painter: Painter | None = None


class Line(Strip):
    """A strip of single-width text that is cheap to make and to cut: slices, no caches."""

    __slots__ = ("_palette", "_row")

    def __init__(self, row: Row, cell_length: int, palette: Palette) -> None:
        """Every character of the row must be one cell wide."""
        self._row = row
        self._palette = palette
        self._cell_length = cell_length
        self._cell_count = cell_length
        self._render_cache = None
        self._link_ids = set()

    @property
    def _segments(self) -> list[Segment]:  # type: ignore[override]
        rich = self._palette.rich
        return [Segment(text, rich(style)) for text, style in self._row]

    @property
    def text(self) -> str:
        """The text alone."""
        return "".join(text for text, _ in self._row)

    def render(self, console: Console) -> str:  # noqa: ARG002 - Textual's signature
        """The same bytes as the painter sends."""
        return self._palette.text(self._row)

    def crop(self, start: int, end: int | None = None) -> Strip:
        """Cells ``start`` to ``end``."""
        length = self.cell_length
        start, end = max(0, start), length if end is None else min(length, end)
        if start == 0 and end == length:
            return self
        if end <= start:
            return Line((), 0, self._palette)
        return Line(cut(self._row, start, end), end - start, self._palette)

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Pieces that end at the given cells."""
        pieces: list[Strip] = []
        start = 0
        for end in cuts:
            if end > self.cell_length:
                break
            pieces.append(self.crop(start, end))
            start = end
        return pieces

    def apply_filter(self, filter: LineFilter, background: Color) -> Strip:  # noqa: A002 (Textual's name)
        """The row through a filter of Textual's, as an ordinary strip."""
        return Strip(filter.apply(self._segments, background), self._cell_length)

    def apply_style(self, style: Style) -> Strip:
        """The row under a style, as an ordinary strip."""
        return Strip(Segment.apply_style(self._segments, style), self._cell_length)


def cut(row: Row, start: int, end: int) -> Row:
    """Cells ``start`` to ``end`` of a row of single-width text."""
    pieces: list[Piece] = []
    x = 0
    for text, style in row:
        next_x = x + len(text)
        if next_x > start:
            pieces.append((text[max(0, start - x) : end - x], style))
            if next_x >= end:
                break
        x = next_x
    return tuple(pieces)


@lru_cache(maxsize=4096)
def _is_narrow(text: str) -> bool:
    return NARROW.issuperset(text) or all(cell_len(character) == 1 for character in text)


def is_single_width(row: Row) -> bool:
    """Every character takes one cell, so that slicing is cutting."""
    return all(text.isascii() or _is_narrow(text) for text, _ in row)


def fit(row: Row, width: int) -> Row:
    """The row cut or padded to the width; the same object when it fits already."""
    length = sum(len(text) for text, _ in row)
    if length == width or not is_single_width(row):
        return row
    return cut(row, 0, width) if length > width else (*row, (" " * (width - length), ""))


def changed_spans(y: int, old: Row, new: Row) -> list[Span]:
    """Where two rows of the same width differ; changes with a small gap between them are one span."""
    return _merged(y, _differences(old, new))


def alike_spans(y: int, old: Row, new: Row) -> list[Span] | None:
    """The same for rows that are cut alike, as most are; None for others, and where a new text may be wide."""
    if len(old) != len(new):
        return None
    found: list[tuple[int, int]] = []
    x = passed = 0
    for number, (before, after) in enumerate(zip(old, new, strict=True)):
        if before is after or before == after:
            continue
        text, style = after
        length = len(text)
        if len(before[0]) != length or not (text.isascii() or _is_narrow(text)):
            return None
        x += sum([len(unchanged) for unchanged, _ in new[passed:number]])
        found += [(x, x + length)] if before[1] != style else _text_differences(before[0], text, x)
        x, passed = x + length, number + 1
    return _merged(y, found)


def _merged(y: int, differences: Iterable[tuple[int, int]]) -> list[Span]:
    spans: list[Span] = []
    for start, end in differences:
        if spans and start - spans[-1].end <= MERGED_GAP:
            spans[-1] = Span(y, spans[-1].start, end)
        else:
            spans.append(Span(y, start, end))
    return spans


def _differences(old: Row, new: Row) -> Iterable[tuple[int, int]]:
    """Differing stretches from left to right; the rows are as wide, but may be cut in other places."""
    pieces = iter(old)
    old_text = old_style = ""
    x = 0
    for text, style in new:
        left = text
        while left:
            if not old_text:
                old_text, old_style = next(pieces)
                continue
            length = min(len(old_text), len(left))
            if old_style != style:
                yield (x, x + length)
            elif old_text[:length] != left[:length]:
                yield from _text_differences(old_text[:length], left[:length], x)
            old_text, left, x = old_text[length:], left[length:], x + length


def _text_differences(old: str, new: str, x: int) -> Iterable[tuple[int, int]]:
    for i, (a, b) in enumerate(zip(old, new, strict=True)):
        if a != b:
            yield (x + i, x + i + 1)


class Board(Widget):
    """Shows rows that cover it exactly; nothing on it can be selected or focused."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Board { width: 100%; height: 100%; }
    """
    virtual_size = var(Size(0, 0))  # Textual lays out and sends all cells once more when its own one changes

    def __init__(self, brush: Brush) -> None:
        """A board starts empty; ``show`` fills it."""
        super().__init__()
        self.brush = brush
        self.rows: list[Row] = []
        self._given: list[Row] = []
        """The rows as the panels made them, to recognise one that has not changed by identity."""
        self._strips: list[Strip | None] = []
        self._is_narrow: list[bool] = []
        self._width = 0

    def show(self, rows: Sequence[Row], width: int, height: int) -> None:
        """Make the board look like ``rows``; what has not changed costs nothing."""
        if width != self._width or height != len(self.rows):
            self._reset(rows, width, height)
            return
        spans: list[Span] = []
        wide: list[int] = []
        for y in range(height):
            given: Row = rows[y] if y < len(rows) else ()
            if given is self._given[y] or given == self._given[y]:
                self._given[y] = given
                continue
            self._given[y] = given
            changed = self._change(y, ascii_row(given) if self.brush.is_ascii else given)
            if changed is None:
                wide.append(y)
            else:
                spans += changed
        self._send(spans, wide)

    def _change(self, y: int, new: Row) -> list[Span] | None:
        """Put a row in its place; where it differs from the one before, None where one of them is wide."""
        old, was_narrow, self._strips[y] = self.rows[y], self._is_narrow[y], None
        if was_narrow:
            spans = alike_spans(y, old, new)
            if spans is not None:
                self.rows[y] = new
                return spans
        self.rows[y] = new = fit(new, self._width)
        self._is_narrow[y] = is_single_width(new)
        return changed_spans(y, old, new) if was_narrow and self._is_narrow[y] else None

    def _reset(self, rows: Sequence[Row], width: int, height: int) -> None:
        self._width = width
        self._given = [rows[y] if y < len(rows) else () for y in range(height)]
        self.rows = [fit(ascii_row(row) if self.brush.is_ascii else row, width) for row in self._given]
        self._strips = [None] * height
        self._is_narrow = [is_single_width(row) for row in self.rows]
        if self.size == (width, height):  # else it is about to be laid out, which sends every cell
            self.refresh()

    def _send(self, spans: list[Span], wide: list[int]) -> None:
        painter = self.brush.painter
        if spans and (painter is None or not painter.paint(self, self.rows, spans)):
            self.refresh(*(Region(start, y, end - start, 1) for y, start, end in spans))
        if wide:
            self.refresh(*(Region(0, y, self._width, 1) for y in wide))

    def _strip(self, y: int) -> Strip:
        if y >= len(self.rows):
            return Strip.blank(self._width)
        strip = self._strips[y]
        if strip is None:
            row = self.rows[y]
            if self._is_narrow[y]:
                strip = Line(row, sum(len(text) for text, _ in row), self.brush.palette)
            else:
                rich = self.brush.palette.rich
                strip = Strip([Segment(text, rich(style)) for text, style in row]).adjust_cell_length(self._width)
            self._strips[y] = strip
        return strip

    def render_lines(self, crop: Region) -> list[Strip]:
        """The stored rows: no style cache of Textual's, so its filters are applied here."""
        start, end = crop.column_span
        strips = [self._strip(y) for y in crop.line_range]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        return [strip.crop(start, end).extend_cell_length(end - start) for strip in strips]


class BoardApp(App[int]):
    """What a screen may ask of the program: the newest frame, the view, the brush."""

    frame: Frame | None = None
    """The frame to show; not the newest one while the picture is paused."""
    view: ViewState = ViewState()
    brush: Brush = Brush(Palette())

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - fields of ViewState
        """Show another view: ``change(span_s=1200)``."""
        raise NotImplementedError

    def toast(self, text: str, seconds: float = 3.0) -> None:
        """Answer a key in the headline's second row."""
        raise NotImplementedError


class BoardScreen(Screen[T], inherit_bindings=False):
    """A screen that is rows: give it ``rows``; it draws itself whenever frame, view or size change."""

    ALLOW_SELECT = False
    AUTO_FOCUS: ClassVar[str | None] = ""
    BINDINGS: ClassVar[list[BindingType]] = []
    virtual_size = var(Size(0, 0))  # as the board's
    PART: ClassVar[Part | None] = None
    """The part that up and down move in on this screen; None: the focused one."""

    @property
    def board_app(self) -> BoardApp:
        """The program, with its own type."""
        app = self.app
        assert isinstance(app, BoardApp)
        return app

    def compose(self) -> ComposeResult:
        """One board."""
        self.board = Board(self.board_app.brush)
        yield self.board

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """What to show; each row ``width`` cells wide."""
        raise NotImplementedError

    def rows_without_frame(self, view: ViewState, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """What to show before the first sample is there."""
        return ()

    def draw(self) -> None:
        """Bring the board up to date."""
        if not self.is_mounted:
            return
        app = self.board_app
        width, height = app.size
        if app.frame is None:
            rows = self.rows_without_frame(app.view, width, height)
        else:
            rows = self.rows(app.frame, app.view, width, height)
        self.board.show(rows, width, height)

    def on_mount(self) -> None:
        """Draw at once: the first frame may be there already."""
        self.draw()

    def on_resize(self) -> None:
        """Same rows, new bins."""
        self.draw()

    def on_screen_resume(self) -> None:
        """Frames have come and gone while another screen was on top."""
        self.draw()
