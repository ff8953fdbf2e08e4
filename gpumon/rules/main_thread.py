"""Knows the cause ``main-thread``: the training loop loads its data itself, as the probe measured."""

from __future__ import annotations

from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake
from gpumon.rules.too_few_workers import AT_ONCE, alone_fixes


def main_thread(intake: Intake, lost_pct: float) -> Cause | None:
    """There are no workers, and the loop spends its steps on fetching batches."""
    if intake.workers or not intake.is_measured or intake.has_own_loader:
        return None
    wanted = min(AT_ONCE, max(1, intake.cores - 1))
    shown = None if intake.main_cpu_pct is None else float(round(intake.main_cpu_pct))
    return Cause(
        id="main-thread",
        confidence="likely",
        text=f"num_workers=0: the main thread loads {lost_pct:.0f}% of the time",
        fix_text=f"num_workers 0 → {wanted}",
        fixes=alone_fixes(wanted),
        evidence=(
            Evidence(name="workers per GPU", value=0.0, judged_by=f"{intake.cores} usable cores"),
            Evidence(name="main thread CPU", value=shown, unit="%"),
        ),
    )
