"""One GPU with all its signals stacked on one time axis: what a machine with one or two cards shows."""

from __future__ import annotations

from typing import NamedTuple

from gpumon import units
from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.signals import limiter_pct, temperature_limit_c
from gpumon.ui.panels import chart, scales
from gpumon.ui.panels.charts import HARMFUL_LIMITERS, Charts
from gpumon.ui.panels.gpu_heads import ESTIMATE, mark_of
from gpumon.ui.panels.gpu_rows import Subject, utilization
from gpumon.ui.panels.line import fill, left, right, section
from gpumon.ui.panels.title import model
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

LINES = 14
CHART_X = 18
BAR = 14
LABEL_END = 17
"""Labels and numbers end one cell before the charts."""
CHART_WIDTHS = (150, 100, 60, 50, 40)
LIMITER_WORDS = {
    "sw_thermal": "SW therm",
    "hw_thermal": "HW therm",
    "hw_power_brake": "brake",
    "sw_power_cap": "power cap",
}
LOSS_WORDS = {"data": "waits", "throttled": "slowed", "peer": "peer"}
"""At most six characters."""
LOSS_STYLES = {"data": "bold data-text", "throttled": "bold harm", "peer": "muted"}
NO_PROBE_ROW = "– for step time, alloc:  gpumon run -- python …"


class Heights(NamedTuple):
    """Rows of each chart; spare rows make them taller."""

    util: int = 3
    power: int = 2
    memory: int = 1
    temperature: int = 2
    clock: int = 2
    has_step: bool = False

    @property
    def total(self) -> int:
        """Rows of the whole panel."""
        return 4 + self.util + self.power + self.memory + self.temperature + self.clock + self.has_step


def heights(rows: int) -> Heights:
    """The best use of so many rows."""
    grown = Heights()
    for wish in (
        grown._replace(has_step=True),
        Heights(4, 2, 1, 2, 2, has_step=True),
        Heights(5, 3, 2, 3, 3, has_step=True),
        Heights(6, 4, 2, 4, 4, has_step=True),
        Heights(8, 5, 3, 5, 5, has_step=True),
    ):
        if wish.total <= rows:
            grown = wish
    return grown


def chart_width(width: int) -> int:
    """Columns of every chart."""
    return next((count for count in CHART_WIDTHS if CHART_X + count + 1 <= width), 40)


def rows(
    frame: Frame, view: ViewState, subject: Subject, recent: chart.Shares | None, charts: Charts, width: int, size: Heights
) -> list[Row]:
    """All rows of one GPU, rule to budget."""
    gpu, values, count = subject.gpu, subject.values, chart_width(width)
    style = "muted" if subject.is_muted else ""
    hot = "bold harm" if subject.state.is_hot else style
    keep = charts.keep
    drawn = [section(f"GPU {gpu.index}", _name(gpu), _facts(gpu), width, cursor=subject.is_selected)]
    util = charts.timeline(gpu.uuid, count, size.util)
    labels = [_label("util", f"{utilization(gpu).strip(' %').rjust(3)} %", style or "bold"), *_shares(recent, style)]
    parts: list[tuple[str, chart.Chart, list[list[Piece]]]] = [("util", util, labels)]
    limit = scales.power_limit(gpu)
    heat_limit = temperature_limit_c(gpu)
    for name, given, height, role, field, scale, how in (
        (
            "power",
            [
                _label("power", f"{units.number(values.power_w)} W", style),
                _label("", "" if limit is None else f"of {limit:.0f} W", "muted"),
            ],
            size.power, "power", "power_w", scales.power_scale(gpu), "mean",
        ),
        (
            "memory", [_label("memory", _memory(gpu, values.memory_bytes), style)],
            size.memory, "memory", "memory_used_bytes", scales.memory_scale(gpu), "max",
        ),
        (
            "temp",
            [
                _label("temp", f"{units.number(values.temperature_c)} °C", hot),
                _label("", "" if heat_limit is None else f"limit {heat_limit:.0f}", "muted"),
            ],
            size.temperature, "temperature", "temperature_c", scales.temperature_scale(gpu), "max",
        ),
        (
            "clock",
            [
                _label("SM MHz", units.number(values.clock_mhz), hot),
                _label("", "" if gpu.sm_clock_max_mhz is None else f"max {gpu.sm_clock_max_mhz:.0f}", "muted"),
            ],
            size.clock, "clock", "sm_clock_mhz", scales.clock_scale(gpu), "mean",
        ),
    ):  # fmt: skip
        picture = charts.spark(
            gpu.uuid, field, count, scale, role, how=how, height=height,  # type: ignore[arg-type]
            limit=heat_limit if name == "temp" else None, is_clock=name == "clock",
        )  # fmt: skip
        parts.append((name, picture, given))
    for name, picture, given in parts:
        for number, line in enumerate(picture):
            label = given[number] if number < len(given) else [(" " * CHART_X, "")]
            drawn.append(
                keep(("panel", gpu.uuid, name, number), (label, line, width), lambda a=label, b=line: fill([*a, *b], width))
            )
        if name == "memory" and size.has_step:
            drawn.append(fill([(left(" step", 16), "muted"), (NO_PROBE_ROW, "muted")], width))
    drawn.append(_events(frame, subject, charts, count, width))
    span = left(f" {units.duration(view.span_s)}", CHART_X)
    drawn.append(fill([(span + chart.axis(view.end_s(frame.window.last.time_s), view.span_s, count), "muted")], width))
    drawn.append(_budget(gpu, charts, count, width))
    return drawn


def _label(name: str, value: str, style: str) -> list[Piece]:
    """Cells 0 to 17: what it is, and its number."""
    return [(" " + name, "muted"), (right(value, LABEL_END - 1 - len(name)), style), (" ", "")]


def _shares(part: chart.Shares | None, style: str) -> list[list[Piece]]:
    """``97 useful`` and the biggest loss of the last seconds."""
    if part is None:
        return [_share(None, "useful", "muted")]
    kind, loss = part.worst()
    is_told = loss >= chart.VISIBLE_LOSS_PCT
    lines = [_share(part.useful, "useful", "muted")]
    if kind == "data" or is_told:
        lines.append(_share(loss, LOSS_WORDS[kind], LOSS_STYLES[kind] if is_told and not style else "muted"))
    return lines


def _share(value: float | None, word: str, style: str) -> list[Piece]:
    return [(f"{right(units.number(value), 10)} {word:<6} ", style)]


def _name(gpu: Gpu) -> str:
    """The model with its memory, unless the name says it."""
    name = model(gpu.name)
    if gpu.memory_total_bytes is None or "GB" in name:
        return name
    return f"{name} {units.gib(gpu.memory_total_bytes):.0f} GB"


def _facts(gpu: Gpu) -> str:
    facts = [gpu.performance_state or ""]
    if gpu.fan_pct is not None:
        facts.append(f"fan {gpu.fan_pct:.0f}%")
    if gpu.pcie_gen is not None and gpu.pcie_width is not None:
        facts.append(f"PCIe {gpu.pcie_gen} ×{gpu.pcie_width}")
    limit = temperature_limit_c(gpu)
    if limit is not None:
        facts.append(f"limit {limit:.0f} °C")
    return " · ".join(fact for fact in facts if fact)


def _memory(gpu: Gpu, used: int | None) -> str:
    """``19.8/24 G``, without the decimal where it would not fit."""
    if used is None or gpu.memory_total_bytes is None:
        return f"{units.memory(used)} G"
    total = f"{units.gib(gpu.memory_total_bytes):.0f}"
    text = f"{units.memory(used)}/{total} G"
    return text if len(text) <= 9 else f"{units.gib(used):.0f}/{total} G"


def _events(frame: Frame, subject: Subject, charts: Charts, count: int, width: int) -> Row:
    """The limiter that acts now, limiter bands over time, and marks where alerts began."""
    uuid = subject.gpu.uuid
    band = list(charts.band(uuid, count))
    marks = []
    for alert in reversed(frame.alerts):
        if alert.finding.subject.uuid in (uuid, None) and alert.suppressed_by is None:
            column = charts.column_of(alert.since_s, count)
            if column is not None and alert.finding.severity != "info":
                marks.append((column, mark_of(alert)))
    word, style = _limiter(subject.gpu)

    def make() -> Row:
        cells = list(band)
        for column, mark in marks:
            cells[column] = mark
        return fill([*_label("events", word, style), *cells], width)

    return charts.keep(("events", uuid), (band, marks, word, style, width), make)


def _limiter(gpu: Gpu) -> tuple[str, str]:
    """What lowers the clock at this moment."""
    shares = {name: limiter_pct(gpu, name) for name in LIMITER_WORDS}
    if all(share is None for share in shares.values()):
        return units.MISSING, "muted"
    for name, word in LIMITER_WORDS.items():
        if (shares[name] or 0.0) >= 1.0:
            return word, "bold harm" if name in HARMFUL_LIMITERS else "muted"
    return "no limit", "muted"


def _budget(gpu: Gpu, charts: Charts, count: int, width: int) -> Row:
    """The time budget of the span as a bar and as numbers that add up to 100."""
    shares = charts.budget(gpu.uuid, count)
    bar = charts.bar(gpu.uuid, count, BAR)
    return charts.keep(("panel budget", gpu.uuid), (shares, bar, width), lambda: _budget_row(shares, bar, width))


def _budget_row(shares: chart.Shares | None, bar: tuple[Piece, ...], width: int) -> Row:
    pieces: list[Piece] = [(" budget" + right(ESTIMATE, 10) + " ", "muted"), *bar, (" ", "")]
    if shares is None:
        return fill([*pieces, ("nothing measured yet", "muted")], width)
    parts = shares.rounded()
    names = [("useful", 3, "bold"), ("data", 2, "bold data-text"), ("throttled", 2, "bold harm"), ("idle", 2, "bold")]
    if parts["peer"] >= chart.VISIBLE_LOSS_PCT:
        names.insert(3, ("peer", 2, "bold"))
    if len(names) > 4 and width < 90:
        names = [name for name in names if name[0] != ("data" if parts["data"] < parts["throttled"] else "throttled")]
    for name, digits, loud in names:
        is_loud = parts[name] >= chart.VISIBLE_LOSS_PCT and name in LOSS_WORDS
        pieces += [(f"  {name} " if pieces[-1][0] != " " else f"{name} ", "muted")]
        pieces.append((f"{parts[name]:>{digits}}%", loud if is_loud and name != "peer" else ""))
    return fill(pieces, width)

