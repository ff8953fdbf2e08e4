"""Knows the lines with which ``nvidia-smi`` gives up: on one GPU, or on all of them."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from gpumon.logs.reading import Place
from gpumon.logs.values import bus_id
from gpumon.text import clean

_HANDLE = re.compile(r"Unable to determine the device handle\b(?: for)?", re.IGNORECASE)
_INDEX = re.compile(r" {0,3}GPU {0,2}(\d{1,3})(?!\w)", re.IGNORECASE)
_BUS = re.compile(
    r"(?<![\w:])(?:GPU)?([0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])(?!\w)", re.IGNORECASE
)
_LOST = re.compile(r"\bGPU is lost\b\.?(?: +Reboot the system\b)?", re.IGNORECASE)
_AWAY = re.compile(
    r"Failed to initialize NVML: *\S"
    r"|NVIDIA-SMI has failed because\b"
    r"|NVIDIA-SMI couldn't (?:find|communicate)\b"
    r"|^[ \t]*No devices were found\.?[ \t]*$",
    re.IGNORECASE,
)
_LIBRARY = re.compile(r"^[ \t]*NVML library version: *(\d{3}[\d.]{1,12})")
_MODULE = re.compile(r"NVRM version: NVIDIA UNIX .{0,60}? Kernel Module(?: for \S{1,20})? {1,4}(\d{3}[\d.]{1,12})")
_TEXT_MAX = 250


class Message(NamedTuple):
    """What such a line says."""

    host: dict[str, Any]
    lost: Place | None
    """The GPU that is gone."""
    event: dict[str, Any] | None


def message(line: str) -> Message | None:
    """Read a line; None where it is none of these."""
    if "evice" not in line and "NVML" not in line and "NVIDIA" not in line and "GPU is lost" not in line:
        return None
    found = _AWAY.search(line)
    if found is not None:
        text = clean(line[found.start() :].strip(), _TEXT_MAX)
        return Message({"driver_error": text}, None, {"kind": "driver-error", "text": text})
    found = _HANDLE.search(line)
    if found is not None:
        return _handle(clean(line[found.start() :].rstrip(), _TEXT_MAX), found.end() - found.start())
    found = _LOST.search(line)
    if found is not None and "NVRM" not in line and "|" not in line:
        return Message({}, None, {"kind": "gpu-lost", "text": clean(line.strip(), _TEXT_MAX)})
    for pattern, field in ((_LIBRARY, "driver_library_version"), (_MODULE, "driver_version")):
        version = pattern.search(line[:_TEXT_MAX])
        if version is not None:
            return Message({field: version[1].rstrip(".")}, None, None)
    return None


def _handle(text: str, begins: int) -> Message:
    """One GPU that cannot be opened, by index, bus id or both; its name and bus id run together in some versions."""
    bus = _BUS.search(text, begins)
    index = _INDEX.match(text, begins)
    number = int(index[1]) if index is not None and (bus is None or index.end() < bus.start(1)) else None
    if "permission" in text.lower():
        return Message({}, None, {"kind": "driver-error", "text": text})
    place = Place(index=number, bus=bus_id(bus[1]) if bus is not None else None)
    return Message({}, None if place == Place() else place, {"kind": "gpu-lost", "text": text})
