"""Knows ``power-capped-low``: a power limit below the card's default, or one the platform does not let it reach."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model import Abstention, Evidence, Finding, Gpu
from gpumon.rules import clocks_at_once, thermal
from gpumon.rules.change import deviation
from gpumon.rules.limiters import UNKNOWN, boards, together
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import limiter_pct
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a power limit is worth a line."""

    window_s: float = 300.0
    """The seconds looked at."""
    limit_pct: float = 90.0
    """Of the default limit: a limit below this was set by somebody."""
    capped_pct: float = 50.0
    """Share of the window in which the limit held the card: by the power limiter's time, or by power at the limit."""
    clock_pct: float = 90.0
    """Of the highest SM clock: above it the limit costs next to nothing."""
    plateau_pct: float = 75.0
    """Of the limit: capped all the time and yet below this, something else holds the power."""


_SERIES = "throttled_pct.sw_power_cap"
_FREE_PCT = 80.0
"""Of the highest clock: consumer cards boost to no more than 88 % of it by themselves."""


@rule(
    "power-capped-low",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "hw-thermal", "sw-thermal", "power-brake"),
    at_once=clocks_at_once.power_capped_low,
)
def power_capped_low(window: Window, limits: Limits) -> Conclusions:
    """The power limit is set below the card's default and holds its clock down.

    What it sees:
        The enforced limit is below 90 % of the default one, and over 5 min it held the card for half of the time (by
        the power limiter's counter, or with the power at the limit) while the SM clock stayed below 90 % of its
        highest. A second picture is a warning: the limit is at its default, the limiter is active all the time, and
        yet the power stays flat below 75 % of the limit; then the platform does not deliver. A single reading shows
        the first of the two.

    Why it matters:
        Often on purpose: the last tenth of the power buys little speed. But a limit left over from somebody's
        benchmark, or set by the chassis, makes every run slower without a trace in its log.

    What to do:
        Raise it with nvidia-smi -pl (needs root), or leave it if it saves power on purpose. In a data centre ask who
        set it; the chassis' controller (BMC) may have a power policy of its own.

    When it is wrong:
        The power limiter at the default limit is normal at full load and never alerts; some cards count it all the
        time while their clock stands still near its highest, which is no limit either. Laptops share their power
        between CPU and GPU and report no limit.
    """
    if window.last.host.chassis == "laptop" or not window.covers(limits.window_s):
        return
    cards = tuple(boards(window))
    low: list[Finding] = []
    for gpu in cards:
        if gpu.memory_is_shared:
            continue
        clock, top = window.mean(gpu, "sm_clock_mhz", limits.window_s), gpu.sm_clock_max_mhz
        busy = window.mean(gpu, "utilization_pct", limits.window_s)
        if clock is None or not top or busy is None or busy < 50.0 or 100.0 * clock >= limits.clock_pct * top:
            continue
        limit, default = gpu.power_limit_w, gpu.power_default_limit_w
        if limit is None or default is None or limiter_pct(gpu, "sw_power_cap") is None:
            because = UNKNOWN if limit is not None and default is not None else "the power limits are not reported"
            yield Abstention(rule="power-capped-low", because=because, subject=thermal.subject_of(gpu))
        elif 100.0 * limit < limits.limit_pct * default:
            low += _below_default(window, gpu, (limit, default), limits)
        else:
            yield from _below_limit(window, gpu, limit, limits)
    yield from together(low, len(cards), "are limited below their default power")


def _below_default(window: Window, gpu: Gpu, power: tuple[float, float], limits: Limits) -> Iterator[Finding]:
    limit, default = power
    # The limiter lets go between its steps, so its time alone may say a fifth where the limit holds throughout.
    duty = window.mean(gpu, _SERIES, limits.window_s) or 0.0
    at_limit = window.share(gpu, "power_w", limits.window_s, at_least=0.95 * limit) or 0.0
    strength = max(duty, at_limit) / limits.capped_pct
    if strength < 0.8:
        return
    yield Finding(
        rule="power-capped-low",
        severity="info",
        confidence="certain",
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} is limited to {limit:.0f} of {default:.0f} W",
        strength=strength,
        cause="limit-set-low",
        cause_text=_clock_text(window, gpu, limits.window_s),
        fix_text=f"nvidia-smi -i {gpu.index} -pl {default:.0f}, or leave it",
        evidence=(
            Evidence(
                name="power limit",
                value=float(round(limit)),
                unit="W",
                was=float(round(default)),
                judged_by="the default",
            ),
            *_evidence(window, gpu, limits.window_s),
        ),
        fixes=(
            f"nvidia-smi -i {gpu.index} -pl {default:.0f} (root), if full speed is wanted",
            "leave it: the last tenth of the power buys a few percent of speed",
            "not set by you: ask the administrator; the chassis (BMC) may have a power policy",
        ),
    )


def _below_limit(window: Window, gpu: Gpu, limit: float, limits: Limits) -> Iterator[Finding]:
    duty = window.mean(gpu, _SERIES, limits.window_s)
    if duty is None or duty < 90.0:
        return
    powers = [value for value in window.series(gpu, "power_w", limits.window_s) if value is not None]
    heat = max(
        window.mean(gpu, f"throttled_pct.{name}", limits.window_s) or 0.0 for name in ("sw_thermal", "hw_thermal")
    )
    if len(powers) < 3 or heat >= 5.0:
        return
    power = sum(powers) / len(powers)
    is_flat = deviation(powers) <= 0.03 * power
    if not is_flat or 100.0 * power >= limits.plateau_pct * limit or _runs_free(window, gpu, limits.window_s):
        return
    yield Finding(
        rule="power-capped-low",
        severity="warning",
        confidence="likely",
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} is capped at {power:.0f} W, far below its {limit:.0f} W",
        cause="platform-power",
        cause_text=_clock_text(window, gpu, limits.window_s),
        fix_text="platform power: BMC policy, power delivery, firmware",
        evidence=(
            Evidence(
                name="power",
                value=float(round(power)),
                unit="W",
                was=float(round(limit)),
                judged_by="its limit",
                field="power_w",
            ),
            *_evidence(window, gpu, limits.window_s),
        ),
        fixes=(
            "BMC: look for a power cap of the chassis or a failed power supply",
            "chassis or riser not on the card's list: firmware and power delivery for this card",
            f"compare: nvidia-smi -i {gpu.index} -q -d POWER,PERFORMANCE",
        ),
    )


def _runs_free(window: Window, gpu: Gpu, seconds: float) -> bool:
    """Whether the clock stands still near its highest: a limiter that holds makes it move, this one only counts."""
    clocks = [value for value in window.series(gpu, "sm_clock_mhz", seconds) if value is not None]
    return max(clocks) == min(clocks) >= _FREE_PCT / 100.0 * (gpu.sm_clock_max_mhz or 0.0)


def _evidence(window: Window, gpu: Gpu, seconds: float) -> tuple[Evidence, ...]:
    return (
        Evidence(
            name="power cap time", value=thermal.whole(window.mean(gpu, _SERIES, seconds)), unit="%", field=_SERIES
        ),
        Evidence(
            name="SM clock",
            value=thermal.whole(window.mean(gpu, "sm_clock_mhz", seconds)),
            unit="MHz",
            was=thermal.whole(gpu.sm_clock_max_mhz),
            judged_by="its highest",
            field="sm_clock_mhz",
        ),
    )


def _clock_text(window: Window, gpu: Gpu, seconds: float) -> str:
    clock, top = window.mean(gpu, "sm_clock_mhz", seconds), gpu.sm_clock_max_mhz
    if clock is None or not top:
        return "the power limit"
    return f"SM clock {clock:.0f} of {top:.0f} MHz ({100.0 * (clock / top - 1.0):.0f}%)".replace("-", "−")
