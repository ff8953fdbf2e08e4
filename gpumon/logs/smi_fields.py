"""Knows what nvidia-smi calls each fact about a GPU, as text (-q) and as XML (-q -x), through all its generations."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from gpumon.logs.values import byte_count, integer, is_missing, number

Read = Callable[[str], Any]
"""A cell's value; None where it has none."""

ANYWHERE = ""
"""Section of a field whose name is its own, wherever it stands."""

_KIB = 1024.0
_HOTTEST_C = 250.0
_HIGHEST_W = 100_000.0
_FASTEST_MHZ = 100_000.0
_MOST = 2**53
"""Of counts and of bytes."""


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """``GPU T.Limit Temp`` as ``gpu_t_limit_temp``."""
    return re.sub(r"[^a-z0-9]+", "_", name[:100].lower()).strip("_")


# --- cells -----------------------------------------------------------------------------------------


def words(cell: str) -> str | None:
    """A name or a version."""
    return None if is_missing(cell) else cell.strip()


def _between(low: float, high: float) -> Read:
    def read(cell: str) -> float | None:
        value = number(cell)
        return value if value is not None and low <= value <= high else None

    return read


def _above_0(high: float) -> Read:
    """For what is 0 only where nothing answers: limits, clocks, temperatures."""

    def read(cell: str) -> float | None:
        value = number(cell)
        return value if value is not None and 0.0 < value <= high else None

    return read


percent = _between(0.0, 100.0)
_fan = _between(0.0, 300.0)  # more than 100 where it may run above its rating
watts = _between(0.0, _HIGHEST_W)
limit_watts = _above_0(_HIGHEST_W)
degrees = _above_0(_HOTTEST_C)
megahertz = _above_0(_FASTEST_MHZ)


def count(cell: str) -> int | None:
    """A number of things."""
    value = integer(cell)
    return value if value is not None and 0 <= value <= _MOST else None


def size(cell: str) -> int | None:
    """Bytes of memory."""
    value = byte_count(cell)
    return value if value is not None and value <= _MOST else None


def _lanes(cell: str) -> int | None:
    value = count(cell)
    return value or None


def _kib_per_s(cell: str) -> float | None:
    value = number(cell)
    return value * _KIB if value is not None and value >= 0 else None


def flag(cell: str) -> bool | None:
    """``Enabled``, ``Yes``, ``Active`` and their opposites."""
    word = cell.strip().lower()
    if word in {"enabled", "yes", "active", "on"}:
        return True
    return False if word in {"disabled", "no", "not active", "off"} else None


def _state(cell: str) -> str | None:
    word = cell.strip().upper()
    return word if re.fullmatch(r"P\d{1,2}", word) else None


def _compute_mode(cell: str) -> str | None:
    word = cell.strip().lower().replace("_", "-").replace(" ", "-")
    return word if word in {"default", "prohibited", "exclusive-process", "exclusive-thread"} else None


def _fabric(cell: str) -> str | None:
    word = cell.strip().lower().replace(" ", "-")
    return word if word in {"not-supported", "not-started", "in-progress", "completed"} else None


_ACTIONS = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
    "recover imex": 5,
    "bus reset": 6,
    "gpu bus reset": 6,
    "system reboot": 7,
}


def _action(cell: str) -> int | None:
    return _ACTIONS.get(cell.strip().lower())


def _wish(action: int) -> Read:
    """Before the driver named an action, it asked for each by a field of its own."""
    return lambda cell: action if flag(cell) else None


# --- names -----------------------------------------------------------------------------------------


class Field(NamedTuple):
    """Where a fact is found."""

    fact: str
    read: Read
    rank: int
    """Of several cells with the same fact the lowest rank is believed."""


_LIMIT = "power_limit"
POWER = "gpu_power_readings power_readings"
_GENERATION, _WIDTH = "pcie_generation pcie_gen", "link_width link_widths"
MEMORY = "fb_memory_usage shared_fb_memory_usage memory_usage"
_ROWS = (
    # sections, names (the best first), fact, how a cell is read
    (ANYWHERE, "product_name", "name", words),
    (ANYWHERE, "performance_state", "performance_state", _state),
    (ANYWHERE, "fan_speed", "fan_pct", _fan),
    (ANYWHERE, "persistence_mode", "persistence", flag),
    (ANYWHERE, "compute_mode", "compute_mode", _compute_mode),
    (ANYWHERE, "gpu_recovery_action", "recovery_action", _action),
    (ANYWHERE, "drain_and_reset_recommended", "recovery_action", _wish(4)),
    (ANYWHERE, "reset_required", "recovery_action", _wish(1)),
    (ANYWHERE, "replays_since_reset replay_counter", "pcie_replays", count),
    (ANYWHERE, "tx_throughput tx_util", "pcie_tx_bytes_per_s", _kib_per_s),
    (ANYWHERE, "rx_throughput rx_util", "pcie_rx_bytes_per_s", _kib_per_s),
    (ANYWHERE, "multiprocessor_count", "sm_count", count),
    ("mig_mode", "current current_mig", "mig_enabled", flag),
    ("ecc_mode", "current current_ecc", "ecc_enabled", flag),
    ("ecc_mode", "pending pending_ecc", "ecc_enabled_pending", flag),
    (_GENERATION, "current current_link_gen", "pcie_gen", _lanes),
    (_GENERATION, "max max_link_gen", "pcie_gen_max", _lanes),
    (_GENERATION, "device_max max_device_link_gen", "pcie_gen_max", _lanes),
    (_GENERATION, "host_max max_host_link_gen", "pcie_gen_max", _lanes),
    (_WIDTH, "current current_link_width", "pcie_width", _lanes),
    (_WIDTH, "max max_link_width", "pcie_width_max", _lanes),
    (MEMORY, "total", "memory_total_bytes", size),
    (MEMORY, "reserved", "memory_reserved_bytes", size),
    (MEMORY, "used", "memory_used_bytes", size),
    ("utilization", "gpu gpu_util", "utilization_pct", percent),
    ("utilization", "memory memory_util", "memory_utilization_pct", percent),
    ("utilization", "encoder encoder_util", "encoder_pct", percent),
    ("utilization", "decoder decoder_util", "decoder_pct", percent),
    ("temperature", "gpu_current_temp gpu_temp gpu", "temperature_c", degrees),
    ("temperature", "gpu_t_limit_temp gpu_temp_tlimit", "temperature_margin_c", degrees),
    ("temperature", "gpu_shutdown_temp gpu_temp_max_threshold", "temperature_shutdown_c", degrees),
    ("temperature", "gpu_slowdown_temp gpu_temp_slow_threshold", "temperature_slowdown_c", degrees),
    ("temperature", "gpu_max_operating_temp gpu_temp_max_gpu_threshold", "temperature_max_c", degrees),
    ("temperature", "memory_current_temp memory_temp", "memory_temperature_c", degrees),
    ("temperature", "memory_max_operating_temp gpu_temp_max_mem_threshold", "memory_temperature_max_c", degrees),
    (POWER, "power_draw average_power_draw instantaneous_power_draw instant_power_draw", "power_w", watts),
    (POWER, f"enforced_{_LIMIT} current_{_LIMIT} {_LIMIT} requested_{_LIMIT}", "power_limit_w", limit_watts),
    (POWER, "default_power_limit", "power_default_limit_w", limit_watts),
    ("clocks", "sm sm_clock graphics graphics_clock", "sm_clock_mhz", megahertz),
    ("clocks", "memory mem_clock", "memory_clock_mhz", megahertz),
    ("max_clocks", "sm sm_clock graphics graphics_clock", "sm_clock_max_mhz", megahertz),
    ("max_clocks", "memory mem_clock", "memory_clock_max_mhz", megahertz),
    ("fabric", "state", "fabric_state", _fabric),
    ("remapped_rows", "correctable_error remapped_row_corr", "remapped_rows_corrected", count),
    ("remapped_rows", "uncorrectable_error remapped_row_unc", "remapped_rows_uncorrected", count),
    ("remapped_rows", "pending remapped_row_pending", "remap_pending", flag),
    ("remapped_rows", "remapping_failure_occurred remapped_row_failure", "remap_failed", flag),
)
FIELDS: dict[tuple[str, str], Field] = {
    (section, name): Field(fact, read, rank)
    for sections, names, fact, read in _ROWS
    for section in sections.split(" ")
    for rank, name in enumerate(names.split(" "))
}

LOWEST = frozenset({"pcie_gen_max"})
"""What card, slot and system each limit: the smallest counts."""

_SRAM_LOST = "sram_uncorrectable sram_uncorrectable_parity sram_uncorrectable_sec_ded sram_uncorrectable_secded"
SUMMED = {
    (section, name): fact
    for sections, names, fact in (
        ("volatile", "sram_correctable dram_correctable", "ecc_corrected"),
        (
            "volatile",
            f"{_SRAM_LOST} dram_uncorrectable",
            "ecc_uncorrected",
        ),
        ("aggregate", _SRAM_LOST, "ecc_sram_uncorrected"),
        ("volatile/single_bit", "total", "ecc_corrected"),
        ("volatile/double_bit", "total", "ecc_uncorrected"),
    )
    for section in sections.split(" ")
    for name in names.split(" ")
}
"""Counts of errors that are given in parts."""
TOLD_APART = frozenset({"single_bit", "double_bit"})
"""Sections that stand in ``volatile`` and in ``aggregate``, so those are part of their names."""

REASONS = {
    "gpu_idle": "gpu_idle",
    "idle": "gpu_idle",
    "applications_clocks_setting": "app_clocks",
    "user_defined_clocks": "app_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
    "display_clock_setting": "display_clock",
    "display_clocks_setting": "display_clock",
}
REASON_SECTIONS = frozenset({"clocks_throttle_reasons", "clocks_event_reasons"})
REASON_PREFIXES = ("clocks_throttle_reason_", "clocks_event_reason_")

COUNTERS = {
    "sw_power_capping": "sw_power_cap",
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "sw_therm_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_therm_slowdown": "hw_thermal",
    "hw_power_braking": "hw_power_brake",
    "hw_power_brake": "hw_power_brake",
    "hw_power_brake_slowdown": "hw_power_brake",
}
"""Microseconds since the driver was loaded in which a limiter held the clock."""
COUNTER_SECTIONS = frozenset({"clocks_event_reasons_counters", "clocks_throttle_reasons_counters"})
COUNTER_PREFIXES = ("clocks_event_reasons_counters_", "clocks_throttle_reasons_counters_")

PROCESS_SECTIONS = frozenset({"processes", "process_info", "compute_processes"})
PROCESS_NAMES = {
    "process_id": "pid",
    "pid": "pid",
    "name": "name",
    "process_name": "name",
    "used_gpu_memory": "memory",
    "used_memory": "memory",
    "gpu_instance_id": "gpu_instance",
    "compute_instance_id": "compute_instance",
}

_SECTIONS_OF: dict[str, dict[str, str]] = {}
for (_section, _name), _field in FIELDS.items():
    _SECTIONS_OF.setdefault(_name, {})[_field.fact] = _section
GUESSES = {name: next(iter(facts.values())) for name, facts in _SECTIONS_OF.items() if len(facts) == 1 and "_" in name}
"""Fields whose names are telling, so that they are understood without the section above them."""


def field_of(section: str | None, name: str) -> Field | None:
    """What a cell is about; a section that is not known (None) is guessed from a telling name."""
    found = FIELDS.get((ANYWHERE, name))
    if found is None:
        found = FIELDS.get((GUESSES.get(name, "") if section is None else section, name))
    return found
