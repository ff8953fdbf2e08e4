"""Knows ``throughput-drop``: a job that became slower at one moment and stayed so, and what changed with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import add
from typing import NamedTuple

from gpumon import units
from gpumon.fields import PAUSED_FIELD
from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Gpu, Job, Rank, Subject
from gpumon.rules.change import change_point
from gpumon.rules.moved import Moment, Moved, is_by_heat, moved
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import is_in_step
from gpumon.window import Known, Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a change of speed counts."""

    drop_pct: float = 10.0
    """By how much a step must have become longer: identical GPUs differ by 8 % as it is."""
    held_s: float = 60.0
    """How long it must have lasted."""
    held_steps: int = 30
    """And for how many steps."""
    before_s: float = 120.0
    """How long the earlier pace must have been seen."""
    look_back_s: float = 900.0
    """How far back the change may lie; after that the new pace is the usual one."""


class _Pace(NamedTuple):
    """What a step (or a sample) took, in bins of a few seconds, oldest first."""

    field: str
    bin_s: float
    ages_s: list[float]
    logs: list[float]
    paused_s: list[float]
    """How long ago the job paused."""


class _Drop(NamedTuple):
    ago_s: float
    before: float
    after: float
    held_s: float

    @property
    def longer(self) -> float:
        """New time of a step over the old one."""
        return self.after / self.before


_Mean = Callable[[Known, str], float | None]
"""Of a series of somebody, over a stretch of time."""
_BIN_S = 5.0
_EPOCH_S = 30.0
"""An epoch that ended no longer before the change than this explains it."""
_LEAST_BINS = 12


@rule(
    "throughput-drop",
    limits=Limits,
    every_s=15.0,
    clear_s=60.0,
    suppressed_by=(
        "gpu-lost",
        "driver-stuck",
        "collective-hang",
        "hw-thermal",
        "sw-thermal",
        "power-brake",
        "memory-hot",
        "clocks-locked-low",
        "alloc-retry",
        "gpu-contention",
        "nvlink-down",
        "pcie-degraded",
        "data-starved",
        "host-bound",
        "straggler",
    ),
)
def throughput_drop(window: Window, limits: Limits) -> Conclusions:
    """Training became slower at one moment and stayed so; what changed in the same seconds is named.

    What it sees:
        With the probe: the time of a step (per sample, where the probe knows how many) rose by 10 % or more at one
        moment of the last quarter of an hour and has stayed there for 60 s and 30 steps; a change point in its
        logarithm. What else changed within 15 s is the cause: another process on the GPU, a link, a clock, allocator
        retries, the CPU, storage, the loader; heat has rules of its own. Without the probe SM activity times clock
        stands for the speed; then it is information, and only possible.

    Why it matters:
        A run that lost a fifth of its speed at night ends a day later, and no log says so.

    What to do:
        Follow the cause. Without one, compare code and data at that moment: a new stage of a curriculum, longer
        sequences, another dataset; a profiler shows which part of the step grew.

    When it is wrong:
        Longer sequences or a larger stage of the model are slower by design and look the same; without a cause the word
        is possible. A larger batch is told apart where the probe counts samples; where it does not, a drop without a
        cause is information only, and so is everything in the first ten minutes of a process. Evaluation and
        checkpoints are left out.
    """
    for job in window.jobs:
        if job.kind != "training" or job.phase != "train" or job.trained_since_s is None:
            continue
        if window.last.time_s - job.trained_since_s < limits.before_s + limits.held_s:
            continue
        gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids and not gpu.is_lost]
        ranks = [rank for rank in window.ranks_of(job) if rank.step_s is not None]
        is_active = all(gpu.sm_active_pct is not None and gpu.sm_clock_mhz is not None for gpu in gpus)
        if not gpus or not (ranks or is_active):
            because = "neither step times (probe) nor SM activity are reported"
            yield Abstention(rule="throughput-drop", because=because, subject=Subject(kind="job", job=job.id))
            continue
        found = _judge(window, job, gpus, ranks, limits)
        if found is not None:
            yield found


def _judge(window: Window, job: Job, gpus: Sequence[Gpu], ranks: Sequence[Rank], limits: Limits) -> Finding | None:
    seen_s = min(limits.look_back_s, window.last.time_s - (job.trained_since_s or 0.0))
    if not ranks and is_in_step(job, {process.pid: process for process in window.last.processes}):
        witnesses = gpus[:: max(1, len(gpus) - 1)]  # they all get the same done
    else:
        witnesses = gpus

    def done(mean: _Mean) -> float | None:
        return _steps_done(mean, ranks[0]) if ranks else _work_done(mean, witnesses)

    if _is_as_fast(window, gpus[0], done, seen_s, limits):
        return None
    pace = _steps(window, gpus, ranks[0], seen_s) if ranks else _activity(window, witnesses, seen_s)
    drop = _drop(pace, limits)
    if drop is None or 100.0 * (drop.longer - 1.0) < 0.8 * limits.drop_pct:
        return None
    if ranks and drop.held_s < limits.held_steps * (ranks[0].step_s or 0.0):
        return None
    rise_s = drop.after - drop.before if pace.field == "step_s" else None
    moment = Moment(window, job, gpus, drop.ago_s)
    if is_by_heat(moment):
        return None
    cause = next(moved(moment, ranks, rise_s), None)
    if cause is None and any(-pace.bin_s <= paused_s - drop.ago_s <= _EPOCH_S for paused_s in pace.paused_s):
        return None  # an epoch ended before it: other data, not a fault
    return _finding(job, pace, drop, cause, limits.drop_pct)


def _steps(window: Window, gpus: Sequence[Gpu], rank: Rank, seconds: float) -> _Pace:
    """Ranks in step all take the same time, so one of them tells."""
    per_s = window.series(rank, "samples_per_s", seconds)
    lengths = window.series(rank, "step_s", seconds)
    counted = sum(value is not None and value > 0 for value in per_s)
    if counted >= 0.9 * sum(length is not None for length in lengths):
        values = [1.0 / value if value else None for value in per_s]
        return _pace(window, gpus, "samples_per_s", values, seconds)
    return _pace(window, gpus, "step_s", lengths, seconds)


def _activity(window: Window, gpus: Sequence[Gpu], seconds: float) -> _Pace:
    """The inverse of what the GPUs of the job got done: SM activity times clock."""
    done: list[float] = []
    for gpu in gpus:
        active, clock = window.series(gpu, "sm_active_pct", seconds), window.series(gpu, "sm_clock_mhz", seconds)
        products = [
            math.nan if one is None or other is None else one * other for one, other in zip(active, clock, strict=True)
        ]
        done = list(map(add, done, products)) if done else products
    values = [1.0 / value if value > 0 else None for value in done]
    return _pace(window, gpus, "sm_active_pct", values, seconds)


def _stretches(seconds: float, limits: Limits) -> tuple[tuple[float, float], ...]:
    """How long and how long ago: now, at the beginning, and between them."""
    now, first = limits.held_s / 2, limits.before_s
    return (now, 0.0), (first, seconds - first), (seconds - first - now, now)


def _is_as_fast(
    window: Window, gpu: Gpu, done: Callable[[_Mean], float | None], seconds: float, limits: Limits
) -> bool:
    """A cheap look at both ends and between them: nothing was clearly faster than the last minute is.

    ``done`` is what was done a second, from the means over a stretch of time.
    """
    seconds = min(seconds, window.elapsed_s)
    if seconds < limits.before_s + limits.held_s:
        return False
    paces = (done(_mean_over(window, gpu, length_s, ago_s)) for length_s, ago_s in _stretches(seconds, limits))
    now = next(paces)
    if now is None:
        return False
    return all(pace is not None and now >= (1.0 - 0.004 * limits.drop_pct) * pace for pace in paces)


def _mean_over(window: Window, gpu: Gpu, length_s: float, ago_s: float) -> _Mean:
    """Means of a stretch of time without its pauses, that a GPU shows; none where that is less than half of it."""
    pauses = window.series(gpu, PAUSED_FIELD, length_s, ago_s=ago_s)
    if not any(pauses):
        return lambda subject, field: window.mean(subject, field, length_s, ago_s=ago_s)
    weights = [0.0 if pause else 1.0 for pause in pauses]
    if 2.0 * sum(weights) < len(weights):
        return lambda _subject, _field: None
    return lambda subject, field: window.mean_by(subject, field, length_s, weights, ago_s=ago_s)


def _steps_done(mean: _Mean, rank: Rank) -> float | None:
    """Of the steps that a probe counts."""
    if rank.samples_per_s:
        return mean(rank, "samples_per_s") or None
    step_s = mean(rank, "step_s")
    return 1.0 / step_s if step_s else None


def _work_done(mean: _Mean, gpus: Sequence[Gpu]) -> float | None:
    """Of what the GPUs get done, as ``_activity``."""
    total = 0.0
    for gpu in gpus:
        active, clock = mean(gpu, "sm_active_pct"), mean(gpu, "sm_clock_mhz")
        if active is None or clock is None:
            return None
        total += active * clock
    return total


def _pace(window: Window, gpus: Sequence[Gpu], field: str, values: Sequence[float | None], seconds: float) -> _Pace:
    """Means of the logarithm in bins; what fell into a pause is left out."""
    bin_s = max(_BIN_S, 2.0 * window.interval_s)
    ages_s: list[float] = []
    logs: list[float] = []
    paused_s: list[float] = []
    pauses = window.series(gpus[0], PAUSED_FIELD, seconds)
    total, count, number = 0.0, 0, -1
    for age, value, pause in zip(window.ages(seconds), values, pauses, strict=True):
        if pause:
            paused_s.append(age)
        elif value is not None and value > 0:
            if int(age / bin_s) != number:
                if count:
                    logs.append(total / count)
                total, count, number = 0.0, 0, int(age / bin_s)
                ages_s.append((number + 1) * bin_s)
            total += math.log(value)
            count += 1
    if count:
        logs.append(total / count)
    return _Pace(field, bin_s, ages_s, logs, paused_s)


def _drop(pace: _Pace, limits: Limits) -> _Drop | None:
    before, after = (max(2, round(seconds / pace.bin_s)) for seconds in (limits.before_s, limits.held_s))
    if len(pace.logs) < _LEAST_BINS:
        return None
    change = change_point(pace.logs, before=before, after=after)
    if change is None or change.rise <= 0:
        return None
    old = sum(pace.logs[: change.at]) / change.at
    last = pace.logs[-max(2, after // 2) :]
    if sum(last) / len(last) - old < 0.8 * change.rise:
        return None  # on its way back
    ago_s = pace.ages_s[change.at]
    held_s = (len(pace.logs) - change.at) * pace.bin_s
    return _Drop(ago_s, math.exp(old), math.exp(old + change.rise), held_s)


def _finding(job: Job, pace: _Pace, drop: _Drop, cause: Moved | None, drop_pct: float) -> Finding:
    slower_pct = 100.0 * (1.0 - 1.0 / drop.longer)
    is_probed = pace.field != "sm_active_pct"
    # Where samples are not counted, a larger batch looks the same.
    is_known = pace.field == "samples_per_s" or (is_probed and cause is not None)
    is_warning = is_known and not job.is_first_epoch
    confidence: Confidence = "likely" if is_probed and cause is not None else "possible"
    unexplained = "nothing else changed: code, data or sequence lengths?"
    return Finding(
        rule="throughput-drop",
        severity="warning" if is_warning else "info",
        confidence=confidence,
        subject=Subject(kind="job", job=job.id),
        summary=f"training became {slower_pct:.0f}% slower and stays so",
        strength=100.0 * (drop.longer - 1.0) / drop_pct,
        cause="unexplained" if cause is None else cause.cause,
        cause_text=unexplained if cause is None else cause.text,
        fix_text="compare code and data then; profile a few steps" if cause is None else cause.fix,
        evidence=(_pace_evidence(pace, drop), *(() if cause is None else cause.evidence)),
        cost=Cost(lost_pct=float(round(slower_pct)), speedup_max=round(drop.longer, 1)) if is_probed else None,
        fixes=(
            *(() if cause is None else (cause.fix,)),
            "compare code, data and sequence lengths at that moment (new stage of a curriculum, resume?)",
            "profile a few steps: torch.profiler, or nsys profile -d 10 on the trainer",
        ),
        onset_s=drop.ago_s,
    )


def _pace_evidence(pace: _Pace, drop: _Drop) -> Evidence:
    if pace.field == "samples_per_s":
        now, was = round(1.0 / drop.after, 1), round(1.0 / drop.before, 1)
        return Evidence(name="samples per second", value=now, was=was, judged_by="≥ 10% slower", field=pace.field)
    if pace.field == "step_s":
        now_text, was_text = units.step(drop.after), units.step(drop.before)
        return Evidence(name="step time", value=now_text, was=was_text, judged_by="≥ 10% longer", field=pace.field)
    change = float(round(100.0 * (drop.before / drop.after - 1.0)))
    return Evidence(name="SM activity × clock", value=change, unit="%", judged_by="≤ −10%", field=pace.field)
