"""Knows how samples lie in memory: arrays written round and round, that never grow beyond their slots."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Literal

How = Literal["mean", "min", "max"]
_NAN = math.nan
_FIRST_SLOTS = 128
"""Rows for which memory is taken at first; then it doubles."""
_EDGE_S = 1e-4
"""Epoch seconds as floats resolve about 1e-7 s: a sample this near to an edge is on it."""


class Rows:
    """Rows of one width, written round and round; takes memory only as it is filled, so that a young run is small."""

    def __init__(self, code: Literal["f", "d"], blank: float, width: int, slots: int) -> None:
        self.width = width
        self.slots = slots
        self._code = code
        self._blank = array(code, [blank]) * width
        self._data = array(code)

    def write(self, at: int, values: Sequence[float]) -> None:
        """Store a row in a slot."""
        width, data = self.width, self._data
        start = at * width
        if start >= len(data):
            self._grow(at)
        data[start : start + width] = array(self._code, values)

    def clear(self, low: int, high: int) -> None:
        """Forget what is in the slots ``low`` to ``high`` (both included)."""
        width, data = self.width, self._data
        if (high + 1) * width > len(data):
            self._grow(high)
        data[low * width : (high + 1) * width] = self._blank * (high - low + 1)

    def row(self, at: int) -> Sequence[float]:
        """What is in a slot."""
        start = at * self.width
        return self._data[start : start + self.width] or self._blank

    def value(self, at: int, field: int) -> float:
        """One value of a slot that was written."""
        return self._data[at * self.width + field]

    def column(self, field: int, low: int, high: int) -> list[float]:
        """One value of each of the slots ``low`` to ``high`` (both included), all of which were written."""
        width = self.width
        return self._data[low * width + field : high * width + field + 1 : width].tolist()

    def _grow(self, at: int) -> None:
        held = len(self._data) // self.width
        self._data.extend(self._blank * (min(self.slots, max(_FIRST_SLOTS, 2 * held, at + 1)) - held))


class Ring:
    """Rows of one subject, one column per field; a row that was never written reads as NaN."""

    def __init__(self, width: int, slots: int, first: int) -> None:
        self.slots = slots
        self.first = first
        """Number of the first row that may be written."""
        self.last = first - 1
        """Number of the newest row written."""
        self._rows = Rows("f", _NAN, width, slots)

    def write(self, row: int, values: Sequence[float]) -> None:
        """Store a row; rows left out since the last write become gaps."""
        first, slots, rows = self.first, self.slots, self._rows
        if row != self.last + 1:
            self._clear(max(self.last + 1, row - slots), row - 1)
        rows.write((row - first) % slots, values)
        self.last = row

    def _clear(self, first: int, last: int) -> None:
        low, high = (first - self.first) % self.slots, (last - self.first) % self.slots
        if last < first:
            return
        if low <= high:
            self._rows.clear(low, high)
        else:
            self._rows.clear(low, self.slots - 1)
            self._rows.clear(0, high)

    def repeat(self, row: int) -> None:
        """Store the newest row once more."""
        self.write(row, self._rows.row((self.last - self.first) % self.slots))

    def values(self, row: int) -> Sequence[float]:
        """One row; empty where there is none."""
        is_there = max(self.first, self.last - self.slots + 1) <= row <= self.last
        return self._rows.row((row - self.first) % self.slots) if is_there else ()

    def column(self, field: int, first: int, last: int) -> list[float]:
        """One field from row ``first`` to row ``last`` (both included), NaN where nothing is known."""
        low, high = max(first, self.first), min(last, self.last)
        if high < low:
            return [_NAN] * (last - first + 1)
        slots, rows = self.slots, self._rows
        start, end = (low - self.first) % slots, (high - self.first) % slots
        if start <= end:
            found = rows.column(field, start, end)
        else:
            found = rows.column(field, start, slots - 1) + rows.column(field, 0, end)
        if low > first:
            found = [_NAN] * (low - first) + found
        return found + [_NAN] * (last - high) if last > high else found


class Sums:
    """Running sums beside a ring, so that the mean over any stretch takes four reads, however long it is."""

    def __init__(self, width: int, slots: int, first: int) -> None:
        self.slots = slots
        self.first = first
        """Number of the first row ever written: before it every sum is 0."""
        self.last = first - 1
        self._totals = Rows("d", 0.0, width, slots)
        self._known = Rows("d", 0.0, width, slots)

    def write(self, row: int, values: Sequence[float], cover_s: float) -> None:
        """Add a row that stands for some time; rows left out since the last write add nothing."""
        first, slots = self.first, self.slots
        before = (self.last - first) % slots
        totals, known = self._totals.row(before), self._known.row(before)
        for missed in range(max(self.last + 1, row - slots), row):
            self._totals.write((missed - first) % slots, totals)
            self._known.write((missed - first) % slots, known)
        at = (row - first) % slots
        self._totals.write(
            at,
            [total + value * cover_s if value == value else total for total, value in zip(totals, values, strict=True)],
        )
        self._known.write(
            at, [time_s + cover_s if value == value else time_s for time_s, value in zip(known, values, strict=True)]
        )
        self.last = row

    def between(self, field: int, first: int, last: int) -> tuple[float, float] | None:
        """Sum of value times time, and the time with a value, of ``first``..``last``; None if it is too long ago."""
        last, first = min(last, self.last), max(first, self.first)
        if last < first:
            return 0.0, 0.0
        oldest = self.last - self.slots + 2
        if last < oldest or (first > self.first and first - 1 < oldest):
            return None
        at = (last - self.first) % self.slots
        total, known = self._totals.value(at, field), self._known.value(at, field)
        if first > self.first:
            before = (first - 1 - self.first) % self.slots
            total, known = total - self._totals.value(before, field), known - self._known.value(before, field)
        return total, known


class Timeline:
    """When each sample was taken (monotonic seconds since the first) and how much time it stands for."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.last = -1
        self._elapsed = array("d", bytes(8 * slots))
        self._cover = array("d", bytes(8 * slots))

    def write(self, row: int, elapsed_s: float, cover_s: float) -> None:
        """Store the time of a sample."""
        self._elapsed[row % self.slots] = elapsed_s
        self._cover[row % self.slots] = cover_s
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
        elapsed, slots, edge = self._elapsed, self.slots, elapsed_s + _EDGE_S
        low, high = first, last + 1
        while low < high:
            middle = (low + high) // 2
            if elapsed[middle % slots] > edge:
                high = middle
            else:
                low = middle + 1
        return low

    def times(self, first: int, last: int) -> list[float]:
        """``elapsed`` of the rows ``first``..``last``."""
        return _stretch(self._elapsed, self.slots, first, last)

    def covers(self, first: int, last: int) -> list[float]:
        """``cover`` of the rows ``first``..``last``."""
        return _stretch(self._cover, self.slots, first, last)

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
        values = ring.column(field, first, last)
        mean, low, high = fold(values, weights)
        known = known or mean == mean
        folded += (mean, low, high)
    return folded if known else None


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
