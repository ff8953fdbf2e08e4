"""Knows every recent sample of every signal: one thread appends, readers hold windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import median

from msgspec.structs import replace

from gpumon.fields import (
    BUDGET_FIELDS,
    GPU_FIELDS,
    GPU_RAW_FIELDS,
    HOST_FIELDS,
    LIMITERS,
    PAUSED_FIELD,
    PROCESS_FIELDS,
    RANK_FIELDS,
    SM_FIELD,
    VOLUME_FIELDS,
)
from gpumon.model import Ending, Gpu, Job, Process, Rank, Snapshot
from gpumon.rings import Ring, Tier, Timeline, fold_rows
from gpumon.signals import busy_pct, limiter_pct, stale_after_s
from gpumon.window import HOST_KEY, Series, Store, Window, key_of, steps_key

__all__ = [
    "BUDGET_FIELDS",
    "GPU_FIELDS",
    "HOST_FIELDS",
    "LIMITERS",
    "PROCESS_FIELDS",
    "RANK_FIELDS",
    "History",
    "Window",
    "key_of",
    "stale_after_s",
]

Derived = Mapping[str, Mapping[str, float | None]]
"""GPU uuid -> series name -> value of this instant."""

_NAN = math.nan
_RAW_SLOTS = 3600
_PROCESS_SLOTS = 1200
_SUMMED_SLOTS = 400
"""Rules ask most for the means of one to five minutes."""
_WINDOWS_KEPT = 600
"""Snapshots whose utilization windows are kept: rules look at three minutes of them, whatever the interval."""
_READINGS_MAX = 600
"""How many of the driver's windows one reading stands for at most, where it keeps no ring of them."""
_WAITS_KEPT = 120
"""Snapshots whose single steps are kept: enough to see a rhythm in them."""
_TIERS = ((10.0, 2160), (60.0, 1440))
_CLOCK_STEP_S = 0.25
_DAY_S = 86_400.0
_LONGEST_S = 3600.0
"""What one sample stands for at most, however far apart they usually are."""


class History:
    """Every series of this run. One thread appends; readers hold Windows."""

    def __init__(
        self,
        gpu_fields: Sequence[str] = GPU_FIELDS,
        process_fields: Sequence[str] = PROCESS_FIELDS,
        host_fields: Sequence[str] = HOST_FIELDS,
        rank_fields: Sequence[str] = RANK_FIELDS,
        raw_slots: int = _RAW_SLOTS,
    ) -> None:
        limiters = tuple(f"throttled_pct.{name}" for name in LIMITERS)
        self.gpu_fields = _numbered((*gpu_fields, *limiters, *BUDGET_FIELDS, PAUSED_FIELD, *GPU_RAW_FIELDS))
        self.process_fields = _numbered((*process_fields, SM_FIELD))
        self.host_fields = _numbered(host_fields)
        self.rank_fields = _numbered(rank_fields)
        self.volume_fields = _numbered(VOLUME_FIELDS)
        self._gpu_values = attrgetter(*gpu_fields)
        self._gpu_raw_values = attrgetter(*GPU_RAW_FIELDS)
        self._process_values = attrgetter(*process_fields)
        self._host_values = attrgetter(*host_fields)
        self._rank_values = attrgetter(*rank_fields)
        self._utilization = tuple(gpu_fields).index("utilization_pct")
        self._process_slots = min(raw_slots, _PROCESS_SLOTS)
        self._store = Store(
            Timeline(raw_slots),
            tuple(Tier(width_s, bins) for width_s, bins in _TIERS),
            {
                **self.gpu_fields,
                **self.process_fields,
                **self.host_fields,
                **self.rank_fields,
                **self.volume_fields,
            },
        )
        self._intervals: list[float] = []
        self._rates: dict[str, float] = {}
        self._running: dict[tuple[int, float | None], Ring] = {}
        self._written: tuple[tuple[Process, ...], list[Ring]] = ((), [])
        """The newest table of processes, and where its rows were written."""
        self._steps: dict[int, Rank] = {}
        """Pid -> its last report of a step."""
        self._elapsed_s = 0.0

    def append(
        self,
        snapshot: Snapshot,
        jobs: tuple[Job, ...] = (),
        derived: Derived | None = None,
        baselines: Mapping[str, Mapping[str, float]] | None = None,
        ended_jobs: tuple[Ending, ...] = (),
    ) -> Window:
        """Take in the next sample and return the view that ends with it."""
        store = self._store
        row = store.timeline.last + 1
        self._advance(snapshot, row)
        cover_s = store.timeline.cover(row)
        stale_s = stale_after_s(store.nominal_s)
        paused = {uuid: 100.0 * (job.phase == "pause") for job in jobs for uuid in job.gpu_uuids}
        for gpu in snapshot.gpus:
            series = self._of(gpu.uuid, self.gpu_fields, row)
            if not (gpu.is_lost or (gpu.age_s is not None and gpu.age_s >= stale_s)):
                self._keep_windows(gpu, row, snapshot.interval_s)
                values = self._gpu_row(gpu, (derived or {}).get(gpu.uuid, {}), paused.get(gpu.uuid))
                series.write(row, values, cover_s)
                series.sum_up(store.timeline)
        host = self._of(HOST_KEY, self.host_fields, row)
        host.write(row, _row(self._host_values(snapshot.host)), cover_s)
        host.sum_up(store.timeline)
        for volume in snapshot.host.volumes:
            self._of(key_of(volume), self.volume_fields, row).raw.write(row, _row((volume.free_bytes,)))
        self._write_processes(snapshot.processes, row)
        for rank in snapshot.ranks:
            key = key_of(rank)
            series = self._of(key, self.rank_fields, row)
            series.write(row, _row(self._rank_values(self._held(rank))), cover_s)
            series.sum_up(store.timeline)
            for name, singles in ((key, rank.data_wait_samples_s), (steps_key(key), rank.step_samples_s)):
                if singles:
                    slots = store.rings.setdefault(name, [None] * _WAITS_KEPT)
                    slots[row % _WAITS_KEPT] = (row, singles)
        if row % 64 == 0:
            self._forget_ended(row)
        if snapshot.events:
            kept = [entry for entry in store.events[-1000:] if self._elapsed_s - entry[0] <= _DAY_S]
            store.events = [*kept, *((self._elapsed_s, event) for event in snapshot.events)]
        self._coarsen(row)
        if baselines is not None:
            store.baselines = baselines
        return Window(store, row, snapshot, jobs, ended_jobs)

    def _write_processes(self, processes: tuple[Process, ...], row: int) -> None:
        """Most tables of large machines are the very one before: then the rows are, too."""
        if processes is self._written[0]:
            for ring in self._written[1]:
                ring.repeat(row)
            return
        rings = []
        for process in processes:
            known = self._running.get((process.pid, process.started_s))
            if known is None:
                known = self._of(key_of(process), self.process_fields, row).raw
                self._running[process.pid, process.started_s] = known
            shares = (process.gpu_sm_pct or {}).values()
            values = _row(self._process_values(process))
            known.write(row, [*values, sum(shares) / len(shares) if shares else _NAN])
            rings.append(known)
        self._written = (processes, rings)

    def _advance(self, snapshot: Snapshot, row: int) -> None:
        store = self._store
        interval = snapshot.interval_s or 0.0
        if row and interval > 0:
            self._intervals = [*self._intervals[-8:], interval]
            store.nominal_s = median(self._intervals)
            self._elapsed_s += interval
        # A suspend or a hang is a gap: a sample stands for no more time than a few usual intervals.
        cover = min(interval or store.nominal_s, 3 * store.nominal_s, _LONGEST_S)
        store.timeline.write(row, self._elapsed_s, cover)
        offset = snapshot.time_s - self._elapsed_s
        if row == 0 or abs(offset - store.offset_s) > _CLOCK_STEP_S:
            store.offset_s = offset
            store.columns = {}

    def _of(self, key: str, fields: Mapping[str, int], row: int) -> Series:
        series = self._store.series.get(key)
        if series is None:
            is_process = fields is self.process_fields
            slots = self._process_slots if self._is_mortal(fields) else self._store.timeline.slots
            # A leak takes hours to show, so the past of ranks is kept coarsely; that of processes is not.
            summed_slots = 0 if is_process else _SUMMED_SLOTS
            series = Series(fields, slots, row, () if is_process else self._store.tiers, summed_slots)
            self._store.series[key] = series
        return series

    def _is_mortal(self, fields: Mapping[str, int]) -> bool:
        return fields is self.process_fields or fields is self.rank_fields

    def _gpu_row(self, gpu: Gpu, derived: Mapping[str, float | None], paused_pct: float | None) -> list[float]:
        values = [
            *self._gpu_values(gpu),
            *[limiter_pct(gpu, name) for name in LIMITERS],
            *[derived.get(name) for name in BUDGET_FIELDS],
            paused_pct,
            *self._gpu_raw_values(gpu),
        ]
        # The mean of all windows since the last sample; the single value is only one of them.
        values[self._utilization] = busy_pct(gpu)
        return _row(values)

    def _keep_windows(self, gpu: Gpu, row: int, interval_s: float | None) -> None:
        ring = gpu.utilization_samples_pct
        if ring and interval_s:
            self._rates[gpu.uuid] = len(ring) / interval_s
        elif not ring and (busy := busy_pct(gpu)) is not None:
            missed = self._rates.get(gpu.uuid, 0.0) * min(interval_s or 0.0, self._store.timeline.cover(row))
            ring = (busy,) * max(1, min(_READINGS_MAX, round(missed)))
        slots = self._store.rings.setdefault(gpu.uuid, [None] * _WINDOWS_KEPT)
        slots[row % len(slots)] = (row, ring)

    def _held(self, rank: Rank) -> Rank:
        """A step longer than the interval is reported when it ends; until the next one ends it is what holds."""
        if rank.step_s is not None:
            self._steps[rank.pid] = rank
            return rank
        last = self._steps.get(rank.pid)
        if last is None or rank.heartbeat_age_s is None or rank.heartbeat_age_s > 2.0 * (last.step_s or 0.0):
            return rank
        return replace(
            rank,
            step_s=last.step_s,
            data_wait_s=last.data_wait_s,
            h2d_s=last.h2d_s,
            forward_s=last.forward_s,
            samples_per_s=last.samples_per_s,
        )

    def _forget_ended(self, row: int) -> None:
        ended = [
            key
            for key, series in self._store.series.items()
            if self._is_mortal(series.fields) and row - series.raw.last > self._process_slots
        ]
        for key in ended:
            del self._store.series[key]
            self._store.rings.pop(key, None)
            self._store.rings.pop(steps_key(key), None)
        if ended:
            self._steps = {pid: rank for pid, rank in self._steps.items() if key_of(rank) not in ended}
            self._running = {key: ring for key, ring in self._running.items() if row - ring.last <= self._process_slots}

    def _coarsen(self, row: int) -> None:
        timeline = self._store.timeline
        for number, tier in enumerate(self._store.tiers):
            due = int(self._elapsed_s / tier.width_s)
            tier.closed = max(tier.closed, due - tier.bins)
            while tier.closed < due:
                start = tier.closed * tier.width_s
                first, last = timeline.rows_within(start, start + tier.width_s, timeline.oldest(), row)
                folded = self._folded(number, first, last)
                upto = tier.closed + 1
                if first == last:
                    # Where samples are far apart, one of them fills many bins.
                    upto = min(due, max(upto, int(timeline.elapsed(first) / tier.width_s)))
                for closed in range(tier.closed, upto):
                    for ring, values in folded:
                        ring.write(closed, values)
                if last < first <= row:
                    # Nothing is known up to where the next sample begins.
                    begins_s = timeline.elapsed(first) - timeline.cover(first)
                    upto = min(due, max(upto, int(begins_s / tier.width_s)))
                tier.closed = upto

    def _folded(self, number: int, first: int, last: int) -> list[tuple[Ring, list[float]]]:
        """What some rows come to, for each series."""
        if last < first:
            return []
        weights = self._store.timeline.covers(first, last)
        found = []
        for series in self._store.series.values():
            if series.tiers:
                folded = fold_rows(series.raw, first, last, weights, series.coarse)
                if folded is not None:
                    found.append((series.tiers[number], folded))
        return found


def _row(values: Iterable[float | None]) -> list[float]:
    return [_NAN if value is None else value for value in values]


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}
