"""The machine as a whole: moves jobs, cards, disk and processor forward together and photographs them."""

from __future__ import annotations

from math import ceil, inf
from random import Random

from gpumon.model import Event, Gpu, Host, Process, Snapshot, Volume
from gpumon.sources.simulator.card import Card
from gpumon.sources.simulator.chips import GIB, Machine
from gpumon.sources.simulator.job import Job
from gpumon.sources.simulator.loader import Disk
from gpumon.sources.simulator.people import Census, is_remote
from gpumon.sources.simulator.probe import reports
from gpumon.sources.simulator.spec import JobSpec
from gpumon.sources.simulator.strangers import Stranger

PROCESS_EVERY_S = 2.0
"""CPU time and states of processes are read at this cadence, as on a real machine."""
SETTLE_S = 8.0
"""Lived through before the first sample, so that loaders and windows are in their stride."""
LONGEST_STEP_S = 1.0
ENOUGH_STEPS = 600
SWAPS_BELOW = 0.03
"""Share of memory left below which the kernel begins to swap."""
KILLS_BELOW = 0.004


class World:
    """One machine at one moment of the story."""

    def __init__(
        self,
        machine: Machine,
        jobs: tuple[JobSpec, ...],
        *,
        seed: int,
        start_s: float,
        epoch_s: float,
        window_s: float | None,
        is_probed: bool = False,
    ) -> None:
        """``start_s`` is a time of the story, ``epoch_s`` the wall clock there."""
        self.machine = machine
        self.rng = rng = Random(seed)  # noqa: S311 - a toy, not a secret
        self.now_s = start_s - SETTLE_S
        self.epoch_s = epoch_s - start_s
        """Wall clock at simulated time 0."""
        self.is_probed = is_probed
        window = window_s or machine.chip.window_s
        self.cards = [
            Card(machine.chip, index, inlet_c=machine.chip.inlet_c, window_s=window, start_s=self.now_s, rng=rng)
            for index in range(machine.gpus)
        ]
        for card in self.cards:
            card.desktop_bytes = machine.desktop_bytes if card.index == 0 else 0
        self.disk = Disk(machine.disk_bytes_per_s, hit_share=0.0)
        self.network = Disk(machine.network_bytes_per_s, hit_share=0.0, latency_s=0.03)
        self.specs = jobs
        self.jobs: list[Job] = []
        self.strangers: list[Stranger] = []
        self.other_threads = 0.012 * machine.cores
        """Runnable threads of others: the system, other users."""
        self.hog_bytes = 0.0
        """Memory that others hold besides the machine's base."""
        self.hog_bytes_per_s = 0.0
        self.worker_leak_bytes_per_s = 0.0
        self.shm_extra_bytes = 0.0
        self.volume: tuple[float, float] | None = None
        """Where checkpoints go: total and free bytes."""
        self.oom_kills = 0
        self.events: list[Event] = []
        self._shm_total = machine.memory_bytes // 2
        self._censuses: list[Census] = []
        self._processes: tuple[Process, ...] = ()
        self._processes_read_s: float | None = None
        self._has_no_rates = True
        self._load = 0.0
        self._steps = 0
        self._cpu_pct = 0.0
        self._pressures = (0.0, 0.0)
        self._write_rates: dict[int, float] = {}

    def begin(self) -> None:
        """Start the jobs; the story may have changed cards and disk before."""
        for spec in self.specs:
            disk = self.network if is_remote(spec.data_filesystem) else self.disk
            job = Job(spec, self.cards, disk, self.rng, self.now_s, is_probed=self.is_probed)
            self.jobs.append(job)
            self._censuses.append(Census(job, self.machine.cores, self._shm_total))

    def settle(self) -> None:
        """Start with cards as warm as their jobs keep them."""
        for card in self.cards:
            busy = sum(part.share for part in card.slices if part.holders)
            card.settle(0.975 * busy, 0.01 * busy)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        steps = min(ENOUGH_STEPS, max(1, ceil(seconds / LONGEST_STEP_S - 1e-9)))
        for _ in range(steps):
            self._step(seconds / steps)

    def _step(self, seconds: float) -> None:
        begin, end = self.now_s, self.now_s + seconds
        self._share_cores(begin)
        for number, job in enumerate(self.jobs):
            job.advance(end)
            job.worker_extra_bytes += self.worker_leak_bytes_per_s * seconds
            written = job.write_checkpoint(begin, end)
            self._write_rates[number] = written
            if self.volume is not None:
                self.volume = (self.volume[0], max(0.0, self.volume[1] - written * seconds))
            if job.events:
                self.events.extend(job.events)
                job.events.clear()
        self.hog_bytes += self.hog_bytes_per_s * seconds
        self.disk.drain(end)
        self.network.drain(end)
        for card in self.cards:
            card.advance(begin, end)
        self.now_s = end

    def _share_cores(self, now_s: float) -> None:
        """More runnable threads than cores, or than a job may use: everybody gets the same smaller part."""
        runnable = self.other_threads
        slowdowns: list[tuple[Job, float]] = []
        for job in self.jobs:
            if job.state == "absent":
                continue
            spec = job.spec
            mine = len(job.ranks) + sum(r.loader.busy_workers(now_s) for r in job.ranks if r.loader is not None)
            runnable += mine
            by_quota, by_cpus = mine / (spec.quota_cores or inf), mine / (spec.cpus or inf)
            job.is_over_quota = by_quota > max(1.0, by_cpus)
            slowdowns.append((job, max(by_quota, by_cpus)))
        self._load += (0.03 if self._steps > SETTLE_S else 0.6) * (runnable - self._load)
        self._steps += 1
        crowd = max(1.0, runnable / self.machine.cores)
        for job, own in slowdowns:
            for rank in job.ranks:
                if rank.loader is not None:
                    rank.loader.slowdown += 0.5 * (max(crowd, own) - rank.loader.slowdown)

    # --- the picture -------------------------------------------------------------------------------

    def snapshot(self, interval_s: float | None) -> Snapshot:
        """What a monitor would read now, ``interval_s`` after it last did."""
        gpus: list[Gpu] = []
        for card in self.cards:
            gpus.extend(card.reading(self.now_s, interval_s))
        time_s = self.epoch_s + self.now_s
        self._read_processes(interval_s)
        host = self._host(interval_s)
        ranks = (
            tuple(one for job in self.jobs for one in reports(job, self.now_s, interval_s)) if self.is_probed else ()
        )
        events = tuple(event if event.time_s else _stamped(event, time_s) for event in self.events)
        self.events.clear()
        return Snapshot(
            time_s=time_s,
            interval_s=interval_s,
            gpus=tuple(gpus),
            processes=self._processes,
            host=host,
            ranks=ranks,
            events=events,
        )

    def _read_processes(self, interval_s: float | None) -> None:
        last = self._processes_read_s
        alive = sum(job.attempt for job in self.jobs if job.state != "absent")
        has_changed = any(event.kind == "process-exit" for event in self.events)
        due = last is None or self._has_no_rates or self.now_s - last >= PROCESS_EVERY_S - 0.01
        if not (due or has_changed or (alive and not self._processes)):
            return
        begin = self.now_s if last is None or interval_s is None else last
        self._processes_read_s = self.now_s
        has_rates = self.now_s > begin
        self._has_no_rates = not has_rates
        for census in self._censuses:
            others = sum(one.shm_bytes for one in self._censuses if one is not census)
            elsewhere = others + int(self.shm_extra_bytes + 0.004 * self._shm_total)
            census.shm_elsewhere_bytes = 0 if census.has_own_shm else elsewhere
        ours = [
            process
            for number, census in enumerate(self._censuses)
            for process in census.read(begin, self.now_s, self.epoch_s, self._write_rates.get(number, 0.0))
        ]
        theirs = [stranger.read(self.epoch_s, has_rates=has_rates) for stranger in self.strangers]
        self._processes = (*ours, *theirs)
        if has_rates:
            self._measure_host()

    def _measure_host(self) -> None:
        cores = self.machine.cores
        used = sum(census.cpu_pct for census in self._censuses) / 100.0
        used += sum(stranger.cpu_pct for stranger in self.strangers) / 100.0
        waiting = sum(census.waiting_pct for census in self._censuses) / 100.0
        slowdown = max(1.0, self._load / cores)
        others = self.other_threads * (0.9 + 0.2 * self.rng.random()) / slowdown
        self._cpu_pct = min(100.0, 100.0 * (used + others) / cores)
        crowd = waiting + self.other_threads * (1.0 - 1.0 / slowdown)
        # Some task waits while any is in the queue: certain once a handful of them are.
        pressed = 100.0 * min(1.0, crowd / 4.0)
        reading = sum(census.reading_pct for census in self._censuses) / 100.0
        stalled = 100.0 * min(1.0, reading / 3.0) ** 2  # read-ahead hides the waits of a few readers
        cpu, io = self._pressures
        self._pressures = (cpu + 0.2 * (pressed - cpu), io + 0.2 * (stalled - io))

    def _host(self, interval_s: float | None) -> Host:
        machine = self.machine
        shared = sum(census.shm_bytes for census in self._censuses) + int(self.shm_extra_bytes)
        available = self._available_bytes(shared)
        left = available / machine.memory_bytes
        pressed = max(0.0, 1.0 - left / SWAPS_BELOW)
        if left < KILLS_BELOW:
            self._kill_biggest()
        return Host(
            name=machine.name,
            driver_version=machine.driver,
            nvml_version=machine.nvml,
            cuda_version=machine.cuda,
            chassis=machine.chassis,
            sees_host_pids=True,
            driver_age_s=0.0,
            cpu_count=machine.cores,
            socket_count=machine.sockets,
            load_1=round(self._load, 2),
            memory_total_bytes=machine.memory_bytes,
            memory_available_bytes=available,
            swap_used_bytes=int(pressed * 6 * GIB),
            cpu_pressure_pct=round(self._pressures[0], 2),
            io_pressure_pct=round(self._pressures[1], 2),
            memory_pressure_pct=round(30.0 * pressed, 2),
            shm_total_bytes=self._shm_total,
            shm_used_bytes=shared + int(0.004 * self._shm_total),
            oom_kills=self.oom_kills,
            boot_id="5e3c0f7a",
            volumes=self._volumes(),
            **(self._rates(interval_s, pressed) if interval_s is not None else {}),  # type: ignore[arg-type]
        )

    def _rates(self, interval_s: float, pressed: float) -> dict[str, object]:
        random = self.rng.random
        read, written, busy = self.disk.take_traffic(interval_s)
        fetched, sent, _ = self.network.take_traffic(interval_s)
        is_used = any(job.disk is self.network for job in self.jobs)
        queue_s = self.network.latency_s + self.network.queued_bytes / self.network.bytes_per_s
        return {
            "cpu_pct": round(self._cpu_pct, 1),
            "swap_in_bytes_per_s": round(40e6 * pressed),
            "disk_read_bytes_per_s": round(read / interval_s),
            "disk_write_bytes_per_s": round(written / interval_s + 3e4 * random()),
            "disk_busy_pct": round(100.0 * busy, 1),
            "net_rx_bytes_per_s": round(fetched / interval_s + 4e4 + 5e4 * random()),
            "net_tx_bytes_per_s": round(sent / interval_s + 2e4 + 3e4 * random()),
            "net_limit_bytes_per_s": 1.25e9,
            "nfs_read_s": round(queue_s / 8, 4) if is_used and fetched else None,
        }

    def _available_bytes(self, shared: int) -> int:
        machine = self.machine
        resident = sum(census.resident_bytes for census in self._censuses)
        resident += sum(stranger.rss_bytes for stranger in self.strangers)
        held = machine.memory_base_bytes + resident + shared + int(self.hog_bytes)
        return max(0, machine.memory_bytes - held)

    def _kill_biggest(self) -> None:
        """The kernel kills a process of the job that holds the most; the rest of the job goes with it."""
        self.oom_kills += 1
        jobs = [job for job in self.jobs if job.state != "absent"]
        if jobs:
            job = max(jobs, key=lambda one: one.spec.trainer_rss_bytes * len(one.ranks))
            self.events.append(Event(kind="oom-kill", pid=job.ranks[0].pid))
            job.kill(self.now_s, None)
            job.worker_extra_bytes = 0.0
        self.hog_bytes = min(self.hog_bytes, 0.5 * self.machine.memory_bytes)

    def _volumes(self) -> tuple[Volume, ...]:
        if self.volume is None:
            return ()
        total, free = self.volume
        return (
            Volume(path="/ckpt", filesystem="ext4", total_bytes=int(total), free_bytes=int(free), free_inodes_pct=91.0),
        )


def _stamped(event: Event, time_s: float) -> Event:
    return Event(kind=event.kind, time_s=time_s, gpu_uuid=event.gpu_uuid, pid=event.pid, text=event.text, xid=event.xid)
