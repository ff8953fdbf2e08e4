"""Knows who has a GPU open without being in the driver's list: mostly what a killed trainer left behind."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence

from gpumon import text
from gpumon.model import Gpu, Process
from gpumon.sources.host.proc import identify, read_stat
from gpumon.sources.host.procfs import list_numbers, read, read_link
from gpumon.sources.host.records import boot_time_s, started_s

UNOWNED_BYTES = 1 << 30
AGAIN_S = 10.0
SLICE_S = 0.003
"""A node with thousands of processes is looked through in slices, so that no reading is late."""
_MOST = 64
_DEVICE = re.compile(r"/dev/nvidia(\d+)$")
_MINOR = re.compile(rb"Device Minor:\s*(\d+)")
_SERVICES = ("nvidia-persiste", "nv-hostengine", "nvidia-smi", "dcgm", "gpumon")
"""They have every GPU open and hold no memory of it. Names in /proc end after 15 letters."""
_WORKERS = ("pt_data_worker",)


class Leftovers:
    """Looks through /proc while memory of a GPU has no owner, in slices and rarely; else it costs nothing."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._minors: dict[str, int | None] = {}
        self._processes: Sequence[Process] = ()
        self._held: dict[str, int | None] = {}
        """What these processes hold of each GPU."""
        self._queue: list[int] = []
        self._is_looking = False
        self._ended_at: float | None = None
        self._found: dict[int, Process] = {}
        self._new: dict[int, Process] = {}

    def look(self, gpus: Iterable[Gpu], processes: Sequence[Process], now: float) -> tuple[Process, ...]:
        """Return who has a GPU open whose memory is not accounted for, and is not among ``processes``.

        Only one's own processes can be looked into, as root everybody's.
        """
        if processes is not self._processes:
            self._processes, self._held = processes, _held(processes)
        held = self._held
        short = [gpu for gpu in gpus if _is_short(gpu, held.get(gpu.uuid, 0))]
        if not short:
            self._queue, self._found, self._is_looking, self._ended_at = [], {}, False, None
            return ()
        minors = {minor: gpu.uuid for gpu in short if (minor := self._minor_of(gpu)) is not None}
        known = {process.pid for process in processes} | {os.getpid()}
        if not self._is_looking and (self._ended_at is None or now - self._ended_at >= AGAIN_S):
            self._queue = [pid for pid in list_numbers(self._proc) if pid not in known]
            self._is_looking, self._new = True, {}
        if self._is_looking:
            self._go_on(minors, now)
        return tuple(one for pid, one in sorted(self._found.items()) if pid not in known)

    def _go_on(self, minors: dict[int, str], now: float) -> None:
        until = time.perf_counter() + SLICE_S
        while self._queue and len(self._new) < _MOST:
            pid = self._queue.pop()
            process = self._look_into(pid, minors)
            if process is not None:
                self._new[pid] = process
            if time.perf_counter() >= until:
                return
        self._is_looking, self._ended_at, self._found = False, now, self._new

    def _look_into(self, pid: int, minors: dict[int, str]) -> Process | None:
        base = f"{self._proc}/{pid}"
        open_gpus = set()
        for fd in list_numbers(f"{base}/fd"):
            device = _DEVICE.match(read_link(f"{base}/fd/{fd}") or "")
            if device and int(device[1]) in minors:
                open_gpus.add(minors[int(device[1])])
        stat = read_stat(self._proc, pid) if open_gpus else None
        if stat is None:
            return None
        name = text.clean(stat.comm)
        if name.startswith(_SERVICES):
            return None
        known = identify(self._proc, pid, stat.comm, is_holder=False)
        return Process(
            pid=pid,
            ppid=stat.ppid,
            session_id=stat.session_id,
            started_s=started_s(boot_time_s(self._proc), stat.started_ticks),
            user=known.user,
            name=name,
            command=known.command,
            state=stat.state,
            container=known.container,
            role="dataloader-worker" if name in _WORKERS else "other",
            open_gpus=tuple(sorted(open_gpus)),
        )

    def _minor_of(self, gpu: Gpu) -> int | None:
        """The number in the name of its device file, which is not always NVML's index."""
        if gpu.uuid not in self._minors:
            # NVML writes the domain with eight digits, the kernel with four.
            bus = (gpu.pci_bus_id or "").lower()[-12:]
            data = read(f"{self._proc}/driver/nvidia/gpus/{bus}/information") if bus else None
            found = _MINOR.search(data or b"")
            self._minors[gpu.uuid] = int(found[1]) if found else None
        return self._minors[gpu.uuid]


def _held(processes: Sequence[Process]) -> dict[str, int | None]:
    """GPU -> what all processes hold of it together; None where the driver does not say it of one of them."""
    held: dict[str, int | None] = {}
    for one in processes:
        for uuid, size in one.gpu_memory_bytes.items():
            before = held.get(uuid, 0)
            held[uuid] = None if size is None or before is None else before + size
    return held


def _is_short(gpu: Gpu, held_bytes: int | None) -> bool:
    """More is in use than all processes on it hold together."""
    if gpu.is_lost or gpu.memory_is_shared or gpu.memory_used_bytes is None or gpu.mig_parent_uuid is not None:
        return False
    return held_bytes is not None and gpu.memory_used_bytes - held_bytes >= UNOWNED_BYTES
