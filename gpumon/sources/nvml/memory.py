"""Knows how much memory a GPU has and uses, also where it has none of its own."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pynvml

from gpumon.sources.nvml.calls import Asker, Question

MEMINFO = Path("/proc/meminfo")
_SIZES = ("total", "reserved", "free", "used")


class _Memory(ctypes.Structure):
    """nvmlMemory_v2_t, without the Python code that pynvml runs on each access."""

    _fields_ = (("version", ctypes.c_uint), *((name, ctypes.c_ulonglong) for name in _SIZES))


def memory_question() -> Question:
    """What ``memory`` asks of a device again and again."""
    return Question("nvmlDeviceGetMemoryInfo_v2", _Memory(version=pynvml.nvmlMemory_v2))


def memory(asker: Asker, question: Question, *, may_be_shared: bool = True) -> dict[str, Any]:
    """The record's memory fields; absent where the driver does not say.

    Version 2 keeps the driver's reserve apart from what is used; version 1 counts it as used. Integrated GPUs (GB10,
    Thor) answer "not supported" or 0 bytes to both: they use the host's memory.
    """
    info = asker.vital("memory v2", question)
    has_reserve = info is not None
    if info is None:
        info = asker.vital("memory v1", pynvml.nvmlDeviceGetMemoryInfo)
    if info is None:
        refusal = asker.refusals.get("memory v1")
        is_shared = refusal is not None and refusal[1] == pynvml.NVML_ERROR_NOT_SUPPORTED
    else:
        is_shared = info.total == 0
    if is_shared and may_be_shared:
        return host_memory()
    if info is None or not info.total:
        return {}
    total: int = info.total
    used: int = info.used
    fields: dict[str, Any] = {"memory_total_bytes": total}
    if used <= total:
        fields["memory_used_bytes"] = used
    if has_reserve:
        fields["memory_reserved_bytes"] = info.reserved
    return fields


def host_memory(meminfo: Path = MEMINFO) -> dict[str, Any]:
    """The host's memory as a GPU's: used is everything that is no longer available, whoever took it."""
    sizes: dict[str, int] = {}
    try:
        lines = meminfo.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines[:8]:
        name, _, rest = line.partition(":")
        amount = rest.split()
        if amount and amount[0].isdigit():
            sizes[name] = int(amount[0]) * 1024
    fields: dict[str, Any] = {"memory_is_shared": True}
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if total is not None:
        fields["memory_total_bytes"] = total
        if available is not None:
            fields["memory_used_bytes"] = total - available
    return fields
