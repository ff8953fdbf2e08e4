"""Knows which of the driver's Xid lines belong together, and which one began it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.model import Event, Job, Severity
from gpumon.rules.xids import RECOVERY, ROOTS, Xid, known
from gpumon.window import Window

CLEANUP = 45
_MILDER: tuple[Severity, ...] = ("critical", "warning", "info")
_STORM_S = 60.0
_OLD_S = 60.0
"""What happened longer before it came to our knowledge is the past: it explains, and raises nothing."""
_WEEK_S = 604_800.0
_RECOVERY = re.compile(r"recovery action changed from \S+ \([^)]*\) to 0x([0-9a-fA-F]+)")
_PATTERN = re.compile(r"Xid \([^)]*\): (\d+)")


class Told(NamedTuple):
    """One line, or a storm of equal ones."""

    age_s: float
    xid: Xid
    event: Event
    times: int


class Incident(NamedTuple):
    """What happened to one GPU lately."""

    uuid: str | None
    lead: Xid
    """The number that began it, or the worst."""
    severity: Severity
    lines: tuple[Told, ...]
    """Oldest first."""

    def counted(self) -> str:
        """``Xid 48, 63 ×2, 94``, in the order in which they came."""
        sums: Counter[int] = Counter()
        for line in self.lines:
            sums[line.xid.code] += line.times
        return "Xid " + ", ".join(f"{code} ×{count}" if count > 1 else f"{code}" for code, count in sums.items())

    def pids(self) -> tuple[int, ...]:
        """Processes that the lines name."""
        return tuple(dict.fromkeys(line.event.pid for line in self.lines if line.event.pid is not None))


def xid_of(event: Event) -> int | None:
    """The number of an event, from its field or from the kernel's line."""
    if event.xid is not None:
        return event.xid
    found = _PATTERN.search(event.text or "")
    return int(found[1]) if found else None


def told_lines(window: Window, seconds: float, *, is_past: bool = False) -> list[Told]:
    """The lines of the last seconds, oldest first; with ``is_past`` those from before we came, of a week at most."""
    found = []
    for age_s, event in window.aged_events(seconds):
        code = xid_of(event)
        text = event.text or ""
        if code is None and "fallen off the bus" in text:
            code = 79
        if code is None:
            continue
        old_s = 0.0 if event.time_s is None else window.last.time_s - age_s - event.time_s
        if (old_s > _OLD_S) == is_past and old_s < _WEEK_S:
            times = int((event.values or {}).get("count", 1.0))
            found.append(Told(max(0.0, age_s + min(old_s, _OLD_S)), _read(known(code), text), event, times))
    return found


def _read(xid: Xid, text: str) -> Xid:
    """The number in the light of its line."""
    action = _RECOVERY.search(text)
    if xid.code == 154 and action is not None and (number := int(action[1], 16)):
        words = RECOVERY.get(number, f"recovery action {number}")
        return Xid(154, f"driver asks for {words}", "hardware", "read-text", "critical")
    if 144 <= xid.code <= 150 and "Nonfatal" in text:
        return xid._replace(severity="warning")
    return xid


def incidents(window: Window, seconds: float) -> list[Incident]:
    """What happened lately, one per GPU; lines that only clean up after something are none by themselves."""
    by_gpu: dict[str | None, list[Told]] = {}
    for line in told_lines(window, seconds):
        by_gpu.setdefault(line.event.gpu_uuid, []).append(line)
    found = []
    for uuid, lines in by_gpu.items():
        telling = [line for line in lines if line.xid.code != CLEANUP]
        if not telling and not _repeats(window, uuid, lines):
            continue
        lead = min(telling or lines, key=_precedence)
        found.append(Incident(uuid, lead.xid, lead.xid.severity, tuple(lines)))
    return found


def _precedence(line: Told) -> tuple[int, int, float]:
    code = line.xid.code
    return _MILDER.index(line.xid.severity), ROOTS.index(code) if code in ROOTS else len(ROOTS), -line.age_s


def _repeats(window: Window, uuid: str | None, lines: Sequence[Told]) -> bool:
    """Clean-up in three different minutes while nobody left the GPU: then it follows from nothing."""
    left_s = [age for age, event in window.aged_events(3600.0) if event.kind == "process-exit"]
    left_s += [window.elapsed_s - ending.elapsed_s for ending in window.ended_jobs if uuid in ending.job.gpu_uuids]
    alone = [line for line in lines if not any(abs(line.age_s - age) <= _STORM_S for age in left_s)]
    return len({int(line.age_s // _STORM_S) for line in alone}) >= 3


def job_of(window: Window, incident: Incident) -> Job | None:
    """The job that it hit: that of a process it names, else the one on the GPU at that time."""
    pids = set(incident.pids())
    jobs = (*window.jobs, *(ending.job for ending in reversed(window.ended_jobs)))
    for job in jobs:
        if pids & {*job.trainers, *(pid for helpers in job.helpers.values() for pid in helpers)}:
            return job
    then_s = window.last.time_s - incident.lines[0].age_s
    on_it = [job for job in jobs if incident.uuid in job.gpu_uuids]
    return next((job for job in on_it if job.started_s is None or job.started_s <= then_s), None)


def programs_on(window: Window, uuid: str | None, codes: Sequence[int]) -> int:
    """How many different processes met one of these numbers on a GPU, as far back as the kernel's log goes."""
    lines = [*told_lines(window, 86_400.0, is_past=True), *told_lines(window, 86_400.0)]
    return len({line.event.pid for line in lines if line.xid.code in codes and line.event.gpu_uuid == uuid} - {None})
