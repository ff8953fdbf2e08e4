"""Knows which of the driver's Xid lines belong together, and which one began it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gpumon.model import Event, Job, Severity
from gpumon.rules.logged import DAY_S, delay_s, driver_started_s, is_logged, stands, times
from gpumon.rules.xids import RECOVERY, RECOVERY_ACTIONS, ROOTS, Xid, known
from gpumon.window import Window

CLEANUP, RECOVERY_CODE = 45, 154
_REMEMBERED = "is_last_seen"
"""Name of an event's value: told by a gauge that keeps the last number for ever."""
PROGRAMS = (13, 31, 32, 43)
"""Faults of programs that make the GPU a suspect where different ones meet them."""
_MILDER: tuple[Severity, ...] = ("critical", "warning", "info")
_STORM_S = 60.0
_ASKS = "driver asks for "
_OLD_S = 60.0
"""What happened longer before it came to our knowledge is the past: it explains, and raises nothing."""
_WEEK_S = 604_800.0
_RECOVERY = re.compile(r"recovery action changed from \S{1,10} \([^)]{0,40}\) to 0x([0-9a-fA-F]{1,4})\b")
_PATTERN = re.compile(r"\bXid \([^)]{1,40}\): (\d{1,5})\b")
_NAME = re.compile(r", pid='?(\d{1,10})'?, name=([^,<>]{1,40}),")


class Told(NamedTuple):
    """One line, or a storm of equal ones."""

    age_s: float
    xid: Xid
    event: Event
    times: int
    heard_s: float
    """How long ago it came to our knowledge."""
    is_past: bool
    """It had happened long before."""


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

    def codes(self) -> frozenset[int]:
        """Numbers among the lines."""
        return frozenset(line.xid.code for line in self.lines)

    def is_remembered(self) -> bool:
        """Known from a gauge only, which keeps the last number: when it happened nobody knows."""
        return all(is_remembered(line.event) for line in self.lines)

    def process(self, pid: int) -> str:
        """``pid 4242 (python)``, where a line names it."""
        for line in self.lines:
            found = _NAME.search(line.event.text or "")
            if found is not None and int(found[1]) == pid:
                return f"pid {pid} ({found[2]})"
        return f"pid {pid}"

    def wish(self) -> str | None:
        """What the driver asks for by now: ``a reset``."""
        asked = [line.xid for line in self.lines if line.xid.code == RECOVERY_CODE]
        return asked[-1].meaning.removeprefix(_ASKS) if asked and asked[-1].meaning.startswith(_ASKS) else None


def is_remembered(event: Event) -> bool:
    """The last number that an exporter saw, of unknown age."""
    return _REMEMBERED in (event.values or {})


def xid_of(event: Event) -> int | None:
    """The number of an event, from its field or from the kernel's line."""
    if event.xid is not None:
        return event.xid
    found = _PATTERN.search(event.text or "")
    return int(found[1]) if found else None


def told_lines(window: Window, seconds: float, *, is_past: bool = False) -> list[Told]:
    """The lines of the last seconds, oldest first; with ``is_past`` those from before we came, of a week at most."""
    return [line for line in _lines(window) if line.heard_s < seconds and line.is_past == is_past]


@lru_cache(maxsize=2)
def _lines(window: Window) -> tuple[Told, ...]:
    """Those of a day; several rules ask for them."""
    found = []
    for age_s, event in window.aged_events(DAY_S):
        code = xid_of(event)
        text = event.text or ""
        if code is None and "fallen off the bus" in text:
            code = 79
        if code is None:
            continue
        late_s = delay_s(window, age_s, event)
        if is_logged(event) or late_s < _WEEK_S:
            true_s = max(0.0, age_s + (late_s if is_logged(event) else min(late_s, _OLD_S)))
            is_past = late_s > _OLD_S and not is_logged(event)
            found.append(Told(true_s, _read(known(code), text), event, times(event), age_s, is_past))
    return tuple(found)


def _read(xid: Xid, text: str) -> Xid:
    """The number in the light of its line."""
    action = _RECOVERY.search(text)
    if xid.code == RECOVERY_CODE and action is not None and (number := int(action[1], 16)):
        words = RECOVERY.get(number, f"recovery action {number}")
        return Xid(154, f"{_ASKS}{words}", "hardware", RECOVERY_ACTIONS.get(number, "read-text"), "critical")
    if 144 <= xid.code <= 150 and "Nonfatal" in text:
        return xid._replace(severity="warning")
    return xid


def incidents(window: Window, seconds: float) -> list[Incident]:
    """What happened lately, one per GPU; lines that only clean up after something are none by themselves."""
    by_gpu: dict[str | None, list[Told]] = {}
    for line in (*_standing(window, seconds), *told_lines(window, seconds)):
        by_gpu.setdefault(line.event.gpu_uuid, []).append(line)
    found = []
    for uuid, lines in by_gpu.items():
        dated = [line for line in lines if not is_remembered(line.event)] or lines
        telling = [line for line in dated if line.xid.code != CLEANUP]
        if not telling and not is_remembered(dated[0].event) and not _repeats(window, uuid, dated):
            continue
        lead = min(telling or dated, key=_precedence)
        found.append(Incident(uuid, lead.xid, lead.xid.severity, tuple(dated)))
    return found


def _standing(window: Window, seconds: float) -> list[Told]:
    """Lines of a log from before the last seconds, where broken or suspected hardware still waits for what to do.

    Nothing else tells how such a GPU is: a log has no readings of it. It is over when the driver is loaded anew, or
    says that it asks for nothing any more.
    """
    lines = [line for line in told_lines(window, DAY_S) if is_logged(line.event)]
    if not lines:
        return []
    started_s = driver_started_s(window)
    lines = [line for line in lines if stands(line.age_s, started_s)]
    suspects = {uuid for uuid in {line.event.gpu_uuid for line in lines} if _programs(lines, uuid) > 1}
    older: dict[str | None, list[Told]] = {}
    for line in lines:
        before = older.setdefault(line.event.gpu_uuid, [])
        if line.xid.code == RECOVERY_CODE and "to 0x0" in (line.event.text or ""):
            before.clear()
        elif before or _waits(line.xid) or (line.xid.code in PROGRAMS and line.event.gpu_uuid in suspects):
            before.append(line)
    return [line for lines in older.values() for line in lines if line.heard_s >= seconds]


def _waits(xid: Xid) -> bool:
    return xid.severity == "critical" and xid.blame in ("hardware", "driver")


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


def programs_on(window: Window, uuid: str | None) -> int:
    """How many different processes met a program's fault on a GPU, as far back as the kernel's log goes."""
    return _programs(_lines(window), uuid)


def _programs(lines: Sequence[Told], uuid: str | None) -> int:
    return len({line.event.pid for line in lines if line.xid.code in PROGRAMS and line.event.gpu_uuid == uuid} - {None})
