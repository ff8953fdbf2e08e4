"""Knows what the columns of ``nvidia-smi --query-gpu`` and ``--query-compute-apps`` mean, by all drivers' names."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gpumon.logs import values
from gpumon.reasons import reason_names
from gpumon.text import clean, redact_command

Convert = Callable[[str], Any]


class Column(NamedTuple):
    """What a column holds."""

    field: str
    """Of ``model.Gpu``; ``host.…`` of ``model.Host``, ``use.…`` of a process, ``reason.…``, ``counter.…``, ``free.…``
    and ``max.…`` as ``csv_table`` puts them together."""
    convert: Convert
    rank: int = 0
    """Of several columns for one field, the one of the highest rank that has a value counts."""


TIME, INDEX, BUS, UUID, COUNT = "time", "index", "bus", "uuid", "count"
PLACES = (INDEX, BUS, UUID)

_UNIT = re.compile(r"^(.{1,200}?)[ _]?[\[(]([^\[\]()]{1,12})[\])]$")
_SIZES = frozenset({"kib", "gib", "kb", "mb", "gb", "b"})
_STATE = re.compile(r"P(\d{1,2})")
_SURE = 1e9
"""From here on a number may be a blank of DCGM's."""
_HOTTEST_C = 200.0
_MOST_W = 20_000.0
_MOST_MHZ = 20_000.0
_MOST_BYTES = 1 << 50
_REASONS = {
    "gpu_idle": "gpu_idle",
    "applications_clocks_setting": "app_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_thermal",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "hw_power_brake",
    "display_clocks_setting": "display_clock",
}
_YES = frozenset({"yes", "enabled", "on", "active", "true", "1"})
_NO = frozenset({"no", "disabled", "off", "not active", "false", "0"})
_RECOVERY = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
}


# --- cells -------------------------------------------------------------------------------------


def _measured(cell: str) -> float | None:
    """As ``values.number``, without its care where a cell is plainly a number and a unit."""
    figure = cell.partition(" ")[0]
    if figure.isascii() and figure.replace(".", "", 1).isdigit() and len(figure) < 16:
        value = float(figure)
        return value if value < _SURE else values.number(cell)
    return values.number(cell)


def within(cell: str, least: float, most: float) -> float | None:
    """A number that can be one; anything else is no measurement."""
    value = _measured(cell)
    return value if value is not None and least <= value <= most else None


class Share:
    """A utilization whose name does not say of what: percent as soon as one value is above 1, nothing before that."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_doubtful = False
        self._is_percent = False

    def __call__(self, cell: str) -> float | None:
        """Percent; whole numbers always are."""
        value = within(cell, 0.0, 100.0)
        if value is None or self._is_percent or not ("." in cell or "," in cell):
            return value
        self._is_percent = value > 1.0
        self.is_doubtful = not self._is_percent
        return value if self._is_percent else None


percent = partial(within, least=0.0, most=100.0)
watts = partial(within, least=0.0, most=_MOST_W)
limit_watts = partial(within, least=1.0, most=_MOST_W)
degrees = partial(within, least=0.0, most=_HOTTEST_C)
present_degrees = partial(within, least=0.1, most=_HOTTEST_C)
"""A sensor that is missing answers 0."""
megahertz = partial(within, least=0.0, most=_MOST_MHZ)
top_megahertz = partial(within, least=1.0, most=_MOST_MHZ)
microseconds = partial(within, least=0.0, most=1e15)


def count(cell: str) -> int | None:
    """A whole number from 0 on."""
    value = _measured(cell)
    return int(value) if value is not None and value >= 0 and value.is_integer() else None


def small(cell: str) -> int | None:
    """A generation or a number of lanes: from 1 on."""
    value = count(cell)
    return value if value is not None and 1 <= value <= 64 else None


def memory(cell: str, unit: str = "MiB") -> int | None:
    """Bytes."""
    size = values.byte_count(cell, unit)
    return size if size is not None and size < _MOST_BYTES else None


def total_memory(cell: str, unit: str = "MiB") -> int | None:
    """Bytes; a GPU that shares the host's memory answers 0."""
    return memory(cell, unit) or None


def flag(cell: str) -> bool | None:
    """Yes or no in nvidia-smi's many words."""
    word = cell.strip(" []").lower()
    return True if word in _YES else False if word in _NO else None


def words(cell: str) -> str | None:
    """A text for people."""
    return None if values.is_missing(cell) else clean(cell)


def word(cell: str) -> str | None:
    """``Exclusive_Process`` as ``exclusive-process``."""
    return None if values.is_missing(cell) else clean(cell).lower().replace("_", "-").replace(" ", "-")


def state(cell: str) -> str | None:
    """``P0`` to ``P15``."""
    match = _STATE.fullmatch(cell)
    return cell if match is not None and int(match.group(1)) <= 15 else None


def version(cell: str) -> str | None:
    """Digits and points."""
    return cell if len(cell) <= 32 and cell.replace(".", "").isdigit() else None


def recovery(cell: str) -> int | None:
    """NVML's number of what the driver wants done; nvidia-smi's ``None`` is a value here."""
    return _RECOVERY.get(cell.strip(" []").lower())


def reasons(cell: str) -> tuple[str, ...] | None:
    """The names of a mask's bits."""
    digits = cell.strip(" []").lower()
    if not digits.startswith("0x") or len(digits) > 18:
        return None
    try:
        mask = int(digits, 16)
    except ValueError:
        return None
    return None if mask >> 32 else reason_names(mask)


def program(cell: str) -> str | None:
    """A process's name, which may be its whole command line."""
    return None if values.is_missing(cell) else redact_command(cell.split(" "))


def uuid(cell: str) -> str | None:
    """A GPU's or an instance's UUID."""
    return clean(cell, 96) if cell.startswith(("GPU-", "MIG-")) else None


# --- names -------------------------------------------------------------------------------------

_G = {
    "utilization.gpu": Column("utilization_pct", percent),
    "utilization.memory": Column("memory_utilization_pct", percent),
    "utilization.encoder": Column("encoder_pct", percent),
    "utilization.decoder": Column("decoder_pct", percent),
    "memory.used": Column("memory_used_bytes", memory),
    "memory.total": Column("memory_total_bytes", total_memory),
    "memory.reserved": Column("memory_reserved_bytes", memory),
    "memory.free": Column("free.memory", memory),
    "power.draw": Column("power_w", watts, 3),
    "power.draw.average": Column("power_w", watts, 2),
    "power.draw.instant": Column("power_w", watts, 1),
    "power.limit": Column("power_limit_w", limit_watts),
    "enforced.power.limit": Column("power_limit_w", limit_watts, 1),
    "power.default_limit": Column("power_default_limit_w", limit_watts),
    "temperature.gpu": Column("temperature_c", degrees),
    "temperature.memory": Column("memory_temperature_c", present_degrees),
    "temperature.gpu.tlimit": Column("temperature_margin_c", present_degrees),
    "fan.speed": Column("fan_pct", partial(within, least=0.0, most=999.0)),
    "pstate": Column("performance_state", state),
    "pcie.link.gen.current": Column("pcie_gen", small, 1),
    "pcie.link.gen.gpucurrent": Column("pcie_gen", small),
    "pcie.link.gen.max": Column("pcie_gen_max", small),
    "pcie.link.gen.gpumax": Column("max.card", small),
    "pcie.link.gen.hostmax": Column("max.host", small),
    "pcie.link.width.current": Column("pcie_width", small),
    "pcie.link.width.max": Column("pcie_width_max", small),
    "ecc.mode.current": Column("ecc_enabled", flag),
    "ecc.mode.pending": Column("ecc_enabled_pending", flag),
    "ecc.errors.corrected.volatile.total": Column("ecc_corrected", count),
    "ecc.errors.uncorrected.volatile.total": Column("ecc_uncorrected", count),
    "ecc.errors.uncorrected.aggregate.sram": Column("ecc_sram_uncorrected", count),
    "remapped_rows.correctable": Column("remapped_rows_corrected", count),
    "remapped_rows.uncorrectable": Column("remapped_rows_uncorrected", count),
    "remapped_rows.pending": Column("remap_pending", flag, 1),
    "remapped_rows.failure": Column("remap_failed", flag),
    "retired_pages.pending": Column("remap_pending", flag),
    "gpu_recovery_action": Column("recovery_action", recovery),
    "mig.mode.current": Column("mig_enabled", flag),
    "compute_mode": Column("compute_mode", word),
    "persistence_mode": Column("persistence", flag),
    "compute_cap": Column("compute_capability", version),
    "fabric.state": Column("fabric_state", word),
    "name": Column("name", words),
    "gpu_name": Column("name", words),
    "driver_version": Column("host.driver_version", version),
    "timestamp": Column(TIME, words),
    "index": Column(INDEX, count),
    "uuid": Column(UUID, uuid),
    "gpu_uuid": Column(UUID, uuid),
    "pci.bus_id": Column(BUS, values.bus_id),
    "gpu_bus_id": Column(BUS, values.bus_id),
    "count": Column(COUNT, count),
    "gpu_count": Column(COUNT, count),
    "pid": Column("use.pid", count),
    "process_name": Column("use.name", program),
    "used_gpu_memory": Column("use.memory", memory),
    "used_memory": Column("use.memory", memory),
}
for _mine, _theirs in (("sm", "sm"), ("graphics", "gr"), ("memory", "mem")):
    _field = "memory_clock" if _mine == "memory" else "sm_clock"
    for _name in (f"clocks.current.{_mine}", f"clocks.{_theirs}"):
        _G[_name] = Column(f"{_field}_mhz", megahertz, int(_mine == "sm"))
    for _name in (f"clocks.max.{_mine}", f"clocks.max.{_theirs}"):
        _G[_name] = Column(f"{_field}_max_mhz", top_megahertz, int(_mine == "sm"))
for _generation in ("clocks_event_reasons", "clocks_throttle_reasons"):
    _G[f"{_generation}.active"] = Column("clocks_event_reasons", reasons)
    for _theirs, _mine in _REASONS.items():
        _G[f"{_generation}.{_theirs}"] = Column(f"reason.{_mine}", flag)
        _G[f"{_generation}_counters.{_theirs}"] = Column(f"counter.{_mine}", microseconds)

NVIDIA_SMI = _G
"""Name in lower case, without its unit -> what it holds."""


def split_unit(header: str) -> tuple[str, str | None]:
    """``memory.used [MiB]`` as its name in lower case and its unit."""
    text = header.strip(" \t\"'#").lower()
    match = _UNIT.match(text)
    return (text, None) if match is None else (match.group(1).strip(), match.group(2).strip())


def nvidia_smi_column(header: str) -> Column | None:
    """What a column of nvidia-smi holds that anything is made of; a unit in its header holds for bare numbers."""
    name, unit = split_unit(header)
    column = NVIDIA_SMI.get(name)
    return sized(column, unit) if column is not None and unit in _SIZES else column


def sized(column: Column, unit: str | None) -> Column:
    """The column with a unit for bare numbers, if it holds sizes."""
    if unit is None or not is_size(column):
        return column
    return column._replace(convert=partial(memory if column.convert is memory else total_memory, unit=unit))


def is_size(column: Column) -> bool:
    """Whether it holds bytes and nothing has been said of their unit."""
    return column.convert is memory or column.convert is total_memory
