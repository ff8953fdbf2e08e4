"""Knows how to sort the events of a day, reading each of them once and not again with every later sample."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from gpumon.model import Event
from gpumon.window import Window

Key = TypeVar("Key")
Item = TypeVar("Item")
DAY_S = 86_400.0


class _State(NamedTuple):  # not generic: Python 3.10 has no such tuples
    window: Window
    clock: object
    entries: Sequence[tuple[float, Event]]
    keys: Sequence[Any]
    """Of each entry; None where it is left out."""
    found: Mapping[Any, list[Any]]


class Sorted(Generic[Key, Item]):
    """What was read of the events of the last day, oldest first, under the keys by which it is asked for."""

    def __init__(self, read: Callable[[Window, float, Event], tuple[Key, Item] | None]) -> None:
        self._read = read
        self._state: _State | None = None

    def of(self, window: Window, clock: object = None) -> Mapping[Key, list[Item]]:
        """Everything heard within a day of a window.

        Args:
            window: the end of the day.
            clock: what else the reading of an event depends on; all are read anew where it changes.
        """
        before = self._state
        if before is not None and before.window is window:
            return before.found
        entries = window.heard(DAY_S)
        if not entries:  # nearly always, and every sample asks
            self._state = _State(window, clock, (), (), {})
            return {}
        dropped = None if before is None or before.clock != clock else _dropped(before.entries, entries)
        if before is None or dropped is None:
            keys: list[Key | None] = []
            found: dict[Key, list[Item]] = {}
        else:
            keys, found = [*before.keys[dropped:]], dict(before.found)
            for key, count in Counter(before.keys[:dropped]).items():
                if key is not None:
                    found[key] = found[key][count:]
        grown: set[Key] = set()
        for heard_at_s, event in entries[len(keys) :]:
            read = self._read(window, heard_at_s, event)
            keys.append(None if read is None else read[0])
            if read is not None:
                key, item = read
                if key not in grown:
                    grown.add(key)
                    found[key] = [*found.get(key, ())]  # what was given out before never changes
                found[key].append(item)
        self._state = _State(window, clock, entries, keys, {key: items for key, items in found.items() if items})
        return self._state.found


def _dropped(before: Sequence[tuple[float, Event]], now: Sequence[tuple[float, Event]]) -> int | None:
    """How many of the entries are too old by now, if the others are still there and only more came."""
    if not before or not now:
        return None
    first = bisect_left(before, now[0][0], key=itemgetter(0))
    kept = len(before) - first
    goes_on = 0 < kept <= len(now) and before[first] is now[0] and before[-1] is now[kept - 1]
    return first if goes_on else None
