"""Knows the cause ``cpu-contention``: the loader wants to compute and is denied the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake

_DENIED_PCT = 20.0
_HOST_BUSY_PCT = 95.0
_THREADS = "OMP_NUM_THREADS=1 and cv2.setNumThreads(0) in the workers: too many threads share the cores"


def cpu_contention(intake: Intake, _lost_pct: float) -> Cause | None:
    """The cgroup's quota is used up, or loader threads are runnable and do not run."""
    delay, quota = intake.run_delay_pct or 0.0, intake.quota_pct or 0.0
    count = intake.host.cpu_count or 1
    is_crowded = intake.idle_cores <= count * (1 - _HOST_BUSY_PCT / 100) and intake.others_cores >= count / 2
    if quota >= _DENIED_PCT:
        cores = "" if intake.quota_cores is None else f" of {intake.quota_cores:g} cores"
        text = f"CPU quota{cores} used up in {quota:.0f}% of periods"
        fix, first = "raise the CPU limit", "raise the container's CPU limit (--cpus, resources.limits.cpu)"
    elif delay < _DENIED_PCT and not is_crowded:
        return None
    elif intake.others_cores >= count / 2:
        text = f"others use {intake.others_cores:.0f} of {count} cores"
        fix, first = (
            "free some cores",
            f"other processes use {intake.others_cores:.0f} of {count} cores: move or stop them",
        )
    elif intake.cores <= intake.per_rank():
        text = f"{intake.per_rank()} workers share {intake.cores} core{'s' * (intake.cores > 1)}"
        fix, first = "ask for more cores", "ask for more cores: --cpus-per-task, --cpuset-cpus, taskset"
    else:
        text = f"loader denied the CPU {delay:.0f}% of the time"
        fix, first = "fewer threads per worker", _THREADS
    return Cause(
        id="cpu-contention",
        confidence="certain" if quota >= _DENIED_PCT else "likely",
        text=text,
        fix_text=fix,
        fixes=tuple(dict.fromkeys((first, _THREADS, "decode and augment on the GPU (DALI, kornia, torchvision v2)"))),
        evidence=(
            *_evidence(intake, delay, quota),
            Evidence(name="usable cores per GPU", value=float(intake.cores), judged_by="affinity, quota, ranks"),
        ),
    )


def _evidence(intake: Intake, delay: float, quota: float) -> Iterator[Evidence]:
    """What it is told by; what is not met says nothing."""
    least = f"≥ {_DENIED_PCT:.0f}%"
    if delay >= _DENIED_PCT:
        yield Evidence(name="denied the CPU", value=float(round(delay)), unit="%", judged_by=least)
    if quota >= _DENIED_PCT:
        yield Evidence(name="quota used up", value=float(round(quota)), unit="%", judged_by=least)
    count = intake.host.cpu_count
    if count and intake.others_cores >= count / 2:
        yield Evidence(
            name="others use", value=float(round(intake.others_cores)), unit="cores", judged_by=f"of {count}"
        )
