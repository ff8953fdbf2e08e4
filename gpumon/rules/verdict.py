"""Knows how a job came to its end, as far as that can be seen from outside: exit codes belong to its parent."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import NamedTuple

from gpumon import units
from gpumon.model import Confidence, Ending, Event, Evidence
from gpumon.rules.incidents import CLEANUP, xid_of
from gpumon.rules.xids import known
from gpumon.window import Window

BEFORE_S, AFTER_S = 60.0, 30.0
"""What happened so long before the end, or so soon after it, may be its cause."""
LATER_S = 10.0
"""Ranks that end together do so within this time."""
WROTE_BYTES = 1e6
LOOP = 3

_FAULTS = {
    "segfault": ("it crashed (segmentation fault)", "read the end of its log; run it once under faulthandler"),
    "cuda-oom": ("out of GPU memory", "smaller batch, or see oom-risk"),
    "cuda-error": ("a CUDA error", "run it once with CUDA_LAUNCH_BLOCKING=1"),
    "nccl-timeout": ("a collective timed out", "see which rank left first"),
    "bus-error": ("a worker died of a bus error", "more shared memory: --shm-size=16g"),
}
_BAD_WORDS = re.compile(r"error|out ?of ?memory|timeout|watchdog|abort|killed|traceback|exception|fault", re.IGNORECASE)


class Verdict(NamedTuple):
    """How it ended."""

    is_death: bool
    cause: str
    text: str
    confidence: Confidence
    fix: str = "read the end of its log"
    evidence: tuple[Evidence, ...] = ()


def verdict_of(window: Window, ending: Ending) -> Verdict | None:
    """The best explained one; None where nothing is to be said."""
    if ending.short_attempts >= LOOP and not ending.remaining:
        text = f"{ending.short_attempts} runs of less than 5 min in half an hour"
        return Verdict(True, "crash-loop", text, "likely", "read the end of its log; stop the restarts")
    if ending.remaining:
        return _rank_gone(window, ending)
    told = _told(ending) or next(_traces(window, ending), None) or _spread(ending)
    if told is not None:
        return told
    if ending.job.phase == "stall":
        return Verdict(True, "stalled", "it stood still before, until something ended it", "likely")
    if ending.is_restarted:
        return Verdict(False, "restarted", f"started again: attempt {ending.attempt + 1}", "likely")
    if ending.is_abrupt and not ending.is_finished:
        fix = "see who ended it: the scheduler's log, journalctl"
        return Verdict(True, "killed", "gone without its probe's last word: something killed it", "likely", fix)
    if ending.written_bytes is not None and ending.written_bytes >= WROTE_BYTES:
        text = f"all ended together after writing {units.gib(ending.written_bytes):.1f} GiB in the last 2 min"
        return Verdict(False, "probably-finished", text, "likely")
    return Verdict(False, "unknown", "its exit code is known to its parent only", "possible")


def _told(ending: Ending) -> Verdict | None:
    """What the job, its parent or the source of the events said itself."""
    bad = {pid: code for pid, code in ending.codes.items() if code != 0}
    if bad:
        pid, code = next(iter(bad.items()))
        number = -code if code < 0 else code - 128
        name = signal.Signals(number).name if number in {one.value for one in signal.Signals} else None
        text = f"pid {pid} ended with {f'signal {name}' if name else f'code {code}'}"
        return Verdict(True, "exit-code", text, "certain")
    if ending.said is not None and _BAD_WORDS.search(ending.said):
        return Verdict(True, "own-error", ending.said[:60], "certain")
    if ending.is_finished:
        return Verdict(False, "finished", "its probes reported the end of training", "certain")
    if ending.codes and len(ending.codes) == len(ending.exits):
        return Verdict(False, "finished", "exit code 0", "certain")
    if ending.said is not None and ending.said.lower().startswith("finished"):
        return Verdict(False, "finished", ending.said, "certain")
    return None


def _traces(window: Window, ending: Ending) -> Iterator[Verdict]:
    """What the kernel, the driver and the counters recorded around the end, the surest first."""
    ago_s = window.elapsed_s - ending.elapsed_s
    near = [event for age, event in window.aged_events(ago_s + BEFORE_S) if age >= ago_s - AFTER_S]
    job = ending.job
    pids = {*job.trainers, *(pid for helpers in job.helpers.values() for pid in helpers)}
    fewer = "fewer workers, or more memory for the job"
    for event in near:
        if event.kind == "oom-kill" and pids & {event.pid, int((event.values or {}).get("beside_pid", -1))}:
            line = (Evidence(name="the kernel's line", value=event.text),)
            yield Verdict(True, "oom-kill", "the kernel killed it: out of memory", "certain", fewer, line)
    lost = [gpu for gpu in window.last.gpus if gpu.is_lost and gpu.uuid in job.gpu_uuids]
    if lost:
        yield Verdict(True, "gpu-lost", f"GPU {lost[0].index} was lost", "certain", "see gpu-lost")
    for event in near:
        code = xid_of(event)
        if code is not None and code != CLEANUP and (event.gpu_uuid in job.gpu_uuids or event.pid in pids):
            text = f"Xid {code}: {known(code).meaning}"
            if known(code).severity != "info":
                yield Verdict(True, f"xid-{code}", text, "likely", "see xid", _line(event))
    for event in near:
        if event.kind in _FAULTS and (event.pid in pids or (event.pid is None and event.gpu_uuid in job.gpu_uuids)):
            text, fix = _FAULTS[event.kind]
            yield Verdict(True, event.kind, text, "certain" if event.pid in pids else "likely", fix, _line(event))
    if _kills(window, ago_s):
        yield Verdict(True, "oom-kill", "the kernel killed for memory at that moment", "likely", fewer)


def _line(event: Event) -> tuple[Evidence, ...]:
    return (Evidence(name="reported", value=event.text),) if event.text else ()


def _kills(window: Window, ago_s: float) -> bool:
    """The kernel's count of kills rose around the end."""
    until_s = max(0.0, ago_s - AFTER_S)
    series = window.series("host", "oom_kills", ago_s + BEFORE_S - until_s, ago_s=until_s)
    values = [value for value in series if value is not None]
    return bool(values) and values[-1] > values[0]


def _spread(ending: Ending) -> Verdict | None:
    """One went first and the others followed late: it failed, and they waited for it."""
    if len(ending.exits) < 2:
        return None
    (first, head_s), (_, second_s), *_ = ending.exits.items()
    if head_s - second_s < LATER_S and head_s < LATER_S:
        return None
    others_s = head_s - second_s
    text = f"{_name(ending, first)} ended {units.duration(max(others_s, head_s))} before the others"
    fix = "read the log of that one: the others only waited"
    return Verdict(True, "rank-first", text, "likely", fix)


def _rank_gone(window: Window, ending: Ending) -> Verdict | None:
    """A rank is gone and the others still run: they will wait for it in vain."""
    gone_s = max(ending.exits.values()) + window.elapsed_s - ending.elapsed_s
    if len(ending.ranks) < 2 or gone_s < LATER_S:
        return None
    first = next(iter(ending.exits))
    if first not in ending.ranks:
        return None
    count = len(ending.remaining)
    text = f"{_name(ending, first)} is gone, {count} other{'s' * (count > 1)} wait{'s' * (count == 1)} for it"
    traced = next(_traces(window, ending), None)
    if traced is not None:
        return traced._replace(text=f"{_name(ending, first)} is gone: {traced.text}")
    return Verdict(True, "rank-gone", text, "likely", "read the log of that rank; end and resume the job")


def _name(ending: Ending, pid: int) -> str:
    rank = ending.ranks.get(pid)
    return f"pid {pid}" if rank is None else f"rank {rank}"
