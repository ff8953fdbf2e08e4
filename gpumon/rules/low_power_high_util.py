"""Knows ``low-power-high-util``: always busy, hardly any power, on a GPU that tells nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Abstention, Evidence, Finding, Gpu, Job
from gpumon.rules import use_at_once
from gpumon.rules.picture import Picture, busy_jobs
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import groups_of, headroom, names, subject_of
from gpumon.signals import THERMAL
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a busy GPU at little power counts as trouble."""

    window_s: float = 120.0
    """The seconds looked at."""
    busy_pct: float = 95.0
    """A kernel runs for at least this share of the time."""
    power_below_pct: float = 35.0
    """Power between idle and limit stays below this share."""
    memory_below_pct: float = 25.0
    """Memory is read or written for less than this share of the time."""
    clock_pct: float = 80.0
    """The clock is at least this share of the highest: a low one explains low power.
    Cards list a highest clock that many never reach under any load, so 95 % would silence the rule on them."""
    earlier_power_pct: float = 60.0
    """A GPU that drew this much for a minute within the last hour can work hard in this job."""


_EARLIER_MINUTES = 60


@rule(
    "low-power-high-util",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=(
        "gpu-lost",
        "driver-stuck",
        "data-starved",
        "sw-thermal",
        "hw-thermal",
        "collective-hang",
        "straggler",
    ),
    at_once=use_at_once.low_power_high_util,
)
def low_power_high_util(window: Window, limits: Limits) -> Conclusions:
    """A kernel always runs, but the GPU works lightly: it draws little power.

    What it sees:
        Over two minutes of training the GPU is busy at least 95 % of the time, at a high clock, and draws less than
        35 % of the way from idle to its limit; memory is little used, nothing throttles, and it did not draw more in
        the last hour. Only on GPUs without GPM, which would say more. A single reading is information, and a warning
        where it says the same of all busy GPUs of several.

    Why it matters:
        Kernels are always running but the GPU is working lightly: small kernels, chains that wait for their own
        results, or ranks waiting inside a collective.

    What to do:
        A larger batch and fused kernels, as for kernels that are too small. One profile (``nsys profile``, or
        torch.profiler over 20 steps) shows which of the three it is.

    When it is wrong:
        Power depends on the data (zeros draw less) and is read coarsely on some cards. Laptops share their power
        with the processor, MIG instances their card: neither is judged, nor are GPUs with a raised limit.
    """
    if window.last.host.chassis == "laptop":
        return
    for job, pictures in busy_jobs(window, limits.window_s):
        affected: list[tuple[Gpu, Picture]] = []
        for gpu, seen in pictures:
            if seen.kind != "closed" or gpu.mig_parent_uuid is not None or seen.busy_pct < 0.95 * limits.busy_pct:
                continue
            if seen.power_share is None:
                because = "power or its limit is not reported"
                yield Abstention(rule="low-power-high-util", because=because, subject=subject_of(job, [gpu]))
            elif _strength(window, gpu, seen, limits) >= 0.8:
                affected.append((gpu, seen))
        if len(job.gpu_uuids) > 1 and not (len(affected) == len(job.gpu_uuids) and _all_work(window, affected, limits)):
            continue
        for group in groups_of([gpu for gpu, _ in affected], [gpu for gpu, _ in pictures]):
            yield _finding(window, job, [one for one in affected if one[0] in group], limits)


def _all_work(window: Window, affected: Sequence[tuple[Gpu, Picture]], limits: Limits) -> bool:
    """None of them only waits in a collective, which touches no memory."""
    uses = (window.mean(gpu, "memory_utilization_pct", limits.window_s) for gpu, _ in affected)
    return all(use is not None and use >= 5.0 for use in uses)


def _strength(window: Window, gpu: Gpu, seen: Picture, limits: Limits) -> float:
    seconds = limits.window_s
    memory, clock = window.mean(gpu, "memory_utilization_pct", seconds), window.mean(gpu, "sm_clock_mhz", seconds)
    if memory is None or memory >= limits.memory_below_pct or gpu.power_limit_w is None:
        return 0.0
    if clock is None or gpu.sm_clock_max_mhz is None or clock < limits.clock_pct / 100.0 * gpu.sm_clock_max_mhz:
        return 0.0
    if gpu.power_default_limit_w is not None and gpu.power_limit_w > 1.02 * gpu.power_default_limit_w:
        return 0.0
    if any((window.mean(gpu, f"throttled_pct.{limiter}", seconds) or 0.0) >= 1.0 for limiter in THERMAL):
        return 0.0
    share = 100.0 * max(0.01, seen.power_share or 0.0)
    if share >= limits.power_below_pct / 0.8 or _worked_hard(window, gpu, limits):
        return 0.0
    return min(limits.power_below_pct / share, seen.busy_pct / limits.busy_pct)


def _worked_hard(window: Window, gpu: Gpu, limits: Limits) -> bool:
    """Whether a minute of the last hour drew more, one in twenty left out."""
    end_s = window.last.time_s // 60 * 60
    minutes = window.bins(gpu, "power_w", end_s=end_s, width_s=60.0, count=_EARLIER_MINUTES)
    powers = sorted(power for power in minutes if power is not None)
    if not powers or gpu.power_limit_w is None:
        return False
    idle = window.baseline(gpu, "power_idle_w") or 0.12 * gpu.power_limit_w
    return (powers[int(0.95 * (len(powers) - 1))] - idle) / (gpu.power_limit_w - idle) > limits.earlier_power_pct / 100


def _finding(window: Window, job: Job, group: Sequence[tuple[Gpu, Picture]], limits: Limits) -> Finding:
    gpus = [gpu for gpu, _ in group]
    first, seen = group[0]
    power = window.mean(first, "power_w", limits.window_s) or 0.0
    memory = window.mean(first, "memory_utilization_pct", limits.window_s) or 0.0
    room = headroom(first)
    return Finding(
        rule="low-power-high-util",
        severity="warning",
        confidence="possible",
        subject=subject_of(job, gpus),
        summary=f"{names(gpus, window.last.gpus)} always busy, but at little power",
        strength=min(_strength(window, gpu, picture, limits) for gpu, picture in group),
        cause_text=f"{power:.0f} of {first.power_limit_w or 0:.0f} W: small kernels, or waiting in a collective",
        fix_text="larger batch; profile 20 steps",
        evidence=(
            Evidence(
                name="busy",
                value=float(round(seen.busy_pct)),
                unit="%",
                judged_by=f"≥ {limits.busy_pct:g}% of {limits.window_s / 60:g} min",
                field="utilization_pct",
            ),
            Evidence(
                name="power above idle",
                value=float(round(100 * (seen.power_share or 0.0))),
                unit="%",
                judged_by=f"< {limits.power_below_pct:g}% of the range",
                field="power_w",
            ),
            Evidence(
                name="memory use",
                value=float(round(memory)),
                unit="% of time",
                judged_by=f"< {limits.memory_below_pct:g}%",
                field="memory_utilization_pct",
            ),
        ),
        fixes=(
            "a larger batch" + ("" if room is None else f": {room} of GPU memory are free"),
            "torch.compile(model): fewer and larger kernels",
            "profile 20 steps with torch.profiler or nsys: small kernels, dependent chains, or a collective",
        ),
        onset_s=limits.window_s,
    )
