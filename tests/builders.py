"""Small builders of records for tests: sensible values, and what a test is about given by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpumon.alerts import Headline
from gpumon.history import History
from gpumon.model import Alert, Event, Finding, Gpu, Host, Job, Process, Rank, Snapshot, Subject
from gpumon.monitor import Frame, SourceInfo

NOON = 1_796_127_600.0
"""A whole minute: 2026-12-01 12:20:00 UTC."""
GIB = 1024**3


def uuid(index: int) -> str:
    """The uuid that ``gpu(index)`` has."""
    return f"GPU-{index:08d}"


def gpu(index: int = 0, **fields: Any) -> Gpu:
    """A busy, healthy H100; any field may be replaced, also by None."""
    values: dict[str, Any] = {
        "uuid": uuid(index),
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_pct": 98.0,
        "memory_used_bytes": 76 * GIB,
        "memory_total_bytes": 80 * GIB,
        "power_w": 640.0,
        "power_limit_w": 700.0,
        "power_default_limit_w": 700.0,
        "temperature_c": 62.0,
        "temperature_max_c": 87.0,
        "sm_clock_mhz": 1755.0,
        "sm_clock_max_mhz": 1980.0,
        "performance_state": "P0",
        "clocks_event_reasons": ("sw_power_cap",),
        "throttled_pct": {"sw_power_cap": 90.0, "sw_thermal": 0.0, "hw_thermal": 0.0, "hw_power_brake": 0.0},
        "age_s": 0.0,
    }
    return Gpu(**{**values, **fields})


def process(pid: int = 4242, gpus: Sequence[int] = (0,), **fields: Any) -> Process:
    """A trainer on some GPUs that has run for two hours; ``gpus=()`` makes a helper."""
    values: dict[str, Any] = {
        "pid": pid,
        "started_s": NOON - 7200.0,
        "user": "ana",
        "name": "python",
        "command": "python train.py",
        "state": "S",
        "gpu_memory_bytes": {uuid(index): 76 * GIB for index in gpus},
        "cpu_pct": 60.0,
        "main_thread_cpu_pct": 50.0,
        "main_thread_state": "S",
        "role": "trainer" if gpus else "other",
        "framework": "torch" if gpus else None,
        "cpus_allowed": 16,
    }
    return Process(**{**values, **fields})


def worker(pid: int, ppid: int = 4242, **fields: Any) -> Process:
    """A dataloader worker that is half busy."""
    values: dict[str, Any] = {
        "ppid": ppid,
        "role": "dataloader-worker",
        "name": "pt_data_worker",
        "cpu_pct": 40.0,
        "main_thread_cpu_pct": 40.0,
        "disk_wait_pct": 0.0,
        "run_delay_pct": 0.0,
        "read_bytes_per_s": 1e6,
        "rchar_bytes_per_s": 2e7,
    }
    return process(pid, (), **{**values, **fields})


def rank(pid: int = 4242, **fields: Any) -> Rank:
    """What the probe in a healthy trainer reports: two steps a second, hardly any wait, memory that stays."""
    values: dict[str, Any] = {
        "pid": pid,
        "framework": "torch",
        "phase": "train",
        "step": 10_000,
        "step_s": 0.5,
        "data_wait_s": 0.005,
        "forward_s": 0.16,
        "waiting_s": 0.0,
        "pause_s": 0.0,
        "allocated_bytes": 60 * GIB,
        "allocated_peak_bytes": 68 * GIB,
        "allocated_min_bytes": 58 * GIB,
        "reserved_bytes": 74 * GIB,
        "inactive_split_bytes": 2 * GIB,
        "alloc_retries": 0,
        "ooms": 0,
        "allocator": "native",
        "heartbeat_age_s": 0.2,
    }
    return Rank(**{**values, **fields})


def host(**fields: Any) -> Host:
    """A machine of 16 cores with little to do."""
    values: dict[str, Any] = {
        "name": "node07",
        "driver_version": "580.95",
        "driver_age_s": 0.0,
        "sees_host_pids": True,
        "cpu_count": 16,
        "cpu_pct": 25.0,
        "memory_total_bytes": 126 * GIB,
        "memory_available_bytes": 85 * GIB,
        "cpu_pressure_pct": 0.0,
        "io_pressure_pct": 0.0,
        "memory_pressure_pct": 0.0,
        "disk_read_bytes_per_s": 1e6,
        "disk_busy_pct": 2.0,
        "net_rx_bytes_per_s": 1e5,
    }
    return Host(**{**values, **fields})


def job(**fields: Any) -> Job:
    """A job that trains on GPU 0."""
    values: dict[str, Any] = {
        "id": "4242:1",
        "name": "train.py",
        "kind": "training",
        "phase": "train",
        "user": "ana",
        "gpu_uuids": (uuid(0),),
        "trainers": (4242,),
        "started_s": NOON - 7200.0,
    }
    return Job(**{**values, **fields})


def snapshot(
    time_s: float = NOON,
    gpus: Iterable[Gpu] | None = None,
    processes: Iterable[Process] | None = None,
    events: Iterable[Event] = (),
    interval_s: float | None = 1.0,
    host_: Host | None = None,
    ranks: Iterable[Rank] = (),
) -> Snapshot:
    """One instant; by default one GPU with one trainer."""
    return Snapshot(
        time_s=time_s,
        interval_s=interval_s,
        gpus=(gpu(),) if gpus is None else tuple(gpus),
        processes=(process(),) if processes is None else tuple(processes),
        host=host_ or host(),
        ranks=tuple(ranks),
        events=tuple(events),
    )


def snapshots(count: int, interval_s: float = 1.0, start_s: float = NOON, **fields: Any) -> Iterator[Snapshot]:
    """The same instant over and over, ``interval_s`` apart."""
    for number in range(count):
        yield snapshot(start_s + number * interval_s, interval_s=interval_s if number else None, **fields)


def finding(rule: str = "sw-thermal", index: int = 0, **fields: Any) -> Finding:
    """A finding about a GPU."""
    values: dict[str, Any] = {
        "rule": rule,
        "severity": "warning",
        "confidence": "certain",
        "subject": Subject(kind="gpu", gpu=index, uuid=uuid(index)),
        "summary": f"GPU {index} throttles at its temperature limit",
        "cause_text": "87 °C, limit 87",
        "fix_text": f"airflow at GPU {index}",
        "fixes": (f"airflow at GPU {index}",),
    }
    return Finding(**{**values, **fields})


def alert(**fields: Any) -> Alert:
    """A firing alert, raised six minutes ago."""
    values: dict[str, Any] = {
        "finding": finding(),
        "state": "firing",
        "since_s": NOON - 360.0,
        "raised_s": NOON - 240.0,
    }
    return Alert(**{**values, **fields})


def frame(
    series: Iterable[Snapshot] | None = None,
    *,
    alerts: Iterable[Alert] = (),
    headline: Headline | None = None,
    jobs: Iterable[Job] = (),
    kind: Any = "live",
    name: str = "node07",
) -> Frame:
    """A frame as the screen gets it, without a source: its window holds ``series``."""
    history = History()
    for taken in snapshots(30) if series is None else series:
        window = history.append(taken, tuple(jobs))
    return Frame(
        window=window,
        alerts=tuple(alerts),
        abstained=(),
        headline=headline or Headline(state="healthy", text="1 job, 1 GPU busy"),
        info=SourceInfo(kind=kind, name=name),
        sample_ms=4.0,
    )


class ListSource:
    """A source that yields what it was given."""

    kind: Any = "demo"

    def __init__(self, series: Iterable[Snapshot], name: str = "given") -> None:
        self.series = series
        self.name = name
        self.is_closed = False

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self.series)

    def close(self) -> None:
        """Nothing to stop."""
        self.is_closed = True
