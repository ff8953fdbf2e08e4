"""Knows whether a job gets on: how long since any sign of progress, and how long its pauses have been."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from statistics import median
from typing import Literal, NamedTuple

from gpumon.model import Gpu, Job, Process, Rank, Snapshot
from gpumon.signals import busy_pct, mean_of, power_share

Learned = Mapping[str, dict[str, float]]
"""Subject -> name -> what was learned."""

Look = Literal["works", "spins", "idles"]

LEAST_S = 60.0
LABELLED_S = 900.0
"""A checkpoint or an evaluation that says so may take this long, even if none was that long before."""
_FORGET_S = 60.0
_EACH_S = 5.0
_KEPT = 240
_KNOWN_S = 60.0
_STEPS_KEPT = 2000
_ALIVE_S = 2.5
"""So long must signs of progress last, together: a single odd reading ends no stretch without them."""
_QUIET_FOR_ONE = 12.0
"""So many seconds without them undo one: ranks that starve come and go, and a reading seldom meets their work."""
_SPINS_PCT = 90.0
_IDLE_PCT = 10.0
_OF_TRAINING = 0.6
_OF_LIMIT = 0.35
_BYTES_PER_S = 5e6
_TELLING_BYTES_PER_S = 50e6
_WRITES_BYTES_PER_S = 10e6
_COMPUTES_PCT = 5.0


def patience_s(longest_pause_s: float, step_p99_s: float, *, least_s: float = LEAST_S) -> float:
    """How long a job may stand still before that is more than one of its pauses."""
    return max(least_s, 3 * longest_pause_s, 10 * step_p99_s)


class _Usual:
    """Median of a signal while its job trains: one mean each 5 s, of the last 20 minutes."""

    def __init__(self) -> None:
        self.median: float | None = None
        self._means: deque[float] = deque(maxlen=_KEPT)
        self._sum = self._time_s = self._odd_s = 0.0

    def add(self, value: float, seconds: float) -> None:
        """Take in a sample. What looks like waiting counts a tenth, so that a hang is not soon the usual thing."""
        if self.median is not None and value < _OF_TRAINING * self.median:
            self._odd_s += seconds
            if self._odd_s < 10 * _EACH_S:
                return
            self._odd_s = 0.0
            self._keep(value)
            return
        self._sum += value * seconds
        self._time_s += seconds
        if self._time_s >= _EACH_S:
            self._keep(self._sum / self._time_s)
            self._sum = self._time_s = 0.0

    def _keep(self, value: float) -> None:
        self._means.append(value)
        if len(self._means) * _EACH_S >= _KNOWN_S:
            self.median = median(self._means)


class _Gauge:
    """What is usual for one GPU under the job that trains on it."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.power = _Usual()
        self.traffic = _Usual()

    def known(self) -> dict[str, float]:
        """What was seen for long enough."""
        medians = {"power_train_w": self.power.median, "pcie_train_bytes_per_s": self.traffic.median}
        return {name: value for name, value in medians.items() if value is not None}


class _Pace:
    """What is remembered of one job."""

    def __init__(self) -> None:
        self.seen_s = 0.0
        self.quiet_s: float | None = None
        self.alive_s = 0.0
        self.longest_s = 0.0
        self.ranks = 0
        self.spinning: tuple[str, ...] = ()
        """Uuids of the GPUs that are busy with waiting."""
        self.has_probe = False
        self.is_pausing = False
        """A probe says that it evaluates or writes a checkpoint."""
        self.phases: Mapping[int, str | None] = {}
        """What each rank's probe last said it does."""
        self.turned_s = inf
        """So long ago a rank began to do something else."""
        self.is_held = False
        """A debugger holds all of its ranks."""
        self.steps: deque[float] = deque(maxlen=_STEPS_KEPT)
        self.step_p99_s: float | None = None

    def is_still(self) -> bool:
        """Whether it has stood still for longer than its pauses explain."""
        if self.quiet_s is None or not (self.has_probe or self.spinning):
            return False
        least_s = LABELLED_S if self.is_pausing else LEAST_S
        return self.quiet_s >= patience_s(self.longest_s, self.step_p99_s or 0.0, least_s=least_s)

    def rest(self, seconds: float, *, is_quiet: bool) -> None:
        """Another sample without a probe."""
        if is_quiet:
            self.quiet_s = (self.quiet_s or 0.0) + seconds
            self.alive_s = max(0.0, self.alive_s - seconds / _QUIET_FOR_ONE)
            return
        self.alive_s += seconds
        if not self.quiet_s or self.alive_s >= _ALIVE_S:
            self.end_stretch()
            self.alive_s = 0.0
        else:
            self.quiet_s += seconds

    def turn(self, ranks: Sequence[Rank], passed_s: float) -> None:
        """Ranks that go from one phase to another live, though the first heartbeat of the new one is yet to come."""
        self.turned_s += passed_s
        phases = {rank.pid: rank.phase for rank in ranks}
        if any(self.phases.get(pid, phase) != phase for pid, phase in phases.items()):
            self.turned_s = 0.0
        self.phases = phases

    def hold(self, *, is_held: bool) -> None:
        """Ranks that a debugger lets go live as well."""
        if self.is_held and not is_held:
            self.turned_s = 0.0
            self.end_stretch()
        self.is_held = is_held

    def beat(self, age_s: float) -> None:
        """The youngest sign of life of its ranks."""
        if self.quiet_s is not None and age_s < self.quiet_s:
            self.end_stretch()
        self.quiet_s = age_s

    def end_stretch(self) -> None:
        """It went on: what came before was a pause."""
        self.longest_s = max(self.longest_s, self.quiet_s or 0.0)
        self.quiet_s = 0.0

    def count_steps(self, ranks: Sequence[Rank]) -> None:
        """Keep the step times that probes report."""
        for rank in ranks:
            self.steps.extend(rank.step_samples_s or (() if rank.step_s is None else (rank.step_s,)))
        if self.steps:
            # As good as a percentile for a factor of ten, and cheap: the slowest but one of a hundred.
            recent = sorted(list(self.steps)[-200:])
            self.step_p99_s = recent[-max(1, len(recent) // 100)]


class _Scene(NamedTuple):
    """One snapshot with its records by identity."""

    processes: Mapping[int, Process]
    ranks: Mapping[int, Rank]
    looks: Mapping[str, Look | None]
    """What each GPU of a job that has begun to train does."""
    passed_s: float


class ProgressFold:
    """Snapshots in, baselines out.

    Of a GPU: ``power_train_w``, ``pcie_train_bytes_per_s``. Of a job: ``quiet_s``, ``longest_pause_s``,
    ``step_p99_s``, ``ranks_seen``.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, _Gauge] = {}
        self._paces: dict[str, _Pace] = {}
        self._now_s = 0.0

    def append(self, snapshot: Snapshot, jobs: tuple[Job, ...], learned: Learned) -> None:
        """Take in an instant; ``learned`` holds the idle power of GPUs."""
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        owners: dict[str, str | None] = {}
        for job in jobs:
            for uuid in job.gpu_uuids:
                owners[uuid] = None if uuid in owners else job.id  # on a GPU that is shared nothing is usual
        training = dict.fromkeys(uuid for job in jobs if job.trained_since_s is not None for uuid in job.gpu_uuids)
        scene = _Scene(
            {process.pid: process for process in snapshot.processes},
            {rank.pid: rank for rank in snapshot.ranks},
            {uuid: self._looks(gpus[uuid], learned) for uuid in training if uuid in gpus},
            snapshot.interval_s or 0.0,
        )
        self._now_s += scene.passed_s
        for job in jobs:
            pace = self._paces.setdefault(job.id, _Pace())
            pace.seen_s = self._now_s
            pace.ranks = max(pace.ranks, len(job.trainers))
            self._look(pace, job, scene)
            if job.phase == "train":
                self._gauge(
                    job, [gpus[uuid] for uuid in job.gpu_uuids if owners[uuid] and uuid in gpus], scene.passed_s
                )
        self._paces = {key: pace for key, pace in self._paces.items() if self._now_s - pace.seen_s < _FORGET_S}
        self._gauges = {
            uuid: gauge for uuid, gauge in self._gauges.items() if owners.get(uuid, gauge.job_id) == gauge.job_id
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """What was learned, by GPU uuid and by job id."""
        found: dict[str, dict[str, float]] = {}
        for uuid, gauge in self._gauges.items():
            found[uuid] = gauge.known()
        for job_id, pace in self._paces.items():
            known = {
                "quiet_s": pace.quiet_s,
                "longest_pause_s": pace.longest_s,
                "step_p99_s": pace.step_p99_s,
                "ranks_seen": float(pace.ranks),
            }
            found[job_id] = {name: value for name, value in known.items() if value is not None}
        return found

    def still(self) -> frozenset[str]:
        """Ids of jobs that stand still for longer than any pause explains."""
        return frozenset(job_id for job_id, pace in self._paces.items() if pace.is_still())

    def waiting(self) -> frozenset[str]:
        """Uuids of GPUs that are busy, and with nothing but waiting for their peers."""
        return frozenset(
            uuid for pace in self._paces.values() if (pace.quiet_s or 0.0) >= _ALIVE_S for uuid in pace.spinning
        )

    def _look(self, pace: _Pace, job: Job, scene: _Scene) -> None:
        if job.trained_since_s is None or job.kind == "serving":
            pace.quiet_s = None
            return
        looked = {uuid: scene.looks[uuid] for uuid in job.gpu_uuids if uuid in scene.looks}
        pace.spinning = tuple(uuid for uuid, look in looked.items() if look == "spins")
        probes = [scene.ranks[pid] for pid in job.trainers if pid in scene.ranks]
        pace.count_steps(probes)
        owners = [scene.processes[pid] for pid in job.trainers if pid in scene.processes]
        pace.turn(probes, scene.passed_s)
        pace.hold(is_held=is_debugged(owners))
        pace.is_pausing = any(rank.phase in {"eval", "checkpoint"} for rank in probes)
        ages = [rank.heartbeat_age_s for rank in probes if rank.heartbeat_age_s is not None]
        pace.has_probe = bool(ages)
        if ages:
            pace.beat(min(*ages, pace.turned_s))
            return
        writes = sum(owner.write_bytes_per_s or 0.0 for owner in owners)
        if writes >= _WRITES_BYTES_PER_S or not looked:
            pace.rest(scene.passed_s, is_quiet=False)
        elif None in looked.values():
            pace.quiet_s = None
        else:
            pace.rest(scene.passed_s, is_quiet="works" not in looked.values())

    def _looks(self, gpu: Gpu, learned: Learned) -> Look | None:
        gauge = self._gauges.get(gpu.uuid)
        return looks(gpu, learned.get(gpu.uuid, {}) | (gauge.known() if gauge else {}))

    def _gauge(self, job: Job, gpus: Sequence[Gpu], passed_s: float) -> None:
        for gpu in gpus:
            gauge = self._gauges.get(gpu.uuid)
            if gauge is None:
                gauge = self._gauges[gpu.uuid] = _Gauge(job.id)
            if gpu.power_w is not None and not gpu.is_lost:
                gauge.power.add(gpu.power_w, passed_s)
            traffic = traffic_bytes_per_s(gpu)
            if traffic is not None:
                gauge.traffic.add(traffic, passed_s)


def looks(gpu: Gpu, learned: Mapping[str, float]) -> Look | None:
    """What a GPU of a training job does: ``works``, ``spins`` (busy with waiting), ``idles``; None if unknown.

    A collective waits in a kernel, so the GPU is busy all the time, at little power and without traffic.
    """
    if gpu.is_lost:
        return "idles"
    busy = busy_pct(gpu)
    if busy is None:
        return None
    if busy < _IDLE_PCT:
        return "idles"
    if busy < _SPINS_PCT:
        return "works"
    usual = learned.get("power_train_w")
    if gpu.power_w is None:
        return None
    if usual is None:
        return "works"
    share = power_share(gpu, learned.get("power_idle_w"))
    if gpu.power_w > _OF_TRAINING * usual or (share is not None and share >= _OF_LIMIT):
        return "works"
    if any((value or 0.0) >= _COMPUTES_PCT for value in (gpu.tensor_active_pct, gpu.dram_active_pct)):
        return "works"
    traffic, usual_traffic = traffic_bytes_per_s(gpu), learned.get("pcie_train_bytes_per_s")
    # Where the job hardly ever copies, its silence says nothing.
    if traffic is not None and usual_traffic is not None and usual_traffic >= _TELLING_BYTES_PER_S:
        return "works" if traffic > max(0.02 * usual_traffic, _BYTES_PER_S) else "spins"
    return "spins"


def is_debugged(owners: Sequence[Process]) -> bool:
    """Whether a debugger holds all of a job's processes."""
    return bool(owners) and all(owner.state == "t" for owner in owners)


def traffic_bytes_per_s(gpu: Gpu) -> float | None:
    """All that goes over its links."""
    rates = (
        gpu.pcie_rx_bytes_per_s,
        gpu.pcie_tx_bytes_per_s,
        gpu.nvlink_rx_bytes_per_s,
        gpu.nvlink_tx_bytes_per_s,
    )
    known = mean_of(rates)
    return None if known is None else sum(rate or 0.0 for rate in rates)
