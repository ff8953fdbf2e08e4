"""The fixed ends of every chart's scale: from the card's limits, never from the data."""

from __future__ import annotations

from gpumon.model import Gpu
from gpumon.signals import temperature_limit_c

Scale = tuple[float, float]

UNKNOWN_POWER_W = 400.0
UNKNOWN_CLOCK_MHZ = 2500.0


def power_limit(gpu: Gpu) -> float | None:
    """What the card may draw now."""
    return gpu.power_limit_w or gpu.power_default_limit_w


def power_scale(gpu: Gpu) -> Scale:
    """0 to the limit."""
    return (0.0, power_limit(gpu) or UNKNOWN_POWER_W)


def temperature_scale(gpu: Gpu) -> Scale:
    """30 to 100 °C, to 110 for cards that may get that hot."""
    limit = temperature_limit_c(gpu)
    return (30.0, 110.0 if limit is not None and limit >= 100.0 else 100.0)


def clock_scale(gpu: Gpu) -> Scale:
    """0 to the highest SM clock."""
    return (0.0, gpu.sm_clock_max_mhz or UNKNOWN_CLOCK_MHZ)


def memory_scale(gpu: Gpu) -> Scale:
    """0 to all of it."""
    return (0.0, float(gpu.memory_total_bytes or 1))
