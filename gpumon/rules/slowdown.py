"""Knows the bit ``hw_slowdown`` where it stands alone: the hardware halves the clock and does not say why."""

from __future__ import annotations

from gpumon.model import Evidence, Finding, Gpu
from gpumon.rules import thermal
from gpumon.rules.one_reading import clock, has, shown
from gpumon.window import Window

_READINGS = 3
"""Fewer may be a change of the performance state, which sets the bit as well."""
_LOOK_S = 60.0
_BUSY_PCT = 50.0
_CLOCK_SHARE = 0.6
"""The hardware divides the clock by two or more."""
_HOT_C = 8.0
_NAMED = ("hw_thermal", "hw_power_brake")


def is_unnamed(window: Window, gpu: Gpu) -> bool:
    """The bit is set without either of its reasons, and the busy GPU has had half its clock in three readings."""
    top = gpu.sm_clock_max_mhz
    if not has(gpu, "hw_slowdown") or not top or any(has(gpu, name) for name in _NAMED):
        return False
    if any(window.mean(gpu, f"throttled_pct.{name}", _LOOK_S) for name in _NAMED):
        return False
    clocks, uses = (window.series(gpu, field, _LOOK_S)[-_READINGS:] for field in ("sm_clock_mhz", "utilization_pct"))
    is_slow = all(one is not None and one <= _CLOCK_SHARE * top for one in clocks)
    return len(clocks) == _READINGS and is_slow and all(use is not None and use >= _BUSY_PCT for use in uses)


def is_hot(gpu: Gpu) -> bool:
    """So near to where the hardware protects itself that heat is the likeliest reason."""
    limit = gpu.temperature_slowdown_c or gpu.temperature_max_c
    return limit is not None and gpu.temperature_c is not None and gpu.temperature_c >= limit - _HOT_C


def unnamed(rule: str, gpu: Gpu, fixes: tuple[str, ...]) -> Finding:
    """A warning: that it is slowed is sure, what by is not told."""
    heat = "" if gpu.temperature_c is None else f" ({gpu.temperature_c:.0f} °C)"
    guess = "hot" if is_hot(gpu) else "not heat: power supply, power peaks"
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} is slowed by its hardware",
        cause="unnamed",
        cause_text=f"the driver names no reason; {guess}{heat}",
        fix_text=fixes[0],
        evidence=(
            Evidence(name="HW slowdown", value="set", judged_by=f"and half the clock in {_READINGS} readings"),
            clock(gpu),
            shown("temperature", gpu.temperature_c, "°C", limit=gpu.temperature_slowdown_c, judged_by="slow-down"),
            shown("power", gpu.power_w, "W", limit=gpu.power_limit_w, judged_by="its limit"),
        ),
        fixes=fixes,
    )
