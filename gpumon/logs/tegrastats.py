"""Knows the lines of ``tegrastats``, which is all that a Jetson tells of its GPU and of the memory they share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading
from gpumon.logs.scrolling import Clock
from gpumon.logs.values import moment, number

INTERVAL_S = 1.0
"""Between two lines where they give no times: what tegrastats does unless ``--interval`` asks for another."""

_MIB = 1 << 20
_BEGIN = re.compile(r"(?:(\d{2})-(\d{2})-(\d{4}) (\d{2}:\d{2}:\d{2}) |(.{8,40}) )?RAM (\d{1,8})/(\d{1,8})MB\b")
_SWAP = re.compile(r"\bSWAP (\d{1,8})/\d{1,8}MB")
_CPU = re.compile(r"\bCPU \[([^\]]{1,4000})\]")
_GPU = re.compile(r"\bGR3D(?:_FREQ)? (?:(\d{1,3})%)?(?:@\[?([\d,]{1,40}))?")
_HEAT = re.compile(r"\bGPU@(-?\d{1,4}(?:\.\d{1,4})?)C", re.IGNORECASE)
_RAILS = tuple(
    re.compile(rf"\b{name} (\d{{1,7}})(?:mW)?/\d{{1,7}}")
    for name in ("VDD_GPU", "VDD_SYS_GPU", "POM_5V_GPU", "GPU", "VDD_GPU_SOC", "VDD_CPU_GPU_CV")
)
"""The GPU's own supply, else one that it shares with its neighbours on the chip; in mW, now and on average."""


class TegrastatsReader:
    """Each line is a reading."""

    kind: ClassVar[str] = "tegrastats"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._clock = Clock()

    def starts(self, line: str) -> bool:
        """How much memory is used, and the load of each core."""
        if "RAM " in line[:64] and _BEGIN.match(line.lstrip()) is not None and _CPU.search(line) is not None:
            return True
        self._clock.hear(line)
        return False

    def take(self, line: str) -> bool:
        """Read a line."""
        if not line.strip():
            return True
        begin = _BEGIN.match(line.lstrip())
        if begin is None:
            return False
        month, day, year, time, before, used, total = begin.groups()
        time_s = moment(f"{year}-{month}-{day} {time}") if time is not None else moment(before or "")
        if time_s is None:
            time_s = self._clock.said()
        host: dict[str, Any] = {
            "memory_total_bytes": int(total) * _MIB,
            "memory_available_bytes": max(0, int(total) - int(used)) * _MIB,
            **_load(line),
        }
        swap = _SWAP.search(line)
        if swap is not None:
            host["swap_used_bytes"] = int(swap[1]) * _MIB
        gpu = ((Place(index=0), _gpu(line)),)
        self._give(Reading(time_s=time_s, gpus=gpu, host=host, interval_s=INTERVAL_S))
        return True

    def end(self) -> None:
        """Every line was given when it was read."""


def _load(line: str) -> dict[str, Any]:
    found = _CPU.search(line)
    if found is None:
        return {}
    cores = found[1].split(",")
    loads = [load for core in cores if (load := number(core.partition("%")[0])) is not None]
    if not loads:
        return {}
    return {"cpu_count": len(loads), "cpu_pct": min(100.0, sum(loads) / len(loads))}


def _gpu(line: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"memory_is_shared": True}
    use = _GPU.search(line)
    if use is not None and use[1] is not None and int(use[1]) <= 100:
        facts["utilization_pct"] = float(use[1])
    if use is not None and use[2] is not None:
        clocks = [int(clock) for clock in use[2].split(",") if clock]
        if clocks and max(clocks) < 10_000:
            facts["sm_clock_mhz"] = float(max(clocks))
    heat = _HEAT.search(line)
    if heat is not None and 0.0 < float(heat[1]) < 200.0:
        facts["temperature_c"] = float(heat[1])
    power = next((found for rail in _RAILS if (found := rail.search(line)) is not None), None)
    if power is not None:
        facts["power_w"] = int(power[1]) / 1e3
    return facts
