"""Knows how to read the past: every series up to one instant, which later samples never change."""

from __future__ import annotations

import difflib
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from operator import itemgetter, mul

from gpumon.fields import GPU_RAW_FIELDS
from gpumon.model import Ending, Event, Gpu, Host, Job, Process, Rank, Snapshot, Volume
from gpumon.rings import How, Ring, Sums, Tier, Timeline, extreme, fold

Known = Gpu | Process | Host | Rank | Volume | str
"""Whose series: the record itself or its key."""

HOST_KEY = "host"
_NAN = math.nan
_COLUMNS_KEPT = 600


def key_of(subject: Known) -> str:
    """The name under which a subject's series are kept."""
    match subject:
        case Gpu():
            return subject.uuid
        case Process():
            return f"{subject.pid}:{subject.started_s}"
        case Rank():
            return f"rank:{subject.pid}"
        case Host():
            return HOST_KEY
        case Volume():
            return f"volume:{subject.path}"
        case _:
            return subject


def steps_key(key: str) -> str:
    """The name under which the single steps of a rank are kept, beside their waits."""
    return f"{key}:steps"


class Series:
    """Everything kept about one subject."""

    def __init__(
        self, fields: Mapping[str, int], slots: int, first: int, tiers: Sequence[Tier], summed_slots: int = 0
    ) -> None:
        self.fields = fields
        self.coarse = sum(name not in GPU_RAW_FIELDS for name in fields)
        """How many of the fields, the first ones, the coarser past keeps as well."""
        self.raw = Ring(len(fields), slots, first)
        self.tiers = tuple(tier.ring(self.coarse) for tier in tiers)
        self.sums: Sums | None = None
        """Of the fields whose means were asked for: rules do so all the time, of a dozen of a GPU's or a rank's."""
        self._summed_slots = summed_slots
        self._asked: set[int] = set()

    def write(self, row: int, values: Sequence[float], cover_s: float) -> None:
        """Store a row that stands for some time."""
        self.raw.write(row, values)
        if self.sums is not None:
            self.sums.write(row, values, cover_s)

    def sum_up(self, timeline: Timeline) -> None:
        """Keep running sums of what was asked for since the last call; for the thread that writes."""
        if self._asked:
            summed = frozenset(self.sums.places if self.sums else ())
            self.sums = Sums.of(self.raw, sorted(summed | self._asked), self._summed_slots, timeline)
            self._asked = set()

    def summed(self, field: int, first: int, last: int) -> tuple[float, float] | None:
        """Sum of value times time, and the time with a value; None where that is not kept (yet)."""
        sums = self.sums
        place = None if sums is None else sums.places.get(field)
        if sums is not None and place is not None:
            return sums.between(place, first, last)
        if self._summed_slots:
            self._asked.add(field)
        return None

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


class Store:
    """What the history writes and the windows read; grows only by whole rows."""

    def __init__(self, timeline: Timeline, tiers: tuple[Tier, ...], fields: Mapping[str, int]) -> None:
        self.timeline = timeline
        self.tiers = tiers
        self.fields = fields
        """Every field there is, of any kind of subject."""
        self.series: dict[str, Series] = {}
        self.rings: dict[str, list[tuple[int, tuple[float, ...]] | None]] = {}
        """GPU uuid -> the driver's utilization windows of each row; rank -> its single steps, and their data waits."""
        self.columns: dict[tuple[str, str, float, How], dict[int, float | None]] = {}
        """Settled chart columns, by their number since the epoch."""
        self.events: list[tuple[float, Event]] = []
        self.baselines: Mapping[str, Mapping[str, float]] = {}
        self.nominal_s = 1.0
        """The usual interval of late."""
        self.offset_s = 0.0
        """Wall-clock time of the first sample by the clock of today."""


class Window:
    """What is known at one instant: the newest sample and the past that led to it. Never changes."""

    def __init__(
        self,
        store: Store,
        row: int,
        last: Snapshot,
        jobs: tuple[Job, ...],
        ended_jobs: tuple[Ending, ...] = (),
    ) -> None:
        self._store = store
        self._row = row
        self._offset_s = store.offset_s
        self._baselines = store.baselines
        self._stretches: dict[tuple[float, float], tuple[int, int]] = {}
        self._covers: dict[tuple[int, int], list[float]] = {}
        self._columns: dict[tuple[float, float, int], tuple[int, int]] = {}
        self.last = last
        self.jobs = jobs
        self.ended_jobs = ended_jobs
        """Jobs of the last hour that are over, and running ones that have lost a trainer."""
        self.elapsed_s = store.timeline.elapsed(row)
        """Monotonic seconds since the first sample."""
        self.interval_s = store.nominal_s
        """The usual interval of late."""
        self.passed_s = store.timeline.cover(row) if row else 0.0
        """The time that the newest sample stands for; less than the time since the last one after a gap."""

    @property
    def span_s(self) -> float:
        """How far back anything is known."""
        oldest = min((tier.oldest() * tier.width_s for tier in self._store.tiers), default=self.elapsed_s)
        return self.elapsed_s - min(oldest, self._store.timeline.elapsed(self._store.timeline.oldest()))

    def time_of(self, elapsed_s: float) -> float:
        """Wall-clock time of a moment by the clock of today."""
        return self._offset_s + elapsed_s

    def covers(self, seconds: float) -> bool:
        """Whether the history reaches that far back without missing more than a fifth."""
        if self.elapsed_s < seconds - 1.5 * self.interval_s:
            return False
        return self._store.timeline.covered(*self._stretch(seconds, 0.0)) >= 0.8 * seconds

    def series(self, subject: Known, field: str, seconds: float, *, ago_s: float = 0.0) -> Sequence[float | None]:
        """The samples of the last ``seconds`` (before ``ago_s``), oldest first; None is a gap."""
        values = self._raw(subject, field, *self._stretch(seconds, ago_s))
        # Gaps are NaN, so the plain sum is NaN if there is one.
        total = sum(values)
        return values if total == total else [value if value == value else None for value in values]

    def ages(self, seconds: float) -> list[float]:
        """How long before the newest sample each one was taken; as long as ``series``."""
        return [self.elapsed_s - then for then in self.times(seconds)]

    def times(self, seconds: float) -> list[float]:
        """When each one was taken, in monotonic seconds since the first sample; as long as ``series``."""
        return self._store.timeline.times(self._first(seconds), self._row)

    def covered(self, seconds: float) -> list[float]:
        """How much time each sample stands for; as long as ``series``."""
        return self._covered(*self._stretch(seconds, 0.0))

    def mean(self, subject: Known, field: str, seconds: float, *, ago_s: float = 0.0) -> float | None:
        """Mean over the last ``seconds`` (before ``ago_s``) by time; None when less than half is known."""
        first, last = self._stretch(seconds, ago_s)
        series = self._store.series.get(key_of(subject))
        if series is None:
            self._check(field)
            return None
        column = series.field(field)
        summed = series.summed(column, first, last)
        if summed is None:
            summed = _weighed(self._column(series, column, first, last), self._covered(first, last))
        total, known = summed
        return total / known if known > 0 and known >= seconds / 2 else None

    def mean_by(
        self, subject: Known, field: str, seconds: float, weights: Sequence[float], *, ago_s: float = 0.0
    ) -> float | None:
        """The same by a weight of each sample; None when none that counts is known."""
        total, known = _weighed(self._raw(subject, field, *self._stretch(seconds, ago_s)), weights)
        return total / known if known > 0 else None

    def extent(self, subject: Known, field: str, seconds: float) -> tuple[float, float] | None:
        """The least and the greatest sample of the last ``seconds``; None when nothing is known."""
        first, last = self._stretch(seconds, 0.0)
        series = self._store.series.get(key_of(subject))
        if series is None:
            self._check(field)
            return None
        column, raw = series.field(field), series.raw
        first, last = max(first, raw.first), min(last, raw.last)
        steady = raw.steady(column, first, last) if first <= last else _NAN
        if steady is not None:
            low = high = steady
        else:
            values = self._column(series, column, first, last)
            low, high = extreme(values, "min"), extreme(values, "max")
        return None if low != low else (low, high)

    def share(
        self,
        subject: Known,
        field: str,
        seconds: float,
        *,
        below: float | None = None,
        at_least: float | None = None,
    ) -> float | None:
        """Percentage of the time in which the value lay within the bounds; None when half is unknown."""
        first, last = self._stretch(seconds, 0.0)
        low = -math.inf if at_least is None else at_least
        high = math.inf if below is None else below
        pairs = list(zip(self._raw(subject, field, first, last), self._covered(first, last), strict=True))
        known = sum([cover for value, cover in pairs if value == value])
        within = sum([cover for value, cover in pairs if low <= value < high])
        return 100.0 * within / known if known > 0 and known >= seconds / 2 else None

    def samples(self, subject: Gpu | Rank | str, seconds: float) -> list[float]:
        """Of a GPU the driver's utilization windows, single readings where it keeps no ring; oldest first.

        Of a rank the seconds that each step waited for its data, of the last two minutes at most.
        """
        return self._singles(key_of(subject), seconds)

    def step_samples(self, rank: Rank, seconds: float) -> list[float]:
        """How long each single step of a rank took, of the last two minutes at most; oldest first."""
        return self._singles(steps_key(key_of(rank)), seconds)

    def _singles(self, key: str, seconds: float) -> list[float]:
        slots = self._store.rings.get(key)
        found: list[float] = []
        if slots is None:
            return found
        for row in range(max(self._first(seconds), self._row - len(slots) + 2), self._row + 1):
            entry = slots[row % len(slots)]
            if entry is not None and entry[0] == row:
                found += entry[1]
        return found

    def baseline(self, subject: Gpu | Job | str, name: str) -> float | None:
        """What was learned about a GPU or a job.

        Of a GPU: ``power_idle_w``, ``sm_clock_cool_mhz``, and medians under the job that trains on it now:
        ``power_train_w``, ``pcie_train_bytes_per_s``. Of a job: ``longest_pause_s`` (the longest stretch without
        progress after which it went on), ``quiet_s`` (the stretch it is in now), ``step_p99_s`` (from the probe).
        """
        key = subject.id if isinstance(subject, Job) else key_of(subject)
        return self._baselines.get(key, {}).get(name)

    def is_counted(self, gpu: Gpu) -> bool:
        """Whether the limiter series come from the driver's counters, not from the bits at one instant."""
        return gpu.throttled_pct is not None

    def events(self, seconds: float) -> tuple[Event, ...]:
        """What happened in the last ``seconds``, oldest first."""
        return tuple(event for _, event in self.aged_events(seconds))

    def aged_events(self, seconds: float) -> tuple[tuple[float, Event], ...]:
        """The same with the seconds before now at which each came to our knowledge."""
        now = self.elapsed_s
        return tuple((now - then, event) for then, event in self.heard(seconds))

    def heard(self, seconds: float) -> Sequence[tuple[float, Event]]:
        """The same with the monotonic time at which each came to our knowledge."""
        events = self._store.events
        first = bisect_right(events, self.elapsed_s - seconds, key=itemgetter(0))
        return events[first : bisect_right(events, self.elapsed_s, lo=first, key=itemgetter(0))]

    def job_of(self, uuid: str) -> Job | None:
        """The job that runs on a GPU."""
        return next((job for job in self.jobs if uuid in job.gpu_uuids), None)

    def rank_of(self, pid: int) -> Rank | None:
        """What the probe in a process reports now; None where there is none."""
        return next((rank for rank in self.last.ranks if rank.pid == pid), None)

    def ranks_of(self, job: Job) -> tuple[Rank, ...]:
        """What the probes of a job report now, in rank order."""
        reported = {rank.pid: rank for rank in self.last.ranks}
        return tuple(reported[pid] for pid in job.trainers if pid in reported)

    def bins(
        self, subject: Known, field: str, *, end_s: float, width_s: float, count: int, how: How = "mean"
    ) -> list[float | None]:
        """Columns of a chart, oldest first: column i is ``(end − (count − i)·width, end − (count − i − 1)·width]``.

        ``end_s`` is the wall-clock time of the right edge. A column shorter than the interval is filled by
        the sample that covers it; a column without a sample is None.
        """
        key = key_of(subject)
        series = self._store.series.get(key)
        if series is None:
            self._check(field)
            return [None] * count
        column = series.field(field)
        right = round(end_s / width_s)
        is_aligned = abs(right * width_s - end_s) < 1e-3
        # Columns that end anywhere never come back: nothing of them is remembered.
        cache = self._store.columns.setdefault((key, field, width_s, how), {}) if is_aligned else {}
        if len(cache) > _COLUMNS_KEPT:
            cache.clear()
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

    def _bin(self, series: Series, column: int, start: float, end: float, how: How) -> float | None:
        timeline = self._store.timeline
        oldest = max(timeline.oldest(), self._row - series.raw.slots + 2)
        if start >= timeline.elapsed(oldest) - timeline.cover(oldest) or not series.tiers or column >= series.coarse:
            first, last = self._within(start, end, oldest)
            values = series.raw.column(column, first, last)
            return _known(fold(values, self._covered(first, last))[0] if how == "mean" else extreme(values, how))
        for tier, ring in zip(self._store.tiers, series.tiers, strict=True):
            if start >= tier.oldest() * tier.width_s or tier is self._store.tiers[-1]:
                low = max(math.ceil(start / tier.width_s - 0.5), tier.oldest())
                high = min(math.ceil(end / tier.width_s - 0.5) - 1, tier.closed - 1)
                if high < low and end > 0:
                    low = high = int((start + end) / 2 / tier.width_s)
                means, lows, highs = (ring.column(3 * column + part, low, high) for part in range(3))
                weights = [1.0] * len(means)
                part = {"mean": fold(means, weights)[0], "min": fold(lows, weights)[1], "max": fold(highs, weights)[2]}
                return _known(part[how])
        return None

    def _within(self, start: float, end: float, oldest: int) -> tuple[int, int]:
        """Rows of a column; all charts ask for the same ones, so remembered."""
        found = self._columns.get((start, end, oldest))
        if found is None:
            found = self._columns[start, end, oldest] = self._store.timeline.rows_within(start, end, oldest, self._row)
        return found

    def _first(self, seconds: float) -> int:
        return self._stretch(seconds, 0.0)[0]

    def _stretch(self, seconds: float, ago_s: float) -> tuple[int, int]:
        """First and last row of a stretch of time; asked for often, so remembered."""
        found = self._stretches.get((seconds, ago_s))
        if found is None:
            timeline = self._store.timeline
            last = self._row
            if ago_s > 0:
                last = timeline.after(self.elapsed_s - ago_s, timeline.oldest(), self._row) - 1
            first = timeline.after(self.elapsed_s - ago_s - seconds, timeline.oldest(), self._row)
            found = self._stretches[seconds, ago_s] = (first, last)
        return found

    def _covered(self, first: int, last: int) -> list[float]:
        """How much time each of some rows stands for; means of GPUs need it not, as they have running sums."""
        found = self._covers.get((first, last))
        if found is None:
            found = self._covers[first, last] = self._store.timeline.covers(first, last)
        return found

    def _raw(self, subject: Known, field: str, first: int, last: int) -> list[float]:
        series = self._store.series.get(key_of(subject))
        if series is None:
            self._check(field)
            return [_NAN] * (last - first + 1)
        return self._column(series, series.field(field), first, last)

    def _column(self, series: Series, column: int, first: int, last: int) -> list[float]:
        oldest = max(first, self._row - series.raw.slots + 2)
        if oldest == first:
            return series.raw.column(column, first, last)
        return [_NAN] * min(oldest - first, last - first + 1) + series.raw.column(column, oldest, last)

    def _check(self, field: str) -> None:
        if field not in self._store.fields:
            raise KeyError(unknown_field(field, self._store.fields))


def _weighed(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
    """Sum of value times weight, and of the weights, where a value is known."""
    total = sum(map(mul, values, weights))
    if total == total:
        return total, sum(weights)
    # Gaps are NaN, so the plain sum is NaN if there is one.
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if value == value]
    return sum(value * weight for value, weight in pairs), sum(weight for _, weight in pairs)


def _known(value: float) -> float | None:
    return value if value == value else None
