"""``gpumon once``: one reading of everything, as a table for people or one JSON snapshot for scripts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from gpumon import __version__, units
from gpumon.model import Gpu, Process, Snapshot
from gpumon.sources.once import read_once

HEAD = "GPU  NAME                      UTIL     MEM GiB    POWER W   TEMP  SM MHz   P  LIMITED BY"


def run(*, as_json: bool, gpus: Sequence[str] | None) -> int:
    """Read once and print. Rates are null: they need two readings.

    Raises:
        NoSourceError: no driver, no GPU, or a driver that refuses.
        UsageError: a GPU was named that is not there.
    """
    snapshot = read_once(gpus)
    sys.stdout.write(to_json(snapshot) if as_json else "\n".join(to_lines(snapshot)) + "\n")
    sys.stdout.flush()
    return 0


def to_json(snapshot: Snapshot) -> str:
    """The snapshot with gpumon's version, indented, nulls included."""
    record = {"gpumon": __version__, **msgspec.to_builtins(snapshot)}
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def to_lines(snapshot: Snapshot) -> list[str]:
    """The table: a line per GPU, its processes indented beneath it."""
    host = snapshot.host
    facts = [
        host.name or units.MISSING,
        units.clock(snapshot.time_s, "%Y-%m-%d %H:%M:%S"),
        f"driver {host.driver_version or units.MISSING}",
        f"CUDA {host.cuda_version or units.MISSING}",
    ]
    lines = ["  ".join(facts), HEAD]
    for gpu in snapshot.gpus:
        lines.append(_gpu_line(gpu))
        lines += [
            _process_line(process, gpu.uuid) for process in snapshot.processes if gpu.uuid in process.gpu_memory_bytes
        ]
    if host.processes_hidden is not None:
        lines.append(host.processes_hidden)
    return lines


def _gpu_line(gpu: Gpu) -> str:
    index = f"{gpu.index:>3}" if gpu.mig_parent_uuid is None else f".{gpu.index}".rjust(3)
    name = (gpu.mig_profile or gpu.name or units.MISSING)[:24]
    if gpu.is_lost:
        return f"{index}  {name:<24}  lost: the driver does not reach this GPU"
    util = units.MISSING if gpu.utilization_pct is None else f"{gpu.utilization_pct:.0f}%"
    memory = f"{units.memory(gpu.memory_used_bytes)}/{units.memory(gpu.memory_total_bytes)}"
    power = f"{units.number(gpu.power_w)}/{units.number(gpu.power_limit_w)}"
    limits = [reason for reason in gpu.clocks_event_reasons or () if reason != "gpu_idle"]
    return (
        f"{index}  {name:<24} {util:>5} {memory:>11} {power:>10} {units.value('x_c', gpu.temperature_c):>6}"
        f" {units.number(gpu.sm_clock_mhz):>7} {gpu.performance_state or units.MISSING:>3}  {' '.join(limits)}"
    ).rstrip()


def _process_line(process: Process, uuid: str) -> str:
    memory = process.gpu_memory_bytes[uuid]
    held = units.MISSING if memory is None else f"{units.memory(memory)} G"
    words = [f"{process.pid:>8}", f"{process.user or units.MISSING:<8}", f"{held:>8}"]
    return "  ".join([*words, process.command or process.name or "(not visible here)"])[:200]
