"""Knows ``straggler``: one rank that all others of its job wait for at every step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Gpu, Job, Severity, Subject
from gpumon.rules.intake import COLD_PCT, from_storage_pct
from gpumon.rules.onset import lasts
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import THERMAL, is_in_step, label, trainer_of, workers_of
from gpumon.window import Window

_DUTY_PCT = 10.0
_DIP_PCT = 20.0
_FULL_PCT = 95.0
_NEARLY = 0.8
_PARTS = 4
_NOW_S = 45.0
"""What no longer holds here is over, whatever the window says."""
_ALSO_WAITS = 1 / 3
"""Ranks that wait for data for this part of the slowest one's wait have the same trouble."""
_COMPONENTS = (("data_wait_s", "waits for data"), ("forward_s", "computes longer"), ("h2d_s", "copies longer"))


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When one rank holds up the others."""

    window_s: float = 180.0
    """The seconds looked at."""
    lost_pct: float = 10.0
    """With the probe: how much of a step the others wait for it."""
    critical_lost_pct: float = 20.0
    """From here on it is critical."""
    clock_share: float = 0.92
    """Without the probe: its clock against the median of the job's GPUs, while heat or power holds it back."""
    dips_pct: float = 10.0
    """Without the probe: share of the driver's windows in which it is idle while all others are busy."""


class _Slow(NamedTuple):
    """Who is slow, how surely, by how much and in what."""

    gpu: Gpu
    confidence: Confidence
    lost_pct: float
    strength: float
    cause: str | None
    text: str
    evidence: tuple[Evidence, ...]


FIXES = {
    "data": (
        "see its loader: gpumon explain data-starved",
        "give it cores near its GPU: numactl --cpunodebind=N --membind=N",
        "balance what ranks load: drop_last=True, a sampler that balances lengths",
    ),
    "clock": ("cool it or move the job off it: gpumon explain sw-thermal", "nvidia-smi -q -d PERFORMANCE,CLOCK"),
    None: (
        "compare the ranks with a profiler: torch.profiler on two of them",
        "balance what ranks compute: a sampler that balances lengths, the same number of batches",
        "call the garbage collector on all ranks at the same step: gc.disable(), gc.collect() every 1000 steps",
        "move the job off this GPU for one run; nccl-tests on its links",
    ),
}


@rule(
    "straggler",
    limits=Limits,
    every_s=5.0,
    hold_s=30.0,
    clear_s=20.0,
    suppressed_by=(
        "gpu-lost",
        "driver-stuck",
        "collective-hang",
        "hw-thermal",
        "power-brake",
        "sw-thermal",
        "memory-hot",
        "gpu-contention",
        "pcie-degraded",
        "data-starved",
    ),
)
def straggler(window: Window, limits: Limits) -> Conclusions:
    """One GPU of a job is slower than the others, and all of them wait for it at every step.

    What it sees:
        With the probe: what is left of a step after waiting for data and the forward pass is time in which ranks wait
        for each other. Where the slowest rank has at least 10 % of a step less of it than the others, over 3 minutes,
        they wait for it; the part of the step that is longer there is named if it explains 80 % of the gap. Without
        it: one GPU's clock at 92 % of the others' or less while heat or power holds it back, or one GPU that is idle
        in at least 10 % of the driver's windows while all others are fully busy.

    Why it matters:
        Synchronous training runs at the pace of its slowest rank. The waiting ones look busy, so use alone names the
        wrong one.

    What to do:
        Follow the cause: the loader of this rank, its heat, its share of the data. Where nothing shows, compare two
        ranks with a profiler.

    When it is wrong:
        Where the other ranks wait for data as well, the loader of all is slow, and data-starved says so. Stages of a
        pipeline, parameter servers and rank 0 with extra work differ by design; long and short sequences differ from
        step to step. Less than 10 % is the normal spread between GPUs of one model. In the first ten minutes of a
        process a rank that waits for storage is information only: the cache may be cold.
    """
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        trained = job.trained_since_s
        if job.phase != "train" or trained is None or not is_in_step(job, processes):
            continue
        if window.last.time_s - trained < limits.window_s - window.interval_s or not window.covers(limits.window_s):
            continue
        gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids and not gpu.is_lost]
        if len(gpus) < 2 or len({gpu.name for gpu in gpus}) > 1:
            continue
        slow = _by_steps(window, job, gpus, limits) or _by_clock(window, gpus, limits)
        if slow is None and window.last.time_s - (job.phase_since_s or trained) >= limits.window_s - window.interval_s:
            # A pause is no dip: rank 0 writes and the others spin.
            slow = _by_dips(window, gpus, limits)
        if slow is not None:
            yield _finding(window, job, slow, limits)
        elif all(gpu.utilization_pct is None and gpu.sm_clock_mhz is None for gpu in gpus):
            subject = Subject(kind="job", job=job.id)
            because = "neither clocks and use of its GPUs nor a probe are reported"
            yield Abstention(rule="straggler", because=because, subject=subject)


def _by_steps(window: Window, job: Job, gpus: Sequence[Gpu], limits: Limits) -> _Slow | None:
    """By what the probes measure; the slow one is who waits least for the others, over the window and now."""
    latest = _parts(window, job, gpus, _NOW_S)
    if latest is not None and 100.0 * _spread(latest) < _NEARLY * limits.lost_pct:
        return None  # most of the time nobody waits for anybody
    parts = _parts(window, job, gpus, limits.window_s)
    if parts is None:
        return None
    rests = {uuid: own["rest"] for uuid, own in parts.items()}
    culprit = min(gpus, key=lambda gpu: rests[gpu.uuid])
    others = [gpu.uuid for gpu in gpus if gpu is not culprit]
    lost = 100.0 * (median(rests[uuid] for uuid in others) - rests[culprit.uuid])
    if latest is not None:
        now = median(latest[uuid]["rest"] for uuid in others) - latest[culprit.uuid]["rest"]
        lost = min(lost, 100.0 * now)
    gaps = {
        field: parts[culprit.uuid][field] - median(parts[uuid][field] for uuid in others)
        for field, _ in _COMPONENTS[:2]
    }
    total = sum(max(0.0, gap) for gap in gaps.values())
    field, gap = max(gaps.items(), key=lambda item: item[1])
    is_clear = total > 0 and gap >= 0.8 * total
    if field == "data_wait_s":
        waits = {gpu.uuid: _felt_pct(window, gpu, parts[gpu.uuid]["wait_pct"], limits) for gpu in gpus}
        lost = min(lost, waits[culprit.uuid])
        if median(waits[uuid] for uuid in others) >= _ALSO_WAITS * waits[culprit.uuid]:
            return None
    if lost < _NEARLY * limits.lost_pct or not _stands_out(rests, culprit.uuid):
        return None
    text = f"{dict(_COMPONENTS)[field]}: {parts[culprit.uuid][field]:.3g} s a step" if is_clear else "no single part"
    cause = ("data" if field == "data_wait_s" else None) if is_clear else None
    evidence = Evidence(
        name="others wait for it",
        value=round(lost, 1),
        unit="% of a step",
        judged_by=f"≥ {limits.lost_pct:g}% over {limits.window_s:g} s",
        field="step_s",
    )
    return _Slow(culprit, "likely", lost, lost / limits.lost_pct, cause, text, (evidence,))


def _parts(window: Window, job: Job, gpus: Sequence[Gpu], seconds: float) -> dict[str, dict[str, float]] | None:
    """The parts of every rank's step, and its rest as a share; None where a rank does not tell."""
    processes = {process.pid: process for process in window.last.processes}
    parts: dict[str, dict[str, float]] = {}
    for gpu in gpus:
        trainer = trainer_of(job, gpu.uuid, processes)
        rank = window.rank_of(trainer.pid) if trainer is not None else None
        step = window.mean(rank, "step_s", seconds) if rank is not None else None
        if rank is None or not step:
            return None
        own = {field: window.mean(rank, field, seconds) or 0.0 for field, _ in _COMPONENTS}
        # Copies run beside the step; what a rank must do before the others can go on is its batch and its forward.
        own["rest"] = (step - own["data_wait_s"] - own["forward_s"]) / step
        own["wait_pct"] = 100.0 * own["data_wait_s"] / step
        parts[gpu.uuid] = own
    return parts


def _spread(parts: dict[str, dict[str, float]]) -> float:
    rests = [own["rest"] for own in parts.values()]
    return max(rests) - min(rests)


def _felt_pct(window: Window, gpu: Gpu, wait_pct: float, limits: Limits) -> float:
    """A loop that runs ahead waits for data in the host's time; only what its GPU feels holds the others up."""
    use = window.mean(gpu, "utilization_pct", limits.window_s)
    return wait_pct if use is None else min(wait_pct, 100.0 - use)


def _stands_out(rests: dict[str, float], culprit: str) -> bool:
    """One rank against the others; where half of them are slow the work is uneven, not one of them ill."""
    ordered = sorted(rests.values())
    if len(ordered) < 3:
        return True
    return ordered[1] - ordered[0] >= 0.5 * (median(ordered[1:]) - ordered[0]) and rests[culprit] == ordered[0]


def _by_clock(window: Window, gpus: Sequence[Gpu], limits: Limits) -> _Slow | None:
    clocks = {gpu.uuid: window.mean(gpu, "sm_clock_mhz", limits.window_s) for gpu in gpus}
    known = [clock for clock in clocks.values() if clock is not None]
    if len(known) < len(gpus):
        return None
    usual = median(known)
    culprit = min(gpus, key=lambda gpu: clocks[gpu.uuid] or 0.0)
    now = window.mean(culprit, "sm_clock_mhz", _NOW_S)
    share = max(clocks[culprit.uuid] or 0.0, now or 0.0) / usual if usual else 1.0
    strength = (1.0 - share) / (1.0 - limits.clock_share)
    if strength < _NEARLY:
        return None
    limiters = [f"throttled_pct.{name}" for name in THERMAL]
    duties = {one: window.mean(culprit, one, limits.window_s) or 0.0 for one in limiters}
    held = [one for one in limiters if duties[one] >= _DUTY_PCT]
    held = [one for one in held if lasts(window, culprit, one, seconds=limits.window_s, at_least=_DUTY_PCT)]
    if not held:
        return None
    duty = max(duties[one] for one in held)
    evidence = Evidence(
        name="SM clock",
        value=round(clocks[culprit.uuid] or 0.0),
        unit="MHz",
        was=round(usual),
        judged_by="the job's other GPUs",
        field="sm_clock_mhz",
    )
    text = f"clock {100 * share:.0f}% of the others', held back {duty:.0f}% of the time"
    return _Slow(culprit, "likely", 100.0 * (1.0 - share), strength, "clock", text, (evidence,))


def _by_dips(window: Window, gpus: Sequence[Gpu], limits: Limits) -> _Slow | None:
    """One alone goes idle while the others stay busy with waiting for it."""
    uses = {gpu.uuid: window.mean(gpu, "utilization_pct", limits.window_s) for gpu in gpus}
    culprit = min(gpus, key=lambda gpu: uses[gpu.uuid] or 0.0)
    own, others = uses[culprit.uuid], [uses[gpu.uuid] for gpu in gpus if gpu is not culprit]
    if own is None or own >= _FULL_PCT or any(use is None or use < _FULL_PCT for use in others):
        return None
    is_dip = [sample < _DIP_PCT for sample in window.samples(culprit, limits.window_s)]
    dips = 100.0 * sum(is_dip) / len(is_dip) if is_dip else 0.0
    strength = dips / limits.dips_pct
    part = len(is_dip) // _PARTS
    parts = [is_dip[at : at + part] for at in range(0, _PARTS * part, part)] if part else []
    # All along: one pause within the window, that was not seen to be one, is no slow rank.
    if strength < _NEARLY or any(100.0 * sum(one) < limits.dips_pct / 3 * part for one in parts):
        return None
    evidence = Evidence(
        name="idle while the others are busy",
        value=round(dips, 1),
        unit="% of windows",
        judged_by=f"≥ {limits.dips_pct:g}%; the others at {min(use for use in others if use is not None):.0f}%",
        field="utilization_pct",
    )
    text = f"idle {100 - own:.0f}% of the time while the others are busy"
    return _Slow(culprit, "possible", 100.0 - own, strength, None, text, (evidence,))


def _reads_from_storage(window: Window, job: Job, seconds: float) -> bool:
    """The page cache is cold: whichever rank waits longest for the disk, a warm start may cure it."""
    processes = {process.pid: process for process in window.last.processes}
    loaders = [one for pid in job.trainers for one in workers_of(job, pid, processes)]
    loaders += [processes[pid] for pid in job.trainers if pid in processes]
    stored, read = (
        sum(window.mean(one, field, seconds) or 0.0 for one in loaders)
        for field in ("read_bytes_per_s", "rchar_bytes_per_s")
    )
    return from_storage_pct(stored, read) >= COLD_PCT


def _finding(window: Window, job: Job, slow: _Slow, limits: Limits) -> Finding:
    is_measured = slow.confidence == "likely" and slow.cause != "clock"
    severity: Severity = "critical" if is_measured and slow.lost_pct >= limits.critical_lost_pct else "warning"
    if slow.cause != "clock" and job.is_first_epoch and _reads_from_storage(window, job, limits.window_s):
        severity = "info"
    name = label(slow.gpu, window.last.gpus)
    return Finding(
        rule="straggler",
        severity=severity,
        confidence=slow.confidence,
        subject=Subject(kind="gpu", gpu=slow.gpu.index, uuid=slow.gpu.uuid, job=job.id),
        summary=f"GPU {name} is slow, its job waits for it",
        strength=slow.strength,
        cause=slow.cause,
        cause_text=slow.text,
        fix_text={"data": "its loader: more workers, nearer cores", "clock": f"cool GPU {name}"}.get(
            slow.cause or "", "balance the ranks; profile two"
        ),
        evidence=slow.evidence,
        cost=Cost(lost_pct=float(round(min(95.0, slow.lost_pct)))),
        fixes=FIXES[slow.cause],
    )
