"""Knows which rules there are, in the order in which they are shown."""

from __future__ import annotations

from gpumon.rules.alloc_retry import alloc_retry
from gpumon.rules.clocks_locked_low import clocks_locked_low
from gpumon.rules.collective_hang import collective_hang
from gpumon.rules.cooling_degraded import cooling_degraded
from gpumon.rules.data_starved import data_starved
from gpumon.rules.driver_stuck import driver_stuck
from gpumon.rules.ecc_remap import ecc_remap
from gpumon.rules.fragmentation import fragmentation
from gpumon.rules.gpu_contention import gpu_contention
from gpumon.rules.gpu_lost import gpu_lost
from gpumon.rules.hw_thermal import hw_thermal
from gpumon.rules.memory_hot import memory_hot
from gpumon.rules.memory_leak import memory_leak
from gpumon.rules.oom_risk import oom_risk
from gpumon.rules.pcie_degraded import pcie_degraded
from gpumon.rules.power_brake import power_brake
from gpumon.rules.power_capped_low import power_capped_low
from gpumon.rules.rule import Rule
from gpumon.rules.straggler import straggler
from gpumon.rules.sw_thermal import sw_thermal
from gpumon.rules.vram_orphaned import vram_orphaned
from gpumon.rules.xid import xid

RULES: tuple[Rule, ...] = (
    gpu_lost,
    xid,
    ecc_remap,
    driver_stuck,
    hw_thermal,
    power_brake,
    sw_thermal,
    memory_hot,
    power_capped_low,
    clocks_locked_low,
    cooling_degraded,
    pcie_degraded,
    collective_hang,
    straggler,
    oom_risk,
    memory_leak,
    alloc_retry,
    fragmentation,
    vram_orphaned,
    gpu_contention,
    data_starved,
)
