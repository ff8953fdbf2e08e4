"""Knows how a GPU sits in its machine: multiprocessors, NUMA node, power source, the state of its NVSwitch fabric."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml

from gpumon.sources.host.procfs import read
from gpumon.sources.nvml.calls import Asker

PCI_DEVICES = Path("/sys/bus/pci/devices")

_POWER_SOURCES = {
    pynvml.NVML_POWER_SOURCE_AC: "ac",
    pynvml.NVML_POWER_SOURCE_BATTERY: "battery",
    pynvml.NVML_POWER_SOURCE_UNDERSIZED: "undersized",
}
_FABRIC_STATES = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED: "not-supported",
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not-started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in-progress",
    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED: "completed",
}
_CORES_PER_SM = {3: 192, 5: 128, 7: 64, 9: 128, 10: 128, 11: 128, 12: 128}
"""By the major number of the compute capability; 6 and 8 differ by the minor one."""


def learn(asker: Asker, bus_id: str | None, devices: Path = PCI_DEVICES) -> dict[str, Any]:
    """What does not change: multiprocessors and NUMA node."""
    facts: dict[str, Any] = {"numa_node": _numa_node(bus_id, devices)}
    cores = asker("cores", pynvml.nvmlDeviceGetNumGpuCores)
    capability = asker("compute capability", pynvml.nvmlDeviceGetCudaComputeCapability)
    if cores and capability is not None:
        per_sm = _cores_per_sm(*capability)
        facts["sm_count"] = cores // per_sm if per_sm and cores % per_sm == 0 else None
    return facts


def look(asker: Asker) -> dict[str, Any]:
    """What may change while it runs: a charger pulled, a fabric manager stopped."""
    source = asker("power source", pynvml.nvmlDeviceGetPowerSource)
    return {
        "power_source": None if source is None else _POWER_SOURCES.get(source),
        "fabric_state": _fabric_state(asker),
    }


def _fabric_state(asker: Asker) -> str | None:
    info = pynvml.c_nvmlGpuFabricInfo_v2_t()
    if asker("fabric", pynvml.nvmlDeviceGetGpuFabricInfoV, ctypes.byref(info)) is None:
        info = pynvml.c_nvmlGpuFabricInfo_t()
        if asker("fabric v1", pynvml.nvmlDeviceGetGpuFabricInfo, ctypes.byref(info)) is None:
            return None
    # One byte in the driver's header, four in the binding's: the rest is padding.
    return _FABRIC_STATES.get(info.state & 0xFF)


def _cores_per_sm(major: int, minor: int) -> int | None:
    if major == 6:
        return 64 if minor == 0 else 128
    if major == 8:
        return 64 if minor == 0 else 128
    return _CORES_PER_SM.get(major)


def _numa_node(bus_id: str | None, devices: Path) -> int | None:
    """The kernel's word for it; NVML has one only for GPUs that are NUMA nodes themselves."""
    domain, _, rest = (bus_id or "").lower().partition(":")
    if not rest or len(domain) < 4:
        return None
    # NVML writes eight digits of PCI domain, the kernel four where they suffice.
    name = f"{domain[4:] if len(domain) == 8 and domain.startswith('0000') else domain}:{rest}"
    data = read(f"{devices}/{name}/numa_node")
    try:
        node = int(data) if data else -1
    except ValueError:
        return None
    return node if node >= 0 else None
