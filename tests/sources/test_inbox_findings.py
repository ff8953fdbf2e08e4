"""From the bytes in probes' files to findings: the whole way, over minutes of a clock that the test moves."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders import GIB, NOON, ListSource, gpu, host, process, uuid, worker
from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.model import Finding, Snapshot
from gpumon.probe._gpumon_probe import layout
from gpumon.sources import GpuUse
from gpumon.sources.inbox import inbox as inbox_module
from gpumon.sources.inbox.inbox import Inbox
from probefile import ProbeFile, S

MIB = 1 << 20
STEP_S = 0.25
"""Two to a report."""
HEALTHY = {
    "device": 0,
    "allocated": 30 * GIB,
    "floor": 30 * GIB,
    "peak": 65 * GIB,
    "reserved": 70 * GIB,
    "active": 31 * GIB,
    "inactive_split": 2 * GIB,
    "retries": 0,
    "ooms": 0,
}
Told = Callable[[int, int], dict[str, Any]]
"""Rank and half-second -> what its slot says; ``step_s``, ``wait_s`` for its two steps, none where it stands still."""


class Clock:
    """Both clocks of the inbox."""

    def __init__(self) -> None:
        self.mono_ns = self.begun_ns = time.monotonic_ns()
        self.wall_ns = time.time_ns()

    def monotonic_ns(self) -> int:
        return self.mono_ns

    def time_ns(self) -> int:
        return self.wall_ns

    def go_on(self, nanoseconds: int) -> None:
        self.mono_ns += nanoseconds
        self.wall_ns += nanoseconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(inbox_module, "time", made)
    return made


def watched(
    directory: Path, clock: Clock, told: Told, *, ranks: int = 1, seconds: int = 200, use_pct: float = 98.0
) -> Iterator[Snapshot]:
    """What a live source would say of a job on so many GPUs whose probes tell this."""
    directory.chmod(0o700)
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(ranks)]
    try:
        pids = [one.pid for one in sleepers]
        files = [
            ProbeFile(directory, pid, rank=number, local_rank=number, world_size=ranks, framework="pytorch")
            for number, pid in enumerate(pids)
        ]
        beats = [clock.mono_ns] * ranks
        holders = {pid: GpuUse({uuid(number): 76 * GIB}, None) for number, pid in enumerate(pids)}
        gpus = tuple(gpu(number, utilization_pct=use_pct) for number in range(ranks))
        own = {"rank": None, "world_size": ranks, "ppid": 1}
        processes = tuple(process(pid, (number,), **own | {"rank": number}) for number, pid in enumerate(pids))
        processes += tuple(worker(9_000_000 + number, pid) for number, pid in enumerate(pids))
        inbox = Inbox({"GPUMON_RUNTIME_DIR": str(directory), "XDG_RUNTIME_DIR": "/nonexistent"})
        inbox._own = inbox._own[:1]
        for second in range(seconds):
            for half in (2 * second, 2 * second + 1):
                clock.go_on(S // 2)
                for number, file in enumerate(files):
                    values = told(number, half)
                    step_s, wait_s = values.pop("step_s", STEP_S), values.pop("wait_s", 0.0)
                    steps = [] if step_s is None else [(step_s, wait_s)] * 2
                    beats[number] = clock.mono_ns if steps else beats[number]
                    stamps = {"mono_ns": clock.mono_ns, "wall_ns": clock.wall_ns, "beat_ns": beats[number]}
                    file.write(steps, **{**HEALTHY, **stamps, **values})
            told_now = inbox.read(holders, gpus, (clock.mono_ns - clock.begun_ns) / S)
            yield Snapshot(
                time_s=NOON + second,
                interval_s=1.0 if second else None,
                gpus=gpus,
                processes=processes,
                host=host(),
                ranks=told_now,
            )
        inbox.close()
        for file in files:
            file.close()
    finally:
        for one in sleepers:
            one.kill()
            one.wait()


def judged(snapshots: Iterator[Snapshot]) -> Diagnosis:
    return diagnose(ListSource(snapshots), kind="live")


def findings(snapshots: Iterator[Snapshot]) -> dict[str, Finding]:
    return {alert.finding.rule: alert.finding for alert in judged(snapshots).alerts}


def test_a_healthy_job(tmp_path: Path, clock: Clock) -> None:
    """Two ranks that wait little, hold what they need and step evenly: nothing to find."""
    assert findings(watched(tmp_path, clock, lambda *_: {"wait_s": 0.002}, ranks=2, seconds=400)) == {}


def test_data_starved_is_measured(tmp_path: Path, clock: Clock) -> None:
    """Its share is the probe's: 44 % of each step, certain that it waits, whatever the cause."""
    found = findings(watched(tmp_path, clock, lambda *_: {"wait_s": 0.44 * STEP_S}, use_pct=55.0))
    finding = found["data-starved"]
    assert finding.severity == "critical"
    shares = {one.name: one.value for one in finding.evidence}
    assert shares["waits for data"] == pytest.approx(44.0, abs=1.0)
    assert next(one for one in finding.evidence if one.name == "waits for data").unit == "% of step time"
    assert shares["longest waits (p95)"] == pytest.approx(0.11, abs=0.005)


def test_memory_leak_by_the_floor(tmp_path: Path, clock: Clock) -> None:
    """A few MiB more after each step, by what is allocated between steps."""

    def told(_: int, half: int) -> dict[str, Any]:
        kept = 30 * GIB + 2 * half * 4 * MIB
        return {"floor": kept, "allocated": kept, "peak": kept + 30 * GIB}

    finding = findings(watched(tmp_path, clock, told, seconds=300))["memory-leak"]
    growth = next(one for one in finding.evidence if one.name == "growth")
    assert (finding.confidence, growth.unit) == ("likely", "MiB a step")
    assert growth.value == pytest.approx(4.0, rel=0.1)


def test_fragmentation_by_the_allocator(tmp_path: Path, clock: Clock) -> None:
    """Much reserved, little used, a third of it in pieces, and the cache had to be flushed."""

    def told(_: int, half: int) -> dict[str, Any]:
        return {"peak": 40 * GIB, "reserved": 72 * GIB, "inactive_split": 24 * GIB, "retries": half // 100}

    finding = findings(watched(tmp_path, clock, told, seconds=300))["fragmentation"]
    assert finding.evidence[0].value == pytest.approx(72.0)
    assert finding.evidence[1].value == pytest.approx(33.3, abs=0.2)


def test_collective_hang_by_heartbeat(tmp_path: Path, clock: Clock) -> None:
    """All ranks stop stepping, one of them waits for data: it is named."""

    def told(rank: int, half: int) -> dict[str, Any]:
        if half < 300:
            return {}
        waits = {"inside": layout.WAITING, "since_ns": clock.begun_ns + 150 * S} if rank == 1 else {}
        return {"step_s": None, **waits}

    finding = findings(watched(tmp_path, clock, told, ranks=2, seconds=300))["collective-hang"]
    assert (finding.severity, finding.cause) == ("critical", "rank-waits-for-data")


def test_straggler_by_the_parts_of_a_step(tmp_path: Path, clock: Clock) -> None:
    """Steps are equally long for all; the one that has to do most of it by itself holds the others up."""

    def told(rank: int, half: int) -> dict[str, Any]:
        forward_s = 0.15 if rank == 2 else 0.06
        return {"wait_s": 0.002, "forward_ns": int(2 * forward_s * S)}

    finding = findings(watched(tmp_path, clock, told, ranks=4, seconds=400))["straggler"]
    assert (finding.subject.gpu, finding.confidence) == (2, "likely")


@pytest.mark.parametrize(("copies_s", "severity"), [(0.07, "critical"), (0.03, "warning"), (0.012, None)])
def test_copies_that_the_device_timed(tmp_path: Path, clock: Clock, copies_s: float, severity: str | None) -> None:
    """Their share of each step is what the rule says of them; a twentieth is nothing to speak of."""
    found = findings(watched(tmp_path, clock, lambda *_: {"wait_s": 0.002, "h2d_ns": int(2 * copies_s * S)}))
    assert (found["h2d-slow"].severity if "h2d-slow" in found else None) == severity
    if severity is not None:
        assert found["h2d-slow"].evidence[0].value == pytest.approx(100 * copies_s / STEP_S, abs=1.0)


def test_a_loss_that_is_nan(tmp_path: Path, clock: Clock) -> None:
    flags = layout.LOSS_IS_KNOWN | layout.LOSS_IS_NAN
    found = findings(watched(tmp_path, clock, lambda _, half: {"flags": flags if half > 200 else layout.LOSS_IS_KNOWN}))
    assert "loss-nan" in found
