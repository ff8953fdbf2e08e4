"""The machine as a whole: moves jobs, cards, disk and processor forward together and photographs them."""

from __future__ import annotations

from math import ceil
from random import Random

from gpumon.model import Event, Gpu, Host, Process, Snapshot
from gpumon.sources.simulator.card import Card
from gpumon.sources.simulator.chips import Machine
from gpumon.sources.simulator.job import Job, JobSpec
from gpumon.sources.simulator.loader import Disk
from gpumon.sources.simulator.people import Census

PROCESS_EVERY_S = 2.0
"""CPU time and states of processes are read at this cadence, as on a real machine."""
SETTLE_S = 8.0
"""Lived through before the first sample, so that loaders and windows are in their stride."""
LONGEST_STEP_S = 1.0
ENOUGH_STEPS = 600


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
    ) -> None:
        """``start_s`` is a time of the story, ``epoch_s`` the wall clock there."""
        self.machine = machine
        self.rng = rng = Random(seed)  # noqa: S311 - a toy, not a secret
        self.now_s = start_s - SETTLE_S
        self.epoch_s = epoch_s - start_s
        """Wall clock at simulated time 0."""
        window = window_s or machine.chip.window_s
        self.cards = [
            Card(machine.chip, index, inlet_c=machine.chip.inlet_c, window_s=window, start_s=self.now_s, rng=rng)
            for index in range(machine.gpus)
        ]
        for card in self.cards:
            card.desktop_bytes = machine.desktop_bytes if card.index == 0 else 0
        self.disk = Disk(machine.disk_bytes_per_s, hit_share=0.0)
        self.specs = jobs
        self.jobs: list[Job] = []
        self.other_threads = 0.012 * machine.cores
        """Runnable threads of others: the system, other users."""
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
            job = Job(spec, self.cards, self.disk, self.rng, self.now_s)
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
            self._write_rates[number] = job.write_checkpoint(begin, end)
            if job.events:
                self.events.extend(job.events)
                job.events.clear()
        self.disk.drain(end)
        for card in self.cards:
            card.advance(begin, end)
        self.now_s = end

    def _share_cores(self, now_s: float) -> None:
        """More runnable threads than cores: everybody gets the same smaller part."""
        loaders = [rank.loader for job in self.jobs for rank in job.ranks if rank.loader is not None]
        mains = sum(len(job.ranks) for job in self.jobs if job.state != "absent")
        runnable = self.other_threads + mains + sum(loader.busy_workers(now_s) for loader in loaders)
        self._load += (0.03 if self._steps > SETTLE_S else 0.6) * (runnable - self._load)
        self._steps += 1
        slowdown = max(1.0, runnable / self.machine.cores)
        for loader in loaders:
            loader.slowdown += 0.5 * (slowdown - loader.slowdown)

    # --- the picture -------------------------------------------------------------------------------

    def snapshot(self, interval_s: float | None) -> Snapshot:
        """What a monitor would read now, ``interval_s`` after it last did."""
        copied = {card.index: 0.0 for card in self.cards}
        for job in self.jobs:
            for rank in job.ranks:
                copied[rank.card.index] += rank.copied_bytes
                rank.copied_bytes = 0.0
        gpus: list[Gpu] = []
        for card in self.cards:
            gpus.extend(card.reading(self.now_s, interval_s, copied[card.index]))
        time_s = self.epoch_s + self.now_s
        self._read_processes(interval_s)
        host = self._host(interval_s)
        events = tuple(event if event.time_s else _stamped(event, time_s) for event in self.events)
        self.events.clear()
        return Snapshot(
            time_s=time_s, interval_s=interval_s, gpus=tuple(gpus), processes=self._processes, host=host, events=events
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
        self._has_no_rates = begin == self.now_s
        self._processes = tuple(
            process
            for number, census in enumerate(self._censuses)
            for process in census.read(begin, self.now_s, self.epoch_s, self._write_rates.get(number, 0.0))
        )
        if self.now_s > begin:
            self._measure_host()

    def _measure_host(self) -> None:
        cores = self.machine.cores
        used = sum(census.cpu_pct for census in self._censuses) / 100.0
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
        resident = sum(census.resident_bytes for census in self._censuses)
        shared = sum(census.shm_bytes for census in self._censuses)
        rates: dict[str, object] = {}
        if interval_s is not None:
            read, written, busy = self.disk.take_traffic(interval_s)
            rates = {
                "cpu_pct": round(self._cpu_pct, 1),
                "swap_in_bytes_per_s": 0.0,
                "disk_read_bytes_per_s": round(read / interval_s),
                "disk_write_bytes_per_s": round(written / interval_s + 3e4 * self.rng.random()),
                "disk_busy_pct": round(100.0 * busy, 1),
                "net_rx_bytes_per_s": round(4e4 + 5e4 * self.rng.random()),
                "net_tx_bytes_per_s": round(2e4 + 3e4 * self.rng.random()),
            }
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
            memory_available_bytes=max(0, machine.memory_bytes - machine.memory_base_bytes - resident - shared),
            swap_used_bytes=0,
            cpu_pressure_pct=round(self._pressures[0], 2),
            io_pressure_pct=round(self._pressures[1], 2),
            memory_pressure_pct=0.0,
            shm_total_bytes=self._shm_total,
            shm_used_bytes=shared + int(0.004 * self._shm_total),
            **rates,  # type: ignore[arg-type]
        )


def _stamped(event: Event, time_s: float) -> Event:
    return Event(kind=event.kind, time_s=time_s, gpu_uuid=event.gpu_uuid, pid=event.pid, text=event.text, xid=event.xid)
