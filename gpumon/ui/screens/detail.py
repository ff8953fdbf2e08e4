"""One GPU in full: its time budget, heat against clock, limiters, power, memory, facts and processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpumon import units
from gpumon.model import Alert, Gpu
from gpumon.signals import busy_pct, label
from gpumon.steps import is_measured
from gpumon.ui import selection
from gpumon.ui.board import BoardScreen
from gpumon.ui.palette import muted
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.gpu_heads import ESTIMATE
from gpumon.ui.panels.headline import headline_rows, small_rows
from gpumon.ui.panels.line import width_of
from gpumon.ui.panels.probes import Probes
from gpumon.ui.panels.state import is_stale
from gpumon.ui.panels.title import model
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens import detail_charts as charts
from gpumon.ui.screens import detail_facts as facts
from gpumon.ui.screens import detail_rank
from gpumon.ui.screens.chrome import Key, footer_row, rule_row, title_row
from gpumon.ui.screens.detail_charts import Canvas, Cells
from gpumon.ui.view import BLOCKS, ViewState

if TYPE_CHECKING:
    from gpumon.monitor import Frame

OVERLAY_FROM_WIDTH = 100
SMALL_WIDTH = 60
KEYS: tuple[Key, ...] = (
    ("?", "help"), ("←→", "inspect"), ("+-", "span"), ("o", "overlay"), ("n p", "next GPU"), ("e", "why"),
    ("< >", "scroll"), ("Esc", "back"),
)  # fmt: skip
GRANTS: tuple[tuple[str, int], ...] = (
    ("headline", 1), ("footer", 1), ("budget", 1), ("title", 1), ("heat", 3), ("limiters", 1), ("power", 1),
    ("memory", 1), ("axis", 1), ("headline", 1), ("processes", 1), ("facts", 1), ("budget", 1), ("limiters", 2),
    ("clock", 4), ("heat", 1), ("budget", 2), ("facts_rule", 1), ("facts", 1), ("processes_rule", 1),
    ("processes", 3), ("heat", 2), ("clock", 2), ("power", 1), ("memory", 1), ("heat", 2), ("budget", 1),
    ("power", 1), ("clock", 2), ("heat", 2), ("budget", 1), ("memory", 1), ("facts", 1), ("heat", 2), ("clock", 2),
    ("processes", 4), ("utilization", 5), ("heat", 2), ("utilization", 2), ("budget", 2), ("heat", 2), ("clock", 2),
    ("power", 1), ("facts", 1), ("heat", 2), ("clock", 2), ("processes", 30), ("heat", 4),
)  # fmt: skip
"""Who gets the rows of the screen, in the order in which they are handed out; a grant that does not fit is skipped."""
PROBED_GRANTS: tuple[tuple[str, int], ...] = (
    ("headline", 1), ("footer", 1), ("budget", 1), ("title", 1), ("heat", 3), ("limiters", 1), ("power", 1),
    ("memory", 1), ("axis", 1), ("headline", 1), ("processes", 1), ("facts", 1), ("pace", 2), ("memory", 2),
    ("budget", 1), ("pace_note", 1), ("clock", 3), ("budget", 1), ("limiters", 2), ("clock", 1), ("heat", 1),
    ("budget", 1), ("facts_rule", 1), ("facts", 1), ("processes_rule", 1), ("processes", 3), ("heat", 2), ("clock", 2),
    ("power", 1), ("heat", 1), ("budget", 1), ("pace", 2), ("memory", 3), ("clock", 2), ("heat", 2), ("power", 1),
    ("facts", 1), ("heat", 2), ("clock", 2), ("processes", 4), ("utilization", 5), ("heat", 2), ("utilization", 2),
    ("budget", 2), ("heat", 2), ("clock", 2), ("power", 1), ("facts", 1), ("heat", 2), ("clock", 2),
    ("processes", 30), ("heat", 4),
)  # fmt: skip
"""The same where the process on the GPU has a probe."""
_CHARTED = frozenset({"heat", "clock", "limiters", "axis", "power", "memory", "utilization", "pace", "pace_note"})


def shares_of_height(
    height: int, *, is_overlaid: bool, has_charts: bool, most: dict[str, int], is_probed: bool = False
) -> dict[str, int]:
    """Rows of each section: the same for the same size, so that nothing jumps."""
    granted: dict[str, int] = {}
    free = height
    for name, rows in PROBED_GRANTS if is_probed else GRANTS:
        if (name == "clock" and is_overlaid) or (name in _CHARTED and not has_charts):
            continue
        wanted = min(rows, most.get(name, height) - granted.get(name, 0))
        if name == "processes":
            wanted = min(wanted, free)
        if 0 < wanted <= free:
            granted[name] = granted.get(name, 0) + wanted
            free -= wanted
    return granted


class Page:
    """The rows of one frame; made anew for each."""

    def __init__(
        self, frame: Frame, view: ViewState, gpu: Gpu, drawn: Charts, width: int, *, probes: Probes | None = None
    ) -> None:
        gpus = frame.window.last.gpus
        self.frame, self.view, self.width = frame, view, width
        self.gpu, self.card = gpu, facts.parent_of(gpu, gpus)
        self.name = f"GPU {label(gpu, gpus)}"
        self.columns = charts.columns_for(width)
        self.is_overlaid = width >= OVERLAY_FROM_WIDTH and view.has_color and view.is_overlaid
        self.is_old = view.is_stale or is_stale(gpu, frame.window.interval_s)
        drawn.begin(frame, view)
        count = self.columns or 20
        shown = drawn.grid(count).shown
        at = None
        if view.crosshair is not None and self.columns is not None:
            at = min(shown - 1, max(0, shown - 1 - view.crosshair))
        self.canvas = Canvas(drawn, frame.window, view, gpu, self.card, count, at)
        probe = (probes or Probes()).on(frame.window, gpu.uuid)
        self.told = None if probe is None else detail_rank.told_of(self.canvas, probe)

    def rows(self, height: int) -> list[Row]:
        """Everything that fits on the screen."""
        running = facts.processes_on(self.gpu, self.frame.window.last)
        most = {
            "headline": 2, "footer": 1, "title": 1, "axis": 1, "limiters": 3, "facts_rule": 1, "processes_rule": 1,
            "processes": max(1, len(running)), "facts": facts.count_for(self.width), "power": 6,
            "memory": 4 if self.told is None else detail_rank.MOST_MEMORY, "pace": detail_rank.MOST_PACE,
        }  # fmt: skip
        has_charts = self.columns is not None
        if not has_charts:
            most |= {"headline": 1, "budget": 1, "facts": 0, "processes": 0, "facts_rule": 0, "processes_rule": 0}
        share = shares_of_height(
            height, is_overlaid=self.is_overlaid, has_charts=has_charts, most=most, is_probed=self.told is not None
        )
        sections: tuple[tuple[str, Callable[[int], Sequence[Row]]], ...] = (
            ("title", lambda _: [self.title()]),
            ("headline", self.headline),
            ("budget", self.budget),
            ("heat", self.heat),
            ("clock", self.clock),
            ("limiters", self.limiters),
            ("utilization", self.utilization),
            ("power", lambda rows: self.drawn(charts.power_rows(self.canvas, rows))),
            ("memory", self.memory),
            ("pace", self.pace),
            ("pace_note", lambda _: [detail_rank.note_row(self.told, self.width)] if self.told else []),
            ("axis", lambda _: [charts.axis_row(self.canvas, self.alerts())]),
            ("facts_rule", lambda _: [rule_row([("facts", "bold")], self.width)]),
            ("facts", self.facts),
            ("processes_rule", lambda _: [rule_row([("on this GPU", "bold")], self.width)]),
            ("processes", self.processes),
        )
        shown: list[Row] = []
        for name, make in sections:
            if share.get(name):
                shown += make(share[name])
        shown += [()] * (height - len(shown) - 1)
        return [*shown[: height - 1], footer_row(self.frame, self.view, KEYS, self.width)]

    def drawn(self, parts: Sequence[Cells]) -> list[Row]:
        """Rows of a chart; the values of a GPU that does not answer are grey."""
        if self.is_old or self.gpu.is_lost:
            parts = [part._replace(value=(part.value[0], muted(part.value[1]))) for part in parts]
        return [charts.row_of(part, self.canvas) for part in parts]

    def memory(self, rows: int) -> list[Row]:
        """The device's memory; with a probe what the framework made of it."""
        if self.told is None:
            return self.drawn(charts.memory_rows(self.canvas, rows))
        return self.drawn(detail_rank.memory_rows(self.canvas, self.told, rows))

    def pace(self, rows: int) -> list[Row]:
        """How long steps take, and how much of that is waiting."""
        return [] if self.told is None else self.drawn(detail_rank.pace_rows(self.told, rows))

    def headline(self, rows: int) -> Sequence[Row]:
        """What is wrong on this machine, on every screen."""
        if self.width < SMALL_WIDTH:
            return small_rows(self.frame, self.view, self.width, is_tiny=self.columns is None)[:rows]
        return headline_rows(self.frame, self.view, self.width)[:rows]

    def title(self) -> Row:
        """Which GPU this is, and the time axis."""
        where = [self.name]
        if self.gpu.is_lost:
            where.append("lost")
        where += [self.gpu.mig_profile or model(self.gpu.name), self.gpu.uuid[:12] + "…"]
        if self.card.pci_bus_id is not None:
            where.append(self.card.pci_bus_id.removeprefix("0000").lower())
        return title_row(self.frame, self.view, where, self.width, self.columns)

    def budget(self, rows: int) -> list[Row]:
        """The time budget, with what it adds up to in its rule."""
        if self.columns is None:
            return [*self.numbers(), ((" " + " ".join(f"{name} {part}%" for name, part in self.parts() if part), ""),)]
        if rows == 1:
            return self.drawn(charts.budget_rows(self.canvas, 1))
        return [self.budget_rule(), *self.drawn(charts.budget_rows(self.canvas, rows - 1))]

    def parts(self) -> list[tuple[str, int]]:
        """The time budget of the whole span in percent; what no job here can lose is left out."""
        shares = self.canvas.charts.budget(self.gpu.uuid, self.canvas.columns)
        if shares is None:
            return []
        return [(name, part) for name, part in shares.rounded().items() if name != "peer" or part]

    def budget_rule(self) -> Row:
        """``─ time budget useful 77% · data 0% · throttled 20% · idle 3% · of the last 10 min ─``."""
        roles = {"data": "bold data-text", "throttled": "bold harm"}
        pieces: list[Piece] = [("time budget", "bold")]
        for name, part in self.parts():
            dot = " ·" if len(pieces) > 1 else ""
            more: list[Piece] = [(f"{dot} {name} ", "muted"), (f"{part}%", roles.get(name, "") if part else "")]
            if width_of([*pieces, *more]) + 4 <= self.width:
                pieces += more
        if self.width >= OVERLAY_FROM_WIDTH:
            pieces.append((f" · of the last {units.duration(self.view.span_s)}", "muted"))
        if len(pieces) > 1:
            is_wide = self.width >= OVERLAY_FROM_WIDTH
            how = ", measured" if is_wide else ""
            if not is_measured(self.frame.window, self.gpu.uuid):
                how = f", {ESTIMATE}" if is_wide else f" · {ESTIMATE}"
            if width_of(pieces) + len(how) + 4 <= self.width:
                pieces.append((how, "muted"))
        return rule_row(pieces, self.width)

    def heat(self, rows: int) -> list[Row]:
        """Temperature, with the clock over it where there is room and colour."""
        temperature = charts.temperature_line(self.canvas)
        lines = [temperature, charts.clock_line(self.canvas)] if self.is_overlaid else [temperature]
        head: list[Piece] = [("temperature", "bold"), (" °C", "muted")]
        end: list[Piece] = []
        if self.is_overlaid:
            head += [
                (" left  ", "muted"),
                ("against", ""),
                ("  ", ""),
                ("SM clock", "bold accent"),
                (" MHz right", "muted"),
            ]
            end = [("o overlay", "muted")]
        elif temperature.limit is not None:
            head.append((f" limit {temperature.limit:.0f}", "muted"))
        if self.card is not self.gpu:
            head.append((" of the card", "muted"))
        return [rule_row(head, self.width, end), *self.drawn(charts.line_rows(self.canvas, self.card, lines, rows - 1))]

    def clock(self, rows: int) -> list[Row]:
        """The SM clock by itself."""
        head: list[Piece] = [("SM clock", "bold"), (" MHz", "muted")]
        cool = self.frame.window.baseline(self.card, "sm_clock_cool_mhz")
        if cool is not None:
            head.append((f" {cool:.0f} when cool", "muted"))
        lines = [charts.clock_line(self.canvas)]
        return [rule_row(head, self.width), *self.drawn(charts.line_rows(self.canvas, self.card, lines, rows - 1))]

    def utilization(self, rows: int) -> list[Row]:
        """Utilization as the driver reports it."""
        head: list[Piece] = [("utilization", "bold"), (" % of time in which any kernel ran", "muted")]
        lines = [charts.utilization_line()]
        return [rule_row(head, self.width), *self.drawn(charts.line_rows(self.canvas, self.gpu, lines, rows - 1))]

    def limiters(self, rows: int) -> list[Row]:
        """What held the clock down; where there is room for few, those that did."""
        names = ["SW therm", "SW power", "HW/brake"]
        if rows < len(names):
            names.sort(key=lambda name: not charts.has_been_limited(self.canvas, name))
        return self.drawn([charts.band_row(self.canvas, name) for name in names[:rows]])

    def alerts(self) -> list[Alert]:
        """Alerts about this GPU, its card or its job; the first of two at one column is drawn last."""
        job = self.frame.window.job_of(self.gpu.uuid)
        about = {self.gpu.uuid, self.card.uuid}
        found = [
            alert
            for alert in self.frame.alerts
            if alert.finding.subject.uuid in about
            or (alert.finding.subject.uuid is None and job is not None and alert.finding.subject.job == job.id)
        ]
        return found[::-1]

    def facts(self, rows: int) -> list[Row]:
        """Limits, link, health; under the cross-hair its values instead."""
        found = facts.fact_rows(self.frame.window, self.gpu, self.card, self.width, rows)
        if self.canvas.at is not None:
            return [charts.readout_row(self.canvas, self.width), *found[1:]]
        return found

    def processes(self, rows: int) -> list[Row]:
        """The processes on this GPU, or why there are none to see."""
        last = self.frame.window.last
        running = facts.processes_on(self.gpu, last)
        if not running:
            text = "no process on this GPU"
            instances = sum(gpu.mig_parent_uuid == self.gpu.uuid for gpu in last.gpus)
            if instances:
                text = f"{instances} MIG instances carry the work: n"
            if last.host.sees_host_pids is False:
                text = "PIDs belong to the host: run the container with --pid=host to see processes"
            return [((f" {text}", "muted"),)]
        shown = running[:rows]
        more = len(running) - rows
        note = f"  +{more} more" if more > 0 else ""
        made: list[Row] = [
            facts.process_row(process, self.gpu, self.frame.window, self.width - (len(note) if last else 0))
            for last, process in ((process is shown[-1], process) for process in shown)
        ]
        if note:
            made[-1] = (*made[-1], (note, "muted"))
        return made

    def numbers(self) -> list[Row]:
        """The values alone, where there is no room for a chart."""
        card, gpu = self.card, self.gpu
        values = [
            units.value("_pct", busy_pct(gpu)), units.value("_c", card.temperature_c),
            units.value("_mhz", card.sm_clock_mhz), units.value("_w", card.power_w),
            units.value("_bytes", gpu.memory_used_bytes),
        ]  # fmt: skip
        lines: list[str] = []
        for text in values:
            if lines and len(lines[-1]) + len(text) + 2 <= self.width:
                lines[-1] += f"  {text}"
            else:
                lines.append(f" {text}")
        return [((line, ""),) for line in lines]


class DetailScreen(BoardScreen[None]):
    """The selected GPU; drawn only while it is on top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "back"),
        ("left", "inspect(1)", "inspect"),
        ("right", "inspect(-1)", "inspect"),
        ("shift+left", "inspect_block(1)", "inspect"),
        ("shift+right", "inspect_block(-1)", "inspect"),
    ]

    def __init__(self) -> None:
        """Its charts are its own: they are forgotten with it."""
        super().__init__()
        self._charts = Charts()
        self._gpu: Gpu | None = None
        self._probes = Probes()
        self._shown_columns = 1
        self._block_columns = 1

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """The page of the selected GPU; one that is not reported any more keeps its past."""
        at = selection.selected(frame, view, "gpus")
        gpus = frame.window.last.gpus
        if at is not None and (view.gpu is None or gpus[at].uuid == view.gpu):
            self._gpu = gpus[at]
        elif self._gpu is not None:
            self._gpu = Gpu(uuid=self._gpu.uuid, index=self._gpu.index, name=self._gpu.name, is_lost=True)
        if self._gpu is None:
            return [((" no GPU to show   ", ""), ("Esc", "accent"), (" back", "muted"))]
        page = Page(frame, view, self._gpu, self._charts, width, probes=self._probes)
        self._shown_columns = self._charts.grid(page.canvas.columns).shown
        self._block_columns = page.canvas.columns // BLOCKS
        return page.rows(height)

    def action_inspect(self, columns: int) -> None:
        """Move the cross-hair; the first press puts it on the newest column."""
        app = self.board_app
        at = app.view.crosshair
        wanted = 0 if at is None else at + columns
        app.change(crosshair=min(self._shown_columns - 1, max(0, wanted)))

    def action_inspect_block(self, blocks: int) -> None:
        """Move the cross-hair by one block."""
        self.action_inspect(blocks * self._block_columns)

    def action_leave(self) -> None:
        """Esc: end the cross-hair, come back to now, then leave."""
        app = self.board_app
        if app.view.crosshair is not None:
            app.change(crosshair=None)
        elif app.view.scroll_blocks:
            app.change(scroll_blocks=0)
        else:
            self.app.pop_screen()
