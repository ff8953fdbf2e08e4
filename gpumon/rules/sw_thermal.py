"""Knows ``sw-thermal``: the driver holds the temperature at its limit by lowering the clock."""

from __future__ import annotations

from gpumon.model import Abstention, Evidence, Finding, Gpu, Severity
from gpumon.rules import heat_at_once, thermal
from gpumon.rules.limiters import UNKNOWN, boards, is_counted
from gpumon.rules.onset import began_ago_s, lasts
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import limiter_pct
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When running at the temperature limit counts as trouble."""

    window_s: float = 120.0
    """The seconds looked at; shorter bursts never alert."""
    duty_pct: float = 10.0
    """Share of the window in which the limiter was active."""
    clock_lost_pct: float = 3.0
    """How far the clock must lie below that of the same job while cool."""
    critical_clock_lost_pct: float = 15.0
    """From this loss on it is critical."""
    critical_duty_pct: float = 50.0
    """A limiter active for this share of five minutes is critical as well."""
    readings_pct: float = 50.0
    """Where there is no counter: share of the readings in which the limiter's bit was set."""


_SERIES = "throttled_pct.sw_thermal"


@rule(
    "sw-thermal",
    limits=Limits,
    every_s=5.0,
    clear_s=20.0,
    suppressed_by=("gpu-lost", "driver-stuck", "hw-thermal"),
    at_once=heat_at_once.sw_thermal,
)
def sw_thermal(window: Window, limits: Limits) -> Conclusions:
    """The GPU stays at its temperature limit by lowering its clock; other ranks wait for it.

    What it sees:
        The driver's thermal limiter (NVML field 269) was active in at least 10 % of two minutes, and the SM clock lies
        at least 3 % below this job's own clock while the GPU was cool. The typical picture: temperature flat at the
        limit, clock and power sagging at constant utilization. Without the counter, the limiter's bit is used. A single
        reading with the bit at the limit, as in a log, is possible trouble and asks for a second one.

    Why it matters:
        Work that is bound by the clock slows down as much as the clock does, and in a job of several GPUs every rank
        waits for the slowest one.

    What to do:
        Compare with the siblings: if only one is hot, look at its airflow, dust, fan and slot; if all are, at the
        inlet air. A power limit just below what the card draws at the limit keeps it there at a steady clock.

    When it is wrong:
        A high temperature alone is no fault and never alerts: cards are built for 83 °C or more than 90 °C. Laptops
        run at their limit by design, so there it is information only. Losses below 3 % are within a day's swing of
        the room. Where the memory is at its limit and the core is not, ``memory-hot`` speaks instead.
    """
    for gpu in boards(window):
        if limiter_pct(gpu, "sw_thermal") is None:
            yield Abstention(rule="sw-thermal", because=UNKNOWN, subject=thermal.subject_of(gpu))
            continue
        duty = window.mean(gpu, _SERIES, limits.window_s)
        if duty is None or duty < 0.8 * limits.duty_pct:
            continue
        if thermal.is_memory_the_limit(window, gpu, limits.window_s):
            continue
        heat = thermal.heat_of(window, gpu)
        strength = _strength(window, gpu, heat, duty, limits)
        if strength >= 0.8:
            yield _finding(window, heat, duty, strength, limits)


def _strength(window: Window, gpu: Gpu, heat: thermal.Heat, duty: float, limits: Limits) -> float:
    strength = duty / (limits.duty_pct if is_counted(gpu, "sw_thermal") else limits.readings_pct)
    if heat.lost is None:
        # No cool clock to compare with (it was hot when we came): only a limiter that is mostly active counts.
        strength = duty / limits.critical_duty_pct
    else:
        strength = min(strength, 100.0 * heat.lost / limits.clock_lost_pct)
    if not lasts(window, gpu, _SERIES, seconds=limits.window_s, at_least=limits.duty_pct / 2):
        strength = min(strength, 0.9)
    return strength


def _finding(window: Window, heat: thermal.Heat, duty: float, strength: float, limits: Limits) -> Finding:
    gpu = heat.gpu
    began_s = began_ago_s(window, gpu, _SERIES, lambda value: value >= 5.0)
    is_laptop = window.last.host.chassis == "laptop"
    short, ordered, command = thermal.fixes(window, heat)
    if is_laptop:
        ordered = ("laptop: expected under load; raise it, clean its vents, use its performance profile", *ordered[1:])
    shown = thermal.evidence(window, heat, began_s)
    was = thermal.before(window, gpu, _SERIES, began_s)
    return Finding(
        rule="sw-thermal",
        severity="info" if is_laptop else _severity(window, heat, limits),
        confidence="certain" if is_counted(gpu, "sw_thermal") else "likely",
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} {'is hot, as laptops are' if is_laptop else 'throttles at its temperature limit'}",
        strength=strength,
        cause="temperature-limit",
        cause_text=thermal.cause_text(heat),
        fix_text=short,
        evidence=(
            *shown[:2],
            Evidence(
                name="SW thermal time",
                value=float(round(duty)),
                unit="%",
                was=None if was is None else float(round(was)),
                judged_by=f"≥ {limits.duty_pct:g}% of {limits.window_s / 60:g} min",
                field=_SERIES,
            ),
            *shown[2:],
        ),
        cost=thermal.cost(heat),
        fixes=ordered,
        command=command,
        onset_s=began_s,
    )


def _severity(window: Window, heat: thermal.Heat, limits: Limits) -> Severity:
    long = window.mean(heat.gpu, _SERIES, 300.0)
    is_slow = heat.lost is not None and 100.0 * heat.lost >= limits.critical_clock_lost_pct
    is_long = long is not None and long >= limits.critical_duty_pct and window.covers(300.0)
    return "critical" if is_slow or is_long else "warning"
