"""Knows how the series of one scrape become the facts of GPUs, processes and their machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gpumon.logs.dcgm_names import Meaning
from gpumon.logs.prometheus_names import ON_INSTANCE, UNKNOWN_WITH_MIG
from gpumon.logs.prometheus_series import Series, driver_of, epoch_of, name_of
from gpumon.logs.reading import Place, Use
from gpumon.logs.values import is_blank
from gpumon.model import Gpu
from gpumon.reasons import REASON_NAMES, reason_names
from gpumon.text import clean

_BLANK = float(0x7FFFFFFFFFFFFFF0)
_TOTALS = ("share.", "rate.", "energy_j", "xid.")
"""Counters grow beyond DCGM's blanks for measurements; only the 64 bit ones are blanks there."""
_ZERO_IS_MISSING = (
    "_w",
    "_c",
    "_mhz",
    "pcie_gen",
    "pcie_width",
    "memory_total_bytes",
    "pcie_gen_max",
    "pcie_width_max",
)
"""Sensors that are not there, limits that are not told: exporters write 0."""
_MOST = {
    "_pct": 10_000.0,
    "_w": 20_000.0,
    "_c": 200.0,
    "_mhz": 20_000.0,
    "_bytes": 2.0**50,
    "_bytes_per_s": 4e12,
}
"""Beyond these a number is none: a counter where a gauge was meant, or a sentinel."""
_GPUS_MAX, _OTHERS_MAX = 2048, 10_000
"""Of GPUs and instances; of processes and faults in one scrape."""
_FLAGS = frozenset(name for name, kind in Gpu.__annotations__.items() if kind == "bool | None")
_WHOLE = frozenset(name for name, kind in Gpu.__annotations__.items() if kind == "int | None")


Key = str | Place
"""A GPU's UUID, or what else the labels say of it."""


def key_of(place: Place) -> Key:
    """What series with more and with fewer labels have in common."""
    return place.uuid if place.uuid is not None else place


class Xid(NamedTuple):
    """What a series tells of a fault."""

    how: str
    """``last``: the last number, of unknown age; ``window`` and ``total``: how often; ``time``: when last."""
    place: Place | None
    code: int
    value: float
    text: str | None


class Scrape:
    """What is known so far of one moment."""

    def __init__(self, time_s: float | None = None) -> None:
        self.time_s = time_s
        self.said_s: float | None = None
        """The time that an exporter tells in a series of its own."""
        self.host: dict[str, Any] = {}
        self.xids: list[Xid] = []
        self.places: dict[Key, Place] = {}
        """All that the labels of its series say of each GPU."""
        self.counters: dict[tuple[Key, str], float] = {}
        """Seconds or bytes so far; their growth is a share of time or a rate."""
        self._gpus: dict[Key, dict[str, tuple[int, float]]] = {}
        self._series: dict[Key, Series] = {}
        self._reasons: dict[Key, dict[str, bool]] = {}
        self._uses: dict[tuple[int, Place], dict[str, Any]] = {}

    def is_empty(self) -> bool:
        """Nothing is known yet."""
        return not (self._gpus or self._uses or self.host or self.xids)

    def add(self, meaning: Meaning, series: Series, text: str | None) -> None:
        """Take in one sample."""
        field, factor, rank = meaning
        place = series.place
        if field == "xid.last":
            self._add_last_xid(series, text)
            return
        value = None if text is None else _value_of(text, is_total=field.startswith(_TOTALS))
        if place is not None and series.parent is not None:
            self._see(series.parent, series)
            if field not in ON_INSTANCE and not field.startswith(("use.", "host.", "info")):
                place = series.parent
                if field.removeprefix("ratio.") in UNKNOWN_WITH_MIG:
                    return
        kind, _, rest = field.partition(".")
        if kind == "host" and value is not None and value >= 0:
            self._add_host(rest, value * factor)
        elif kind == "xid" and value is not None and len(self.xids) < _OTHERS_MAX:
            self._add_xid(rest, series, value)
        elif place is None:
            return
        elif kind == "use":
            self._add_use(rest, place, series, None if value is None else value * factor)
        else:
            self._see(place, series)
            if value is not None and field != "info":
                self._add_of_gpu(field, key_of(place), value * factor, rank)

    def _see(self, place: Place, series: Series) -> None:
        key = key_of(place)
        before = self.places.get(key)
        if before is None and len(self.places) < _GPUS_MAX:
            self.places[key], self._series[key], self._gpus[key] = place, series, {}
        elif before is not None and before != place:
            index = before.index if place.index is None else place.index
            self.places[key] = Place(index=index, bus=before.bus or place.bus, uuid=place.uuid)
            if name_of(self._series[key].labels) is None:
                self._series[key] = series

    def _add_of_gpu(self, field: str, place: Key, value: float, rank: int) -> None:
        mine = self._gpus.get(place)
        if mine is None:
            return
        kind, _, rest = field.partition(".")
        if kind == "reason" and rest:
            self._reasons.setdefault(place, {})[rest] = value > 0
        elif kind in {"share", "rate"} and rest:
            self.counters[place, field] = max(value, self.counters.get((place, field), 0.0))
        else:
            before = mine.get(field)
            # GPUs shared by time have a series for each program, with the same value or their own part of it.
            if before is None or (rank, value) > before:
                mine[field] = (rank, value)

    def _add_host(self, field: str, value: float) -> None:
        if field == "time":
            self.said_s = epoch_of(value) or self.said_s
        else:
            self.host[field] = round(value) if field.endswith("_bytes") else min(value, 1e6)

    def _add_last_xid(self, series: Series, text: str | None) -> None:
        value = None if text is None else _value_of(text, is_total=False)
        told = series.labels.get("err_code", "")
        if value is None and text is None and told.isascii() and told.isdigit() and len(told) <= 6:
            value = float(told)
        if value is not None and 0 <= value < 100_000 and value.is_integer() and len(self.xids) < _OTHERS_MAX:
            words = clean(series.labels.get("err_msg", ""), 120).strip() or None
            self.xids.append(Xid("last", series.parent or series.place, int(value), value, words))

    def _add_xid(self, how: str, series: Series, value: float) -> None:
        code = series.labels.get("xid", "")
        if 1 <= len(code) <= 5 and code.isascii() and code.isdigit() and int(code):
            self.xids.append(Xid(how, series.parent or series.place, int(code), value, None))

    def _add_use(self, what: str, place: Place, series: Series, value: float | None) -> None:
        if series.pid is None or len(self._uses) >= _OTHERS_MAX:
            return
        facts = self._uses.setdefault((series.pid, place), {})
        for label, field in (("user", "user"), ("username", "user"), ("process_name", "name")):
            if series.labels.get(label):
                facts[field] = clean(series.labels[label], 64)
        if "process_name" in series.labels:
            facts["name"] = facts["name"].replace("\\", "/").rpartition("/")[2]
        if what != "info" and value is not None and 0 <= value < _MOST["_bytes"]:
            facts[what] = round(value) if what.startswith("memory") else value

    # --- as a reading ----------------------------------------------------------------------------

    def uses(self) -> Iterator[Use]:
        """The processes that exporters list."""
        for (pid, place), facts in self._uses.items():
            rest = {name: value for name, value in facts.items() if name not in {"memory", "sm"}}
            yield Use(pid, place, facts.get("memory"), facts.get("sm"), rest)

    def gpus(self, *, is_ratio_percent: bool) -> Iterator[tuple[Place, dict[str, Any]]]:
        """The GPUs and MIG instances with their facts."""
        split = {key_of(series.parent) for series in self._series.values() if series.parent is not None}
        for key, raw in self._gpus.items():
            facts = self._facts(key, raw, is_ratio_percent=is_ratio_percent)
            if key in split:
                facts["mig_enabled"] = True
                for field in UNKNOWN_WITH_MIG:
                    facts.pop(field, None)
            yield self.places[key], facts

    def _facts(self, key: Key, raw: dict[str, tuple[int, float]], *, is_ratio_percent: bool) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for field, (_, value) in raw.items():
            name, scaled = field, value
            if field.startswith("ratio."):
                name, scaled = field.removeprefix("ratio."), value / 100.0 if is_ratio_percent else value
            kept = _kept(name, scaled)
            if kept is not None:
                facts.setdefault(name, kept)
        free = raw.get("free.memory_bytes")
        used = facts.get("memory_used_bytes")
        if free is not None and used is not None and "memory_total_bytes" not in facts:
            facts["memory_total_bytes"] = used + round(free[1]) + facts.get("memory_reserved_bytes", 0)
        both = raw.get("both.nvlink")
        if both is not None and 0 <= both[1] < _MOST["_bytes_per_s"]:
            # Only the sum is told; collectives send as much as they receive.
            facts.setdefault("nvlink_rx_bytes_per_s", both[1] / 2.0)
            facts.setdefault("nvlink_tx_bytes_per_s", both[1] / 2.0)
        reasons = self._reasons.get(key)
        if reasons is not None and "clocks_event_reasons" not in facts:
            facts["clocks_event_reasons"] = tuple(name for name in REASON_NAMES if reasons.get(name))
        return facts | self._named(key)

    def _named(self, key: Key) -> dict[str, Any]:
        series = self._series[key]
        facts: dict[str, Any] = {}
        name = name_of(series.labels)
        driver = driver_of(series.labels)
        if driver is not None:
            self.host["driver_version"] = driver
        if series.profile is not None and series.place is not None and key_of(series.place) == key:
            facts["mig_profile"] = series.profile
            if series.parent is not None and series.parent.uuid is not None:
                facts["mig_parent_uuid"] = series.parent.uuid
            name = name and f"{name} MIG {series.profile}"
        return facts | ({"name": name} if name else {})


def _value_of(text: str, *, is_total: bool) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    if is_total:
        return value if abs(value) < _BLANK else None
    return None if is_blank(value) else value


def _kept(field: str, value: float) -> object | None:
    """A value as the model has it; None where it cannot be one."""
    if "." in field or value < 0:
        return None
    if field == "performance_state":
        return f"P{value:.0f}" if value <= 15 and value.is_integer() else None
    if field == "clocks_event_reasons":
        return reason_names(int(value))
    if field in _FLAGS:
        return value > 0
    if not value and field.endswith(_ZERO_IS_MISSING):
        return None
    most = next((most for suffix, most in _MOST.items() if field.endswith(suffix)), 2.0**53)
    if value > most:
        return None
    if field.endswith("_pct"):
        return min(value, 100.0)
    return round(value) if field in _WHOLE else value
