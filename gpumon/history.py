"""Knows every recent sample of every signal, and hands out views of them that never change."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from statistics import median

from gpumon.model import Event, Gpu, Host, Job, Process, Snapshot
from gpumon.rings import How, Ring, Tier, Timeline, fold, fold_rows

Subject = Gpu | Process | Host | str
Derived = Mapping[str, Mapping[str, float | None]]
"""GPU uuid -> series name -> value of this instant."""

LIMITERS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")
BUDGET_FIELDS = (
    "budget.useful_pct",
    "budget.data_pct",
    "budget.throttled_pct",
    "budget.peer_pct",
    "budget.idle_pct",
)
GPU_FIELDS = (
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_bytes",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "sm_clock_mhz",
    "fan_pct",
    "sm_active_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "pcie_rx_bytes_per_s",
    "pcie_tx_bytes_per_s",
)
"""Plain attributes of a GPU; every GPU also has ``throttled_pct.<limiter>`` and the budget's shares."""
HOST_FIELDS = (
    "cpu_pct",
    "memory_available_bytes",
    "swap_used_bytes",
    "cpu_pressure_pct",
    "io_pressure_pct",
    "memory_pressure_pct",
    "disk_read_bytes_per_s",
    "disk_write_bytes_per_s",
    "disk_busy_pct",
    "net_rx_bytes_per_s",
    "net_tx_bytes_per_s",
)
PROCESS_FIELDS = (
    "cpu_pct",
    "main_thread_cpu_pct",
    "disk_wait_pct",
    "run_delay_pct",
    "cpu_throttled_pct",
    "read_bytes_per_s",
    "rchar_bytes_per_s",
    "write_bytes_per_s",
    "memory_rss_bytes",
)
HOST_KEY = "host"
_NAN = math.nan
_RAW_SLOTS = 3600
_PROCESS_SLOTS = 1200
_TIERS = ((10.0, 2160), (60.0, 1440))
_COLUMNS_KEPT = 600
_CLOCK_STEP_S = 0.25


def key_of(subject: Subject) -> str:
    """The name under which a subject's series are kept."""
    match subject:
        case Gpu():
            return subject.uuid
        case Process():
            return f"{subject.pid}:{subject.started_s}"
        case Host():
            return HOST_KEY
        case _:
            return subject


class _Series:
    """Everything kept about one subject."""

    def __init__(self, fields: Mapping[str, int], slots: int, first: int, tiers: Sequence[Tier]) -> None:
        self.fields = fields
        self.raw = Ring(len(fields), slots, first)
        self.tiers = tuple(tier.ring(len(fields)) for tier in tiers)

    def field(self, name: str) -> int:
        """Column of a field; a name that does not exist is a mistake of the caller."""
        index = self.fields.get(name)
        if index is None:
            raise KeyError(unknown_field(name, self.fields))
        return index


def unknown_field(name: str, known: Mapping[str, int]) -> str:
    """One line naming the nearest field that exists."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"no series {name!r}; did you mean {near[0]!r}?"


class History:
    """Every series of this run. One thread appends; readers hold Windows."""

    def __init__(
        self,
        gpu_fields: Sequence[str] = GPU_FIELDS,
        process_fields: Sequence[str] = PROCESS_FIELDS,
        host_fields: Sequence[str] = HOST_FIELDS,
        raw_slots: int = _RAW_SLOTS,
    ) -> None:
        limiters = tuple(f"throttled_pct.{name}" for name in LIMITERS)
        self.gpu_fields = _numbered((*gpu_fields, *limiters, *BUDGET_FIELDS))
        self.process_fields = _numbered(process_fields)
        self.host_fields = _numbered(host_fields)
        self._gpu_values = attrgetter(*gpu_fields)
        self._process_values = attrgetter(*process_fields)
        self._host_values = attrgetter(*host_fields)
        self._utilization = tuple(gpu_fields).index("utilization_pct")
        self._process_slots = min(raw_slots, _PROCESS_SLOTS)
        self.timeline = Timeline(raw_slots)
        self.tiers = tuple(Tier(width_s, bins) for width_s, bins in _TIERS)
        self.series: dict[str, _Series] = {}
        self.rings: dict[str, list[tuple[int, tuple[float, ...]] | None]] = {}
        self.baselines: Mapping[str, Mapping[str, float]] = {}
        self.columns: dict[tuple[str, str, float, How], dict[int, float | None]] = {}
        self.happened: list[tuple[float, Event]] = []
        self.nominal_s = 1.0
        """The usual interval of late."""
        self._intervals: list[float] = []
        self._rates: dict[str, float] = {}
        self._elapsed_s = 0.0
        self._offset_s: float | None = None

    def append(
        self,
        snapshot: Snapshot,
        jobs: tuple[Job, ...] = (),
        derived: Derived | None = None,
        baselines: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Window:
        """Take in the next sample and return the view that ends with it."""
        row = self.timeline.last + 1
        self._advance(snapshot, row)
        stale_s = stale_after_s(self.nominal_s)
        for gpu in snapshot.gpus:
            series = self._of(gpu.uuid, self.gpu_fields, self.timeline.slots, self.tiers, row)
            if gpu.is_lost or (gpu.age_s is not None and gpu.age_s >= stale_s):
                continue
            series.raw.write(row, self._gpu_row(gpu, (derived or {}).get(gpu.uuid, {}), row, snapshot.interval_s))
        self._of(HOST_KEY, self.host_fields, self.timeline.slots, self.tiers, row).raw.write(
            row, [_NAN if value is None else value for value in self._host_values(snapshot.host)]
        )
        for process in snapshot.processes:
            series = self._of(key_of(process), self.process_fields, self._process_slots, (), row)
            series.raw.write(row, [_NAN if value is None else value for value in self._process_values(process)])
        if row % 64 == 0:
            self._forget_ended(row)
        self._remember(snapshot.events)
        self._coarsen(row)
        if baselines is not None:
            self.baselines = baselines
        return Window(self, row, snapshot, jobs, self._elapsed_s, self._offset_s or 0.0)

    def _advance(self, snapshot: Snapshot, row: int) -> None:
        interval = snapshot.interval_s or 0.0
        if row and interval > 0:
            self._intervals = [*self._intervals[-8:], interval]
            self.nominal_s = median(self._intervals)
        self._elapsed_s += interval if row else 0.0
        # A suspend or a hang is a gap: a sample stands for no more time than a few usual intervals.
        cover = min(interval or self.nominal_s, 3 * self.nominal_s)
        self.timeline.write(row, self._elapsed_s, cover)
        offset = snapshot.time_s - self._elapsed_s
        if self._offset_s is None or abs(offset - self._offset_s) > _CLOCK_STEP_S:
            self._offset_s = offset
            self.columns = {}

    def _of(
        self, key: str, fields: Mapping[str, int], slots: int, tiers: Sequence[Tier], row: int
    ) -> _Series:
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = _Series(fields, slots, row, tiers)
        return series

    def _gpu_row(
        self, gpu: Gpu, derived: Mapping[str, float | None], row: int, interval_s: float | None
    ) -> list[float]:
        values = [_NAN if value is None else value for value in self._gpu_values(gpu)]
        ring = gpu.utilization_samples_pct
        if ring:
            # The mean of all windows since the last sample; the single value is only one of them.
            values[self._utilization] = sum(ring) / len(ring)
            if interval_s:
                self._rates[gpu.uuid] = len(ring) / interval_s
        elif gpu.utilization_pct is not None:
            ring = (gpu.utilization_pct,) * max(1, round(self._rates.get(gpu.uuid, 0.0) * (interval_s or 0.0)))
        slots = self.rings.setdefault(gpu.uuid, [None] * self._process_slots)
        slots[row % len(slots)] = (row, ring)
        values += [_limiter(gpu, name) for name in LIMITERS]
        for name in BUDGET_FIELDS:
            value = derived.get(name)
            values.append(_NAN if value is None else value)
        return values

    def _forget_ended(self, row: int) -> None:
        ended = [
            key
            for key, series in self.series.items()
            if series.fields is self.process_fields and row - series.raw.last > self._process_slots
        ]
        for key in ended:
            del self.series[key]

    def _remember(self, events: tuple[Event, ...]) -> None:
        if events:
            kept = [entry for entry in self.happened if self._elapsed_s - entry[0] <= 86400.0]
            self.happened = [*kept[-1000:], *((self._elapsed_s, event) for event in events)]

    def _coarsen(self, row: int) -> None:
        for number, tier in enumerate(self.tiers):
            due = int(self._elapsed_s / tier.width_s)
            tier.closed = max(tier.closed, due - tier.bins)
            while tier.closed < due:
                start = tier.closed * tier.width_s
                first, last = self.timeline.rows_within(
                    start, start + tier.width_s, self.timeline.oldest(), row
                )
                self._fold_bin(number, tier.closed, first, last)
                tier.closed += 1

    def _fold_bin(self, number: int, closed: int, first: int, last: int) -> None:
        if last < first:
            return
        weights = self.timeline.covers(first, last)
        for series in self.series.values():
            if series.tiers:
                folded = fold_rows(series.raw, first, last, weights)
                if folded is not None:
                    series.tiers[number].write(closed, folded)


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


def _limiter(gpu: Gpu, name: str) -> float:
    counted = (gpu.throttled_pct or {}).get(name)
    if counted is not None:
        return counted
    if gpu.clocks_event_reasons is None:
        return _NAN
    return 100.0 if name in gpu.clocks_event_reasons else 0.0


def stale_after_s(interval_s: float) -> float:
    """Age from which values are no longer of now: three intervals, and never less than two seconds."""
    return max(3 * interval_s, 2.0)


class Window:
    """What is known at one instant: the newest sample and the past that led to it. Never changes."""

    def __init__(
        self,
        history: History,
        row: int,
        last: Snapshot,
        jobs: tuple[Job, ...],
        elapsed_s: float,
        offset_s: float,
    ) -> None:
        self._history = history
        self._row = row
        self._offset_s = offset_s
        self._baselines = history.baselines
        self.last = last
        self.jobs = jobs
        self.elapsed_s = elapsed_s
        """Monotonic seconds since the first sample."""
        self.interval_s = history.nominal_s
        """The usual interval of late."""

    @property
    def span_s(self) -> float:
        """How far back anything is known."""
        oldest = min((tier.oldest() * tier.width_s for tier in self._history.tiers), default=self.elapsed_s)
        return self.elapsed_s - min(oldest, self._history.timeline.elapsed(self._history.timeline.oldest()))

    def covers(self, seconds: float) -> bool:
        """Whether the history reaches that far back without missing more than a fifth."""
        first = self._first(seconds)
        known = sum(self._history.timeline.covers(first, self._row))
        return self.elapsed_s >= seconds - 1.5 * self.interval_s and known >= 0.8 * seconds

    def series(self, subject: Subject, field: str, seconds: float) -> list[float | None]:
        """The samples of the last ``seconds``, oldest first; None is a gap."""
        return [value if value == value else None for value in self._raw(subject, field, self._first(seconds))]

    def ages(self, seconds: float) -> list[float]:
        """How long before the newest sample each one was taken; as long as ``series``."""
        return [self.elapsed_s - then for then in self._history.timeline.times(self._first(seconds), self._row)]

    def covered(self, seconds: float) -> list[float]:
        """How much time each sample stands for; as long as ``series``."""
        return self._history.timeline.covers(self._first(seconds), self._row)

    def mean(self, subject: Subject, field: str, seconds: float) -> float | None:
        """Mean over time; None when less than half of it is known."""
        first = self._first(seconds)
        known = total = 0.0
        values = self._raw(subject, field, first)
        for value, cover in zip(values, self._history.timeline.covers(first, self._row), strict=True):
            if value == value:
                known += cover
                total += cover * value
        return total / known if known >= seconds / 2 else None

    def share(
        self,
        subject: Subject,
        field: str,
        seconds: float,
        *,
        below: float | None = None,
        at_least: float | None = None,
    ) -> float | None:
        """Percentage of the time in which the value lay within the bounds; None when half is unknown."""
        first = self._first(seconds)
        low = -math.inf if at_least is None else at_least
        high = math.inf if below is None else below
        known = within = 0.0
        values = self._raw(subject, field, first)
        for value, cover in zip(values, self._history.timeline.covers(first, self._row), strict=True):
            if value == value:
                known += cover
                if low <= value < high:
                    within += cover
        return 100.0 * within / known if known >= seconds / 2 else None

    def samples(self, gpu: Gpu | str, seconds: float) -> list[float]:
        """The driver's utilization windows, oldest first; single readings where it keeps no ring."""
        slots = self._history.rings.get(key_of(gpu))
        found: list[float] = []
        if slots is None:
            return found
        for row in range(max(self._first(seconds), self._row - len(slots) + 2), self._row + 1):
            entry = slots[row % len(slots)]
            if entry is not None and entry[0] == row:
                found += entry[1]
        return found

    def baseline(self, gpu: Gpu | str, name: str) -> float | None:
        """What was learned about a GPU: ``power_idle_w``, ``sm_clock_cool_mhz``."""
        return self._baselines.get(key_of(gpu), {}).get(name)

    def is_counted(self, gpu: Gpu) -> bool:
        """Whether the limiter series come from the driver's counters, not from the bits at one instant."""
        return gpu.throttled_pct is not None

    def events(self, seconds: float) -> tuple[Event, ...]:
        """What happened in the last ``seconds``, oldest first."""
        since = self.elapsed_s - seconds
        return tuple(event for then, event in self._history.happened if since < then <= self.elapsed_s)

    def phase(self, job: Job) -> str:
        """Phase of a job."""
        return job.phase

    def job_of(self, uuid: str) -> Job | None:
        """The job that runs on a GPU."""
        return next((job for job in self.jobs if uuid in job.gpu_uuids), None)

    def bins(
        self, subject: Subject, field: str, *, end_s: float, width_s: float, count: int, how: How = "mean"
    ) -> list[float | None]:
        """Columns of a chart, oldest first: column i is ``(end − (count − i)·width, end − (count − i − 1)·width]``.

        ``end_s`` is the wall-clock time of the right edge. A column shorter than the interval is filled by
        the sample that covers it; a column without a sample is None.
        """
        key = key_of(subject)
        series = self._history.series.get(key)
        if series is None:
            self._check(field)
            return [None] * count
        column = series.field(field)
        cache = self._history.columns.setdefault((key, field, width_s, how), {})
        if len(cache) > _COLUMNS_KEPT:
            cache.clear()
        right = round(end_s / width_s)
        is_aligned = abs(right * width_s - end_s) < 1e-3
        found: list[float | None] = []
        for index in range(count):
            number = right - count + 1 + index
            end = end_s - (count - 1 - index) * width_s - self._offset_s
            is_settled = is_aligned and end <= self.elapsed_s
            if is_settled and number in cache:
                found.append(cache[number])
                continue
            value = None if end - width_s >= self.elapsed_s else self._bin(series, column, end - width_s, end, how)
            if is_settled:
                cache[number] = value
            found.append(value)
        return found

    def _bin(self, series: _Series, column: int, start: float, end: float, how: How) -> float | None:
        timeline = self._history.timeline
        oldest = max(timeline.oldest(), self._row - series.raw.slots + 2)
        if start >= timeline.elapsed(oldest) - timeline.cover(oldest) or not series.tiers:
            first, last = timeline.rows_within(start, end, oldest, self._row)
            values = series.raw.column(column, first, last)
            folded = fold(values, timeline.covers(first, last))
            return _known(folded[("mean", "min", "max").index(how)])
        for tier, ring in zip(self._history.tiers, series.tiers, strict=True):
            if start >= tier.oldest() * tier.width_s or tier is self._history.tiers[-1]:
                low = max(math.ceil(start / tier.width_s - 0.5), tier.oldest())
                high = min(math.ceil(end / tier.width_s - 0.5) - 1, tier.closed - 1)
                if high < low and end > 0:
                    low = high = int((start + end) / 2 / tier.width_s)
                means, lows, highs = (ring.column(3 * column + part, low, high) for part in range(3))
                weights = [1.0] * len(means)
                part = {"mean": fold(means, weights)[0], "min": fold(lows, weights)[1], "max": fold(highs, weights)[2]}
                return _known(part[how])
        return None

    def _first(self, seconds: float) -> int:
        timeline = self._history.timeline
        return timeline.after(self.elapsed_s - seconds, timeline.oldest(), self._row)

    def _raw(self, subject: Subject, field: str, first: int) -> list[float]:
        series = self._history.series.get(key_of(subject))
        if series is None:
            self._check(field)
            return [_NAN] * (self._row - first + 1)
        column = series.field(field)
        oldest = max(first, self._row - series.raw.slots + 2)
        return [_NAN] * (oldest - first) + series.raw.column(column, oldest, self._row)

    def _check(self, field: str) -> None:
        known = {**self._history.gpu_fields, **self._history.process_fields, **self._history.host_fields}
        if field not in known:
            raise KeyError(unknown_field(field, known))


def _known(value: float) -> float | None:
    return value if value == value else None
