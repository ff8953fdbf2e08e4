"""Who uses the GPUs: jobs with their ranks, memory, load, workers, and the command that started them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpumon import units
from gpumon.model import Gpu, Job, Process
from gpumon.monitor import Frame
from gpumon.signals import workers_of
from gpumon.ui.glyphs import EIGHTHS
from gpumon.ui.panels import ranks
from gpumon.ui.panels.gpu_heads import name_of
from gpumon.ui.panels.line import cells, clip, fill, left, right, section
from gpumon.ui.panels.state import is_stale
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState, process_key

WIDE = 110
"""From here on the table has a RANK column and longer names."""
BUSY_WORKER_PCT = 50.0
"""Of a core: from here on a worker counts as busy; one that waits for a disk does too."""
BARS = 8
COMMAND_X, NARROW_COMMAND_X = 70, 62
"""Cells before the command."""
RULE_CELLS = 14
"""Of the section's rule that are not its end."""
NO_JOB = "No job is using these GPUs. Start one; it appears here within 2 s."
HOST_PIDS = "PIDs belong to the host: run the container with --pid=host to see processes"
OTHER_USER = "– (other user)"


class JobLines(msgspec.Struct, frozen=True):
    """Rows of the table and which process each one is."""

    rows: tuple[Row, ...]
    keys: tuple[str | None, ...]


class _Line(msgspec.Struct, frozen=True):
    """One row to be: a job's sum, one of its ranks, or what is left out."""

    job: Job
    process: Process | None = None
    """None on the job's own line."""
    left_out: int = 0


class _Load(msgspec.Struct, frozen=True):
    """What a trainer and its children do."""

    cpu_pct: float | None
    """Of all of them together, 100 = one core."""
    workers_pct: tuple[float, ...] = ()
    busy: int = 0
    """Of the workers."""


class _Table(msgspec.Struct, frozen=True):
    """What every row needs to know."""

    frame: Frame
    view: ViewState
    processes: Mapping[int, Process]
    gpus: Mapping[str, Gpu]
    loads: Mapping[int, _Load]
    """By trainer."""
    starved: frozenset[str]
    """Jobs of which an alert says that they wait for data."""
    selected: str | None
    width: int
    place: str
    """Head of the column that says whose it is."""
    told: Mapping[int, ranks.Told]
    """What probes report, by trainer; with one of them the wide table has their columns."""


def job_lines(frame: Frame, view: ViewState, width: int, height: int) -> JobLines:
    """The section rule, the heads and as many rows as fit."""
    last = frame.window.last
    processes = {process.pid: process for process in last.processes}
    trainers = [processes[pid] for job in frame.window.jobs for pid in job.trainers if pid in processes]
    table = _Table(
        frame,
        view,
        processes,
        {gpu.uuid: gpu for gpu in last.gpus},
        {
            pid: _load(job, processes[pid], processes)
            for job in frame.window.jobs
            for pid in job.trainers
            if pid in processes
        },
        _starved(frame),
        _selected(view, trainers),
        width,
        _place(trainers),
        ranks.told_of(frame.window, frame.window.jobs),
    )
    jobs = [job for job in frame.window.jobs if any(pid in processes for pid in job.trainers)]
    end = _end_of_rule(table, jobs) if jobs else ""
    rows: list[Row] = [section("JOBS", str(len(jobs)) if jobs else "", end, width)]
    keys: list[str | None] = [None]
    notes = [HOST_PIDS] if last.host.sees_host_pids is False else []
    if not jobs and not notes:
        hidden = last.host.processes_hidden
        notes = [NO_JOB if hidden is None else f"{hidden[:1].upper()}{hidden[1:]}."]
    if jobs:
        rows.append(_heads(table))
        keys.append(None)
    for note in notes:
        rows.append(fill([(clip(f" {note}", width), "muted")], width))
        keys.append(None)
    for line in _chosen(table, jobs, height - len(rows)):
        rows.append(_row(table, line))
        keys.append(_key(line, processes))
    blank = height - len(rows)
    return JobLines((*rows[:height], *[fill((), width)] * blank), (*keys[:height], *[None] * blank))


def _load(job: Job, trainer: Process, processes: Mapping[int, Process]) -> _Load:
    if not job.helpers.get(trainer.pid):
        return _Load(trainer.cpu_pct)
    family = [trainer, *(processes[pid] for pid in job.helpers.get(trainer.pid, ()) if pid in processes)]
    known = [member.cpu_pct for member in family if member.cpu_pct is not None]
    workers = workers_of(job, trainer.pid, processes)
    busy = sum(1 for worker in workers if is_busy(worker))
    return _Load(sum(known) if known else None, tuple(worker.cpu_pct or 0.0 for worker in workers), busy)


def _selected(view: ViewState, trainers: Sequence[Process]) -> str | None:
    if view.part != "jobs" or not trainers:
        return None
    known = [process_key(process) for process in trainers]
    return view.process if view.process in known else known[0]


def _starved(frame: Frame) -> frozenset[str]:
    """What a warm start will cure is no trouble yet: information marks nothing."""
    subjects = [
        alert.finding.subject
        for alert in frame.alerts
        if alert.is_firing() and alert.finding.rule == "data-starved" and alert.finding.severity != "info"
    ]
    uuids = {subject.uuid for subject in subjects}
    names = {subject.job for subject in subjects if subject.uuid is None}
    return frozenset(job.id for job in frame.window.jobs if job.id in names or not uuids.isdisjoint(job.gpu_uuids))


def _place(trainers: Sequence[Process]) -> str:
    """The scheduler's id or the container tells more than a user who owns everything."""
    users = {process.user for process in trainers}
    if len(users) == 1 and any(process.job_id or process.container for process in trainers):
        return "WHERE"
    return "USER"


# --- which lines ---


def _chosen(table: _Table, jobs: Sequence[Job], room: int) -> list[_Line]:
    """All lines if they fit; else the ranks go first, and the job's own line stays."""
    if room <= 0 or not jobs:
        return []
    groups = [_group(table, job, is_only=len(jobs) == 1 and room >= 3) for job in jobs]
    if sum(len(group) for group in groups) <= room:
        return [line for group in groups for line in group]
    heads = [_group(table, job, is_only=False)[:1] for job in jobs] if len(jobs) > 1 or room < 3 else [[]]
    if len(heads) > room:
        return _windowed(table, [group[0] for group in heads], room)
    spare = room - sum(len(head) for head in heads)
    order = sorted(range(len(groups)), key=lambda number: not _has_selected(table, groups[number]))
    shown: dict[int, list[_Line]] = {}
    for number in order:
        ranks = groups[number][len(heads[number]) :]
        kept = _windowed(table, ranks, spare) if ranks and spare > 1 else ranks[:spare]
        shown[number] = [*heads[number], *kept]
        spare -= len(kept)
    return [line for number in range(len(groups)) for line in shown[number]]


def _group(table: _Table, job: Job, *, is_only: bool) -> list[_Line]:
    """A job's line and its ranks; a narrow screen has an only job's sums in the rule instead."""
    ranks = [_Line(job, table.processes[pid]) for pid in job.trainers if pid in table.processes]
    if len(ranks) <= 1 or (is_only and table.width < WIDE):
        return ranks
    return [_Line(job), *ranks]


def _has_selected(table: _Table, group: Sequence[_Line]) -> bool:
    return any(line.process is not None and process_key(line.process) == table.selected for line in group)


def _windowed(table: _Table, lines: list[_Line], room: int) -> list[_Line]:
    """A stretch of lines with the selected one in it; the last row counts what is left out."""
    if len(lines) <= room:
        return lines
    keys = [process_key(line.process) if line.process is not None else None for line in lines]
    at = keys.index(table.selected) if table.selected in keys else 0
    first = min(max(table.view.job_offset, at - room + 2), at, len(lines) - room + 1)
    kept = lines[first : first + room - 1]
    return [*kept, _Line(lines[0].job, None, len(lines) - len(kept))]


def _key(line: _Line, processes: Mapping[int, Process]) -> str | None:
    if line.left_out:
        return None
    process = line.process or next((processes[pid] for pid in line.job.trainers if pid in processes), None)
    return None if process is None else process_key(process)


# --- how a line reads ---


def _heads(table: _Table) -> Row:
    is_wide = table.width >= WIDE
    rank = " RANK" if is_wide else " "
    place = left(table.place, 8 if is_wide else 7)
    time = right("TIME", 8 if is_wide else 6) + ("  " if is_wide else " ")
    numbers = right("GPU", 5) + right("MEM", 7) + right("SM%", 5) + right("CPU%", 6)
    probed = ranks.HEADS if is_wide and table.told else ""
    text = f"{rank}{right('PID', 7)} {place}{numbers}  {left('WORKERS', 8)} {left('busy', 5)}{probed}{time}COMMAND"
    return fill([(text, "muted")], table.width)


def _row(table: _Table, line: _Line) -> Row:
    if line.left_out:
        return fill([(f" … {line.left_out} more: j k", "muted")], table.width)
    process, job = line.process, line.job
    members = [table.processes[pid] for pid in ((process.pid,) if process else job.trainers) if pid in table.processes]
    loads = [table.loads[member.pid] for member in members]
    key = process_key(process) if process is not None else None
    is_selected = key is not None and key == table.selected
    weight = "bold" if is_selected or process is None else ""
    cpu = [load.cpu_pct for load in loads if load.cpu_pct is not None]
    started = [member.started_s for member in members if member.started_s is not None]
    is_wide = table.width >= WIDE
    pieces: list[Piece] = [("›" if is_selected else " ", "accent")]
    if is_wide:
        pieces.append((right(_rank(line), 4), weight))
    lasted = units.duration(table.frame.window.last.time_s - min(started)) if started else units.MISSING
    pieces += [
        (right(str(process.pid) if process else "" if is_wide else "job", 7) + " ", weight),
        (left(_whose(table, members, job), 8 if is_wide else 7), ""),
        (right(_gpus(table, members), 5), ""),
        (right(_memory(members), 7) + right(units.number(_sm(members)), 5), _of_driver(table, members)),
        (right(f"{sum(cpu):.0f}" if cpu else units.MISSING, 6) + "  ", ""),
        *_workers(table, line, loads),
        *(_of_probes(table, line, members) if is_wide and table.told else ()),
        (right(lasted, 8) + "  " if is_wide else right(lasted, 6) + " ", ""),
    ]
    is_rank = is_wide and process is not None and len(job.trainers) > 1
    room = table.width - (COMMAND_X if is_wide else NARROW_COMMAND_X) - (ranks.CELLS if is_wide and table.told else 0)
    if room <= 0:
        return fill(pieces, table.width)
    pieces.append((left(clip(_command(line, members), room), room), "muted" if is_rank else ""))
    return tuple(pieces)


def _rank(line: _Line) -> str:
    if line.process is None:
        return "job"
    return "" if line.process.rank is None else str(line.process.rank)


def _whose(table: _Table, members: Sequence[Process], job: Job) -> str:
    owner = next((member.user for member in members if member.user), job.user) or units.MISSING
    cells = 8 if table.width >= WIDE else 7
    if table.place == "USER":
        return clip(owner, cells)
    return clip(next((member.job_id or member.container or owner for member in members), owner), cells)


def _gpus(table: _Table, members: Sequence[Process]) -> str:
    """``5``, ``0–7``, ``0,3``; with more than fit a count."""
    uuids = {uuid for member in members for uuid in member.gpu_memory_bytes}
    known = [gpu for uuid, gpu in table.gpus.items() if uuid in uuids]
    if not known:
        return units.MISSING
    if any(gpu.mig_parent_uuid is not None for gpu in known):
        names = ",".join(name_of(gpu, tuple(table.gpus.values())) for gpu in known)
        return names if len(names) <= 4 else f"{len(known)}×"
    indexes = sorted(gpu.index for gpu in known)
    if len(indexes) > 1 and indexes == list(range(indexes[0], indexes[-1] + 1)):
        return f"{indexes[0]}–{indexes[-1]}"
    text = ",".join(str(index) for index in indexes)
    return text if len(text) <= 4 else f"{len(indexes)}×"


def _of_driver(table: _Table, members: Sequence[Process]) -> str:
    """Style of what the driver says of them: grey while it is silent about one of their GPUs."""
    interval_s = table.frame.window.interval_s
    gpus = [table.gpus[uuid] for member in members for uuid in member.gpu_memory_bytes if uuid in table.gpus]
    return "muted" if any(is_stale(gpu, interval_s) for gpu in gpus) else ""


def _memory(members: Sequence[Process]) -> str:
    """All of its memory on all GPUs; missing as soon as one part is."""
    amounts = [amount for member in members for amount in member.gpu_memory_bytes.values()]
    known = [amount for amount in amounts if amount is not None]
    return f"{units.memory(sum(known))}G" if known and len(known) == len(amounts) else units.MISSING


def _sm(members: Sequence[Process]) -> float | None:
    """Mean over the GPUs it runs on."""
    shares = [share for member in members for share in (member.gpu_sm_pct or {}).values()]
    return sum(shares) / len(shares) if shares else None


def is_busy(worker: Process) -> bool:
    """It computes or waits for a disk; a worker that sleeps has nothing to do."""
    return worker.state == "D" or (worker.cpu_pct or 0.0) >= BUSY_WORKER_PCT


def _workers(table: _Table, line: _Line, loads: Sequence[_Load]) -> list[Piece]:
    """A bar for each dataloader worker and how many of them are busy; 14 cells."""
    workers = [pct / 100.0 for load in loads for pct in load.workers_pct]
    if not workers:
        return [(" " * 14, "")]
    busy = sum(load.busy for load in loads)
    is_starved = line.job.id in table.starved
    count = left(f"{busy}/{len(workers)}", 5)
    if line.process is None:
        return [(left(count, 14), "bold data-text" if is_starved else "useful-text")]
    bars = workers
    if len(workers) > BARS:
        size = len(workers) / BARS
        groups = [workers[int(number * size) : int((number + 1) * size)] for number in range(BARS)]
        bars = [sum(group) / len(group) for group in groups]
    glyphs = EIGHTHS[table.view.tier]
    text = "".join([glyphs[min(7, max(1, round(load * 8)))] for load in bars])
    return [
        (left(text, BARS) if len(text) < BARS else text, "data" if is_starved else "useful"),
        (" ", ""),
        (count, "bold data-text" if is_starved and busy == len(workers) else ""),
    ]


def _command(line: _Line, members: Sequence[Process]) -> str:
    first = members[0] if members else None
    if first is None:
        return line.job.name
    if first.command is None:
        return OTHER_USER if first.user else first.name or units.MISSING
    return line.job.name if line.process is None else first.command


def _of_probes(table: _Table, line: _Line, members: Sequence[Process]) -> list[Piece]:
    told = [table.told[member.pid] for member in members if member.pid in table.told]
    return ranks.cells(ranks.together(told), is_starved=line.job.id in table.starved)


def _end_of_rule(table: _Table, jobs: Sequence[Job]) -> str:
    """What a narrow table has no columns for; without a probe how to get one."""
    if table.told:
        return "" if table.width >= WIDE else _told_in_rule(table, jobs)
    if all(job.kind == "serving" for job in jobs):
        return ""
    summed = _sum_in_rule(table, jobs)
    if summed:
        return summed
    return ranks.NO_PROBE if cells(ranks.NO_PROBE) + RULE_CELLS <= table.width else ranks.NO_PROBE_SHORT


def _told_in_rule(table: _Table, jobs: Sequence[Job]) -> str:
    """The selected job's pace, else the first one's that reports; named where there are several jobs."""
    reporting = [job for job in jobs if any(pid in table.told for pid in job.trainers)]
    chosen = next((job for job in reporting if _has_selected(table, _group(table, job, is_only=True))), reporting[0])
    text = ranks.sentence(table.told, chosen)
    if len(jobs) > 1:
        return f"{clip(chosen.name, max(8, table.width - cells(text) - RULE_CELLS - 2))}: {text}"
    whole = f"{len(chosen.trainers)} ranks · {text}"
    return whole if len(chosen.trainers) > 1 and cells(whole) + RULE_CELLS <= table.width else text


def _sum_in_rule(table: _Table, jobs: Sequence[Job]) -> str:
    """The only job's sums, where a narrow table has no line for them."""
    if table.width >= WIDE or len(jobs) != 1 or len(jobs[0].trainers) < 2:
        return ""
    members = [table.processes[pid] for pid in jobs[0].trainers if pid in table.processes]
    loads = [table.loads[member.pid] for member in members]
    text = f"{len(members)} ranks · {_memory(members)}"
    workers = sum(len(load.workers_pct) for load in loads)
    return f"{text} · workers {sum(load.busy for load in loads)}/{workers}" if workers else text
