"""The processes of a job as /proc would show them: trainers, workers, their CPU time, states and memory."""

from __future__ import annotations

from gpumon.model import Process
from gpumon.signals import NETWORK_FILESYSTEMS
from gpumon.sources.simulator.job import Job
from gpumon.sources.simulator.rank import Rank

LIBRARIES = ("libtorch_cuda", "libnccl", "libcudnn")
COMPILERS = 4
SLEEPING_FILESYSTEMS = ("fuse",)
"""Their clients wait in a socket, not in the kernel's disk sleep."""


class Census:
    """Reads all processes of a job for one interval; what never changes is put together once per process."""

    def __init__(self, job: Job, cores: int, shm_total_bytes: int) -> None:
        """``cores`` are those the job may use."""
        self._job = job
        self._cores = job.spec.cpus or cores
        self._shm_total = job.spec.shm_total_bytes or shm_total_bytes
        self.has_own_shm = job.spec.shm_total_bytes is not None
        self._attempt = -1
        self._facts: dict[int, dict[str, object]] = {}
        self._origin_s = 0.0
        self.cpu_pct = 0.0
        """Of one core, all processes together."""
        self.waiting_pct = 0.0
        """Run delay of all processes together, of one core."""
        self.reading_pct = 0.0
        self.resident_bytes = 0
        self.shm_bytes = 0
        self.shm_elsewhere_bytes = 0
        """What others hold in the same /dev/shm."""

    def read(self, begin_s: float, end_s: float, epoch_s: float, write_rate: float) -> tuple[Process, ...]:
        """Every process in [begin, end); ``epoch_s`` is the wall clock at simulated time 0."""
        job = self._job
        self.cpu_pct = self.waiting_pct = self.reading_pct = 0.0
        self.resident_bytes = self.shm_bytes = 0
        if job.state == "absent":
            return ()
        if self._attempt != job.attempt:
            self._attempt = job.attempt
            self._facts.clear()
            self._origin_s = epoch_s
        found: list[Process] = []
        for rank in job.ranks:
            if rank.is_gone:
                continue
            found.append(self._trainer(rank, begin_s, end_s, write_rate if rank.number == 0 else 0.0))
            if rank.loader is not None:
                found.extend(self._workers(rank, begin_s, end_s))
            elif job.spec.compiles:
                found.extend(self._compilers(rank, has_rates=begin_s < end_s))
        self.waiting_pct = round(self.waiting_pct, 1)
        return tuple(found)

    def _trainer(self, rank: Rank, begin_s: float, end_s: float, write_rate: float) -> Process:
        job, rng = self._job, self._job.rng
        seconds = end_s - begin_s
        facts = self._facts.get(rank.pid) or self._trainer_facts(rank)
        part = rank.slice
        resident = int(job.spec.trainer_rss_bytes * (1.0 + 0.012 * rank.number))
        self.resident_bytes += resident
        shm = self._shm_of(rank) + self.shm_elsewhere_bytes
        is_stopped = job.is_debugged(end_s)
        asleep = rank.asleep_s(begin_s, end_s) / seconds if seconds > 0 else 0.0
        values: dict[str, object] = {
            "state": "t" if is_stopped else "R" if rng.random() > asleep else "S",
            "gpu_memory_bytes": {} if job.spec.on_cpu else {part.uuid: part.holders.get(rank.pid)},
            "gpu_sm_pct": None if part.profile or job.spec.on_cpu else {part.uuid: self._sm_pct(rank)},
            "memory_rss_bytes": resident,
            "memory_pss_bytes": int(resident * 0.93),
            "memory_private_bytes": int(resident * 0.9),
            "shm_used_bytes": shm,
        }
        if seconds > 0:
            values.update(self._trainer_times(rank, begin_s, end_s, asleep, write_rate))
        return Process(**facts, **values)  # type: ignore[arg-type]

    def _trainer_times(
        self, rank: Rank, begin_s: float, end_s: float, asleep: float, write_rate: float
    ) -> dict[str, object]:
        job, rng, seconds = self._job, self._job.rng, end_s - begin_s
        loader = rank.loader
        slowdown = loader.slowdown if loader is not None else 1.0
        reading = rate = missed = 0.0
        if loader is not None and not loader.workers:
            use = loader.usage(0, begin_s, end_s)
            reading = use.reading_s / seconds
            rate, missed = use.batches * loader.batch_bytes / seconds, loader.disk.missed_share()
            self.reading_pct += 100.0 * reading
        in_disk_sleep = 0.0 if job.spec.data_filesystem in SLEEPING_FILESYSTEMS else reading
        wanted = 100.0 * max(0.0, 1.0 - asleep - reading) * (0.965 + 0.03 * rng.random())
        main = wanted / slowdown
        others = (1.0 - 0.85 * asleep) * (2.0 + 5.0 * rng.random())
        if job.spec.on_cpu:
            others += 62.0 * self._cores * (0.9 + 0.2 * rng.random()) * (job.state != "loading")
        self.cpu_pct += main + others
        delayed = 0.0 if job.is_over_quota else wanted - main
        self.waiting_pct += delayed
        state = "S" if asleep > 0.5 else "D" if in_disk_sleep > 0.5 else "R"
        return {
            "cpu_pct": round(main + others, 1),
            "main_thread_cpu_pct": round(main, 1),
            "main_thread_state": "t" if job.is_debugged(end_s) else state,
            "disk_wait_pct": 18.0 if write_rate else round(100.0 * in_disk_sleep, 1),
            "run_delay_pct": round(delayed + 0.4 * rng.random(), 1),
            "cpu_throttled_pct": self._throttled(slowdown),
            "read_bytes_per_s": round(rate * missed),
            "write_bytes_per_s": round(write_rate),
            "rchar_bytes_per_s": round(rate + (1.0 - asleep) * (2e4 + 3e4 * rng.random())),
        }

    def _throttled(self, slowdown: float) -> float | None:
        """Share of the quota's periods that ended early."""
        if self._job.spec.quota_cores is None:
            return None
        return round(min(99.0, 100.0 * max(0.0, slowdown - 1.0) * 2.0), 1) if self._job.is_over_quota else 0.0

    def _sm_pct(self, rank: Rank) -> int:
        return round(rank.slice.activity.busy_pct * (1.0 - rank.taken_share))

    def _workers(self, rank: Rank, begin_s: float, end_s: float) -> list[Process]:
        job, loader = self._job, rank.loader
        if loader is None:
            return []
        seconds, found = end_s - begin_s, []
        size, missed = loader.batch_bytes, loader.disk.missed_share()
        private = int(job.spec.worker_rss_bytes * 0.9 + job.worker_extra_bytes)
        resident = int(job.spec.worker_rss_bytes + job.worker_extra_bytes)
        random = job.rng.random
        is_asleep = job.spec.data_filesystem in SLEEPING_FILESYSTEMS
        for number, pid in enumerate(rank.worker_pids):
            facts = self._facts.get(pid) or self._worker_facts(rank, pid)
            self.resident_bytes += private
            facts = facts | {"memory_rss_bytes": resident, "memory_pss_bytes": private, "memory_private_bytes": private}
            if seconds <= 0:
                found.append(Process(**facts))  # type: ignore[arg-type]
                continue
            use = loader.usage(number, begin_s, end_s)
            wanted = 100.0 * use.running_s / seconds * (0.985 + 0.012 * random())
            cpu = wanted / loader.slowdown
            reading = 100.0 * use.reading_s / seconds
            in_disk_sleep = 0.0 if is_asleep else reading
            rate = use.batches * size / seconds
            delayed = 0.0 if job.is_over_quota else wanted - cpu
            self.cpu_pct += cpu
            self.waiting_pct += delayed
            self.reading_pct += reading
            found.append(
                Process(
                    **facts,  # type: ignore[arg-type]
                    state="S" if use.state == "D" and is_asleep else use.state,
                    cpu_pct=round(cpu, 1),
                    main_thread_cpu_pct=round(cpu, 1),
                    main_thread_state="D" if in_disk_sleep > 50.0 else "R" if wanted > 50.0 else "S",
                    disk_wait_pct=round(in_disk_sleep, 1),
                    run_delay_pct=round(delayed, 1),
                    cpu_throttled_pct=self._throttled(loader.slowdown),
                    read_bytes_per_s=0 if is_asleep else round(rate * missed),
                    write_bytes_per_s=0.0,
                    rchar_bytes_per_s=round(rate),
                )
            )
        return found

    def _compilers(self, rank: Rank, *, has_rates: bool) -> list[Process]:
        """Children that compile kernels while the trainer loads."""
        found = []
        for number in range(COMPILERS):
            cpu = 88.0 + 10.0 * self._job.rng.random()
            self.cpu_pct += cpu
            found.append(
                Process(
                    **self._common(),  # type: ignore[arg-type]
                    pid=rank.pid + 40 + number,
                    ppid=rank.pid,
                    started_s=self._started_s(4.0),
                    name="ptxas",
                    role="compile",
                    state="R",
                    cpu_pct=round(cpu, 1) if has_rates else None,
                    memory_rss_bytes=300 << 20,
                )
            )
        return found

    def _shm_of(self, rank: Rank) -> int:
        """Batches that lie ready for all ranks: workers hand them over through /dev/shm."""
        loader = rank.loader
        batches = loader.workers * loader.prefetch if loader is not None else 0
        size = int(batches * self._job.spec.copied_bytes)
        self.shm_bytes += size
        return size * len(self._job.ranks)

    def _started_s(self, delay_s: float) -> float:
        return round(self._origin_s + self._job.started_s + delay_s, 2)

    def _trainer_facts(self, rank: Rank) -> dict[str, object]:
        spec, count = self._job.spec, len(self._job.ranks)
        threads = ("pt_data_pin",) if spec.workers and spec.is_pinned and spec.framework == "torch" else ()
        facts = {
            **self._common(),
            "pid": rank.pid,
            "ppid": self._job.launcher_pid,
            "started_s": self._started_s(0.11 * rank.number),
            "name": "python",
            "command": spec.command.format(attempt=self._job.attempt),
            "role": spec.role,
            "framework": spec.framework,
            "libraries": spec.libraries or (LIBRARIES if count > 1 else LIBRARIES[::2]),
            "threads": (*threads, "pt_nccl_watchdg") if count > 1 else threads,
            "environment": spec.environment,
            "data_filesystem": spec.data_filesystem,
            "memory_limit_bytes": spec.memory_limit_bytes,
            "shm_total_bytes": self._shm_total,
            "open_gpus": () if spec.on_cpu else (rank.slice.uuid,),
        }
        if count > 1:
            facts |= {"rank": rank.number, "local_rank": rank.number, "world_size": count}
            named = {"RANK": str(rank.number), "WORLD_SIZE": str(count), "MASTER_PORT": "29500"}
            facts["environment"] = {**spec.environment, **named}
        self._facts[rank.pid] = facts
        return facts

    def _worker_facts(self, rank: Rank, pid: int) -> dict[str, object]:
        spec = self._job.spec
        is_loader = not spec.rollout_s
        facts = {
            **self._common(),
            "pid": pid,
            "ppid": rank.pid,
            "started_s": self._started_s(spec.load_s + 0.02 * (pid - rank.worker_pids[0])),
            "name": "pt_data_worker" if is_loader else "python",
            "command": spec.command,
            "role": "dataloader-worker" if is_loader else "other",
        }
        self._facts[pid] = facts
        return facts

    def _common(self) -> dict[str, object]:
        spec = self._job.spec
        return {
            "session_id": self._job.launcher_pid - 2,
            "user": spec.user,
            "container": spec.container,
            "job_id": spec.job_id,
            "cpus_allowed": self._cores,
            "cpu_quota_cores": spec.quota_cores,
        }


def is_remote(filesystem: str) -> bool:
    """Whether files on it come over the network."""
    return filesystem in NETWORK_FILESYSTEMS
