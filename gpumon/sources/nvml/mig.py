"""Knows what can be asked of one MIG instance: its memory, its processes and, by GPM, its activity."""

from __future__ import annotations

import time

from gpumon.model import Gpu
from gpumon.sources.nvml.calls import Asker
from gpumon.sources.nvml.devices import Device
from gpumon.sources.nvml.gpm import Activity, is_supported
from gpumon.sources.nvml.gpu import LISTS_S, Turn
from gpumon.sources.nvml.memory import memory, memory_question
from gpumon.sources.nvml.processes import Processes, holders_of
from gpumon.sources.nvml.reading import GpuReading, Holder


class InstanceReader:
    """Reads one MIG instance. Temperature, power and clocks are its parent's; utilization nobody has."""

    def __init__(self, device: Device, parent_handle: object, *, reads_once: bool = False) -> None:
        self.device = device
        self.asker = Asker(device.handle)
        self._facts = device.facts()
        self._parent_asker = Asker(parent_handle)
        self._activity: Activity | None = None
        self._may_sample = not reads_once and device.gpu_instance is not None
        self._processes = Processes()
        self._memory = memory_question()
        self._holders: tuple[Holder, ...] = ()
        self._lists_turn = Turn(LISTS_S, 0.0)

    def read(self, now: float) -> GpuReading:
        """One pass over the instance. Raises GpuLost and DriverGone."""
        asker = self.asker
        asker.begin(now)
        self._parent_asker.begin(now)
        fields = memory(asker, self._memory, may_be_shared=False)
        if self._may_sample:
            self._may_sample = False
            if is_supported(self._parent_asker):
                self._activity = Activity(self.device.gpu_instance)
        if self._activity is not None:
            fields.update(self._activity.read(self._parent_asker))
        if self._lists_turn.has_come(now):
            total = fields.get("memory_total_bytes")
            processes = self._processes.read(asker, with_graphics=False, memory_total_bytes=total)
            self._holders = () if processes is None else holders_of(processes, None)
        return GpuReading(Gpu(**self._facts, **fields), time.monotonic(), self._holders)

    def free(self) -> None:
        """Give back what the driver lent; only while it answers."""
        if self._activity is not None:
            self._activity.free()
