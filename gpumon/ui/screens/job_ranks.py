"""The ranks of one job as a table: what each does, how long its steps take and wait, and what memory it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Alert, Gpu, Job, Process, Rank
from gpumon.monitor import Frame
from gpumon.signals import label, workers_of
from gpumon.steps import Pace, detailed, used_bytes
from gpumon.ui.glyphs import MARKS
from gpumon.ui.panels.jobs import is_busy
from gpumon.ui.panels.line import clip, fill, left, right
from gpumon.ui.panels.ranks import LOUD_PCT, SAMPLED
from gpumon.ui.panels.state import STYLE_OF_SEVERITY
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import process_key

LETTERS = 8
"""Workers beyond this are counted, not drawn."""
HEADS = " RANK GPU    PID MAIN CPU%  WORKERS    STEP s  WAIT  ALLOC   RESV RETRY   BEAT"
"""Seventy-eight cells; wider screens have more behind it."""
MORE_HEADS = "  P95 s  PHASE       NOTE"
NOTE_X = len(HEADS) + 21
LEGEND = "workers: B busy  D on disk  s asleep  ! gone"
LATE_S = 10.0
"""A rank whose last sign of life is older is silent: red where an alert is about it, others wait for that one."""


class Member(NamedTuple):
    """One rank: its process, what its probe reports, and what is wrong with it."""

    process: Process
    rank: Rank | None
    pace: Pace
    gpus: tuple[Gpu, ...]
    workers: tuple[Process, ...]
    alert: Alert | None
    """The worst one that is about this very rank."""

    @property
    def number(self) -> int | None:
        """Its rank, by its environment or its probe."""
        return self.process.rank if self.rank is None or self.rank.rank is None else self.rank.rank


class Sort(NamedTuple):
    """By which column the table is sorted."""

    column: str = "RANK"
    is_reversed: bool = False

    def next(self, by: int) -> Sort:
        """By the next column; its natural order first."""
        at = (COLUMNS.index(self.column) + by) % len(COLUMNS)
        return Sort(COLUMNS[at])

    @property
    def is_descending(self) -> bool:
        """Ranks count up; of everything else the largest is looked for."""
        return (self.column != "RANK") != self.is_reversed


_KEYS: dict[str, Callable[[Member], float | None]] = {
    "RANK": lambda one: one.number,
    "CPU%": lambda one: one.process.cpu_pct,
    "STEP": lambda one: one.pace.step_s,
    "WAIT": lambda one: one.pace.wait_pct,
    "ALLOC": lambda one: None if one.rank is None else used_bytes(one.rank),
    "BEAT": lambda one: None if one.rank is None else one.rank.heartbeat_age_s,
}
COLUMNS = tuple(_KEYS)


def members_of(frame: Frame, job: Job) -> list[Member]:
    """The ranks that are seen, in rank order."""
    window = frame.window
    processes = {process.pid: process for process in window.last.processes}
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    ranks = {rank.pid: rank for rank in window.last.ranks}
    found = []
    for pid in job.trainers:
        if pid not in processes:
            continue
        process, rank = processes[pid], ranks.get(pid)
        own = tuple(gpus[uuid] for uuid in process.gpu_memory_bytes if uuid in gpus)
        found.append(
            Member(
                process, rank, detailed(window, rank) if rank is not None else Pace(), own,
                workers_of(job, pid, processes), _alert_about(frame, job, pid, own),
            )
        )  # fmt: skip
    return found


def _alert_about(frame: Frame, job: Job, pid: int, gpus: Sequence[Gpu]) -> Alert | None:
    """The first of those that fire: the list has the worst on top."""
    uuids = {gpu.uuid for gpu in gpus}
    for alert in frame.alerts:
        subject = alert.finding.subject
        if not alert.is_firing() or alert.suppressed_by is not None or alert.finding.severity == "info":
            continue
        if subject.pid == pid or subject.uuid in uuids:
            return alert
        if len(job.trainers) == 1 and subject.kind == "job" and subject.job == job.id:
            return alert
    return None


def in_order(members: Sequence[Member], sort: Sort) -> list[Member]:
    """Sorted as the reader chose; what has no value stays behind, and ties in rank order."""
    key = _KEYS[sort.column]
    known = [one for one in members if key(one) is not None]
    unknown = [one for one in members if key(one) is None]
    known.sort(key=lambda one: key(one) or 0.0, reverse=sort.is_descending)
    return [*known, *unknown]


def windowed(members: Sequence[Member], selected: str | None, room: int) -> tuple[list[Member], int]:
    """A stretch of members with the selected one in it, and how many are left out."""
    if len(members) <= room:
        return list(members), 0
    keys = [process_key(one.process) for one in members]
    at = keys.index(selected) if selected in keys else 0
    shown = max(1, room - 1)
    first = min(max(0, at - shown + 1), len(members) - shown)
    return list(members[first : first + shown]), len(members) - shown


def heads(width: int, sort: Sort) -> Row:
    """The column that is sorted by stands out."""
    text = HEADS + (MORE_HEADS if width > NOTE_X else "")
    at = text.index(sort.column)
    end = at + len(sort.column)
    return fill([(text[:at], "muted"), (text[at:end], "bold"), (text[end:], "muted")], width)


def row(member: Member, width: int, gpus: Sequence[Gpu], *, is_selected: bool, is_starved: bool) -> Row:
    """One rank."""
    weight = "bold" if is_selected else ""
    process, rank, pace = member.process, member.rank, member.pace
    mark: Piece = (" ", "")
    if member.alert is not None:
        severity = member.alert.finding.severity
        mark = (MARKS[severity], STYLE_OF_SEVERITY[severity])
    number = "" if member.number is None else str(member.number)
    is_waiting = is_starved and (pace.wait_pct or 0.0) >= LOUD_PCT
    beat_s = None if rank is None else rank.heartbeat_age_s
    is_late = beat_s is not None and beat_s >= max(LATE_S, 5 * (pace.step_s or 0.0)) and member.alert is not None
    pieces: list[Piece] = [
        ("›" if is_selected else " ", "accent"),
        mark,
        (right(number, 3) + right(_gpus(member, gpus), 4) + right(str(process.pid), 7) + " ", weight),
        (left(process.main_thread_state or process.state or units.MISSING, 4), ""),
        (right(units.number(process.cpu_pct), 5) + "  ", ""),
        (left(_letters(member), LETTERS) + "  ", "bold data-text" if is_waiting else "useful-text"),
        (right(SAMPLED if pace.is_sampled else _seconds(pace.step_s), 7), ""),
        (right(units.value("_pct", pace.wait_pct), 6), "bold data-text" if is_waiting else ""),
        (right(units.memory(None if rank is None else used_bytes(rank)), 7), ""),
        (right(units.memory(None if rank is None else rank.reserved_bytes), 7), ""),
        (right(_count(None if rank is None else rank.alloc_retries), 6), ""),
        (right(units.MISSING if beat_s is None else units.duration(beat_s), 7), "bold harm" if is_late else ""),
    ]
    if width > NOTE_X:
        note, style = _note(member)
        pieces += [
            (right(_seconds(pace.p95_s), 7) + "  ", ""),
            (left((rank.phase if rank is not None else None) or units.MISSING, 12), ""),
            (clip(note, width - NOTE_X), style),
        ]
    return fill(pieces, width)


def _note(member: Member) -> Piece:
    """What stands out in this rank."""
    if member.alert is not None:
        return (member.alert.finding.rule, STYLE_OF_SEVERITY[member.alert.finding.severity])
    if member.rank is not None and (member.rank.waiting_s or 0.0) >= LATE_S:
        return (f"waits for a batch for {units.duration(member.rank.waiting_s or 0.0)}", "data-text")
    return (member.process.command or member.process.name or "", "muted")


def _gpus(member: Member, gpus: Sequence[Gpu]) -> str:
    if not member.gpus:
        return units.MISSING
    return label(member.gpus[0], gpus) if len(member.gpus) == 1 else f"{len(member.gpus)}×"


def _letters(member: Member) -> str:
    """One letter a worker; a count where there are more than fit."""
    if not member.workers:
        return units.MISSING
    if len(member.workers) > LETTERS:
        return f"{sum(map(is_busy, member.workers))}/{len(member.workers)}"
    return "".join(map(_letter, member.workers))


def _letter(worker: Process) -> str:
    if worker.state in {"Z", "X"}:
        return "!"
    return "D" if worker.state == "D" else "B" if is_busy(worker) else "s"


def _seconds(value: float | None) -> str:
    return units.MISSING if value is None else units.step(value).removesuffix(" s")


def _count(value: int | None) -> str:
    return units.MISSING if value is None else str(value)


def starved(frame: Frame, job: Job) -> bool:
    """An alert says that this job waits for data."""
    uuids = set(job.gpu_uuids)
    return any(
        alert.is_firing()
        and alert.finding.rule == "data-starved"
        and alert.finding.severity != "info"
        and (alert.finding.subject.job == job.id or alert.finding.subject.uuid in uuids)
        for alert in frame.alerts
    )
