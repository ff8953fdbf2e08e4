"""Which calls each kind of GPU answers, and with what, as far as the fake driver's tests need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

GIB = 1 << 30
MIB = 1 << 20

Value = str | float | int | bool | tuple[str, ...]

_RECENT = {"driver_version": "580.95.05", "nvml_version": "13.580.95.05", "cuda_version": "13.0"}


@dataclass(frozen=True)
class Profile:
    """One GPU: its state keys (without `gpu.N.`), its MIG instances, and the driver it came with."""

    name: str
    keys: Mapping[str, Value]
    mig: tuple[Mapping[str, Value], ...] = ()
    system: Mapping[str, Value] = field(default_factory=lambda: dict(_RECENT))

    def values(self, index: int) -> dict[str, Value]:
        """The keys of the GPU at this index, with an identity of its own."""
        values: dict[str, Value] = {
            "name": self.name,
            "uuid": f"GPU-{index:08x}-fa4e-4000-8000-{index:012x}",
            "pci_bus_id": f"{index // 16:08X}:{index % 16 * 16 + 1:02X}:00.0",
            "minor": index,
            **self.keys,
        }
        for number, instance in enumerate(self.mig):
            values[f"mig.{number}.uuid"] = f"MIG-{index:08x}-fa4e-5000-8000-{number:012x}"
            values.update({f"mig.{number}.{key}": value for key, value in instance.items()})
        return values

    def but(self, keys: Mapping[str, Value | None] = {}, **more: Value | None) -> Profile:
        """The same GPU with some keys changed; None takes one away."""
        merged = {**self.keys, **keys, **more}
        return Profile(self.name, {k: v for k, v in merged.items() if v is not None}, self.mig, self.system)


def _training(*, power_w: float, limit_w: float, sm_mhz: int, mem_mhz: int) -> dict[str, Value]:
    """What almost every GPU of the last years reports, at a steady and healthy load."""
    return {
        "utilization": 97,
        "memory_utilization": 60,
        "window_s": 0.1667,
        "encoder": 0,
        "decoder": 0,
        "power_w": power_w,
        "power_limit_w": limit_w,
        "power_default_limit_w": limit_w,
        "power_limit_min_w": round(limit_w / 3),
        "power_limit_max_w": limit_w,
        "power_averaging_s": 1,
        "has_power_fields": 1,
        "energy_base_j": 1000,
        "temperature": 62,
        "temperature_shutdown": 100,
        "temperature_slowdown": 97,
        "temperature_gpu_max": 90,
        "temperature_margin": 28,
        "tlimit_shutdown": -5,
        "tlimit_slowdown": -2,
        "tlimit_gpu_max": 0,
        "clock_graphics": sm_mhz,
        "clock_sm": sm_mhz,
        "clock_mem": mem_mhz,
        "clock_video": sm_mhz * 4 // 5,
        "max_clock_graphics": sm_mhz,
        "max_clock_sm": sm_mhz,
        "max_clock_mem": mem_mhz,
        "max_clock_video": sm_mhz * 4 // 5,
        "pstate": 0,
        "clocks_event_reasons": 0,
        "throttle.sw_power_cap": 0,
        "throttle.sync_boost": 0,
        "throttle.thermal": 0,
        "throttle.sw_thermal": 0,
        "throttle.hw_thermal": 0,
        "throttle.hw_power_brake": 0,
        "throttle.board_limit": 0,
        "throttle.low_utilization": 0,
        "throttle.reliability": 0,
        "pcie_gen": 4,
        "pcie_gen_max": 4,
        "pcie_gen_max_gpu": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "pcie_replays": 0,
        "pcie_rx_bytes_per_s": 2_000_000_000,
        "pcie_tx_bytes_per_s": 300_000_000,
        "compute_mode": 0,
        "persistence": 1,
        "recovery_action": 0,
        "process_utilization": 1,
        "processes_utilization_info": 1,
    }


def _ecc() -> dict[str, Value]:
    return {
        "ecc_mode": 1,
        "ecc_volatile_corrected": 0,
        "ecc_volatile_uncorrected": 0,
        "ecc_aggregate_corrected": 0,
        "ecc_aggregate_uncorrected": 0,
        "remapped_rows_corrected": 0,
        "remapped_rows_uncorrected": 0,
        "remap_pending": 0,
        "remap_failed": 0,
    }


def _gpm() -> dict[str, Value]:
    return {
        "has_gpm": 1,
        "gpm.graphics": 97,
        "gpm.sm": 82,
        "gpm.occupancy": 31,
        "gpm.integer": 12,
        "gpm.tensor": 44,
        "gpm.hmma": 44,
        "gpm.dfma": 0,
        "gpm.imma": 0,
        "gpm.dram": 52,
        "gpm.fp64": 0,
        "gpm.fp32": 8,
        "gpm.fp16": 1,
    }


def rtx4090() -> Profile:
    """A consumer card: no ECC, NVLink, GPM or memory temperature."""
    return Profile(
        "NVIDIA GeForce RTX 4090",
        {
            **_training(power_w=388, limit_w=450, sm_mhz=2730, mem_mhz=10501),
            "architecture": 8,
            "compute_capability": "8.9",
            "cores": 16384,
            "memory_total": 24564 * MIB,
            "memory_reserved": 482 * MIB,
            "fan_pct": 46,
            "fans": 2,
            "memory_temperature": 0,
            "clocks_event_reasons": ("sw_power_cap",),
            "throttle.sw_power_cap": 30,
        },
    )


def laptop() -> Profile:
    """A laptop's GPU: fans and power limit belong to the machine, so the driver does not report them."""
    return rtx4090_like("NVIDIA GeForce RTX 4060 Laptop GPU", 8188 * MIB).but(
        fan_pct=None,
        fans=None,
        power_limit_w=None,
        power_default_limit_w=None,
        power_limit_min_w=None,
        power_limit_max_w=None,
        memory_temperature=None,
        power_w=88.0,
        temperature=79,
        cores=3072,
        pcie_width=8,
        pcie_width_max=8,
        power_source=0,
    )


def rtx4090_like(name: str, memory_total: int) -> Profile:
    """An Ada consumer card by another name."""
    return Profile(name, {**rtx4090().keys, "memory_total": memory_total, "memory_reserved": 256 * MIB})


def a100_mig() -> Profile:
    """An A100 split into three instances: utilization is not supported, on it or on them."""
    instances = tuple(
        {
            "name": f"NVIDIA A100-SXM4-40GB MIG {profile}",
            "gpu_instance": gpu_instance,
            "compute_instance": 0,
            "gpu_slices": slices,
            "compute_slices": slices,
            "multiprocessors": slices * 14,
            "memory_total": memory,
            "memory_reserved": 0,
        }
        for profile, gpu_instance, slices, memory in (
            ("3g.20gb", 1, 3, 20096 * MIB),
            ("2g.10gb", 3, 2, 9856 * MIB),
            ("1g.5gb", 9, 1, 4864 * MIB),
        )
    )
    keys: dict[str, Value] = {
        **_training(power_w=214, limit_w=400, sm_mhz=1410, mem_mhz=1215),
        **_ecc(),
        "architecture": 7,
        "compute_capability": "8.0",
        "cores": 6912,
        "memory_total": 40960 * MIB,
        "memory_reserved": 600 * MIB,
        "memory_temperature": 66,
        "power_averaging_s": 0,
        "nvlinks": 12,
        "mig_mode": 1,
        "process_utilization": "not_supported",
        "processes_utilization_info": "not_supported",
    }
    del keys["temperature_margin"]
    return Profile("NVIDIA A100-SXM4-40GB", keys, instances)


def h100() -> Profile:
    """A data-centre GPU of the Hopper generation: GPM, 18 NVLinks, ECC, PCIe byte counters."""
    return Profile(
        "NVIDIA H100 80GB HBM3",
        {
            **_training(power_w=612, limit_w=700, sm_mhz=1980, mem_mhz=2619),
            **_ecc(),
            **_gpm(),
            "architecture": 9,
            "compute_capability": "9.0",
            "cores": 16896,
            "memory_total": 81559 * MIB,
            "memory_reserved": 551 * MIB,
            "memory_temperature": 71,
            "tlimit_memory_max": 0,
            "nvlinks": 18,
            "nvlink_rx_bytes_per_s": 90_000_000_000,
            "nvlink_tx_bytes_per_s": 90_000_000_000,
            "nvlink_crc_flit_errors": 0,
            "nvlink_crc_data_errors": 0,
            "nvlink_replay_errors": 0,
            "nvlink_recovery_errors": 0,
            "field.214": 0,
            "fabric_state": 3,
            "mig_mode": 0,
            "pcie_gen": 5,
            "pcie_gen_max": 5,
            "pcie_gen_max_gpu": 5,
            "pcie_counter_bits": 64,
        },
    )


def gb10() -> Profile:
    """A unified-memory machine: no memory figures, no fan, and a link that looks like PCIe 1.0 x1."""
    keys: dict[str, Value] = {
        **_training(power_w=44, limit_w=140, sm_mhz=2418, mem_mhz=8533),
        "architecture": 10,
        "compute_capability": "12.1",
        "cores": 6144,
        "pcie_gen": 1,
        "pcie_gen_max": 1,
        "pcie_gen_max_gpu": 1,
        "pcie_width": 1,
        "pcie_width_max": 1,
    }
    for absent in ("power_limit_w", "power_default_limit_w", "power_limit_min_w", "power_limit_max_w", "clock_mem"):
        del keys[absent]
    return Profile("NVIDIA GB10", keys)


def gb10_zero() -> Profile:
    """The same machine with a driver that answers the memory call, with zeros."""
    return gb10().but(memory_total=0, memory_used=0, memory_reserved=0)


def old_driver() -> Profile:
    """A 2080 Ti on a driver of 2021: no versioned calls, no new names, no field above 190."""
    missing = (
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetNumGpuCores",
        "nvmlDeviceGetNumFans",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleAlloc",
        "nvmlGpmSampleGet",
        "nvmlGpmMetricsGet",
    )
    system: dict[str, Value] = {
        "driver_version": "465.19.01",
        "nvml_version": "11.465.19.01",
        "cuda_version": "11.3",
        **{f"call.{name}.missing": 1 for name in missing},
    }
    return Profile(
        "NVIDIA GeForce RTX 2080 Ti",
        {
            **_training(power_w=238, limit_w=260, sm_mhz=1935, mem_mhz=7000),
            "architecture": 6,
            "compute_capability": "7.5",
            "memory_total": 11019 * MIB,
            "memory_reserved": 0,
            "fan_pct": 58,
            "temperature": 76,
            "temperature_margin": 0,
            "temperature_slowdown": 91,
            "temperature_shutdown": 94,
            "temperature_gpu_max": 89,
            "field_max": 160,
            "power_averaging_s": 0,
            "pcie_gen": 3,
            "pcie_gen_max": 3,
            "pcie_gen_max_gpu": 3,
        },
        system=system,
    )


def rtx5090() -> Profile:
    """A consumer Blackwell: the old process-utilization call never has anything, the new one works; GPM works."""
    return Profile(
        "NVIDIA GeForce RTX 5090",
        {
            **_training(power_w=541, limit_w=575, sm_mhz=2760, mem_mhz=14001),
            **_gpm(),
            "architecture": 10,
            "compute_capability": "12.0",
            "cores": 21760,
            "memory_total": 32607 * MIB,
            "memory_reserved": 518 * MIB,
            "memory_temperature": 78,
            "fan_pct": 52,
            "fans": 2,
            "pcie_gen": 5,
            "pcie_gen_max": 5,
            "pcie_gen_max_gpu": 5,
            "process_utilization": "not_found",
        },
    )
