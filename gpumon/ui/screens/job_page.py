"""The rows of one job: the pace and memory of a rank over time, what all of them do, how long it stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpumon import units
from gpumon.model import Job
from gpumon.rules.scope import names
from gpumon.signals import busy_pct
from gpumon.steps import Pace, is_measured, recompiled, standstill_of
from gpumon.ui.panels import chart, rank_charts, ranks
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.gpu_heads import ESTIMATE
from gpumon.ui.panels.headline import headline_rows, small_rows
from gpumon.ui.panels.line import clip, left, right, width_of
from gpumon.ui.panels.rank_charts import Strip, Told
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens import job_ranks
from gpumon.ui.screens.band import band_cells
from gpumon.ui.screens.chrome import Key, footer_row, rule_row, title_row
from gpumon.ui.screens.job_ranks import Member, Sort
from gpumon.ui.view import ViewState, process_key
from gpumon.window import key_of

if TYPE_CHECKING:
    from gpumon.monitor import Frame

LABEL, NOTE = 17, 13
"""Cells left and right of every chart."""
_WIDTHS = (150, 100, 80, 60, 50, 40, 30, 20)
SMALL_WIDTH = 60
KEYS: tuple[Key, ...] = (
    ("?", "help"), ("↑↓", "rank"), ("Enter", "its GPU"), (", .", "sort"), ("K", "signal"), ("e", "why"), ("+-", "span"),
    ("n p", "next job"), ("Esc", "back"),
)  # fmt: skip
GRANTS: tuple[tuple[str, int], ...] = (
    ("headline", 1), ("footer", 1), ("ranks", 1), ("title", 1), ("rule", 1), ("said", 1), ("step", 1), ("heads", 1),
    ("wait", 1), ("axis", 1), ("ranks_rule", 1), ("ranks", 3), ("headline", 1), ("memory", 3), ("ranks", 4),
    ("rate", 1), ("phase", 1), ("blank", 1), ("budget", 2), ("ranks", 8), ("budget", 1), ("step", 1), ("wait", 1),
    ("memory", 3), ("ranks", 16), ("budget", 1), ("step", 2), ("wait", 1), ("rate", 1), ("step", 1), ("budget", 2),
    ("ranks", 400), ("step", 2), ("budget", 2), ("wait", 2), ("rate", 1), ("memory", 3), ("step", 3), ("wait", 1),
    ("budget", 2), ("memory", 3),
)  # fmt: skip
"""Who gets the rows of the screen, in the order in which they are handed out; a grant that does not fit is skipped."""
_CHARTED = frozenset({"step", "wait", "axis", "memory", "rate", "phase", "budget"})
_PROBED = frozenset({"wait", "rate"})


def shares_of_height(height: int, count: int, *, has_charts: bool, is_probed: bool) -> dict[str, int]:
    """Rows of each section for a job of so many ranks: the same for the same size, so that nothing jumps."""
    most = {"ranks": count, "memory": height if is_probed else 1, "step": height if is_probed else 1}
    granted: dict[str, int] = {}
    free = height
    for name, rows in GRANTS:
        if (name in _CHARTED and not has_charts) or (name in _PROBED and not is_probed):
            continue
        wanted = min(rows, most.get(name, height) - granted.get(name, 0))
        if name == "ranks":
            wanted = min(wanted, free)
        if 0 < wanted <= free:
            granted[name] = granted.get(name, 0) + wanted
            free -= wanted
    return granted


class Page:
    """The rows of one frame; made anew for each."""

    def __init__(self, frame: Frame, view: ViewState, job: Job, drawn: Charts, width: int, *, sort: Sort) -> None:
        self.frame, self.view, self.job, self.width, self.sort = frame, view, job, width, sort
        self.members = job_ranks.in_order(job_ranks.members_of(frame, job), sort)
        self.at = self._selected()
        self.columns = next((count for count in _WIDTHS if LABEL + count + NOTE <= width), None)
        self.charts = drawn
        drawn.begin(frame, view)
        member = self.member
        gpu = member.gpus[0] if member is not None and member.gpus else None
        key = "" if member is None else f"rank:{member.process.pid}"
        rank = None if member is None else member.rank
        pace = Pace() if member is None else member.pace
        self.told = Told(drawn, self.columns or 20, key if rank is None else key_of(rank), rank, pace, gpu)
        self.is_probed = any(one.rank is not None for one in self.members)

    def _selected(self) -> int:
        keys = [process_key(one.process) for one in self.members]
        return keys.index(self.view.process) if self.view.process in keys else 0

    @property
    def member(self) -> Member | None:
        """The selected rank."""
        return self.members[self.at] if self.members else None

    def rows(self, height: int) -> list[Row]:
        """Everything that fits on the screen."""
        has_charts = self.columns is not None
        share = shares_of_height(
            height, max(1, len(self.members)), has_charts=has_charts, is_probed=self.is_probed
        )  # fmt: skip
        sections: tuple[tuple[str, Callable[[int], Sequence[Row]]], ...] = (
            ("title", lambda _: [self.title()]),
            ("headline", self.headline),
            ("rule", lambda _: [self.rule()]),
            ("budget", self.budget),
            ("step", self.step),
            ("wait", lambda rows: self.strip(rank_charts.wait_strip(self.told, rows))),
            ("rate", lambda rows: self.strip(rank_charts.rate_strip(self.told, rows))),
            ("memory", self.memory),
            ("phase", lambda _: [self.phase()]),
            ("axis", lambda _: [self.axis()]),
            ("ranks_rule", lambda _: [self.ranks_rule()]),
            ("heads", lambda _: [job_ranks.heads(self.width, self.sort)]),
            ("ranks", self.ranks),
            ("blank", lambda _: [()]),
            ("said", lambda _: [self.said()]),
        )
        shown: list[Row] = []
        for name, make in sections:
            if share.get(name):
                shown += make(share[name])
        shown += [()] * (height - len(shown) - 1)
        keys = [key for key in KEYS if key[0] != "K" or not self.view.is_read_only]
        return [*shown[: height - 1], footer_row(self.frame, self.view, keys, self.width)]

    def title(self) -> Row:
        """Which job this is, and the time axis."""
        return title_row(self.frame, self.view, [f"job {self.job.name}"], self.width, self.columns)

    def headline(self, rows: int) -> Sequence[Row]:
        """What is wrong on this machine, on every screen."""
        if self.width < SMALL_WIDTH:
            return small_rows(self.frame, self.view, self.width, is_tiny=self.columns is None)[:rows]
        return headline_rows(self.frame, self.view, self.width)[:rows]

    def rule(self) -> Row:
        """``─ llama-8b ana · torch · 8 ranks · GPUs 0–7 · 2h14m · train for 12 min ─── rank 5 ─``."""
        job, window = self.job, self.frame.window
        gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids]
        trainers = [one.process for one in self.members]
        parts = [
            job.user or "",
            next((one.framework for one in trainers if one.framework), ""),
            f"{len(trainers)} ranks" if len(trainers) > 1 else "",
            names(gpus, window.last.gpus) if gpus else "",
            "" if job.started_s is None else units.duration(window.last.time_s - job.started_s),
            self.phase_words(),
        ]
        pieces: list[Piece] = [(clip(job.name, 24), "bold")]
        for part in parts:
            more = f" · {part}" if len(pieces) > 1 else f" {part}"
            if part and width_of([*pieces, (more, "")]) + 4 <= self.width:
                pieces.append((more, "muted"))
        whose = self.whose()
        return rule_row(pieces, self.width, [(whose, "muted")] if whose else ())

    def phase_words(self) -> str:
        """``train for 12 min``."""
        job = self.job
        since_s = job.phase_since_s
        lasted = "" if since_s is None else f" for {units.duration(self.frame.window.last.time_s - since_s)}"
        return f"{job.phase}{lasted}"

    def whose(self) -> str:
        """Whose charts these are."""
        member = self.member
        if member is None or len(self.members) < 2:
            return "" if self.is_probed else "no probe"
        return f"charts: rank {self.at if member.number is None else member.number}"

    def strip(self, strip: Strip) -> list[Row]:
        """Label and value, chart, note; what follows below the first row has none of them."""
        room = self.width - LABEL - (self.columns or 0) - 1
        note = next((note for note in strip.notes if len(note) <= room), "")
        value = right(strip.value, LABEL - 2 - len(strip.name))
        first, *others = strip.chart
        head: Row = ((f" {strip.name}", "muted"), (f"{value} ", strip.style), *first, (f" {note}", "muted"))
        return [head, *((((" " * LABEL), ""), *cells) for cells in others)]

    def step(self, rows: int) -> list[Row]:
        """How long a step takes; without a probe how to get one."""
        if self.is_probed:
            return self.strip(rank_charts.step_strip(self.told, rows))
        hint = ranks.NO_PROBE.removeprefix("step – ")
        if len(hint) + LABEL >= self.width:
            hint = ranks.NO_PROBE_SHORT.removeprefix("step – ")
        return [((" step" + right(units.MISSING, LABEL - 6) + " ", "muted"), (clip(hint, self.width - LABEL), "muted"))]

    def memory(self, rows: int) -> list[Row]:
        """Device, reserved, allocated; as much as there is room for."""
        if not self.is_probed or rows < 3:
            return self.strip(rank_charts.device_strip(self.told))
        strips = rank_charts.memory_strips(self.told, rows // 3)
        return [row for strip in strips for row in self.strip(strip)][:rows]

    def budget(self, rows: int) -> list[Row]:
        """Where the time of the selected rank's GPU went."""
        gpu = self.told.gpu
        if gpu is None:
            return [()] * rows
        count = self.told.columns
        shares = self.charts.budget(gpu.uuid, count)
        how = "" if is_measured(self.frame.window, gpu.uuid) else ESTIMATE
        drawn = self.charts.timeline(gpu.uuid, count, rows)
        notes = _budget_notes(shares)
        found: list[Row] = []
        for number, cells in enumerate(drawn):
            head: list[Piece] = [(" " * LABEL, "")]
            if number == 0:
                util = units.value("_pct", busy_pct(gpu))
                head = [(" util", "muted"), (right(util, LABEL - 6), "bold"), (" ", "")]
            elif number == 1:
                head = [(left(f" {how}", LABEL), "muted")]
            note = notes[number] if number < len(notes) else ("", "")
            found.append((*head, *cells, (f" {note[0]}", note[1])))
        return found

    def phase(self) -> Row:
        """When it paused for an evaluation or a checkpoint."""
        count = self.told.columns
        gpu = self.told.gpu
        shares = self.charts.values(gpu.uuid, "paused_pct", count) if gpu is not None else []
        cells = band_cells(shares, count, self.charts.look, "peer")
        rank = self.told.rank
        word = (rank.phase if rank is not None else None) or self.job.phase
        return ((" phase", "muted"), (right(word, LABEL - 7) + " ", ""), *cells, (" ░▒▓ paused", "muted"))

    def axis(self) -> Row:
        """Times under their exact column."""
        view, count = self.view, self.told.columns
        return ((" " * LABEL + chart.axis(view.end_s(self.frame.window.last.time_s), view.span_s, count), "muted"),)

    def ranks_rule(self) -> Row:
        """What the letters mean, and what the table is sorted by."""
        arrow = "↓" if self.sort.is_descending else "↑"
        head: list[Piece] = [("RANKS", "bold"), (f" {job_ranks.LEGEND}", "muted")]
        end: list[Piece] = [(f"sort {self.sort.column} {arrow}", "muted")]
        if width_of(head) + width_of(end) + 8 > self.width:
            head = head[:1]
        return rule_row(head, self.width, end)

    def ranks(self, rows: int) -> list[Row]:
        """The table; the selected rank stays in sight."""
        if not self.members:
            return [((" none of its processes can be seen", "muted"),)]
        member = self.member
        key = None if member is None else process_key(member.process)
        shown, hidden = job_ranks.windowed(self.members, key, rows)
        is_starved = job_ranks.starved(self.frame, self.job)
        gpus = self.frame.window.last.gpus
        found = [
            job_ranks.row(one, self.width, gpus, is_selected=one is member, is_starved=is_starved) for one in shown
        ]
        if hidden and len(found) < rows:
            found.append(((f" … {hidden} more: j k", "muted"),))
        return found

    def said(self) -> Row:
        """The one sentence about the job that no column can tell."""
        text, style = self._said()
        return ((f" {clip(text, self.width - 2)}" if text else "", style),)

    def _said(self) -> Piece:
        job, window = self.job, self.frame.window
        still = standstill_of(window, job)
        if still is not None:
            lasted = units.duration(still.quiet_s)
            if still.label is not None:
                return (f"no step for {lasted}: {still.label}", "")
            text = f"stands still for {lasted}" + (f": {still.why}" if still.why is not None else "")
            return (text, "bold harm" if job.phase == "stall" else "")
        ranks_known = (one.rank for one in self.members if one.rank is not None)
        again = next((found for rank in ranks_known if (found := recompiled(window, rank)) is not None), None)
        if again is not None and job.phase == "train":
            return (f"compiled {again.times} times in the last minute, {again.pct:.0f}% of the time: shapes change", "")
        worst = max(self.members, key=lambda one: one.pace.wait_pct or 0.0, default=None)
        slowest = next((one for one in self.members if one.alert is not None), None)
        if worst is not None and worst.pace.every is not None:
            whom = f" of rank {worst.number}" if len(self.members) > 1 and worst.number is not None else ""
            longest = worst.pace.wait_p95_s if (worst.pace.wait_pct or 0.0) >= ranks.LOUD_PCT else None
            waits = "" if longest is None else f"; the longest waits take {units.step(longest)}"
            return (f"every {units.ordinal(worst.pace.every)} step{whom} stalls{waits}", "data-text")
        if slowest is not None and len(self.members) > 1 and slowest.gpus and slowest.number is not None:
            who = f"rank {slowest.number} on {names(slowest.gpus, window.last.gpus)}"
            return (f"all ranks show the same step time: they wait for the slowest, {who}", "")
        return ("", "")


def _budget_notes(shares: chart.Shares | None) -> list[Piece]:
    """What the budget of the span adds up to, the losses with their colour."""
    if shares is None:
        return []
    parts = shares.rounded()
    loud = {"data": "bold data-text", "throttled": "bold harm"}
    order = ["useful", *sorted(("data", "throttled", "peer", "idle"), key=lambda name: -parts[name])]
    return [
        (f"{name} {parts[name]}%", loud.get(name, "") if parts[name] >= chart.VISIBLE_LOSS_PCT else "muted")
        for name in order
    ]
