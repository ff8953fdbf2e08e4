"""Who computes with a training framework and holds no GPU: found among the busiest processes, a few looks a second."""

from __future__ import annotations

import os
from collections.abc import Container
from typing import NamedTuple

from gpumon.sources.host import identity
from gpumon.sources.host.proc import read_stat
from gpumon.sources.host.procfs import TICKS_PER_S, Stat, list_numbers, read

_SWEEP_S = 30.0
"""Between two looks at the list of all processes; a look at one takes 20 µs."""
_LOOK_S = 1.0
_AT_ONCE = 16
_BUSY_CORES = 0.9
_MOST = 4
_MAPS_BYTES = 1 << 23
_AGAIN_S = 300.0
"""A process may load its framework late."""
_KERNEL = 2
_FRAMEWORKS = frozenset({"pytorch", "jax", "tensorflow", "paddle"})


class _Seen(NamedTuple):
    """What a process had computed when it was last looked at."""

    started_ticks: int
    cpu_ticks: int
    at: float


class Strangers:
    """Looks at every process about twice a minute, at sixteen a second at most, and into the maps of busy ones once."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._queue: list[int] = []
        self._swept_at: float | None = None
        self._looked_at: float | None = None
        self._kernel: set[int] = set()
        self._seen: dict[int, _Seen] = {}
        self._verdicts: dict[int, tuple[int, float, bool]] = {}
        self._found: dict[int, int] = {}
        """Pid -> its parent."""

    def look(self, watched: Container[int], now: float) -> frozenset[int]:
        """Look at the next few processes; return who trains on the CPU as far as is known, four at most."""
        if self._looked_at is None or now - self._looked_at >= 0.9 * _LOOK_S:
            self._looked_at = now
            self._sweep(now)
            some, self._queue = self._queue[:_AT_ONCE], self._queue[_AT_ONCE:]
            for pid in some:
                if pid in self._found or pid not in watched:
                    self._judge(pid, now)
        # Workers of such a trainer map the same libraries; they are followed as its descendants.
        return frozenset([pid for pid, parent in self._found.items() if parent not in self._found][:_MOST])

    def _sweep(self, now: float) -> None:
        if self._queue or (self._swept_at is not None and now - self._swept_at < _SWEEP_S):
            return
        self._swept_at = now
        pids = set(list_numbers(self._proc))
        self._kernel &= pids
        self._queue = sorted(pids - self._kernel - {os.getpid()})
        for kept in (self._seen, self._verdicts, self._found):
            for pid in kept.keys() - pids:
                del kept[pid]

    def _judge(self, pid: int, now: float) -> None:
        stat = read_stat(self._proc, pid)
        if stat is None:
            self._found.pop(pid, None)
            return
        if _KERNEL in (pid, stat.ppid):
            self._kernel.add(pid)
            return
        before = self._seen.get(pid)
        self._seen[pid] = _Seen(stat.started_ticks, stat.cpu_ticks, now)
        if before is None or before.started_ticks != stat.started_ticks or now - before.at < _SWEEP_S / 2:
            return
        cores = (stat.cpu_ticks - before.cpu_ticks) / TICKS_PER_S / (now - before.at)
        if cores >= _BUSY_CORES and self._trains(pid, stat, now):
            self._found[pid] = stat.ppid
        else:
            self._found.pop(pid, None)

    def _trains(self, pid: int, stat: Stat, now: float) -> bool:
        """Whether a framework is mapped; its maps are read once, and again after minutes where there was none."""
        known = self._verdicts.get(pid)
        if known is not None and known[0] == stat.started_ticks and (known[2] or now - known[1] < _AGAIN_S):
            return known[2]
        libraries = identity.libraries_in(read(f"{self._proc}/{pid}/maps", _MAPS_BYTES))
        trains = identity.framework_of(libraries, "") in _FRAMEWORKS
        self._verdicts[pid] = (stat.started_ticks, now, trains)
        return trains
