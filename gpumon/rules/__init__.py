"""Knows which rules there are, in the order in which they are shown."""

from __future__ import annotations

from gpumon.rules.clocks_locked_low import clocks_locked_low
from gpumon.rules.cooling_degraded import cooling_degraded
from gpumon.rules.data_starved import data_starved
from gpumon.rules.driver_stuck import driver_stuck
from gpumon.rules.ecc_remap import ecc_remap
from gpumon.rules.gpu_lost import gpu_lost
from gpumon.rules.hw_thermal import hw_thermal
from gpumon.rules.memory_hot import memory_hot
from gpumon.rules.power_brake import power_brake
from gpumon.rules.power_capped_low import power_capped_low
from gpumon.rules.rule import Rule
from gpumon.rules.sw_thermal import sw_thermal
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
    data_starved,
)
