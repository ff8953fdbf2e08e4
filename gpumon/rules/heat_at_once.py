"""Knows what one reading says about heat: a limiter's bit beside the temperatures that explain or contradict it."""

from __future__ import annotations

from gpumon.model import Confidence, Evidence, Finding, Gpu, Severity
from gpumon.rules import thermal
from gpumon.rules.limiters import boards
from gpumon.rules.one_reading import clock, has, seen, shown
from gpumon.rules.rule import Conclusions
from gpumon.signals import temperature_limit_c
from gpumon.window import Window

_NEAR_C = 3.0
_COOL_C = 15.0
"""So far below its limit a GPU has no reason to protect itself."""
_CORE_COOL_C = 8.0
_AIR = "check airflow, dust and fan; compare with the other GPUs of the machine"


def _margin_c(gpu: Gpu) -> float | None:
    limit = temperature_limit_c(gpu)
    return None if limit is None or gpu.temperature_c is None else limit - gpu.temperature_c


def _degrees(gpu: Gpu) -> Evidence:
    limit = temperature_limit_c(gpu)
    judged_by = "" if limit is None else f"limit {limit:.0f}"
    return shown("temperature", gpu.temperature_c, "°C", judged_by=judged_by)


def _text(gpu: Gpu) -> str | None:
    if gpu.temperature_c is None:
        return None
    limit = temperature_limit_c(gpu)
    return f"{gpu.temperature_c:.0f} °C" + ("" if limit is None else f", limit {limit:.0f}")


def hw_thermal(window: Window, _limits: object) -> Conclusions:
    """The hardware slows the GPU at this moment; a cool one that says so contradicts itself."""
    for gpu in boards(window):
        if not has(gpu, "hw_thermal"):
            continue
        margin = _margin_c(gpu)
        is_cool = margin is not None and margin >= _COOL_C
        confidence: Confidence = "likely" if has(gpu, "hw_slowdown") and not is_cool else "possible"
        yield seen(
            window,
            "hw-thermal",
            gpu,
            f"GPU {gpu.index} is slowed by its hardware against heat",
            ("warning", confidence),
            cause="overheating",
            cause_text=_text(gpu),
            fix_text=_AIR,
            evidence=(clock(gpu), _degrees(gpu), shown("memory temperature", gpu.memory_temperature_c, "°C")),
            fixes=(
                f"if it lasts: stop or pause the job on GPU {gpu.index}, the hardware protects itself",
                _AIR,
                "cool and yet slowed: another sensor (memory, hotspot, power stages), or the platform pulls the line",
            ),
        )


def sw_thermal(window: Window, _limits: object) -> Conclusions:
    """The driver's limiter is active and the GPU is where it should be: at its limit, or nobody says how warm it is."""
    for gpu in boards(window):
        margin = _margin_c(gpu)
        if not has(gpu, "sw_thermal") or has(gpu, "hw_thermal"):
            continue
        if gpu.temperature_c is None:
            yield _of_unknown_heat(window, gpu)
            continue
        if margin is None or margin > _NEAR_C:
            continue
        is_laptop = window.last.host.chassis == "laptop"
        severity: Severity = "info" if is_laptop else "warning"
        yield seen(
            window,
            "sw-thermal",
            gpu,
            f"GPU {gpu.index} {'is hot, as laptops are' if is_laptop else 'throttles at its temperature limit'}",
            (severity, "possible"),
            cause="temperature-limit",
            cause_text=_text(gpu),
            fix_text=_AIR,
            evidence=(clock(gpu), _degrees(gpu)),
            fixes=(_AIR, f"watch what it costs: nvidia-smi dmon -i {gpu.index} -s pucv"),
        )


def _of_unknown_heat(window: Window, gpu: Gpu) -> Finding:
    """A counter or a bit alone, as in a health report: it sees what a sampled temperature misses."""
    return seen(
        window,
        "sw-thermal",
        gpu,
        f"GPU {gpu.index} is slowed against heat",
        ("info", "possible"),
        cause="temperature-limit",
        cause_text="short peaks, a hotspot or its memory; its temperature is not told",
        fix_text=_AIR,
        evidence=(Evidence(name="limiter", value="thermal"),),
        fixes=(_AIR, f"watch what it costs: nvidia-smi dmon -i {gpu.index} -s pucv"),
    )


def memory_hot(window: Window, _limits: object) -> Conclusions:
    """The memory is at the limit that it reports, or at the usual one of its kind."""
    for gpu in boards(window):
        limit, whose = thermal.memory_limit_c(gpu)
        memory = gpu.memory_temperature_c
        if memory is None or memory < limit:
            continue
        margin = _margin_c(gpu)
        is_core_cool = margin is None or margin >= _CORE_COOL_C
        yield seen(
            window,
            "memory-hot",
            gpu,
            f"memory of GPU {gpu.index} is at its heat limit",
            ("warning" if is_core_cool and gpu.memory_temperature_max_c is not None else "info", "possible"),
            cause="memory-temperature",
            cause_text=f"memory {memory:.0f} °C ({whose})",
            fix_text=f"air over the back of GPU {gpu.index}",
            evidence=(shown("memory temperature", memory, "°C", judged_by=whose), _degrees(gpu)),
            fixes=(f"get air over the back of GPU {gpu.index} and check its pads",),
        )
