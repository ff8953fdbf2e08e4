"""Knows ``host-bound``: the main thread launches work more slowly than the GPU does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import pstdev
from typing import NamedTuple

from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Gpu, Job, Process
from gpumon.rules.measured import steps_of
from gpumon.rules.onset import began_ago_s
from gpumon.rules.picture import Picture, picture_of
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import (
    PAUSED,
    gpus_of,
    groups_of,
    has_paused,
    headroom,
    names,
    rolls_out,
    subject_of,
    trained_for,
)
from gpumon.signals import mean_of, trainer_of, workers_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a slow host counts as trouble."""

    window_s: float = 120.0
    """The seconds looked at without a probe."""
    probe_window_s: float = 60.0
    """The seconds looked at where a probe says that the job does not wait for data."""
    busy_below_pct: float = 85.0
    """The GPU is busy for less than this share of the time."""
    busy_at_least_pct: float = 20.0
    """And for at least this share: below, there is hardly any work to launch."""
    hot_pct: float = 90.0
    """CPU time of the main thread, of one core."""
    hot_share_pct: float = 80.0
    """Share of the time in which the main thread is that hot."""
    spread_pct: float = 15.0
    """The busy share of single seconds varies by less than this (standard deviation)."""
    power_pct: float = 40.0
    """Power between idle and limit stays below this share where one process drives several GPUs, whose layers wait
    for each other at much work; not asked where a probe reports."""
    alone_power_pct: float = 70.0
    """The same where a process has one GPU: stages of a pipeline then wait in kernels, and the GPU counts as busy."""


class _Seen(NamedTuple):
    """One GPU whose host is slow."""

    gpu: Gpu
    trainer: Process
    picture: Picture
    hot_pct: float
    main_cpu_pct: float
    worker_cpu_pct: float | None
    has_probe: bool
    seconds: float
    switch: str | None
    """What makes every launch wait, where it can be seen."""
    is_alone: bool
    """The process drives no other GPU."""
    is_only: bool
    """Nor does the job, here or elsewhere."""
    strength: float = 0.0


_SWITCHES = ("detect_anomaly", "detect-anomaly")
_CALM_WORKERS_PCT = 50.0
_PARTS = 4
_COPIES_PCT = 10.0
_COPIES_BYTES_PER_S = 300e6
"""From pageable memory a tenth of the time is spent on so many."""
_FULL_PCT = 93.0


@rule(
    "host-bound",
    limits=Limits,
    every_s=5.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "data-starved", "h2d-slow", "pcie-degraded", "collective-hang"),
)
def host_bound(window: Window, limits: Limits) -> Conclusions:
    """The GPU waits for the host: one Python thread cannot launch its work fast enough.

    What it sees:
        Over two minutes (one where the probe reports) the GPU is busy 20 to 85 % of the time, evenly from second to
        second or with half-empty multiprocessors, at low power, while the trainer's main thread computes at least
        90 % of one core nearly all the time and the loader's workers sleep.

    Why it matters:
        Every kernel costs the host some microseconds to launch. With small batches, many small operations or a
        ``.item()`` in every step the GPU is done before the next launch arrives, and a faster GPU would not help.

    What to do:
        Give each launch more work: a larger batch, ``torch.compile(mode="reduce-overhead")`` or CUDA graphs, fused
        or foreach optimizers. Read losses every 50 steps, not every step. CUDA_LAUNCH_BLOCKING=1 and anomaly
        detection are for debugging; where they are set, they are the cause.

    When it is wrong:
        A hot main thread alone proves nothing: CUDA spins while it waits for the GPU, so a busy GPU is never judged,
        nor is a job whose GPUs together are busy 85 % of the time: there stages of a pipeline wait for each other.
        From outside, a main thread that loads data by itself looks alike; where it reads files, data-starved says
        so. Environments of reinforcement learning that run in the main thread are the job, and stay silent.
    """
    for job in trained_for(window, limits.probe_window_s):
        gpus = gpus_of(window, job)
        seen: list[_Seen] = []
        for one in _look(window, job, gpus, limits):
            if isinstance(one, Abstention):
                yield one
            else:
                seen.append(one)
        if seen and len(gpus) > 1:
            seen = _of_all(window, gpus, seen, limits)
        by_uuid = {one.gpu.uuid: one for one in seen}
        for group in groups_of([one.gpu for one in seen], gpus):
            yield _finding(window, job, [by_uuid[gpu.uuid] for gpu in group], limits)


def _look(window: Window, job: Job, gpus: Sequence[Gpu], limits: Limits) -> Iterator[_Seen | Abstention]:
    processes = {process.pid: process for process in window.last.processes}
    trained_s = window.last.time_s - (job.trained_since_s or 0.0)
    for gpu in gpus:
        trainer = trainer_of(job, gpu.uuid, processes)
        if trainer is None or rolls_out(job, trainer):
            continue
        rank = window.rank_of(trainer.pid)
        has_probe = rank is not None and not rank.is_sampled
        seconds = limits.probe_window_s if has_probe else limits.window_s
        picture = picture_of(window, gpu, seconds) if trained_s >= seconds - window.interval_s else None
        if picture is None or picture.kind != "host" or picture.busy_pct < limits.busy_at_least_pct:
            continue
        if has_paused(window, gpu, seconds):
            yield Abstention(rule="host-bound", because=PAUSED, subject=subject_of(job, gpus))
            continue
        steps = steps_of(window, rank, seconds) if rank is not None else None
        if steps is not None and (steps.copy_pct or 0.0) >= _COPIES_PCT:
            continue  # the main thread copies; h2d-slow says so
        hot = window.share(trainer, "main_thread_cpu_pct", seconds, at_least=limits.hot_pct)
        if hot is None:
            if picture.busy_pct < limits.busy_below_pct:
                because = "the CPU time of the trainer's main thread cannot be read"
                yield Abstention(rule="host-bound", because=because, subject=subject_of(job, [gpu]))
            continue
        workers = workers_of(job, trainer.pid, processes)
        calm = mean_of(window.mean(worker, "cpu_pct", seconds) for worker in workers)
        main = window.mean(trainer, "main_thread_cpu_pct", seconds) or hot
        is_alone = len(trainer.gpu_memory_bytes) == 1
        is_only = is_alone and len(job.gpu_uuids) == 1 and (trainer.world_size or 1) == 1
        seen = _Seen(gpu, trainer, picture, hot, main, calm, has_probe, seconds, _switch(trainer), is_alone, is_only)
        strength = _strength(window, seen, limits)
        if strength >= 0.8:
            yield seen._replace(strength=strength)


def _of_all(window: Window, gpus: Sequence[Gpu], seen: Sequence[_Seen], limits: Limits) -> list[_Seen]:
    """Ranks run the same code: where the job's GPUs together are busy, a stage waits for another, or one straggles."""
    busy = mean_of(window.mean(gpu, "utilization_pct", seen[0].seconds) for gpu in gpus)
    gap = _gap(busy or 0.0, limits)
    return [one._replace(strength=min(one.strength, gap)) for one in seen if gap >= 0.8]


def _gap(busy_pct: float, limits: Limits) -> float:
    return (100.0 - busy_pct) / (100.0 - limits.busy_below_pct)


def _strength(window: Window, seen: _Seen, limits: Limits) -> float:
    picture = seen.picture
    if (seen.worker_cpu_pct or 0.0) >= _CALM_WORKERS_PCT or picture.data_pct >= 5.0:
        return 0.0
    samples = window.samples(seen.gpu, seen.seconds)
    is_even = _spread(samples, seen.seconds) < limits.spread_pct
    is_hollow = picture.sm_pct is not None and picture.sm_pct < min(50.0, 0.6 * picture.busy_pct)
    most = (limits.alone_power_pct if seen.is_alone else limits.power_pct) / 100.0
    is_light = picture.power_share is None or picture.power_share < most
    is_sure = seen.switch is not None or seen.has_probe
    if seen.is_only and (window.mean(seen.gpu, "pcie_rx_bytes_per_s", seen.seconds) or 0.0) < _COPIES_BYTES_PER_S:
        # It computes, and copies little, for so much longer than the only GPU that it must do so while that idles.
        is_sure = is_sure or seen.main_cpu_pct - picture.busy_pct >= 100.0 - limits.busy_below_pct
    if not (is_even or is_hollow) or not (is_light or is_sure) or _is_full_at_times(samples):
        return 0.0
    return min(_gap(picture.busy_pct, limits), seen.hot_pct / limits.hot_share_pct)


def _is_full_at_times(samples: Sequence[float]) -> bool:
    """A quarter of the time at full use: the rest was a pause, or another phase of the work."""
    part = max(1, len(samples) // _PARTS)
    quarters = [samples[at : at + part] for at in range(0, len(samples) - part + 1, part)]
    return any(sum(quarter) / len(quarter) >= _FULL_PCT for quarter in quarters)


def _spread(samples: Sequence[float], seconds: float) -> float:
    """Standard deviation of whole seconds: the driver's windows are shorter on some cards than on others."""
    each = max(1, round(len(samples) / seconds))
    means = [sum(samples[at : at + each]) / each for at in range(0, len(samples) - each + 1, each)]
    return pstdev(means) if len(means) > 1 else 0.0


def _switch(trainer: Process) -> str | None:
    if (trainer.environment or {}).get("CUDA_LAUNCH_BLOCKING", "0") not in {"", "0"}:
        return "CUDA_LAUNCH_BLOCKING=1"
    command = (trainer.command or "").lower()
    return "anomaly detection" if any(name in command for name in _SWITCHES) else None


def _finding(window: Window, job: Job, group: Sequence[_Seen], limits: Limits) -> Finding:
    first = group[0]
    busy = sum(one.picture.busy_pct for one in group) / len(group)
    confidence: Confidence = "likely" if all(one.has_probe for one in group) else "possible"
    fix, fixes = _fixes(first.gpu, first.trainer.pid)
    cause, cause_text = None, f"main thread at {first.main_cpu_pct:.0f}% CPU, workers asleep"
    if first.switch is not None:
        confidence, cause, cause_text = "certain", "launch-blocking", f"{first.switch} is on"
        fix = f"turn {first.switch} off"
        fixes = (f"{first.switch} makes every launch wait for the GPU: turn it off outside debugging", *fixes)
    who = names([one.gpu for one in group], window.last.gpus)
    return Finding(
        rule="host-bound",
        severity="warning",
        confidence=confidence,
        subject=subject_of(job, [one.gpu for one in group]),
        summary=f"{who} wait{'s' * (len(group) == 1)} for the host {100 - busy:.0f}% of the time",
        strength=min(one.strength for one in group),
        cause=cause,
        cause_text=cause_text,
        fix_text=fix,
        evidence=_evidence(group, busy, limits),
        cost=Cost(lost_pct=float(round(100 - busy)), speedup_max=round(100 / max(5.0, busy), 1)),
        fixes=fixes,
        command=f"py-spy top --pid {first.trainer.pid}",
        onset_s=began_ago_s(window, first.gpu, "utilization_pct", lambda value: value < limits.busy_below_pct + 5.0),
    )


def _evidence(group: Sequence[_Seen], busy: float, limits: Limits) -> tuple[Evidence, ...]:
    first = group[0]
    hot = f"≥ {limits.hot_pct:g}% CPU in ≥ {limits.hot_share_pct:g}% of the time"
    shown = [
        _pct("busy", busy, f"< {limits.busy_below_pct:g}% of {first.seconds:g} s, even", "utilization_pct"),
        _pct("main thread hot", first.hot_pct, hot),
    ]
    if first.worker_cpu_pct is not None:
        shown.append(_pct("worker CPU", first.worker_cpu_pct, f"< {_CALM_WORKERS_PCT:.0f}%: not the loader"))
    if first.picture.sm_pct is not None:
        shown.append(_pct("SM active", first.picture.sm_pct, "≥ 80% is good", "sm_active_pct"))
    if first.picture.power_share is not None:
        judged_by = f"< {limits.alone_power_pct if first.is_alone else limits.power_pct:g}% of the range"
        shown.append(_pct("power above idle", 100 * first.picture.power_share, judged_by))
    return tuple(shown)


def _pct(name: str, value: float, judged_by: str, field: str | None = None) -> Evidence:
    return Evidence(name=name, value=float(round(value)), unit="%", judged_by=judged_by, field=field)


def _fixes(gpu: Gpu, pid: int) -> tuple[str, tuple[str, ...]]:
    room = headroom(gpu)
    larger = "a larger batch" if room is None else f"a larger batch: {room} of GPU memory are free"
    return "larger batch, or torch.compile(mode='reduce-overhead')", (
        larger,
        'torch.compile(model, mode="reduce-overhead"), or CUDA graphs',
        "torch.optim.AdamW(..., fused=True), or foreach=True",
        "no .item(), .cpu() or print(loss) in every step: log every 50 steps",
        "gc.disable(), and gc.collect() every 1000 steps",
        f"py-spy top --pid {pid} shows where the main thread is",
    )
