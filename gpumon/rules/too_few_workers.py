"""Knows the cause ``too-few-workers``: one or two workers, or the main thread itself, load the data."""

from __future__ import annotations

from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake, workers_wanted

_CALL = "DataLoader(num_workers={0}, persistent_workers=True, pin_memory=True)"
_MORE = (
    "Hugging Face: TrainingArguments(dataloader_num_workers={0})",
    "time 100 batches of the loader alone, without the model, to see what it can deliver",
)
_LOADS_BYTES_PER_S = 5e6
AT_ONCE = 8
"""Workers to begin with where there are none."""


def too_few_workers(intake: Intake, lost_pct: float) -> Cause | None:
    """Loading is done in the main process, or by one or two workers while cores are idle."""
    now = intake.per_rank()
    if not intake.workers and intake.has_own_loader:
        return None
    if not intake.workers:
        is_hot = (intake.main_cpu_pct or 0.0) >= 80.0
        is_on_disk = (intake.disk_wait_pct or 0.0) >= 20.0
        if not (is_hot or is_on_disk) or intake.read_by_main_bytes_per_s < _LOADS_BYTES_PER_S:
            return None
        wanted: int | None = min(AT_ONCE, max(1, intake.cores - 1))
        text = "no workers: the main thread loads the data"
    elif now <= 2 and (intake.worker_cpu_pct or 0.0) >= 95.0 and intake.idle_cores >= 2.0:
        wanted = workers_wanted(intake, lost_pct)
        text = f"only {now} worker{'s' * (now > 1)} at {intake.worker_cpu_pct:.0f}% CPU"
    else:
        return None
    if wanted is None:
        return None
    return Cause(
        id="too-few-workers",
        confidence="likely" if intake.workers else "possible",
        text=text,
        fix_text=f"num_workers {now} → {wanted}",
        fixes=alone_fixes(wanted),
        evidence=(
            Evidence(name="workers per GPU", value=float(now), judged_by=f"{intake.cores} usable cores"),
            Evidence(name="main thread CPU", value=_whole(intake.main_cpu_pct), unit="%"),
            Evidence(name="idle cores", value=float(round(intake.idle_cores))),
        ),
    )


def alone_fixes(wanted: int) -> tuple[str, ...]:
    """What to write where the loop loads by itself, or with too few."""
    return (_CALL.format(wanted), *(line.format(wanted) for line in _MORE))


def _whole(value: float | None) -> float | None:
    return None if value is None else float(round(value))
