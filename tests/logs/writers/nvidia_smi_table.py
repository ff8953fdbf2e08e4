"""Writes snapshots as the table that ``nvidia-smi`` of the drivers from 545 on prints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from gpumon.model import Gpu, Process, Snapshot

_WIDE = "+" + "-" * 89 + "+"
_SPLIT = "+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+"
_DOUBLE = _SPLIT.replace("-", "=").replace("+=", "|=", 1)[:-1] + "|"
_MIG_SPLIT = "+" + "-" * 18 + "+" + "-" * 34 + "+" + "-" * 11 + "+" + "-" * 23 + "+"
_MIG_HEAD = (
    " " * 89,
    _WIDE,
    "| MIG devices:                                                                            |",
    _MIG_SPLIT,
    "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |",
    "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |",
    "|                  |                                  |        ECC|                       |",
    _MIG_SPLIT.replace("-", "=").replace("+=", "|=", 1)[:-1] + "|",
)
_MIB = 1024**2
_MODES = {
    "default": "Default",
    "exclusive-process": "E. Process",
    "exclusive-thread": "E. Thread",
    "prohibited": "Prohibited",
}


def write(snapshots: Iterable[Snapshot]) -> str:
    """One table after the other, as ``nvidia-smi -l`` prints them."""
    return "".join(map(table, snapshots))


def table(snapshot: Snapshot) -> str:
    """The table of one instant, with the line of its time."""
    host = snapshot.host
    when = datetime.fromtimestamp(snapshot.time_s, tz=timezone.utc)
    version = host.driver_version or "580.95.05"
    head = f"NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: {host.cuda_version or '13.0'}"
    lost = [gpu for gpu in snapshot.gpus if gpu.is_lost]
    lines = [
        *(f"Unable to determine the device handle for GPU{gpu.index}: {_bus(gpu)}: Unknown Error" for gpu in lost),
        f"{when:%a %b} {when.day:>2} {when:%H:%M:%S %Y}       ",
        _WIDE,
        f"| {head:<87} |",
        _SPLIT,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        _DOUBLE,
    ]
    for gpu in snapshot.gpus:
        if gpu.mig_parent_uuid is None and not gpu.is_lost:
            lines += [*_gpu(gpu), _SPLIT]
    instances = {gpu.uuid: gpu for gpu in snapshot.gpus if gpu.mig_parent_uuid is not None}
    parents = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    if instances:
        lines += [*_MIG_HEAD]
        lines += [line for gpu in instances.values() for line in _instance(gpu, parents)]
    lines += [" " * 89, _WIDE]
    lines += [
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|" + "=" * 89 + "|",
    ]
    places = {gpu.uuid: _place(gpu, parents) for gpu in snapshot.gpus if not gpu.is_lost}
    rows = sorted(row for process in snapshot.processes for row in _process(process, places))
    lines += [row for _, row in rows] or [f"|  {'No running processes found':<87}|"]
    return "\n".join([*lines, _WIDE, ""])


def _bus(gpu: Gpu) -> str:
    return (gpu.pci_bus_id or f"00000000:{gpu.index + 16:02X}:00.0").upper()


def _gpu(gpu: Gpu) -> tuple[str, str, str]:
    name = gpu.name or "NVIDIA"
    shown = name if len(name) <= 27 else name[:24] + "..."
    mode = {True: "On", False: "Off"}.get(bool(gpu.persistence)) if gpu.persistence is not None else "N/A"
    ecc = {None: "N/A", False: "Off"}.get(gpu.ecc_enabled, str(gpu.ecc_uncorrected or 0))
    memory = f"{_mib(gpu.memory_used_bytes):>10} / {_mib(gpu.memory_total_bytes):>9}"
    if gpu.memory_total_bytes is None:
        memory = f"{' Not Supported':<22}"
    power = f"{_unit(gpu.power_w, 'W'):>15} / {_unit(gpu.power_limit_w, 'W'):>5}"
    heat = f"{_unit(gpu.fan_pct, '%'):>3} {_unit(gpu.temperature_c, 'C'):>5}"
    sensors = f"{heat} {gpu.performance_state or 'N/A':>5} {power}"
    mig = {None: "N/A", True: "Enabled", False: "Disabled"}[gpu.mig_enabled]
    use = f"{_unit(gpu.utilization_pct, '%'):>7} {_MODES.get(gpu.compute_mode or 'default', 'Default'):>12}"
    return (
        f"| {gpu.index:>3}  {shown:<30} {mode:>3} | {_bus(gpu):>18} Off | {ecc:>20} |",
        f"| {sensors:<39} | {memory:>22} | {use:>20} |",
        f"| {'':<39} | {'':<22} | {mig:>20} |",
    )


def _instance(gpu: Gpu, parents: dict[str, int]) -> tuple[str, ...]:
    memory = f"{_mib(gpu.memory_used_bytes):>18} / {_mib(gpu.memory_total_bytes)}"
    counts = f"{gpu.sm_count or 14:>2} {gpu.ecc_uncorrected or 0:>6}"
    names = f"|{parents[gpu.mig_parent_uuid or '']:>3} {gpu.index + 1:>4}   0 {gpu.index:>3}  |"
    return (
        f"{names}{memory:<34}| {counts:<9} |  1   0    0    0    0 |",
        "|                  |                 0MiB / 16383MiB  |           |                       |",
        _MIG_SPLIT,
    )


def _place(gpu: Gpu, parents: dict[str, int]) -> tuple[int, str, str]:
    """Number of its GPU, of the GPU instance and of the compute instance."""
    if gpu.mig_parent_uuid is None:
        return gpu.index, "N/A", "N/A"
    return parents[gpu.mig_parent_uuid], f"{gpu.index + 1}", "0"


def _process(process: Process, places: dict[str, tuple[int, str, str]]) -> Iterable[tuple[tuple[int, int], str]]:
    for uuid, held in process.gpu_memory_bytes.items():
        if uuid in places:
            index, gi, ci = places[uuid]
            name = (process.command or process.name or "[Not Found]").split()[0]
            shown = name if len(name) <= 31 else "..." + name[-28:]
            row = f"| {index:>4} {gi:>5} {ci:>4} {process.pid:>15}      C   {shown:<33} {_mib(held):>9} |"
            yield (index, process.pid), row


def _unit(value: float | None, unit: str) -> str:
    return "N/A" if value is None else f"{value:.0f}{unit}"


def _mib(value: int | None) -> str:
    return "N/A" if value is None else f"{round(value / _MIB)}MiB"
