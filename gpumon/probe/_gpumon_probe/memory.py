"""What the framework's allocator says of itself: counters on the host, read without a call to the driver.

Nothing here may start a framework, make a context or wait for the device. So it asks only what is already running,
never for the current device (which is the calling thread's own), and never for the memory that is free.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

LOOK_AT_ALL_EVERY = 20
"""Reports; in between only the fullest device is asked."""
MOST_DEVICES = 64


class Memory(NamedTuple):
    """One device's figures; -1 is not known."""

    device: int = -1
    allocated: int = -1
    peak: int = -1
    reserved: int = -1
    reserved_peak: int = -1
    active: int = -1
    inactive_split: int = -1
    retries: int = -1
    ooms: int = -1
    device_alloc: int = -1
    device_free: int = -1
    requested: int = -1


NOT_KNOWN = Memory()


class Allocator:
    """The allocator of the framework that computes, and the device that it fills most."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.device = -1
        self.uuids: dict[int, str] = {}
        self._count = 0
        self._turn = 0

    def read(self) -> Memory:
        """The figures of the fullest device; from any thread."""
        cuda = _torch_cuda()
        if cuda is not None:
            return self._torch(cuda)
        return self._jax() or self._tensorflow() or NOT_KNOWN

    def read_allocated(self) -> int:
        """What is allocated now on the device that was fullest; in the loop's own thread."""
        cuda = _torch_cuda()
        if cuda is None:
            return -1
        try:
            device = self.device
            if device < 0:
                return -1
            if device not in self.uuids:
                self._name(cuda, device)
            return int(cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"])
        except Exception:
            return -1

    def _name(self, cuda: Any, device: int) -> None:
        """Once, from the loop's own thread: newer versions tell the UUID."""
        self.uuids[device] = ""
        uuid = str(getattr(cuda.get_device_properties(device), "uuid", ""))
        if uuid:
            self.uuids[device] = uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid

    def _torch(self, cuda: Any) -> Memory:
        if self.name is None:
            backend = str(cuda.get_allocator_backend()) if hasattr(cuda, "get_allocator_backend") else "native"
            self.name = "cuda-malloc-async" if backend == "cudaMallocAsync" else backend
            self._count = min(int(cuda.device_count()), MOST_DEVICES)
        self._turn += 1
        if self.device >= 0 and self._turn % LOOK_AT_ALL_EVERY:
            return _of_torch(cuda, self.device)
        fullest = max((_of_torch(cuda, device) for device in range(self._count)), key=_reserved, default=NOT_KNOWN)
        if fullest.reserved <= 0 and fullest.allocated <= 0:
            return NOT_KNOWN
        self.device = fullest.device
        return fullest

    def _jax(self) -> Memory | None:
        bridge = sys.modules.get("jax._src.xla_bridge")
        backends = getattr(bridge, "_backends", None)
        if not backends:
            return None
        found = []
        for backend in list(backends.values()):
            for device in list(backend.local_devices())[:MOST_DEVICES]:
                figures = device.memory_stats() if device.platform != "cpu" else None
                if figures:
                    found.append(_of_xla(int(device.local_hardware_id or 0), figures))
        if not found:
            return None
        self.name = "xla"
        return max(found, key=_allocated)

    def _tensorflow(self) -> Memory | None:
        module = sys.modules.get("tensorflow.python.eager.context")
        context = module.context_safe() if module is not None and hasattr(module, "context_safe") else None
        if context is None or getattr(context, "_context_handle", None) is None:
            return None
        names = [str(name) for name in context.devices() if ":GPU:" in str(name)][:MOST_DEVICES]
        found = []
        for name in names:
            figures = context.get_memory_info(name)
            number = int(name.rpartition(":")[2])
            found.append(NOT_KNOWN._replace(device=number, allocated=figures["current"], peak=figures["peak"]))
        if not found:
            return None
        self.name = "tf-bfc"
        return max(found, key=_allocated)


def _torch_cuda() -> Any:
    """The module, where CUDA is running already in this very process."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is None:
        return None
    try:
        return cuda if cuda.is_initialized() else None
    except Exception:
        return None  # while it is being imported


def _of_torch(cuda: Any, device: int) -> Memory:
    # The flat dictionary of `memory_stats` sorts 123 keys, which takes ten times as long.
    figures = cuda.memory_stats_as_nested_dict(device)

    def current(name: str) -> int:
        return int(figures[name]["all"]["current"]) if name in figures else -1

    def count(name: str) -> int:
        value = figures.get(name, -1)
        return int(value["all"]["current"] if isinstance(value, dict) else value)

    return Memory(
        device=device,
        allocated=current("allocated_bytes"),
        peak=int(figures["allocated_bytes"]["all"]["peak"]),
        reserved=current("reserved_bytes"),
        reserved_peak=int(figures["reserved_bytes"]["all"]["peak"]),
        active=current("active_bytes"),
        inactive_split=current("inactive_split_bytes"),
        retries=count("num_alloc_retries"),
        ooms=count("num_ooms"),
        device_alloc=count("num_device_alloc"),
        device_free=count("num_device_free"),
        requested=current("requested_bytes"),
    )


def _of_xla(device: int, figures: dict[str, Any]) -> Memory:
    reserved = figures.get("pool_bytes", figures.get("bytes_reserved", -1))
    return NOT_KNOWN._replace(
        device=device,
        allocated=int(figures.get("bytes_in_use", -1)),
        peak=int(figures.get("peak_bytes_in_use", -1)),
        reserved=int(reserved),
    )


def _reserved(memory: Memory) -> int:
    return memory.reserved


def _allocated(memory: Memory) -> int:
    return memory.allocated
