"""A GPU as one to four lines: mark, word, time budget over time, and its signals in fixed columns."""

from __future__ import annotations

import msgspec

from gpumon import units
from gpumon.model import Gpu
from gpumon.signals import busy_pct, temperature_limit_c
from gpumon.ui.glyphs import MARKS
from gpumon.ui.panels import scales
from gpumon.ui.panels.chart import Chart, Look, Shares
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.columns import TIMELINE_X, Columns
from gpumon.ui.panels.line import left, pad, right
from gpumon.ui.panels.state import GpuState
from gpumon.ui.panels.values import Values
from gpumon.ui.row import Piece, Row

Pieces = tuple[Piece, ...]

PROFILE_CHARACTERS = 2
"""Of a MIG profile fit: ``3g``."""
_SHORT_WORDS = {"starting": "start", "throttled": "slowed"}
"""What stands beside a profile has seven cells."""
_WRONG = "bold harm"
HEAD_PIECES = 4
"""Before the utilization."""
UTIL_CELLS = 6


class Subject(msgspec.Struct, frozen=True):
    """One GPU as its row needs it."""

    gpu: Gpu
    state: GpuState
    values: Values
    instances: int
    """MIG instances under it."""
    is_selected: bool
    is_muted: bool
    """Its numbers are old."""


class _Drawn(msgspec.Struct, frozen=True):
    """What of a row comes from charts."""

    timeline: Chart
    """Empty on a MIG parent: its instances have their own."""
    power: Chart
    temperature: Chart
    clock: Chart
    memory: Chart
    bar: Pieces
    budget: Shares | None


class _Sheet(msgspec.Struct, frozen=True):
    """What a line is written on."""

    columns: Columns
    width: int
    look: Look


class _Cells:
    """Collects the pieces of a line: every number and chart is led in by one blank.

    Without colour that blank is a ``!`` behind a wrong number.
    """

    def __init__(self, pieces: list[Piece], look: Look) -> None:
        self.pieces = pieces
        self._lead: Piece = (" ", "")
        self._wrong_lead: Piece = (" ", "") if look.has_color else ("!", "bold")

    def number(self, text: str, cells: int, style: str, *, is_wrong: bool = False) -> None:
        """A right-aligned number; 0 cells is a column that is left out."""
        if cells:
            self.pieces += (self._lead, (right(text, cells), _WRONG if is_wrong else style))
            self._lead = self._wrong_lead if is_wrong else (" ", "")

    def chart(self, chart: Pieces, cells: int) -> None:
        """A chart; blank where there is none."""
        if cells:
            self.pieces.append(self._lead)
            self.pieces += chart or ((" " * cells, ""),)
            self._lead = (" ", "")

    def row(self, width: int) -> Row:
        """The line, padded."""
        return pad([*self.pieces, self._lead], width)


def utilization(gpu: Gpu) -> str:
    """Four cells: ``100%``, `` 98%``, ``   –``."""
    value = busy_pct(gpu)
    return "   –" if value is None else f"{value:3.0f}%"


def rows(subject: Subject, charts: Charts, columns: Columns, width: int) -> tuple[Row, ...]:
    """The row group of one GPU; the very same one while nothing in it has changed."""
    gpu = subject.gpu
    util = "   –" if subject.instances else utilization(gpu)
    drawn_from = (
        charts.stamp(columns.timeline), charts.stamp(columns.spark or 1), columns, gpu.power_limit_w, gpu.is_lost,
        subject.instances,
    )  # fmt: skip
    body = charts.keep(
        ("body", gpu.uuid),
        (drawn_from, subject.state, subject.values, subject.is_selected, subject.is_muted, width),
        lambda: _body(
            subject,
            charts.keep(("drawn", gpu.uuid), drawn_from, lambda: _draw(subject, charts, columns)),
            _Sheet(columns, width, charts.look),
        ),
    )
    return charts.keep(("gpu", gpu.uuid), (util, body), lambda: _with_utilization(body, util, subject))


def _body(subject: Subject, drawn: _Drawn, sheet: _Sheet) -> tuple[Row, ...]:
    """All but the utilization, which alone changes each second."""
    return (_one_line if sheet.columns.lines == 1 else _lines)(subject, drawn, sheet)


def _with_utilization(body: tuple[Row, ...], util: str, subject: Subject) -> tuple[Row, ...]:
    first, *others = body
    piece = (f" {util} ", "muted" if subject.is_muted else "bold")
    return ((*first[:HEAD_PIECES], piece, *first[HEAD_PIECES:]), *others)


def _draw(subject: Subject, charts: Charts, columns: Columns) -> _Drawn:
    gpu, count = subject.gpu, columns.spark
    is_parent = subject.instances > 0
    is_instance = gpu.mig_parent_uuid is not None
    timeline: Chart = () if is_parent else charts.timeline(gpu.uuid, columns.timeline, columns.lines)
    power: Chart = ()
    temperature: Chart = ()
    clock: Chart = ()
    memory: Chart = ()
    bar: Pieces = ()
    upper, lower = columns.upper, max(1, columns.lines - columns.upper)
    if count and not is_instance:
        limit = temperature_limit_c(gpu)
        if columns.power:
            power = charts.spark(gpu.uuid, "power_w", count, scales.power_scale(gpu), "power", height=upper)
        if columns.temperature:
            temperature = charts.spark(
                gpu.uuid, "temperature_c", count, scales.temperature_scale(gpu), "temperature",
                how="max", limit=limit, height=upper,
            )  # fmt: skip
            clock = charts.spark(
                gpu.uuid, "sm_clock_mhz", count, scales.clock_scale(gpu), "clock", is_clock=True, height=lower
            )
    if count and columns.lines > 1 and columns.memory:
        memory = charts.spark(
            gpu.uuid, "memory_used_bytes", count, scales.memory_scale(gpu), "memory", how="max", height=lower
        )
    if columns.budget and not is_parent:
        bar = charts.bar(gpu.uuid, columns.timeline, columns.budget)
    budget = None if is_parent or gpu.is_lost else charts.budget(gpu.uuid, columns.timeline)
    return _Drawn(timeline, power, temperature, clock, memory, bar, budget)


def _head(subject: Subject) -> list[Piece]:
    """Cells 0 to 14: cursor, mark, index, word."""
    gpu, state = subject.gpu, subject.state
    weight = "bold" if subject.is_selected else ""
    if gpu.mig_parent_uuid is not None:
        index = f".{gpu.index}"
        doing = _SHORT_WORDS.get(state.word, state.word.removeprefix("waits "))
        word = f"{(gpu.mig_profile or '')[:PROFILE_CHARACTERS]} {doing}".strip()
    else:
        index = str(gpu.index)
        word = f"MIG ×{subject.instances}" if subject.instances else state.word
    return [
        (MARKS["cursor"] if subject.is_selected else " ", "accent"),
        (state.mark, state.mark_style),
        (right(index, 2) + " ", weight),
        (left(word, 10), state.style or weight),
    ]


def _one_line(subject: Subject, drawn: _Drawn, sheet: _Sheet) -> tuple[Row, ...]:
    columns, width, look = sheet.columns, sheet.width, sheet.look
    values, is_hot = subject.values, subject.state.is_hot
    style = "muted" if subject.is_muted else ""
    is_instance = subject.gpu.mig_parent_uuid is not None
    cells = _Cells(_head(subject), look)
    if drawn.timeline:
        cells.pieces += drawn.timeline[0]
    else:
        cells.pieces.append((left(f"{subject.instances} instances share heat, clocks", columns.timeline), "muted"))
    for cell_count, value, is_wrong, spark in (
        (columns.power, values.power_w, False, drawn.power),
        (columns.temperature, values.temperature_c, is_hot, drawn.temperature),
        (columns.clock, values.clock_mhz, is_hot, drawn.clock),
    ):
        # Heat and clocks belong to the whole card: an instance's cells are empty, not missing.
        text = "" if is_instance else units.number(value)
        cells.number(text, cell_count, style, is_wrong=is_wrong and not is_instance)
        cells.chart(spark[0] if spark else (), columns.spark if cell_count else 0)
    cells.number(_memory(values.memory_bytes, columns), columns.memory, style)
    use = "" if subject.instances else units.number(drawn.budget.useful if drawn.budget else None)
    cells.number(use, columns.use, "muted")
    cells.chart(drawn.bar, columns.budget)
    return (cells.row(width - UTIL_CELLS),)


def _memory(used_bytes: int | None, columns: Columns) -> str:
    if used_bytes is None or columns.has_decimals:
        return units.memory(used_bytes)
    return f"{units.gib(used_bytes):.0f}"


def _lines(subject: Subject, drawn: _Drawn, sheet: _Sheet) -> tuple[Row, ...]:
    """Power over memory, temperature over clock, each as high as its half of the lines."""
    columns, width, look = sheet.columns, sheet.width, sheet.look
    numbers = _numbers(subject)
    found: list[Row] = []
    for line in range(columns.lines):
        is_upper = line < columns.upper
        row = line if is_upper else line - columns.upper
        left_chart, right_chart = (drawn.power, drawn.temperature) if is_upper else (drawn.memory, drawn.clock)
        cells = _Cells(_start(subject, drawn, line, columns), look)
        cells.pieces += _slice(subject, drawn, line, columns)
        (left_text, left_style), (right_text, right_style) = numbers[not is_upper]
        for text, cell_count, style, picture in (
            (left_text, columns.power, left_style, left_chart),
            (right_text, columns.temperature, right_style, right_chart),
        ):
            cells.number("" if row else text, cell_count, style, is_wrong=style == _WRONG and not row)
            cells.chart(picture[row] if picture else (), columns.spark if cell_count else 0)
        found.append(cells.row(width if line else width - UTIL_CELLS))
    return tuple(found)


def _start(subject: Subject, drawn: _Drawn, line: int, columns: Columns) -> list[Piece]:
    """Cells 0 to 20: what it does (utilization comes later), then the time budget of the span."""
    if line == 0:
        return _head(subject)
    if line != columns.upper:
        return [(" " * TIMELINE_X, "")]
    use = "    " if subject.instances else "   –" if drawn.budget is None else f"{drawn.budget.useful:3.0f}%"
    return [("     ", ""), *(drawn.bar or ((" " * 10, ""),)), (f" {use} ", "muted")]


def _slice(subject: Subject, drawn: _Drawn, line: int, columns: Columns) -> Pieces:
    """One line of the timeline; on a MIG parent what its instances share."""
    if drawn.timeline:
        return drawn.timeline[line]
    note = f"{subject.instances} instances share heat, clocks" if line == 0 else ""
    return ((left(note, columns.timeline), "muted"),)


def _numbers(subject: Subject) -> tuple[tuple[Piece, Piece], tuple[Piece, Piece]]:
    """Power and temperature, memory and clock; heat and clocks belong to the whole card, not to an instance."""
    gpu, values = subject.gpu, subject.values
    style = "muted" if subject.is_muted else ""
    memory = (_of_limit(units.memory(values.memory_bytes), units.memory(gpu.memory_total_bytes)), style)
    if gpu.mig_parent_uuid is not None:
        return (("", style), ("", style)), (memory, ("", style))
    power = (_of_limit(units.number(values.power_w), units.number(scales.power_limit(gpu))), style)
    hot = _WRONG if subject.state.is_hot else style
    return (power, (units.number(values.temperature_c), hot)), (memory, (units.number(values.clock_mhz), hot))


def _of_limit(value: str, limit: str) -> str:
    """``391/700``; nothing is said about the limit of an unknown value."""
    return value if units.MISSING in {value, limit} else f"{value}/{limit}"
