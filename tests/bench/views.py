"""What a monitor gets to see: fields that are missing, samples that are dropped, clocks that jump, containers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpumon.model import Event, Snapshot
from tests.bench.plan import Eye, See

_GPM = (
    "graphics_active_pct",
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "fp32_active_pct",
    "fp64_active_pct",
    "nvlink_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
)
_OFTEN_MISSING = (
    "fan_pct",
    "memory_temperature_c",
    "memory_temperature_max_c",
    "temperature_slowdown_c",
    "temperature_max_c",
    "power_limit_w",
    "power_default_limit_w",
    "energy_j",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
    "pcie_replays",
    "utilization_samples_pct",
    "memory_utilization_pct",
    "performance_state",
    "ecc_uncorrected",
    "remap_pending",
    "compute_capability",
)
_OF_PROCESSES = (
    "rchar_bytes_per_s",
    "run_delay_pct",
    "memory_pss_bytes",
    "memory_private_bytes",
    "environment",
    "libraries",
)


def without_gpm(snapshot: Snapshot, _eye: Eye) -> Snapshot:
    """A card or driver without GPM."""
    blank = dict.fromkeys(_GPM)
    gpus = tuple(
        gpu if gpu.is_lost or gpu.mig_parent_uuid else msgspec.structs.replace(gpu, **blank) for gpu in snapshot.gpus
    )
    return msgspec.structs.replace(snapshot, gpus=gpus)


def without_probe(snapshot: Snapshot, _eye: Eye) -> Snapshot:
    """No probe in the training processes."""
    return msgspec.structs.replace(snapshot, ranks=())


def without_fields(snapshot: Snapshot, eye: Eye) -> Snapshot:
    """Half a dozen fields that this driver does not report, the same all the time."""
    if not eye.names:
        eye.names = tuple(eye.rng.sample(_OFTEN_MISSING, 6))
        eye.process_names = tuple(eye.rng.sample(_OF_PROCESSES, 2))
    blank: dict[str, object] = dict.fromkeys(eye.names)
    if "utilization_samples_pct" in blank:
        blank["utilization_samples_pct"] = ()
    gpus = tuple(gpu if gpu.is_lost else msgspec.structs.replace(gpu, **blank) for gpu in snapshot.gpus)
    processes = tuple(msgspec.structs.replace(one, **dict.fromkeys(eye.process_names)) for one in snapshot.processes)
    return msgspec.structs.replace(snapshot, gpus=gpus, processes=processes)


def in_container(snapshot: Snapshot, _eye: Eye) -> Snapshot:
    """The driver's PIDs are the host's: no process can be looked up."""
    host = msgspec.structs.replace(
        snapshot.host, sees_host_pids=False, processes_hidden="PIDs belong to the host", oom_kills=None
    )
    events = tuple(event for event in snapshot.events if event.kind != "process-exit")
    return msgspec.structs.replace(snapshot, host=host, processes=(), ranks=(), events=events)


def with_dropped(share: float) -> See:
    """Some samples never arrive; the next one covers their time."""

    def see(snapshot: Snapshot, eye: Eye) -> Snapshot | None:
        if snapshot.interval_s is None:
            return snapshot
        if eye.rng.random() < share:
            eye.memory["missed_s"] = eye.memory.get("missed_s", 0.0) + snapshot.interval_s
            eye.events += snapshot.events
            return None
        missed_s, events = eye.memory.pop("missed_s", 0.0), eye.events
        if not missed_s:
            return snapshot
        eye.events = ()
        return msgspec.structs.replace(
            snapshot, interval_s=snapshot.interval_s + missed_s, events=(*events, *snapshot.events)
        )

    return see


def with_resets(snapshot: Snapshot, eye: Eye) -> Snapshot:
    """The driver is loaded anew half-way: its counters begin at nothing."""
    if eye.age_s(snapshot) < 500.0:
        return snapshot
    base = eye.memory
    gpus = []
    for gpu in snapshot.gpus:
        changes: dict[str, object] = {}
        for name in ("energy_j", "pcie_replays", "nvlink_crc_errors", "nvlink_errors", "ecc_corrected"):
            value = getattr(gpu, name)
            if value is not None:
                start = base.setdefault(f"{gpu.uuid} {name}", value)
                changes[name] = type(value)(value - start)
        gpus.append(msgspec.structs.replace(gpu, **changes))
    return msgspec.structs.replace(snapshot, gpus=tuple(gpus))


def with_clock_jumps(snapshot: Snapshot, eye: Eye) -> Snapshot:
    """NTP sets the clock back an hour, later the machine sleeps for twenty minutes."""
    age = eye.age_s(snapshot)
    shift, events = 0.0, snapshot.events
    if age >= 400.0:
        shift -= 3600.0
        if not eye.memory.get("stepped"):
            eye.memory["stepped"] = 1.0
            events = (*events, Event(kind="clock-step", text="-3600 s"))
    interval = snapshot.interval_s
    if age >= 800.0:
        shift += 1200.0
        if not eye.memory.get("slept"):
            eye.memory["slept"] = 1.0
            interval = (interval or 1.0) + 1200.0
            events = (*events, Event(kind="gap", text="1200 s"))
    return msgspec.structs.replace(snapshot, time_s=snapshot.time_s + shift, interval_s=interval, events=events)


def with_others_hidden(snapshot: Snapshot, _eye: Eye) -> Snapshot:
    """Processes of another user: names and memory are known, times and files are not."""
    blank = dict.fromkeys(
        (
            "main_thread_cpu_pct",
            "main_thread_state",
            "disk_wait_pct",
            "run_delay_pct",
            "read_bytes_per_s",
            "write_bytes_per_s",
            "rchar_bytes_per_s",
            "environment",
            "libraries",
            "threads",
            "memory_pss_bytes",
            "memory_private_bytes",
            "data_filesystem",
            "open_gpus",
        )
    )
    processes = tuple(msgspec.structs.replace(one, **blank) for one in snapshot.processes)
    return msgspec.structs.replace(snapshot, processes=processes)


def on_battery(snapshot: Snapshot, _eye: Eye) -> Snapshot:
    """A laptop without its charger."""
    gpus = tuple(msgspec.structs.replace(gpu, power_source="battery") for gpu in snapshot.gpus)
    return msgspec.structs.replace(snapshot, gpus=gpus)


def seen(snapshot: Snapshot, sees: Sequence[See], eye: Eye) -> Snapshot | None:
    """Through all of them, one after another."""
    found: Snapshot | None = snapshot
    for see in sees:
        if found is None:
            return None
        found = see(found, eye)
    if found is None:
        return None
    # Nobody tells a monitor why a process has ended.
    events = tuple(
        msgspec.structs.replace(event, text=None) if event.kind == "process-exit" else event for event in found.events
    )
    return msgspec.structs.replace(found, events=events) if events else found
