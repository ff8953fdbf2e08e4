"""How much of everything a screen of a given size shows, and which row is whose: ``layout`` of the overview."""

from __future__ import annotations

import msgspec

from gpumon import units
from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.steps import is_measured
from gpumon.ui.palette import muted
from gpumon.ui.panels import alerts, cells, footer, gpu_heads, gpu_rows, headline, host, jobs, panel, title
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.columns import Columns, Field, Widths, one_line, several_lines
from gpumon.ui.panels.gpu_rows import Subject
from gpumon.ui.panels.line import fill
from gpumon.ui.panels.probes import Probes
from gpumon.ui.panels.state import GpuState, is_stale, states
from gpumon.ui.panels.values import Pace, Values
from gpumon.ui.plan import HOST, Plan, plan
from gpumon.ui.row import Row
from gpumon.ui.view import Part, ViewState, alert_key


class Target(msgspec.Struct, frozen=True):
    """What a row of the screen is about."""

    part: Part
    key: str
    """UUID, process key or alert key."""


class Layout:
    """Draws the overview frame after frame; what has not changed is the same object as before."""

    def __init__(self) -> None:
        self._charts = Charts()
        self._pace = Pace()
        self._probes = Probes()
        self._widths: Widths | None = None
        self._present: frozenset[Field] = frozenset()
        self.targets: list[Target | None] = []
        """Whose each row of the last drawing is."""

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> list[Row]:
        """Exactly ``height`` rows of exactly ``width`` cells."""
        if width < 1 or height < 1:
            self.targets = []
            return []
        self._charts.begin(frame, view)
        self._pace.follow(frame)
        self._measure(frame)
        gpus = frame.window.last.gpus
        rows = plan(len(gpus), width, height, view.density)
        drawing = _Drawing(frame, view, width, rows, charts=self._charts, pace=self._pace, probes=self._probes)
        drawing.draw(self._widths or Widths(), self._present)
        self.targets = drawing.targets[:height]
        found = drawing.rows[: height - 1]
        blank = fill((), width)
        found += [blank] * (height - 1 - len(found))
        self.targets = self.targets[: height - 1] + [None] * (height - min(height - 1, len(self.targets)))
        found.append(drawing.footer())
        return found

    def target(self, y: int) -> Target | None:
        """Whose row ``y`` is."""
        return self.targets[y] if 0 <= y < len(self.targets) else None

    def _measure(self, frame: Frame) -> None:
        """Widths are set by the first cards seen; a column appears with its first value and then stays."""
        gpus = frame.window.last.gpus
        if self._widths is None and gpus:
            limits = [gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None]
            totals = [gpu.memory_total_bytes for gpu in gpus if gpu.memory_total_bytes is not None]
            self._widths = Widths.of(limits, totals)
        if len(self._present) == 5:
            return
        seen: set[Field] = {"use"}
        for gpu in gpus:
            seen |= _reported(gpu)
        self._present |= seen


def _reported(gpu: Gpu) -> set[Field]:
    values: tuple[tuple[Field, float | None], ...] = (
        ("power", gpu.power_w),
        ("temperature", gpu.temperature_c),
        ("clock", gpu.sm_clock_mhz),
        ("memory", gpu.memory_used_bytes),
    )
    return {name for name, value in values if value is not None}


class _Drawing:
    """One frame on its way to rows."""

    def __init__(
        self, frame: Frame, view: ViewState, width: int, rows: Plan, *, charts: Charts, pace: Pace, probes: Probes
    ) -> None:  # fmt: skip
        self.frame = frame
        self.view = view
        self.width = width
        self.charts = charts
        self.pace = pace
        self.probes = probes
        self.plan = rows
        self.rows: list[Row] = []
        self.targets: list[Target | None] = []
        self.subjects = self._subjects()

    def _subjects(self) -> list[Subject]:
        frame, view = self.frame, self.view
        gpus = frame.window.last.gpus
        late = [is_stale(gpu, frame.window.interval_s) for gpu in gpus]
        known = self.charts.keep(
            ("states",),
            (self.pace.version, [(alert.state, alert.finding.severity) for alert in frame.alerts], view.is_stale, late),
            lambda: states(frame, self.pace.shares, is_stale_frame=view.is_stale),
        )
        chosen = view.gpu if any(gpu.uuid == view.gpu for gpu in gpus) else gpus[0].uuid if gpus else None
        children: dict[str, int] = {}
        for gpu in gpus:
            if gpu.mig_parent_uuid is not None:
                children[gpu.mig_parent_uuid] = children.get(gpu.mig_parent_uuid, 0) + 1
        return [
            Subject(
                gpu,
                known.get(gpu.uuid) or GpuState("–", "muted"),
                self.pace.values.get(gpu.uuid, Values()),
                children.get(gpu.uuid, 0),
                view.part == "gpus" and gpu.uuid == chosen,
                view.is_stale or is_late,
            )
            for gpu, is_late in zip(gpus, late, strict=True)
        ]

    def draw(self, widths: Widths, present: frozenset[Field]) -> None:
        """All sections from the title to the alerts."""
        rows = self.plan
        if rows.density in ("cells", "tiny"):
            self._draw_small()
            return
        columns = None
        count = panel.chart_width(self.width)
        if rows.density != "panel":
            columns = (
                several_lines(self.width, widths, present, rows.lines)
                if rows.density == "R2"
                else one_line(self.width, widths, present)
            )
            count = columns.timeline
        if rows.title:
            self._title(self.view.span_s / count)
        self._headline()
        if columns is None:
            self._panels()
        else:
            self._table(columns)
        self._rest()

    def _add(self, rows: list[Row] | tuple[Row, ...], keys: tuple[Target | None, ...] = ()) -> None:
        self.rows += rows
        self.targets += [*keys, *[None] * (len(rows) - len(keys))]

    def _title(self, column_s: float) -> None:
        frame, view = self.frame, self.view
        row = self.charts.keep(
            ("title",),
            (title.told(frame), view.span_s, view.paused_at_s, view.scroll_blocks, column_s, self.width),
            lambda: title.title_row(frame, view, column_s, self.width),
        )
        if view.paused_at_s is None:
            *rest, _, end = row
            row = (*rest, (units.clock(frame.window.last.time_s), ""), end)
        self._add([row])

    def _headline(self) -> None:
        frame, view = self.frame, self.view
        lasted_s = frame.window.last.time_s - (frame.headline.since_s or 0.0)
        both = self.charts.keep(
            ("headline",),
            (msgspec.structs.replace(frame.headline, alert=None), int(lasted_s // 60), lasted_s < 60 and lasted_s,
             view.is_stale and view.age_s, view.toast, view.tier, self.width),
            lambda: headline.headline_rows(frame, view, self.width),
        )  # fmt: skip
        self._add(both[: self.plan.headline])

    def _panels(self) -> None:
        size = panel.heights(self.plan.lines)
        scene = panel.Scene(self.frame, self.view, self.charts, self.width, self.probes)
        for subject in self.subjects[: self.plan.gpus // self.plan.lines]:
            drawn = panel.rows(scene, subject, self.pace.shares.get(subject.gpu.uuid), size)
            self._add(drawn, (Target("gpus", subject.gpu.uuid),) * len(drawn))

    def _table(self, columns: Columns) -> None:
        rows, charts, frame, view = self.plan, self.charts, self.frame, self.view
        uuids = tuple(subject.gpu.uuid for subject in self.subjects)
        losses = charts.losses(uuids, columns.timeline)
        marks = gpu_heads.alert_marks(frame, charts, columns.timeline) if columns.lines > 1 else ()
        heads = charts.keep(
            ("heads",),
            (columns, losses, marks, self.width, charts.look),
            lambda: gpu_heads.heads(columns, losses, marks, charts.look, self.width),
        )
        self._add(heads[: rows.heads])
        visible = rows.gpus // columns.lines
        first = self._first(visible)
        for subject in self.subjects[first : first + visible]:
            drawn = gpu_rows.rows(subject, charts, columns, self.width)
            self._add(drawn, (Target("gpus", subject.gpu.uuid),) * len(drawn))
        self._add([fill((), self.width)] * (rows.gpus - columns.lines * len(self.subjects[first : first + visible])))
        if rows.axis:
            end_s = view.end_s(frame.window.last.time_s)
            note, is_estimate = self._hidden(first, visible), self._is_estimate()
            axis = charts.keep(
                ("axis",),
                (end_s, view.span_s, columns, note, is_estimate, self.width),
                lambda: gpu_heads.axis(end_s, view.span_s, columns, note, is_estimate=is_estimate, width=self.width),
            )
            self._add([axis])

    def _is_estimate(self) -> bool:
        """Whether the waits of any GPU with a job are inferred from outside."""
        window = self.frame.window
        if not window.last.ranks:
            return True
        working = [uuid for job in window.jobs for uuid in job.gpu_uuids]
        return self.charts.keep(
            ("measured",), self.pace.version, lambda: not all(is_measured(window, uuid) for uuid in working)
        )  # fmt: skip

    def _first(self, visible: int) -> int:
        """The first GPU on the screen: where it was scrolled to, but with the selected one in sight."""
        count = len(self.subjects)
        chosen = next((at for at, subject in enumerate(self.subjects) if subject.is_selected), None)
        first = self.view.gpu_offset
        if chosen is not None:
            first = min(max(first, chosen - visible + 1), chosen)
        return max(0, min(first, count - visible))

    def _hidden(self, first: int, visible: int) -> str:
        """``↑ 2 ↓ 4 more, 1 ■``: what is scrolled away, and how much of it is wrong."""
        above, below = self.subjects[:first], self.subjects[first + visible :]
        if not above and not below:
            return ""
        wrong = sum(1 for subject in (*above, *below) if subject.state.mark != " ")
        text = " ".join(f"{arrow} {len(group)}" for arrow, group in (("↑", above), ("↓", below)) if group)
        return f"{text} more, {wrong} ■" if wrong else f"{text} more"

    def _rest(self) -> None:
        rows, slow = self.plan, self.pace.frame or self.frame
        view, width = self.view, self.width
        if rows.host:
            self._add(
                self.charts.keep(
                    ("host",),
                    (self.pace.version, self.charts.stamp(host.spark_width(width)), width, view.is_stale),
                    lambda: self._aged(host.host_rows(slow, self.charts, width)),
                )
            )
        if rows.jobs:
            lines = self.charts.keep(
                ("jobs",),
                # Of large jobs the very same table comes several times.
                (slow.window.last.processes, slow.window.last.ranks, view.part, view.process, view.job_offset,
                 view.tier, width, rows.jobs,
                 [subject.is_muted for subject in self.subjects], [alert.state for alert in self.frame.alerts]),
                lambda: self._job_lines(slow),
            )  # fmt: skip
            self._add(lines.rows, tuple(None if key is None else Target("jobs", key) for key in lines.keys))
        if rows.alerts:
            known = [(alert_key(alert), alert.state, alert.muted_until_s) for alert in self.frame.alerts]
            listed = self.charts.keep(
                ("alerts",),
                (self.pace.version, self.frame.is_judged, known, view.part, view.alert, view.alert_offset, width,
                 rows.alerts),
                lambda: alerts.alert_lines(self.frame, view, width, rows.alerts),
            )  # fmt: skip
            self._add(listed.rows, tuple(None if key is None else Target("alerts", key) for key in listed.keys))

    def _job_lines(self, slow: Frame) -> jobs.JobLines:
        lines = jobs.job_lines(slow, self.view, self.width, self.plan.jobs)
        return jobs.JobLines(self._aged(lines.rows), lines.keys)

    def _aged(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """The rows in grey while no frame comes."""
        if not self.view.is_stale:
            return rows
        return tuple(tuple((text, style if style == "rule" else muted(style)) for text, style in row) for row in rows)

    def _draw_small(self) -> None:
        rows, width = self.plan, self.width
        is_tiny = rows.density == "tiny"
        if rows.title:
            if width >= 60:
                self._title(self.view.span_s / cells.BUDGET_COLUMNS)
            else:
                self._add([cells.small_title(self.frame, width)])
        if width >= 70:
            self._headline()
        else:
            self._add(headline.small_rows(self.frame, self.view, width, is_tiny=width < 40)[: rows.headline])
        if is_tiny:
            self._draw_tiny()
            return
        drawn = cells.cell_rows(self.subjects, width)[: rows.gpus]
        self._add(drawn + [fill((), width)] * (rows.gpus - len(drawn)))
        if rows.axis:
            self._add([self._budget()])
        if rows.host == HOST:
            self._rest()
            return
        if rows.host:
            self._add([cells.host_row(self.frame.window.last.host, width)])
        if rows.jobs:
            self._add([cells.job_row(self.frame, width)])

    def _draw_tiny(self) -> None:
        drawn = cells.tiny_rows(self.subjects, self.width, max(1, self.plan.gpus))[: self.plan.gpus]
        self._add(drawn)
        if self.plan.gpus > len(drawn):
            self._add([self._budget()])

    def _budget(self) -> Row:
        known = [self.charts.budget(subject.gpu.uuid, cells.BUDGET_COLUMNS) for subject in self.subjects]
        return cells.budget_row([part for part in known if part is not None], self.charts, self.width)

    def footer(self) -> Row:
        """The last row, whatever the size."""
        view, cost = self.view, self.pace.sample_ms
        return self.charts.keep(
            ("footer",),
            (view.part, view.paused_at_s, view.scroll_blocks, view.is_read_only, footer.age(self.frame, view),
             view.self_cpu_pct, cost, self.frame.headline.alert is None, self.width),
            lambda: footer.footer_row(self.frame, view, self.width, cost),
        )  # fmt: skip


def layout(frame: Frame, view: ViewState, width: int, height: int) -> list[Row]:
    """One frame without a memory: for tests and pictures."""
    return Layout().rows(frame, view, width, height)
