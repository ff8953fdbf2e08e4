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


class _Pause(NamedTuple):
    """One stretch of time without training."""

    length_s: float
    kind: str | None
    """checkpoint, evaluation; None where it does not show."""
    written_bytes_per_s: float


class _Pauses(NamedTuple):
    """The pauses of a job within the span."""

    share_pct: float
    each: tuple[_Pause, ...]
    """Oldest first; the last one may go on."""
    span_s: float

    def of(self, kind: str | None) -> list[_Pause]:
        """Those of one kind."""
        return [pause for pause in self.each if pause.kind == kind]

    def share_of(self, *kinds: str | None) -> float:
        """Percent of the span that pauses of these kinds took."""
        total = sum(pause.length_s for pause in self.each)
        return self.share_pct * sum(pause.length_s for pause in self.each if pause.kind in kinds) / total


_WRITES_BYTES_PER_S = 20e6
_ALIVE_PCT = 20.0
_NEARLY = 0.8
_KINDS = ("checkpoint", "evaluation")
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
        pauses = _pauses_of(window, gpus, trainers, span_s, limits)
        if pauses is not None and _strength(pauses, limits) >= _NEARLY:
            yield _finding(window, subject_of(job, gpus), gpus, pauses, limits)


def _pauses_of(
    window: Window, gpus: Sequence[Gpu], trainers: Sequence[Process], span_s: float, limits: Limits
) -> _Pauses | None:
    """What kept the GPUs; None where it is too little to matter, whatever it was for."""
    covered = window.covered(span_s)
    stretches = _stretches(window.series(gpus[0], PAUSED_FIELD, span_s))
    lengths = [sum(covered[first:last]) for first, last in stretches]
    share = window.mean(gpus[0], PAUSED_FIELD, span_s) if lengths else None
    if not share or max(share / min(limits.info_pct, limits.warning_pct), _outlier(lengths, limits)) < _NEARLY:
        return None
    host = window.last.host
    # Processes are remembered for a shorter time than the machine.
    sources: list[tuple[Process | Host, str]] = [(one, "write_bytes_per_s") for one in trainers[:1]]
    sources += [(host, "disk_write_bytes_per_s"), (host, "net_tx_bytes_per_s")]
    writes = [window.series(one, field, span_s) for one, field in sources]
    uses = [window.series(gpu, "utilization_pct", span_s) for gpu in gpus]
    each = []
    for length_s, (first, last) in zip(lengths, stretches, strict=True):
        written = max((mean_of(series[first:last]) or 0.0 for series in writes), default=0.0)
        used = mean_of(mean_of(series[first:last]) for series in uses) or 0.0
        is_known = written >= _WRITES_BYTES_PER_S or used >= _ALIVE_PCT
        kind = ("checkpoint" if written >= _WRITES_BYTES_PER_S else "evaluation") if is_known else None
        each.append(_Pause(length_s, kind, written))
    return _Pauses(share, tuple(each), span_s)


def _stretches(paused: Sequence[float | None]) -> list[tuple[int, int]]:
    """First sample of each pause and the one after its last; a gap neither begins nor ends one."""
    found: list[tuple[int, int]] = []
    for number in [number for number, value in enumerate(paused) if value]:
        goes_on = bool(found) and all(value is None for value in paused[found[-1][1] : number])
        found.append((found.pop()[0] if goes_on else number, number + 1))
    return found


def _strength(pauses: _Pauses, limits: Limits) -> float:
    # What cannot be told (a debugger, somebody's sleep) is worth a word only where it is much.
    known = pauses.share_of(*_KINDS) / limits.info_pct
    outlier = _outlier([pause.length_s for pause in pauses.each], limits)
    return max(known, pauses.share_pct / limits.warning_pct, outlier)


def _outlier(lengths_s: Sequence[float], limits: Limits) -> float:
    """How far the last pause exceeds the usual one, against the limit; 0 where too few are known."""
    *before, last = lengths_s
    if len(before) < 3 or last < limits.long_s:
        return 0.0
    return last / (limits.long_factor * sorted(before)[len(before) // 2])


def _kind(pauses: _Pauses, limits: Limits) -> str | None:
    """What most of the known pauses are for, where these are worth a word by themselves."""
    if pauses.share_of(*_KINDS) < 0.8 * limits.info_pct:
        return None
    return max(_KINDS, key=pauses.share_of)


def _finding(window: Window, subject: Subject, gpus: Sequence[Gpu], pauses: _Pauses, limits: Limits) -> Finding:
    share, kind = pauses.share_pct, _kind(pauses, limits)
    known = [pause for pause in pauses.each if pause.kind is not None]
    is_habit = len(known) >= _MANY or pauses.span_s >= 0.98 * limits.span_s
    is_bad = pauses.share_of(*_KINDS) >= limits.warning_pct and is_habit
    severity: Severity = "warning" if is_bad else "info"
    longest = max(pause.length_s for pause in pauses.each)
    span = units.duration(pauses.span_s)
    shown = [
        Evidence(
            name="in pauses",
            value=float(round(share)),
            unit="%",
            judged_by=f"≥ {limits.info_pct:g}% of {span}",
            field=PAUSED_FIELD,
        ),
        Evidence(name="pauses", value=float(len(pauses.each)), judged_by=f"longest {units.duration(longest)}"),
    ]
    if kind == "checkpoint":
        written = max(pause.written_bytes_per_s for pause in pauses.of(kind))
        shown.append(Evidence(name="written meanwhile", value=units.rate(written).strip(), field="write_bytes_per_s"))
    return Finding(
        rule="pause-cost",
        severity=severity,
        confidence="likely" if kind is not None else "possible",
        subject=subject,
        summary=f"{names(gpus, window.last.gpus)} paused {share:.0f}% of {span}",
        strength=_strength(pauses, limits),
        cause=kind,
        cause_text=_told(pauses, kind),
        fix_text={"checkpoint": "save in the background", "evaluation": "evaluate less"}.get(
            kind or "", "see what they are"
        ),
        evidence=tuple(shown),
        cost=Cost(lost_pct=float(round(share))),
        fixes=_FIXES[kind],
        onset_s=pauses.span_s,
    )


def _told(pauses: _Pauses, kind: str | None) -> str:
    """``4 × checkpoint, longest 40 s; 6 × something else``."""
    named = pauses.each if kind is None else pauses.of(kind)
    others = len(pauses.each) - len(named)
    longest = units.duration(max(pause.length_s for pause in named))
    text = f"{len(named)} × {kind or 'pauses'}, longest {longest}"
    return text + (f"; {others} × something else" if others else "")
