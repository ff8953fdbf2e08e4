"""Knows how what the driver and the kernel report becomes events: each once, and storms as one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpumon.kernel_lines import Bus, bus_of
from gpumon.model import Event, Gpu
from gpumon.sources.host.kernel_log import KernelLog, Line

SAME_S = 5.0
"""The driver's event and the kernel's line of the same Xid come within this time."""

_Key = tuple[str, str | None, int | None]


class Happenings:
    """Joins both reports. The kernel's line says more (the process), so it goes first where both have come."""

    def __init__(self, log: KernelLog | None = None) -> None:
        self._log = log
        self._ahead: dict[_Key, tuple[float, int]] = {}
        """When, and by how many events the kernel was ahead of the driver (or behind it)."""

    def join(self, driver: Iterable[Event], gpus: Iterable[Gpu], now: float) -> tuple[Event, ...]:
        """Events since the last call, oldest first; equal ones become one with their number in ``values``."""
        lines = [] if self._log is None else self._log.drain()
        uuids = {bus_of(gpu.pci_bus_id): gpu.uuid for gpu in gpus if gpu.mig_parent_uuid is None} if lines else {}
        events = [_event(line, uuids) for line in lines]
        found = [event for event in events if self._is_new(event, now, 1)]
        found += [event for event in driver if self._is_new(event, now, -1)]
        return tuple(_joined(found))

    def close(self) -> None:
        """End the thread that reads the kernel's log."""
        if self._log is not None:
            self._log.close()

    def _is_new(self, event: Event, now: float, step: int) -> bool:
        if event.kind not in ("xid", "gpu-lost"):
            return True
        key = (event.kind, event.gpu_uuid, event.xid)
        at, ahead = self._ahead.get(key, (now, 0))
        if now - at > SAME_S:
            ahead = 0
        self._ahead[key] = (now, ahead + step)
        return ahead * step >= 0


def _event(line: Line, uuids: dict[Bus | None, str]) -> Event:
    uuid = None if line.bus is None else uuids.get(line.bus)
    return Event(kind=line.kind, time_s=line.time_s, gpu_uuid=uuid, pid=line.pid, xid=line.xid, text=line.text)


def _joined(events: Iterable[Event]) -> Iterable[Event]:
    counted: dict[tuple[str, str | None, int | None, int | None], tuple[Event, int]] = {}
    for event in events:
        key = (event.kind, event.gpu_uuid, event.xid, event.pid)
        if event.kind not in ("xid", "ecc"):
            key = (event.kind, event.gpu_uuid, len(counted), event.pid)
        first, count = counted.get(key, (event, 0))
        # The first line of a fault says what happened, the last one when it ended.
        counted[key] = (msgspec.structs.replace(first, time_s=event.time_s), count + 1)
    for event, count in counted.values():
        yield event if count == 1 else msgspec.structs.replace(event, values={"count": float(count)})
