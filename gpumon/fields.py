"""Knows which values are kept over time, so that rules can judge and charts can draw them."""

from __future__ import annotations

LIMITERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
BUDGET_FIELDS = (
    "budget.useful_pct",
    "budget.data_pct",
    "budget.throttled_pct",
    "budget.peer_pct",
    "budget.idle_pct",
)
GPU_FIELDS = (
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "sm_clock_mhz",
    "fan_pct",
    "sm_active_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "ecc_uncorrected",
    "ecc_corrected",
)
"""Plain attributes of a GPU; every GPU also has ``throttled_pct.<limiter>``, the budget's shares and the next one."""
PAUSED_FIELD = "paused_pct"
"""100 while the job on a GPU pauses (evaluation, checkpoint), 0 while it goes on; None without a job."""
GPU_RAW_FIELDS = (
    "encoder_pct",
    "decoder_pct",
    "graphics_active_pct",
    "fp32_active_pct",
    "fp64_active_pct",
    "memory_clock_mhz",
    "fan_target_pct",
    "pcie_gen",
    "pcie_width",
    "pcie_replays",
    "pcie_correctable_errors",
    "nvlinks_active",
    "nvlink_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "nvlink_errors",
    "nvlink_crc_errors",
    "nvlink_recovery_failures",
)
"""Attributes of a GPU that rules judge over minutes and no chart of hours shows: kept sample by sample only."""
HOST_FIELDS = (
    "cpu_pct",
    "memory_available_bytes",
    "swap_used_bytes",
    "cpu_pressure_pct",
    "io_pressure_pct",
    "memory_pressure_pct",
    "disk_read_bytes_per_s",
    "disk_write_bytes_per_s",
    "disk_busy_pct",
    "net_rx_bytes_per_s",
    "net_tx_bytes_per_s",
    "rdma_rx_bytes_per_s",
    "rdma_tx_bytes_per_s",
    "nfs_read_s",
    "swap_in_bytes_per_s",
    "oom_kills",
)
PROCESS_FIELDS = (
    "cpu_pct",
    "main_thread_cpu_pct",
    "disk_wait_pct",
    "run_delay_pct",
    "cpu_throttled_pct",
    "read_bytes_per_s",
    "rchar_bytes_per_s",
    "write_bytes_per_s",
    "memory_rss_bytes",
    "memory_pss_bytes",
    "memory_private_bytes",
    "memory_charged_bytes",
    "shm_used_bytes",
)
SM_FIELD = "gpu_sm_pct"
"""Of a process: share of the time with kernels of its own, as a mean over its GPUs."""
RANK_FIELDS = (
    "step",
    "step_s",
    "data_wait_s",
    "h2d_s",
    "forward_s",
    "samples_per_s",
    "waiting_s",
    "pause_s",
    "compiles",
    "compile_s",
    "heartbeat_age_s",
    "allocated_bytes",
    "allocated_peak_bytes",
    "allocated_min_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "alloc_retries",
    "ooms",
    "sampled_stacks",
    "sampled_waits",
)
"""What the probe reports of one training process; ``step`` and the counts from ``alloc_retries`` on are cumulative."""
VOLUME_FIELDS = ("free_bytes",)
