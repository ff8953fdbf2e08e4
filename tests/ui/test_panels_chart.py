"""Cells of charts: levels, losses, gaps, the future, and labels under their column."""

from __future__ import annotations

import pytest
from scenes import texts, utc  # noqa: F401 - the fixture is used by being here

from gpumon.ui.panels import chart
from gpumon.ui.panels.chart import Look, Shares

COLOR = Look("blocks", has_color=True)
HALF = Look("half", has_color=True)
MONO = Look("blocks", has_color=False)
ASCII = Look("ascii", has_color=False)


def test_a_busy_slice_leaves_the_top_eighth_free() -> None:
    """Full use is a full column less one eighth, so that rows do not melt together."""
    assert texts(chart.timeline([Shares(100, 0, 0, 0)] * 3, 3, 2, COLOR)) == ["▇▇▇", "███"]


def test_on_the_linux_console_low_values_show_and_rows_do_not_touch() -> None:
    """With half blocks only: a trace from the first eighth on, a full cell only below the top row."""
    busy = [Shares(share, 0, 0, 0) for share in (0, 6, 13, 50, 100)]
    assert texts(chart.timeline(busy, 5, 1, HALF)) == ["___▄▄"]
    assert texts(chart.timeline(busy, 5, 2, HALF)) == ["    ▄", "___██"]
    assert texts(chart.sparkline([5.0, 100.0], (0, 100), 2, 1, role="power", look=HALF)) == ["_▄"]
    assert texts((chart.budget_bar(Shares(60, 0, 40, 0), 10, HALF),)) == ["▄▄▄▄▄▄▄▄▄▄"]


def test_a_loss_fills_the_cell_to_the_top_in_its_colour() -> None:
    """With colour the useful part stands at eighth precision before the colour of the biggest loss."""
    upper, lower = chart.timeline([Shares(67, 2, 30, 0)], 1, 2, COLOR)
    assert upper == (("▃", "useful on harm"),)
    assert lower == (("█", "useful"),)


def test_without_colour_a_cell_shows_the_shade_of_a_loss_that_covers_half_of_it() -> None:
    """67 % useful of a slice on two lines leaves more than half of the upper cell lost: the shade wins."""
    assert texts(chart.timeline([Shares(67, 0, 30, 0), Shares(85, 0, 12, 0)], 2, 2, MONO)) == ["▓▆", "██"]


def test_on_one_line_without_colour_a_loss_shows_from_15_percent() -> None:
    """14 % lost is a lower column, 15 % lost is the shade."""
    assert texts(chart.timeline([Shares(84, 14, 0, 0), Shares(84, 15, 0, 0)], 2, 1, MONO)) == ["▇▒"]


def test_gap_idle_and_future_differ() -> None:
    """No sample is a dot, measured idle a low grey line, the future blank."""
    (row,) = chart.timeline([None, Shares(0, 0, 0, 0)], 4, 1, COLOR)
    assert row == (("·▁", "muted"), ("  ", ""))
    assert texts(chart.timeline([None, Shares(0, 0, 0, 0)], 4, 1, ASCII)) == ["?.  "]


def test_idle_above_a_small_loss_is_not_painted_as_loss() -> None:
    """Where idle takes more of the cell than the loss, the cell above the useful part stays blank."""
    assert chart.timeline([Shares(25, 13, 0, 0)], 1, 1, COLOR) == ((("▂", "useful"),),)


def test_ascii_letters_carry_the_loss() -> None:
    """The mockup's # and w, T, p."""
    slices = [Shares(97, 0, 0, 0), Shares(50, 50, 0, 0), Shares(50, 0, 50, 0), Shares(50, 0, 0, 50)]
    assert texts(chart.timeline(slices, 4, 2, ASCII)) == ["#wTp", "####"]


@pytest.mark.parametrize(
    ("celsius", "glyph"), [(59.0, "▃"), (61.0, "▄"), (87.0, "▇"), (30.0, "▁"), (200.0, "▇")]
)  # fmt: skip
def test_sparklines_have_a_fixed_scale(celsius: float, glyph: str) -> None:
    """30 to 100 °C on seven levels; the top eighth stays free and the lowest value is still visible."""
    assert texts(chart.sparkline([celsius], (30, 100), 1, 1, role="temperature", look=COLOR)) == [glyph]


def test_wrong_columns_turn_red_and_taller_charts_have_a_dim_body() -> None:
    """The full hue is the edge of the top row; a wrong column is red in all of it."""
    upper, lower = chart.sparkline([90, 90], (0, 100), 2, 2, role="clock", look=COLOR, wrong=[False, True])
    assert upper == (("▆", "clock"), ("▆", "harm"))
    assert lower == (("█", "clock-dim"), ("█", "harm"))


def test_budget_parts_add_up_exactly() -> None:
    """Ten cells are 100 % of the span, rounded by largest remainder."""
    shares = Shares(77.4, 0, 19.6, 0)
    assert shares.rounded(10) == {"useful": 8, "data": 0, "throttled": 2, "peer": 0, "idle": 0}
    assert sum(shares.rounded().values()) == 100
    assert texts((chart.budget_bar(shares, 10, MONO),)) == ["▇▇▇▇▇▇▇▇▓▓"]
    assert chart.budget_bar(shares, 10, COLOR) == (("▇▇▇▇▇▇▇▇", "useful"), ("▇▇", "harm"))
    assert texts((chart.budget_bar(None, 10, COLOR),)) == [" " * 10]


def test_limiter_bands_tell_heat_from_the_normal_power_cap() -> None:
    """Heat is red and graded, a cap grey, neither a dot, unknown blank."""
    cells = chart.limiter_band([None, 0.0, 10.0, 96.0, 0.0], [None, 0.0, 0.0, 90.0, 90.0], 6, COLOR)
    assert "".join(text for text, _ in cells) == " ·░▓░ "
    assert [style for _, style in cells] == ["", "muted", "harm", "harm", "peer", ""]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (40, "    12:12   12:14   12:16   12:18   12:20"),
        (30, "   12:12 12:14 12:16 12:18     "),
        (60, "      12:12       12:14       12:16       12:18       12:20  "),
    ],
)
def test_labels_stand_under_their_exact_column(count: int, expected: str) -> None:
    """Every second block from its first column on; one that would stick out more than a cell is left out."""
    assert chart.axis(1_796_127_600.0 + 60.0, 600.0, count) == expected


def test_long_and_short_spans_have_their_own_labels() -> None:
    """Minutes and seconds below five minutes, days and hours from twenty hours on."""
    assert chart.axis(1_796_127_600.0 + 6.0, 60.0, 60).split() == ["19:12", "19:24", "19:36", "19:48", "20:00"]
    assert chart.axis(1_796_169_600.0, 72_000.0, 100).startswith("01. 04")


def test_the_legend_names_fills_by_colour_or_by_shade() -> None:
    """Without colour the glyph itself differs."""
    assert texts((chart.legend(("useful", "data"), MONO),)) == ["█ useful  ▒ data"]
    assert chart.legend(("useful", "data"), COLOR)[1:3] == ((" useful  ", "muted"), ("█", "data"))
