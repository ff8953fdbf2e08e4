"""Knows what the raw numbers of one instant say about a GPU and about a job's input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpumon.model import Gpu, Host, Job, Process

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "ceph", "gpfs", "fuse", "9p", "smb", "cifs", "smb3", "beegfs", "glusterfs", "afs"}
)
THERMAL = ("sw_thermal", "hw_thermal", "hw_power_brake")
"""Limiters that are a fault while they hold the clock; sw_power_cap is normal at full load."""
VIDEO_PCT = 5.0
"""From this share of the time on an encoder or decoder is at work."""
LEAST_STACKS = 20
"""Fewer samples of a stack prove nothing about a share of time."""
_ACTIVE_PCT = 5.0


def stale_after_s(interval_s: float) -> float:
    """Age from which values are no longer of now: three intervals, and never less than two seconds."""
    return max(3 * interval_s, 2.0)


def busy_pct(gpu: Gpu) -> float | None:
    """Share of the interval in which a kernel ran, from all the driver's windows where it keeps them."""
    if gpu.is_lost:
        return None
    if gpu.utilization_samples_pct:
        return sum(gpu.utilization_samples_pct) / len(gpu.utilization_samples_pct)
    if gpu.utilization_pct is not None:
        return gpu.utilization_pct
    return gpu.graphics_active_pct


def works_on_video(gpu: Gpu) -> bool:
    """Its encoder or decoder works, which utilization does not count."""
    return max(gpu.encoder_pct or 0.0, gpu.decoder_pct or 0.0) >= VIDEO_PCT


def label(gpu: Gpu, gpus: Iterable[Gpu]) -> str:
    """How people call it: ``5``, and ``0.1`` for instance 1 of GPU 0."""
    parent = next((other for other in gpus if other.uuid == gpu.mig_parent_uuid), None)
    return f"{gpu.index}" if parent is None else f"{parent.index}.{gpu.index}"


def leaves(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """What jobs run on: GPUs, and instances instead of the GPU that is split into them."""
    found = tuple(gpus)
    split = {gpu.mig_parent_uuid for gpu in found}
    return tuple(gpu for gpu in found if gpu.uuid not in split)


def limiter_pct(gpu: Gpu, limiter: str) -> float | None:
    """Share of the interval in which a limiter held the clock: counted, else its bit at the instant."""
    counted = (gpu.throttled_pct or {}).get(limiter)
    if counted is not None:
        return counted
    if gpu.clocks_event_reasons is None:
        return None
    return 100.0 if limiter in gpu.clocks_event_reasons else 0.0


def is_throttled(gpu: Gpu) -> bool:
    """Heat or the power brake held the clock during part of the interval."""
    return any((limiter_pct(gpu, limiter) or 0.0) >= _ACTIVE_PCT for limiter in THERMAL)


def temperature_limit_c(gpu: Gpu) -> float | None:
    """Temperature at which the driver begins to slow this GPU down."""
    if gpu.temperature_max_c is not None:
        return gpu.temperature_max_c
    if gpu.temperature_slowdown_c is not None:
        return gpu.temperature_slowdown_c
    # Some older GPUs and H100 report margins of 0 or less that mean nothing.
    if gpu.temperature_c is not None and gpu.temperature_margin_c is not None and gpu.temperature_margin_c > 0:
        return gpu.temperature_c + gpu.temperature_margin_c
    return None


def power_share(gpu: Gpu, idle_w: float | None) -> float | None:
    """How far its power lies between idle and limit, 0 to 1; an unknown idle power is 12 % of the limit."""
    if gpu.power_w is None or not gpu.power_limit_w:
        return None
    idle = 0.12 * gpu.power_limit_w if idle_w is None else idle_w
    return (gpu.power_w - idle) / (gpu.power_limit_w - idle) if gpu.power_limit_w > idle else None


def is_on_network(process: Process) -> bool:
    """Its data files lie on a network or user-space filesystem."""
    kind = (process.data_filesystem or "").lower()
    return kind in NETWORK_FILESYSTEMS or kind.startswith("fuse.")


def workers_of(job: Job, trainer: int, processes: Mapping[int, Process]) -> tuple[Process, ...]:
    """The loader's workers of one trainer; children that steadily compute where none is named so."""
    children = [processes[pid] for pid in job.helpers.get(trainer, ()) if pid in processes]
    named = tuple(child for child in children if child.role == "dataloader-worker")
    if named:
        return named
    return tuple(child for child in children if child.role in {None, "other"} and (child.cpu_pct or 0.0) > 10.0)


def trainer_of(job: Job, uuid: str, processes: Mapping[int, Process]) -> Process | None:
    """The process of a job that works on a GPU."""
    owners = [processes[pid] for pid in job.trainers if pid in processes]
    return next((owner for owner in owners if uuid in owner.gpu_memory_bytes), None)


def is_in_step(job: Job, processes: Mapping[int, Process]) -> bool:
    """Its GPUs wait for each other at every step: ranks of one world, or one process driving all of them."""
    if len(job.gpu_uuids) < 2 or job.kind == "serving":
        return False
    trainers = [processes[pid] for pid in job.trainers if pid in processes]
    return len(trainers) == 1 or (bool(trainers) and all((trainer.world_size or 1) > 1 for trainer in trainers))


def mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of what is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def waits_for_input(trainer: Process, workers: tuple[Process, ...], host: Host) -> bool:
    """Whether loader and main thread look, at this instant, like the reason for an idle GPU."""
    if (trainer.main_thread_cpu_pct or 0.0) >= 90.0 and workers:
        return False
    if not workers:
        is_loading = (trainer.rchar_bytes_per_s or 0.0) >= 5e6
        return is_loading and ((trainer.main_thread_cpu_pct or 0.0) >= 70.0 or (trainer.disk_wait_pct or 0.0) >= 20.0)
    cpu = mean_of(worker.cpu_pct for worker in workers) or 0.0
    if cpu >= 70.0:
        return True
    for wait in (
        mean_of(worker.disk_wait_pct for worker in workers),
        mean_of(worker.run_delay_pct for worker in workers),
        mean_of(worker.cpu_throttled_pct for worker in (*workers, trainer)),
    ):
        if (wait or 0.0) >= 20.0:
            return True
    if (host.io_pressure_pct or 0.0) >= 20.0 and (host.disk_busy_pct or 0.0) >= 70.0:
        return True
    is_remote = any(is_on_network(process) for process in (trainer, *workers))
    # Where each read takes long hardly anything comes in, and FUSE waits are no disk waits: all of them just sleep.
    arrives, sleeps = (host.net_rx_bytes_per_s or 0.0) >= 1e6, (trainer.main_thread_cpu_pct or 100.0) < 50.0
    return cpu < 60.0 and is_remote and (arrives or sleeps)
