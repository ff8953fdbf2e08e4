"""Whether the driver's process numbers mean anything here, and the plain words where they do not."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from gpumon.sources.host.procfs import list_numbers, read, read_link

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel gives the first namespace of each kind a fixed number (include/linux/proc_ns.h)."""
_MAPS_BYTES = 1 << 23

NAMESPACE_WORDS = "PIDs belong to the host: run the container with --pid=host to see processes"
HIDEPID_WORDS = "other users' processes are hidden (/proc has hidepid): run as root to see them"


class PidView(NamedTuple):
    """What can be said about the driver's pids."""

    sees_host_pids: bool
    words: str | None
    """Why some or all of them cannot be looked up; None where they can."""


def is_namespaced(proc: str) -> bool:
    """Tell whether this /proc numbers processes in a namespace of its own."""
    link = read_link(f"{proc}/self/ns/pid")
    return link is not None and link != _FIRST_PID_NAMESPACE


def hides_pids(proc: str) -> bool:
    """Tell whether /proc is mounted so that other users' processes cannot be looked up."""
    data = read(f"{proc}/self/mounts", 1 << 20) or b""
    for line in data.decode("utf-8", "replace").splitlines():
        words = line.split(" ")
        if len(words) >= 4 and words[2] == "proc" and words[1] in (proc, "/proc"):
            for option in words[3].split(","):
                name, _, value = option.partition("=")
                if name == "hidepid":
                    return value not in ("0", "off")
    return False


def holds_gpu(proc: str, pid: int) -> bool:
    """Tell whether a process has an NVIDIA device or driver library open."""
    descriptors = f"{proc}/{pid}/fd"
    if any((read_link(f"{descriptors}/{fd}") or "").startswith("/dev/nvidia") for fd in list_numbers(descriptors)):
        return True
    maps = read(f"{proc}/{pid}/maps", _MAPS_BYTES) or b""
    return b"/dev/nvidia" in maps or b"libcuda.so" in maps


def view_pids(proc: str, holders: Collection[int], resolved: Collection[int]) -> PidView:
    """Judge by what this /proc is and by how many of the driver's pids are processes in it."""
    if len(resolved) < len(holders) or not holders:
        if is_namespaced(proc) and not resolved:
            return PidView(sees_host_pids=False, words=NAMESPACE_WORDS)
        if holders and os.geteuid() != 0 and hides_pids(proc):
            return PidView(sees_host_pids=bool(resolved), words=HIDEPID_WORDS)
    return PidView(sees_host_pids=True, words=None)
