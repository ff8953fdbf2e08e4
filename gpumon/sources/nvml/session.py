"""Knows one life of NVML, from its start to its shutdown, and the GPUs found in it."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

import msgspec
import pynvml

from gpumon.errors import GpumonError
from gpumon.model import Event
from gpumon.sources.nvml import start as nvml_init
from gpumon.sources.nvml.calls import DEPARTURES, DriverGone
from gpumon.sources.nvml.devices import Device, Selection, count_gpus, find_again, find_gpus, find_instances
from gpumon.sources.nvml.events import EventWatch
from gpumon.sources.nvml.gpu import LISTS_S, Turn
from gpumon.sources.nvml.watch import WatchedGpu

END_S = 1.5
"""The event thread leaves the driver within a second of being asked."""


class Session:
    """NVML as started once."""

    def __init__(
        self, selection: Selection, events: deque[Event], *, proc: Path = nvml_init.PROC, reads_once: bool = False
    ) -> None:
        """Start it. Raises DriverMissing, DriverBroken, and UsageError for a selected GPU that is not there."""
        self.versions = nvml_init.start(proc)
        try:
            found = self._find(selection, proc)
        except GpumonError:
            nvml_init.stop()
            raise
        self._has_ended = False
        self._count = len(found)
        self._count_turn = Turn(LISTS_S, 0.0)
        version = self.versions.driver
        self.gpus = [
            WatchedGpu(gpu, selection, events, driver_version=version, reads_once=reads_once)
            for gpu in found
            if selection.concerns(gpu)
        ]
        handles = {gpu.uuid: gpu for gpu in found if gpu.handle is not None}
        self._event_watch = None if reads_once else EventWatch(handles, events)

    def adopt(self, earlier: list[WatchedGpu]) -> None:
        """Keep the GPUs of the life before: what no longer answers is lost, not gone."""
        by_uuid = {gpu.device.uuid: gpu for gpu in self.gpus}
        nameless = {gpu.device.index: gpu for gpu in self.gpus if gpu.is_lost and gpu.device.name is None}
        for before in earlier:
            now = by_uuid.get(before.device.uuid)
            if now is None and before.device.index in nameless:
                now = nameless.pop(before.device.index)
                now.device = msgspec.structs.replace(before.device, handle=None)
            if now is not None:
                now.adopt(before)
            else:
                before.lose(time.monotonic())
                self.gpus.append(before)
        self.gpus.sort(key=lambda gpu: gpu.device.index)

    def count(self, now: float) -> bool:
        """Lose the GPUs that have dropped out of the driver's count; tells whether it answered. Raises DriverGone."""
        if not self._count_turn.has_come(now):
            return False
        try:
            count = count_gpus()
        except DriverGone as gone:
            if gone.code in DEPARTURES:
                raise
            return False  # the GPUs themselves will tell
        if count < self._count:
            for gpu in self.gpus:
                if not gpu.is_lost and find_again(gpu.device) is None:
                    gpu.lose(now)
        self._count = max(count, self._count)
        return True

    def close(self) -> None:
        """Ask the event thread to end; NVML itself ends with the process."""
        if self._event_watch is not None:
            self._event_watch.end()

    def end(self) -> bool:
        """Shut NVML down, once; False while a thread of ours is still in the driver."""
        if self._has_ended:
            return True
        self.close()
        if self._event_watch is not None and not self._event_watch.has_ended(END_S):
            return False
        for gpu in self.gpus:
            gpu.free()
        nvml_init.stop()
        self._has_ended = True
        return True

    @staticmethod
    def _find(selection: Selection, proc: Path) -> list[Device]:
        try:
            found = find_gpus(proc)
            if not found and count_gpus():
                raise nvml_init.explanation(pynvml.NVML_ERROR_NO_PERMISSION, proc)
            if not found:
                raise nvml_init.no_gpu()
            selection.resolve(found, find_instances)
        except DriverGone as gone:
            raise nvml_init.explanation(gone.code, proc) from None
        return found
