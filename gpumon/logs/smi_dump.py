"""Knows how the cells of one dump of nvidia-smi (-q, -q -x) become a reading, whichever way they were written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpumon.logs.reading import Place, Reading, Use
from gpumon.logs.smi_fields import (
    COUNTER_PREFIXES,
    COUNTER_SECTIONS,
    COUNTERS,
    LOWEST,
    PROCESS_NAMES,
    PROCESS_SECTIONS,
    REASON_PREFIXES,
    REASON_SECTIONS,
    REASONS,
    SUMMED,
    count,
    field_of,
    flag,
    size,
    words,
)
from gpumon.logs.values import bus_id, has_zone, integer, is_missing, moment

_ORDER = "gpu_idle app_clocks sw_power_cap hw_slowdown sync_boost sw_thermal hw_thermal hw_power_brake display_clock"
_FEWEST_REASONS = 5
"""The oldest drivers list so many; fewer are the beginning of a list that was cut off."""
_CORE = ("temperature_c", "utilization_pct", "power_w", "sm_clock_mhz")
_ERRORS = ("unknown error", "err!", "gpu is lost", "gpu requires reset")
_WATCHED = {
    "uuid": "UUID",
    "vbios_version": "VBIOS",
    "clocks_event_reasons": "clock limiters",
    "clocks_throttle_reasons": "clock limiters",
    "temperature_c": "temperature",
    "utilization_pct": "utilization",
    "memory_used_bytes": "memory",
    "power_w": "power",
    "sm_clock_mhz": "clocks",
    "performance_state": "performance state",
    "fan_pct": "fan",
}
"""Where an error instead of a value means that the GPU does not answer; elsewhere only that the value is unknown."""
_ONLY_WATCHED = frozenset({"vbios_version", "clocks_event_reasons", "clocks_throttle_reasons"})
_KEPT_OF_LOST = frozenset({"name", "memory_total_bytes", "recovery_action", "persistence"})
_INSTANCES_MAX = 64
_CARDS_MAX = 1024
_PROCESSES_MAX = 4096
_PID_MAX = 2**31
_VIRTUAL = frozenset({"pass-through", "passthrough", "vgpu", "vsga"})


class Counted(NamedTuple):
    """The limiters' counters of one GPU at one moment."""

    time_s: float
    us: dict[str, int]


class Card:
    """What one dump says of one GPU or MIG instance."""

    def __init__(self, bus: str | None = None) -> None:
        self.bus = bus
        self.uuid: str | None = None
        self.minor: int | None = None
        self.number: int | None = None
        """A MIG instance's index under its GPU."""
        self.instance: tuple[str, str] = ("", "")
        """GPU instance and compute instance of a MIG instance."""
        self.is_virtual = False
        self.lists_processes = False
        self.processes: list[dict[str, str]] = []
        self.instances: list[Card] = []
        self.counters: dict[str, int] = {}
        self._facts: dict[str, tuple[int, Any]] = {}
        self._sums: dict[str, int] = {}
        self._reasons: dict[str, bool] = {}
        self._errors: dict[str, None] = {}
        self._next: dict[str, str] = {}

    def put(self, section: str | None, name: str, cell: str) -> bool:
        """Take a cell; False where it means nothing here."""
        if section in PROCESS_SECTIONS:
            return self._put_process(name, cell)
        if section in REASON_SECTIONS:
            return self._put_reason(name, cell)
        if section in COUNTER_SECTIONS:
            return self._put_counter(name, cell)
        if self._put_identity(name, cell):
            return True
        summed = SUMMED.get((section or "", name))
        if summed is not None:
            value = count(cell)
            if value is not None:
                self._sums[summed] = self._sums.get(summed, 0) + value
            return True
        field = field_of(section, name)
        if field is None:
            return False
        self._note_error(field.fact, cell)
        known, value = self._facts.get(field.fact), field.read(cell)
        if value is None:
            return True
        if field.fact in LOWEST:
            value = value if known is None else min(value, known[1])
        elif known is not None and known[0] <= field.rank:
            return True
        self._facts[field.fact] = (field.rank, value)
        return True

    def new_instance(self) -> Card:
        """Begin a MIG instance of this GPU."""
        card = Card()
        if len(self.instances) < _INSTANCES_MAX:
            self.instances.append(card)
        return card

    def _put_identity(self, name: str, cell: str) -> bool:
        if name in {"gpu_uuid", "uuid"}:
            self._note_error("uuid", cell)
            self.uuid = _uuid(cell)
        elif name in {"bus_id", "pci_bus_id"}:
            self.bus = self.bus or bus_id(cell)
        elif name == "minor_number":
            self.minor = count(cell)
        elif name == "index":
            self.number = count(cell)
        elif name == "gpu_instance_id":
            self.instance = (cell.strip(), self.instance[1])
        elif name == "compute_instance_id":
            self.instance = (self.instance[0], cell.strip())
        elif name == "virtualization_mode":
            self.is_virtual = cell.strip().lower() in _VIRTUAL
        elif name in PROCESS_SECTIONS:
            self.lists_processes = not self.processes and cell.strip().lower() == "none"
        elif name in _ONLY_WATCHED:
            self._note_error(name, cell)
        else:
            return False
        return True

    def _note_error(self, what: str, cell: str) -> None:
        if what in _WATCHED and cell.strip(" []").lower().startswith(_ERRORS):
            self._errors[_WATCHED[what]] = None

    def _put_reason(self, name: str, cell: str) -> bool:
        reason, is_active = REASONS.get(_without(REASON_PREFIXES, name)), flag(cell)
        if reason is not None and is_active is not None:
            self._reasons[reason] = is_active
        return reason is not None

    def _put_counter(self, name: str, cell: str) -> bool:
        counter, value = COUNTERS.get(_without(COUNTER_PREFIXES, name)), count(cell)
        if counter is not None and value is not None:
            self.counters[counter] = value
        return counter is not None

    def _put_process(self, name: str, cell: str) -> bool:
        key = PROCESS_NAMES.get(name)
        if key in {"gpu_instance", "compute_instance"} and not is_missing(cell):
            self._next[key] = cell.strip()
        elif key == "pid":
            self.lists_processes = True
            if len(self.processes) < _PROCESSES_MAX:
                self.processes.append({**self._next, "pid": cell})
            self._next = {}
        elif key is not None and self.processes:
            self.processes[-1].setdefault(key, cell)
        return key is not None

    # --- what it comes to ------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Nothing was said about it but, perhaps, that it is there."""
        said = (self._facts, self._sums, self._reasons, self._errors, self.counters, self.processes, self.instances)
        return not any(said) and self.uuid is None and not self.lists_processes

    def is_lost(self) -> bool:
        """The driver no longer reaches it: errors instead of what every GPU can tell, and nothing measured at all."""
        return len(self._errors) >= 2 and not any(name in self._facts for name in _CORE)

    def errors(self) -> str:
        """What could not be read, in words."""
        return ", ".join(self._errors)

    def facts(self) -> dict[str, Any]:
        """Of ``model.Gpu``."""
        found = {name: value for name, (_, value) in self._facts.items()}
        if self.is_lost():
            # What a device that does not answer seems to say (limits of 0 °C, thousands of replays) is no measurement.
            return {name: value for name, value in found.items() if name in _KEPT_OF_LOST} | {"is_lost": True}
        found.update(self._sums)
        active = tuple(name for name in _ORDER.split() if self._reasons.get(name))
        if active or len(self._reasons) >= _FEWEST_REASONS:
            found["clocks_event_reasons"] = active
        return found


class Dump:
    """One run of nvidia-smi: the GPUs of one moment."""

    def __init__(self) -> None:
        self.time_s: float | None = None
        self.has_zone = False
        self.attached: int | None = None
        self.is_rest = False
        """Its first GPUs stood in another stretch."""
        self.host: dict[str, Any] = {}
        self.cards: list[Card] = []

    def put(self, name: str, cell: str) -> bool:
        """Take a cell that stands above the first GPU; False where it is none of them."""
        if name == "timestamp":
            self.time_s, self.has_zone = moment(cell), has_zone(cell)
        elif name == "attached_gpus":
            self.attached = count(cell)
        elif name in {"driver_version", "cuda_version"}:
            value = words(cell)
            if value is not None:
                self.host[name] = value
        else:
            return False
        return True

    def new_card(self, bus: str | None) -> Card:
        """Begin a GPU."""
        card = Card(bus)
        if len(self.cards) < _CARDS_MAX:
            self.cards.append(card)
        return card

    def is_empty(self) -> bool:
        """No GPU has said anything, and the host has not either."""
        return not self.host and all(card.is_empty() for card in self.cards)

    def reading(self, counted: dict[str, Counted]) -> Reading:
        """What it says; ``counted`` are the counters of the dump before, which are replaced by this one's."""
        places = self._places()
        gpus: list[tuple[Place, dict[str, Any]]] = []
        uses: list[Use] = []
        events: list[tuple[Place, dict[str, Any]]] = []
        for card, place in zip(self.cards, places, strict=True):
            facts = card.facts()
            shares = self._throttled_pct(card, place, counted)
            if shares:
                facts["throttled_pct"] = shares
            if card.is_lost():
                events.append((place, {"kind": "gpu-lost", "text": f"nvidia-smi: error for {card.errors()}"}))
            gpus.append((place, facts))
            instances = [(one, _instance_place(one, place)) for one in card.instances]
            parent = place.uuid or f"bus:{place.bus}"
            gpus += [(where, {**one.facts(), "mig_parent_uuid": parent}) for one, where in instances]
            uses += _uses(card, place, {one.instance: where for one, where in instances})
        host = dict(self.host)
        if any(card.is_virtual for card in self.cards):
            host["chassis"] = "virtual"
        return Reading(
            time_s=self.time_s,
            gpus=gpus,
            uses=uses,
            is_complete_process_list=bool(self.cards) and all(card.lists_processes for card in self.cards),
            host=host,
            events=events,
            has_zone=self.has_zone,
        )

    def _places(self) -> list[Place]:
        """Who the GPUs are. A dump lists them in the driver's order, unless it was asked for some of them only."""
        seen = Counter(card.uuid for card in self.cards)
        is_whole = not self.is_rest and self.attached in {None, len(self.cards)}
        found = []
        for number, card in enumerate(self.cards):
            # Masked by whoever published the dump: the same for all.
            uuid = card.uuid if seen[card.uuid] == 1 or card.bus is None else None
            index = number if is_whole else card.minor
            found.append(Place(number if index is None and not (card.bus or uuid) else index, card.bus, uuid))
        return found

    def _throttled_pct(self, card: Card, place: Place, counted: dict[str, Counted]) -> dict[str, float]:
        """Share of the time since the dump before in which each limiter held the clock."""
        key = place.uuid or place.bus or str(place.index)
        before = counted.get(key)
        if self.time_s is None or not card.counters:
            return {}
        counted[key] = Counted(self.time_s, card.counters)
        if before is None or self.time_s <= before.time_s:
            return {}
        passed_us = 1e6 * (self.time_s - before.time_s)
        grown = {name: us - before.us[name] for name, us in card.counters.items() if name in before.us}
        return {name: min(100.0, 100.0 * us / passed_us) for name, us in grown.items() if us >= 0}


def _uses(card: Card, place: Place, instances: dict[tuple[str, str], Place]) -> Iterator[Use]:
    for one in card.processes:
        pid = integer(one["pid"])
        if pid is None or not 0 < pid < _PID_MAX:
            continue
        where = instances.get((one.get("gpu_instance", ""), one.get("compute_instance", "")), place)
        memory = one.get("memory", "")
        yield Use(pid, where, None if is_missing(memory) else size(memory), facts=_process(one.get("name", "")))


def _process(cell: str) -> dict[str, Any]:
    """A process by what the driver calls it: a path, or what the process calls itself."""
    if is_missing(cell):
        return {}
    text = cell.strip()
    path = text.split(" ")[0] if text.startswith("/") else text
    return {"name": re.split(r"[/\\]", path)[-1] or text, "command": text}


def _uuid(cell: str) -> str | None:
    text = cell.strip()
    return text if re.fullmatch(r"(?:GPU|MIG)-[0-9A-Za-z/-]{8,80}", text) else None


def _instance_place(card: Card, parent: Place) -> Place:
    """In the old form of an instance's UUID, where the log does not give its own."""
    gpu, compute = card.instance
    uuid = card.uuid or f"MIG-{parent.uuid or parent.bus}/{gpu}/{compute}"
    # Without the GPU's UUID its index and the instance's could not be told apart.
    return Place(card.number if parent.uuid else None, uuid=uuid)


def _without(prefixes: tuple[str, ...], name: str) -> str:
    for prefix in prefixes:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name
