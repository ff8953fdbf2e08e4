"""Knows the one loop: a snapshot goes in, a Frame with everything any consumer sees comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from gpumon.alerts import Headline, MuteList
from gpumon.history import History, Window
from gpumon.model import Abstention, Alert, Snapshot, Value


class SourceInfo(Value, frozen=True, kw_only=True):
    """Where the snapshots come from."""

    kind: Literal["live", "demo", "replay"]
    name: str
    """Host name or scenario."""


class Source(Protocol):
    """Snapshots that arrive at their own pace, until closed."""

    kind: Literal["live", "demo", "replay"]
    name: str

    def __iter__(self) -> Iterator[Snapshot]: ...

    def close(self) -> None:
        """Stop; a waiting iterator ends at once."""


class Frame:
    """Everything any consumer ever sees of one instant."""

    __slots__ = ("abstained", "alerts", "headline", "info", "sample_ms", "window")

    def __init__(
        self,
        *,
        window: Window,
        headline: Headline,
        info: SourceInfo,
        alerts: tuple[Alert, ...] = (),
        abstained: tuple[Abstention, ...] = (),
        sample_ms: float | None = None,
    ) -> None:
        self.window = window
        self.alerts = alerts
        """Firing first, in headline order; then resolved ones, newest first."""
        self.abstained = abstained
        self.headline = headline
        self.info = info
        self.sample_ms = sample_ms
        """CPU time that this frame cost: sampling in this thread, history, rules."""


def frames(
    source: Source,
    *,
    rules: tuple[object, ...] = (),
    limits: Mapping[str, object] | None = None,
    muted_rules: frozenset[str] = frozenset(),
    mutes: MuteList | None = None,
) -> Iterator[Frame]:
    """Yield one frame per snapshot, until the source ends."""
    history = History()
    started_s = time.thread_time()
    for snapshot in source:
        window = history.append(snapshot)
        headline = Headline(state="healthy", text=f"{len(snapshot.gpus)} GPUs")
        sample_ms = 1000.0 * (time.thread_time() - started_s)
        yield Frame(
            window=window,
            headline=headline,
            info=SourceInfo(kind=source.kind, name=snapshot.host.name or source.name),
            sample_ms=sample_ms,
        )
        started_s = time.thread_time()
