"""What a process has used, by the kernel's own clocks: CPU time to the nanosecond, memory that is its alone."""

from __future__ import annotations

import time
from pathlib import Path


def cpu_s(pid: int) -> float:
    """CPU time of a process and of what descends from it, threads that have ended included."""
    return sum(_clock_s(member) for member in (pid, *_descendants(pid)))


def _clock_s(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid() makes it
    except OSError:
        return 0.0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        for listed in Path(f"/proc/{queue.pop()}/task").glob("*/children"):
            try:
                children = [int(word) for word in listed.read_text().split()]
            except OSError:
                continue
            found += children
            queue += children
    return found


def uss_bytes(pid: int) -> int:
    """Memory that would be free if the process ended now."""
    private = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            private += 1024 * int(line.split()[1])
    return private
