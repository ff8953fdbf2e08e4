"""Knows how to play a recording or a log: what lies before a moment at once, what follows at its own pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from threading import Event as Signal
from typing import Literal

from gpumon.model import Snapshot
from gpumon.sources import Source

LONGEST_PAUSE_S = 5.0
"""Gaps inside a recording are not sat through."""


class Replay:
    """Another source's snapshots, paced. Without a moment to begin at, all of it is taken in and its end stands."""

    kind: Literal["replay"] = "replay"

    def __init__(self, source: Source, *, begin: Callable[[float], float] | None = None, speed: float = 1.0) -> None:
        """``begin`` tells from the first snapshot's time from when on it is played, ``speed`` times as fast."""
        self.name = source.name
        self.interval_s = 1.0
        self.is_catching_up = True
        self._source = source
        self._begin = begin
        self._speed = speed
        self._closed = Signal()

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield snapshots; after the last one the picture stays until it is closed."""
        held: Snapshot | None = None
        begin_s = inf
        for snapshot in self._source:
            if held is not None:
                yield held
            if self._closed.is_set():
                return
            if held is None and self._begin is not None:
                begin_s = self._begin(snapshot.time_s)
            held = snapshot
            self.is_catching_up = snapshot.time_s < begin_s
            if not self.is_catching_up and self._closed.wait(self._pause_s(snapshot)):
                return
        if held is not None:
            self.is_catching_up = False
            yield held
        self._closed.wait()

    def close(self) -> None:
        """End the iteration at once, from any thread."""
        self._closed.set()
        self._source.close()

    def _pause_s(self, snapshot: Snapshot) -> float:
        return min(LONGEST_PAUSE_S, max(0.0, snapshot.interval_s or 0.0)) / self._speed
