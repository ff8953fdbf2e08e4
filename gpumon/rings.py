"""Knows how samples lie in memory: arrays written round and round, that never grow beyond their slots."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import mul
from typing import Literal

How = Literal["mean", "min", "max"]
_NAN = math.nan
_FIRST_SLOTS = 128
"""Rows for which memory is taken at first; then it doubles."""
_EDGE_S = 1e-4
"""Epoch seconds as floats resolve about 1e-7 s: a sample this near to an edge is on it."""


class _Rows:
    """Rows of one width, written round and round; takes memory only as it is filled, so that a young run is small."""

    def __init__(self, width: int, slots: int) -> None:
        self.width = width
        self.slots = slots
        self._blank = array("d", [0.0]) * width
        self.data = array("d")
        """One row after the other."""

    def write(self, at: int, values: Sequence[float]) -> None:
        """Store a row in a slot."""
        width, data = self.width, self.data
        start = at * width
        if start >= len(data):
            held = len(data) // width
            data.extend(self._blank * (min(self.slots, max(_FIRST_SLOTS, 2 * held, at + 1)) - held))
        data[start : start + width] = array("d", values)


class Ring:
    """Rows of one subject, one column per field; a row that was never written reads as NaN.

    Half of all signals never change (limits of a link, counts of errors, what this GPU does not report), but for the
    first rows, in which rates are not known yet: such a field takes one number, and a column only from the first
    change on.
    """

    def __init__(self, width: int, slots: int, first: int) -> None:
        self.slots = slots
        self.first = first
        """Number of the first row that may be written."""
        self.last = first - 1
        """Number of the newest row written."""
        self._newest = [_NAN] * width
        """The newest row; of a field without a column what it has been since it is known."""
        self._since = [first] * width
        """Of a field without a column the row from which on it is known."""
        self._columns: dict[int, array[float]] = {}
        self._steady = list(range(width))
        """The fields without a column."""
        self._room = 0
        self._filled = first - 1
        """Number of the newest row that the columns hold; those after it are like the newest one."""

    def write(self, row: int, values: Sequence[float]) -> None:
        """Store a row; rows left out since the last write become gaps."""
        at, before = self._begin(row), self._newest
        if row != self.first:
            for field in self._steady:
                value, known = values[field], before[field]
                if value != known:
                    if known == known:
                        self._give_column(field)
                    elif value == value:
                        self._since[field] = row
        self._newest = list(values)
        for field, data in self._columns.items():
            data[at] = values[field]
        self._filled = self.last = row

    def repeat(self, row: int) -> None:
        """Store the newest row once more; costs next to nothing, for most processes do nothing most of the time."""
        if row == self.last + 1:
            self.last = row
        else:
            self.write(row, self._newest)

    def values(self, row: int) -> Sequence[float]:
        """One row; empty where there is none."""
        if not max(self.first, self.last - self.slots + 1) <= row <= self.last:
            return ()
        at = (row - self.first) % self.slots
        # In this order: a reader may meet a field's first change.
        newest, since, columns = self._newest, self._since, self._columns
        is_filled = row <= self._filled
        return [
            columns[field][at] if is_filled and field in columns else _single(value) if row >= since[field] else _NAN
            for field, value in enumerate(newest)
        ]

    def column(self, field: int, first: int, last: int) -> list[float]:
        """One field from row ``first`` to row ``last`` (both included), NaN where nothing is known."""
        low, high = max(first, self.first), min(last, self.last)
        if high < low:
            return [_NAN] * (last - first + 1)
        newest = self._newest  # before all else: a reader may meet a field's first change
        since, data, filled = self._since[field], self._columns.get(field), min(high, self._filled)
        found: list[float] = []
        if data is None:
            found = [_NAN] * (min(since, high + 1) - low)
            filled = low + len(found) - 1
        elif low <= filled:
            start, end = (low - self.first) % self.slots, (filled - self.first) % self.slots
            found = data[start : end + 1].tolist() if start <= end else (data[start:] + data[: end + 1]).tolist()
        if high > filled:
            found += [_single(newest[field])] * (high - max(filled, low - 1))
        if low > first:
            found = [_NAN] * (low - first) + found
        return found + [_NAN] * (last - high) if last > high else found

    def steady(self, field: int, first: int, last: int) -> float | None:
        """What a field was in all of these rows, without looking at them; None where it may have changed."""
        is_steady = field not in self._columns and self._since[field] <= first and last <= self.last
        return _single(self._newest[field]) if is_steady else None

    def _begin(self, row: int) -> int:
        """Make room for a row; its place in the columns."""
        if self._filled < self.last:
            self._fill()
        if row > self.last + 1:
            self._clear(max(self.last + 1, row - self.slots), row - 1)
        at = (row - self.first) % self.slots
        self._extend_to(at)
        return at

    def _fill(self) -> None:
        """Write down the rows that were like the newest one."""
        self._put(self._newest, max(self._filled + 1, self.last - self.slots + 1), self.last)
        self._filled = self.last

    def _clear(self, first: int, last: int) -> None:
        """Nothing is known of these rows."""
        for field in self._steady:
            if self._newest[field] == self._newest[field]:
                self._give_column(field)
        self._put([_NAN] * len(self._newest), first, last)

    def _put(self, values: Sequence[float], first: int, last: int) -> None:
        """Write the same values into some rows, no more of them than there are slots."""
        low, high = (first - self.first) % self.slots, (last - self.first) % self.slots
        stretches = [(low, high + 1)] if low <= high else [(low, self.slots), (0, high + 1)]
        self._extend_to(max(end for _, end in stretches) - 1)
        for field, data in self._columns.items():
            for start, end in stretches:
                data[start:end] = array("f", [values[field]]) * (end - start)

    def _give_column(self, field: int) -> None:
        column = array("f", [self._newest[field]]) * self._room
        since = self._since[field]
        for row in range(max(self.first, self.last - self.slots + 1), since):
            column[(row - self.first) % self.slots] = _NAN
        self._columns[field] = column
        self._steady = [other for other in self._steady if other != field]

    def _extend_to(self, at: int) -> None:
        """Memory is taken as rows come, so that a young run is small."""
        if at < self._room:
            return
        room = min(self.slots, max(_FIRST_SLOTS, 2 * self._room, at + 1))
        for data in self._columns.values():
            data.extend(array("f", bytes(4 * (room - self._room))))
        self._room = room


def _single(value: float) -> float:
    """As a column would give it back."""
    return array("f", (value,))[0]


class Sums:
    """Running sums of some fields beside a ring, so that the mean over any stretch takes four reads, however long."""

    def __init__(self, fields: Iterable[int], slots: int, first: int, *, is_whole: bool = True) -> None:
        """``is_whole``: there is nothing before ``first``, instead of something that was not summed up."""
        self.slots = slots
        self.first = first
        """Number of the first row ever written: before it every sum is 0."""
        self.last = first - 1
        self._is_whole = is_whole
        self.places = {field: place for place, field in enumerate(fields)}
        """Where in a row a field is summed up."""
        self._total = [0.0] * len(self.places)
        """Up to the newest row: value times time, and below the time with a value."""
        self._time_s = [0.0] * len(self.places)
        self._totals = _Rows(len(self.places), slots)
        self._known = _Rows(len(self.places), slots)

    @classmethod
    def of(cls, ring: Ring, fields: Iterable[int], slots: int, timeline: Timeline) -> Sums:
        """The sums of what a ring holds of these fields."""
        first = max(ring.first, ring.last - slots + 2, timeline.oldest())
        wanted = tuple(fields)
        sums = cls(wanted, slots, first, is_whole=first == ring.first)
        rows = zip(*(ring.column(field, first, ring.last) for field in wanted), strict=True)
        covers = timeline.covers(first, ring.last)
        for row, (cover_s, values) in enumerate(zip(covers, rows, strict=True), first):
            sums.write(row, dict(zip(wanted, values, strict=True)), cover_s)
        return sums

    def write(self, row: int, values: Sequence[float] | Mapping[int, float], cover_s: float) -> None:
        """Add a row that stands for some time; rows left out since the last write add nothing."""
        totals, known = self._total, self._time_s
        for missed in range(max(self.last + 1, row - self.slots), row):
            self._put(missed)
        for place, field in enumerate(self.places):
            value = values[field]
            if value == value:
                totals[place] += value * cover_s
                known[place] += cover_s
        self._put(row)
        self.last = row

    def _put(self, row: int) -> None:
        at = (row - self.first) % self.slots
        self._totals.write(at, self._total)
        self._known.write(at, self._time_s)

    def between(self, place: int, first: int, last: int) -> tuple[float, float] | None:
        """Sum of value times time, and the time with a value, of ``first``..``last``; None if it is too long ago."""
        begin, slots, width = self.first, self.slots, len(self.places)
        if first < begin:
            if not self._is_whole:
                return None
            first = begin
        last = min(last, self.last)
        if last < first:
            return 0.0, 0.0
        oldest = self.last - slots + 2
        if last < oldest or begin < first <= oldest:
            return None
        totals, known = self._totals.data, self._known.data
        at = (last - begin) % slots * width + place
        if first == begin:
            return totals[at], known[at]
        before = (first - 1 - begin) % slots * width + place
        return totals[at] - totals[before], known[at] - known[before]


class Timeline:
    """When each sample was taken (monotonic seconds since the first) and how much time it stands for."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.last = -1
        self._elapsed = array("d", bytes(8 * slots))
        self._cover = array("d", bytes(8 * slots))
        self._covered = array("d", bytes(8 * slots))

    def write(self, row: int, elapsed_s: float, cover_s: float) -> None:
        """Store the time of a sample."""
        self._elapsed[row % self.slots] = elapsed_s
        self._cover[row % self.slots] = cover_s
        self._covered[row % self.slots] = cover_s + (self._covered[self.last % self.slots] if row else 0.0)
        self.last = row

    def oldest(self) -> int:
        """The oldest row that a reader in another thread may still read while the next one is written."""
        return max(0, self.last - self.slots + 2)

    def elapsed(self, row: int) -> float:
        """Seconds from the first sample to this one."""
        return self._elapsed[row % self.slots]

    def cover(self, row: int) -> float:
        """Seconds of time that this sample stands for, backwards from its moment."""
        return self._cover[row % self.slots]

    def after(self, elapsed_s: float, first: int, last: int) -> int:
        """The first row in ``first``..``last`` later than a moment; ``last + 1`` if there is none."""
        if last < first:
            return first
        elapsed, edge = self._elapsed, elapsed_s + _EDGE_S
        low, high = first % self.slots, last % self.slots
        if low <= high:
            return first + bisect_right(elapsed, edge, low, high + 1) - low
        if elapsed[0] > edge:  # in what lies before the end of the ring
            return first + bisect_right(elapsed, edge, low, self.slots) - low
        return first + self.slots - low + bisect_right(elapsed, edge, 0, high + 1)

    def times(self, first: int, last: int) -> list[float]:
        """``elapsed`` of the rows ``first``..``last``."""
        return _stretch(self._elapsed, self.slots, first, last)

    def covers(self, first: int, last: int) -> list[float]:
        """``cover`` of the rows ``first``..``last``."""
        return _stretch(self._cover, self.slots, first, last)

    def covered(self, first: int, last: int) -> float:
        """How much time the rows ``first``..``last`` stand for together."""
        if last < first:
            return 0.0
        start = first % self.slots
        return self._covered[last % self.slots] - self._covered[start] + self._cover[start]

    def rows_within(self, start_s: float, end_s: float, first: int, last: int) -> tuple[int, int]:
        """Rows of the samples that stand for ``(start, end]``: taken in it, else the one that covers it."""
        low = self.after(start_s, first, last)
        high = self.after(end_s, low, last) - 1
        if high < low <= last and self.elapsed(low) - self.cover(low) <= (start_s + end_s) / 2 + _EDGE_S:
            return low, low
        return low, high


def _stretch(data: array[float], slots: int, first: int, last: int) -> list[float]:
    if last < first:
        return []
    low, high = first % slots, last % slots
    if low <= high:
        return data[low : high + 1].tolist()
    return data[low:].tolist() + data[: high + 1].tolist()


class Tier:
    """Coarser past: mean, min and max of every field over bins of one width."""

    def __init__(self, width_s: float, bins: int) -> None:
        self.width_s = width_s
        self.bins = bins
        self.closed = 0
        """Bins before this number are complete."""

    def oldest(self) -> int:
        """The oldest bin still held."""
        return max(0, self.closed - self.bins + 2)

    def ring(self, width: int) -> Ring:
        """Storage for one subject: three columns per field."""
        return Ring(3 * width, self.bins, self.closed)


def fold_rows(ring: Ring, first: int, last: int, weights: Sequence[float], fields: int) -> list[float] | None:
    """Mean, min and max of the first fields over some rows, one after the other; None if all is NaN."""
    folded: list[float] = []
    if first == last:
        # Where samples are further apart than the bins are wide, this is every bin.
        values = ring.values(first)[:fields]
        if not any(value == value for value in values):
            return None
        return [value for value in values for _ in range(3)]
    known = False
    for field in range(fields):
        value = ring.steady(field, first, last)
        if value is None:
            mean, low, high = fold(ring.column(field, first, last), weights)
        else:
            mean = low = high = value
        known = known or mean == mean
        folded += (mean, low, high)
    return folded if known else None


def extreme(values: Sequence[float], how: How) -> float:
    """The least or the greatest of what is known; NaN if nothing is."""
    total = sum(values)
    known = values if total == total else [value for value in values if value == value]
    return (min if how == "min" else max)(known, default=_NAN)


def fold(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float]:
    """Weighted mean, min and max of what is known; NaN three times if nothing is."""
    total = sum(map(mul, values, weights))
    weight = sum(weights)
    known = values
    if total != total:
        # Gaps are NaN, so the plain sum is NaN if there is one.
        known = [value for value in values if value == value]
        pairs = [(value, share) for value, share in zip(values, weights, strict=True) if value == value]
        total, weight = sum(value * share for value, share in pairs), sum(share for _, share in pairs)
    if not known:
        return _NAN, _NAN, _NAN
    return (total / weight if weight > 0 else sum(known) / len(known)), min(known), max(known)
