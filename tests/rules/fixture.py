"""Reads rule fixtures: series in promtool's notation become snapshots.

``utilization_pct = "95x30 _x5 12x90"`` is thirty samples of 95, five without a value, ninety of 12; after its end a
series keeps its last value. ``10..20x11`` rises by one per sample. Anything else is the same in every sample.
``"throttled_pct.sw_thermal"`` sets one key of a dictionary, ``unknown`` sets it to None. ``rank.PID`` is what a probe
in that process reports; its ``step`` goes on by ``1 / step_s`` a second unless it is given. ``from_s`` and ``until_s``
say when a process is there. ``event`` is a list of tables: ``at`` seconds, or ``ago_s`` before the first sample,
``gpu`` by index or ``gpu_uuid``, and the fields of an Event; ``times`` repeats it a second apart. ``volume."/data"``
is a filesystem of the host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpumon.model import Event, Rank, Snapshot, Volume
from tests import builders

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent
KINDS = ("fires", "silent", "missing")
_PART = re.compile(r"(\S+?)x(\d+)")
_SERIES = re.compile(r"^\S+?x\d+( \S+?x\d+)*$")


def cases(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a fixture with their kinds."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    for kind in KINDS:
        for case in table.get(kind, []):
            yield kind, case


def expand(notation: str) -> list[Any]:
    """The samples of one series."""
    values: list[Any] = []
    for value, count in _PART.findall(notation):
        low, is_ramp, high = value.partition("..")
        if is_ramp:
            rise = (float(high) - float(low)) / max(1, int(count) - 1)
            values += [float(low) + rise * number for number in range(int(count))]
        else:
            values += [None if value == "_" else _number(value)] * int(count)
    return values


def snapshots(case: dict[str, Any]) -> Iterator[Snapshot]:
    """The samples of a case, one per ``interval_s``."""
    interval = case.get("interval_s", 1.0)
    for number in range(int(case["samples"])):
        at = number * interval
        gpus = case.get("gpu", {"0": {}})
        processes = [
            builders.process(int(pid), **_fields(fields, number))
            for pid, fields in case.get("process", {"4242": {}}).items()
            if _is_there(fields, at)
        ]
        for pid, fields in case.get("workers", {}).items():
            if not _is_there(fields, at):
                continue
            values = _fields(fields, number)
            count = values.pop("count")
            first = int(pid) * 100
            processes += [builders.worker(first + each, int(pid), **values) for each in range(count)]
        yield builders.snapshot(
            builders.NOON + at,
            [builders.gpu(int(index), **_fields(fields, number)) for index, fields in gpus.items()],
            processes,
            interval_s=interval if number else None,
            events=_events(case.get("event", ()), at, interval),
            host_=builders.host(**_fields(case.get("host", {}), number), volumes=_volumes(case, number)),
            ranks=[_rank(int(pid), _fields(fields, number), at) for pid, fields in case.get("rank", {}).items()],
        )


def _is_there(fields: dict[str, Any], at_s: float) -> bool:
    return bool(fields.get("from_s", 0.0) <= at_s < fields.get("until_s", float("inf")))


def _volumes(case: dict[str, Any], number: int) -> tuple[Volume, ...]:
    return tuple(Volume(path=path, **_fields(fields, number)) for path, fields in case.get("volume", {}).items())


def _events(tables: Iterable[dict[str, Any]], at_s: float, interval_s: float) -> Iterator[Event]:
    """Those that came since the sample before."""
    for given in tables:
        table = dict(given)
        first_s, ago_s, times = table.pop("at", 0.0), table.pop("ago_s", 0.0), table.pop("times", 1)
        uuid = builders.uuid(table.pop("gpu")) if "gpu" in table else table.pop("gpu_uuid", None)
        for number in range(times):
            if at_s - interval_s < first_s + number <= at_s:
                time_s = builders.NOON + first_s + number - ago_s
                yield Event(gpu_uuid=uuid, time_s=time_s, **table)


def _rank(pid: int, fields: dict[str, Any], at_s: float) -> Rank:
    step_s = fields.get("step_s", 0.5)
    steps = {"step": 10_000 + int(at_s / step_s)} if step_s else {}
    # A series of numbers is one of floats, and bytes and counts are whole.
    whole = {name: int(value) for name, value in fields.items() if isinstance(value, float) and not name.endswith("_s")}
    return builders.rank(pid, **{**steps, **fields, **whole})


def _fields(table: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, given in table.items():
        value = given
        if isinstance(given, str) and _SERIES.match(given):
            series = expand(given)
            value = series[min(number, len(series) - 1)]
        elif given == "none":
            value = None
        field, _, key = name.partition(".")
        if key:
            found.setdefault(field, {})
            if value is not None:
                found[field][key] = None if value == "unknown" else value
        elif name == "started_ago_s":
            found["started_s"] = builders.NOON - value
        elif name in {"from_s", "until_s"}:
            continue
        elif isinstance(value, list):
            found[name] = tuple(value)
        else:
            found[name] = value
    return found


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False}.get(text, text)
