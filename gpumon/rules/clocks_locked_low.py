"""Knows ``clocks-locked-low``: a busy GPU at a low, steady clock that no limiter explains."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu
from gpumon.rules import clocks_at_once, thermal
from gpumon.rules.change import deviation
from gpumon.rules.limiters import UNKNOWN, boards, duties_pct, together
from gpumon.rules.onset import LOOK_BACK_S, began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import temperature_limit_c
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a low clock counts as locked."""

    window_s: float = 60.0
    """The seconds looked at."""
    clock_pct: float = 80.0
    """Of the highest SM clock: at or below this it is low."""
    memory_clock_pct: float = 70.0
    """Of the highest memory clock."""
    steady_mhz: float = 15.0
    """A locked clock varies by less than this."""
    limiter_pct: float = 5.0
    """Share of the time from which on a limiter explains the clock."""
    cooler_c: float = 10.0
    """So far below its temperature limit the GPU must be."""
    busy_pct: float = 80.0
    """Utilization from which on a low clock costs speed."""


class _Low(NamedTuple):
    which: str
    field: str
    clock_mhz: float
    top_mhz: float
    is_top_known: bool
    strength: float


@rule(
    "clocks-locked-low",
    limits=Limits,
    every_s=5.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "hw-thermal", "sw-thermal", "power-brake"),
    at_once=clocks_at_once.clocks_locked_low,
)
def clocks_locked_low(window: Window, limits: Limits) -> Conclusions:
    """The GPU works at a low, steady clock that neither power nor heat explain: most likely a lock left behind.

    What it sees:
        For 60 s of work at 80 % utilization or more, the SM clock stayed at or below 80 % of its highest (the memory
        clock at or below 70 %) and varied by less than 15 MHz, while no limiter of power or heat was active and the
        GPU was at least 10 °C below its temperature limit. In a single reading the clock must be half of its highest
        or less.

    Why it matters:
        Work that is bound by the clock slows down as much as the clock. Utilization says 100 % all the same, so nobody
        looks.

    What to do:
        Look with nvidia-smi -q -d CLOCK,PERFORMANCE and take the locks back: -rgc, -rmc, -rac (need root). If that
        does not help, reload the driver or reboot: after a suspend a GPU may stay in a low performance state.

    When it is wrong:
        An administrator may lock clocks on purpose, to save power or for even timings. The highest clock is a boost
        ceiling that big chips never hold under a power cap; the power limiter's time excludes that. GeForce cards
        compute in P2 with a slightly lower memory clock by design. In the first ten minutes of a process it is
        information only.
    """
    cards = tuple(boards(window))
    locked: list[Finding] = []
    for gpu in cards:
        job = window.job_of(gpu.uuid)
        if gpu.memory_is_shared or gpu.power_source == "battery" or (job is not None and job.phase != "train"):
            continue
        busy = window.mean(gpu, "utilization_pct", limits.window_s)
        if busy is None or busy < limits.busy_pct or not window.covers(limits.window_s):
            continue
        low = _low(window, gpu, limits)
        if low is None or "sync_boost" in (gpu.clocks_event_reasons or ()) or _is_warm(window, gpu, limits):
            continue
        confidence = _confidence(window, gpu, low, limits)
        if confidence is None:
            if duties_pct(window, gpu, limits.window_s) is None:
                yield Abstention(rule="clocks-locked-low", because=UNKNOWN, subject=thermal.subject_of(gpu))
            continue
        locked.append(_finding(window, gpu, low, confidence, limits))
    yield from together(locked, len(cards), "work at a locked, low clock")


def _low(window: Window, gpu: Gpu, limits: Limits) -> _Low | None:
    """The clock that is low and steady; the SM's before the memory's."""
    for which, field, known_top, share_pct in (
        ("SM", "sm_clock_mhz", gpu.sm_clock_max_mhz, limits.clock_pct),
        ("memory", "memory_clock_mhz", gpu.memory_clock_max_mhz, limits.memory_clock_pct),
    ):
        mean = window.mean(gpu, field, limits.window_s)
        # Where the highest clock is not reported, the highest one seen stands for it.
        top = known_top or max(_known(window, gpu, field, LOOK_BACK_S), default=None)
        strength = 0.0 if mean is None or not top else (1.0 - mean / top) / (1.0 - share_pct / 100.0)
        if mean is None or not top or strength < 0.8:
            continue
        if deviation(_known(window, gpu, field, limits.window_s)) < limits.steady_mhz:
            return _Low(which, field, mean, top, known_top is not None, strength)
    return None


def _known(window: Window, gpu: Gpu, field: str, seconds: float) -> list[float]:
    return [value for value in window.series(gpu, field, seconds) if value is not None]


def _is_warm(window: Window, gpu: Gpu, limits: Limits) -> bool:
    temperature, limit = window.mean(gpu, "temperature_c", limits.window_s), temperature_limit_c(gpu)
    return temperature is not None and limit is not None and temperature > limit - limits.cooler_c


def _confidence(window: Window, gpu: Gpu, low: _Low, limits: Limits) -> Confidence | None:
    """How sure it is that nothing else explains the clock; None where something does, or may."""
    is_low_state = gpu.performance_state not in {None, "P0", "P1", "P2"}
    is_half = low.clock_mhz <= 0.5 * low.top_mhz
    if is_low_state and not is_half:
        return None
    duties = duties_pct(window, gpu, limits.window_s)
    if duties is None or not low.is_top_known:
        # Limiters make a clock wander; one that does not move at all, far below its highest, is held by none.
        is_still = deviation(_known(window, gpu, low.field, limits.window_s)) < 1.0
        is_held = duties is not None and any(duty >= limits.limiter_pct for duty in duties.values())
        return "possible" if is_half and is_still and not is_held else None
    return None if any(duty >= limits.limiter_pct for duty in duties.values()) else "likely"


def _finding(window: Window, gpu: Gpu, low: _Low, confidence: Confidence, limits: Limits) -> Finding:
    index, duties = gpu.index, duties_pct(window, gpu, limits.window_s)
    limiters = "limiters not reported" if duties is None else "no limiter active"
    job = window.job_of(gpu.uuid)
    level = low.top_mhz * (limits.clock_pct if low.which == "SM" else limits.memory_clock_pct) / 100.0
    undo = f"nvidia-smi -i {index} {'-rgc' if low.which == 'SM' else '-rmc'}"
    return Finding(
        rule="clocks-locked-low",
        severity="info" if job is not None and job.is_first_epoch else "warning",
        confidence=confidence,
        subject=thermal.subject_of(gpu),
        summary=f"GPU {index} works at a locked, low {low.which} clock",
        strength=low.strength,
        cause="application-clocks" if "app_clocks" in (gpu.clocks_event_reasons or ()) else "clock-lock",
        cause_text=f"{low.which} clock {low.clock_mhz:.0f} of {low.top_mhz:.0f} MHz, {limiters}",
        fix_text=f"{undo} (root)",
        evidence=(
            Evidence(
                name=f"{low.which} clock",
                value=float(round(low.clock_mhz)),
                unit="MHz",
                was=float(round(low.top_mhz)),
                judged_by="its highest",
                field=low.field,
            ),
            *(
                Evidence(name=name.replace("_", " "), value=thermal.whole(duty), unit="%", judged_by="held the clock")
                for name, duty in (duties or {}).items()
            ),
            Evidence(name="performance state", value=gpu.performance_state, judged_by="P0 to P2 at work"),
        ),
        fixes=(
            f"{undo} (root); application clocks: nvidia-smi -i {index} -rac",
            f"look: nvidia-smi -i {index} -q -d CLOCK,PERFORMANCE",
            "still low: reload the driver or reboot (a state left over from a suspend)",
            "set on purpose (power saving, even timings): mute this rule",
        ),
        onset_s=began_ago_s(window, gpu, low.field, lambda value: value <= 1.05 * level),
    )
