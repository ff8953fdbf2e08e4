"""Knows what one reading says about power and clocks of a GPU at work."""

from __future__ import annotations

from gpumon.model import Gpu
from gpumon.rules.limiters import boards, together
from gpumon.rules.one_reading import clock, has, seen, shown
from gpumon.rules.rule import Conclusions
from gpumon.signals import temperature_limit_c
from gpumon.window import Window

_AWAKE = frozenset({None, "P0", "P1", "P2"})
_WORKING_PCT = 50.0


def _clock_share(gpu: Gpu) -> float:
    return (gpu.sm_clock_mhz or 0.0) / (gpu.sm_clock_max_mhz or 1.0)


def clocks_locked_low(window: Window, _limits: object) -> Conclusions:
    """At work with half of its clock or less, and nothing that holds it down."""
    for gpu in boards(window):
        limit = temperature_limit_c(gpu)
        is_warm = limit is not None and gpu.temperature_c is not None and gpu.temperature_c > limit - 10.0
        reasons = gpu.clocks_event_reasons
        is_held = reasons is None or bool(set(reasons) - {"app_clocks"}) or is_warm or gpu.memory_is_shared
        is_working = (gpu.utilization_pct or 0.0) >= 80.0 and gpu.performance_state in _AWAKE
        if is_held or not is_working or not gpu.sm_clock_mhz or not gpu.sm_clock_max_mhz or _clock_share(gpu) > 0.5:
            continue
        undo = f"nvidia-smi -i {gpu.index} -rgc"
        yield seen(
            window,
            "clocks-locked-low",
            gpu,
            f"GPU {gpu.index} works at a locked, low SM clock",
            ("warning", "possible"),
            cause="application-clocks" if has(gpu, "app_clocks") else "clock-lock",
            cause_text=f"SM clock {gpu.sm_clock_mhz:.0f} of {gpu.sm_clock_max_mhz:.0f} MHz, no limiter active",
            fix_text=f"{undo} (root)",
            evidence=(clock(gpu), shown("busy", gpu.utilization_pct, "%"), shown("power", gpu.power_w, "W")),
            fixes=(f"{undo} (root); application clocks: nvidia-smi -i {gpu.index} -rac",),
        )


def power_capped_low(window: Window, _limits: object) -> Conclusions:
    """A limit below the default, and a GPU at work that has reached it."""
    cards = tuple(boards(window))
    found = []
    for gpu in cards:
        limit, default, power = gpu.power_limit_w, gpu.power_default_limit_w, gpu.power_w
        is_working = (gpu.utilization_pct or 0.0) >= _WORKING_PCT
        if not is_working or None in (limit, default, power) or window.last.host.chassis == "laptop":
            continue
        assert limit is not None
        assert default is not None
        if limit < 0.9 * default and (power or 0.0) >= 0.95 * limit and _clock_share(gpu) < 0.9:
            found.append(
                seen(
                    window,
                    "power-capped-low",
                    gpu,
                    f"GPU {gpu.index} is limited to {limit:.0f} of {default:.0f} W",
                    ("info", "likely"),
                    cause="limit-set-low",
                    cause_text=f"SM clock {gpu.sm_clock_mhz or 0:.0f} of {gpu.sm_clock_max_mhz or 0:.0f} MHz",
                    fix_text=f"nvidia-smi -i {gpu.index} -pl {default:.0f}, or leave it",
                    evidence=(
                        shown("power limit", limit, "W", limit=default, judged_by="the default"),
                        shown("power", power, "W"),
                        clock(gpu),
                    ),
                    fixes=(f"nvidia-smi -i {gpu.index} -pl {default:.0f} (root), if full speed is wanted",),
                )
            )
    yield from together(found, len(cards), "are limited below their default power")
