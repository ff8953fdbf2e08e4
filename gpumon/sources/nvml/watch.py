"""Knows one GPU through good and bad times: answering, silent, lost, back again; with its MIG instances."""

from __future__ import annotations

import time
from collections import deque

from gpumon.model import Event, Gpu
from gpumon.sources.nvml.calls import GpuLost
from gpumon.sources.nvml.devices import Device, Selection, find_again, find_instances
from gpumon.sources.nvml.gpu import HANG_S, GpuReader, Turn
from gpumon.sources.nvml.mig import InstanceReader
from gpumon.sources.nvml.reading import GpuReading, Holder

INSTANCES_S = 10.0
"""MIG instances can be made and destroyed under us."""
LOOK_AGAIN_S = 10.0
"""A lost GPU may come back after a reset."""
SILENT_PASSES = 2
"""One pass of unknown errors is a hiccup; the second in a row is not."""


class WatchedGpu:
    """One GPU. Its ``readings`` are the newest of the GPU (where it is shown) and its shown instances."""

    def __init__(
        self,
        device: Device,
        selection: Selection,
        events: deque[Event],
        *,
        driver_version: str | None = None,
        reads_once: bool = False,
    ) -> None:
        self.device = device
        self.is_lost = device.handle is None
        self.silent_passes = 0
        self.reader = GpuReader(device, driver_version, reads_once=reads_once)
        self._driver_version = driver_version
        self._selection = selection
        self._events = events
        self._reads_once = reads_once
        self._is_shown = selection.has_gpu(device)
        self._instances: dict[str, InstanceReader] = {}
        self._instances_turn = Turn(INSTANCES_S, device.index % 5)
        self._look_again_at = 0.0
        # What is shown until it answers for the first time.
        blank = Gpu(**device.facts(), is_lost=self.is_lost)
        self.readings: tuple[GpuReading, ...] = (GpuReading(blank, time.monotonic()),) if self._is_shown else ()

    @property
    def hang_after_s(self) -> float:
        """How long a pass may take before it counts as hanging."""
        return HANG_S if self.is_lost else self.reader.hang_after_s

    def read(self, now: float) -> bool:
        """One pass; tells whether the driver answered anything. Raises DriverGone."""
        try:
            if self.is_lost and not self._is_back(now):
                return False
            readings = self._pass(now)
        except GpuLost:
            self.lose(now)
            return True
        if readings is None:
            self.silent_passes += 1
            return False
        self.silent_passes = 0
        self.readings = readings
        return True

    def lose(self, now: float) -> None:
        """It is gone: its identity stays, and the names of the processes that had it."""
        if not self.is_lost:
            self.is_lost = True
            text = f"GPU {self.device.index} is lost: the driver no longer reaches it"
            self._events.append(Event(kind="gpu-lost", time_s=time.time(), gpu_uuid=self.device.uuid, text=text))
        self._look_again_at = now + LOOK_AGAIN_S
        self.silent_passes = 0
        held = {reading.gpu.uuid: reading.holders for reading in self.readings}
        devices = [self.device] if self._is_shown else []
        devices += [instance.device for instance in self._instances.values()]
        self.readings = tuple(self._lost(device, now, held.get(device.uuid, ())) for device in devices)

    def adopt(self, earlier: WatchedGpu) -> None:
        """Take over what is still true of the same GPU before NVML was started again."""
        if self.is_lost and not earlier.is_lost:
            self.readings = earlier.readings
            self.is_lost = False
            self.lose(time.monotonic())
        else:
            self.readings = earlier.readings

    def free(self) -> None:
        """Give back what the driver lent; only while it answers."""
        if not self.is_lost:
            self.reader.free()
            for instance in self._instances.values():
                instance.free()

    def _is_back(self, now: float) -> bool:
        """Look for a lost GPU, rarely; between the looks its loss stays a fresh fact."""
        if now >= self._look_again_at:
            self._look_again_at = now + LOOK_AGAIN_S
            found = find_again(self.device)
            if found is not None:
                self.device = found
                self.reader = GpuReader(found, self._driver_version, reads_once=self._reads_once)
                self._instances.clear()
                self._instances_turn = Turn(INSTANCES_S, found.index % 5)
                self._pass(now)
                if not self.reader.asker.is_silent():
                    self.is_lost = False
                    text = f"GPU {found.index} answers again"
                    self._events.append(Event(kind="gpu-back", time_s=time.time(), gpu_uuid=found.uuid, text=text))
                    return True
        self.readings = tuple(reading._replace(read_at=now) for reading in self.readings)
        return False

    def _pass(self, now: float) -> tuple[GpuReading, ...] | None:
        """The readings; None when nothing vital was answered."""
        if self._instances_turn.has_come(now):
            self._find_instances()
        readings = []
        is_silent = True
        if self._is_shown:
            readings.append(self.reader.read(now))
            is_silent = self.reader.asker.is_silent()
        for instance in self._instances.values():
            readings.append(instance.read(now))
            is_silent = is_silent and instance.asker.is_silent()
        return None if is_silent and readings else tuple(readings)

    def _find_instances(self) -> None:
        found = [device for device in find_instances(self.device) if self._selection.has_instance(device)]
        self._instances = {
            device.uuid: self._instances.get(device.uuid)
            or InstanceReader(device, self.device.handle, reads_once=self._reads_once)
            for device in found
        }
        self.reader.has_instances = bool(found)

    @staticmethod
    def _lost(device: Device, now: float, holders: tuple[Holder, ...] = ()) -> GpuReading:
        remembered = tuple(Holder(holder.pid, None, None) for holder in holders)
        return GpuReading(Gpu(**device.facts(), is_lost=True), now, remembered)
