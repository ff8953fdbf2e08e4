"""Knows ``shm-full``: the shared memory through which loader workers hand over batches runs out."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Job, Process, Severity, Subject
from gpumon.rules.memory_by_message import shm_told
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import workers_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How full it may be."""

    used_pct: float = 80.0
    """Used share of /dev/shm that is a warning."""
    critical_used_pct: float = 95.0
    """And critical."""
    tiny_mib: float = 64.0
    """A /dev/shm of this size (Docker's default) is a warning with the first worker, before it fails."""


_PYTORCH = frozenset({None, "pytorch", "torch"})


@rule("shm-full", limits=Limits, every_s=5.0, clear_s=20.0, suppressed_by=("gpu-lost",))
def shm_full(window: Window, limits: Limits) -> Conclusions:
    """The shared memory of a job's loader workers is full, or too small to begin with.

    What it sees:
        /dev/shm as the job's own processes see it (in a container its own): used to 80 %, critical from 95 % on; or
        no larger than 64 MiB, Docker's default, with at least one loader worker. In a program's output: a worker that
        died of a bus error, or a batch for which there was no room or no file.

    Why it matters:
        PyTorch's workers pass batches through it. When it is full, jobs mostly hang without a word, or a worker dies
        of a bus error; NCCL fails to start.

    What to do:
        Start the container with --shm-size=16g or --ipc=host (Kubernetes: an emptyDir with medium Memory), or use
        fewer workers and smaller batches.

    When it is wrong:
        Files that dead jobs left behind fill it as well: look before you delete. Loaders that do not use shared
        memory work in 64 MiB.
    """
    told = shm_told(window)
    if told is not None:
        yield told
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        if job.kind == "serving":
            continue
        owners = [processes[pid] for pid in job.trainers if pid in processes]
        workers = sum(len(workers_of(job, owner.pid, processes)) for owner in owners)
        seen = [owner for owner in owners if owner.shm_total_bytes]
        if not seen:
            if workers and any(owner.main_thread_cpu_pct is not None for owner in owners):
                because = "the job's own /dev/shm cannot be read"
                yield Abstention(rule="shm-full", because=because, subject=Subject(kind="job", job=job.id))
            continue
        fullest = max(seen, key=lambda owner: (owner.shm_used_bytes or 0) / (owner.shm_total_bytes or 1))
        found = _judged(window, job, fullest, workers, limits)
        if found is not None:
            yield found


def _judged(window: Window, job: Job, owner: Process, workers: int, limits: Limits) -> Finding | None:
    total, used = owner.shm_total_bytes or 0, owner.shm_used_bytes
    used_pct = 0.0 if used is None else 100.0 * used / total
    is_tiny = total <= limits.tiny_mib * 2**20 and workers > 0 and owner.framework in _PYTORCH
    if used_pct < 0.8 * limits.used_pct and not is_tiny:
        return None
    name, size = job.name[:20], _size(total)
    is_full = used_pct >= limits.used_pct
    severity: Severity = "critical" if used_pct >= limits.critical_used_pct else "warning"
    confidence: Confidence = "certain" if is_full else "likely"
    strength = max(used_pct / limits.used_pct, 1.0 if is_tiny else 0.0)
    summary = f"{name}: /dev/shm is {used_pct:.0f}% full"
    if is_tiny and not is_full:
        summary = f"{name}: /dev/shm of {size} is too small"
    fuller_than = limits.used_pct / 100.0 * total
    fewer = f"num_workers {workers} → {max(1, workers // 2)}" if workers > 1 else "smaller batches"
    place = "container" if owner.container else "job"
    return Finding(
        rule="shm-full",
        severity=severity,
        confidence=confidence,
        subject=Subject(kind="job", job=job.id),
        summary=summary,
        strength=strength,
        cause="shm-too-small" if is_tiny and not is_full else "shm-used-up",
        cause_text=f"{size} for {workers} workers; full, they hang or die of a bus error",
        fix_text=f"--shm-size=16g or --ipc=host; {fewer}",
        evidence=(
            Evidence(
                name="shared memory used",
                value=float(round(used_pct)),
                unit="%",
                judged_by=f"≥ {limits.used_pct:g}% of {size}",
                field="shm_used_bytes",
            ),
            Evidence(name="loader workers", value=float(workers)),
        ),
        fixes=(
            f"start the {place} with --shm-size=16g or --ipc=host (Kubernetes: emptyDir, medium Memory)",
            f"{fewer}: each worker holds its prefetched batches there",
            "ls -l /dev/shm: files of dead jobs may be removed, with care",
            'torch.multiprocessing.set_sharing_strategy("file_system"), and watch the number of open files',
        ),
        command="docker run --shm-size=16g" if owner.container else "ls -lS /dev/shm",
        onset_s=began_ago_s(window, owner, "shm_used_bytes", lambda value: value >= fuller_than) if is_full else None,
    )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.0f} MiB" if size_bytes < 2**30 else f"{units.gib(size_bytes):.0f} GiB"
