"""What stands above and below the GPU rows: column heads, legend, alert marks, the time axis."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon import units
from gpumon.model import Alert, Gpu
from gpumon.monitor import Frame
from gpumon.ui.glyphs import MARKS
from gpumon.ui.panels import chart
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.columns import TIMELINE_X, Columns
from gpumon.ui.panels.line import cells, fill, left, right, width_of
from gpumon.ui.panels.state import STYLE_OF_SEVERITY
from gpumon.ui.row import Piece, Row

ESTIMATE = "estimate"


def heads(
    columns: Columns, losses: frozenset[str], marks: Sequence[Piece], look: chart.Look, width: int
) -> tuple[Row, ...]:
    """One or two rows of heads; the second one carries the alert marks."""
    first: list[Piece] = [("   # state      util ", "muted"), *legend(columns.timeline, losses, look)]
    if columns.lines > 1:
        second: list[Piece] = [("     budget      use ", "muted"), *marks]
        gap = " " * (columns.spark + 1 if columns.spark else 0)
        for row, pair, heat in ((first, "power W", "°C"), (second, "mem GiB", "MHz")):
            if columns.power:
                row.append((" " + right(pair, columns.power) + gap, "muted"))
            if columns.temperature:
                row.append((" " + right(heat, columns.temperature), "muted"))
        return fill(first, width), fill(second, width)
    for cell_count, title, spark in (
        (columns.power, "W", columns.spark),
        (columns.temperature, "°C", columns.spark),
        (columns.clock, "MHz", columns.spark),
        (columns.memory, "GiB", 0),
    ):
        if cell_count:
            first.append((" " + right(title, cell_count) + " " * (spark + 1 if spark else 0), "muted"))
    if columns.use:
        first.append((" use%", "muted"))
    if columns.budget:
        first.append((" budget", "muted"))
    return (fill(first, width),)


def legend(count: int, losses: frozenset[str], look: chart.Look) -> tuple[Piece, ...]:
    """As many fills as fit above the timeline; those that are on the screen come first."""
    for names in (("useful", "data", "peer", "throttled"), _worth_naming(losses), ("useful",)):
        pieces = chart.legend(names, look)
        if width_of(pieces) <= count:
            return fill(pieces, count)
    return fill((), count)


def _worth_naming(losses: frozenset[str]) -> tuple[str, ...]:
    """Three names for a narrow timeline: what is on the screen, and the usual ones beside it."""
    if len(losses) == 3:
        return ("data", "peer", "throttled")
    if "peer" in losses:
        return ("useful", "data", "peer") if "data" in losses else ("useful", "peer", "throttled")
    return ("useful", "data", "throttled")


def alert_marks(frame: Frame, charts: Charts, count: int) -> tuple[Piece, ...]:
    """A mark at the onset of each alert within the window; the headline's one says what it was."""
    marks: dict[int, tuple[str, str]] = {}
    told: Alert | None = frame.headline.alert
    for alert in reversed(frame.alerts):
        column = charts.column_of(alert.since_s, count)
        if column is not None and alert.suppressed_by is None and alert.finding.severity != "info":
            marks[column] = mark_of(alert)
    pieces: list[Piece] = [marks.get(column, (" ", "")) for column in range(count)]
    column = charts.column_of(told.since_s, count) if told is not None else None
    if told is None or column is None:
        return tuple(pieces)
    glyph, style = marks.get(column, (" ", ""))
    text = f"{units.clock(told.since_s, '%H:%M')} {where(told, frame.window.last.gpus)} {told.finding.rule}"
    size = cells(text) + 1
    if column + 1 + size <= count:
        pieces[column : column + 1 + size] = [(f"{glyph} {text}", style)]
    elif column >= size:
        pieces[column - size : column + 1] = [(f"{text} {glyph}", style)]
    return tuple(pieces)


def mark_of(alert: Alert) -> Piece:
    """The glyph of an alert; grey once it has recovered or while it is muted."""
    if not alert.is_firing():
        return (MARKS["recovered"], "muted")
    if alert.muted_until_s is not None:
        return (MARKS["muted"], "muted")
    return (MARKS[alert.finding.severity], STYLE_OF_SEVERITY[alert.finding.severity])


def name_of(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """Its index; of a MIG instance the parent's too: ``0.1``."""
    parent = next((parent for parent in gpus if parent.uuid == gpu.mig_parent_uuid), None)
    return str(gpu.index) if parent is None else f"{parent.index}.{gpu.index}"


def where(alert: Alert, gpus: Sequence[Gpu]) -> str:
    """Whom an alert is about, in at most seven characters: ``GPU 5``, ``job``, ``host``, a pid."""
    subject = alert.finding.subject
    if subject.gpu is not None:
        gpu = next((gpu for gpu in gpus if gpu.uuid == subject.uuid), None)
        return f"GPU {subject.gpu if gpu is None else name_of(gpu, gpus)}"
    return str(subject.pid) if subject.kind == "process" and subject.pid is not None else subject.kind


def axis(end_s: float, span_s: float, columns: Columns, note: str, *, is_estimate: bool, width: int) -> Row:
    """Labels under their exact column; at the left what is scrolled away, or how the budget was found."""
    start = left(f" {note}", TIMELINE_X) if note else " " * TIMELINE_X
    if is_estimate and not note and columns.budget and columns.lines > 1:
        start = left(f"     {ESTIMATE}", TIMELINE_X)
    text = start + chart.axis(end_s, span_s, columns.timeline)
    if columns.lines > 1 and columns.spark:
        same = f"same {units.duration(span_s)}"
        x = columns.after + 1 + columns.power + 1
        for _ in range((columns.power > 0) + (columns.temperature > 0)):
            text = left(text, x) + same
            x += columns.spark + 1 + columns.temperature + 1
    elif is_estimate and columns.lines == 1:
        end = _end_of_budget(columns)
        if end - len(ESTIMATE) > len(text.rstrip()):
            text = left(text, end - len(ESTIMATE)) + ESTIMATE
    return fill([(text, "muted")], width)


def _end_of_budget(columns: Columns) -> int:
    sparks = (columns.spark + 1) * 3 if columns.spark else 0
    numbers = (columns.power, columns.temperature, columns.clock, columns.memory, columns.use, columns.budget)
    return columns.after + sum(1 + number for number in numbers if number) + sparks
