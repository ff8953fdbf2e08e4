"""Knows what NVML reports by itself: Xid and other hardware events, waited for on a thread of their own."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import pynvml

from gpumon.model import Event
from gpumon.sources.nvml.calls import c_function
from gpumon.sources.nvml.devices import Device

WAIT_MS = 1000
"""At most this long in the driver: closing and starting again wait for it."""
PAUSE_S = 5.0
"""After an error: a set with a lost GPU fails at once, every time."""

_XID = pynvml.nvmlEventTypeXidCriticalError
_ECC = pynvml.nvmlEventTypeDoubleBitEccError
_UNAVAILABLE = pynvml.nvmlEventTypeGpuUnavailableError
_RECOVERY = pynvml.nvmlEventTypeGpuRecoveryAction
_WANTED = _XID | _ECC | _UNAVAILABLE | _RECOVERY


class EventWatch:
    """Registers with each GPU and puts what it reports on a queue."""

    def __init__(self, gpus: Mapping[str, Device], events: deque[Event]) -> None:
        """``gpus`` by uuid, with the handles of this start of NVML."""
        self._gpus = dict(gpus)
        self._events = events
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml events", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask the thread to end; it does within a second."""
        self._is_over.set()

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for the end; False while the driver holds the thread."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                event_set = pynvml.nvmlEventSetCreate()
            except pynvml.NVMLError:
                return  # WSL has none
            gpus = self._register(event_set)
            code = self._wait(event_set, gpus) if gpus else pynvml.NVML_ERROR_NOT_SUPPORTED
            try:
                pynvml.nvmlEventSetFree(event_set)
            except pynvml.NVMLError:
                return
            if code == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return
            self._is_over.wait(PAUSE_S)

    def _register(self, event_set: object) -> dict[int, Device]:
        """The GPUs that accept, by the address of their handle; a lost one does not, and must not spoil the set."""
        registered: dict[int, Device] = {}
        for gpu in self._gpus.values():
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & _WANTED
                if types:
                    pynvml.nvmlDeviceRegisterEvents(gpu.handle, types, event_set)
            except pynvml.NVMLError:
                continue
            if types:
                registered[_address(gpu.handle)] = gpu
        return registered

    def _wait(self, event_set: object, gpus: dict[int, Device]) -> int:
        """Wait for events until the end or an error; returns the error's code."""
        while not self._is_over.is_set():
            code, data = _next(event_set)
            if data is not None:
                self._events.append(_event(data, gpus.get(_address(data.device))))
            elif code != pynvml.NVML_ERROR_TIMEOUT:
                return code
        return int(pynvml.NVML_SUCCESS)


def _next(event_set: object) -> tuple[int, Any]:
    """NVML's code and the event, if one came in time; no exception for what happens every second, a timeout."""
    data = pynvml.c_nvmlEventData_t()
    try:
        code = c_function("nvmlEventSetWait_v2")(event_set, ctypes.byref(data), WAIT_MS)
    except pynvml.NVMLError as error:
        return error.value, None
    return code, data if code == 0 else None


def _address(handle: Any) -> int:  # noqa: ANN401 - a ctypes pointer
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _event(data: Any, gpu: Device | None) -> Event:  # noqa: ANN401 - a ctypes structure
    kind: int = data.eventType
    number: int = data.eventData
    uuid = None if gpu is None else gpu.uuid
    where = "an unknown GPU" if gpu is None else f"GPU {gpu.index} ({gpu.pci_bus_id})"
    now_s = time.time()
    if kind & _XID:
        return Event(kind="xid", time_s=now_s, gpu_uuid=uuid, xid=number, text=f"Xid {number} on {where}")
    if kind & _UNAVAILABLE:
        return Event(kind="gpu-lost", time_s=now_s, gpu_uuid=uuid, text=f"the driver calls {where} unavailable")
    if kind & _ECC:
        return Event(kind="ecc", time_s=now_s, gpu_uuid=uuid, text=f"uncorrectable memory error on {where}")
    text = f"the driver asks for recovery action {number} on {where}"
    return Event(kind="recovery-action", time_s=now_s, gpu_uuid=uuid, text=text)
