"""Events of the last day, sorted as they come."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.history import History
from gpumon.model import Event
from gpumon.rules.heard import Sorted
from gpumon.window import Window
from tests import builders


def windows(count: int, *, step_s: float = 3600.0) -> Iterator[Window]:
    """One event with each sample, of two kinds in turn."""
    history = History()
    for number in range(count):
        event = Event(kind="even" if number % 2 == 0 else "odd", xid=number)
        yield history.append(
            builders.snapshot(builders.NOON + number * step_s, [], [], [event], step_s if number else None)
        )


class Reader:
    """Counts what is read; the rarest kind is of no interest."""

    def __init__(self) -> None:
        self.seen: list[int | None] = []

    def __call__(self, _: Window, heard_at_s: float, event: Event) -> tuple[str, tuple[float, int | None]] | None:
        self.seen.append(event.xid)
        return None if event.xid == 5 else (event.kind, (heard_at_s, event.xid))


def test_each_event_is_read_once_and_leaves_after_a_day() -> None:
    reader = Reader()
    kept = Sorted(reader)
    for window in windows(40):
        mine = kept.of(window)
        anew: dict[str, list[tuple[float, int | None]]] = {}
        for heard_at_s, event in window.heard(86_400.0):
            if event.xid != 5:
                anew.setdefault(event.kind, []).append((heard_at_s, event.xid))
        assert mine == anew
    assert reader.seen == list(range(40))
    assert sum(map(len, kept.of(window).values())) == 24


def test_what_was_given_out_stays_as_it_was() -> None:
    kept, given = Sorted(Reader()), []
    for window in windows(6):
        mine = kept.of(window)
        given.append((mine, {kind: list(events) for kind, events in mine.items()}))
    assert all(mine == before for mine, before in given)


def test_another_run_or_another_clock_begins_anew() -> None:
    reader = Reader()
    kept = Sorted(reader)
    (*_, first), (*_, second) = windows(3), windows(4)
    assert [len(kept.of(window)["even"]) for window in (first, second, first)] == [2, 2, 2]
    assert len(reader.seen) == 3 + 4 + 3
    kept.of(second, clock=1)
    assert len(reader.seen) == 14
