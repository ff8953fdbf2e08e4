"""Knows which rules there are, in the order in which they are shown."""

from __future__ import annotations

from gpumon.rules.alloc_retry import alloc_retry
from gpumon.rules.bandwidth_bound import bandwidth_bound
from gpumon.rules.clocks_locked_low import clocks_locked_low
from gpumon.rules.collective_hang import collective_hang
from gpumon.rules.comm_bound import comm_bound
from gpumon.rules.cooling_degraded import cooling_degraded
from gpumon.rules.cpu_training import cpu_training
from gpumon.rules.data_starved import data_starved
from gpumon.rules.disk_full import disk_full
from gpumon.rules.driver_mismatch import driver_mismatch
from gpumon.rules.driver_stuck import driver_stuck
from gpumon.rules.ecc_remap import ecc_remap
from gpumon.rules.fragmentation import fragmentation
from gpumon.rules.gpu_contention import gpu_contention
from gpumon.rules.gpu_lost import gpu_lost
from gpumon.rules.gpu_misconfigured import gpu_misconfigured
from gpumon.rules.h2d_slow import h2d_slow
from gpumon.rules.host_bound import host_bound
from gpumon.rules.hw_thermal import hw_thermal
from gpumon.rules.idle_reserved import idle_reserved
from gpumon.rules.kernels_too_small import kernels_too_small
from gpumon.rules.loss_nan import loss_nan
from gpumon.rules.low_power_high_util import low_power_high_util
from gpumon.rules.memory_hot import memory_hot
from gpumon.rules.memory_leak import memory_leak
from gpumon.rules.mixed_gpus import mixed_gpus
from gpumon.rules.no_progress_single import no_progress_single
from gpumon.rules.nvlink_down import nvlink_down
from gpumon.rules.oom_risk import oom_risk
from gpumon.rules.pause_cost import pause_cost
from gpumon.rules.pcie_degraded import pcie_degraded
from gpumon.rules.power_brake import power_brake
from gpumon.rules.power_capped_low import power_capped_low
from gpumon.rules.ram_pressure import ram_pressure
from gpumon.rules.rule import Rule
from gpumon.rules.shm_full import shm_full
from gpumon.rules.straggler import straggler
from gpumon.rules.sw_thermal import sw_thermal
from gpumon.rules.tensor_cores_idle import tensor_cores_idle
from gpumon.rules.throughput_drop import throughput_drop
from gpumon.rules.training_died import training_died
from gpumon.rules.training_ended import training_ended
from gpumon.rules.vram_orphaned import vram_orphaned
from gpumon.rules.worker_ram_leak import worker_ram_leak
from gpumon.rules.xid import xid

RULES: tuple[Rule, ...] = (
    gpu_lost,
    xid,
    ecc_remap,
    driver_stuck,
    driver_mismatch,
    gpu_misconfigured,
    ram_pressure,
    shm_full,
    worker_ram_leak,
    disk_full,
    hw_thermal,
    power_brake,
    sw_thermal,
    memory_hot,
    power_capped_low,
    clocks_locked_low,
    cooling_degraded,
    pcie_degraded,
    nvlink_down,
    mixed_gpus,
    comm_bound,
    throughput_drop,
    training_died,
    training_ended,
    collective_hang,
    no_progress_single,
    loss_nan,
    straggler,
    oom_risk,
    memory_leak,
    alloc_retry,
    fragmentation,
    vram_orphaned,
    gpu_contention,
    cpu_training,
    data_starved,
    h2d_slow,
    host_bound,
    pause_cost,
    idle_reserved,
    kernels_too_small,
    tensor_cores_idle,
    bandwidth_bound,
    low_power_high_util,
)
