"""Knows the clocks event reasons: the driver's bits and the names that the contract gives them."""

from __future__ import annotations

from functools import lru_cache

_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "app_clocks"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal"),
    (0x40, "hw_thermal"),
    (0x80, "hw_power_brake"),
    (0x100, "display_clock"),
    (0x200, "board_limit"),
    (0x400, "reliability"),
)
REASON_NAMES = tuple(name for _, name in _BITS)


@lru_cache(maxsize=64)
def reason_names(mask: int) -> tuple[str, ...]:
    """The names of a mask's bits, in the order of the bits."""
    return tuple(name for bit, name in _BITS if mask & bit)
