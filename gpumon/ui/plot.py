"""How a series becomes the lines of a braille chart: the only file that knows plotext.

plotext draws each series on a canvas of its own, as plain text; ``overlay`` lays several over each other and gives
each its style. Its import costs 0.15 s and 20 MB, so this module is imported with the first detail screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import plotext

from gpumon.ui.row import Row

Canvas = tuple[str, ...]
"""Lines of a chart, top first, each exactly as wide as the chart; a blank is a space."""

Series = tuple[float | None, ...]
"""One value a column, oldest first; None is a gap."""

_BRAILLE = 0x2800
_HALF_DOT = 0.125
"""Of a row: a braille cell is four dots high, so the lowest dot's centre lies this far above the cell's edge."""


@lru_cache(maxsize=64)
def line(series: Series, low: float, high: float, height: int, marker: str = "braille") -> Canvas:
    """Draw a series as a line on ``height`` rows, one column a value; ``low`` and ``high`` are its outermost dots."""
    return _draw(series, low, high, height, marker, is_connected=True)


@lru_cache(maxsize=64)
def dots(series: Series, low: float, high: float, height: int, marker: str = "braille") -> Canvas:
    """Draw a series as single dots, for the least and the greatest of each column."""
    return _draw(series, low, high, height, marker, is_connected=False)


def _draw(series: Series, low: float, high: float, height: int, marker: str, *, is_connected: bool) -> Canvas:
    width = len(series)
    if height < 1 or width < 1:
        return ()
    margin, per_row = _scale(low, high, height, marker)
    # A figure of its own each time: plotext's module-global one is shared by whoever else imports it.
    plotext.terminal.limit(False, False)
    figure = type(plotext.figure)(plotext.terminal)
    figure.plot_size(width, height)
    figure.axes(False)
    figure.legend(False)
    figure.canvas("default")
    for axis in ("x", "y"):
        for side in (0, 1):
            figure.ruler(axis, side).frequency(0).alignment(lim="edge")
    figure.ruler("x", "lower").lim(0, width)
    figure.ruler("y", "left").lim(low - margin * per_row, high + margin * per_row)
    for start, values in runs(series):
        inside = [min(high, max(low, value)) for value in values]
        xs = [start + column + 0.5 for column in range(len(inside))]
        if is_connected and marker == "braille":  # to the outer dots of its first and last column
            xs, inside = [xs[0] - 0.25, *xs, xs[-1] + 0.25], [inside[0], *inside, inside[-1]]
        figure.draw(figure.signal(xs, inside, marker=marker).lines(is_connected))
    text = figure.build().string(colorless=True)
    return tuple(row[:width].ljust(width) for row in text.split("\n")[:height])


def runs(series: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """The stretches without a gap: first column and values. plotext takes no None, so each becomes a line."""
    values: list[float] = []
    for column, value in enumerate((*series, None)):
        if value is not None:
            values.append(value)
        elif values:
            yield column - len(values), values
            values = []


def row_of(value: float, low: float, high: float, height: int, marker: str = "braille") -> int:
    """Row (0 = top) in which ``line`` draws a value."""
    margin, per_row = _scale(low, high, height, marker)
    return min(height - 1, max(0, int((high + margin * per_row - value) / per_row)))


def _scale(low: float, high: float, height: int, marker: str) -> tuple[float, float]:
    """Rows between an outer dot and the chart's edge, and value per row."""
    margin = _HALF_DOT if marker == "braille" else 0.5
    return margin, (high - low) / max(0.5, height - 2 * margin)


@lru_cache(maxsize=16)
def overlay(layers: tuple[tuple[Canvas, str], ...]) -> tuple[Row, ...]:
    """Lay canvases over each other, the first on top; braille dots of one cell are joined in the upper one's style."""
    return tuple(_overlay_row([(canvas[y], style) for canvas, style in layers]) for y in range(len(layers[0][0])))


def _overlay_row(layers: Sequence[tuple[str, str]]) -> Row:
    pieces: list[tuple[str, str]] = []
    for column in range(len(layers[0][0])):
        char, style = " ", ""
        for text, its_style in layers:
            mark = text[column]
            if mark in (" ", chr(_BRAILLE)):
                continue
            if char == " ":
                char, style = mark, its_style
            elif _is_braille(char) and _is_braille(mark):
                char = chr(ord(char) | ord(mark))
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + char, style)
        else:
            pieces.append((char, style))
    return tuple(pieces)


def _is_braille(char: str) -> bool:
    return _BRAILLE <= ord(char) < _BRAILLE + 256
