"""Knows ``cooling-degraded``: a fan that does not do its part, or a card that sheds its heat worse than it should."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Severity
from gpumon.rules import thermal
from gpumon.rules.limiters import boards
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import temperature_limit_c
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When cooling counts as degraded."""

    window_s: float = 60.0
    """The seconds looked at for a fan that stands still or disobeys."""
    stopped_c: float = 65.0
    """A fan told to stand still above this temperature is wrong; below, silence is by design."""
    stopped_w: float = 80.0
    """And at this power."""
    full_pct: float = 95.0
    """A fan at this level for five minutes, with the GPU near its limit, has nothing left to give."""
    near_limit_c: float = 3.0
    """How near."""
    target_points: float = 25.0
    """How far the fan's level may be from its target."""
    worse_than_before_pct: float = 25.0
    """Rise of the temperature per watt against the same card earlier in this run."""
    worse_than_siblings_pct: float = 35.0
    """The same against cards of this model at similar power."""


class _Sign(NamedTuple):
    """One way in which cooling shows its trouble; texts for the finding."""

    cause: str
    severity: Severity
    confidence: Confidence
    strength: float
    summary: str
    text: str
    evidence: tuple[Evidence, ...]


_STEADY_S = 300.0
_AGES_S = (900.0, 1500.0, 2100.0, 2700.0)
_INLET_C = 30.0
"""Air at the card where nobody measured it: only ratios at similar power are judged."""


@rule("cooling-degraded", limits=Limits, every_s=10.0, clear_s=60.0, suppressed_by=("gpu-lost", "driver-stuck"))
def cooling_degraded(window: Window, limits: Limits) -> Conclusions:
    """A fan does not do its part, or the GPU sheds heat worse than before or than its siblings.

    What it sees:
        One of: the fan is told to stand still at 65 °C or more and 80 W or more for 60 s; the fan is at 95 % or more
        for 5 min and the GPU still within 3 °C of its limit; the fan's level differs from its target by 25 points for
        60 s; the temperature per watt rose by 25 % against the same card earlier in this run at similar power and fan
        (unless its siblings rose with it), or lies 35 % above cards of the same model at similar power. The last two
        are information only.

    Why it matters:
        Dust, a dying fan or dried paste show here weeks before the clock has to give way.

    What to do:
        Look at the fan itself: the driver reports what was asked of it, and a blocked one reads the same. Clean it,
        take a manual curve back to automatic, replace fan or paste.

    When it is wrong:
        Cards that stop their fans when cool are left alone below 65 °C, and so are cards without a fan of their own.
        Cards packed closely are warmer in the middle. The driver may report the asked level both as level and as
        target, so silence about the target proves nothing.
    """
    for gpu in boards(window):
        if gpu.fan_pct is None:
            if gpu.fan_target_pct is not None:
                because = "the fan's level is not reported"
                yield Abstention(rule="cooling-degraded", because=because, subject=thermal.subject_of(gpu))
            continue
        if gpu.temperature_c is None or gpu.power_w is None:
            missing = "temperature" if gpu.temperature_c is None else "power"
            because = f"the GPU's {missing} is not reported"
            yield Abstention(rule="cooling-degraded", because=because, subject=thermal.subject_of(gpu))
            continue
        sign = next(_signs(window, gpu, limits), None)
        if sign is not None:
            yield _finding(gpu, sign)


def _signs(window: Window, gpu: Gpu, limits: Limits) -> Iterator[_Sign]:
    """What is wrong, the surest first."""
    for look in (_stopped, _disobeying, _at_full, _worse_than_before, _worse_than_siblings):
        sign = look(window, gpu, limits)
        if sign is not None and sign.strength >= 0.8:
            yield sign


def _stopped(window: Window, gpu: Gpu, limits: Limits) -> _Sign | None:
    still = window.share(gpu, "fan_pct", limits.window_s, below=1.0)
    temperature, power = (window.mean(gpu, field, limits.window_s) for field in ("temperature_c", "power_w"))
    if still is None or temperature is None or power is None or still < 90.0 or not window.covers(limits.window_s):
        return None
    if temperature < limits.stopped_c - 2.0 or power < limits.stopped_w:
        return None
    strength = 1.0 if temperature >= limits.stopped_c else 0.9
    text = f"fan 0% at {temperature:.0f} °C and {power:.0f} W"
    summary = f"the fan of GPU {gpu.index} stands still while it is hot"
    return _Sign("fan-stopped", "warning", "likely", strength, summary, text, _evidence(window, gpu, limits.window_s))


def _disobeying(window: Window, gpu: Gpu, limits: Limits) -> _Sign | None:
    levels = window.series(gpu, "fan_pct", limits.window_s)
    targets = window.series(gpu, "fan_target_pct", limits.window_s)
    gaps = [abs(one - two) for one, two in zip(levels, targets, strict=True) if one is not None and two is not None]
    if not gaps or not window.covers(limits.window_s):
        return None
    far_pct = 100.0 * sum(gap >= limits.target_points for gap in gaps) / len(gaps)
    level, target = window.mean(gpu, "fan_pct", 30.0) or 0.0, window.mean(gpu, "fan_target_pct", 30.0) or 0.0
    text = f"fan at {level:.0f}%, target {target:.0f}%"
    summary = f"the fan of GPU {gpu.index} does not follow its target"
    evidence = _evidence(window, gpu, limits.window_s)
    return _Sign("fan-off-target", "warning", "likely", far_pct / 95.0, summary, text, evidence)


def _at_full(window: Window, gpu: Gpu, limits: Limits) -> _Sign | None:
    limit = temperature_limit_c(gpu)
    full = window.share(gpu, "fan_pct", _STEADY_S, at_least=limits.full_pct)
    if limit is None or full is None or not window.covers(_STEADY_S):
        return None
    near = window.share(gpu, "temperature_c", _STEADY_S, at_least=limit - limits.near_limit_c) or 0.0
    text = f"fan {gpu.fan_pct:.0f}%, {gpu.temperature_c:.0f} °C, limit {limit:.0f}"
    summary = f"GPU {gpu.index} is at its limit, its fan at full speed"
    evidence = _evidence(window, gpu, _STEADY_S)
    return _Sign("fan-at-full", "warning", "possible", min(full, near) / 90.0, summary, text, evidence)


class _Shedding(NamedTuple):
    k_per_w: float
    power_w: float
    fan_pct: float
    temperature_c: float


def _shedding(window: Window, gpu: Gpu, ago_s: float = 0.0) -> _Shedding | None:
    """How warm five minutes of steady load made the card, per watt."""
    now = [window.mean(gpu, field, _STEADY_S, ago_s=ago_s) for field in ("temperature_c", "power_w", "fan_pct")]
    half = [window.mean(gpu, "temperature_c", _STEADY_S / 2, ago_s=ago_s + part) for part in (0.0, _STEADY_S / 2)]
    if None in now or None in half:
        return None
    temperature, power, fan = (value or 0.0 for value in now)
    is_steady = abs((half[0] or 0.0) - (half[1] or 0.0)) < 1.5
    if not is_steady or power < 80.0 or temperature < 60.0:
        return None
    return _Shedding((temperature - _INLET_C) / power, power, fan, temperature)


def _is_alike(one: _Shedding, other: _Shedding) -> bool:
    return abs(one.power_w - other.power_w) <= 0.1 * one.power_w and abs(one.fan_pct - other.fan_pct) <= 10.0


def _rise_pct(window: Window, gpu: Gpu) -> tuple[float, _Shedding, _Shedding] | None:
    """Against the best of this card's earlier stretches at similar power and fan."""
    job = window.job_of(gpu.uuid)
    trained = None if job is None else job.trained_since_s
    now = _shedding(window, gpu)
    if now is None or trained is None:
        return None
    # A card needs ten minutes to soak: before that everything looks better than later.
    ages = [ago for ago in _AGES_S if window.last.time_s - trained >= ago + _STEADY_S + 600.0]
    before = [found for ago in ages if (found := _shedding(window, gpu, ago)) is not None and _is_alike(now, found)]
    if not before:
        return None
    best = min(before, key=lambda one: one.k_per_w)
    return 100.0 * (now.k_per_w / best.k_per_w - 1.0), now, best


def _worse_than_before(window: Window, gpu: Gpu, limits: Limits) -> _Sign | None:
    risen = _rise_pct(window, gpu)
    if risen is None or risen[0] < 0.8 * limits.worse_than_before_pct:
        return None
    others = [_rise_pct(window, other) for other in thermal.siblings_of(window, gpu)]
    rises = [found[0] for found in others if found is not None]
    if rises and median(rises) >= risen[0] / 2:
        return None  # the room
    _, now, before = risen
    text = f"{now.temperature_c:.0f} °C at {now.power_w:.0f} W, earlier {before.temperature_c:.0f} °C"
    summary = f"GPU {gpu.index} sheds heat worse than earlier in the run"
    evidence = _evidence(window, gpu, _STEADY_S, was_c=before.temperature_c)
    strength = risen[0] / limits.worse_than_before_pct
    return _Sign("worse-than-before", "info", "possible", strength, summary, text, evidence)


def _worse_than_siblings(window: Window, gpu: Gpu, limits: Limits) -> _Sign | None:
    limit, now = temperature_limit_c(gpu), _shedding(window, gpu)
    if limit is None or now is None or now.temperature_c < limit - 10.0:
        return None
    others = [_shedding(window, other) for other in thermal.siblings_of(window, gpu)]
    alike = [other for other in others if other is not None and abs(other.power_w - now.power_w) <= 0.1 * now.power_w]
    if not alike:
        return None
    usual = median(other.k_per_w for other in alike)
    strength = 100.0 * (now.k_per_w / usual - 1.0) / limits.worse_than_siblings_pct
    typical_c = median(other.temperature_c for other in alike)
    text = f"{now.temperature_c:.0f} °C at {now.power_w:.0f} W, siblings {typical_c:.0f} °C"
    summary = f"GPU {gpu.index} sheds its heat worse than its siblings"
    evidence = _evidence(window, gpu, _STEADY_S, was_c=typical_c)
    return _Sign("worse-than-siblings", "info", "possible", strength, summary, text, evidence)


def _evidence(window: Window, gpu: Gpu, seconds: float, was_c: float | None = None) -> tuple[Evidence, ...]:
    limit = temperature_limit_c(gpu)
    temperature = thermal.whole(window.mean(gpu, "temperature_c", seconds))
    fan, target = (thermal.whole(window.mean(gpu, field, seconds)) for field in ("fan_pct", "fan_target_pct"))
    power = thermal.whole(window.mean(gpu, "power_w", seconds))
    return (
        Evidence(name="fan", value=fan, unit="%", was=target, judged_by="its target, as asked for", field="fan_pct"),
        Evidence(
            name="temperature",
            value=temperature,
            unit="°C",
            was=thermal.whole(was_c),
            judged_by=None if limit is None else f"limit {limit:.0f}",
            field="temperature_c",
        ),
        Evidence(name="power", value=power, unit="W", field="power_w"),
    )


def _finding(gpu: Gpu, sign: _Sign) -> Finding:
    return Finding(
        rule="cooling-degraded",
        severity=sign.severity,
        confidence=sign.confidence,
        subject=thermal.subject_of(gpu),
        summary=sign.summary,
        strength=sign.strength,
        cause=sign.cause,
        cause_text=sign.text,
        fix_text=f"look at the fan of GPU {gpu.index}: cable, dust, curve",
        evidence=sign.evidence,
        fixes=(
            f"look at the fan of GPU {gpu.index}: does it turn? The driver shows only what was asked of it",
            "a manual fan curve left on? set it back to automatic (nvidia-settings)",
            "clean dust and filters; check the distance to the next card",
            "still warm: replace fan or thermal paste",
        ),
    )
