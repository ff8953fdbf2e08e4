"""Rows are exactly as wide as they must be, whatever came from outside."""

from __future__ import annotations

import itertools

import pytest
from rich.cells import cell_len
from scenes import texts

from gpumon.ui.panels import line


@pytest.mark.parametrize("width", range(12))
def test_wide_characters_are_cut_and_padded_by_cells(width: int) -> None:
    """A name of two-cell characters never makes a row wider or narrower."""
    for row in (
        line.fill([("训练.py", ""), ("x", "muted")], width),
        line.fill([(line.clip("训练任务", width), "")], width),
        line.fill([(line.left("训练", width), "")], width),
    ):
        assert cell_len("".join(texts((row,)))) == width


def test_right_aligned_text_keeps_its_column() -> None:
    """Numbers end where their column ends; wide text counts double."""
    assert line.right("87", 4) == "  87"
    assert line.right("训", 4) == "  训"


def test_a_section_rule_gives_up_its_note_before_its_title() -> None:
    """``─ HOST 16 cores ──── pressure cpu 0 ─``, down to nothing but the title."""
    assert texts((line.section("HOST", "16 cores", "io 0", 32),)) == ["─ HOST 16 cores ───────── io 0 ─"]
    for width in range(1, 60):
        assert cell_len(texts((line.section("HOST", "16 cores", "pressure cpu 0", width),))[0]) == width


def test_the_right_end_goes_when_both_do_not_fit() -> None:
    """The left end of a row is what matters."""
    assert texts((line.spread([("left", "")], [("right", "")], 12),)) == ["left   right"]
    assert texts((line.spread([("left", "")], [("right", "")], 9),)) == ["left     "]


def test_merged_pieces_are_the_same_cells_in_as_few_pieces_as_styles_change() -> None:
    """All orders of four pieces of nothing, one and two cells in three styles."""
    one = [(text, style) for text in ("", "x", "yy") for style in ("", "muted", "bold")]
    for pieces in itertools.product(one, repeat=4):
        kept = line.merged(pieces)
        assert [(c, style) for text, style in kept for c in text] == [
            (c, style) for text, style in pieces for c in text
        ]
        assert all(text for text, _ in kept)
        assert all(before[1] != after[1] for before, after in itertools.pairwise(kept))
