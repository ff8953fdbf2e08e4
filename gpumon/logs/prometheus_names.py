"""Knows what the metrics of GPU exporters mean: DCGM's, gpumon's own, and those of other dialects."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.logs.dcgm_names import DCGM, MIB, OTHER, OWN, Meaning, table
from gpumon.model import Gpu

_MI = f"{MIB:.0f}"
_NVITOP = f"""
gpu_utilization_Percentage utilization_pct 1
gpu_memory_utilization_Percentage memory_utilization_pct 1
gpu_encoder_utilization_Percentage encoder_pct 1
gpu_decoder_utilization_Percentage decoder_pct 1
gpu_memory_used_MiB memory_used_bytes {_MI}
gpu_memory_total_MiB memory_total_bytes {_MI}
gpu_power_usage_W power_w 1
gpu_power_limit_W power_limit_w 1
gpu_temperature_C temperature_c 1
gpu_fan_speed_Percentage fan_pct 1
gpu_clock_sm_MHz sm_clock_mhz 1
gpu_clock_memory_MHz memory_clock_mhz 1
gpu_pcie_tx_throughput_MiBps pcie_tx_bytes_per_s {_MI}
gpu_pcie_rx_throughput_MiBps pcie_rx_bytes_per_s {_MI}
gpu_nvlink_total_tx_throughput_MiBps nvlink_tx_bytes_per_s {_MI}
gpu_nvlink_total_rx_throughput_MiBps nvlink_rx_bytes_per_s {_MI}
process_gpu_memory_MiB use.memory {_MI}
process_gpu_sm_utilization_Percentage use.sm 1
process_cpu_percent_Percentage use.cpu_pct 1
process_rss_memory_MiB use.memory_rss_bytes {_MI}
process_info_info use.info 1
host_cpu_percent_Percentage host.cpu_pct 1
host_virtual_memory_total_MiB host.memory_total_bytes {_MI}
host_load_average_1m_Percentage host.load_1 1
"""

_SMI = """
nvidia_smi_utilization_gpu_ratio utilization_pct 100
nvidia_smi_utilization_memory_ratio memory_utilization_pct 100
nvidia_smi_utilization_encoder_ratio encoder_pct 100
nvidia_smi_utilization_decoder_ratio decoder_pct 100
nvidia_smi_memory_used_bytes memory_used_bytes 1
nvidia_smi_memory_total_bytes memory_total_bytes 1
nvidia_smi_memory_reserved_bytes memory_reserved_bytes 1
nvidia_smi_power_draw_watts power_w 1
nvidia_smi_enforced_power_limit_watts power_limit_w 1
nvidia_smi_power_default_limit_watts power_default_limit_w 1
nvidia_smi_temperature_gpu temperature_c 1
nvidia_smi_temperature_memory memory_temperature_c 1
nvidia_smi_fan_speed_ratio fan_pct 100
nvidia_smi_clocks_current_sm_clock_hz sm_clock_mhz 1e-6
nvidia_smi_clocks_current_memory_clock_hz memory_clock_mhz 1e-6
nvidia_smi_clocks_max_sm_clock_hz sm_clock_max_mhz 1e-6
nvidia_smi_clocks_max_memory_clock_hz memory_clock_max_mhz 1e-6
nvidia_smi_pstate performance_state 1
nvidia_smi_clocks_event_reasons_active clocks_event_reasons 1
nvidia_smi_clocks_throttle_reasons_active clocks_event_reasons 1
nvidia_smi_clocks_event_reasons_counters_sw_power_cap_seconds share.sw_power_cap 1
nvidia_smi_clocks_event_reasons_counters_sync_boost_seconds share.sync_boost 1
nvidia_smi_clocks_event_reasons_counters_sw_thermal_slowdown_seconds share.sw_thermal 1
nvidia_smi_clocks_event_reasons_counters_hw_thermal_slowdown_seconds share.hw_thermal 1
nvidia_smi_clocks_event_reasons_counters_hw_power_brake_slowdown_seconds share.hw_power_brake 1
nvidia_smi_pcie_link_gen_current pcie_gen 1
nvidia_smi_pcie_link_gen_max pcie_gen_max 1
nvidia_smi_pcie_link_width_current pcie_width 1
nvidia_smi_pcie_link_width_max pcie_width_max 1
nvidia_smi_ecc_errors_corrected_volatile_total ecc_corrected 1
nvidia_smi_ecc_errors_uncorrected_volatile_total ecc_uncorrected 1
nvidia_smi_remapped_rows_correctable remapped_rows_corrected 1
nvidia_smi_remapped_rows_uncorrectable remapped_rows_uncorrected 1
nvidia_smi_remapped_rows_pending remap_pending 1
nvidia_smi_remapped_rows_failure remap_failed 1
nvidia_smi_mig_mode_current mig_enabled 1
nvidia_smi_persistence_mode persistence 1
nvidia_smi_gpu_recovery_action recovery_action 1
nvidia_smi_gpu_info info 1
nvidia_smi_xid_errors_total xid.total 1
nvidia_smi_xid_last_timestamp_seconds xid.time 1
nvidia_smi_compute_app_used_memory_bytes use.memory 1
nvidia_smi_compute_app_info use.info 1
nvidia_smi_last_collect_success_timestamp_seconds host.time 1
"""
"""utkuozdemir/nvidia_gpu_exporter."""

_JOBSTATS = """
nvidia_gpu_duty_cycle utilization_pct 1
nvidia_gpu_memory_used_bytes memory_used_bytes 1
nvidia_gpu_memory_total_bytes memory_total_bytes 1
nvidia_gpu_power_usage_milliwatts power_w 1e-3
nvidia_gpu_temperature_celsius temperature_c 1
nvidia_gpu_fanspeed_percent fan_pct 1
nvidia_gpu_graphics_util_percent graphics_active_pct 1
nvidia_gpu_sm_util_percent sm_active_pct 1
nvidia_gpu_sm_occupancy_percent sm_occupancy_pct 1
nvidia_gpu_any_tensor_util_percent tensor_active_pct 1
nvidia_gpu_dram_bw_util_percent dram_active_pct 1
nvidia_gpu_fp64_util_percent fp64_active_pct 1
nvidia_gpu_fp32_util_percent fp32_active_pct 1
nvidia_gpu_pcie_tx_per_sec pcie_tx_bytes_per_s 1
nvidia_gpu_pcie_rx_per_sec pcie_rx_bytes_per_s 1
nvidia_gpu_nvlink_total_rx_per_sec nvlink_rx_bytes_per_s 1
nvidia_gpu_nvlink_total_tx_per_sec nvlink_tx_bytes_per_s 1
"""
"""mindprince's nvidia_gpu_prometheus_exporter and plazonic's of Princeton's jobstats."""

_ALL_SMI = """
all_smi_gpu_utilization utilization_pct 1
all_smi_gpu_memory_used_bytes memory_used_bytes 1
all_smi_gpu_memory_total_bytes memory_total_bytes 1
all_smi_gpu_power_consumption_watts power_w 1
all_smi_gpu_power_limit_current_watts power_limit_w 1
all_smi_gpu_temperature_celsius temperature_c 1
all_smi_gpu_temperature_threshold_slowdown_celsius temperature_slowdown_c 1
all_smi_gpu_temperature_threshold_shutdown_celsius temperature_shutdown_c 1
all_smi_gpu_temperature_threshold_max_operating_celsius temperature_max_c 1
all_smi_gpu_frequency_mhz sm_clock_mhz 1
all_smi_gpu_clock_graphics_max_mhz sm_clock_max_mhz 1
all_smi_gpu_clock_memory_max_mhz memory_clock_max_mhz 1
all_smi_gpu_performance_state performance_state 1
all_smi_gpu_pcie_gen_current pcie_gen 1
all_smi_gpu_pcie_width_current pcie_width 1
all_smi_gpu_sm_occupancy sm_occupancy_pct 100
all_smi_gpu_memory_bandwidth_utilization dram_active_pct 100
all_smi_gpu_mig_mode mig_enabled 1
all_smi_gpu_info info 1
all_smi_mig_instance_memory_used_bytes memory_used_bytes 1
all_smi_mig_instance_memory_total_bytes memory_total_bytes 1
all_smi_process_memory_used_bytes use.memory 1
all_smi_process_cpu_percent use.cpu_pct 1
"""

_OTHERS = """
hw_gpu_memory_usage_bytes memory_used_bytes 1
hw_gpu_memory_limit_bytes memory_total_bytes 1
node_load1 host.load_1 1
node_memory_MemTotal_bytes host.memory_total_bytes 1
node_memory_MemAvailable_bytes host.memory_available_bytes 1
node_time_seconds host.time 1
"""

_SMI_REASONS = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "app_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
}
_OWN_SUFFIXES = (
    ("_bytes_per_s", "_bytes_per_second", 1.0),
    ("_pct", "_ratio", 100.0),
    ("_mhz", "_hertz", 1e-6),
    ("_w", "_watts", 1.0),
    ("_c", "_celsius", 1.0),
    ("_j", "_joules_total", 1.0),
)


def _own() -> dict[str, Meaning]:
    """Names of our own: the model's, with units as Prometheus writes them."""
    found: dict[str, Meaning] = {}
    for field, kind in Gpu.__annotations__.items():
        if kind not in {"float | None", "int | None"}:
            continue
        for suffix, unit, factor in _OWN_SUFFIXES:
            if field.endswith(suffix):
                found[f"gpumon_gpu_{field.removesuffix(suffix)}{unit}"] = Meaning(field, factor, OWN)
                break
        else:
            if field.endswith("_bytes"):
                found[f"gpumon_gpu_{field}"] = Meaning(field, 1.0, OWN)
    return found | {"gpumon_gpu_info": Meaning("info", 1.0, OWN), "gpumon_gpu_xid_errors_total": _XID_TOTAL}


_XID_TOTAL = Meaning("xid.total", 1.0, OWN)

MEANINGS: Mapping[str, Meaning] = {
    **DCGM,
    **table(_NVITOP + _SMI + _JOBSTATS + _ALL_SMI + _OTHERS, OTHER),
    **{
        f"nvidia_smi_clocks_{kind}_reasons_{name}": Meaning(f"reason.{reason}", 1.0, OTHER)
        for name, reason in _SMI_REASONS.items()
        for kind in ("event", "throttle")
    },
    **_own(),
}
"""Metrics whose name says everything."""


def _by_value(field: str, values: Mapping[str, str], factor: float, rank: int) -> dict[str, Meaning]:
    return {value: Meaning(field.format(name), factor, rank) for value, name in values.items()}


_WAYS = {"rx": "rx", "tx": "tx"}
_LIMITERS = {
    name: name for name in ("sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake")
}
BY_LABEL: Mapping[str, tuple[tuple[str, ...], Mapping[str, Meaning]]] = {
    "gpumon_gpu_temperature_celsius": (
        ("sensor",),
        _by_value("{}temperature_c", {"gpu": "", "memory": "memory_", "": ""}, 1.0, OWN),
    ),
    "gpumon_gpu_clock_hertz": (("domain",), _by_value("{}_clock_mhz", {"sm": "sm", "memory": "memory"}, 1e-6, OWN)),
    "gpumon_gpu_throttle_seconds_total": (("reason",), _by_value("share.{}", _LIMITERS, 1.0, OWN)),
    "gpumon_gpu_pcie_bytes_total": (("direction",), _by_value("rate.pcie_{}_bytes_per_s", _WAYS, 1.0, OWN)),
    "gpumon_gpu_nvlink_bytes_total": (("direction",), _by_value("rate.nvlink_{}_bytes_per_s", _WAYS, 1.0, OWN)),
    "gpumon_gpu_ecc_errors_total": (
        ("kind",),
        _by_value("ecc_{}", {"corrected": "corrected", "uncorrected": "uncorrected"}, 1.0, OWN),
    ),
    "nvidia_gpu_clock": (("type",), _by_value("{}_clock_mhz", {"sm": "sm", "mem": "memory"}, 1.0, OTHER)),
    "nvidia_gpu_ecc_errors": (
        ("counter", "error"),
        _by_value("ecc_{}", {"volatile corrected": "corrected", "volatile uncorrected": "uncorrected"}, 1.0, OTHER),
    ),
    "nvidia_gpu_clock_event_reason": (
        ("reason",),
        _by_value(
            "reason.{}",
            {
                "idle": "gpu_idle",
                "application": "app_clocks",
                "swpowercap": "sw_power_cap",
                "hwslowdown": "hw_slowdown",
                "syncboost": "sync_boost",
                "swthermalslowdown": "sw_thermal",
                "hwthermalslowdown": "hw_thermal",
                "hwpowerbrakeslowdown": "hw_power_brake",
            },
            1.0,
            OTHER,
        ),
    ),
    "hw_gpu_utilization_ratio": (
        ("hw_gpu_task",),
        _by_value(
            "{}_pct",
            {
                "": "utilization",
                "general": "utilization",
                "all": "utilization",
                "compute-all": "utilization",
                "encoder": "encoder",
                "decoder": "decoder",
            },
            100.0,
            OTHER,
        ),
    ),
    "hw_power_watts": (("hw_type",), _by_value("power_w", {"gpu": ""}, 1.0, OTHER)),
    "hw_temperature_celsius": (("hw_type",), _by_value("temperature_c", {"gpu": ""}, 1.0, OTHER)),
}
"""Metrics whose labels say which value it is: names of the labels, and what each value means."""

ON_INSTANCE = frozenset(
    "memory_used_bytes memory_total_bytes memory_reserved_bytes free.memory_bytes graphics_active_pct sm_active_pct"
    " sm_occupancy_pct tensor_active_pct dram_active_pct fp32_active_pct fp64_active_pct".split()
)
"""What a MIG instance has of its own. The rest that exporters write for it is the whole GPU's."""
UNKNOWN_WITH_MIG = frozenset({"utilization_pct", "memory_utilization_pct", "encoder_pct", "decoder_pct"})
"""What nobody measures on a GPU that is split; a 0 there is no idle GPU."""


def meaning_of(name: str, labels: Mapping[str, str]) -> Meaning | None:
    """What a series says; None where it is not about GPUs, or not known."""
    by_label = BY_LABEL.get(name)
    if by_label is None:
        return MEANINGS.get(name)
    wanted, meanings = by_label
    found = meanings.get(" ".join(labels.get(label, "") for label in wanted))
    return found if found is not None else MEANINGS.get(name)


_PREFIXES = ("DCGM_FI_", "DCGM_EXP_", "dcgm_", "nvidia_smi_", "nvidia_gpu_", "all_smi_", "gpumon_")


def is_of_gpus(name: str) -> bool:
    """Whether a metric is one of a GPU exporter, known or not."""
    return (name in MEANINGS and not name.startswith(("node_", "process_", "host_"))) or (
        name in BY_LABEL or name.startswith(_PREFIXES)
    )
