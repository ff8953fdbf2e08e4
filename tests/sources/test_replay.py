"""How a recording is played: its past at once, the rest at its own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gpumon.commands.replay import source_of
from gpumon.errors import UsageError
from gpumon.model import Snapshot
from gpumon.sources.replay import Replay

NOON_S = 1_796_126_400.0
"""2026-12-01 12:00 UTC."""


class Recording:
    """Snapshots a second apart from a given time on."""

    kind: Literal["replay"] = "replay"
    name = "run.jsonl"

    def __init__(self, count: int, first_s: float = 1000.0, interval_s: float = 1.0) -> None:
        self.is_closed = False
        self._times = [first_s + number * interval_s for number in range(count)]
        self._interval_s = interval_s

    def __iter__(self) -> Iterator[Snapshot]:
        for time_s in self._times:
            yield Snapshot(time_s=time_s, interval_s=self._interval_s)

    def close(self) -> None:
        self.is_closed = True


def seen(replay: Replay, count: int) -> list[tuple[float, bool]]:
    """Times of the first snapshots, and whether each belonged to the past."""
    found = []
    for snapshot in replay:
        found.append((snapshot.time_s, replay.is_catching_up))
        if len(found) == count:
            break
    return found


def test_without_a_time_the_end_stands() -> None:
    """Everything is taken in at once and only the last is shown; it stays until the replay is closed."""
    recording = Recording(500)
    replay = Replay(recording)
    assert seen(replay, 500) == [(1000.0 + number, number < 499) for number in range(500)]
    threading.Timer(0.1, replay.close).start()
    began_s = time.monotonic()
    assert [snapshot.time_s for snapshot in replay][-1] == 1499.0
    assert 0.05 < time.monotonic() - began_s < 5.0
    assert recording.is_closed


def test_from_a_moment_on_it_keeps_the_recordings_pace() -> None:
    """What lies before comes at once; then each snapshot waits for its interval, divided by the speed."""
    replay = Replay(Recording(40), begin=lambda first_s: first_s + 30.0, speed=20.0)
    began_s = time.monotonic()
    found = seen(replay, 39)
    passed_s = time.monotonic() - began_s
    assert [is_past for _, is_past in found] == [*[True] * 30, *[False] * 9]
    assert 0.4 <= passed_s < 3.0


def test_gaps_are_not_sat_through() -> None:
    """An hour's gap takes five seconds by the recording's clock."""
    replay = Replay(Recording(3, interval_s=3600.0), begin=lambda first_s: first_s, speed=50.0)
    began_s = time.monotonic()
    seen(replay, 3)
    assert time.monotonic() - began_s < 3.0


def test_closing_ends_it_at_once() -> None:
    """Also while it waits for the next snapshot."""
    replay = Replay(Recording(3, interval_s=100.0), begin=lambda first_s: first_s)
    threading.Timer(0.1, replay.close).start()
    began_s = time.monotonic()
    assert len(list(replay)) < 3
    assert time.monotonic() - began_s < 3.0


@pytest.mark.parametrize(
    ("at", "speed", "message"),
    [("noon", None, "--at: 'noon' is no time; write 14:02"), (None, 0.0, "--speed: 0 is not within")],
)
def test_bad_options_are_one_line(tmp_path: Path, at: str | None, speed: float | None, message: str) -> None:
    """The line names the option and what it takes."""
    with pytest.raises(UsageError, match=message):
        source_of([tmp_path / "x"], at, speed)


@pytest.mark.parametrize(
    ("at", "wanted"),
    [("12:00:05", 5.0), ("12:01", 60.0), ("start", 0.0), ("2026-12-01T12:00:42Z", 42.0)],
)
def test_times_are_the_recordings(tmp_path: Path, at: str, wanted: float) -> None:
    """A clock time is the first such moment in the recording."""
    path = tmp_path / "x.jsonl"
    rows = "".join(f'{{"time_s": {NOON_S + number}, "interval_s": 1.0}}\n' for number in range(70))
    path.write_text('{"gpumon_trace": 1}\n' + rows)
    replay = source_of([path], at, 1000.0)
    first_s = next(snapshot.time_s for snapshot in replay if not replay.is_catching_up)
    replay.close()
    assert first_s == NOON_S + wanted
