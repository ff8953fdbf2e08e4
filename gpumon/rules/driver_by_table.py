"""Knows how ``nvidia-smi`` shows that driver, library and CUDA do not fit: by its words, and by the versions above."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.model import Evidence, Finding, Host, Severity, Subject
from gpumon.rules.cuda_versions import cuda_of_driver, version_of, written
from gpumon.window import Window

_NO_COMPATIBILITY = re.compile(r"GeForce|TITAN|GTX|MX\d{3}")
"""Where NVIDIA's compatibility libraries are refused (error 804): they are for data-centre cards."""
_WINDOWS = re.compile(r"\d{3}\.\d{2}")
_LINUX = re.compile(r"\d{3}\.\d{2,3}\.\d{2}")
_GARBAGE = (("555.42", "555.85"), ("555.42", "555.99"))
"""Library under WSL 2 and driver of Windows: their NVML fills strings and other answers with garbage."""
_SURE = frozenset({"library-version", "driver-away"})
_VERSION = "cat /proc/driver/nvidia/version"


class _Words(NamedTuple):
    """What is wrong, and what to do about it."""

    summary: str
    cause: str
    text: str | None
    fix: str
    fixes: tuple[str, ...]


_AWAY = _Words(
    "no NVIDIA driver answers",
    "driver-away",
    "its kernel module is not loaded, or not built for this kernel",
    "sudo modprobe nvidia; else build it: sudo dkms autoinstall",
    (
        "sudo modprobe nvidia; what it says tells more",
        "after a kernel update: sudo dkms autoinstall, with the headers of the running kernel (uname -r)",
        "Key was rejected by service: sign the module, or switch Secure Boot off",
        "in a container: the host's driver is meant; start it with --gpus all",
        "else install the driver again, then reboot",
    ),
)
_NO_ACCESS = _Words(
    "this container may not open its GPUs",
    "container-access",
    "systemctl daemon-reload on its host takes GPUs from containers",
    "start the container anew",
    (
        "start the container anew: its GPUs come back",
        "for good: native.cgroupdriver=cgroupfs in the host's daemon.json, or --device /dev/nvidia0 … for each",
        "outside a container: dmesg | grep -i nvrm",
    ),
)
_NO_NVML = _Words(
    "NVML cannot be started",
    "nvml",
    None,
    "dmesg | grep -i nvrm",
    ("dmesg | grep -i nvrm", "under WSL 2: wsl --shutdown, then update Windows' driver", "reboot"),
)


def refused(host: Host) -> Finding | None:
    """Why the driver serves nobody, by the line that stands in the table's place."""
    error = host.driver_error or ""
    said = error.lower()
    if any(words in said for words in ("couldn't communicate", "driver not loaded", "couldn't find")):
        return _found(_AWAY, error, "critical")
    if any(f"initialize nvml: {why}" in said for why in ("unknown error", "insufficient permissions")):
        return _found(_NO_ACCESS, error, "critical")
    if "initialize nvml" in said:
        return _found(_NO_NVML._replace(text=error.partition(": ")[2][:70] or None), error, "critical")
    return None


def is_wsl(host: Host) -> bool:
    """The tool's version is Linux's and the driver's is Windows', as in a table of WSL 2: they never agree there.

    A driver of Linux whose library has another version prints no table.
    """
    driver, library = host.driver_version or "", host.driver_library_version or ""
    is_told = host.driver_age_s is None and host.driver_error is None
    return is_told and _WINDOWS.fullmatch(driver) is not None and _LINUX.fullmatch(library) is not None


def garbled(host: Host) -> Finding | None:
    """A pair of versions whose answers are garbage."""
    driver, library = host.driver_version or "", host.driver_library_version or ""
    if not any(library.startswith(mine) and driver == theirs for mine, theirs in _GARBAGE):
        return None
    words = _Words(
        "what this driver tells is not to be trusted",
        "wsl-garbage",
        f"Windows driver {driver} gives programs under WSL 2 garbage for strings",
        "update Windows' NVIDIA driver",
        ("update the NVIDIA driver of Windows, then: wsl --shutdown",),
    )
    return _found(words, f"driver {driver}, NVIDIA-SMI {library}", "warning")


def unreadable_memory(window: Window, driver: str, library: str) -> Finding | None:
    """Memory that is not reported where driver and library have different versions, although the GPU answers."""
    gpus = [gpu for gpu in window.last.gpus if not gpu.is_lost and not gpu.memory_is_shared]
    blind = [gpu for gpu in gpus if gpu.memory_used_bytes is None and gpu.temperature_c is not None]
    if not blind or len(blind) < len(gpus):
        return None
    words = _Words(
        "driver and library differ: memory is unknown",
        "library-version",
        f"driver {driver} is loaded, nvidia-smi and its library are {library}",
        "install the driver again, whole; then reboot",
        (
            "install the driver again so that both parts have one version, then reboot",
            "Windows: remove it first (DDU); look for an old nvml.dll or nvidia-smi.exe earlier in PATH",
            "Linux: hold the driver's packages: sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
        ),
    )
    return _found(words, f"driver {driver}, NVIDIA-SMI {library}", "warning")


def newer_cuda(window: Window) -> Finding | None:
    """A CUDA that the driver did not bring, on cards that refuse it."""
    host = window.last.host
    driver, cuda = host.driver_version, host.cuda_version
    own, shown = cuda_of_driver(driver), version_of(cuda)
    if own is None or shown is None or shown <= own:
        return None
    brought = written(own)
    if not any(_NO_COMPATIBILITY.search(gpu.name or "") for gpu in window.last.gpus):
        return None
    words = _Words(
        f"CUDA {cuda} is not this driver's",
        "forward-compatibility",
        f"driver {driver} brings CUDA {brought}; error 804 on a GeForce",
        "take an image for its CUDA, or update the driver",
        (
            f"take an image built for CUDA {brought} or older",
            f"or update the host's driver to one for CUDA {cuda}",
            "or take the compatibility library out of the image: sudo apt remove 'cuda-compat-*'",
        ),
    )
    return _found(words, f"driver {driver}, CUDA {cuda}", "warning")


def _found(words: _Words, told: str, severity: Severity) -> Finding:
    return Finding(
        rule="driver-mismatch",
        severity=severity,
        confidence="certain" if words.cause in _SURE else "likely",
        subject=Subject(kind="host"),
        summary=words.summary,
        cause=words.cause,
        cause_text=words.text,
        fix_text=words.fix,
        evidence=(Evidence(name="nvidia-smi", value=told),),
        fixes=words.fixes,
        command=_VERSION if words.cause == "library-version" else None,
    )
