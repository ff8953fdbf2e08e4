"""Knows which processes train together, what kind of work it is, and what phase it is in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from gpumon.likeness import Likeness, Looks
from gpumon.model import Gpu, Job, JobKind, Phase, Process, Rank, Snapshot
from gpumon.signals import busy_pct, trainer_of, waits_for_input, workers_of

_SERVERS = re.compile(r"\b(vllm|tritonserver|text-generation|ollama|sglang|llama-server|tgi)\b")
_TRAINS = re.compile(r"\b(torch|jax|tensorflow|tf|lightning|deepspeed|accelerate|mxnet|paddle)\b")
_START_S = 120.0
_START_CAP_S = 1200.0
_STEADY_S = 60.0
_FIRST_EPOCH_S = 600.0
_BUSY_PCT = 5.0
_QUIET_PCT = 10.0
_GAP_S = 3.0
_MISSED_S = 30.0
_STALL_S = 120.0
_CHECKPOINT_BYTES_PER_S = 100e6
_HELD_SHARE = 0.03


class _Life:
    """What is remembered of a job between two snapshots."""

    def __init__(self, time_s: float, *, is_young: bool) -> None:
        self.seen_s = time_s
        self.phase: Phase = "start"
        self.phase_since_s = time_s
        self.last_s = time_s
        self.trained_since_s: float | None = None
        self.busy_for_s = 0.0
        self.needs_s = _STEADY_S if is_young else 0.0
        self.gap_s = 0.0
        self.longest_gap_s = 0.0


class _Crew(NamedTuple):
    """Trainers that belong together, and all that one table of processes says about their job."""

    job: Job
    """Without its phase."""
    has_ended: bool = False
    written_bytes_per_s: float = 0.0


class _Scene(NamedTuple):
    """One snapshot with its records by identity."""

    snapshot: Snapshot
    processes: Mapping[int, Process]
    busy_pct: Mapping[str, float | None]
    ranks: Mapping[int, Rank]
    still: Collection[str]
    """Ids of jobs in which nothing has moved for too long."""


class JobFold:
    """Snapshots in, jobs out: grouped, with kind and phase. Ages count from the processes' own start."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._table: tuple[tuple[Process, ...], tuple[str, ...]] | None = None
        """The processes and the GPUs' order of which the next two were made; None where time alone may change them."""
        self._processes: dict[int, Process] = {}
        self._crews: list[_Crew] = []
        self._tree: tuple[tuple[int, int | None, bool], ...] = ()
        self._parents: dict[int, tuple[int, ...]] = {}
        self._helpers: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
        self._is_first = True
        self._likeness = Likeness()

    def append(self, snapshot: Snapshot, still: Collection[str] = ()) -> tuple[Job, ...]:
        """The jobs of this instant, by their first GPU; those in ``still`` stall."""
        uuids = tuple([gpu.uuid for gpu in snapshot.gpus])
        if self._table is None or self._table[0] is not snapshot.processes or self._table[1] != uuids:
            self._group(snapshot, uuids)
        busy = {gpu.uuid: busy_pct(gpu) for gpu in snapshot.gpus}
        scene = _Scene(snapshot, self._processes, busy, {rank.pid: rank for rank in snapshot.ranks}, still)
        jobs: list[Job] = []
        lives: dict[str, _Life] = {}
        for crew in self._crews:
            job, lives[crew.job.id] = self._job(crew, scene)
            jobs.append(job)
        if not jobs and snapshot.host.processes_hidden is not None:
            for key, unseen in self._unseen(scene).items():
                job, lives[key] = self._job_on(key, unseen, scene)
                jobs.append(job)
        self._likeness.forget(snapshot.time_s)
        self._is_first = False
        # A process list may fail once; a job that was only missed goes on where it was.
        recent = snapshot.time_s - _MISSED_S
        self._lives = {key: life for key, life in self._lives.items() if life.last_s >= recent} | lives
        return tuple(jobs)

    def _group(self, snapshot: Snapshot, uuids: tuple[str, ...]) -> None:
        """Take in a new table of processes; most of them stand for seconds."""
        self._processes = processes = {process.pid: process for process in snapshot.processes}
        order = {uuid: number for number, uuid in enumerate(uuids)}
        indices = {gpu.uuid: gpu.index for gpu in snapshot.gpus}
        parents = self._parents_of(processes)
        crews: list[_Crew] = []
        for key, trainers in self._grouped(processes, parents, snapshot.time_s).items():
            trainers.sort(key=lambda one: _place(one, order))
            crews.append(self._crew(key, trainers, parents, indices))
        self._crews = sorted(crews, key=lambda crew: min(order.get(uuid, 999) for uuid in crew.job.gpu_uuids))
        # Processes of which only the looks are known belong together by when they are seen.
        is_lasting = all(process.started_s is not None for process in snapshot.processes)
        self._table = (snapshot.processes, uuids) if is_lasting else None

    def _parents_of(self, processes: Mapping[int, Process]) -> dict[int, tuple[int, ...]]:
        """Ancestors of every process; a tree that has not changed is not walked again."""
        tree = tuple((one.pid, one.ppid, bool(one.gpu_memory_bytes)) for one in processes.values())
        if tree != self._tree:
            self._tree, self._parents, self._helpers = tree, _parents(processes), {}
        return self._parents

    def _crew(
        self,
        key: str,
        trainers: list[Process],
        parents: Mapping[int, tuple[int, ...]],
        indices: Mapping[str, int],
    ) -> _Crew:
        pids = tuple(one.pid for one in trainers)
        helpers = self._helpers.get(pids)
        if helpers is None:
            helpers = self._helpers[pids] = _helpers(trainers, parents, self._processes)
        uuids = {uuid: None for one in trainers for uuid in one.gpu_memory_bytes}
        job = Job(
            id=key,
            name=_name(trainers[0]),
            kind=_kind(trainers),
            user=trainers[0].user,
            gpu_uuids=tuple(sorted(uuids, key=lambda uuid: indices.get(uuid, 999))),
            trainers=pids,
            helpers=helpers,
            started_s=min((one.started_s for one in trainers if one.started_s is not None), default=None),
        )
        return _Crew(
            job,
            has_ended=all(one.state in {"Z", "X"} for one in trainers),
            written_bytes_per_s=sum(one.write_bytes_per_s or 0.0 for one in trainers),
        )

    def _job(self, crew: _Crew, scene: _Scene) -> tuple[Job, _Life]:
        job, time_s = crew.job, scene.snapshot.time_s
        life = self._lives.get(job.id)
        if life is None:
            is_young = job.started_s is not None and time_s - job.started_s < _START_S
            life = _Life(time_s, is_young=is_young)
        life.last_s = time_s
        age_s = time_s - (life.seen_s if job.started_s is None else job.started_s)
        if age_s < _FIRST_EPOCH_S:
            crew = crew._replace(job=msgspec.structs.replace(job, is_first_epoch=True))
        return _in_phase(crew, life, scene, age_s), life

    def _unseen(self, scene: _Scene) -> dict[str, list[Gpu]]:
        """GPUs that are in use, by the work they seem to belong to."""
        groups: dict[str, list[Gpu]] = {}
        time_s = scene.snapshot.time_s
        for gpu in filter(_is_in_use, scene.snapshot.gpus):
            looks = Looks(gpu.uuid, gpu.uuid, gpu.name, gpu.memory_used_bytes)
            groups.setdefault(self._likeness.key(looks, time_s), []).append(gpu)
        return groups

    def _job_on(self, key: str, gpus: Sequence[Gpu], scene: _Scene) -> tuple[Job, _Life]:
        """The work on GPUs of which no process is seen: what it is and when it began is unknown."""
        time_s = scene.snapshot.time_s
        life = self._lives.get(key)
        if life is None:
            life = _Life(time_s, is_young=not self._is_first)
            if self._is_first and any((busy_pct(gpu) or 0.0) >= _BUSY_PCT for gpu in gpus):
                life.seen_s -= _START_S  # it was at work before the log began
        life.last_s = time_s
        place = f"GPU {gpus[0].index}" if len(gpus) == 1 else f"{len(gpus)} GPUs"
        job = Job(id=key, name=f"job on {place}", gpu_uuids=tuple(gpu.uuid for gpu in gpus))
        return _in_phase(_Crew(job), life, scene, time_s - life.seen_s), life

    def _grouped(
        self, processes: Mapping[int, Process], parents: Mapping[int, tuple[int, ...]], time_s: float
    ) -> dict[str, list[Process]]:
        groups: dict[str, list[Process]] = {}
        for process in processes.values():
            if not process.gpu_memory_bytes:
                continue
            above = [processes[pid] for pid in parents[process.pid] if processes[pid].gpu_memory_bytes]
            groups.setdefault(self._key_of(above[-1] if above else process, time_s), []).append(process)
        return groups

    def _key_of(self, eldest: Process, time_s: float) -> str:
        if eldest.job_id:
            return eldest.job_id
        if (eldest.world_size or 1) > 1 and eldest.ppid is not None:
            # Ranks of one launcher. Two single runs from one shell share a parent too, but have no world.
            return f"{eldest.ppid}:ranks"
        if eldest.ppid is None and eldest.started_s is None and len(eldest.gpu_memory_bytes) == 1:
            ((uuid, held),) = eldest.gpu_memory_bytes.items()
            return self._likeness.key(Looks(eldest.pid, uuid, eldest.name, held), time_s)
        return f"{eldest.pid}:{eldest.started_s or 0:.0f}"


def _is_in_use(gpu: Gpu) -> bool:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    is_held = used is not None and total is not None and used >= _HELD_SHARE * total
    return not gpu.is_lost and (is_held or (busy_pct(gpu) or 0.0) >= _BUSY_PCT)


def _in_phase(crew: _Crew, life: _Life, scene: _Scene, age_s: float) -> Job:
    """The job with its phase, which its life remembers."""
    phase, time_s = _phase(life, crew, scene, age_s), scene.snapshot.time_s
    if phase != life.phase:
        life.phase, life.phase_since_s = phase, time_s
    if phase == "train" and life.trained_since_s is None:
        life.trained_since_s = time_s
    return msgspec.structs.replace(
        crew.job, phase=phase, phase_since_s=life.phase_since_s, trained_since_s=life.trained_since_s
    )


def _parents(processes: Mapping[int, Process]) -> dict[int, tuple[int, ...]]:
    """Process -> its ancestors among those we see, nearest first."""
    found: dict[int, tuple[int, ...]] = {}
    for pid in processes:
        line: list[int] = []
        above = processes[pid].ppid
        while above is not None and above in processes and above not in line and above != pid:
            line.append(above)
            above = processes[above].ppid
        found[pid] = tuple(line)
    return found


def _place(process: Process, order: Mapping[str, int]) -> tuple[int, int, int]:
    first_gpu = min((order.get(uuid, 999) for uuid in process.gpu_memory_bytes), default=999)
    return (process.rank if process.rank is not None else 9999, first_gpu, process.pid)


def _helpers(
    trainers: Sequence[Process], parents: Mapping[int, tuple[int, ...]], processes: Mapping[int, Process]
) -> dict[int, tuple[int, ...]]:
    owners = {one.pid for one in trainers}
    found: dict[int, list[int]] = {}
    for pid, above in parents.items():
        if not processes[pid].gpu_memory_bytes:
            owner = next((ancestor for ancestor in above if ancestor in owners), None)
            if owner is not None:
                found.setdefault(owner, []).append(pid)
    return {owner: tuple(sorted(pids)) for owner, pids in sorted(found.items())}


def _name(trainer: Process) -> str:
    named = (trainer.environment or {}).get("SLURM_JOB_NAME")
    if named:
        return named
    words = (trainer.command or "").split()
    for word in words:
        if word.endswith(".py"):
            return word.rsplit("/", 1)[-1]
    for word, following in pairwise(words):
        if word == "-m":
            return following
    return trainer.name or f"pid {trainer.pid}"


def _kind(trainers: Sequence[Process]) -> JobKind:
    for one in trainers:
        text = f"{one.framework or ''} {one.command or one.name or ''}".lower()
        if one.role == "server" or _SERVERS.search(text):
            return "serving"
        if one.role == "notebook" or "ipykernel" in text:
            return "notebook"
        if one.role == "trainer" or _TRAINS.search((one.framework or "").lower()):
            return "training"
    return "unknown"


def _phase(life: _Life, crew: _Crew, scene: _Scene, age_s: float) -> Phase:
    job = crew.job
    ranks = _ranks_of(job, scene)
    if crew.has_ended or (ranks and all(rank.phase == "end" for rank in ranks)):
        return "end"
    known = [busy for busy in map(scene.busy_pct.get, job.gpu_uuids) if busy is not None]
    mean = sum(known) / len(known) if known else None
    if life.trained_since_s is None:
        return _beginning(life, job, scene, age_s, mean)
    if job.id in scene.still:
        return "stall"
    told = _told(ranks)
    if told is not None:
        life.gap_s = 0.0
        return told
    if mean is None:
        return "train"
    if crew.written_bytes_per_s >= _CHECKPOINT_BYTES_PER_S and min(known) < 50.0:
        return "pause"
    if mean < _QUIET_PCT and not _any_waits(job, scene):
        life.gap_s += scene.snapshot.interval_s or 0.0
        if life.gap_s >= _GAP_S:
            return "stall" if life.gap_s > max(_STALL_S, 3 * life.longest_gap_s) else "pause"
        return life.phase
    life.longest_gap_s = max(life.longest_gap_s, life.gap_s)
    life.gap_s = 0.0
    return "train"


def _ranks_of(job: Job, scene: _Scene) -> list[Rank]:
    return [scene.ranks[pid] for pid in job.trainers if pid in scene.ranks] if scene.ranks else []


def _beginning(life: _Life, job: Job, scene: _Scene, age_s: float, mean: float | None) -> Phase:
    """Whether it trains steadily by now: by its steps where probes count them, else by its GPUs and its age."""
    ranks = _ranks_of(job, scene)
    is_counted = any(rank.heartbeat_age_s is not None or rank.phase == "init" for rank in ranks)
    is_busy = _told(ranks) == "train" if is_counted else mean is None or mean >= _BUSY_PCT
    life.busy_for_s += (scene.snapshot.interval_s or 0.0) if is_busy else 0.0
    is_steady = is_busy and life.busy_for_s >= life.needs_s and not _compiles(job, scene.processes)
    return "train" if age_s >= _START_CAP_S or (is_steady and (is_counted or age_s >= _START_S)) else "start"


def _told(ranks: Sequence[Rank]) -> Phase | None:
    """What probes say themselves; None where they say nothing of now."""
    if any(rank.phase in {"eval", "checkpoint"} for rank in ranks):
        return "pause"
    ages = [rank.heartbeat_age_s for rank in ranks if rank.phase == "train" and rank.heartbeat_age_s is not None]
    # A loop may evaluate without telling: then nothing beats, and what the GPUs do must say what it is.
    slowest = max((rank.step_s for rank in ranks if rank.step_s is not None), default=0.0)
    return "train" if ages and min(ages) <= max(_GAP_S, 3 * slowest) else None


def _compiles(job: Job, processes: Mapping[int, Process]) -> bool:
    helpers = (processes[pid] for pids in job.helpers.values() for pid in pids)
    return any(helper.role == "compile" and (helper.cpu_pct or 0.0) >= 20.0 for helper in helpers)


def _any_waits(job: Job, scene: _Scene) -> bool:
    processes = scene.processes
    for uuid in job.gpu_uuids:
        trainer = trainer_of(job, uuid, processes)
        if trainer and waits_for_input(trainer, workers_of(job, trainer.pid, processes), scene.snapshot.host):
            return True
    return False
