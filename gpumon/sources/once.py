"""Knows how to read everything a single time: no threads, no rates, nothing that needs a second look."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from gpumon.model import Snapshot
from gpumon.sources.host.machine import MachineReader
from gpumon.sources.host.reader import once_pid_view, once_processes
from gpumon.sources.inbox.inbox import Inbox
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.sources.nvml.reading import aged, with_driver


def read_once(gpus: Sequence[str] | None = None) -> Snapshot:
    """One snapshot: rates are None, power is the instant reading; what probes tell is of the last second.

    Raises:
        NoSourceError: no driver, no GPU, or a driver that refuses.
        UsageError: a GPU was named that is not there.
    """
    reading = NvmlReader(gpus=gpus).read_once()
    now = time.monotonic()
    holders = reading.uses()
    view = once_pid_view(holders)
    host = msgspec.structs.replace(
        with_driver(MachineReader("/proc", "/sys").read(now, 1.0), reading, 0.0),
        sees_host_pids=view.sees_host_pids,
        processes_hidden=view.words,
    )
    seen = aged(reading, now)
    inbox = Inbox()
    ranks = inbox.read(holders, seen, now)
    inbox.close()
    return Snapshot(time_s=time.time(), gpus=seen, processes=once_processes(holders), host=host, ranks=ranks)
