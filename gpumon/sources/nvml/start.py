"""Knows how to start NVML, and what to tell a user when it does not start."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from gpumon.errors import DriverBroken, DriverMissing, NoSourceError
from gpumon.sources.nvml.reading import Versions
from gpumon.text import clean

PROC = Path("/proc")

_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+\.\d[\d.]*)")
_LIBRARY_FILE = re.compile(r"libnvidia-ml\.so\.(\d{3,}\.[\d.]+)")

_FIX_BY_CODE = {
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel driver is not loaded: run  sudo modprobe nvidia  or reboot; in a container, start it with"
        " --gpus all"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission to use the NVIDIA driver: ask for access to /dev/nvidiactl (often the group video or render)"
    ),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "a GPU lacks its power cables: plug them in and reboot",
    pynvml.NVML_ERROR_IRQ_ISSUE: "the kernel has an interrupt problem with a GPU: see  dmesg | grep -i nvrm",
    pynvml.NVML_ERROR_GPU_IS_LOST: "a GPU fell off the bus and NVML does not start: reboot the node",
    pynvml.NVML_ERROR_RESET_REQUIRED: "a GPU must be reset before NVML starts: nvidia-smi --gpu-reset, or reboot",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "the system blocks access to the GPUs: in a VM or after suspend, reboot",
    pynvml.NVML_ERROR_MEMORY: "NVML has no memory to start: free some RAM",
    pynvml.NVML_ERROR_UNKNOWN: (
        "NVML says Unknown Error: in a container, its GPUs were taken away (systemctl daemon-reload does that): restart"
        " the container; else see  dmesg | grep -i nvrm"
    ),
}
_TOO_OLD = frozenset({pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH})
OLDEST_DRIVER = "450"
_STARTS_MAX = 16


def module_version(proc: Path = PROC) -> str | None:
    """Version of the kernel module that is loaded; None where it cannot be read."""
    try:
        text = (proc / "driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _MODULE_VERSION.search(text)
    return found[1] if found else None


def library_version(proc: Path = PROC) -> str | None:
    """Version of the NVML library, which it tells without a working driver; else the name of its file does."""
    answer = _version_text(pynvml.nvmlSystemGetNVMLVersion)
    found = re.fullmatch(r"\d{1,2}\.(\d{3,}[\d.]*)", answer or "")  # "13.580.95.05": the CUDA major comes first
    if found:
        return found[1]
    try:
        maps = (proc / "self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return answer
    mapped = _LIBRARY_FILE.search(maps)
    return mapped[1].rstrip(".") if mapped else answer


def start(proc: Path = PROC) -> Versions:
    """Initialise NVML. Raises DriverMissing or DriverBroken with the line that says which and what to do."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise explanation(error.value, proc) from None
    return Versions(
        driver=_version_text(pynvml.nvmlSystemGetDriverVersion),
        nvml=_version_text(pynvml.nvmlSystemGetNVMLVersion),
        cuda=_cuda_version(),
    )


def stop() -> None:
    """Shut NVML down, however often this process started it: it counts, and only from 0 a new start begins afresh."""
    for _ in range(_STARTS_MAX):
        if not _stop_one():
            return


def _stop_one() -> bool:
    try:
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:  # not started any more, or away
        return False
    return True


def explanation(code: int, proc: Path = PROC) -> NoSourceError:
    """What a failed start means and what to do, in one line."""
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return DriverMissing(
            "no NVIDIA driver here (libnvidia-ml.so.1 not found). Install it, or start the container with --gpus all."
        )
    module = module_version(proc)
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        library = library_version(proc)
        which = " ".join(part for part in ("driver", module, "and library", library) if part)
        return DriverBroken(f"{which} do not match: reboot, or reload the nvidia kernel modules.")
    if code in _TOO_OLD:
        which = f"driver {module}" if module else "this NVIDIA driver"
        return DriverBroken(f"{which} is too old for gpumon: install {OLDEST_DRIVER} or newer.")
    fix = _FIX_BY_CODE.get(code)
    if fix is None:
        fix = f"NVML does not start ({clean(str(pynvml.NVMLError(code)))}, code {code}): see  dmesg | grep -i nvrm"
    return DriverBroken(f"{fix}.")


def no_gpu() -> DriverMissing:
    """What to say where the driver works and has no GPU."""
    return DriverMissing(
        "no NVIDIA GPU here (the driver works, but has none). In a container, start it with --gpus all; else see"
        "  lspci | grep -i nvidia  and  dmesg | grep -i nvrm."
    )


def _version_text(call: Callable[[], Any]) -> str | None:
    try:
        return clean(call())
    except UnicodeDecodeError as error:
        return clean(error.object)
    except pynvml.NVMLError:
        return None


def _cuda_version() -> str | None:
    for call in (pynvml.nvmlSystemGetCudaDriverVersion_v2, pynvml.nvmlSystemGetCudaDriverVersion):
        try:
            version: int = call()
        except (pynvml.NVMLError, ctypes.ArgumentError):
            continue
        return f"{version // 1000}.{version % 1000 // 10}"
    return None
