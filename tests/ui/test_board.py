"""Rows in, changed cells out; and a cheap strip that cuts and draws like Textual's."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest
from rich.console import Console
from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip

from gpumon.ui.board import Board, BoardApp, Brush, Line, alike_spans, changed_spans, cut, fit, is_single_width
from gpumon.ui.palette import Palette
from gpumon.ui.row import Row

PALETTE = Palette("dark", 256)
STYLES = ("", "useful", "bold", "data", "useful on data", "bold reverse harm")


def random_row(rng: random.Random, width: int) -> Row:
    """Pieces of random length and style that cover the width."""
    pieces = []
    while width:
        length = rng.randint(1, min(width, 9))
        pieces.append(("".join(rng.choices("ab▇▒ 1", k=length)), rng.choice(STYLES)))
        width -= length
    return tuple(pieces)


def cells(row: Row) -> list[tuple[str, str]]:
    """One entry a cell."""
    return [(character, style) for text, style in row for character in text]


def test_spans_turn_the_old_row_into_the_new_one() -> None:
    """Writing the new cells of the spans over the old row gives the new row, for any two rows."""
    rng = random.Random(1)
    for _ in range(300):
        width = rng.randint(1, 60)
        old = random_row(rng, width)
        new = random_row(rng, width) if rng.random() < 0.5 else touched(rng, old)
        shown = cells(old)
        spans = changed_spans(7, old, new)
        for y, start, end in spans:
            assert y == 7
            shown[start:end] = cells(new)[start:end]
        assert shown == cells(new)
        assert all(a.end + 6 < b.start for a, b in itertools.pairwise(spans))
        assert alike_spans(7, old, new) in (None, spans)
        assert alike_spans(7, old, touched(rng, old)) is not None


def touched(rng: random.Random, row: Row) -> Row:
    """The row with one piece's text changed, cut as before."""
    at = rng.randrange(len(row))
    text, style = row[at]
    return (*row[:at], ("z" * len(text), style), *row[at + 1 :])


def test_spans_are_no_longer_than_the_change() -> None:
    """One digit changes: one cell is sent; two changes close together are one span, far apart two."""
    old: Row = (("util  97%  power 436 W            age 0s", ""),)

    def spans(text: str) -> list[tuple[int, int, int]]:
        return [tuple(span) for span in changed_spans(0, old, ((text, ""),))]  # type: ignore[misc]

    assert spans("util  98%  power 436 W            age 0s") == [(0, 7, 8)]
    assert spans("util  98%  power 437 W            age 0s") == [(0, 7, 8), (0, 19, 20)]
    assert spans("util  98%  qower 436 W            age 0s") == [(0, 7, 12)]
    assert spans("util  97%  power 436 W            age 0s") == []


def test_line_cuts_like_a_strip() -> None:
    """crop, divide and length agree with Textual's own strip for every cut."""
    rng = random.Random(2)
    for _ in range(100):
        width = rng.randint(1, 40)
        row = random_row(rng, width)
        line = Line(row, width, PALETTE)
        strip = Strip([Segment(text, PALETTE.rich(style)) for text, style in row], width)
        start, end = sorted((rng.randint(0, width), rng.randint(0, width)))
        assert styled(line.crop(start, end)) == styled(strip.crop(start, end))
        assert line.crop(start, end).cell_length == end - start
        cuts = sorted({rng.randint(1, width) for _ in range(3)} | {width})
        assert [styled(part) for part in line.divide(cuts)] == [styled(part) for part in strip.divide(cuts)]


def styled(strip: Strip) -> list[tuple[str, object]]:
    """One entry a cell, whatever the segments."""
    return [(character, style) for text, style, _ in strip for character in text]


def test_line_renders_like_a_strip() -> None:
    """The bytes are those of Textual's own strip."""
    console = Console(color_system="256", force_terminal=True)
    row: Row = (("a", "useful"), ("bc", ""), ("▇", "bold reverse harm"), ("d", "useful on data"))
    strip = Strip([Segment(text, PALETTE.rich(style)) for text, style in row], 5)
    assert Line(row, 5, PALETTE).render(console) == strip.render(console)


@pytest.mark.parametrize(("text", "is_narrow"), [("▇·é", True), ("訓", False), ("e\u0301", False)])
def test_wide_and_combining_characters_are_told(text: str, *, is_narrow: bool) -> None:
    """Only text with one cell per character may be sliced."""
    assert is_single_width(((text, ""),)) == is_narrow


def test_fit() -> None:
    """Short rows are padded, long ones cut, right ones passed on as the same object."""
    row: Row = (("abc", "bold"), ("def", ""))
    assert fit(row, 6) is row
    assert fit(row, 4) == (("abc", "bold"), ("d", ""))
    assert fit(row, 8) == (*row, ("  ", ""))
    assert cut(row, 2, 5) == (("c", "bold"), ("de", ""))


class OneBoard(BoardApp):
    """A board and nothing else."""

    def compose(self):  # noqa: ANN201
        self.board = Board(Brush(PALETTE))
        yield self.board


def test_board_shows_and_changes_rows() -> None:
    """What was shown last is what Textual renders: changed rows, wide characters, a new size."""

    async def scenario() -> None:
        app = OneBoard(ansi_color=True)
        async with app.run_test(size=(12, 3)) as pilot:
            board = app.board
            board.show([(("one", "bold"),), (("two", ""),)], 12, 3)
            await pilot.pause()
            assert lines(app) == ["one         ", "two         ", "            "]
            board.show([(("one", "bold"),), (("訓練 2", "useful"),), (("end", ""),)], 12, 3)
            await pilot.pause()
            assert lines(app) == ["one         ", "訓練 2      ", "end         "]
            await pilot.resize_terminal(6, 2)
            board.show([(("a longer row", ""),)], 6, 2)
            await pilot.pause()
            assert lines(app) == ["a long", "      "]

    asyncio.run(scenario())


def lines(app: OneBoard) -> list[str]:
    """The screen as text."""
    return [strip.text for strip in app.board.render_lines(Region(0, 0, app.size.width, app.size.height))]


def test_unchanged_rows_refresh_nothing() -> None:
    """Showing equal rows again, the same objects or not, asks for no repaint."""

    async def scenario() -> None:
        app = OneBoard(ansi_color=True)
        async with app.run_test(size=(12, 2)) as pilot:
            row: Row = (("one", "bold"),)
            app.board.show([row, row], 12, 2)
            await pilot.pause()
            asked: list[object] = []
            app.board.refresh = lambda *regions, **_: asked.extend(regions)  # type: ignore[method-assign,assignment,return-value]
            app.board.show([row, (("one", "bold"),)], 12, 2)
            assert asked == []
            app.board.show([row, (("ona", "bold"),)], 12, 2)
            assert asked == [Region(2, 1, 1, 1)]

    asyncio.run(scenario())
