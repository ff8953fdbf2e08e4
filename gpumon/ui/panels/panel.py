"""One GPU with all its signals stacked on one time axis: what a machine with one or two cards shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpumon import units
from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.signals import limiter_pct, temperature_limit_c
from gpumon.steps import Pace, detailed, is_measured
from gpumon.ui.panels import chart, rank_charts, scales
from gpumon.ui.panels.charts import HARMFUL_LIMITERS, Charts
from gpumon.ui.panels.gpu_heads import ESTIMATE, mark_of
from gpumon.ui.panels.gpu_rows import Subject, utilization
from gpumon.ui.panels.line import fill, left, pad, right, section
from gpumon.ui.panels.probes import Probe, Probes
from gpumon.ui.panels.rank_charts import Told
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


class Heights(NamedTuple):
    """Rows of each chart; spare rows make them taller."""

    util: int = 3
    power: int = 2
    memory: int = 1
    temperature: int = 2
    clock: int = 2

    @property
    def total(self) -> int:
        """Rows of the whole panel."""
        return 4 + self.util + self.power + self.memory + self.temperature + self.clock


def heights(rows: int) -> Heights:
    """The best use of so many rows."""
    grown = Heights()
    for wish in (
        Heights(4, 2, 1, 2, 2),
        Heights(5, 3, 2, 3, 3),
        Heights(6, 4, 2, 4, 4),
        Heights(8, 5, 3, 5, 5),
    ):
        if wish.total <= rows:
            grown = wish
    return grown


def chart_width(width: int) -> int:
    """Columns of every chart."""
    return next((count for count in CHART_WIDTHS if CHART_X + count + 1 <= width), 40)


class ProbedHeights(NamedTuple):
    """The same rows where the process on the GPU has a probe: memory is three charts of them."""

    util: int = 2
    power: int = 1
    memory: int = 1
    temperature: int = 1
    clock: int = 1
    step: int = 1
    wait: int = 1

    @property
    def total(self) -> int:
        """Rows of the whole panel."""
        return 4 + sum(self) + 2 * self.memory


_PROBED = (
    ProbedHeights(6, 3, 2, 3, 2, 3, 3), ProbedHeights(5, 2, 1, 2, 2, 3, 3), ProbedHeights(4, 2, 1, 2, 2, 2, 1),
    ProbedHeights(3), ProbedHeights(),
)  # fmt: skip


def probed_heights(size: Heights) -> ProbedHeights:
    """How the same number of rows is shared out with a probe."""
    return next(one for one in _PROBED if one.total <= size.total)


class Scene(msgspec.Struct, frozen=True):
    """What all panels of a frame share."""

    frame: Frame
    view: ViewState
    charts: Charts
    width: int
    probes: Probes

    @property
    def columns(self) -> int:
        """Columns of every chart."""
        return chart_width(self.width)


class _Part(msgspec.Struct, frozen=True):
    """A chart and the labels beside its rows."""

    name: str
    picture: chart.Chart
    labels: list[list[Piece]]


def rows(scene: Scene, subject: Subject, recent: chart.Shares | None, size: Heights) -> list[Row]:
    """All rows of one GPU, rule to budget."""
    gpu, width = subject.gpu, scene.width
    drawn = [section(f"GPU {gpu.index}", _name(gpu), _facts(gpu), width, cursor=subject.is_selected)]
    probe = scene.probes.on(scene.frame.window, gpu.uuid)
    parts = _parts(scene, subject, recent, size) if probe is None else _probed(scene, subject, recent, size, probe)
    for part in parts:
        for number, line in enumerate(part.picture):
            label = part.labels[number] if number < len(part.labels) else [(" " * CHART_X, "")]
            drawn.append(_beside(scene, (gpu.uuid, part.name, number), label, line))
    drawn.append(_events(scene, subject))
    span = left(f" {units.duration(scene.view.span_s)}", CHART_X)
    end_s = scene.view.end_s(scene.frame.window.last.time_s)
    drawn.append(fill([(span + chart.axis(end_s, scene.view.span_s, scene.columns), "muted")], width))
    drawn.append(_budget(scene, gpu))
    return drawn


def _beside(scene: Scene, key: tuple[object, ...], label: list[Piece], line: tuple[Piece, ...]) -> Row:
    return scene.charts.keep(
        ("panel", *key), (label, line, scene.width), lambda: pad([*label, *line], scene.width)
    )  # fmt: skip


def _parts(
    scene: Scene, subject: Subject, recent: chart.Shares | None, size: Heights | ProbedHeights
) -> Iterator[_Part]:
    """Charts from top to bottom: what it does, what that takes, what that does to the card."""
    yield from _work(scene, subject, recent, size)
    gpu, values, count, charts = subject.gpu, subject.values, scene.columns, scene.charts
    yield _Part(
        "memory",
        charts.spark(
            gpu.uuid, "memory_used_bytes", count, scales.memory_scale(gpu), "memory", how="max", height=size.memory
        ),
        [_label("memory", _memory(gpu, values.memory_bytes), "muted" if subject.is_muted else "")],
    )
    yield from _heat(scene, subject, size)


def _probed(
    scene: Scene, subject: Subject, recent: chart.Shares | None, height: Heights, probe: Probe
) -> Iterator[_Part]:
    """The same with what the process itself tells: memory as three charts, steps, and what they wait."""
    size = probed_heights(height)
    gpu, window = subject.gpu, scene.frame.window
    pace = Pace() if probe.rank is None else detailed(window, probe.rank)
    told = Told(scene.charts, scene.columns, probe.key, probe.rank, pace, gpu)
    style = "muted" if subject.is_muted else ""
    yield from _work(scene, subject, recent, size)
    device, *held = rank_charts.memory_strips(told, size.memory)
    for strip in (device._replace(value=_memory(gpu, subject.values.memory_bytes)), *held):
        yield _Part(strip.name, strip.chart, [_label(strip.name, strip.value, style)])
    for strip in (rank_charts.step_strip(told, size.step), rank_charts.wait_strip(told, size.wait)):
        note = strip.notes[-1] if strip.notes else ""
        value = strip.value.replace("%", " %")
        yield _Part(
            strip.name, strip.chart, [_label(strip.name, value, style or strip.style), _label("", note, "muted")]
        )
    yield from _heat(scene, subject, size)


def _work(
    scene: Scene, subject: Subject, recent: chart.Shares | None, size: Heights | ProbedHeights
) -> Iterator[_Part]:
    gpu, values, count, charts = subject.gpu, subject.values, scene.columns, scene.charts
    style = "muted" if subject.is_muted else ""
    power_limit = scales.power_limit(gpu)
    util = _label("util", f"{utilization(gpu).strip(' %').rjust(3)} %", style or "bold")
    yield _Part("util", charts.timeline(gpu.uuid, count, size.util), [util, *_shares(recent, style)])
    yield _Part(
        "power",
        charts.spark(gpu.uuid, "power_w", count, scales.power_scale(gpu), "power", height=size.power),
        [
            _label("power", f"{units.number(values.power_w)} W", style),
            _label("", "" if power_limit is None else f"of {power_limit:.0f} W", "muted"),
        ],
    )


def _heat(scene: Scene, subject: Subject, size: Heights | ProbedHeights) -> Iterator[_Part]:
    gpu, values, count, charts = subject.gpu, subject.values, scene.columns, scene.charts
    style = "bold harm" if subject.state.is_hot else "muted" if subject.is_muted else ""
    limit = temperature_limit_c(gpu)
    yield _Part(
        "temp",
        charts.spark(
            gpu.uuid, "temperature_c", count, scales.temperature_scale(gpu), "temperature",
            how="max", height=size.temperature, limit=limit,
        ),
        [
            _label("temp", f"{units.number(values.temperature_c)} °C", style),
            _label("", "" if limit is None else f"limit {limit:.0f}", "muted"),
        ],
    )  # fmt: skip
    yield _Part(
        "clock",
        charts.spark(
            gpu.uuid, "sm_clock_mhz", count, scales.clock_scale(gpu), "clock", height=size.clock, is_clock=True
        ),
        [
            _label("SM MHz", units.number(values.clock_mhz), style),
            _label("", "" if gpu.sm_clock_max_mhz is None else f"max {gpu.sm_clock_max_mhz:.0f}", "muted"),
        ],
    )


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


def _events(scene: Scene, subject: Subject) -> Row:
    """The limiter that acts now, limiter bands over time, and marks where alerts began."""
    frame, charts, count, width = scene.frame, scene.charts, scene.columns, scene.width
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


def _budget(scene: Scene, gpu: Gpu) -> Row:
    """The time budget of the span as a bar and as numbers that add up to 100."""
    charts, count, width = scene.charts, scene.columns, scene.width
    shares = charts.budget(gpu.uuid, count)
    bar = charts.bar(gpu.uuid, count, BAR)
    how = "measured" if is_measured(scene.frame.window, gpu.uuid) else ESTIMATE
    key = ("panel budget", gpu.uuid)
    return charts.keep(key, (shares, bar, how, width), lambda: _budget_row(shares, bar, how, width))


def _budget_row(shares: chart.Shares | None, bar: tuple[Piece, ...], how: str, width: int) -> Row:
    pieces: list[Piece] = [(" budget" + right(how, 10) + " ", "muted"), *bar, (" ", "")]
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
