"""The live source over the fake driver: fresh snapshots at an even pace, whatever the driver does."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from nvml_readers import MakeDriver, load, until

from fakenvml import GIB, Process, a100_mig, h100, rtx4090, wave
from gpumon import model
from gpumon.errors import DriverBroken
from gpumon.model import Host, Snapshot
from gpumon.probe._gpumon_probe import layout
from gpumon.sources import GpuUse, live
from gpumon.sources.host.reader import HostReader
from gpumon.sources.inbox.inbox import Inbox
from gpumon.sources.live import LiveSource
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.sources.once import read_once
from probefile import ProbeFile


class StillHost:
    """A host side that costs nothing and remembers what it was asked."""

    def __init__(self) -> None:
        self.interval_s = 1.0
        self.holders: list[Mapping[int, GpuUse]] = []
        self.watched: set[int] = set()
        self.trainers: frozenset[int] = frozenset()
        self.is_closed = False

    def read(self, holders: Mapping[int, GpuUse], now: float) -> tuple[Host, tuple[model.Process, ...]]:
        self.holders.append(holders)
        return Host(name="box"), ()

    def watch_states(self, holders: Iterable[int]) -> None:
        self.watched = set(holders)

    def know_trainers(self, pids: frozenset[int]) -> None:
        self.trainers = pids

    def drain_events(self) -> tuple[model.Event, ...]:
        return ()

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def sources() -> Iterator[Callable[..., LiveSource]]:
    """Makes live sources of the loaded driver, and ends them."""
    made: list[LiveSource] = []

    def make(interval_s: float = 0.1, host: object = None, **options: object) -> LiveSource:
        reader = NvmlReader(interval_s, **options)
        reader.start()
        source = LiveSource(reader, host or StillHost(), interval_s)
        made.append(source)
        return source

    yield make
    for source in made:
        source.close()
    for thread in threading.enumerate():
        if thread.name == "nvml":
            thread.join(3)


def take(source: Iterable[Snapshot] | Iterator[Snapshot], count: int) -> list[Snapshot]:
    snapshots = iter(source)
    return [next(snapshots) for _ in range(count)]


def test_snapshots_are_fresh_and_even(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """The first has no interval; the others are an interval apart, with GPUs read a moment before."""
    load(fake_driver([h100(), rtx4090()]))
    source = sources(0.2)
    began = time.monotonic()
    snapshots = take(source, 6)
    assert time.monotonic() - began == pytest.approx(1.0, abs=0.2)
    assert snapshots[0].interval_s is None
    assert [snapshot.interval_s for snapshot in snapshots[2:]] == pytest.approx([0.2] * 4, abs=0.06)
    assert [len(snapshot.gpus) for snapshot in snapshots] == [2] * 6
    assert max(gpu.age_s or 0.0 for snapshot in snapshots for gpu in snapshot.gpus) < 0.1
    last = snapshots[-1]
    assert last.time_s == pytest.approx(time.time(), abs=1)
    assert last.gpus[0].power_w == pytest.approx(612, rel=0.05)
    assert last.host.name == "box"
    assert (last.host.driver_version, last.host.nvml_version) == ("580.95.05", "13.580.95.05")
    assert last.host.cuda_version == "13.0"
    assert last.host.driver_age_s is not None
    assert last.host.driver_age_s < 0.1
    assert last.host.driver_error is None
    assert (source.kind, source.name) == ("live", os.uname().nodename)


def test_every_window_comes_once(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """Over all snapshots the windows of the driver's ring are complete and none is repeated."""
    load(fake_driver([h100().but(utilization=wave(1, 40, 0, 100), window_s=0.05)]))
    windows = [snapshot.gpus[0].utilization_samples_pct for snapshot in take(sources(0.25), 9)]
    assert windows[0] == ()
    every = [value for part in windows[1:] for value in part]
    assert len(every) == pytest.approx(40, abs=3)
    assert sum(every) / len(every) == pytest.approx(40, abs=4)


TRAINER = """
import mmap, sys
with open(sys.argv[1], "w+b") as cuda:
    cuda.truncate(4096)
    held = mmap.mmap(cuda.fileno(), 4096)
print("ready", flush=True)
sys.stdin.read()
"""


def test_processes_are_those_of_the_host(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource], tmp_path: Path
) -> None:
    """The driver's memory and share of each process meet what /proc says about it."""
    driver = load(fake_driver([h100(), h100()]))
    # In a PID namespace the host side believes the driver's pid only of a process that has CUDA.
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "libcuda.so.1")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        driver.set_processes(0, [Process(trainer.pid, 30 * GIB, sm_pct=75)])
        driver.set_processes(1, [Process(trainer.pid, 2 * GIB, sm_pct=25)])
        snapshot = take(sources(0.2, HostReader(0.2)), 2)[-1]
        trainer.communicate()
    (process,) = snapshot.processes
    first, second = (gpu.uuid for gpu in snapshot.gpus)
    assert process.gpu_memory_bytes == {first: 30 * GIB, second: 2 * GIB}
    assert process.gpu_sm_pct == {first: 75, second: 25}
    assert process.command is not None
    assert "libcuda.so.1" in process.command
    assert snapshot.host.memory_total_bytes is not None
    assert snapshot.host.driver_version == "580.95.05"


def test_events_are_handed_over_once(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """An Xid is in one snapshot and in no other."""
    driver = load(fake_driver([h100()]))
    snapshots = iter(sources(0.1))
    next(snapshots)
    driver.queue_xid(0, 13)
    seen = [event.xid for _ in range(6) for event in next(snapshots).events]
    assert seen == [13]


def test_closing_from_another_thread_ends_at_once(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """An iterator that waits for a long interval ends within a moment of ``close``, and the host side is closed."""
    load(fake_driver([h100()]))
    host = StillHost()
    source = sources(30, host)
    snapshots = iter(source)
    next(snapshots)
    threading.Timer(0.2, source.close).start()
    began = time.monotonic()
    assert list(snapshots) == []
    assert time.monotonic() - began == pytest.approx(0.2, abs=0.1)
    assert host.is_closed


def test_a_slow_driver_gives_even_snapshots(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """When each pass takes longer than the interval, snapshots neither stall nor come in pairs."""
    load(fake_driver([h100()], system={"call.nvmlDeviceGetTemperature.latency_ms": 280}))
    intervals = [snapshot.interval_s or 0.2 for snapshot in take(sources(0.2), 10)]
    assert min(intervals) > 0.09
    assert max(intervals) < 0.35


def test_a_hanging_driver_stops_neither_pace_nor_host(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource]
) -> None:
    """Snapshots go on with the last values, their age growing and no window repeated; closing is still instant."""
    driver = load(fake_driver([h100()]))
    host = StillHost()
    source = sources(0.1, host)
    snapshots = iter(source)
    next(snapshots)
    next(snapshots)
    driver.set("call.*.hang_s", 60)
    hung = [next(snapshots) for _ in range(12)]
    ages = [snapshot.gpus[0].age_s or 0.0 for snapshot in hung]
    assert ages == sorted(ages)
    assert ages[-1] > 0.9
    assert hung[-1].gpus[0].temperature_c == 62
    assert all(snapshot.gpus[0].utilization_samples_pct == () for snapshot in hung[3:])
    assert hung[-1].host.driver_age_s == pytest.approx(ages[-1], abs=0.1)
    intervals = [snapshot.interval_s for snapshot in hung[3:]]
    assert intervals == pytest.approx([0.1] * len(intervals), abs=0.05)
    assert len(host.holders) == 14
    began = time.monotonic()
    source.close()
    assert list(snapshots) == []
    assert time.monotonic() - began < 0.1
    driver.set("call.*.hang_s", None)


def test_a_gpu_that_hangs_does_not_age_its_neighbours(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource]
) -> None:
    """After the limit the others are fresh again; the one that hangs goes on ageing; the driver is not called away."""
    driver = load(fake_driver([h100(), h100()]))
    snapshots = iter(sources(0.1, hang_after_s=0.5))
    next(snapshots)
    driver.set("gpu.0.call.*.hang_s", 60)
    deadline = time.monotonic() + 5
    for snapshot in snapshots:
        first, second = (gpu.age_s or 0.0 for gpu in snapshot.gpus)
        if first > 1.2:
            break
        assert time.monotonic() < deadline
    assert second < 0.3
    assert snapshot.host.driver_age_s is not None
    assert snapshot.host.driver_age_s < 0.3
    assert snapshot.host.driver_error is None
    driver.set("gpu.0.call.*.hang_s", None)
    for snapshot in snapshots:
        if max(gpu.age_s or 0.0 for gpu in snapshot.gpus) < 0.3:
            break
        assert time.monotonic() < deadline


def test_a_driver_that_is_away_is_said(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host says why NVML is away and for how long; when it is back, both end and values are fresh."""
    monkeypatch.setattr("gpumon.sources.nvml.reader.RETRIES_S", (0.2,))
    driver = load(fake_driver([h100(), rtx4090()]))
    snapshots = iter(sources(0.1))
    next(snapshots)
    driver.set("driver.gone", 9)
    deadline = time.monotonic() + 6
    for snapshot in snapshots:
        if (snapshot.host.driver_age_s or 0.0) > 0.5:
            break
        assert time.monotonic() < deadline
    assert snapshot.host.driver_error is not None
    assert snapshot.host.driver_error.startswith("the NVIDIA kernel driver is not loaded")
    assert [gpu.is_lost for gpu in snapshot.gpus] == [False, False]
    driver.set("driver.gone", None)
    for snapshot in snapshots:
        if snapshot.host.driver_error is None and max(gpu.age_s or 0.0 for gpu in snapshot.gpus) < 0.2:
            break
        assert time.monotonic() < deadline
    assert snapshot.gpus[1].temperature_c == 62


def test_a_driver_that_does_not_start(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """What keeps NVML from starting is raised where the snapshots are taken."""
    load(fake_driver([h100()], system={"init": 4}))
    with pytest.raises(DriverBroken, match="no permission"):
        take(sources(), 1)


def test_a_slow_start_does_not_hold_the_host_back(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While NVML takes long to start, snapshots come without GPUs; then the GPUs are there."""
    monkeypatch.setattr(live, "FIRST_READING_S", 0.2)
    driver = load(fake_driver([h100()], system={"call.nvmlInitWithFlags.hang_s": 60}))
    snapshots = iter(sources(0.1))
    first = next(snapshots)
    second = next(snapshots)
    assert (first.gpus, second.gpus) == ((), ())
    assert (second.host.driver_age_s or 0.0) > 0.2
    driver.set("call.nvmlInitWithFlags.hang_s", None)
    deadline = time.monotonic() + 5
    while not next(snapshots).gpus:
        assert time.monotonic() < deadline


def test_the_interval_changes_for_everyone(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """A new interval reaches reader and host, and ends the wait for the old one."""
    load(fake_driver([h100()]))
    host = StillHost()
    source = sources(20, host)
    snapshots = iter(source)
    next(snapshots)
    threading.Timer(0.1, lambda: setattr(source, "interval_s", 0.1)).start()
    began = time.monotonic()
    next(snapshots)
    next(snapshots)
    assert time.monotonic() - began < 1
    assert host.interval_s == 0.1
    assert source.interval_s == 0.1


def test_holders_of_idle_gpus_are_watched(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """Whoever holds a GPU below 85 % has its threads looked at; on a busy one it costs nothing."""
    driver = load(fake_driver([h100().but(utilization=40), h100()]))
    driver.set_processes(0, [Process(71, GIB)])
    driver.set_processes(1, [Process(72, GIB)])
    host = StillHost()
    take(sources(0.1, host), 2)
    assert host.watched == {71}


def test_ranks_come_with_their_gpu_and_their_processes_are_trainers(
    fake_driver: MakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that begins, speaks and ends while the monitor runs; its process is followed on a GPU or not."""
    (tmp_path / "probes").mkdir(mode=0o700)
    driver = load(fake_driver([h100()]))
    monkeypatch.setattr(layout, "directories", lambda *_: (str(tmp_path / "probes"),))
    reader = NvmlReader(0.1)
    reader.start()
    host = StillHost()
    source = LiveSource(reader, host, 0.1, inbox=Inbox())
    snapshots = iter(source)
    assert next(snapshots).ranks == ()
    with subprocess.Popen(["sleep", "60"]) as process:
        driver.set_processes(0, [Process(process.pid, GIB)])
        file = ProbeFile(tmp_path / "probes", process.pid, rank=0, world_size=1)
        file.write([(0.1, 0.02)], device=0, allocated=GIB)
        until(lambda: any(rank.gpu_uuid for rank in next(snapshots).ranks))
        assert host.trainers == {process.pid}
        file.write([(0.3, 0.02)], device=0, allocated=GIB)
        snapshot = next(snapshots)
        assert [rank.step_s for rank in snapshot.ranks] == [pytest.approx(0.3)]
        assert snapshot.ranks[0].gpu_uuid == snapshot.gpus[0].uuid
        once = read_once()
        assert [rank.pid for rank in once.ranks] == [process.pid]
        assert once.ranks[0].step_s is not None
        process.kill()
    until(lambda: not next(snapshots).ranks, 3)
    assert host.trainers == frozenset()
    source.close()


def test_a_step_of_the_clock_is_an_event(
    fake_driver: MakeDriver, sources: Callable[..., LiveSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the wall clock jumps, the interval stays what it was and the jump is said."""
    load(fake_driver([h100()]))
    snapshots = iter(sources(0.1))
    next(snapshots)
    real = time.time
    monkeypatch.setattr(live.time, "time", lambda: real() + 3600)
    snapshot = next(snapshots)
    assert snapshot.interval_s == pytest.approx(0.1, abs=0.08)
    assert [event.kind for event in snapshot.events] == ["clock-step"]
    assert snapshot.events[0].text == "the clock went 3600 s forwards"


def test_one_snapshot_for_scripts(fake_driver: MakeDriver) -> None:
    """``read_once`` has everything that one look gives: GPUs, processes, host, versions; no interval and no rates."""
    driver = load(fake_driver([h100(), a100_mig()]))
    driver.set_processes(0, [Process(os.getpid(), GIB, sm_pct=5)])
    snapshot = read_once()
    assert snapshot.interval_s is None
    assert [gpu.mig_profile for gpu in snapshot.gpus] == [None, None, "3g.20gb", "2g.10gb", "1g.5gb"]
    assert snapshot.gpus[0].power_w == pytest.approx(612, rel=0.01)
    assert snapshot.processes[0].pid == os.getpid()
    assert snapshot.processes[0].gpu_memory_bytes == {snapshot.gpus[0].uuid: GIB}
    assert snapshot.host.driver_version == "580.95.05"
    assert snapshot.host.memory_total_bytes is not None
    assert [gpu.index for gpu in read_once(["1"]).gpus] == [1, 0, 1, 2]


def test_the_source_does_not_spin(fake_driver: MakeDriver, sources: Callable[..., LiveSource]) -> None:
    """Waiting costs no CPU: neither between snapshots nor while the driver hangs."""
    driver = load(fake_driver([h100()]))
    snapshots = iter(sources(0.25))
    next(snapshots)
    driver.set("gpu.0.call.nvmlDeviceGetUtilizationRates.hang_s", 60)
    next(snapshots)
    began, began_cpu = time.monotonic(), time.thread_time()
    for _ in range(6):
        next(snapshots)
    assert time.monotonic() - began > 1.2
    assert time.thread_time() - began_cpu < 0.02
    driver.set("gpu.0.call.nvmlDeviceGetUtilizationRates.hang_s", None)
    until(lambda: next(snapshots).gpus[0].age_s < 0.2)
