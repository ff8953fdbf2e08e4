"""Puts what several stretches of a log say about one moment together, into the Snapshots that everything else reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpumon.logs.reading import NOTHING, Facts, Place, Reading, Use
from gpumon.model import Event, Gpu, Host, Process, Rank, Snapshot
from gpumon.trace import NO_PROCESSES, NO_UUID

CARRIED = (
    "name pci_bus_id memory_total_bytes memory_reserved_bytes memory_is_shared power_limit_w power_default_limit_w"
    " temperature_slowdown_c temperature_max_c temperature_shutdown_c memory_temperature_max_c sm_clock_max_mhz"
    " memory_clock_max_mhz pcie_gen_max pcie_width_max ecc_enabled mig_enabled mig_parent_uuid mig_profile compute_mode"
    " persistence compute_capability sm_count numa_node nvlinks_total"
).split()
"""What holds until the log says otherwise; measurements hold for their moment only."""
_HELD = frozenset(CARRIED)
_ALONE_S = 2.0
"""Readings of different kinds within so much time are of one moment."""
_LAPTOP = re.compile(r"Laptop|Max-Q|Mobile|\bMX ?\d{3}\b")
_SHARES = re.compile(r"GB10\b|Thor\b|Orin\b|Xavier|Tegra", re.IGNORECASE)
"""Names of GPUs that use the host's memory."""
BOOT_CLOCK_S = 1e9
"""Times below count from the boot, as in a kernel's log."""
USUAL_S = 1.0
"""Assumed between two readings of a format that gives neither times nor an interval."""
GPUS_MAX, USES_MAX, EVENTS_MAX = 128, 4096, 10_000
"""Kept of one machine and one moment: more than any has, and a bound for hostile input."""
_PACE = ((3_600, 1.0), (7_200, 10.0), (math.inf, 30.0))
"""So many snapshots into a log, and the least time between two of them: an hour is judged second by second."""
_NEARLY = 0.75
_MEANS = (
    "memory_utilization_pct encoder_pct decoder_pct power_w sm_clock_mhz memory_clock_mhz sm_active_pct"
    " sm_occupancy_pct tensor_active_pct dram_active_pct fp32_active_pct fp64_active_pct graphics_active_pct"
    " pcie_rx_bytes_per_s pcie_tx_bytes_per_s nvlink_rx_bytes_per_s nvlink_tx_bytes_per_s"
).split()
"""What a run of moments is best told by; of everything else the last value stands."""


class _Known:
    """A GPU that the log has named, under all its names."""

    def __init__(self, place: Place, number: int) -> None:
        self.place = place
        self.number = number
        self.carried: dict[str, Any] = {}
        self._uuid: str | None = None

    def add(self, place: Place) -> None:
        """Learn further names."""
        mine = self.place
        self.place = Place(
            place.index if mine.index is None else mine.index, mine.bus or place.bus, mine.uuid or place.uuid
        )

    @property
    def uuid(self) -> str:
        """The identity under which it is kept: what was known of it when it first appeared."""
        if self._uuid is None:
            place = self.place
            self._uuid = place.uuid or (f"bus:{place.bus}" if place.bus else f"index:{place.index}")
        return self._uuid


class _Tick:
    """What is known so far of one moment, or of a run of moments that are judged as one."""

    def __init__(self, time_s: float | None) -> None:
        self.time_s = self.began_s = time_s
        self.interval_s: float | None = None
        self.streams: set[str] = set()
        self.gpus: dict[_Known, dict[str, Any]] = {}
        self.past: dict[_Known, list[dict[str, Any]]] = {}
        """Earlier facts of the run, where moments follow each other too closely."""
        self.uses: list[Use] = []
        self.is_complete_process_list = False
        self.host: dict[str, Any] = {}
        self.events: list[tuple[_Known | None, Facts]] = []
        self.ranks: list[tuple[_Known | None, Facts]] = []


class Assembly:
    """Readings in, in the order of the log; snapshots out, each once its moment is over."""

    def __init__(self) -> None:
        self.has_times = False
        """Whether any reading said when it was taken."""
        self.has_zone = False
        self.assumed_s: float | None = None
        """The interval that had to be assumed, if one had to be."""
        self._names: dict[int | str, _Known] = {}
        self._known: list[_Known] = []
        self.lost_events = 0
        """Events left out because too many came at one moment."""
        self.has_more_gpus = False
        """More of them than one machine has: only the first were read."""
        self.judged_every_s: float | None = None
        """How much time one snapshot stands for, where the log has more readings than are judged one by one."""
        self._count = 0
        self._tick: _Tick | None = None
        self._run: _Tick | None = None
        self._waiting: list[tuple[_Known | None, Facts]] = []
        self._has_gpus = False
        self._host: dict[str, Any] = {"processes_hidden": NO_PROCESSES}
        self._uses: Sequence[Use] = ()
        self._before_s: float | None = None

    def take(self, stream: str, reading: Reading) -> Iterator[Snapshot]:
        """Add what one stream says; yields the moment before where this begins a new one."""
        if reading.time_s is not None:
            self.has_times = True
            self.has_zone = self.has_zone or reading.has_zone
        for place, _ in reading.gpus if reading.events else ():
            self._find(place)  # in their order: what an event is about may come from the end of it
        events = list(self._events(reading))
        if self._is_aside(reading):
            self._keep(self._waiting, events)
            return
        tick = self._tick
        if tick is None or self._begins_another(tick, stream, reading):
            if tick is not None:
                yield from self._paced(tick)
            tick = self._tick = self._new(tick, reading)
            tick.events, self._waiting = self._waiting, []
        self._add(tick, stream, reading)
        self._keep(tick.events, events)

    def end(self) -> Iterator[Snapshot]:
        """The log is over."""
        if self._tick is not None:
            self._keep(self._tick.events, self._waiting)
            yield from self._paced(self._tick)
        if self._run is not None:
            yield self._snapshot(self._run)
        self._tick = self._run = None

    @property
    def every_s(self) -> float:
        """How close to each other snapshots may be, so many of them into a log."""
        return next(every_s for count, every_s in _PACE if self._count < count)

    def _paced(self, tick: _Tick) -> Iterator[Snapshot]:
        """The run of moments before, unless this one is too close after its beginning and joins it."""
        run = self._run
        if run is None:
            self._run = tick
            return
        passed_s = (tick.time_s or 0.0) - (run.began_s or 0.0)
        if 0.0 <= passed_s < _NEARLY * self.every_s:
            self.judged_every_s = self.every_s
            _join(run, tick)
            return
        yield self._snapshot(run)
        self._run = tick

    def _is_aside(self, reading: Reading) -> bool:
        """Only events, in a log of measurements: they belong to the measurement that follows."""
        return self._has_gpus and not (reading.gpus or reading.uses or reading.host or reading.ranks)

    def _begins_another(self, tick: _Tick, stream: str, reading: Reading) -> bool:
        has_values = bool(reading.gpus or reading.ranks)
        if not has_values and self._has_gpus:
            return False
        if reading.time_s is None or tick.time_s is None:
            is_next = reading.interval_s is not None or self._says_again(tick, reading)
            return has_values and stream in tick.streams and is_next
        if stream in tick.streams and has_values:
            return True
        return abs(reading.time_s - tick.time_s) >= (_ALONE_S if self._has_gpus else USUAL_S)

    def _says_again(self, tick: _Tick, reading: Reading) -> bool:
        """Whether it measures something that the moment has already; names and limits may be said several times."""
        for place, facts in reading.gpus:
            known = self._find(place)
            mine = tick.gpus.get(known, NOTHING) if known is not None else NOTHING
            if not facts or any(name in mine and name not in _HELD for name in facts):
                return True
        return bool(reading.ranks)

    def _new(self, before: _Tick | None, reading: Reading) -> _Tick:
        if before is None or reading.time_s is not None:
            return _Tick(reading.time_s)
        step_s = reading.interval_s or USUAL_S
        self.assumed_s = step_s
        tick = _Tick((before.time_s or 0.0) + step_s)
        tick.interval_s = step_s
        return tick

    def _add(self, tick: _Tick, stream: str, reading: Reading) -> None:
        if tick.time_s is None:
            tick.time_s = tick.began_s = reading.time_s
        if reading.gpus or reading.ranks:
            tick.streams.add(stream)
        for place, facts in reading.gpus:
            self._has_gpus = True
            known = self._find(place)
            if known is None:
                continue
            mine = tick.gpus.get(known)
            if mine is None:
                tick.gpus[known] = dict(facts)
            else:
                mine.update(facts)
        tick.uses += reading.uses[: USES_MAX - len(tick.uses)]
        tick.is_complete_process_list = tick.is_complete_process_list or reading.is_complete_process_list
        tick.host.update(reading.host)
        tick.ranks += [(None if place is None else self._find(place), facts) for place, facts in reading.ranks]

    def _events(self, reading: Reading) -> Iterator[tuple[_Known | None, Facts]]:
        for place, facts in reading.events:
            has_time = reading.time_s is None or "time_s" in facts
            yield (
                None if place is None else self._find(place),
                facts if has_time else {**facts, "time_s": reading.time_s},
            )

    def _keep(self, kept: list[tuple[_Known | None, Facts]], more: list[tuple[_Known | None, Facts]]) -> None:
        room = EVENTS_MAX - len(kept)
        kept += more[:room]
        self.lost_events += max(0, len(more) - room)

    # --- identity --------------------------------------------------------------------------------

    def _find(self, place: Place) -> _Known | None:
        """The GPU of that name; its UUID tells most, then its bus id, then its index. None beyond the last one kept."""
        if place.uuid is not None and "/" in place.uuid:
            place = self._instance(place)
        names = self._names
        named = (place.uuid, place.bus, place.index)
        for name in named:
            known = None if name is None else names.get(name)
            if known is not None and self._is_same(known, place):
                break
        else:
            if len(self._known) >= GPUS_MAX:
                self.has_more_gpus = True
                return None
            known = _Known(place, len(self._known))
            self._known.append(known)
        if known.place != place:
            known.add(place)
        for name in named:
            if name is not None and name not in names:
                names[name] = known
        return known

    def _instance(self, place: Place) -> Place:
        """A MIG instance that is named by its GPU, whichever of the GPU's names a format uses: ``MIG-name/2/0``."""
        assert place.uuid is not None
        name, _, rest = place.uuid.removeprefix("MIG-").partition("/")
        parent = self._parent(name)
        if parent is None:
            return place
        head = parent.uuid if parent.uuid.startswith(NO_UUID) else f"MIG-{parent.uuid}"
        return Place(place.index, place.bus, f"{head}/{rest}")

    def _parent(self, name: str) -> _Known | None:
        for prefix in NO_UUID:
            name = name.removeprefix(prefix)
        return self._names.get(int(name) if name.isascii() and name.isdigit() and len(name) < 5 else name)

    @staticmethod
    def _is_same(known: _Known, place: Place) -> bool:
        """An index alone may have been another machine's or another driver's: what tells more must not contradict."""
        mine = known.place
        if place.uuid and mine.uuid:
            return place.uuid == mine.uuid
        return not (place.bus and mine.bus) or place.bus == mine.bus

    def _index(self, known: _Known) -> int:
        return known.number if known.place.index is None else known.place.index

    # --- snapshots -------------------------------------------------------------------------------

    def _snapshot(self, tick: _Tick) -> Snapshot:
        time_s = tick.time_s if tick.time_s is not None else (self._before_s or 0.0)
        interval_s = tick.interval_s
        if interval_s is None and self._before_s is not None:
            passed_s = time_s - self._before_s
            # Time since boot and dates, in one file, tell nothing of how far they are apart.
            is_other_clock = self._before_s < BOOT_CLOCK_S <= time_s
            interval_s = passed_s if passed_s > 0 and not is_other_clock else USUAL_S
        self._before_s = time_s
        self._count += 1
        self._host.update(tick.host)
        if tick.is_complete_process_list or tick.uses:
            self._uses = tick.uses
            self._host["processes_hidden"] = tick.host.get("processes_hidden")
        gpus = tuple(
            self._gpu(known, _over(tick.past.get(known), facts))
            for known, facts in sorted(tick.gpus.items(), key=self._order)
        )
        if self._host.get("chassis") is None and any(_LAPTOP.search(gpu.name or "") for gpu in gpus):
            self._host["chassis"] = "laptop"
        return Snapshot(
            time_s=time_s,
            interval_s=interval_s,
            gpus=gpus,
            processes=tuple(self._processes()),
            host=Host(**self._host),
            ranks=tuple(Rank(**_with(facts, "gpu_uuid", known)) for known, facts in tick.ranks),
            events=tuple(Event(**_with(facts, "gpu_uuid", known)) for known, facts in tick.events),
        )

    def _order(self, pair: tuple[_Known, Mapping[str, Any]]) -> tuple[int, int]:
        return self._index(pair[0]), pair[0].number

    def _gpu(self, known: _Known, facts: dict[str, Any]) -> Gpu:
        carried = known.carried
        for name in CARRIED:
            if name in facts:
                carried[name] = facts[name]
        found = {"pci_bus_id": known.place.bus, "index": self._index(known), **carried, **facts, "uuid": known.uuid}
        if _SHARES.search(found.get("name") or ""):
            found["memory_is_shared"] = True
        parent = self._parent(found["mig_parent_uuid"]) if "mig_parent_uuid" in found else None
        if parent is not None:
            found["mig_parent_uuid"] = parent.uuid
        return Gpu(**found)

    def _processes(self) -> Iterator[Process]:
        by_pid: dict[int, dict[str, Any]] = {}
        for use in self._uses:
            mine = by_pid.setdefault(use.pid, {"pid": use.pid, "gpu_memory_bytes": {}})
            mine.update(use.facts)
            known = self._find(use.gpu)
            if known is None:
                continue
            uuid = known.uuid
            held = mine["gpu_memory_bytes"].get(uuid)
            mine["gpu_memory_bytes"][uuid] = use.memory_bytes if held is None else held
            if use.sm_pct is not None:
                mine.setdefault("gpu_sm_pct", {})[uuid] = use.sm_pct
        for facts in by_pid.values():
            yield Process(**facts)


def _with(facts: Facts, name: str, known: _Known | None) -> dict[str, Any]:
    return dict(facts) if known is None else {**facts, name: known.uuid}


def _join(run: _Tick, tick: _Tick) -> None:
    """Let a moment become the newest of a run."""
    for known, facts in tick.gpus.items():
        if known in run.gpus:
            run.past.setdefault(known, []).append(run.gpus[known])
        run.gpus[known] = facts
    if tick.uses or tick.is_complete_process_list:
        run.uses, run.is_complete_process_list = tick.uses, tick.is_complete_process_list
    run.host.update(tick.host)
    run.events += tick.events
    run.ranks = tick.ranks or run.ranks
    run.time_s = tick.time_s


def _over(past: list[dict[str, Any]] | None, newest: dict[str, Any]) -> dict[str, Any]:
    """One value of each kind for a run of moments."""
    if not past:
        return newest
    run = [*past, newest]
    merged: dict[str, Any] = {}
    for facts in run:
        merged.update(facts)
    for name in _MEANS:
        if name in merged:
            values = [facts[name] for facts in run if name in facts]
            merged[name] = sum(values) / len(values)
    if "utilization_pct" in merged:
        values = [facts["utilization_pct"] for facts in run if "utilization_pct" in facts]
        merged["utilization_pct"] = sum(values) / len(values)
        merged["utilization_samples_pct"] = tuple(values)
    return merged
