"""Knows what rules about heat need: the clock against the cool one, the siblings, and a power limit that fits."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.model import Cost, Evidence, Gpu, Subject
from gpumon.rules.onset import spread
from gpumon.signals import is_throttled, temperature_limit_c
from gpumon.window import Window

_NOW_S = 30.0
_HBM = re.compile(r"HBM|[PVAH]100|[HB]200|A30\b|GH200|GB[23]00|A800|H800|H20\b")
_HBM_LIMIT_C, _GDDR_LIMIT_C = 95.0, 104.0
"""Where the driver does not report the memory's own limit."""


class Heat(NamedTuple):
    """One GPU's heat and what it does to the clock."""

    gpu: Gpu
    temperature_c: float | None
    clock_mhz: float | None
    cool_mhz: float | None
    cool_by: str
    """What ``cool_mhz`` is: this GPU's own clock while cool, or that of its siblings."""
    lost: float | None
    """Share of the clock lost; None without a clock to compare with."""
    siblings_c: tuple[float, ...]


def heat_of(window: Window, gpu: Gpu) -> Heat:
    """Means of the last half minute against the learned cool clock, else against cool siblings."""
    siblings = siblings_of(window, gpu)
    clock = _busy_clock_mhz(window, gpu)
    cool, cool_by = window.baseline(gpu, "sm_clock_cool_mhz"), "itself when cool"
    if cool is None:
        clocks = [_busy_clock_mhz(window, other) for other in siblings if not is_throttled(other)]
        known = sorted(value for value in clocks if value is not None)
        cool, cool_by = (known[len(known) // 2], "cool siblings") if known else (None, "")
    lost = max(0.0, 1.0 - clock / cool) if clock is not None and cool else None
    temperatures = (window.mean(other, "temperature_c", _NOW_S) for other in siblings)
    return Heat(
        gpu=gpu,
        temperature_c=window.mean(gpu, "temperature_c", _NOW_S),
        clock_mhz=clock,
        cool_mhz=cool,
        cool_by=cool_by,
        lost=lost,
        siblings_c=tuple(value for value in temperatures if value is not None),
    )


def _busy_clock_mhz(window: Window, gpu: Gpu) -> float | None:
    """Mean clock while it works: an idle GPU lowers its clock by itself."""
    clocks = window.series(gpu, "sm_clock_mhz", _NOW_S)
    uses = window.series(gpu, "utilization_pct", _NOW_S)
    busy = [
        clock for clock, use in zip(clocks, uses, strict=True) if clock is not None and (use is None or use >= 30.0)
    ]
    return sum(busy) / len(busy) if busy else None


def siblings_of(window: Window, gpu: Gpu) -> tuple[Gpu, ...]:
    """The other GPUs of this model in the same job, else on this machine."""
    job = window.job_of(gpu.uuid)
    others = [
        other
        for other in window.last.gpus
        if other.uuid != gpu.uuid and other.name == gpu.name and not other.is_lost and other.mig_parent_uuid is None
    ]
    return tuple([other for other in others if job is not None and other.uuid in job.gpu_uuids] or others)


def memory_limit_c(gpu: Gpu) -> tuple[float, str]:
    """The temperature that the memory must stay below, and whose word that is."""
    if gpu.memory_temperature_max_c is not None:
        return gpu.memory_temperature_max_c, f"limit {gpu.memory_temperature_max_c:.0f}"
    limit_c = _HBM_LIMIT_C if _HBM.search(gpu.name or "") else _GDDR_LIMIT_C
    return limit_c, f"usual limit {limit_c:.0f}"


def core_margin_c(window: Window, gpu: Gpu) -> float | None:
    """How far the core stays below its own limit; None where one of them is unknown."""
    core, limit = window.mean(gpu, "temperature_c", _NOW_S), temperature_limit_c(gpu)
    return None if core is None or limit is None else limit - core


def is_memory_the_limit(window: Window, gpu: Gpu, seconds: float) -> bool:
    """While the thermal limiter held the clock, the memory was at its limit and the core was not."""
    limit = temperature_limit_c(gpu)
    if gpu.memory_temperature_c is None or limit is None:
        return False
    held = window.series(gpu, "throttled_pct.sw_thermal", seconds)
    while_held = [1.0 if share else 0.0 for share in held]
    core = window.mean_by(gpu, "temperature_c", seconds, while_held)
    if core is None or core > limit - 5.0:
        return False
    memory = window.mean_by(gpu, "memory_temperature_c", seconds, while_held)
    return memory is not None and memory >= memory_limit_c(gpu)[0] - 3.0


def subject_of(gpu: Gpu) -> Subject:
    """The GPU as the subject of a finding."""
    return Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid)


def cause_text(heat: Heat) -> str | None:
    """``87 °C, siblings 59–63``; alone ``87 °C, limit 87``."""
    if heat.temperature_c is None:
        return None
    siblings, limit = spread(heat.siblings_c), temperature_limit_c(heat.gpu)
    if siblings is not None:
        return f"{heat.temperature_c:.0f} °C, siblings {siblings}"
    return f"{heat.temperature_c:.0f} °C" + (f", limit {limit:.0f}" if limit is not None else "")


def is_alone(heat: Heat) -> bool:
    """Only this one is hot: its siblings stay clearly cooler, so it is not the room."""
    if heat.temperature_c is None or not heat.siblings_c:
        return False
    return sorted(heat.siblings_c)[len(heat.siblings_c) // 2] <= heat.temperature_c - 8.0


def power_limit_w(window: Window, gpu: Gpu) -> int | None:
    """A limit just below what the cooling carries at the temperature limit: what it draws now, less 5 %."""
    drawn, limit = window.mean(gpu, "power_w", 60.0), gpu.power_limit_w
    if drawn is None or limit is None:
        return None
    lowest = 0.5 * (gpu.power_default_limit_w or limit)
    watts = int(max(lowest, min(0.95 * drawn, 0.9 * limit)) // 10 * 10)
    return watts if watts < limit else None


class Fixes(NamedTuple):
    """What to do about the heat."""

    short: str
    """For the headline."""
    ordered: tuple[str, ...]
    command: str | None
    """The power limit that fits."""


def fixes(window: Window, heat: Heat) -> Fixes:
    """The headline's short fix, all of them in order, and the command among them."""
    index = heat.gpu.index
    where = f"airflow at GPU {index}"
    look = f"check airflow, dust, fan, blanked slots at GPU {index}"
    if is_alone(heat):
        look += ": only this one is hot"
    elif heat.siblings_c:
        where = "airflow and inlet air of the machine"
        look = "check inlet temperature, filters and airflow of the machine: the other GPUs are hot as well"
    ordered = [look]
    watts = power_limit_w(window, heat.gpu)
    command = None if watts is None else f"nvidia-smi -i {index} -pl {watts}"
    if command is not None:
        ordered.append(f"until then: {command}")
    hot = "hot" if heat.temperature_c is None else f"at {heat.temperature_c:.0f} °C"
    ordered.append(f"still {hot} after that: move the job off GPU {index}, report the node")
    short = where if command is None else f"{where}; until then {command}"
    return Fixes(short, tuple(ordered), command)


def cost(heat: Heat) -> Cost | None:
    """Lost clock is lost speed for work that is bound by it."""
    return None if heat.lost is None else Cost(lost_pct=float(round(100.0 * heat.lost)))


def evidence(window: Window, heat: Heat, began_s: float | None) -> tuple[Evidence, ...]:
    """Clock and temperature now and before it began, and the siblings."""
    gpu, limit = heat.gpu, temperature_limit_c(heat.gpu)
    found = [
        Evidence(
            name="SM clock",
            value=whole(heat.clock_mhz),
            unit="MHz",
            was=whole(heat.cool_mhz),
            judged_by=heat.cool_by or None,
            field="sm_clock_mhz",
        ),
        Evidence(
            name="temperature",
            value=whole(heat.temperature_c),
            unit="°C",
            was=whole(before(window, gpu, "temperature_c", began_s)),
            judged_by=None if limit is None else f"limit {limit:.0f}",
            field="temperature_c",
        ),
    ]
    if heat.siblings_c:
        was = spread([before(window, other, "temperature_c", began_s) for other in siblings_of(window, gpu)])
        judged_by = "same job, model" if window.job_of(gpu.uuid) else "same model"
        found.append(Evidence(name="siblings", value=spread(heat.siblings_c), unit="°C", was=was, judged_by=judged_by))
    if gpu.fan_pct is not None:
        fan = whole(window.mean(gpu, "fan_pct", _NOW_S))
        found.append(Evidence(name="fan", value=fan, unit="%", judged_by="as asked for", field="fan_pct"))
    return tuple(found)


def before(window: Window, gpu: Gpu, field: str, began_s: float | None) -> float | None:
    """Mean of the minute before the trouble began."""
    return None if began_s is None else window.mean(gpu, field, 60.0, ago_s=began_s)


def whole(value: float | None) -> float | None:
    """Rounded, for evidence."""
    return None if value is None else float(round(value))
