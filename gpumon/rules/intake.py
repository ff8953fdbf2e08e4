"""Knows how the input side of a job did over a window: its workers, cores, disks and network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.model import Confidence, Evidence, Gpu, Host, Job, Process
from gpumon.rules.measured import Steps
from gpumon.signals import is_on_network, mean_of, workers_of
from gpumon.window import Known, Window

BUSY_PCT = 85.0
"""A worker at this share of a core has nothing left to give."""


COLD_PCT = 30.0
"""Loaders that read so much of it from storage have no warm page cache."""
_OWN_LOADERS = frozenset({"libdali", "ffcv"})


class Intake(NamedTuple):
    """Means over the window of one rank's loader, or of several ranks that fare alike."""

    ranks: int
    workers: int
    """Of all these ranks together."""
    busy_workers: int
    worker_cpu_pct: float | None
    disk_wait_pct: float | None
    run_delay_pct: float | None
    quota_pct: float | None
    """Share of the cgroup's periods in which its quota was used up."""
    quota_cores: float | None
    main_cpu_pct: float | None
    read_by_main_bytes_per_s: float
    from_storage_pct: float
    """What the loaders read from disks or a network, of all they read; more than 100 where they map files."""
    network_filesystem: str | None
    cores: int
    """Cores that one rank may use: affinity and quota, shared among the ranks of this machine."""
    idle_cores: float
    """Cores of the machine that nobody uses."""
    others_cores: float
    """Cores that processes outside these jobs use."""
    io_pressure_pct: float
    disk_busy_pct: float
    net_rx_bytes_per_s: float
    nfs_read_s: float | None
    """Mean time of a READ from an NFS server; None where nothing was read from one."""
    host: Host
    has_own_loader: bool
    """DALI, FFCV, tf.data or grain load in the process itself, without workers to be seen."""
    is_pinned: bool | None
    """A pin-memory thread runs; None where the threads' names cannot be read."""
    to_gpu_bytes_per_s: float | None
    is_measured: bool
    """A probe measured that the job waits for data, or its stacks showed it."""
    copy_pct: float | None
    """Share of a step spent copying to the device, by the probe."""

    def per_rank(self) -> int:
        """Workers of one rank."""
        return round(self.workers / self.ranks)


class Cause(NamedTuple):
    """Why the loader is late."""

    id: str
    confidence: Confidence
    text: str
    fix_text: str
    fixes: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    is_cold: bool = False
    """A warm start may cure it: in the first epoch it is information only."""


class Weights(NamedTuple):
    """How much a group of GPUs waited in each sample of a window."""

    seconds: float
    weights: list[float]

    def mean(self, window: Window, subject: Known, field: str) -> float | None:
        """Mean over the time in which they waited; of a young process over what is known of it."""
        return window.mean_by(subject, field, self.seconds, self.weights)


def waits_of(window: Window, gpus: Sequence[Gpu], seconds: float) -> Weights:
    """Read from the time budget when these GPUs waited for data."""
    lost = [window.series(gpu, "budget.data_pct", seconds) for gpu in gpus]
    return Weights(seconds, [sum(value or 0.0 for value in column) for column in zip(*lost, strict=True)])


def intake_of(
    window: Window,
    job: Job,
    trainers: tuple[Process, ...],
    waits: Weights,
    measured: Sequence[Steps] = (),
    *,
    is_sampled: bool = False,
) -> Intake:
    """Read the loaders of some ranks of a job while their GPUs waited; an evaluation in between counts for nothing."""
    host = window.last.host
    processes = {process.pid: process for process in window.last.processes}
    workers = [worker for one in trainers for worker in workers_of(job, one.pid, processes)]
    loaders = workers or list(trainers)
    cpus = [waits.mean(window, worker, "cpu_pct") for worker in workers]

    def loading(field: str, of: Sequence[Process]) -> float | None:
        return mean_of(waits.mean(window, one, field) for one in of)

    def of_host(field: str) -> float:
        return waits.mean(window, host, field) or 0.0

    count = host.cpu_count or 1
    used = of_host("cpu_pct") / 100.0 * count
    ours = sum((process.cpu_pct or 0.0) for process in window.last.processes) / 100.0
    return Intake(
        ranks=max(1, len(trainers)),
        workers=len(workers),
        busy_workers=sum((cpu or 0.0) >= BUSY_PCT for cpu in cpus),
        worker_cpu_pct=mean_of(cpus),
        disk_wait_pct=loading("disk_wait_pct", loaders),
        run_delay_pct=loading("run_delay_pct", loaders),
        quota_pct=loading("cpu_throttled_pct", trainers),
        quota_cores=min((one.cpu_quota_cores for one in trainers if one.cpu_quota_cores), default=None),
        main_cpu_pct=loading("main_thread_cpu_pct", trainers),
        read_by_main_bytes_per_s=loading("rchar_bytes_per_s", trainers) or 0.0,
        from_storage_pct=from_storage_pct(
            sum(waits.mean(window, one, "read_bytes_per_s") or 0.0 for one in loaders),
            sum(waits.mean(window, one, "rchar_bytes_per_s") or 0.0 for one in loaders),
        ),
        network_filesystem=next((one.data_filesystem for one in (*loaders, *trainers) if is_on_network(one)), None),
        cores=_cores(sum(len(other.trainers) for other in window.jobs), trainers, host),
        idle_cores=max(0.0, count - used),
        others_cores=max(0.0, used - ours),
        io_pressure_pct=of_host("io_pressure_pct"),
        disk_busy_pct=of_host("disk_busy_pct"),
        net_rx_bytes_per_s=of_host("net_rx_bytes_per_s"),
        nfs_read_s=waits.mean(window, host, "nfs_read_s"),
        host=host,
        has_own_loader=any(_has_own_loader(one) for one in trainers),
        is_pinned=is_pinned(trainers),
        to_gpu_bytes_per_s=mean_of(
            window.mean(uuid, "pcie_rx_bytes_per_s", waits.seconds) for one in trainers for uuid in one.gpu_memory_bytes
        ),
        is_measured=bool(measured) or is_sampled,
        copy_pct=mean_of(steps.copy_pct for steps in measured),
    )


def from_storage_pct(stored: float, read: float) -> float:
    """How much of what loaders read came from disks or a network; the rest came from the page cache."""
    return 100.0 * stored / max(1.0, read, stored / 10.0)


def is_pinned(trainers: Sequence[Process]) -> bool | None:
    """Whether a pin-memory thread hands the batches over; None where that cannot be read."""
    threads = [one.threads for one in trainers if one.threads is not None]
    return any("pt_data_pin" in names for names in threads) if len(threads) == len(trainers) and trainers else None


def _has_own_loader(trainer: Process) -> bool:
    loads = not _OWN_LOADERS.isdisjoint(trainer.libraries or ())
    return loads or any(name.startswith(("tf_data_", "grain")) for name in trainer.threads or ())


def _cores(ranks: int, trainers: tuple[Process, ...], host: Host) -> int:
    """Usable cores of one of the ranks on this machine."""
    count = host.cpu_count or 1
    allowed = min((one.cpus_allowed for one in trainers if one.cpus_allowed), default=count)
    # Ranks pinned to cores of their own fit into the machine side by side; a common mask is shared.
    own = allowed if ranks * allowed <= count else allowed // ranks
    quota = min((one.cpu_quota_cores for one in trainers if one.cpu_quota_cores), default=None)
    if quota is not None:
        own = min(own, int(quota / ranks))
    return max(1, own)


def workers_wanted(intake: Intake, lost_pct: float) -> int | None:
    """How many workers per rank would keep up, within the cores there are; None if no core is left."""
    most = max(1, intake.cores - 1)
    now = intake.per_rank()
    if most <= now:
        return None
    needed = -(-max(now, 1) * 100 // max(1, round(100 - lost_pct)))
    return min(most, max(needed, now + 1, 2))
