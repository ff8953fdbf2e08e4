"""Writes snapshots as ``nvidia-smi --query-gpu=… --format=csv -l 1`` prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone

from gpumon.model import Gpu, Snapshot

Cell = Callable[[Gpu], object]

_MIB = 1024**2
MISSING, LOST = "[N/A]", "[GPU is lost]"
_RECOVERY = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")
_REASONS = {
    "gpu_idle": "gpu_idle",
    "app_clocks": "applications_clocks_setting",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "sw_thermal": "sw_thermal_slowdown",
    "sync_boost": "sync_boost",
}


def _on(value: bool | None, words: tuple[str, str] = ("Enabled", "Disabled")) -> str | None:
    return None if value is None else words[0] if value else words[1]


def _reason(name: str) -> Cell:
    return lambda gpu: (
        None if gpu.clocks_event_reasons is None else _on(name in gpu.clocks_event_reasons, ("Active", "Not Active"))
    )


COLUMNS: dict[str, Cell] = {
    "name": lambda gpu: gpu.name,
    "uuid": lambda gpu: gpu.uuid,
    "pci.bus_id": lambda gpu: gpu.pci_bus_id and gpu.pci_bus_id.upper(),
    "pcie.link.gen.current": lambda gpu: gpu.pcie_gen,
    "pcie.link.gen.max": lambda gpu: gpu.pcie_gen_max,
    "pcie.link.width.current": lambda gpu: gpu.pcie_width,
    "pcie.link.width.max": lambda gpu: gpu.pcie_width_max,
    "index": lambda gpu: gpu.index,
    "persistence_mode": lambda gpu: _on(gpu.persistence),
    "gpu_recovery_action": lambda gpu: None if gpu.recovery_action is None else _RECOVERY[gpu.recovery_action],
    "fan.speed [%]": lambda gpu: gpu.fan_pct,
    "pstate": lambda gpu: gpu.performance_state,
    **{f"clocks_event_reasons.{theirs}": _reason(mine) for mine, theirs in _REASONS.items()},
    "memory.total [MiB]": lambda gpu: gpu.memory_total_bytes,
    "memory.reserved [MiB]": lambda gpu: gpu.memory_reserved_bytes,
    "memory.used [MiB]": lambda gpu: gpu.memory_used_bytes,
    "compute_mode": lambda gpu: gpu.compute_mode and gpu.compute_mode.replace("-", "_").title(),
    "compute_cap": lambda gpu: gpu.compute_capability,
    "utilization.gpu [%]": lambda gpu: gpu.utilization_pct,
    "utilization.memory [%]": lambda gpu: gpu.memory_utilization_pct,
    "utilization.encoder [%]": lambda gpu: gpu.encoder_pct,
    "utilization.decoder [%]": lambda gpu: gpu.decoder_pct,
    "ecc.mode.current": lambda gpu: _on(gpu.ecc_enabled),
    "ecc.mode.pending": lambda gpu: _on(gpu.ecc_enabled_pending),
    "ecc.errors.corrected.volatile.total": lambda gpu: gpu.ecc_corrected,
    "ecc.errors.uncorrected.volatile.total": lambda gpu: gpu.ecc_uncorrected,
    "ecc.errors.uncorrected.aggregate.sram": lambda gpu: gpu.ecc_sram_uncorrected,
    "remapped_rows.correctable": lambda gpu: gpu.remapped_rows_corrected,
    "remapped_rows.uncorrectable": lambda gpu: gpu.remapped_rows_uncorrected,
    "remapped_rows.pending": lambda gpu: _on(gpu.remap_pending, ("Yes", "No")),
    "remapped_rows.failure": lambda gpu: _on(gpu.remap_failed, ("Yes", "No")),
    "temperature.gpu": lambda gpu: gpu.temperature_c,
    "temperature.gpu.tlimit": lambda gpu: gpu.temperature_margin_c,
    "temperature.memory": lambda gpu: gpu.memory_temperature_c,
    "power.draw [W]": lambda gpu: gpu.power_w,
    "enforced.power.limit [W]": lambda gpu: gpu.power_limit_w,
    "power.default_limit [W]": lambda gpu: gpu.power_default_limit_w,
    "clocks.current.sm [MHz]": lambda gpu: gpu.sm_clock_mhz,
    "clocks.current.memory [MHz]": lambda gpu: gpu.memory_clock_mhz,
    "clocks.max.sm [MHz]": lambda gpu: gpu.sm_clock_max_mhz,
    "clocks.max.memory [MHz]": lambda gpu: gpu.memory_clock_max_mhz,
    "mig.mode.current": lambda gpu: _on(gpu.mig_enabled),
}
"""In the order of ``nvidia-smi --help-query-gpu``, as far as snapshots hold them."""


def log(snapshots: Iterable[Snapshot]) -> str:
    """One header, then a row per GPU and snapshot; MIG instances have no rows."""
    lines = ["timestamp, driver_version, " + ", ".join(COLUMNS)]
    for snapshot in snapshots:
        when = datetime.fromtimestamp(snapshot.time_s, tz=timezone.utc)
        stamp = f"{when:%Y/%m/%d %H:%M:%S}.{when.microsecond // 1000:03d}"
        driver = snapshot.host.driver_version or MISSING
        lines += [
            ", ".join([stamp, driver, *(_cell(name, cell, gpu) for name, cell in COLUMNS.items())])
            for gpu in snapshot.gpus
            if gpu.mig_parent_uuid is None
        ]
    return "\n".join([*lines, ""])


def _cell(name: str, cell: Cell, gpu: Gpu) -> str:
    value = cell(gpu)
    if gpu.is_lost and name not in {"index", "uuid", "pci.bus_id"}:
        return LOST
    if value is None:
        return MISSING
    if not isinstance(value, (int, float)):
        return str(value)
    unit = name.partition(" [")[2].rstrip("]")
    if unit == "MiB":
        return f"{value / _MIB:.0f} MiB"
    return f"{value:.2f} W" if unit == "W" else f"{value:.0f} {unit}".rstrip()
