"""Knows the names of DCGM's fields in the three generations of dcgm-exporter, with their units."""

from __future__ import annotations

from typing import NamedTuple

MIB = float(1 << 20)
OWN, NEW, USUAL, OTHER = 4, 3, 2, 1
"""Ranks: of several dialects for one value, the one of the highest rank counts."""


class Meaning(NamedTuple):
    """What a metric says."""

    field: str
    """Of ``model.Gpu``; with a prefix where it is none as it stands.

    ``ratio.``: a share by its name, percent in some versions. ``free.``: memory that is left. ``share.`` and ``rate.``:
    counters that become shares of time and bytes per second by their growth. ``reason.``: a flag. ``both.``: traffic of
    both ways together. ``xid.``, ``use.``, ``host.``: of faults, processes and the machine.
    """
    factor: float
    rank: int


def table(text: str, rank: int) -> dict[str, Meaning]:
    """Lines of name, field and factor as a table."""
    rows = (line.split() for line in text.splitlines() if line)
    return {name: Meaning(field, float(factor), rank) for name, field, factor in rows}


_MI = f"{MIB:.0f}"

_USUAL = f"""
DCGM_FI_DEV_GPU_UTIL utilization_pct 1
DCGM_FI_DEV_MEM_COPY_UTIL memory_utilization_pct 1
DCGM_FI_DEV_ENC_UTIL encoder_pct 1
DCGM_FI_DEV_DEC_UTIL decoder_pct 1
DCGM_FI_DEV_FB_USED memory_used_bytes {_MI}
DCGM_FI_DEV_FB_FREE free.memory_bytes {_MI}
DCGM_FI_DEV_FB_RESERVED memory_reserved_bytes {_MI}
DCGM_FI_DEV_FB_TOTAL memory_total_bytes {_MI}
DCGM_FI_DEV_POWER_USAGE power_w 1
DCGM_FI_DEV_ENFORCED_POWER_LIMIT power_limit_w 1
DCGM_FI_DEV_POWER_MGMT_LIMIT power_limit_w 1
DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF power_default_limit_w 1
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION energy_j 1e-3
DCGM_FI_DEV_GPU_TEMP temperature_c 1
DCGM_FI_DEV_MEMORY_TEMP memory_temperature_c 1
DCGM_FI_DEV_SLOWDOWN_TEMP temperature_slowdown_c 1
DCGM_FI_DEV_SHUTDOWN_TEMP temperature_shutdown_c 1
DCGM_FI_DEV_GPU_MAX_OP_TEMP temperature_max_c 1
DCGM_FI_DEV_MEM_MAX_OP_TEMP memory_temperature_max_c 1
DCGM_FI_DEV_FAN_SPEED fan_pct 1
DCGM_FI_DEV_SM_CLOCK sm_clock_mhz 1
DCGM_FI_DEV_MEM_CLOCK memory_clock_mhz 1
DCGM_FI_DEV_MAX_SM_CLOCK sm_clock_max_mhz 1
DCGM_FI_DEV_MAX_MEM_CLOCK memory_clock_max_mhz 1
DCGM_FI_DEV_PSTATE performance_state 1
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS clocks_event_reasons 1
DCGM_FI_DEV_CLOCKS_EVENT_REASONS clocks_event_reasons 1
DCGM_FI_DEV_POWER_VIOLATION share.sw_power_cap 1e-9
DCGM_FI_DEV_THERMAL_VIOLATION share.sw_thermal 1e-9
DCGM_FI_DEV_SYNC_BOOST_VIOLATION share.sync_boost 1e-9
DCGM_FI_DEV_PCIE_REPLAY_COUNTER pcie_replays 1
DCGM_FI_DEV_PCIE_LINK_GEN pcie_gen 1
DCGM_FI_DEV_PCIE_LINK_WIDTH pcie_width 1
DCGM_FI_DEV_PCIE_MAX_LINK_GEN pcie_gen_max 1
DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH pcie_width_max 1
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL both.nvlink 1e6
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL nvlink_crc_errors 1
DCGM_FI_DEV_ECC_SBE_VOL_TOTAL ecc_corrected 1
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL ecc_uncorrected 1
DCGM_FI_DEV_ECC_CURRENT ecc_enabled 1
DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS remapped_rows_uncorrected 1
DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS remapped_rows_corrected 1
DCGM_FI_DEV_ROW_REMAP_FAILURE remap_failed 1
DCGM_FI_DEV_ROW_REMAP_PENDING remap_pending 1
DCGM_FI_DEV_MIG_MODE mig_enabled 1
DCGM_FI_DEV_PERSISTENCE_MODE persistence 1
DCGM_FI_DEV_GPU_RECOVERY_ACTION recovery_action 1
DCGM_FI_DEV_XID_ERRORS xid.last 1
DCGM_EXP_XID_ERRORS_COUNT xid.window 1
DCGM_EXP_XID_ERRORS_TOTAL xid.total 1
DCGM_FI_PROF_GR_ENGINE_ACTIVE graphics_active_pct 100
DCGM_FI_PROF_SM_ACTIVE sm_active_pct 100
DCGM_FI_PROF_SM_OCCUPANCY sm_occupancy_pct 100
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE tensor_active_pct 100
DCGM_FI_PROF_DRAM_ACTIVE dram_active_pct 100
DCGM_FI_PROF_PIPE_FP32_ACTIVE fp32_active_pct 100
DCGM_FI_PROF_PIPE_FP64_ACTIVE fp64_active_pct 100
DCGM_FI_PROF_PCIE_TX_BYTES pcie_tx_bytes_per_s 1
DCGM_FI_PROF_PCIE_RX_BYTES pcie_rx_bytes_per_s 1
DCGM_FI_PROF_NVLINK_TX_BYTES nvlink_tx_bytes_per_s 1
DCGM_FI_PROF_NVLINK_RX_BYTES nvlink_rx_bytes_per_s 1
"""
"""Up to dcgm-exporter 4.8. The total of NVLink calls itself a counter and is MB/s of the moment; violations are in ns
whatever their help text says."""

_UNITS = """
DCGM_FI_DEV_GPU_UTIL_RATIO ratio.utilization_pct 100
DCGM_FI_DEV_MEM_COPY_UTIL_RATIO ratio.memory_utilization_pct 100
DCGM_FI_DEV_MEMORY_UTIL_RATIO ratio.memory_utilization_pct 100
DCGM_FI_DEV_ENC_UTIL_RATIO ratio.encoder_pct 100
DCGM_FI_DEV_DEC_UTIL_RATIO ratio.decoder_pct 100
DCGM_FI_DEV_FAN_SPEED_RATIO ratio.fan_pct 100
DCGM_FI_DEV_FB_USED_BYTES memory_used_bytes 1
DCGM_FI_DEV_FB_FREE_BYTES free.memory_bytes 1
DCGM_FI_DEV_FB_RESERVED_BYTES memory_reserved_bytes 1
DCGM_FI_DEV_FB_CAPACITY_BYTES memory_total_bytes 1
DCGM_FI_DEV_BOARD_POWER_WATTS power_w 1
DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS power_limit_w 1
DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS power_default_limit_w 1
DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL energy_j 1
DCGM_FI_DEV_GPU_TEMP_CELSIUS temperature_c 1
DCGM_FI_DEV_MEMORY_TEMP_CELSIUS memory_temperature_c 1
DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS temperature_slowdown_c 1
DCGM_FI_DEV_GPU_TEMP_SHUTDOWN_CELSIUS temperature_shutdown_c 1
DCGM_FI_DEV_GPU_MAX_OP_TEMP_CELSIUS temperature_max_c 1
DCGM_FI_DEV_MEMORY_MAX_OP_TEMP_CELSIUS memory_temperature_max_c 1
DCGM_FI_DEV_SM_CLOCK_HERTZ sm_clock_mhz 1e-6
DCGM_FI_DEV_MEMORY_CLOCK_HERTZ memory_clock_mhz 1e-6
DCGM_FI_DEV_MAX_SM_CLOCK_HERTZ sm_clock_max_mhz 1e-6
DCGM_FI_DEV_MAX_MEMORY_CLOCK_HERTZ memory_clock_max_mhz 1e-6
DCGM_FI_DEV_GPU_PSTATE performance_state 1
DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS share.sw_power_cap 1e-9
DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS share.sync_boost 1e-9
DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_COUNT_NS share.sync_boost 1e-9
DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS share.sw_thermal 1e-9
DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS share.hw_thermal 1e-9
DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS share.hw_power_brake 1e-9
DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL share.sw_power_cap 1
DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL share.sw_thermal 1
DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL share.sync_boost 1
DCGM_FI_DEV_PCIE_REPLAY_TOTAL pcie_replays 1
DCGM_FI_DEV_PCIE_CORRECTABLE_ERROR_TOTAL pcie_correctable_errors 1
DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL both.nvlink 1e6
DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND both.nvlink 1
DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL nvlink_crc_errors 1
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL nvlink_crc_errors 1
DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL nvlink_recovery_failures 1
DCGM_FI_DEV_ECC_MODE ecc_enabled 1
DCGM_FI_DEV_ECC_PENDING ecc_enabled_pending 1
DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL remapped_rows_uncorrected 1
DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL remapped_rows_corrected 1
DCGM_FI_DEV_ROW_REMAP_FAILED remap_failed 1
DCGM_FI_DEV_GPU_PERSISTENCE_MODE persistence 1
DCGM_FI_DEV_XID_ERROR xid.last 1
DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO graphics_active_pct 100
DCGM_FI_PROF_SM_UTIL_RATIO sm_active_pct 100
DCGM_FI_PROF_SM_OCCUPANCY_RATIO sm_occupancy_pct 100
DCGM_FI_PROF_TENSOR_UTIL_RATIO tensor_active_pct 100
DCGM_FI_PROF_DRAM_UTIL_RATIO dram_active_pct 100
DCGM_FI_PROF_FP32_UTIL_RATIO fp32_active_pct 100
DCGM_FI_PROF_FP64_UTIL_RATIO fp64_active_pct 100
"""
"""Since dcgm-exporter 4.9, where names carry units."""

_FIRST = f"""
dcgm_gpu_utilization utilization_pct 1
dcgm_mem_copy_utilization memory_utilization_pct 1
dcgm_enc_utilization encoder_pct 1
dcgm_dec_utilization decoder_pct 1
dcgm_fb_used memory_used_bytes {_MI}
dcgm_fb_free free.memory_bytes {_MI}
dcgm_power_usage power_w 1
dcgm_total_energy_consumption energy_j 1e-3
dcgm_gpu_temp temperature_c 1
dcgm_memory_temp memory_temperature_c 1
dcgm_sm_clock sm_clock_mhz 1
dcgm_memory_clock memory_clock_mhz 1
dcgm_power_violation share.sw_power_cap 1e-9
dcgm_thermal_violation share.sw_thermal 1e-9
dcgm_pcie_replay_counter pcie_replays 1
dcgm_ecc_sbe_volatile_total ecc_corrected 1
dcgm_ecc_dbe_volatile_total ecc_uncorrected 1
dcgm_xid_errors xid.last 1
dcgm_nvlink_bandwidth_total both.nvlink 1e6
dcgm_fi_prof_gr_engine_active graphics_active_pct 100
dcgm_fi_prof_sm_active sm_active_pct 100
dcgm_fi_prof_sm_occupancy sm_occupancy_pct 100
dcgm_fi_prof_pipe_tensor_active tensor_active_pct 100
dcgm_fi_prof_dram_active dram_active_pct 100
"""
"""gpu-monitoring-tools and dcgm-exporter 1."""

DCGM: dict[str, Meaning] = {**table(_USUAL, USUAL), **table(_FIRST, USUAL), **table(_UNITS, NEW)}
