"""Knows ``pause-cost``: checkpoints, evaluation and logging keep the GPUs from training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.fields import PAUSED_FIELD
from gpumon.model import Cost, Evidence, Finding, Gpu, Host, Process, Severity, Subject
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import gpus_of, names, rolls_out, subject_of
from gpumon.signals import mean_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When pauses count as trouble."""

    span_s: float = 1800.0
    """The seconds looked at."""
    least_s: float = 900.0
    """A job is judged from this age of its training on: a single pause soon after the start says little."""
    info_pct: float = 10.0
    """Share of the time in pauses that is information,"""
    warning_pct: float = 25.0
    """and that is a warning, where it shows what the pauses are for."""
    long_factor: float = 3.0
    """A single pause this many times as long as usual is worth a word,"""
    long_s: float = 60.0
    """if it lasts at least this long."""


class _Pauses(NamedTuple):
    """The pauses of a job within the span."""

    share_pct: float
    lengths_s: tuple[float, ...]
    """Each pause, oldest first; the last one may go on."""
    kind: str | None
    """checkpoint, evaluation; None where it does not show."""
    written_bytes_per_s: float | None
    span_s: float


_WRITES_BYTES_PER_S = 20e6
_ALIVE_PCT = 20.0
_MANY = 3
"""So many pauses are a habit before half an hour has passed; one long checkpoint is none."""
_FIXES = {
    "checkpoint": (
        "save in the background: torch.distributed.checkpoint.async_save, Lightning's AsyncCheckpointIO",
        "save less often, to a local disk first",
        "one rank writes, or each its own shard: not every rank everything",
    ),
    "evaluation": (
        "evaluate on a subset, or every few epochs",
        "a larger batch and torch.inference_mode() in the evaluation",
        "evaluate in a job of its own, from checkpoints",
    ),
    None: (
        "py-spy dump of the trainer during a pause shows what it is for",
        "log every 50 steps at most; try WANDB_MODE=offline",
        "persistent_workers=True keeps the loader's workers between epochs",
    ),
}


@rule(
    "pause-cost",
    limits=Limits,
    every_s=30.0,
    clear_s=120.0,
    suppressed_by=("gpu-lost", "driver-stuck", "idle-reserved", "collective-hang", "ram-pressure"),
)
def pause_cost(window: Window, limits: Limits) -> Conclusions:
    """Pauses for checkpoints, evaluation or logging take a good part of the time.

    What it sees:
        Of the last 30 minutes (15 at least), 10 % were spent in pauses (information), or 25 % (warning): stretches
        in which the probe says so, rank 0 writes while the others wait, or nothing runs and training then goes on.
        Also a single pause that lasts three times as long as the usual one.

    Why it matters:
        Pauses are normal; their sum is what counts. Every GPU of the job stands still while one process saves.

    What to do:
        Save checkpoints in the background or less often, first to a local disk. Evaluate on a subset. Log less often.

    When it is wrong:
        Some jobs evaluate for long on purpose. Rollouts of reinforcement learning are work, not pauses. Where it does
        not show what the pauses are for (perhaps somebody debugs), it stays information.
    """
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        trained = job.trained_since_s
        if job.kind == "serving" or trained is None or job.phase not in {"train", "pause"}:
            continue
        span_s = min(limits.span_s, window.last.time_s - trained, window.elapsed_s)
        trainers = [processes[pid] for pid in job.trainers if pid in processes]
        gpus = gpus_of(window, job)
        if span_s < limits.least_s or not gpus or rolls_out(job, trainers[0] if trainers else None):
            continue
        pauses = _pauses_of(window, gpus, trainers, span_s)
        if pauses is not None and _strength(pauses, limits) >= 0.8:
            yield _finding(window, subject_of(job, gpus), gpus, pauses, limits)


def _pauses_of(window: Window, gpus: Sequence[Gpu], trainers: Sequence[Process], span_s: float) -> _Pauses | None:
    share = window.mean(gpus[0], PAUSED_FIELD, span_s)
    if not share:
        return None
    paused = window.series(gpus[0], PAUSED_FIELD, span_s)
    lengths: list[float] = []
    was_paused = False
    for value, cover in zip(paused, window.covered(span_s), strict=True):
        if value:
            lengths.append(cover) if not was_paused else lengths.append(lengths.pop() + cover)
        was_paused = bool(value) if value is not None else was_paused
    host = window.last.host
    # Processes are remembered for a shorter time than the machine.
    sources: list[tuple[Process | Host, str]] = [(one, "write_bytes_per_s") for one in trainers[:1]]
    sources += [(host, "disk_write_bytes_per_s"), (host, "net_tx_bytes_per_s")]
    written = max(
        (value for one, field in sources if (value := _while_paused(window, one, field, paused, span_s)) is not None),
        default=None,
    )
    uses = mean_of(_while_paused(window, gpu, "utilization_pct", paused, span_s) for gpu in gpus)
    kind = (
        "checkpoint"
        if (written or 0.0) >= _WRITES_BYTES_PER_S
        else "evaluation"
        if (uses or 0.0) >= _ALIVE_PCT
        else None
    )
    return _Pauses(share, tuple(lengths), kind, written, span_s)


def _while_paused(
    window: Window, subject: Gpu | Process | Host, field: str, paused: Sequence[float | None], span_s: float
) -> float | None:
    values = window.series(subject, field, span_s)
    return mean_of(value for value, is_paused in zip(values, paused, strict=True) if is_paused)


def _strength(pauses: _Pauses, limits: Limits) -> float:
    # What cannot be told (a debugger, somebody's sleep) is worth a word only where it is much.
    least = limits.info_pct if pauses.kind is not None else limits.warning_pct
    return max(pauses.share_pct / least, _outlier(pauses, limits))


def _outlier(pauses: _Pauses, limits: Limits) -> float:
    """How far the last pause exceeds the usual one, against the limit; 0 where too few are known."""
    *before, last = pauses.lengths_s
    if len(before) < 3 or last < limits.long_s:
        return 0.0
    return last / (limits.long_factor * sorted(before)[len(before) // 2])


def _finding(window: Window, subject: Subject, gpus: Sequence[Gpu], pauses: _Pauses, limits: Limits) -> Finding:
    share = pauses.share_pct
    is_habit = len(pauses.lengths_s) >= _MANY or pauses.span_s >= 0.98 * limits.span_s
    is_bad = share >= limits.warning_pct and pauses.kind is not None and is_habit
    severity: Severity = "warning" if is_bad else "info"
    longest = max(pauses.lengths_s)
    span = units.duration(pauses.span_s)
    what = pauses.kind or "pauses"
    shown = [
        Evidence(
            name="in pauses",
            value=float(round(share)),
            unit="%",
            judged_by=f"≥ {limits.info_pct:g}% of {span}",
            field=PAUSED_FIELD,
        ),
        Evidence(name="pauses", value=float(len(pauses.lengths_s)), judged_by=f"longest {units.duration(longest)}"),
    ]
    if pauses.kind == "checkpoint" and pauses.written_bytes_per_s is not None:
        written = units.rate(pauses.written_bytes_per_s).strip()
        shown.append(Evidence(name="written meanwhile", value=written, field="write_bytes_per_s"))
    return Finding(
        rule="pause-cost",
        severity=severity,
        confidence="likely" if pauses.kind is not None else "possible",
        subject=subject,
        summary=f"{names(gpus, window.last.gpus)} paused {share:.0f}% of {span}",
        strength=_strength(pauses, limits),
        cause=pauses.kind,
        cause_text=f"{len(pauses.lengths_s)} × {what}, longest {units.duration(longest)}",
        fix_text={"checkpoint": "save in the background", "evaluation": "evaluate less"}.get(what, "see what they are"),
        evidence=tuple(shown),
        cost=Cost(lost_pct=float(round(share))),
        fixes=_FIXES[pauses.kind],
        onset_s=pauses.span_s,
    )
