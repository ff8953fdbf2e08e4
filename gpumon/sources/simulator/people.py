"""The processes of a job as /proc would show them: trainers, workers, their CPU time, states and memory."""

from __future__ import annotations

from gpumon.model import Process
from gpumon.sources.simulator.job import Job, Rank

LIBRARIES = ("libtorch_cuda", "libnccl", "libcudnn")


class Census:
    """Reads all processes of a job for one interval; what never changes is put together once per process."""

    def __init__(self, job: Job, cores: int, shm_total_bytes: int) -> None:
        """``cores`` are those the job may use."""
        self._job = job
        self._cores = cores
        self._shm_total = shm_total_bytes
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
            found.append(self._trainer(rank, begin_s, end_s, write_rate if rank.number == 0 else 0.0))
            if rank.loader is not None:
                found.extend(self._workers(rank, begin_s, end_s))
        self.waiting_pct = round(self.waiting_pct, 1)
        return tuple(found)

    def _trainer(self, rank: Rank, begin_s: float, end_s: float, write_rate: float) -> Process:
        job, rng = self._job, self._job.rng
        seconds = end_s - begin_s
        asleep = rank.asleep_s(begin_s, end_s) / seconds if seconds > 0 else 0.0
        slowdown = rank.loader.slowdown if rank.loader is not None else 1.0
        awake = 100.0 * (1.0 - asleep) * (0.965 + 0.03 * rng.random())
        main = awake / slowdown
        others = (1.0 - 0.85 * asleep) * (2.0 + 5.0 * rng.random())
        facts = self._facts.get(rank.pid) or self._trainer_facts(rank)
        part = rank.slice
        state = "S" if asleep > 0.5 else "R"
        resident = int(job.spec.trainer_rss_bytes * (1.0 + 0.012 * rank.number))
        self.cpu_pct += main + others
        self.waiting_pct += awake - main
        self.resident_bytes += resident
        values: dict[str, object] = {
            "state": "R" if rng.random() > asleep else "S",
            "gpu_memory_bytes": {part.uuid: part.holders.get(rank.pid)},
            "gpu_sm_pct": None if part.profile else {part.uuid: round(part.activity.busy_pct)},
            "memory_rss_bytes": resident,
            "memory_pss_bytes": int(resident * 0.93),
            "shm_used_bytes": self._shm_of(rank),
        }
        if seconds > 0:
            values.update(
                cpu_pct=round(main + others, 1),
                main_thread_cpu_pct=round(main, 1),
                main_thread_state=state,
                disk_wait_pct=0.0 if not write_rate else 18.0,
                run_delay_pct=round((awake - main) + 0.4 * rng.random(), 1),
                read_bytes_per_s=0.0,
                write_bytes_per_s=round(write_rate),
                rchar_bytes_per_s=round(2e4 + 3e4 * rng.random()),
            )
        return Process(**facts, **values)  # type: ignore[arg-type]

    def _workers(self, rank: Rank, begin_s: float, end_s: float) -> list[Process]:
        job, loader = self._job, rank.loader
        if loader is None:
            return []
        seconds, found = end_s - begin_s, []
        size, missed = loader.batch_bytes, loader.disk.missed_share()
        resident = job.spec.worker_rss_bytes
        private, random = int(resident * 0.9), job.rng.random
        for number, pid in enumerate(rank.worker_pids):
            facts = self._facts.get(pid) or self._worker_facts(rank, pid)
            self.resident_bytes += private
            if seconds <= 0:
                found.append(Process(**facts, memory_rss_bytes=resident, memory_pss_bytes=private))  # type: ignore[arg-type]
                continue
            use = loader.usage(number, begin_s, end_s)
            wanted = 100.0 * use.running_s / seconds * (0.985 + 0.012 * random())
            cpu = wanted / loader.slowdown
            reading = 100.0 * use.reading_s / seconds
            rate = use.batches * size / seconds
            self.cpu_pct += cpu
            self.waiting_pct += wanted - cpu
            self.reading_pct += reading
            found.append(
                Process(
                    **facts,  # type: ignore[arg-type]
                    state=use.state,
                    cpu_pct=round(cpu, 1),
                    main_thread_cpu_pct=round(cpu, 1),
                    main_thread_state="D" if reading > 50.0 else "R" if wanted > 50.0 else "S",
                    disk_wait_pct=round(reading, 1),
                    run_delay_pct=round(wanted - cpu, 1),
                    memory_rss_bytes=resident,
                    memory_pss_bytes=private,
                    read_bytes_per_s=round(rate * missed),
                    write_bytes_per_s=0.0,
                    rchar_bytes_per_s=round(rate),
                )
            )
        return found

    def _shm_of(self, rank: Rank) -> int:
        """Batches that lie ready for this rank: workers hand them over through /dev/shm."""
        loader = rank.loader
        batches = loader.workers * loader.prefetch if loader is not None else 0
        size = int(batches * self._job.spec.copied_bytes)
        self.shm_bytes += size
        return size

    def _started_s(self, delay_s: float) -> float:
        return round(self._origin_s + self._job.started_s + delay_s, 2)

    def _trainer_facts(self, rank: Rank) -> dict[str, object]:
        spec, count = self._job.spec, len(self._job.ranks)
        facts = {
            **self._common(),
            "pid": rank.pid,
            "ppid": self._job.launcher_pid,
            "started_s": self._started_s(0.11 * rank.number),
            "name": "python",
            "command": spec.command,
            "role": spec.role,
            "framework": spec.framework,
            "libraries": LIBRARIES if count > 1 else LIBRARIES[::2],
            "environment": {},
            "data_filesystem": spec.data_filesystem,
            "memory_limit_bytes": None,
            "shm_total_bytes": self._shm_total,
        }
        if count > 1:
            facts |= {"rank": rank.number, "local_rank": rank.number, "world_size": count}
            facts["environment"] = {"RANK": str(rank.number), "WORLD_SIZE": str(count), "MASTER_PORT": "29500"}
        self._facts[rank.pid] = facts
        return facts

    def _worker_facts(self, rank: Rank, pid: int) -> dict[str, object]:
        spec = self._job.spec
        facts = {
            **self._common(),
            "pid": pid,
            "ppid": rank.pid,
            "started_s": self._started_s(spec.load_s + 0.02 * (pid - rank.worker_pids[0])),
            "name": "pt_data_worker",
            "command": spec.command,
            "role": "dataloader-worker",
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
        }
