"""Knows how Prometheus text is written, and which GPU, process or machine the labels of a series name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gpumon.logs.reading import Place
from gpumon.logs.values import bus_id
from gpumon.text import clean

LABELS_MAX = 64
_NAME = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]{0,199}")
_LABEL = re.compile(r'\s{0,8},?\s{0,8}([A-Za-z_][A-Za-z0-9_.]{0,127})\s{0,8}=\s{0,8}"((?:[^"\\]|\\.){0,4000})"')
_NUMBER = re.compile(r"[+-]?(?:\d[\d.eE+-]{0,40}|\.\d{1,30}|[Nn]a[Nn]|[Ii]nf(?:inity)?)")
_BARE_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r"\\.")
_SECONDS_MOST = 1e11
"""A timestamp above this is in milliseconds, as in the old text format; OpenMetrics has seconds."""

_EPOCHS = (631_152_000.0, 4_102_444_800.0)

_UUIDS = ("UUID", "uuid", "gpu_uuid", "device_uuid", "hw_id")
_INDICES = ("gpu", "index", "gpu_index", "ordinal", "gpu_id", "minor_number", "device", "device_id")
_BUSES = ("pci_bus_id", "pci_bdf")
_NAMES = ("modelName", "model_name", "devicename", "gpu_name", "hw_name", "name", "gpu")
_HOSTS = ("hostname", "Hostname", "host", "node", "nodename")
_DRIVERS = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "driver_version", "driver")


class Sample(NamedTuple):
    """One line: a series, its value, and when it was measured if the line says."""

    name: str
    labels: str
    """As they are written, between the braces."""
    value: str | None
    """None where somebody quoted the series without a value."""
    time_s: float | None


class Series(NamedTuple):
    """What the labels of a series say."""

    labels: Mapping[str, str]
    place: Place | None
    """None where they name no GPU."""
    parent: Place | None
    """Of a MIG instance: the GPU that is split."""
    profile: str | None
    pid: int | None
    host: str | None


def sample_of(line: str) -> Sample | None:
    """The sample in a line of the text format; None where it is none."""
    line = line.strip()
    brace = line.find("{")
    blank = line.find(" ") if brace < 0 else -1
    if brace < 0 and blank < 0:
        return None
    exemplar = line.find(" # {", max(0, brace))
    if exemplar >= 0:
        line = line[:exemplar]
    end = line.rfind("}") if brace >= 0 else blank
    name = line[: brace if brace >= 0 else blank].strip()
    if end < brace or (name and _NAME.fullmatch(name) is None):
        return None
    labels = line[brace + 1 : end] if brace >= 0 else ""
    rest = line[end + 1 :].split()
    if len(rest) > 2 or not all(map(_NUMBER.fullmatch, rest)) or (not rest and brace < 0):
        return None
    if not name:
        name = labels_of(labels).get("__name__", "") if "__name__" in labels else ""
        if not name:
            return None
    time_s: float | None = None
    if len(rest) == 2:
        time_s = _number(rest[1])
        if time_s is None:
            return None
        time_s = epoch_of(time_s / 1e3 if time_s > _SECONDS_MOST else time_s)
    return Sample(name, labels, rest[0] if rest else None, time_s)


def epoch_of(time_s: float) -> float | None:
    """A time that can be one: of the years 1990 to 2099."""
    return time_s if _EPOCHS[0] <= time_s < _EPOCHS[1] else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def labels_of(text: str) -> dict[str, str]:
    """Labels by name; of a damaged list those before the damage."""
    found: dict[str, str] = {}
    position = 0
    while len(found) < LABELS_MAX:
        match = _LABEL.match(text, position)
        if match is None:
            break
        value = match.group(2)
        found[match.group(1)] = (
            _ESCAPE.sub(lambda one: _ESCAPES.get(one.group(), one.group()), value) if "\\" in value else value
        )
        position = match.end()
    return found


def series_of(text: str) -> Series:
    """What labels say, as they are written."""
    labels = labels_of(text)
    uuid = _uuid_of(labels)
    index = _index_of(labels)
    bus = next((found for name in _BUSES if (found := bus_id(labels.get(name, ""))) is not None), None)
    place = None if uuid is None and index is None and bus is None else Place(index=index, bus=bus, uuid=uuid)
    number = _small(labels.get("GPU_I_ID") or labels.get("gpu_instance_id") or labels.get("mig_instance") or "")
    profile = labels.get("GPU_I_PROFILE") or labels.get("mig_profile") or None
    parent: Place | None = None
    named = labels.get("mig_uuid") or None
    if uuid is not None and uuid.startswith("MIG-"):
        named, uuid = uuid, None
    if named is not None or (number is not None and place is not None):
        parent = Place(index=index, bus=bus, uuid=uuid) if uuid is not None else None
        identity = named if named is not None else f"MIG-{uuid or bus or index}/{number}/0"
        place = Place(index=number, uuid=clean(identity, 96))
    return Series(
        labels, place, parent, None if profile is None else clean(profile, 32), _pid(labels), _host_of(labels)
    )


def name_of(labels: Mapping[str, str]) -> str | None:
    """The card's name; some exporters keep it where others have the index."""
    for label in _NAMES:
        name = labels.get(label, "").strip()
        if name and not name.isdigit() and (label != "name" or "pid" not in labels):
            return clean(name, 96)
    return None


def driver_of(labels: Mapping[str, str]) -> str | None:
    """The driver's version, where the labels say it."""
    return next((clean(labels[name], 32) for name in _DRIVERS if labels.get(name, "")[:1].isdigit()), None)


def _uuid_of(labels: Mapping[str, str]) -> str | None:
    for label in _UUIDS:
        uuid = labels.get(label, "").strip()
        if uuid.startswith(("GPU-", "MIG-")):
            return clean(uuid, 96)
        if _BARE_UUID.fullmatch(uuid):
            return f"GPU-{uuid.lower()}"
    return None


def _index_of(labels: Mapping[str, str]) -> int | None:
    for label in _INDICES:
        index = _small(labels.get(label, "").removeprefix("nvidia"))
        if index is not None:
            return index
    return None


def _small(text: str) -> int | None:
    return int(text) if 1 <= len(text) <= 4 and text.isascii() and text.isdigit() else None


def _pid(labels: Mapping[str, str]) -> int | None:
    pid = labels.get("pid", "")
    return int(pid) if 1 <= len(pid) <= 10 and pid.isascii() and pid.isdigit() and int(pid) < 1 << 32 else None


def _host_of(labels: Mapping[str, str]) -> str | None:
    return next((clean(host, 96) for name in _HOSTS if (host := labels.get(name, "").strip())), None)
