"""What ``nvidia-smi -q`` shows of snapshots, as a tree that is written as text or as XML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from gpumon.model import Gpu, Process, Snapshot

MIB = 1024**2
NONE = "N/A"


class Node(NamedTuple):
    """A field with its two names, or a section of them."""

    name: str
    tag: str
    cell: str | None = None
    parts: Sequence[Node] = ()


class Card(NamedTuple):
    bus: str
    nodes: Sequence[Node]
    processes: Sequence[Sequence[Node]]


class Dump(NamedTuple):
    head: Sequence[Node]
    cards: Sequence[Card]


REASONS = (
    ("Idle", "gpu_idle", "gpu_idle"),
    ("Applications Clocks Setting", "applications_clocks_setting", "app_clocks"),
    ("SW Power Cap", "sw_power_cap", "sw_power_cap"),
    ("HW Slowdown", "hw_slowdown", "hw_slowdown"),
    ("HW Thermal Slowdown", "hw_thermal_slowdown", "hw_thermal"),
    ("HW Power Brake Slowdown", "hw_power_brake_slowdown", "hw_power_brake"),
    ("Sync Boost", "sync_boost", "sync_boost"),
    ("SW Thermal Slowdown", "sw_thermal_slowdown", "sw_thermal"),
    ("Display Clock Setting", "display_clocks_setting", "display_clock"),
)
COUNTERS = (
    ("SW Power Capping", "sw_power_cap", "sw_power_cap"),
    ("Sync Boost", "sync_boost", "sync_boost"),
    ("SW Thermal Slowdown", "sw_therm_slowdown", "sw_thermal"),
    ("HW Thermal Slowdown", "hw_therm_slowdown", "hw_thermal"),
    ("HW Power Braking", "hw_power_brake", "hw_power_brake"),
)
ACTIONS = ("None", "Reset", "Reboot", "Drain P2P", "Drain and Reset")


def dumps(snapshots: Iterable[Snapshot]) -> Iterator[Dump]:
    """One dump a snapshot; the limiters' counters grow from one to the next."""
    counters: dict[str, dict[str, float]] = {}
    for snapshot in snapshots:
        for gpu in snapshot.gpus:
            mine = counters.setdefault(gpu.uuid, {})
            for name, share in (gpu.throttled_pct or {}).items():
                mine[name] = mine.get(name, 0.0) + 1e4 * share * (snapshot.interval_s or 0.0)
        yield _dump(snapshot, counters)


def _dump(snapshot: Snapshot, counters: dict[str, dict[str, float]]) -> Dump:
    cards = [gpu for gpu in snapshot.gpus if gpu.mig_parent_uuid is None]
    host = snapshot.host
    moment = datetime.fromtimestamp(snapshot.time_s, tz=timezone.utc)
    head = (
        Node("Timestamp", "timestamp", moment.ctime()),
        Node("Driver Version", "driver_version", host.driver_version or NONE),
        Node("CUDA Version", "cuda_version", host.cuda_version or NONE),
        Node("Attached GPUs", "attached_gpus", str(len(cards))),
    )
    return Dump(head, [_card(snapshot, gpu, counters[gpu.uuid]) for gpu in cards])


def _card(snapshot: Snapshot, gpu: Gpu, counters: dict[str, float]) -> Card:
    instances = [one for one in snapshot.gpus if one.mig_parent_uuid == gpu.uuid]
    nodes = _lost(gpu) if gpu.is_lost else tuple(_nodes(gpu, instances, counters))
    places = {gpu.uuid: (NONE, NONE)} | {one.uuid: (str(one.index + 1), "0") for one in instances}
    found = [
        _process(process, *places[uuid], held)
        for process in snapshot.processes
        for uuid, held in process.gpu_memory_bytes.items()
        if uuid in places
    ]
    return Card(gpu.pci_bus_id or f"00000000:{gpu.index + 16:02X}:00.0", nodes, found)


def _process(process: Process, gpu_instance: str, compute_instance: str, held: int | None) -> tuple[Node, ...]:
    return (
        Node("GPU instance ID", "gpu_instance_id", gpu_instance),
        Node("Compute instance ID", "compute_instance_id", compute_instance),
        Node("Process ID", "pid", str(process.pid)),
        Node("Type", "type", "C"),
        Node("Name", "process_name", process.command or process.name or NONE),
        Node("Used GPU Memory", "used_memory", _mib(held)),
    )


def _lost(gpu: Gpu) -> tuple[Node, ...]:
    error = "Unknown Error"
    return (
        Node("Product Name", "product_name", gpu.name or NONE),
        Node("GPU UUID", "uuid", gpu.uuid),
        Node("Minor Number", "minor_number", str(gpu.index)),
        Node("Fan Speed", "fan_speed", error),
        Node("Utilization", "utilization", None, (Node("Gpu", "gpu_util", error),)),
        Node("Temperature", "temperature", None, (Node("GPU Current Temp", "gpu_temp", error),)),
        Node("GPU Power Readings", "gpu_power_readings", None, (Node("Power Draw", "power_draw", error),)),
    )


def _nodes(gpu: Gpu, instances: Sequence[Gpu], counters: dict[str, float]) -> Iterator[Node]:
    yield Node("Product Name", "product_name", gpu.name or NONE)
    yield Node("Persistence Mode", "persistence_mode", _flag(gpu.persistence, "Enabled", "Disabled"))
    mig = _flag(gpu.mig_enabled, "Enabled", "Disabled")
    yield Node("MIG Mode", "mig_mode", None, (Node("Current", "current_mig", mig), Node("Pending", "pending_mig", mig)))
    if instances:
        yield Node("", "mig_devices", None, [_instance(one) for one in instances])
    yield Node("GPU UUID", "uuid", gpu.uuid)
    yield Node("Minor Number", "minor_number", str(gpu.index))
    action = gpu.recovery_action
    yield Node("GPU Recovery Action", "gpu_recovery_action", NONE if action is None else ACTIONS[action])
    yield _pci(gpu)
    yield Node("Fan Speed", "fan_speed", _with("%", gpu.fan_pct))
    yield Node("Performance State", "performance_state", gpu.performance_state or NONE)
    yield from _limiters(gpu, counters)
    yield _memory("FB Memory Usage", "fb_memory_usage", gpu)
    other = (Node("Total", "total", "131072 MiB"), Node("Used", "used", "1 MiB"), Node("Free", "free", "131071 MiB"))
    yield Node("BAR1 Memory Usage", "bar1_memory_usage", None, other)
    yield Node("Compute Mode", "compute_mode", (gpu.compute_mode or NONE).title())
    yield Node(
        "Utilization",
        "utilization",
        None,
        (
            Node("GPU", "gpu_util", _with("%", gpu.utilization_pct)),
            Node("Memory", "memory_util", _with("%", gpu.memory_utilization_pct)),
            Node("Encoder", "encoder_util", _with("%", gpu.encoder_pct)),
            Node("Decoder", "decoder_util", _with("%", gpu.decoder_pct)),
        ),
    )
    yield from _errors(gpu)
    yield from _sensors(gpu)
    state = (gpu.fabric_state or NONE).replace("-", " ").title()
    yield Node("Fabric", "fabric", None, (Node("State", "state", state),))


def _pci(gpu: Gpu) -> Node:
    generation = (
        Node("Max", "max_link_gen", _number(gpu.pcie_gen_max)),
        Node("Current", "current_link_gen", _number(gpu.pcie_gen)),
        Node("Host Max", "max_host_link_gen", NONE),
    )
    width = (
        Node("Max", "max_link_width", _number(gpu.pcie_width_max, "x")),
        Node("Current", "current_link_width", _number(gpu.pcie_width, "x")),
    )
    return Node(
        "PCI",
        "pci",
        None,
        (
            Node(
                "GPU Link Info",
                "pci_gpu_link_info",
                None,
                (
                    Node("PCIe Generation", "pcie_gen", None, generation),
                    Node("Link Width", "link_widths", None, width),
                ),
            ),
            Node("Replays Since Reset", "replay_counter", _number(gpu.pcie_replays)),
            Node("Tx Throughput", "tx_util", _kb(gpu.pcie_tx_bytes_per_s)),
            Node("Rx Throughput", "rx_util", _kb(gpu.pcie_rx_bytes_per_s)),
        ),
    )


def _limiters(gpu: Gpu, counters: dict[str, float]) -> Iterator[Node]:
    active = gpu.clocks_event_reasons
    if active is None:
        yield Node("Clocks Event Reasons", "clocks_event_reasons", NONE)
    else:
        parts = [
            Node(name, f"clocks_event_reason_{tag}", "Active" if reason in active else "Not Active")
            for name, tag, reason in REASONS
        ]
        yield Node("Clocks Event Reasons", "clocks_event_reasons", None, parts)
    if counters:
        parts = [
            Node(name, f"clocks_event_reasons_counters_{tag}", f"{counters[reason]:.0f} us")
            for name, tag, reason in COUNTERS
            if reason in counters
        ]
        yield Node("Clocks Event Reasons Counters", "clocks_event_reasons_counters", None, parts)


def _errors(gpu: Gpu) -> Iterator[Node]:
    now, later = (_flag(value, "Enabled", "Disabled") for value in (gpu.ecc_enabled, gpu.ecc_enabled_pending))
    modes = (Node("Current", "current_ecc", now), Node("Pending", "pending_ecc", later))
    yield Node("ECC Mode", "ecc_mode", None, modes)
    counts = (
        Node("DRAM Correctable", "dram_correctable", _number(gpu.ecc_corrected)),
        Node("DRAM Uncorrectable", "dram_uncorrectable", _number(gpu.ecc_uncorrected)),
    )
    lifetime = (Node("SRAM Uncorrectable Parity", "sram_uncorrectable_parity", _number(gpu.ecc_sram_uncorrected)),)
    parts = (Node("Volatile", "volatile", None, counts), Node("Aggregate", "aggregate", None, lifetime))
    yield Node("ECC Errors", "ecc_errors", None, parts)
    rows = (
        Node("Correctable Error", "remapped_row_corr", _number(gpu.remapped_rows_corrected)),
        Node("Uncorrectable Error", "remapped_row_unc", _number(gpu.remapped_rows_uncorrected)),
        Node("Pending", "remapped_row_pending", _flag(gpu.remap_pending, "Yes", "No")),
        Node("Remapping Failure Occurred", "remapped_row_failure", _flag(gpu.remap_failed, "Yes", "No")),
    )
    yield Node("Remapped Rows", "remapped_rows", None, rows)


def _sensors(gpu: Gpu) -> Iterator[Node]:
    yield Node(
        "Temperature",
        "temperature",
        None,
        (
            Node("GPU Current Temp", "gpu_temp", _with("C", gpu.temperature_c)),
            Node("GPU T.Limit Temp", "gpu_temp_tlimit", _with("C", gpu.temperature_margin_c)),
            Node("GPU Shutdown Temp", "gpu_temp_max_threshold", _with("C", gpu.temperature_shutdown_c)),
            Node("GPU Slowdown Temp", "gpu_temp_slow_threshold", _with("C", gpu.temperature_slowdown_c)),
            Node("GPU Max Operating Temp", "gpu_temp_max_gpu_threshold", _with("C", gpu.temperature_max_c)),
            Node("Memory Current Temp", "memory_temp", _with("C", gpu.memory_temperature_c)),
            Node("Memory Max Operating Temp", "gpu_temp_max_mem_threshold", _with("C", gpu.memory_temperature_max_c)),
        ),
    )
    yield Node(
        "GPU Power Readings",
        "gpu_power_readings",
        None,
        (
            Node("Average Power Draw", "average_power_draw", _watts(gpu.power_w)),
            Node("Current Power Limit", "current_power_limit", _watts(gpu.power_limit_w)),
            Node("Default Power Limit", "default_power_limit", _watts(gpu.power_default_limit_w)),
        ),
    )
    for name, tag, sm, memory in (
        ("Clocks", "clocks", gpu.sm_clock_mhz, gpu.memory_clock_mhz),
        ("Max Clocks", "max_clocks", gpu.sm_clock_max_mhz, gpu.memory_clock_max_mhz),
    ):
        parts = (
            Node("Graphics", "graphics_clock", _with("MHz", sm)),
            Node("SM", "sm_clock", _with("MHz", sm)),
            Node("Memory", "mem_clock", _with("MHz", memory)),
        )
        yield Node(name, tag, None, parts)


def _instance(gpu: Gpu) -> Node:
    shared = Node(
        "Shared", "shared", None, (Node("Multiprocessor count", "multiprocessor_count", _number(gpu.sm_count)),)
    )
    parts = (
        Node("Index", "index", str(gpu.index)),
        Node("GPU Instance ID", "gpu_instance_id", str(gpu.index + 1)),
        Node("Compute Instance ID", "compute_instance_id", "0"),
        Node("Device Attributes", "device_attributes", None, (shared,)),
        _memory("Shared FB Memory Usage", "fb_memory_usage", gpu),
    )
    return Node("MIG Device", "mig_device", None, parts)


def _memory(name: str, tag: str, gpu: Gpu) -> Node:
    parts = (
        Node("Total", "total", _mib(gpu.memory_total_bytes)),
        Node("Reserved", "reserved", _mib(gpu.memory_reserved_bytes)),
        Node("Used", "used", _mib(gpu.memory_used_bytes)),
    )
    return Node(name, tag, None, parts)


def _mib(value: float | None) -> str:
    return NONE if value is None else f"{value / MIB:.0f} MiB"


def _kb(value: float | None) -> str:
    return NONE if value is None else f"{value / 1024:.0f} KB/s"


def _watts(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} W"


def _with(unit: str, value: float | None) -> str:
    return NONE if value is None else f"{value:.0f} {unit}"


def _number(value: float | None, unit: str = "") -> str:
    return NONE if value is None else f"{value:.0f}{unit}"


def _flag(value: bool | None, yes: str, no: str) -> str:
    return NONE if value is None else yes if value else no
