"""Knows what people call the columns of their own GPU logs, and which of those names leave open what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from gpumon.logs import csv_columns as of
from gpumon.logs import values
from gpumon.logs.csv_columns import Column, Convert
from gpumon.text import clean

_WORDS = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|\d+|%")
_CASED_UNITS = re.compile(r"(?:MHz|GHz|[KMG]iB|mW|kB)(?![a-z])")
_UNITS = {
    "%": "pct",
    "pct": "pct",
    "percent": "pct",
    "percentage": "pct",
    "perc": "pct",
    "w": "w",
    "watt": "w",
    "watts": "w",
    "mw": "mw",
    "c": "c",
    "celsius": "c",
    "degc": "c",
    "deg": "c",
    "mhz": "mhz",
    "ghz": "ghz",
    "kb": "kib",
    "kib": "kib",
    "mb": "mib",
    "mib": "mib",
    "gb": "gib",
    "gib": "gib",
    "bytes": "b",
    "b": "b",
    "s": "s",
    "sec": "s",
    "secs": "s",
    "seconds": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
}
_SAME = {
    "utilization": "util",
    "utilisation": "util",
    "memory": "mem",
    "vram": "mem",
    "temperature": "temp",
    "clk": "clock",
    "clocks": "clock",
    "freq": "clock",
    "frequency": "clock",
    "graphics": "core",
    "gr": "core",
    "consumption": "draw",
    "capacity": "total",
    "cap": "limit",
    "available": "free",
    "idx": "index",
    "num": "index",
    "number": "index",
    "ts": "time",
    "timestamp": "time",
    "datetime": "time",
}
_FILLERS = frozenset({"gpu", "nvidia", "current", "curr", "device", "now", "board"})
_FOREIGN = frozenset(
    "cpu ram host sys system swap disk net process proc pid torch allocated alloc reserved cached peak max min delta"
    " encoder decoder enc dec loss step iter batch lr samples tokens throughput latency energy cumulative".split()
)
_CPU = frozenset({"cpu", "ram", "swap", "disk", "net", "host", "sys", "system"})
_GPU = frozenset({"gpu", "vram", "nvidia", "nvml", "sm", "cuda"})
_TIME_UNITS = frozenset({"s", "ms", "us", "ns"})
_SCALES = {"mw": 1e-3, "ghz": 1e3}
_MOST_PLAUSIBLE_W = 2000.0
"""A bare number of watts; milliwatts are above this on every GPU."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_ ./%°()\[\]-]{0,100}")
_WORD = re.compile(r"[a-z][a-z0-9_.]{0,100}")
_COLUMNS_MAX = 512
"""nvidia-smi has some two hundred."""
_OWN_COLUMNS_MAX = 96
_SIZES = {"gib": 1 << 30, "mib": 1 << 20, "kib": 1 << 10, "b": 1}
_LEAST_BYTES = 1 << 29


class _Quantity(NamedTuple):
    field: str
    convert: Convert
    units: frozenset[str | None]
    """Without None its name must say the unit."""


_BYTES: frozenset[str | None] = frozenset({"b", "kib", "mib", "gib"})
_PCT: frozenset[str | None] = frozenset({"pct"})
_QUANTITIES = {
    frozenset({"util"}): _Quantity("utilization_pct", of.percent, _PCT | {None}),
    frozenset({"usage"}): _Quantity("utilization_pct", of.percent, _PCT),
    frozenset({"load"}): _Quantity("utilization_pct", of.percent, _PCT),
    frozenset({"core", "load"}): _Quantity("utilization_pct", of.percent, _PCT),
    frozenset({"mem", "used"}): _Quantity("memory_used_bytes", of.memory, _BYTES),
    frozenset({"mem", "usage"}): _Quantity("memory_used_bytes", of.memory, _BYTES),
    frozenset({"mem", "total"}): _Quantity("memory_total_bytes", of.total_memory, _BYTES),
    frozenset({"mem", "free"}): _Quantity("free.memory", of.memory, _BYTES),
    frozenset({"power"}): _Quantity("power_w", of.watts, frozenset({"w", "mw", None})),
    frozenset({"power", "draw"}): _Quantity("power_w", of.watts, frozenset({"w", "mw", None})),
    frozenset({"power", "usage"}): _Quantity("power_w", of.watts, frozenset({"w", "mw", None})),
    frozenset({"power", "limit"}): _Quantity("power_limit_w", of.limit_watts, frozenset({"w", "mw", None})),
    frozenset({"temp"}): _Quantity("temperature_c", of.degrees, frozenset({"c", None})),
    frozenset({"core", "temp"}): _Quantity("temperature_c", of.degrees, frozenset({"c", None})),
    frozenset({"mem", "temp"}): _Quantity("memory_temperature_c", of.present_degrees, frozenset({"c"})),
    frozenset({"clock"}): _Quantity("sm_clock_mhz", of.megahertz, frozenset({"mhz", "ghz"})),
    frozenset({"sm", "clock"}): _Quantity("sm_clock_mhz", of.megahertz, frozenset({"mhz", "ghz", None})),
    frozenset({"core", "clock"}): _Quantity("sm_clock_mhz", of.megahertz, frozenset({"mhz", "ghz"})),
    frozenset({"mem", "clock"}): _Quantity("memory_clock_mhz", of.megahertz, frozenset({"mhz", "ghz"})),
    frozenset({"fan"}): _Quantity("fan_pct", of.percent, _PCT),
    frozenset({"fan", "speed"}): _Quantity("fan_pct", of.percent, _PCT),
    frozenset({"pstate"}): _Quantity("performance_state", of.state, frozenset({None})),
    frozenset({"perf", "state"}): _Quantity("performance_state", of.state, frozenset({None})),
    frozenset({"pcie", "gen"}): _Quantity("pcie_gen", of.small, frozenset({None})),
    frozenset({"pcie", "width"}): _Quantity("pcie_width", of.small, frozenset({None})),
}
_TIMES = frozenset(
    frozenset(words.split())
    for words in ("time", "date", "date time", "epoch", "wall epoch", "unix time", "wall time", "elapsed", "t", "unix",
                  "elapsed time", "relative time", "epoch time", "time stamp", "utc", "time utc")
)  # fmt: skip
_PLACES = {
    frozenset({"index"}): Column(of.INDEX, of.count),
    frozenset({"id"}): Column(of.INDEX, of.count),
    frozenset[str](): Column(of.INDEX, of.count),
    frozenset({"uuid"}): Column(of.UUID, of.uuid),
    frozenset({"pci", "bus", "id"}): Column(of.BUS, values.bus_id),
    frozenset({"bus", "id"}): Column(of.BUS, values.bus_id),
}
_MEASURES = frozenset({"util", "mem", "power", "temp", "clock", "usage", "load", "fan"})
_UNDERSCORED = {re.sub(r"[^a-z0-9]", "_", name): column for name, column in of.NVIDIA_SMI.items() if "." in name}
"""``utilization_gpu`` and the like: nvidia-smi's own names, and then its units."""


class Meaning(NamedTuple):
    """What the columns of one log mean."""

    columns: tuple[Column | None, ...]
    doubts: tuple[str, ...]
    """Names that leave open which quantity or unit they mean."""
    open_sizes: Mapping[int, str] = MappingProxyType({})
    """Position and name of memory columns whose unit their total has to show."""


def meaning(headers: Sequence[str]) -> Meaning | None:
    """The columns of a log of GPUs, nvidia-smi's or home-made; None where they may be of anything else."""
    if len(headers) > _COLUMNS_MAX or not all(_NAME.fullmatch(header.strip(" \"'#")) for header in headers):
        return None
    exact = [of.nvidia_smi_column(header) for header in headers]
    named = [one for one, header in zip(exact, headers, strict=True) if one and _is_dotted(header)]
    if (named or (len(headers) > 1 and all(exact))) and all(_WORD.fullmatch(of.split_unit(one)[0]) for one in headers):
        rest = [None if one or _is_dotted(header) else _column(header, _words(header), needs_gpu=True)[0]
                for one, header in zip(exact, headers, strict=True)]  # fmt: skip
        return Meaning(tuple(one or other for one, other in zip(exact, rest, strict=True)), ())
    return _home_made(headers)


def settled(found: Meaning, cells: Sequence[str]) -> Meaning:
    """The same with the unit of memory that the total in a first row shows, or without those columns."""
    if not found.open_sizes:
        return found
    unit = next((unit for i in sorted(found.open_sizes) if (unit := _unit_of_total(found.columns[i], cells[i]))), None)
    columns = list(found.columns)
    for i in found.open_sizes:
        column = columns[i]
        if column is not None:
            columns[i] = of.sized(column, unit) if unit else None
    doubts = found.doubts if unit else (*found.doubts, *found.open_sizes.values())
    return Meaning(tuple(columns), doubts)


def _unit_of_total(column: Column | None, cell: str) -> str | None:
    """GPUs have half a GiB to half a TiB, so that one figure says its unit."""
    total = of.within(cell, 0.0, 1e15)
    if column is None or column.field != "memory_total_bytes" or not total:
        return None
    return next((unit for unit, size in _SIZES.items() if _LEAST_BYTES <= total * size <= _LEAST_BYTES * 1024), None)


def _home_made(headers: Sequence[str]) -> Meaning | None:
    if not 2 <= len(headers) <= _OWN_COLUMNS_MAX:
        return None
    parts = [_words(header) for header in headers]
    has_cpu = any(not _CPU.isdisjoint(words) for words in parts)
    found = [_column(header, words, needs_gpu=has_cpu) for header, words in zip(headers, parts, strict=True)]
    columns = tuple(column for column, _ in found)
    if not _is_of_gpus([column for column in columns if column is not None], parts):
        return None
    doubts = tuple(
        clean(header.strip(), 40) for header, (_, is_doubtful) in zip(headers, found, strict=True) if is_doubtful
    )
    sizes = {
        i: clean(header.strip(), 40)
        for i, (header, column) in enumerate(zip(headers, columns, strict=True))
        if column is not None and of.is_size(column) and not _is_dotted(header)
    }
    return Meaning(columns, doubts, sizes)


def _is_dotted(header: str) -> bool:
    name, unit = of.split_unit(header)
    return "." in name or unit is not None


def _is_of_gpus(columns: Sequence[Column], parts: Sequence[frozenset[str]]) -> bool:
    fields = {column.field for column in columns}
    measured = fields - {of.TIME, *of.PLACES, of.COUNT, "name"}
    names_gpu = any(not _GPU.isdisjoint(words) for words in parts)
    if of.TIME not in fields and fields.isdisjoint(of.PLACES):
        return names_gpu and len(measured) >= 2
    return bool(measured) and (names_gpu or len(measured) >= 3)


def _words(header: str) -> frozenset[str]:
    """The words of a name, units included, in one spelling."""
    text = _CASED_UNITS.sub(lambda unit: unit.group().lower(), header)
    return frozenset(_SAME.get(word, word) for word in map(str.lower, _WORDS.findall(text)))


def _column(header: str, words: frozenset[str], *, needs_gpu: bool) -> tuple[Column | None, bool]:
    """What a column holds, and whether its name is about a GPU without saying enough."""
    name, unit = of.split_unit(header)
    exact = of.nvidia_smi_column(header) if "." in name else None
    exact = exact or (_UNDERSCORED.get(re.sub(r"[^a-z0-9]", "_", name)) if unit is None else None)
    if exact is not None:
        return exact, False
    units = {_UNITS[word] for word in words if word in _UNITS}
    rest = frozenset(word for word in words if word not in _UNITS)
    if rest in _TIMES and units <= _TIME_UNITS:
        return Column(of.TIME, of.words), False
    if not _FOREIGN.isdisjoint(rest) or any(word.isdigit() for word in rest):
        return None, False
    bare = rest - _FILLERS
    if not units and bare in _PLACES and (bare or "gpu" in rest or "device" in rest):
        return _PLACES[bare], False
    if bare in ({"name"}, {"model"}) and not units:
        return Column("name", of.words), False
    is_ours = not needs_gpu or not _GPU.isdisjoint(words) or "vram" in header.lower()
    quantity = _QUANTITIES.get(bare)
    unit = next(iter(units), None) if len(units) <= 1 else ""
    if quantity is not None and unit in quantity.units and is_ours:
        return _converted(quantity, unit, header), False
    return None, is_ours and not _MEASURES.isdisjoint(bare)


def _converted(quantity: _Quantity, unit: str | None, header: str) -> Column:
    if unit is None and quantity.field == "utilization_pct":
        return Column(quantity.field, of.Share(clean(header.strip(), 40)))
    if unit in _BYTES:
        return of.sized(Column(quantity.field, quantity.convert), unit)
    if unit in _SCALES:
        return Column(quantity.field, partial(_scaled, convert=quantity.convert, scale=_SCALES[unit or ""]))
    if unit is None and quantity.field == "power_w":
        return Column(quantity.field, partial(of.within, least=0.0, most=_MOST_PLAUSIBLE_W))
    return Column(quantity.field, quantity.convert)


def _scaled(cell: str, *, convert: Convert, scale: float) -> float | None:
    value = of.within(cell, 0.0, 1e9)
    return None if value is None else convert(repr(value * scale))
