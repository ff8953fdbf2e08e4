"""How one GPU's past becomes the charts of the detail screen: all on one time axis, each with its name and value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Alert, Gpu
from gpumon.rings import How
from gpumon.signals import busy_pct, limiter_pct, temperature_limit_c
from gpumon.ui import plot
from gpumon.ui.glyphs import MARKS
from gpumon.ui.panels import chart
from gpumon.ui.panels.chart import Chart
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.line import merged, width_of
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens.band import band_cells
from gpumon.ui.view import ViewState
from gpumon.window import Window

GUTTER = 9
"""Columns left of every chart, for its name and scale."""
VALUES = 11
"""Columns right of every chart, for its value."""
_WIDTHS = (150, 100, 60, 50, 40, 30, 20)
DOTS_FROM_S = 10.0
"""Columns at least this long show the least and the greatest beside the mean."""
TEMPERATURE_BASE = (40.0, 100.0)
LIMIT_LINE_FROM_ROWS = 5
"""Lower charts have no row to spare for it: there the rule names the limit."""


class Cells(NamedTuple):
    """One row of a chart with what stands beside it."""

    label: Piece
    cells: tuple[Piece, ...]
    value: Piece


class Canvas(NamedTuple):
    """What every chart of the screen is drawn with."""

    charts: Charts
    window: Window
    view: ViewState
    gpu: Gpu
    card: Gpu
    """The card that carries power, heat and clocks: the parent of a MIG instance, else the GPU itself."""
    columns: int
    at: int | None
    """The column under the cross-hair."""

    def series(self, uuid: str, field: str, how: How = "mean") -> list[float | None]:
        """The columns of one series, those of the future too (None)."""
        values = self.charts.values(uuid, field, self.columns, how)
        return values + [None] * (self.columns - len(values))

    def value(self, uuid: str, field: str, now: float | None, how: How = "mean") -> float | None:
        """The value under the cross-hair; without one, that of now."""
        return now if self.at is None else self.series(uuid, field, how)[self.at]


def columns_for(width: int) -> int | None:
    """The widest chart that fits between label and value, None where none does."""
    return next((count for count in _WIDTHS if GUTTER + count + VALUES <= width), None)


def row_of(part: Cells, canvas: Canvas) -> Row:
    """One row of the screen: label, chart with its cross-hair, value."""
    name, name_style = part.label
    text, style = part.value
    return (
        (name.rjust(GUTTER - 1)[: GUTTER - 1] + " ", name_style),
        *with_crosshair(part.cells, canvas.at, canvas.view),
        (f" {text}"[:VALUES].ljust(VALUES), style),
    )


def with_crosshair(cells: Sequence[Piece], column: int | None, view: ViewState) -> tuple[Piece, ...]:
    """The same cells with one column marked."""
    if column is None:
        return tuple(cells)
    line = "|" if view.tier == "ascii" else "│"
    marked: list[Piece] = []
    x = 0
    for text, style in cells:
        at = column - x
        x += len(text)
        if not 0 <= at < len(text):
            marked.append((text, style))
            continue
        mark: Piece = (line, "accent") if text[at] in " ·─-" else (text[at], "bold accent")
        marked += [(text[:at], style), mark, (text[at + 1 :], style)]
    return merged(marked)


def budget_rows(canvas: Canvas, height: int) -> list[Cells]:
    """The time budget over time, 0 to 100 %, and the utilization of now beside it."""
    util = canvas.value(canvas.gpu.uuid, "utilization_pct", busy_pct(canvas.gpu))
    rows = []
    for y, cells in enumerate(canvas.charts.timeline(canvas.gpu.uuid, canvas.columns, height)):
        label = "100%" if y == 0 else "0" if y == height - 1 else ""
        value: Piece = ("util", "muted") if y == 0 and height > 1 else ("", "")
        if y == min(1, height - 1):
            value = (units.value("_pct", util), "bold")
        rows.append(Cells((label, "muted"), cells, value))
    return rows


class Line(NamedTuple):
    """A signal as a line: its series, its scale and how it is written."""

    field: str
    low: float
    high: float
    style: str
    unit: str
    limit: float | None = None


def temperature_line(canvas: Canvas) -> Line:
    """40–100 °C; from 0 where it was cooler, to 110 where the limit asks for it."""
    low, high = TEMPERATURE_BASE
    limit = temperature_limit_c(canvas.card)
    least = _least(canvas.series(canvas.card.uuid, "temperature_c", "min"))
    return Line(
        "temperature_c", low if least is None or least >= low else 0.0,
        high if limit is None or limit < high else high + 10, "text", "°C", limit,
    )  # fmt: skip


def clock_line(canvas: Canvas) -> Line:
    """Half the greatest clock to the greatest; from 0 where it was slower."""
    high = canvas.card.sm_clock_max_mhz or _most(canvas.series(canvas.card.uuid, "sm_clock_mhz", "max")) or 1.0
    least = _least(canvas.series(canvas.card.uuid, "sm_clock_mhz", "min"))
    is_busy = least is None or least >= high / 2
    return Line("sm_clock_mhz", high / 2 if is_busy else 0.0, high, "accent", "MHz")


def utilization_line() -> Line:
    """0–100 %."""
    return Line("utilization_pct", 0.0, 100.0, "useful", "%")


def _least(values: Sequence[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _marker(view: ViewState) -> str:
    return "braille" if view.tier == "blocks" else "*"


def _layers(canvas: Canvas, uuid: str, line: Line, height: int) -> list[tuple[plot.Canvas, str]]:
    marker = _marker(canvas.view)
    series = tuple(canvas.series(uuid, line.field))
    layers: list[tuple[plot.Canvas, str]] = []
    if line.limit is not None:
        hot = tuple(value if value is not None and value >= line.limit - 1.0 else None for value in series)
        if any(value is not None for value in hot):
            layers.append((plot.line(hot, line.low, line.high, height, marker), "harm"))
    layers.append((plot.line(series, line.low, line.high, height, marker), line.style))
    has_room = height >= LIMIT_LINE_FROM_ROWS and canvas.view.has_color
    if canvas.view.span_s / canvas.columns >= DOTS_FROM_S and marker == "braille" and has_room:
        for how in ("min", "max"):
            edge = tuple(canvas.series(uuid, line.field, "min" if how == "min" else "max"))
            layers.append((plot.dots(edge, line.low, line.high, height, marker), "muted"))
    return layers


def _gaps(canvas: Canvas, uuid: str, line: Line, height: int) -> plot.Canvas:
    """Dots on the base line where there was no sample."""
    values = canvas.charts.values(uuid, line.field, canvas.columns)
    mark = "?" if canvas.view.tier == "ascii" else MARKS["gap"]
    base = "".join(mark if value is None else " " for value in values).ljust(canvas.columns)
    return (*[" " * canvas.columns] * (height - 1), base)


def line_rows(canvas: Canvas, gpu: Gpu, lines: Sequence[Line], height: int) -> list[Cells]:
    """One or two signals as lines: the first with its scale at the left, the second at the right."""
    uuid = gpu.uuid
    layers = [layer for line in lines for layer in _layers(canvas, uuid, line, height)]
    first = lines[0]
    limit_y = None
    if first.limit is not None and first.low < first.limit <= first.high and height >= LIMIT_LINE_FROM_ROWS:
        limit_y = plot.row_of(first.limit, first.low, first.high, height, _marker(canvas.view))
        blank = " " * canvas.columns
        stroke = ("-" if canvas.view.tier == "ascii" else "─") * canvas.columns
        layers.append((tuple(stroke if y == limit_y else blank for y in range(height)), "harm"))
    layers.append((_gaps(canvas, uuid, first, height), "muted"))
    labels: dict[int, Piece] = {0: (f"{first.high:.0f}", "muted"), height - 1: (f"{first.low:.0f}", "muted")}
    if limit_y is not None and first.limit is not None:
        labels[limit_y] = (f"lim {first.limit:.0f}", "harm")
    values = _line_values(canvas, gpu, lines, height)
    drawn = plot.overlay(tuple(layers))
    return [Cells(labels.get(y, ("", "")), drawn[y], values.get(y, ("", ""))) for y in range(height)]


def _line_values(canvas: Canvas, gpu: Gpu, lines: Sequence[Line], height: int) -> dict[int, Piece]:
    """The values at the height of their lines, each on a row of its own; a second scale in what is left."""
    placed: dict[int, Piece] = {}
    for number, line in enumerate(lines):
        value = canvas.value(gpu.uuid, line.field, _value_now(gpu, line.field))
        style = "bold" if line.style == "text" else line.style
        text = f"{units.MISSING if value is None else format(value, '.0f')} {line.unit}"
        y = 0 if value is None else plot.row_of(value, line.low, line.high, height, _marker(canvas.view))
        free = sorted((row for row in range(height) if row not in placed), key=lambda row: abs(row - y))
        if not free:
            break
        is_hot = line.limit is not None and value is not None and value >= line.limit - 1.0
        placed[free[0]] = (text, "bold harm" if is_hot else style)
        if number == 1:
            placed.setdefault(0, (f"{line.high:.0f}", "muted"))
            placed.setdefault(height - 1, (f"{line.low:.0f}", "muted"))
    return placed


def _value_now(gpu: Gpu, field: str) -> float | None:
    values = {
        "temperature_c": gpu.temperature_c,
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "utilization_pct": busy_pct(gpu),
    }
    return values[field]


_LIMITERS: dict[str, tuple[tuple[str, ...], str]] = {
    "SW therm": (("sw_thermal",), "harm"),
    "HW/brake": (("hw_thermal", "hw_power_brake"), "harm"),
    "SW power": (("sw_power_cap",), "peer"),
}


def band_row(canvas: Canvas, name: str) -> Cells:
    """One limiter over time, in steps of how much of each column it was active."""
    limiters, style = _LIMITERS[name]
    fields = [f"throttled_pct.{one}" for one in limiters]
    shares = _greatest([canvas.charts.values(canvas.card.uuid, field, canvas.columns) for field in fields])
    cells = band_cells(shares, canvas.columns, canvas.charts.look, style)
    if canvas.at is None:
        now = limited_now(canvas.window, canvas.card, limiters)
    else:
        share = shares[canvas.at] if canvas.at < len(shares) else None
        now = units.value("_pct", share)
    is_on = style == "harm" and now not in {units.MISSING, "0%", "off"}
    label_style = "harm" if is_on else "muted"
    text = f"{now} now" if is_on and canvas.at is None else now
    return Cells((name, label_style), cells, (text, label_style if is_on else ""))


def limited_now(window: Window, gpu: Gpu, limiters: Sequence[str]) -> str:
    """Share of the last interval in which a limiter was active; ``on`` or ``off`` where only its bit is known."""
    if gpu.is_lost:
        return units.MISSING
    known = [share for one in limiters if (share := limiter_pct(gpu, one)) is not None]
    if not known or window.is_counted(gpu):
        return units.value("_pct", max(known, default=None))
    return "on" if max(known) > 0.0 else "off"


def _greatest(series: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [max((value for value in column if value is not None), default=None) for column in zip(*series, strict=True)]


def has_been_limited(canvas: Canvas, name: str) -> bool:
    """Whether a limiter shows in the span at all."""
    limiters, _ = _LIMITERS[name]
    return any(
        (share or 0.0) >= 1.0
        for one in limiters
        for share in canvas.charts.values(canvas.card.uuid, f"throttled_pct.{one}", canvas.columns)
    )


def power_rows(canvas: Canvas, height: int) -> list[Cells]:
    """Power on the scale of its limit."""
    card = canvas.card
    series = canvas.charts.values(card.uuid, "power_w", canvas.columns)
    limit = card.power_limit_w or card.power_default_limit_w
    top = limit or _most(series) or 1.0
    value = canvas.value(card.uuid, "power_w", card.power_w)
    text = f"{units.number(value)}/{limit:.0f}W" if limit else f"{units.number(value)} W"
    drawn = canvas.charts.spark(card.uuid, "power_w", canvas.columns, (0.0, top), "power", height=height)
    return _beside(drawn, "power", text)


def memory_rows(canvas: Canvas, height: int) -> list[Cells]:
    """Memory on the scale of what there is."""
    gpu = canvas.gpu
    uuid = gpu.uuid
    top = gpu.memory_total_bytes or _most(canvas.charts.values(uuid, "memory_used_bytes", canvas.columns, "max")) or 1
    scale = (0.0, float(top))
    drawn = canvas.charts.spark(uuid, "memory_used_bytes", canvas.columns, scale, "memory", how="max", height=height)
    return _beside(drawn, "memory", memory_text(canvas))


def memory_text(canvas: Canvas) -> str:
    """``76.1/79.6G``."""
    gpu = canvas.gpu
    value = canvas.value(gpu.uuid, "memory_used_bytes", gpu.memory_used_bytes, "max")
    used, total = units.memory(value), units.memory(gpu.memory_total_bytes)
    is_long = gpu.memory_total_bytes is None or len(used) + len(total) > VALUES - 3
    return f"{used} G" if is_long else f"{used}/{total}G"


def _beside(charted: Chart, label: str, text: str) -> list[Cells]:
    """A filled chart with its name and its value on the first row."""
    return [
        Cells((label, "muted") if y == 0 else ("", ""), cells, (text, "") if y == 0 else ("", ""))
        for y, cells in enumerate(charted)
    ]


def readout_row(canvas: Canvas, width: int) -> Row:
    """Least, mean and greatest of the column under the cross-hair, signal by signal."""
    at = canvas.at or 0
    view = canvas.view
    start_s = view.end_s(canvas.window.last.time_s) - view.span_s + at * view.span_s / canvas.columns
    pieces: list[Piece] = [(f" {units.clock(start_s)} ", "bold accent"), (" min mean max ", "muted")]
    signals = (
        ("°C", canvas.card.uuid, "temperature_c", 1.0), ("MHz", canvas.card.uuid, "sm_clock_mhz", 1.0),
        ("util %", canvas.gpu.uuid, "utilization_pct", 1.0), ("W", canvas.card.uuid, "power_w", 1.0),
        ("G", canvas.gpu.uuid, "memory_used_bytes", units.GIB),
    )  # fmt: skip
    for unit, uuid, field, divisor in signals:
        numbers = [canvas.series(uuid, field, how)[at] for how in ("min", "mean", "max")]
        digits = 1 if unit == "G" else 0
        words = [units.MISSING if value is None else f"{value / divisor:.{digits}f}" for value in numbers]
        if len(set(words)) == 1:
            words = words[:1]
        text = f" {unit} ", f"{' '.join(words)} "
        if width_of(pieces) + len("".join(text)) <= width:
            pieces += [(text[0], "muted"), (text[1], "")]
    return tuple(pieces)


def axis_row(canvas: Canvas, alerts: Sequence[Alert]) -> Row:
    """Times under their exact column and alert marks at their onset; a label gives way to a mark."""
    view = canvas.view
    labels = chart.axis(view.end_s(canvas.window.last.time_s), view.span_s, canvas.columns).ljust(canvas.columns + 1)
    cells: list[Piece] = [(char, "muted") for char in labels]
    for alert in alerts:
        column = canvas.charts.column_of(alert.since_s, canvas.columns)
        if column is None or alert.suppressed_by is not None or alert.finding.severity == "info":
            continue  # as on the overview: what another alert explains is no onset of its own
        _make_room(cells, labels, column)
        cells[column] = alert_mark(alert)
    if canvas.at is not None:
        _make_room(cells, labels, canvas.at)
        cells[canvas.at] = ("│", "accent")
    return ((" " * GUTTER, ""), *merged(cells), (" " * (VALUES - 1), ""))


def _make_room(cells: list[Piece], labels: str, column: int) -> None:
    """A label that begins at the column moves on by one; one that the column would cut goes."""
    if labels[column] == " ":
        return
    start = labels.rfind(" ", 0, column) + 1
    end = labels.find(" ", column)
    end = len(labels) if end < 0 else end
    label = labels[start:end]
    cells[start:end] = [(" ", "")] * len(label)
    if start == column and end < len(labels):
        cells[start + 1 : end + 1] = [(char, "muted") for char in label]


def alert_mark(alert: Alert) -> Piece:
    """Severity as glyph and colour; grey once recovered or muted."""
    if not alert.is_firing():
        return (MARKS["recovered"], "muted")
    if alert.muted_until_s is not None:
        return (MARKS["muted"], "muted")
    return (MARKS[alert.finding.severity], severity_style(alert))


def severity_style(alert: Alert) -> str:
    """The colour role of an alert's severity."""
    return {"critical": "harm", "warning": "data-text"}.get(alert.finding.severity, "muted")
