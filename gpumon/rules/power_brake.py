"""Knows ``power-brake``: something outside the GPU orders it to draw less power, at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Severity, Subject
from gpumon.rules import slowdown, thermal
from gpumon.rules.limiters import UNKNOWN, boards, held_s, is_counted, is_repeated
from gpumon.rules.one_reading import clock, has, seen, shown
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import limiter_pct
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the external power brake counts as trouble."""

    window_s: float = 60.0
    """The seconds looked at."""
    braked_s: float = 0.5
    """Seconds of braking within the window that raise it."""


class _Brake(NamedTuple):
    gpu: Gpu
    seconds: float
    strength: float


_SERIES = "throttled_pct.hw_power_brake"
_SERVER = (
    "look at power supplies, PDU and cabling: something outside the GPU asserts the brake",
    "check the GPU's power plugs (Xid 54: one is missing) and how many GPUs hang on one supply",
    "BMC: a failed supply or a power cap of the chassis? then its firmware; software on the GPU cannot lift it",
    "in a cloud: report the node and move the job",
)
_LAPTOP = (
    "plug in the charger that came with the machine; a weaker one brakes the GPU",
    "check battery and the vendor's power profile",
)


def _at_once(window: Window, _limits: Limits) -> Conclusions:
    """A brake that most GPUs feel at once comes from outside; on one of them it may be a change of state."""
    cards = tuple(boards(window))
    braked = [gpu for gpu in cards if has(gpu, "hw_power_brake") and gpu.power_source != "battery"]
    # The brake slows by hardware; where only one of the two bits is set, the reading contradicts itself.
    whole = [gpu for gpu in braked if has(gpu, "hw_slowdown")]
    if 2 * len(whole) > len(cards) > 1:
        yield msgspec.structs.replace(_seen(window, whole, ("critical", "likely")), subject=Subject(kind="host"))
        return
    for gpu in braked:
        yield _seen(window, [gpu], ("warning", "likely" if gpu in whole else "possible"))


def _seen(window: Window, braked: Sequence[Gpu], words: tuple[Severity, Confidence]) -> Finding:
    gpu, count = braked[0], len(tuple(boards(window)))
    is_laptop = window.last.host.chassis == "laptop"
    contradiction = "its flags contradict each other: braked, yet not slowed down"
    return seen(
        window,
        "power-brake",
        gpu,
        _summary(braked),
        words,
        cause="charger" if is_laptop else "external-power",
        cause_text=contradiction if words[1] == "possible" else _cause_text(window, gpu),
        fix_text="the right charger" if is_laptop else "power supplies, cabling, BMC; software cannot lift it",
        evidence=(
            clock(gpu),
            shown("power", gpu.power_w, "W", limit=gpu.power_limit_w, judged_by="its limit"),
            shown("temperature", gpu.temperature_c, "°C"),
            Evidence(name="GPUs braked", value=float(len(braked)), judged_by=f"of {count}"),
        ),
        fixes=_LAPTOP if is_laptop else _SERVER,
    )


@rule(
    "power-brake",
    limits=Limits,
    every_s=1.0,
    clear_s=20.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
    at_once=_at_once,
)
def power_brake(window: Window, limits: Limits) -> Conclusions:
    """Power supply or chassis order the GPU to slow down at once, whatever it does.

    What it sees:
        The driver's counter of the hardware power brake (NVML field 271) grew by more than 0.5 s within 60 s; where
        there is no counter, the bit of the clock event reasons was set in two readings in a row. If more than half of
        the machine's GPUs are braked, one finding is about the machine. A single reading with the bit, as in a log, is
        a warning that asks for a second one. So is the bit of a hardware slowdown that names no reason, on a busy GPU
        that is not hot and has had half its clock in three readings.

    Why it matters:
        Clocks fall to a fraction (86 of 1980 MHz have been seen) although the GPU is cool and idle: any job crawls,
        and a power supply may be about to fail.

    What to do:
        Look at power supplies, PDU, cabling and the chassis' controller (BMC); software on the GPU cannot lift it. On a
        laptop plug in the charger that it came with.

    When it is wrong:
        A bit in one reading alone may be a change of the performance state. Laptops on battery brake their GPU on
        purpose: information only.
    """
    braked: list[_Brake] = []
    cards = tuple(boards(window))
    for gpu in cards:
        if limiter_pct(gpu, "hw_power_brake") is None:
            yield Abstention(rule="power-brake", because=UNKNOWN, subject=thermal.subject_of(gpu))
            continue
        brake = _brake_of(window, gpu, limits)
        if brake.strength >= 0.8:
            braked.append(brake)
        elif slowdown.is_unnamed(window, gpu) and not slowdown.is_hot(gpu) and gpu.power_source != "battery":
            yield slowdown.unnamed("power-brake", gpu, _SERVER)
    if len(braked) >= 2 and 2 * len(braked) > len(cards):
        yield _finding(window, braked, limits)
    else:
        for brake in braked:
            yield _finding(window, [brake], limits)


def _brake_of(window: Window, gpu: Gpu, limits: Limits) -> _Brake:
    seconds = held_s(window, gpu, "hw_power_brake", limits.window_s)
    strength = seconds / limits.braked_s
    if not is_counted(gpu, "hw_power_brake") and not is_repeated(window, gpu, "hw_power_brake", limits.window_s):
        strength = min(strength, 0.9)
    return _Brake(gpu, seconds, strength)


def _words(window: Window, gpu: Gpu) -> tuple[Severity, Confidence]:
    if gpu.power_source == "battery":
        return "info", "likely"
    if window.last.host.chassis == "laptop":
        return "warning", "likely"
    return "critical", "certain" if is_counted(gpu, "hw_power_brake") else "likely"


def _finding(window: Window, braked: Sequence[_Brake], limits: Limits) -> Finding:
    worst = max(braked, key=lambda brake: brake.seconds)
    gpu = worst.gpu
    severity, confidence = _words(window, gpu)
    is_laptop = window.last.host.chassis == "laptop" or gpu.power_source in {"battery", "undersized"}
    fixes = _LAPTOP if is_laptop else _SERVER
    short = "the right charger" if is_laptop else "power supplies, cabling, BMC; software cannot lift it"
    began_s = began_ago_s(window, gpu, _SERIES, lambda value: value > 0.0, bridge_s=limits.window_s)
    clock, top = window.mean(gpu, "sm_clock_mhz", 30.0), thermal.whole(gpu.sm_clock_max_mhz)
    return Finding(
        rule="power-brake",
        severity=severity,
        confidence=confidence,
        subject=thermal.subject_of(gpu) if len(braked) == 1 else Subject(kind="host"),
        summary=_summary([brake.gpu for brake in braked]),
        strength=worst.strength,
        cause="charger" if is_laptop else "external-power",
        cause_text=_cause_text(window, gpu),
        fix_text=short,
        evidence=(
            Evidence(
                name="power brake",
                value=round(worst.seconds, 1),
                unit="s",
                judged_by=f"≥ {limits.braked_s:g} s of {limits.window_s:.0f} s",
                field=_SERIES,
            ),
            Evidence(name="SM clock", value=thermal.whole(clock), unit="MHz", was=top, field="sm_clock_mhz"),
            Evidence(name="power", value=thermal.whole(gpu.power_w), unit="W", field="power_w"),
            Evidence(name="temperature", value=thermal.whole(gpu.temperature_c), unit="°C", field="temperature_c"),
            Evidence(name="GPUs braked", value=float(len(braked)), judged_by=f"of {len(tuple(boards(window)))}"),
        ),
        fixes=fixes,
        onset_s=began_s,
    )


def _summary(braked: Sequence[Gpu]) -> str:
    if len(braked) == 1:
        return f"GPU {braked[0].index} is held by an external power brake"
    return f"{len(braked)} GPUs are held by an external power brake"


def _cause_text(window: Window, gpu: Gpu) -> str:
    if gpu.power_source == "battery":
        return "the machine runs on battery"
    if gpu.power_source == "undersized":
        return "the charger is too small"
    temperature, power = (_of_late(window, gpu, field) for field in ("temperature_c", "power_w"))
    known = [f"{temperature:.0f} °C" if temperature is not None else "", f"{power:.0f} W" if power is not None else ""]
    told = ", ".join(part for part in known if part)
    return f"power supply or chassis, not heat{f' ({told})' if told else ''}"


def _of_late(window: Window, gpu: Gpu, field: str) -> float | None:
    mean, series = window.mean(gpu, field, 30.0), window.series(gpu, field, 30.0)
    return series[-1] if mean is None else mean
