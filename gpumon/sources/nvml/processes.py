"""Knows which processes hold a GPU and how busy each keeps it, whatever layout the driver speaks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable

import pynvml

from gpumon.sources.nvml.calls import Asker, Records, c_function
from gpumon.sources.nvml.reading import Holder

PID_MAX = 2**22
"""The kernel's own upper limit: a larger number is another field read with the wrong layout."""
_NO_MEMORY = 2**64 - 1
_BUSY_PCT = 5
_LAG_US = 2_000_000
"""Samples of different processes carry different time stamps, seconds apart: asking from the newest on loses some.
What was seen before is left out by process, since an idle process keeps its last sample in the driver."""
_OLD_SHARES, _NEW_SHARES = "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"

Pids = dict[int, "int | None"]
"""Pid -> bytes of GPU memory; None where the driver does not say."""
_Sample = tuple[int, int, int]
"""Pid, time stamp in microseconds, percent."""


_LAYOUTS = (("_v3", struct.Struct("@IQ8x")), ("_v2", struct.Struct("@IQ8x")), ("", struct.Struct("@IQ")))
"""nvmlProcessInfo_t of each version of the call: pid, bytes, from version 2 on the MIG instance."""
_SHARE = struct.Struct("@IQI12x")
"""nvmlProcessUtilizationSample_t: pid, time stamp in microseconds, percent of the SMs, other engines."""


class _List:
    """One of the driver's lists (compute, graphics), in the newest layout that this driver has.

    One call with room to spare instead of pynvml's two: a call holds the driver's lock for milliseconds.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._room = 32
        self._records: dict[str, Records] = {}
        self._garbled: set[str] = set()

    def read(self, asker: Asker) -> Pids | None:
        """Pid -> bytes; None where no layout works."""
        for suffix, layout in _LAYOUTS:
            if suffix in self._garbled:
                continue
            name = f"nvmlDeviceGet{self._kind}RunningProcesses{suffix}"
            processes: Pids | None = asker(name, self._call, name, layout)
            if processes is None:
                continue
            if all(0 < pid <= PID_MAX for pid in processes):
                return processes
            self._garbled.add(suffix)
        return None

    def _call(self, handle: object, name: str, layout: struct.Struct) -> Pids:
        function = c_function(name)
        count = ctypes.c_uint()
        records: Records | None = None
        for _ in range(3):
            records = self._records.get(name)
            if records is None or records.room < self._room:
                records = self._records[name] = Records(layout, self._room)
            count.value = records.room
            code = function(handle, ctypes.byref(count), records.address)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._room = 2 * count.value + 5
        if code != 0 or records is None:
            raise pynvml.NVMLError(code)
        return {pid: None if used == _NO_MEMORY else used for pid, used in records.first(count.value)}


class Processes:
    """The holders of one GPU or MIG instance."""

    def __init__(self) -> None:
        self._compute = _List("Compute")
        self._graphics = _List("Graphics")
        self._drawn: Pids = {}
        self._seen_us: dict[int, int] = {}
        self._newer_call_works = False
        self._samples = Records(_SHARE, 0)

    def read(self, asker: Asker, *, with_graphics: bool, memory_total_bytes: int | None) -> Pids | None:
        """Pid -> bytes (None: not said); None where the driver lists nothing at all."""
        computing = self._compute.read(asker)
        if with_graphics:
            self._drawn = self._graphics.read(asker) or {}
        if computing is None and not self._drawn:
            return None
        holders: Pids = {}
        for processes in (self._drawn, computing or {}):
            for pid, used in processes.items():
                too_much = used is not None and memory_total_bytes and used > memory_total_bytes
                holders[pid] = None if too_much else used
        return holders

    def shares(self, asker: Asker, pids: Pids, utilization_pct: float | None) -> dict[int, float] | None:
        """Pid -> share of time with a kernel of its own; None where the driver does not tell.

        Blackwell's drivers answer the old call with zeros, whatever runs: there the newer one is used.
        """
        if not pids:
            return {}
        answer = None if self._newer_call_works else self._ask(asker, _OLD_SHARES, self._old_shares)
        is_busy = utilization_pct is None or utilization_pct >= _BUSY_PCT
        if answer is None or (is_busy and not any(answer[0].values())):
            newer = self._ask(asker, _NEW_SHARES, _new_shares)
            if newer and any(newer[0].values()):
                self._newer_call_works = True
            answer = newer or answer
        if answer is None:
            return None
        shares, seen_us = answer
        self._seen_us = {pid: at_us for pid, at_us in seen_us.items() if pid in pids}
        return shares

    def _ask(
        self, asker: Asker, name: str, call: Callable[..., Iterable[_Sample]]
    ) -> tuple[dict[int, float], dict[int, int]] | None:
        """Pid -> share in the samples that are new, and -> time stamp of its newest sample."""
        since_us = max(max(self._seen_us.values(), default=0) - _LAG_US, 0)
        samples: Iterable[_Sample] | None = asker(name, _samples_or_none, call, since_us)
        if samples is None:
            return None
        seen_us = dict(self._seen_us)
        totals: dict[int, list[int]] = {}
        for pid, at_us, percent in samples:
            if at_us > self._seen_us.get(pid, 0) and percent <= 100:
                totals.setdefault(pid, []).append(percent)
                seen_us[pid] = max(seen_us.get(pid, 0), at_us)
        return {pid: sum(shares) / len(shares) for pid, shares in totals.items()}, seen_us

    def _old_shares(self, handle: object, since_us: int) -> Iterable[_Sample]:
        """One call as long as the room suffices; pynvml asks for the size first, every time."""
        function = c_function(_OLD_SHARES)
        count = ctypes.c_uint()
        for _ in range(3):
            count.value = self._samples.room
            code = function(handle, self._samples.address, ctypes.byref(count), ctypes.c_ulonglong(since_us))
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            self._samples = Records(_SHARE, max(count.value, self._samples.room + 1))
        if code != 0:
            raise pynvml.NVMLError(code)
        return self._samples.first(count.value)


def _new_shares(handle: object, since_us: int) -> Iterable[_Sample]:
    value_of = object.__getattribute__  # past pynvml's own, which costs a microsecond
    return [
        (value_of(sample, "pid"), value_of(sample, "timeStamp"), value_of(sample, "smUtil"))
        for sample in pynvml.nvmlDeviceGetProcessesUtilizationInfo(handle, since_us)
    ]


def _samples_or_none(handle: object, call: Callable[..., Iterable[_Sample]], seen_us: int) -> Iterable[_Sample]:
    """The samples; none is an answer: the driver says NOT_FOUND when no process was busy."""
    try:
        return call(handle, seen_us)
    except pynvml.NVMLError as error:
        if error.value in {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS}:
            return []
        raise


def holders_of(processes: Pids, shares: dict[int, float] | None) -> tuple[Holder, ...]:
    """Both lists as one, by pid."""
    return tuple(
        Holder(pid, processes[pid], None if shares is None else shares.get(pid, 0.0)) for pid in sorted(processes)
    )
