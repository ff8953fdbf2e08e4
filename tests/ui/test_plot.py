"""Braille charts drawn with plotext."""

from __future__ import annotations

from gpumon.ui import plot


def test_a_line_covers_its_scale_from_the_lowest_to_the_highest_dot() -> None:
    """The low end is the lowest dot of the last row, the high end the highest of the first."""
    assert plot.line((0.0,) * 4, 0, 100, 2) == ("    ", "⣀⣀⣀⣀")
    assert plot.line((100.0,) * 4, 0, 100, 2) == ("⠉⠉⠉⠉", "    ")


def test_values_outside_the_scale_stay_on_its_edge() -> None:
    """A value above the scale is drawn at the top, never cut away."""
    assert plot.line((250.0,) * 3, 0, 100, 2) == ("⠉⠉⠉", "   ")


def test_a_gap_stays_a_gap() -> None:
    """A missing value leaves its column empty; the line is not drawn across it."""
    (row,) = plot.line((5.0, 5.0, None, None, 5.0), 0, 10, 1)
    assert [cell != " " for cell in row] == [True, True, False, False, True]


def test_nothing_measured_draws_nothing() -> None:
    """A series without any value is blank, at full width."""
    assert plot.line((None,) * 6, 0, 10, 2) == ("      ", "      ")
    assert list(plot.runs((None, None))) == []


def test_the_row_of_a_value_is_where_the_line_draws_it() -> None:
    """Limit lines and labels stand on the row of the line at that value."""
    for value in (40.0, 55.0, 87.0, 99.9, 100.0):
        canvas = plot.line((value,) * 3, 40, 100, 7)
        assert [y for y, row in enumerate(canvas) if row.strip()] == [plot.row_of(value, 40, 100, 7)]


def test_an_overlay_joins_the_dots_of_one_cell_in_the_upper_style() -> None:
    """Two lines in one cell share its dots; the first layer gives the colour; other signs stay below."""
    above, below, rule = ("⠉  ",), ("⣀⣀ ",), ("───",)
    assert plot.overlay(((above, "muted"), (below, "clock"), (rule, "harm"))) == (
        (("⣉", "muted"), ("⣀", "clock"), ("─", "harm")),
    )


def test_two_charts_do_not_disturb_each_other() -> None:
    """Each chart has a canvas of its own; drawing one changes no other."""
    first = plot.line((1.0, 2.0, 3.0), 0, 4, 2)
    plot.line((3.0,) * 30, 0, 4, 5)
    plot.line.cache_clear()
    assert plot.line((1.0, 2.0, 3.0), 0, 4, 2) == first


def test_plain_characters_stand_in_where_there_is_no_braille() -> None:
    """With another marker the line is made of that character only."""
    canvas = plot.line((0.0, 6.0, 10.0, 10.0), 0, 10, 2, "*")
    assert canvas == (" ***", "*   ")
