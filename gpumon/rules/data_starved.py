"""Knows ``data-starved``: the GPU is ready for the next batch and the batch is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from gpumon import units
from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Gpu, Job, Process, Severity, Subject
from gpumon.rules import starved_at_once
from gpumon.rules.cpu_contention import cpu_contention
from gpumon.rules.disk_bound import disk_bound
from gpumon.rules.intake import COLD_PCT, Cause, Intake, intake_of, waits_of
from gpumon.rules.main_thread import main_thread
from gpumon.rules.measured import rhythm_of
from gpumon.rules.network_storage_bound import network_storage_bound
from gpumon.rules.onset import began_ago_s, lasts
from gpumon.rules.pageable_copies import pageable_copies
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import (
    gpus_of,
    groups_of,
    has_paused,
    is_in_step,
    names,
    part_of,
    rolls_out,
    subject_of,
    trained_for,
)
from gpumon.rules.too_few_workers import too_few_workers
from gpumon.rules.waiting import SERIES, Waiting, Waits, waiting_of, waits_in_step
from gpumon.rules.workers_saturated import workers_saturated
from gpumon.signals import VIDEO_PCT, trainer_of, workers_of
from gpumon.window import Window

CAUSES = (
    cpu_contention,
    disk_bound,
    network_storage_bound,
    main_thread,
    too_few_workers,
    workers_saturated,
    pageable_copies,
)
"""In order of what explains more: a loader that is denied the CPU also looks busy."""


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When waiting for input counts as trouble."""

    window_s: float = 60.0
    """The seconds looked at; with slow steps as many as twenty of them take, at most ten minutes."""
    waits_pct: float = 15.0
    """Share of the time that the GPU waits for data, as far as it shows from outside."""
    probe_waits_pct: float = 10.0
    """Share of the steps' time spent waiting for data, as the probe measures it, in which the GPU idles."""
    probe_critical_pct: float = 20.0
    """From this measured share on it is critical; less must have been so in as much time before."""
    unknown_busy_below_pct: float = 85.0
    """Without any sign of the cause: the GPU is busy for less than this, and the main thread sleeps."""


_KINDS = ("training", "notebook", "unknown")
_OF_STORAGE = ("disk-bound", "network-storage-bound")
_READS_BYTES_PER_S = 20e6
_WITHOUT_WORST = 0.7
_IN_THE_DARK = "data, or host work between the steps: nothing is known of its processes"
_ASLEEP = "main thread and workers sleep"
_BY_HAND = "time 100 batches of the loader alone, and 100 steps on one cached batch: the slower is the limit"


@rule(
    "data-starved",
    limits=Limits,
    every_s=5.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "cpu-training", "collective-hang"),
    at_once=starved_at_once.starved,
)
def data_starved(window: Window, limits: Limits) -> Conclusions:
    """The GPU waits for input: the next batch is not ready when the last one is done.

    What it sees:
        Over 60 s of steady training the GPU idles at least 15 % of the time, by all of the driver's utilization
        windows, while the loader gives a reason: workers at full CPU, waits on disk or network, denied the CPU, or the
        main thread loading by itself. With the probe, over 20 steps or more: at least 10 % of their time (20 % is
        critical) is spent waiting for the next batch while the GPU idles, whatever the reason. Less than 20 % must
        have been so the minute before as well: a loader that is nearly quick enough has bad ones. A GPU that waits
        while the main thread sleeps and the loader shows no reason is information only; so is one of which a log shows
        no processes. Where somebody samples the stack of an older Python (gpumon attach --sample), the share of samples
        that wait counts like the probe's, as far as it is certain: by the lower end of its 95 % interval.

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
    processes = {process.pid: process for process in window.last.processes}
    for job in trained_for(window, limits.window_s, kinds=_KINDS):
        gpus = gpus_of(window, job)
        found = _all_waits(window, job, gpus, processes, limits)
        if not any(waits.share_pct >= 0.8 * _least(waits, limits) for waits in found):
            yield from _unreadable(window, job, gpus, processes, limits)
        explained: set[str] = set()
        for waits in found:
            finding = _finding(window, job, waits, limits)
            if finding is not None:
                explained.update(one.gpu.uuid for one in waits.group)
                yield finding
        rest = [gpu for gpu in gpus if gpu.uuid not in explained and _sleeps(window, job, gpu, processes, limits)]
        for group in groups_of(rest, gpus):
            yield _unknown(window, job, group, limits, is_dark=_is_dark(job, processes))


def _all_waits(
    window: Window, job: Job, gpus: Sequence[Gpu], processes: Mapping[int, Process], limits: Limits
) -> list[Waits]:
    """What the job loses, or each of its GPUs where they do not go in step."""
    trainers = (processes.get(pid) for pid in job.trainers)
    if not gpus or any(rolls_out(job, trainer) for trainer in trainers):
        return []
    seen = [waiting_of(window, job, gpu, processes, limits.window_s) for gpu in gpus]
    together = [seen] if is_in_step(job, processes) else [[one] for one in seen]
    return [
        _of_few(group) if _is_little(group, limits) else waits_in_step(window, group, limits.window_s)
        for group in together
    ]


def _is_little(seen: Sequence[Waiting], limits: Limits) -> bool:
    """Even one after the other their waits would not count: nearly always so, and seen at once."""
    is_outside = all(one.steps is None and one.sampled is None for one in seen)
    least = limits.waits_pct if is_outside else limits.probe_waits_pct
    return sum(one.share_pct for one in seen) < 0.7 * least


def _of_few(seen: Sequence[Waiting]) -> Waits:
    return Waits(max((one.share_pct for one in seen), default=0.0), (), ())


def _least(waits: Waits, limits: Limits) -> float:
    return limits.probe_waits_pct if waits.measured() or waits.sampled() else limits.waits_pct


def _unreadable(
    window: Window, job: Job, gpus: Sequence[Gpu], processes: Mapping[int, Process], limits: Limits
) -> Iterator[Abstention]:
    """Say so where a GPU idles and its processes show nothing (another user's, another PID namespace)."""
    known = any(processes[pid].main_thread_cpu_pct is not None for pid in job.trainers if pid in processes)
    uses = [window.mean(gpu, "utilization_pct", limits.window_s) for gpu in gpus]
    if not known and any(use is not None and use < 100 - limits.waits_pct for use in uses):
        subject = Subject(kind="job", job=job.id)
        yield Abstention(rule="data-starved", because="the job's processes cannot be read", subject=subject)


def _finding(window: Window, job: Job, waits: Waits, limits: Limits) -> Finding | None:
    share, measured, gpus = waits.share_pct, waits.measured(), [one.gpu for one in waits.group]
    least = _least(waits, limits)
    is_sampled = bool(waits.sampled()) and not measured
    is_known = bool(measured) or is_sampled
    sure = min(share, max(one.low_pct for one in waits.sampled())) if is_sampled else share
    strength = sure / least
    if strength < 0.8 or not gpus:
        return None
    trainers = {one.trainer.pid: one.trainer for one in waits.group if one.trainer is not None}
    weights = waits_of(window, gpus, limits.window_s)
    intake = intake_of(window, job, tuple(trainers.values()), weights, measured, is_sampled=is_sampled)
    cause = next((found for check in CAUSES if (found := check(intake, share)) is not None), None)
    if cause is None and not is_known:
        return None
    is_mild = is_known and least <= share < limits.probe_critical_pct
    if not _is_lasting(waits.quarters_pct, least) or (is_mild and _before_pct(window, job, waits, limits) < least):
        strength = min(strength, 0.9)
    began = [began_ago_s(window, gpu, SERIES, lambda value: value >= 10.0) or 0.0 for gpu in gpus]
    who = names(gpus, window.last.gpus)
    is_together = is_in_step(job, {process.pid: process for process in window.last.processes})
    return Finding(
        rule="data-starved",
        severity=_severity(job, intake, cause, sure, limits, is_measured=is_known),
        confidence="likely" if is_sampled else _confidence(cause, is_measured=is_known),
        subject=part_of(job, gpus) if is_together else subject_of(job, gpus),
        summary=f"{who} wait{'s' * (len(gpus) == 1)} for data {share:.0f}% of the time{', sampled' * is_sampled}",
        strength=strength,
        cause=cause.id if cause is not None else None,
        cause_text=cause.text if cause is not None else "unknown: the loader shows no reason",
        fix_text=cause.fix_text if cause is not None else "time the loader alone",
        evidence=(*_shares(window, waits, intake, limits), *(cause.evidence if cause is not None else ())),
        cost=Cost(lost_pct=float(round(share)), speedup_max=round(100 / max(5.0, 100 - share), 1)),
        fixes=cause.fixes if cause is not None else (_BY_HAND,),
        # Memory that runs out takes the page cache first, and swapping is reading.
        explained_by=("ram-pressure",) if cause is not None and cause.id in _OF_STORAGE else (),
        onset_s=median(began),
    )


def _is_lasting(quarters_pct: Sequence[float], least: float) -> bool:
    """At both ends, and nearly as much without the worst quarter: a pause that was not seen to be one is one stretch.

    What workers that wait together deliver comes in waves: between two of them a quarter may be quiet.
    """
    rest = sorted(quarters_pct)[:-1]
    ends = (*quarters_pct[:1], *quarters_pct[-1:])
    return all(quarter >= least / 3 for quarter in ends) and sum(rest) >= _WITHOUT_WORST * least * len(rest)


def _before_pct(window: Window, job: Job, waits: Waits, limits: Limits) -> float:
    """The share of as much time before: a loader that is nearly quick enough has bad minutes."""
    processes = {process.pid: process for process in window.last.processes}
    seconds = 2 * limits.window_s
    seen = [waiting_of(window, job, one.gpu, processes, seconds) for one in waits.group]
    return 2 * waits_in_step(window, seen, seconds).share_pct - waits.share_pct


def _severity(
    job: Job, intake: Intake, cause: Cause | None, share: float, limits: Limits, *, is_measured: bool
) -> Severity:
    reads = max(intake.host.disk_read_bytes_per_s or 0.0, intake.net_rx_bytes_per_s) >= _READS_BYTES_PER_S
    reads = reads or intake.from_storage_pct >= COLD_PCT
    if job.is_first_epoch and (cause.is_cold if cause is not None else reads):
        return "info"
    return "critical" if is_measured and share >= limits.probe_critical_pct else "warning"


def _confidence(cause: Cause | None, *, is_measured: bool) -> Confidence:
    """That it waits is measured; why it waits is as sure as the cause."""
    if cause is None:
        return "certain"
    return "likely" if is_measured and cause.confidence == "possible" else cause.confidence


def _shares(window: Window, waits: Waits, intake: Intake, limits: Limits) -> Iterator[Evidence]:
    value = float(round(waits.share_pct))
    measured = [(one.steps, one.rank) for one in waits.group if one.steps is not None and one.rank is not None]
    if not measured and waits.sampled():
        yield from _sampled(waits, value, limits)
        return
    if not measured:
        judged_by = f"≥ {limits.waits_pct:g}% of {limits.window_s:g} s"
        yield Evidence(name="waits for data", value=value, unit="%", judged_by=judged_by, field=SERIES)
        return
    first, rank = max(measured, key=lambda one: one[0].wait_pct)
    rhythm = rhythm_of(window, rank, first)
    judged_by = f"≥ {limits.probe_waits_pct:g}% of {first.steps} steps"
    yield Evidence(name="waits for data", value=value, unit="% of step time", judged_by=judged_by, field=SERIES)
    measured_by = float(round(first.wait_pct))
    if measured_by > value + 2:
        yield Evidence(name="loop waits in the loader", value=measured_by, unit="%", judged_by="partly behind the GPU")
    if rhythm.wait_p95_s is not None:
        judged_by = f"step {units.step(first.step_s)}"
        yield Evidence(name="longest waits (p95)", value=round(rhythm.wait_p95_s, 3), unit="s", judged_by=judged_by)
    if rhythm.every is not None:
        is_workers = rhythm.every == intake.per_rank()
        judged_by = f"= {rhythm.every} workers" if is_workers else f"{intake.per_rank()} workers per GPU"
        yield Evidence(name="rhythm", value=f"every {units.ordinal(rhythm.every)} step stalls", judged_by=judged_by)


def _sampled(waits: Waits, value: float, limits: Limits) -> Iterator[Evidence]:
    most = max(waits.sampled(), key=lambda one: one.low_pct)
    interval = f"95% between {most.low_pct:.0f} and {most.high_pct:.0f}%"
    yield Evidence(
        name="waits for data, sampled",
        value=value,
        unit="% of the time",
        judged_by=f"{interval}; ≥ {limits.probe_waits_pct:g}%",
        field=SERIES,
    )
    found = float(round(most.wait_pct))
    yield Evidence(name="main thread found waiting", value=found, unit=f"% of {most.stacks} stacks")


# --- waits without a sign of the cause -----------------------------------------------------------


def _sleeps(window: Window, job: Job, gpu: Gpu, processes: Mapping[int, Process], limits: Limits) -> bool:
    """Whether a GPU has gaps while main thread and workers sleep: something keeps them, and it does not show."""
    use = window.mean(gpu, "utilization_pct", limits.window_s)
    if use is None or use >= limits.unknown_busy_below_pct:
        return False
    trainer = trainer_of(job, gpu.uuid, processes)
    if job.kind != "serving" and (trainer is None or trainer.main_thread_cpu_pct is None) and _is_dark(job, processes):
        return _has_gaps(window, gpu, use, limits)
    if trainer is None or job.kind != "training" or window.rank_of(trainer.pid) is not None or rolls_out(job, trainer):
        return False
    if not any(one.role == "dataloader-worker" for one in workers_of(job, trainer.pid, processes)):
        return False
    asleep = window.share(trainer, "main_thread_cpu_pct", limits.window_s, below=50.0)
    return asleep is not None and asleep >= 50.0 and _has_gaps(window, gpu, use, limits)


def _is_dark(job: Job, processes: Mapping[int, Process]) -> bool:
    """Nothing is known of what its processes do, as in a log: only its GPUs show."""
    return not job.helpers and all(processes[pid].started_s is None for pid in job.trainers if pid in processes)


def _has_gaps(window: Window, gpu: Gpu, use: float, limits: Limits) -> bool:
    """Whether a GPU idles again and again while it works, all through the window."""
    if has_paused(window, gpu, limits.window_s):
        return False
    codecs = (window.mean(gpu, field, limits.window_s) for field in ("encoder_pct", "decoder_pct"))
    if any((share or 0.0) >= VIDEO_PCT for share in codecs):
        return False
    samples = window.samples(gpu, limits.window_s)
    dips, peaks = sum(value < 20.0 for value in samples), sum(value > 60.0 for value in samples)
    is_spiky = min(dips, peaks) >= 0.1 * len(samples)
    is_lasting = lasts(window, gpu, "budget.idle_pct", seconds=limits.window_s, at_least=5.0)
    is_lasting = is_lasting and lasts(window, gpu, "utilization_pct", seconds=limits.window_s, at_least=10.0)
    return (is_spiky or use >= 30.0) and is_lasting


def _unknown(window: Window, job: Job, group: Sequence[Gpu], limits: Limits, *, is_dark: bool) -> Finding:
    uses = [window.mean(gpu, "utilization_pct", limits.window_s) or 0.0 for gpu in group]
    share = 100.0 - sum(uses) / len(uses)
    who = names(group, window.last.gpus)
    pid = job.trainers[0] if job.trainers else "PID"
    dump, sample = f"py-spy dump --pid {pid}", f"gpumon attach --sample {pid} --for 60s"
    return Finding(
        rule="data-starved",
        severity="info",
        confidence="possible",
        subject=subject_of(job, group),
        summary=f"{who} wait{'s' * (len(group) == 1)} {share:.0f}% of the time; cause unknown",
        strength=share / (100.0 - limits.unknown_busy_below_pct),
        cause_text=_IN_THE_DARK if is_dark else _ASLEEP,
        fix_text="time the loader alone",
        evidence=(
            Evidence(
                name="idle",
                value=float(round(share)),
                unit="%",
                judged_by=f"> {100 - limits.unknown_busy_below_pct:g}% of {limits.window_s:g} s",
                field="budget.idle_pct",
            ),
            *([] if is_dark else [Evidence(name="main thread", value="asleep", judged_by="≥ 50% of the time")]),
        ),
        fixes=(
            _BY_HAND,
            *([] if is_dark else [f"{sample} tells how long the main thread waits in its loader"]),
            f"{dump} shows what the main thread waits for",
        ),
        command=None if not job.trainers else dump if is_dark else sample,
    )
