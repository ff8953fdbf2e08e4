"""Knows ``data-starved``: the GPU is ready for the next batch and the batch is not there."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gpumon.model import Abstention, Cost, Evidence, Finding, Gpu, Job, Subject
from gpumon.rules.cpu_contention import cpu_contention
from gpumon.rules.disk_bound import disk_bound
from gpumon.rules.intake import intake_of, waits_of
from gpumon.rules.network_storage_bound import network_storage_bound
from gpumon.rules.onset import began_ago_s, lasts
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.too_few_workers import too_few_workers
from gpumon.rules.workers_saturated import workers_saturated
from gpumon.signals import label, trainer_of
from gpumon.window import Window

CAUSES = (cpu_contention, disk_bound, network_storage_bound, too_few_workers, workers_saturated)
"""In order of what explains more: a loader that is denied the CPU also looks busy."""


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When waiting for input counts as trouble."""

    window_s: float = 60.0
    """The seconds looked at."""
    waits_pct: float = 15.0
    """Share of the time that the GPU waits for data."""


_SERIES = "budget.data_pct"


@rule("data-starved", limits=Limits, every_s=5.0, clear_s=60.0, suppressed_by=("gpu-lost", "driver-stuck"))
def data_starved(window: Window, limits: Limits) -> Conclusions:
    """The GPU waits for input: the next batch is not ready when the last one is done.

    What it sees:
        Over 60 s of steady training the GPU idles at least 15 % of the time, by all of the driver's utilization
        windows, while the loader gives a reason: workers at full CPU, waits on disk or network, denied the CPU, or the
        main thread loading by itself. Without such a reason it stays silent.

    Why it matters:
        Waiting for data is the most common cause of an expensive GPU doing little, and mostly a small change cures
        it. At 44 % waiting, the run could be up to 1.8 times as fast.

    What to do:
        Follow the cause: more workers within the cores there are, decoding on the GPU, data on a local disk, a larger
        CPU quota. When in doubt time 100 batches of the loader alone and 100 steps on one cached batch; the slower of
        the two is the limit.

    When it is wrong:
        Reinforcement learning computes its environments in worker processes: the CPU is the job there. In the first
        ten minutes of a process, slow storage may only be a cold cache, so it is information until then. Starts,
        pauses for evaluation or checkpoints, and servers are never judged.
    """
    for job in window.jobs:
        trained = job.trained_since_s
        if job.kind == "serving" or job.phase != "train" or trained is None:
            continue
        if window.last.time_s - trained >= limits.window_s - window.interval_s:
            yield from _judge(window, job, limits)


def _judge(window: Window, job: Job, limits: Limits) -> Conclusions:
    gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids]
    lost = {gpu.uuid: window.mean(gpu, _SERIES, limits.window_s) for gpu in gpus}
    waiting = [gpu for gpu in gpus if (lost[gpu.uuid] or 0.0) >= 0.8 * limits.waits_pct]
    if not waiting:
        yield from _unreadable(window, job, gpus, limits)
        return
    groups = [waiting] if len(waiting) * 2 > len(gpus) else [[gpu] for gpu in waiting]
    for group in groups:
        share = sum(lost[gpu.uuid] or 0.0 for gpu in group) / len(group)
        finding = _finding(window, job, group, share, limits)
        if finding is not None:
            yield finding


def _unreadable(window: Window, job: Job, gpus: Sequence[Gpu], limits: Limits) -> Conclusions:
    """Say so where a GPU idles and its processes show nothing (another user's, another PID namespace)."""
    processes = {process.pid: process for process in window.last.processes}
    known = any(processes[pid].main_thread_cpu_pct is not None for pid in job.trainers if pid in processes)
    uses = [window.mean(gpu, "utilization_pct", limits.window_s) for gpu in gpus]
    if not known and any(use is not None and use < 100 - limits.waits_pct for use in uses):
        subject = Subject(kind="job", job=job.id)
        yield Abstention(rule="data-starved", because="the job's processes cannot be read", subject=subject)


def _finding(window: Window, job: Job, group: Sequence[Gpu], share: float, limits: Limits) -> Finding | None:
    processes = {process.pid: process for process in window.last.processes}
    owners = [trainer_of(job, gpu.uuid, processes) for gpu in group]
    trainers = {owner.pid: owner for owner in owners if owner is not None}
    intake = intake_of(window, job, tuple(trainers.values()), waits_of(window, group, limits.window_s))
    cause = next((found for check in CAUSES if (found := check(intake, share)) is not None), None)
    if cause is None:
        return None
    strength = share / limits.waits_pct
    if not lasts(window, group[0], _SERIES, seconds=limits.window_s, at_least=limits.waits_pct / 3):
        strength = min(strength, 0.9)
    is_cold = cause.is_cold and job.is_first_epoch
    began = [began_ago_s(window, gpu, _SERIES, lambda value: value >= 10.0) or 0.0 for gpu in group]
    return Finding(
        rule="data-starved",
        severity="info" if is_cold else "warning",
        confidence=cause.confidence,
        subject=_subject(job, group),
        summary=f"{_who(group, window.last.gpus)} for data {share:.0f}% of the time",
        strength=strength,
        cause=cause.id,
        cause_text=cause.text,
        fix_text=cause.fix_text,
        evidence=(
            Evidence(
                name="waits for data",
                value=float(round(share)),
                unit="%",
                judged_by=f"≥ {limits.waits_pct:g}% of {limits.window_s:g} s",
                field=_SERIES,
            ),
            *cause.evidence,
        ),
        cost=Cost(lost_pct=float(round(share)), speedup_max=round(100 / max(5.0, 100 - share), 1)),
        fixes=cause.fixes,
        onset_s=median(began),
    )


def _subject(job: Job, group: Sequence[Gpu]) -> Subject:
    if len(group) == 1:
        return Subject(kind="gpu", gpu=group[0].index, uuid=group[0].uuid, job=job.id)
    return Subject(kind="job", job=job.id)


def _who(group: Sequence[Gpu], gpus: Sequence[Gpu]) -> str:
    if len(group) == 1:
        return f"GPU {label(group[0], gpus)} waits"
    numbers = [gpu.index for gpu in group]
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"GPUs {numbers[0]}–{numbers[-1]} wait"
    return f"{len(numbers)} GPUs wait"
