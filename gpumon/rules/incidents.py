"""Knows which of the driver's Xid lines belong together, and which one began it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Literal, NamedTuple

from gpumon.model import Event, Job, Severity
from gpumon.rules.heard import Sorted
from gpumon.rules.logged import EPOCH_S, delay_s, driver_started_s, is_logged, stands, times
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

    at_s: float
    """When it happened, by the clock of the samples."""
    xid: Xid
    event: Event
    times: int
    heard_at_s: float
    """When it came to our knowledge, by the monotonic clock of the window."""
    is_remembered: bool
    precedence: tuple[bool, int, int, float]
    """The least of them leads: no clean-up, the worst, the root of others, the first."""

    def age_s(self, window: Window) -> float:
        """How long ago it happened."""
        return max(0.0, window.last.time_s - self.at_s)


_How = Literal["logged", "live", "past"]
"""By a log that is read afterwards, or as it happened; or it had happened long before it came to our knowledge."""
_HOW: tuple[_How, ...] = ("logged", "live", "past")
_Whose = tuple[str | None, _How]
_HEARD = attrgetter("heard_at_s")


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
        sums: dict[int, int] = {}
        for line in self.lines:
            code = line.xid.code
            sums[code] = sums.get(code, 0) + line.times
        return "Xid " + ", ".join(f"{code} ×{count}" if count > 1 else f"{code}" for code, count in sums.items())

    def pids(self, most: int = 4096) -> tuple[int, ...]:
        """Processes that the lines name, the first ones."""
        named: dict[int, None] = {}
        for line in self.lines:
            if line.event.pid is not None:
                named[line.event.pid] = None
                if len(named) >= most:
                    break
        return tuple(named)

    def codes(self) -> frozenset[int]:
        """Numbers among the lines."""
        return frozenset([line.xid.code for line in self.lines])

    def is_remembered(self) -> bool:
        """Known from a gauge only, which keeps the last number: when it happened nobody knows."""
        return all(line.is_remembered for line in self.lines)

    def process(self, pid: int) -> str:
        """``pid 4242 (python)``, where a line names it."""
        for line in self.lines:
            found = _NAME.search(line.event.text or "")
            if found is not None and int(found[1]) == pid:
                return f"pid {pid} ({found[2]})"
        return f"pid {pid}"

    def wish(self) -> str | None:
        """What the driver asks for by now: ``a reset``."""
        meaning = next((line.xid.meaning for line in reversed(self.lines) if line.xid.code == RECOVERY_CODE), "")
        return meaning.removeprefix(_ASKS) if meaning.startswith(_ASKS) else None


def xid_of(event: Event) -> int | None:
    """The number of an event, from its field or from the kernel's line."""
    if event.xid is not None:
        return event.xid
    found = _PATTERN.search(event.text or "")
    return int(found[1]) if found else None


def _told(window: Window, heard_at_s: float, event: Event) -> tuple[_Whose, Told] | None:
    """What an event says, if it is one of the driver's lines."""
    code, text = xid_of(event), event.text or ""
    if code is None and "fallen off the bus" in text:
        code = 79
    late_s = delay_s(window, window.elapsed_s - heard_at_s, event)
    is_told = is_logged(event)
    if code is None or not (is_told or late_s < _WEEK_S):
        return None
    xid = _read(known(code), text)
    at_s = window.last.time_s - window.elapsed_s + heard_at_s - (late_s if is_told else min(late_s, _OLD_S))
    root = ROOTS.index(code) if code in ROOTS else len(ROOTS)
    how: _How = "logged" if is_told else "past" if late_s > _OLD_S else "live"
    return (event.gpu_uuid, how), Told(
        at_s=at_s,
        xid=xid,
        event=event,
        times=times(event),
        heard_at_s=heard_at_s,
        is_remembered=_REMEMBERED in (event.values or {}),
        precedence=(code == CLEANUP, _MILDER.index(xid.severity), root, at_s),
    )


_TOLD = Sorted(_told)


def _lines(window: Window, uuid: str | None) -> dict[_How, list[Told]]:
    """The lines of a day about one GPU, oldest first."""
    found = _all_lines(window)
    return {how: found.get((uuid, how), []) for how in _HOW}


def _all_lines(window: Window) -> Mapping[_Whose, list[Told]]:
    clock = (round(window.last.time_s - window.elapsed_s, 1), window.last.time_s < EPOCH_S)
    return _TOLD.of(window, clock)


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
    since_s, started_s = window.elapsed_s - seconds, driver_started_s(window)
    recent: dict[str | None, list[Told]] = {}
    standing: dict[str | None, list[Told]] = {}
    for uuid in dict.fromkeys([uuid for uuid, _ in _all_lines(window)]):
        told = _lines(window, uuid)
        older = _standing(window, told["logged"], since_s, started_s)
        lately = _since(told["logged"], since_s)
        if told["live"]:
            lately = sorted((*lately, *_since(told["live"], since_s)), key=_HEARD)
        if older:
            standing[uuid] = older + lately
        elif lately:
            recent[uuid] = lately
    in_order = sorted(recent.items(), key=lambda item: _HEARD(item[1][0]))
    found = []
    for uuid, lines in (*standing.items(), *in_order):
        dated = [line for line in lines if not line.is_remembered] or lines
        lead = min(dated, key=attrgetter("precedence"))
        is_told = lead.xid.code != CLEANUP or lead.is_remembered
        if is_told or _repeats(window, uuid, dated):
            found.append(Incident(uuid, lead.xid, lead.xid.severity, tuple(dated)))
    return found


def _standing(window: Window, lines: Sequence[Told], since_s: float, started_s: float | None) -> list[Told]:
    """Lines of a log from before the last seconds, where broken or suspected hardware still waits for what to do.

    Nothing else tells how such a GPU is: a log has no readings of it. It is over when the driver is loaded anew, or
    says that it asks for nothing any more.
    """
    if not lines or lines[0].heard_at_s > since_s:
        return []
    if started_s is not None:
        lines = [line for line in lines if stands(line.age_s(window), started_s)]
    is_suspect = _programs(lines) > 1
    over = [number for number, line in enumerate(lines) if line.xid.code == RECOVERY_CODE and _is_over(line.event)]
    lines = lines[over[-1] + 1 :] if over else lines
    for number, line in enumerate(lines):
        if _waits(line.xid) or (is_suspect and line.xid.code in PROGRAMS):
            return [*lines[number : bisect_right(lines, since_s, key=_HEARD)]]
    return []


def _since(lines: Sequence[Told], since_s: float) -> list[Told]:
    return [*lines[bisect_right(lines, since_s, key=_HEARD) :]]


def _is_over(event: Event) -> bool:
    return "to 0x0" in (event.text or "")


def _waits(xid: Xid) -> bool:
    return xid.severity == "critical" and xid.blame in ("hardware", "driver")


def _repeats(window: Window, uuid: str | None, lines: Sequence[Told]) -> bool:
    """Clean-up in three different minutes while nobody left the GPU: then it follows from nothing."""
    left_s = [age for age, event in window.aged_events(3600.0) if event.kind == "process-exit"]
    left_s += [window.elapsed_s - ending.elapsed_s for ending in window.ended_jobs if uuid in ending.job.gpu_uuids]
    ages = [line.age_s(window) for line in lines]
    alone = [mine for mine in ages if not any(abs(mine - age) <= _STORM_S for age in left_s)]
    return len({int(age // _STORM_S) for age in alone}) >= 3


def job_of(window: Window, incident: Incident) -> Job | None:
    """The job that it hit: that of a process it names, else the one on the GPU at that time."""
    jobs = (*window.jobs, *(ending.job for ending in reversed(window.ended_jobs)))
    pids = set(incident.pids()) if jobs else set()
    for job in jobs:
        if pids & {*job.trainers, *(pid for helpers in job.helpers.values() for pid in helpers)}:
            return job
    then_s = incident.lines[0].at_s
    on_it = [job for job in jobs if incident.uuid in job.gpu_uuids]
    return next((job for job in on_it if job.started_s is None or job.started_s <= then_s), None)


def programs_on(window: Window, uuid: str | None) -> int:
    """How many different processes met a program's fault on a GPU, as far back as the kernel's log goes."""
    return _programs([line for lines in _lines(window, uuid).values() for line in lines])


def _programs(lines: Sequence[Told]) -> int:
    return len({line.event.pid for line in lines if line.xid.code in PROGRAMS} - {None})
