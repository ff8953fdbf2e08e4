"""Knows the cause ``workers-saturated``: every dataloader worker computes all the time."""

from __future__ import annotations

from gpumon.model import Evidence
from gpumon.rules.intake import BUSY_PCT, Cause, Intake, workers_wanted

_MORE = (
    "decode and augment on the GPU (DALI, kornia, torchvision v2), or decode and resize once, offline",
    "OMP_NUM_THREADS=1 and cv2.setNumThreads(0) in the workers",
    "time 100 batches of the loader alone, without the model, to see what it can deliver",
)


def workers_saturated(intake: Intake, lost_pct: float) -> Cause | None:
    """Preprocessing on the CPU is the limit: workers at full CPU, not waiting for disks."""
    cpu = intake.worker_cpu_pct
    if not intake.workers or cpu is None or cpu < BUSY_PCT or (intake.disk_wait_pct or 0.0) >= 10.0:
        return None
    wanted = workers_wanted(intake, lost_pct)
    now = intake.per_rank()
    if wanted is None:
        short = "decode on the GPU: no spare cores"
        fixes: tuple[str, ...] = (f"no spare cores: {now} workers per GPU, {intake.cores} usable cores", *_MORE)
    else:
        short = f"num_workers {now} → {wanted}"
        fixes = (f"num_workers={wanted}: {intake.cores} usable cores per GPU, {now} workers now", *_MORE)
    return Cause(
        id="workers-saturated",
        confidence="likely",
        text=f"{intake.busy_workers}/{intake.workers} workers at {cpu:.0f}% CPU",
        fix_text=short,
        fixes=fixes,
        evidence=(
            Evidence(name="worker CPU", value=float(round(cpu)), unit="%", judged_by=f"≥ {BUSY_PCT:.0f}% of a core"),
            Evidence(name="busy workers", value=f"{intake.busy_workers}/{intake.workers}"),
            Evidence(name="usable cores per GPU", value=float(intake.cores), judged_by="affinity, quota, ranks"),
        ),
    )
