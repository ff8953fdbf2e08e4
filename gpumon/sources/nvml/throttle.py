"""Knows why clocks are held down: the driver's reasons of the moment, and the time each one took."""

from __future__ import annotations

import math
from typing import Any

import pynvml

from gpumon.sources.nvml.calls import Asker

_RENUMBERED_IN = (580, 82)
"""CUDA 13.0 update 1 renumbered the fields 251 to 273: power smoothing and the thermal counters changed places."""
_ALWAYS = {
    "sw_power_cap": pynvml.NVML_FI_DEV_PERF_POLICY_POWER,
    "sync_boost": pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,
}
_BEFORE = {"sw_thermal": 251, "hw_thermal": 252, "hw_power_brake": 253}
_SINCE = {"sw_thermal": 269, "hw_thermal": 270, "hw_power_brake": 271}

_OLD_COUNTERS = {
    "sw_power_cap": pynvml.NVML_PERF_POLICY_POWER,
    "sync_boost": pynvml.NVML_PERF_POLICY_SYNC_BOOST,
    "thermal": pynvml.NVML_PERF_POLICY_THERMAL,
}
_NS_PER_S = 1e9


def counter_fields(driver_version: str | None) -> dict[str, int]:
    """Reason -> field id of its counter (nanoseconds) in this driver; a driver without it refuses the field."""
    parts = [int(part) for part in (driver_version or "").split(".")[:2] if part.isdigit()]
    is_older = len(parts) == 2 and tuple(parts) < _RENUMBERED_IN
    return {**_ALWAYS, **(_BEFORE if is_older else _SINCE)}


class Throttle:
    """Share of the time since the last reading in which each reason held the clocks down."""

    def __init__(self, driver_version: str | None) -> None:
        self.field_ids = counter_fields(driver_version)
        self._before: tuple[float, dict[str, float]] = (0.0, {})
        """When the counters were read last, and what they were."""

    def read(
        self, asker: Asker, fields: dict[int, float], at_s: float, reasons: tuple[str, ...] | None
    ) -> dict[str, float] | None:
        """Shares by reason; None on the first reading and where there is no counter at all.

        ``at_s`` is when ``fields`` were read. Drivers without the separate counters have one for both kinds of heat;
        it counts as software's unless the hardware's bit is the one that is set.
        """
        times_ns: dict[str, float] = {
            reason: fields[field_id] for reason, field_id in self.field_ids.items() if field_id in fields
        }
        if "sw_thermal" not in times_ns or "sw_power_cap" not in times_ns:
            for reason, policy in _OLD_COUNTERS.items():
                if reason in times_ns or (reason == "thermal" and "sw_thermal" in times_ns):
                    continue
                status: Any = asker(f"violation {reason}", pynvml.nvmlDeviceGetViolationStatus, policy)
                if status is not None:
                    times_ns[reason] = status.violationTime
        (before_s, before_ns), self._before = self._before, (at_s, times_ns)
        passed_ns = (at_s - before_s) * _NS_PER_S
        shares = {
            reason: min(100.0 * (time_ns - before_ns[reason]) / passed_ns, 100.0)
            for reason, time_ns in times_ns.items()
            if passed_ns > 0 and before_ns.get(reason, math.inf) <= time_ns
        }
        if "thermal" in shares:
            is_hardware = reasons is not None and "hw_thermal" in reasons and "sw_thermal" not in reasons
            shares["hw_thermal" if is_hardware else "sw_thermal"] = shares.pop("thermal")
        return shares or None
