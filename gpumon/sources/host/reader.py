"""The host side of a snapshot: the machine's totals and the processes on its GPUs, all from /proc and /sys."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpumon import text
from gpumon.model import Event, Host, Process
from gpumon.sources import GpuUse
from gpumon.sources.host.machine import MachineReader
from gpumon.sources.host.pidview import PidView, holds_gpu, is_namespaced, view_pids
from gpumon.sources.host.proc import identify, read_stat
from gpumon.sources.host.processes import ProcessReader
from gpumon.sources.host.procfs import Stat
from gpumon.sources.host.records import boot_time_s, started_s

_FEW_GPUS = 4
_PERIOD_S = 2.0
_SIGHT_AGAIN_S = 5.0
_FALLS_OVER_S, _MARK_S = 300.0, 15.0
_FALLS_BYTES = 256 << 20


class HostReader:
    """Reads host and processes together, for one caller on one thread.

    Files are read on kept descriptors and each value only as often as it is worth it, so a reading costs most
    when much is due and nearly nothing in between.
    """

    def __init__(self, interval_s: float, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self.interval_s = interval_s
        """How often the caller reads; may be set anew at any time."""
        self._proc = str(proc)
        self._machine = MachineReader(self._proc, str(sys))
        self._processes = ProcessReader(self._proc, str(sys), is_namespaced=is_namespaced(self._proc))
        self._memory = _Memory()
        self._seen: _Seen | None = None

    def read(self, holders: Mapping[int, GpuUse], now: float) -> tuple[Host, tuple[Process, ...]]:
        """Read the machine and the GPU processes with their descendants.

        Args:
            holders: What the driver says about each process on a GPU, by pid.
            now: Monotonic seconds at this call; rates are over the differences.
        """
        processes = self._processes.read(holders, now, self.interval_s)
        seen = self._look(holders, processes, now)
        period_s = max(self.interval_s, _PERIOD_S) if seen.has_many_gpus else self.interval_s
        machine = self._machine.read(now, period_s)
        self._processes.counts_shares = self._memory.falls(machine.memory_available_bytes, now)
        host = msgspec.structs.replace(
            machine,
            volumes=self._processes.volumes(),
            sees_host_pids=seen.view.sees_host_pids,
            processes_hidden=seen.view.words,
        )
        return host, processes

    def watch_states(self, holders: Iterable[int]) -> None:
        """Sample the main threads of these holders and of their workers four times a second.

        Sixteen processes at most; meant for jobs whose GPU is below 85 % busy. Others keep one state a reading.
        """
        self._processes.watch_states(holders)

    def know_trainers(self, pids: frozenset[int]) -> None:
        """Follow these processes like holders: they tell themselves that they train, on a GPU or not."""
        self._processes.know_trainers(pids)

    def sample_states(self) -> None:
        """Take one state sample at once, for a caller with a clock of its own."""
        self._processes.sample_states()

    def drain_events(self) -> tuple[Event, ...]:
        """Return which GPU processes ended, and where the kernel killed some for memory, since the last call."""
        return self._processes.drain_events()

    def close(self) -> None:
        """Give back every descriptor and end the state sampler."""
        self._processes.close()
        self._machine.close()

    def _look(self, holders: Mapping[int, GpuUse], processes: tuple[Process, ...], now: float) -> _Seen:
        """What the holders come to; looked at anew only with a new table, and every few seconds."""
        seen = self._seen
        if seen is None or processes is not seen.processes or now - seen.at >= _SIGHT_AGAIN_S:
            resolved = self._processes.resolved()
            gpus = {uuid for use in holders.values() for uuid in use.memory_bytes}
            view = view_pids(self._proc, holders, resolved)
            self._seen = seen = _Seen(processes, now, view, has_many_gpus=len(gpus) > _FEW_GPUS)
        return seen


class _Seen(NamedTuple):
    """A table of processes, and what the driver's pids in it come to."""

    processes: tuple[Process, ...]
    at: float
    view: PidView
    has_many_gpus: bool


class _Memory:
    """Whether the memory that is available has been falling for some time."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=int(_FALLS_OVER_S / _MARK_S))

    def falls(self, available_bytes: int | None, now: float) -> bool:
        """Note the value, and tell whether it is clearly lower than a few minutes ago."""
        if available_bytes is None:
            return False
        if not self._marks or now - self._marks[-1][0] >= _MARK_S:
            self._marks.append((now, available_bytes))
        return max(mark for _, mark in self._marks) - available_bytes >= _FALLS_BYTES


def once_processes(holders: Mapping[int, GpuUse], proc: Path = Path("/proc")) -> tuple[Process, ...]:
    """Return who holds the GPUs at this moment: names, users and commands, without anything that takes two readings."""
    base = str(proc)
    boot_s = boot_time_s(base)
    return tuple(_once(base, pid, holders[pid], boot_s) for pid in sorted(holders))


def _once_stat(proc: str, pid: int) -> Stat | None:
    """Read a holder's stat, unless the driver's number may be a stranger's here."""
    return None if is_namespaced(proc) and not holds_gpu(proc, pid) else read_stat(proc, pid)


def _once(proc: str, pid: int, use: GpuUse, boot_s: int | None) -> Process:
    stat = _once_stat(proc, pid)
    if stat is None:
        return Process(pid=pid, gpu_memory_bytes=use.memory_bytes, gpu_sm_pct=use.sm_pct)
    known = identify(proc, pid, stat.comm, is_holder=False)
    return Process(
        pid=pid,
        ppid=stat.ppid,
        session_id=stat.session_id,
        started_s=started_s(boot_s, stat.started_ticks),
        user=known.user,
        name=text.clean(stat.comm),
        command=known.command,
        state=stat.state,
        gpu_memory_bytes=use.memory_bytes,
        gpu_sm_pct=use.sm_pct,
        memory_rss_bytes=stat.rss_bytes,
        container=known.container,
    )


def once_pid_view(holders: Collection[int], proc: Path = Path("/proc")) -> PidView:
    """Tell whether the driver's pids can be looked up here, and why not."""
    resolved = [pid for pid in holders if _once_stat(str(proc), pid) is not None]
    return view_pids(str(proc), holders, resolved)
