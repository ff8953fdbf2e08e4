"""Knows what the lines of several ranks about one collective that timed out come to: which of them is missing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Cost, Event, Evidence, Finding, Severity, Subject
from gpumon.rules.reports import FATAL, TOLD_S, number, ranks_named, reports
from gpumon.window import Window

_OPERATION = re.compile(r"OpType=(\w{1,40})")
_FIRST_S = 1800.0
"""What made a rank fail happened as long before as a watchdog waits."""
_SHAPES_MAX = 4
_SAME_ON_ALL = frozenset({"ALLREDUCE", "BROADCAST", "REDUCE", "ALLREDUCE_COALESCED"})
"""Operations in which every rank has equally many elements."""
_SILENT_SHARE = 0.5
"""More ranks than this share say something, or the silent ones are merely not in this log."""
_WORDS = {
    "cuda-oom": "out of GPU memory",
    "cuda-error": "a CUDA error",
    "bus-error": "a worker's bus error",
    "worker-killed": "a killed worker",
    "oom-kill": "killed for memory",
    "segfault": "a segmentation fault",
    "ram-exhausted": "out of memory",
    "xid": "an Xid",
    "gpu-lost": "a lost GPU",
}
_EXPLAINS = {
    "cuda-oom": ("oom-risk", "fragmentation", "gpu-contention", "vram-orphaned"),
    "bus-error": ("shm-full",),
    "worker-killed": ("ram-pressure",),
    "oom-kill": ("ram-pressure",),
    "ram-exhausted": ("ram-pressure",),
}


class _Waits(NamedTuple):
    """What the ranks said."""

    timeouts: Sequence[tuple[float, Event]]
    behind: dict[float, float]
    """Rank -> the last collective that it began, as far as told."""
    sequence: float | None
    """Of the collective that most wait in."""
    operation: str | None

    def waiting(self) -> set[float]:
        """Ranks whose watchdog gave up."""
        return {rank for _, event in self.timeouts if (rank := number(event, "rank")) is not None}


class _Cause(NamedTuple):
    """What the ranks' lines say of the reason."""

    id: str | None
    text: str
    fix: str
    evidence: tuple[Evidence, ...] = ()
    severity: Severity = "critical"
    explained_by: tuple[str, ...] = ()


def hang_told(window: Window, fixes: Sequence[str]) -> Iterator[Finding]:
    """One finding from all the lines of watchdogs, stores and heartbeat monitors."""
    timeouts = reports(window, "nccl-timeout")
    if not timeouts:
        return
    waits = _read(timeouts, reports(window, "nccl-status"))
    cause = _cause(window, waits)
    waiting = waits.waiting()
    if number(timeouts[0][1], "world_size") is not None:
        summary = "ranks did not find each other"
    else:
        summary = f"a collective timed out{f': {waits.operation}' if waits.operation else ''}"
        summary += f" on {ranks_named(waiting)}" if waiting else ""
    yield Finding(
        rule="collective-hang",
        severity=cause.severity,
        confidence="certain",
        subject=Subject(kind="host"),
        summary=summary[:48],
        cause=cause.id,
        cause_text=cause.text,
        fix_text=cause.fix,
        evidence=(*_evidence(waits), *cause.evidence, *_warnings(window)),
        cost=Cost(lost_pct=100.0),
        fixes=(cause.fix, *fixes),
        explained_by=cause.explained_by,
        onset_s=max(age_s + _ran_s(event) for age_s, event in timeouts),
        has_happened=True,
    )


def _ran_s(event: Event) -> float:
    """How long before its line a collective began to wait, in a log that has a clock."""
    return 0.0 if event.time_s is None else number(event, "ran_s") or 0.0


def _read(timeouts: Sequence[tuple[float, Event]], statuses: Sequence[tuple[float, Event]]) -> _Waits:
    sequences = Counter(seq for _, event in timeouts if (seq := number(event, "seq")) is not None)
    sequence = min(sequences, key=lambda seq: (-sequences[seq], seq), default=None)
    operations = Counter(match[1] for _, event in timeouts if (match := _OPERATION.search(event.text or "")))
    behind: dict[float, float] = {}
    for _, event in statuses:
        rank, last = number(event, "rank"), number(event, "last_enqueued")
        if rank is not None and last is not None and (number(event, "group") or 0.0) == 0.0:
            behind[rank] = max(last, behind.get(rank, last))
    return _Waits(timeouts, behind, sequence, next(iter(operations)) if len(operations) == 1 else None)


def _cause(window: Window, waits: _Waits) -> _Cause:
    """The surest reason first."""
    return _died(window) or _absent(waits) or _differs(waits) or _late(waits) or _silent(waits) or _open(waits)


def _died(window: Window) -> _Cause | None:
    """Something else in the log made one of them fail before: the rest only waited for it."""
    before: list[Event] = []
    for _, event in reports(window, "nccl-timeout", *FATAL, seconds=TOLD_S + _FIRST_S):
        if event.kind == "nccl-timeout":
            break
        before.append(event)
    if not before:
        return None
    event = before[0]
    rank = number(event, "rank")
    who = "a rank" if rank is None else f"rank {rank:.0f}"
    text = f"{who} failed first: {_WORDS[event.kind]}; the others waited for it"
    shown = (Evidence(name="reported first", value=event.text[:160]),) if event.text else ()
    fix = f"mend that first: {_WORDS[event.kind]}"
    return _Cause("rank-failed", text, fix, shown, "warning", _EXPLAINS.get(event.kind, ()))


def _absent(waits: _Waits) -> _Cause | None:
    """Ranks that never came to the start."""
    world = next(
        ((w, j) for _, one in waits.timeouts if (w := number(one, "world_size")) and (j := number(one, "joined"))), None
    )
    if world is None:
        return None
    size, joined = world
    text = f"{joined:.0f} of {size:.0f} ranks came; the others never started or cannot reach it"
    return _Cause(
        "ranks-missing",
        text,
        "read the logs of the ranks that are missing; check MASTER_ADDR, MASTER_PORT and the firewall",
    )


def _late(waits: _Waits) -> _Cause | None:
    """Ranks that had not begun the collective in which the others wait."""
    sequence, waiting = waits.sequence, waits.waiting()
    if sequence is None:
        return None
    late = {rank: last for rank, last in waits.behind.items() if last < sequence and rank not in waiting}
    if not late:
        return None
    text = f"{ranks_named(late)} had not begun collective {sequence:.0f}; {len(waiting)} waited there"
    shown = tuple(
        Evidence(name=f"rank {rank:.0f}", value=f"last began collective {last:.0f}")
        for rank, last in sorted(late.items())[:_SHAPES_MAX]
    )
    return _Cause("rank-behind", text, f"look at {ranks_named(late)}: py-spy dump, its log, its data", shown)


class _Call(NamedTuple):
    """A collective as one rank called it."""

    operation: str
    sequence: float | None
    elements: float | None

    def shown(self) -> str:
        """``ALLREDUCE 57 of 4096``."""
        number_ = "" if self.sequence is None else f" {self.sequence:.0f}"
        return self.operation + number_ + ("" if self.elements is None else f" of {self.elements:.0f}")


def _differs(waits: _Waits) -> _Cause | None:
    """Ranks that wait in different collectives: their programs went different ways."""
    of_rank: dict[float, _Call] = {}
    for _, event in waits.timeouts:
        rank, match = number(event, "rank"), _OPERATION.search(event.text or "")
        if rank is not None and match is not None:
            of_rank.setdefault(rank, _Call(match[1], number(event, "seq"), number(event, "numel_in")))
    operations = {call.operation for call in of_rank.values()}
    sequences = {call.sequence for call in of_rank.values()}
    if len(operations) == 1 and operations <= _SAME_ON_ALL and len(sequences) == 1:
        is_same = len({call.elements for call in of_rank.values()}) == 1
    else:
        is_same = len(operations) <= 1 and len(sequences) <= 1
    if is_same:
        return None
    seen: dict[_Call, list[float]] = {}
    for rank, call in of_rank.items():
        seen.setdefault(call, []).append(rank)
    shown = tuple(
        Evidence(name=ranks_named(ranks), value=call.shown()) for call, ranks in list(seen.items())[:_SHAPES_MAX]
    )
    text = "; ".join(f"{one.name}: {one.value}" for one in shown[:2])
    fix = "look for branches that depend on the rank or on its data: every rank must call the same"
    return _Cause("different-collectives", text[:73], fix, shown)


def _silent(waits: _Waits) -> _Cause | None:
    """Ranks between those that speak, of which nothing is heard."""
    heard = waits.waiting() | set(waits.behind)
    if len(heard) < 2:
        return None
    quiet = set(range(int(max(heard)) + 1)) - {int(rank) for rank in heard}
    if not quiet or len(quiet) >= _SILENT_SHARE * len(heard):
        return None
    text = f"nothing is heard of {ranks_named(quiet)}; {len(waits.waiting())} waited in vain"
    return _Cause("rank-silent", text, f"read the log of {ranks_named(quiet)}: it went first, or still hangs")


def _open(waits: _Waits) -> _Cause:
    stuck = next((number(event, "stuck_s") for _, event in waits.timeouts if number(event, "stuck_s")), None)
    waiting = waits.waiting()
    if stuck is not None or (waits.sequence is None and waits.operation is None):
        text = "NCCL's watchdog itself hung: a CUDA or NCCL call, or the GIL"
        return _Cause("watchdog-stuck", text, "py-spy dump --native each rank; a debugger or the GIL may hold it")
    where = "" if waits.sequence is None else f" number {waits.sequence:.0f}"
    who = f"{ranks_named(waiting)} wait{'s' * (len(waiting) == 1)}" if waiting else "it waits"
    text = f"{who} in it{where}; who is missing its lines do not tell"
    return _Cause(None, text, "compare the logs of all ranks: whose last step is the lowest?")


def _evidence(waits: _Waits) -> Iterator[Evidence]:
    ran_s = [ran for _, event in waits.timeouts if (ran := number(event, "ran_s")) is not None]
    limit_s = next((limit for _, event in waits.timeouts if (limit := number(event, "timeout_s"))), None)
    if waits.operation is not None:
        yield Evidence(name="operation", value=waits.operation)
    if waits.sequence is not None:
        yield Evidence(name="number of the collective", value=waits.sequence)
    if ran_s:
        judged_by = None if limit_s is None else f"limit {units.duration(limit_s)}"
        yield Evidence(name="waited", value=float(round(max(ran_s))), unit="s", judged_by=judged_by)
    if waits.waiting():
        yield Evidence(name="ranks that gave up", value=ranks_named(waits.waiting()))


def _warnings(window: Window) -> Iterator[Evidence]:
    """The first of NCCL's own warnings, which mostly names the transport."""
    for _, event in reports(window, "nccl-warning")[:2]:
        if event.text:
            yield Evidence(name="NCCL warned", value=event.text[:120])
