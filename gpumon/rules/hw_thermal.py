"""Knows ``hw-thermal``: the hardware itself halves the clock to survive."""

from __future__ import annotations

from gpumon.model import Abstention, Evidence, Finding
from gpumon.rules import driver_by_log, heat_at_once, slowdown, thermal
from gpumon.rules.limiters import UNKNOWN, boards, held_s, is_counted, is_repeated
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import limiter_pct
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the hardware's own heat protection counts as trouble."""

    window_s: float = 60.0
    """The seconds looked at."""
    slowed_s: float = 1.0
    """Seconds of hardware slowdown within the window that raise it."""


_SERIES = "throttled_pct.hw_thermal"


@rule(
    "hw-thermal",
    limits=Limits,
    every_s=1.0,
    clear_s=20.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
    at_once=heat_at_once.hw_thermal,
)
def hw_thermal(window: Window, limits: Limits) -> Conclusions:
    """The hardware slows the GPU down by half or more to protect it from heat.

    What it sees:
        The driver's counter of hardware thermal slowdown (NVML field 270) grew by at least 1 s within 60 s; where
        there is no counter, the bit of the clock event reasons was set in two consecutive readings. A single reading
        with the bit, as in a log, is a warning that asks for a second one. A slowdown that names no reason is a warning
        if the GPU is hot, busy and has had half its clock in three readings. In a kernel's log: the driver's words that
        a GPU is too hot.

    Why it matters:
        This is the last line before shutdown: the clock falls to half or less, every rank of the job waits for this
        GPU, and the card ages. Software limits should have held the temperature long before.

    What to do:
        Take load off now: stop the job or lower the power limit. Then look at airflow, dust, fan, blanked slots,
        paste, and the pump of a water cooler. Cool siblings mean this one card; hot ones mean the room. In a cloud,
        report the node.

    When it is wrong:
        A single short slowdown while the performance state changes is ignored. Platform software on laptops can
        trigger the same line on purpose.
    """
    yield from driver_by_log.hot_gpus(window)
    for gpu in boards(window):
        if limiter_pct(gpu, "hw_thermal") is None:
            yield Abstention(rule="hw-thermal", because=UNKNOWN, subject=thermal.subject_of(gpu))
            continue
        slowed_s = held_s(window, gpu, "hw_thermal", limits.window_s)
        if slowed_s == 0.0:
            if slowdown.is_unnamed(window, gpu) and slowdown.is_hot(gpu):
                yield slowdown.unnamed("hw-thermal", gpu, thermal.fixes(window, thermal.heat_of(window, gpu)).ordered)
            continue
        strength = slowed_s / limits.slowed_s
        if not is_counted(gpu, "hw_thermal") and not is_repeated(window, gpu, "hw_thermal", limits.window_s):
            strength = min(strength, 0.9)
        if strength >= 0.8:
            yield _finding(window, thermal.heat_of(window, gpu), slowed_s, strength, limits)


def _finding(window: Window, heat: thermal.Heat, slowed_s: float, strength: float, limits: Limits) -> Finding:
    gpu = heat.gpu
    began_s = began_ago_s(window, gpu, _SERIES, lambda value: value > 0.0, bridge_s=limits.window_s)
    short, ordered, command = thermal.fixes(window, heat)
    stop = f"stop or pause the job on GPU {gpu.index} now: the hardware protects itself"
    return Finding(
        rule="hw-thermal",
        severity="critical",
        confidence="certain" if is_counted(gpu, "hw_thermal") else "likely",
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} is slowed by its hardware against heat",
        strength=strength,
        cause="overheating",
        cause_text=thermal.cause_text(heat),
        fix_text=short,
        evidence=(
            Evidence(
                name="HW thermal slowdown",
                value=round(slowed_s, 1),
                unit="s",
                judged_by=f"≥ {limits.slowed_s:g} s of {limits.window_s:.0f} s",
                field=_SERIES,
            ),
            *thermal.evidence(window, heat, began_s),
        ),
        cost=thermal.cost(heat),
        fixes=(stop, *ordered),
        command=command,
        onset_s=began_s,
    )
