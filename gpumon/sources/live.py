"""Knows when a live snapshot is due and how old each of its values is; it waits neither for driver nor for host."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from operator import is_not
from typing import Literal, Protocol

from gpumon.model import Event, Gpu, Host, Process, Rank, Snapshot
from gpumon.sources import GpuUse
from gpumon.sources.host.happenings import Happenings
from gpumon.sources.host.kernel_log import KernelLog
from gpumon.sources.host.leftovers import Leftovers
from gpumon.sources.inbox.inbox import Inbox
from gpumon.sources.inbox.names import Names
from gpumon.sources.nvml.reading import Holder, Reading, aged, with_driver
from gpumon.text import clean

FIRST_READING_S = 2.0
"""The first snapshot waits so long for the driver; then it comes without GPUs."""
LATE = 0.25
"""A reading that is due is waited for this share of the interval longer."""
SOON = 0.5
"""A reading that comes late is not followed by the next snapshot before this share of the interval."""
BUSY_PCT = 85.0
CLOCK_STEP_S = 2.0
GAP_INTERVALS = 5.0


class DriverSide(Protocol):
    """The part of NvmlReader that is needed here."""

    interval_s: float

    @property
    def newest(self) -> Reading:
        """What the last pass brought."""
        ...

    @property
    def published(self) -> threading.Event:
        """Set when there is a newer one."""
        ...

    def raise_failure(self) -> None:
        """Raise what ended the reading, should anything."""
        ...

    def replace_hung_thread(self) -> None:
        """Go on without the GPU that hangs."""
        ...

    def drain_events(self) -> tuple[Event, ...]:
        """What the driver told since the last call."""
        ...

    def close(self) -> None:
        """End; returns at once."""
        ...


class HostSide(Protocol):
    """The part of HostReader that is needed here."""

    interval_s: float

    def read(self, holders: Mapping[int, GpuUse], now: float) -> tuple[Host, tuple[Process, ...]]:
        """The machine and the processes that hold GPUs, with their descendants."""
        ...

    def watch_states(self, holders: Iterable[int]) -> None:
        """Look at these holders' threads more often than once a snapshot."""
        ...

    def know_trainers(self, pids: frozenset[int]) -> None:
        """Follow these processes like holders, for they train: their probes say so."""
        ...

    def drain_events(self) -> tuple[Event, ...]:
        """What happened to processes since the last call."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class LiveSource:
    """Snapshots of this machine, one an interval, until closed.

    The reader's publications set the pace, so that a snapshot's GPUs are fresh. When none comes in time (the driver
    hangs or is away) the snapshot goes out with what is known, and every GPU says how old it is.
    """

    kind: Literal["live"] = "live"
    is_catching_up = False

    def __init__(
        self,
        reader: DriverSide,
        host_reader: HostSide,
        interval_s: float = 1.0,
        log: KernelLog | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        """The reader is started by whoever made it, as early as possible; all of them belong to this source alone."""
        self.name = clean(os.uname().nodename)
        self._reader = reader
        self._host_reader = host_reader
        self._inbox = inbox
        self._names = Names()
        self._happenings = Happenings(log)
        self._leftovers = Leftovers()
        self._is_closed = False
        self._last: Reading | None = None
        self._clock = _Clock()
        self._began = time.monotonic()
        self._idling = _IdlingHolders()
        self._uses = _Uses()
        self.interval_s = interval_s

    @property
    def interval_s(self) -> float:
        """Between snapshots; may be assigned from any thread and counts at once."""
        return self._interval_s

    @interval_s.setter
    def interval_s(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._host_reader.interval_s = interval_s
        self._reader.interval_s = interval_s
        self._reader.published.set()

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield snapshots. Raises what ended the reading thread, should anything."""
        self._await_reading(FIRST_READING_S)
        try:
            while not self._is_closed:
                self._reader.raise_failure()
                self._reader.replace_hung_thread()
                yield self._snapshot()
                self._pause()
        finally:
            if self._inbox is not None:
                self._inbox.close()
            self._host_reader.close()
            self._happenings.close()

    def close(self) -> None:
        """End at once, from any thread."""
        self._is_closed = True
        self._reader.close()

    def _await_reading(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        published = self._reader.published
        while not self._is_closed and self._reader.newest.answered_at is None:
            published.clear()
            self._reader.raise_failure()
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._reader.newest.answered_at is not None:
                break
            published.wait(left_s)

    def _pause(self) -> None:
        """Until the next reading, or until an interval and a little has passed without one."""
        published = self._reader.published
        while not self._is_closed:
            published.clear()
            left_s = self._due_at() - time.monotonic()
            if left_s <= 0 or self._is_closed:
                break
            published.wait(left_s)

    def _due_at(self) -> float:
        """When the next snapshot goes out, as far as one can tell now."""
        if self._reader.newest is not self._last:
            return self._clock.monotonic_s + SOON * self._interval_s
        is_stale = self._last is not None and self._clock.since(self._last.answered_at) > 2 * self._interval_s
        return self._clock.monotonic_s + self._interval_s * (1.0 if is_stale else 1.0 + LATE)

    def _snapshot(self) -> Snapshot:
        reading = self._last = self._reader.newest
        since = self._clock.monotonic_s
        interval_s, events = self._clock.tick(self._interval_s)
        now = self._clock.monotonic_s
        watched = self._idling.update(reading)
        if watched is not None:
            self._host_reader.watch_states(watched)
        uses = self._uses.of(reading)
        gpus = aged(reading, now, since)
        ranks = self._ranks(uses, gpus, now)
        host, processes = self._host_reader.read(self._names.of_here(uses, ranks), now)
        answered_at = reading.answered_at
        left = self._leftovers.look(gpus, processes, now) if host.sees_host_pids is not False else ()
        happened = self._happenings.join(self._reader.drain_events(), gpus, now)
        return Snapshot(
            time_s=self._clock.time_s,
            interval_s=interval_s,
            gpus=gpus,
            processes=(*processes, *left) if left else processes,
            host=with_driver(host, reading, now - (self._began if answered_at is None else answered_at)),
            ranks=ranks,
            # Who learned the exit code has the last word about an exit.
            events=(*happened, *self._host_reader.drain_events(), *self._exits(), *events),
        )

    def _ranks(self, uses: Mapping[int, GpuUse], gpus: tuple[Gpu, ...], now: float) -> tuple[Rank, ...]:
        """What probes tell; the host side learns whose they are."""
        if self._inbox is None:
            return ()
        known = self._inbox.pids
        ranks = self._inbox.read(uses, gpus, now)
        if self._inbox.pids != known:
            self._host_reader.know_trainers(self._inbox.pids)
        return ranks

    def _exits(self) -> tuple[Event, ...]:
        return () if self._inbox is None else self._inbox.drain_events()


class _Clock:
    """Both clocks at the last snapshot."""

    def __init__(self) -> None:
        self.monotonic_s = 0.0
        self.time_s = 0.0

    def since(self, monotonic_s: float | None) -> float:
        """Seconds before the last snapshot."""
        return 0.0 if monotonic_s is None else self.monotonic_s - monotonic_s

    def tick(self, expected_s: float) -> tuple[float | None, tuple[Event, ...]]:
        """The interval since the last call, and what was odd about it."""
        before_monotonic, before_time = self.monotonic_s, self.time_s
        self.monotonic_s, self.time_s = time.monotonic(), time.time()
        if not before_time:
            return None, ()
        interval_s = self.monotonic_s - before_monotonic
        step_s = self.time_s - before_time - interval_s
        events: tuple[Event, ...] = ()
        if interval_s > max(GAP_INTERVALS * expected_s, GAP_INTERVALS):
            events += (Event(kind="gap", time_s=before_time, text=f"no sample for {interval_s:.0f} s"),)
        if abs(step_s) > CLOCK_STEP_S:
            # The monotonic clock stands still while the machine is suspended: that looks the same as a step forwards.
            text = f"the clock went {abs(step_s):.0f} s {'forwards' if step_s > 0 else 'back'}"
            events += (Event(kind="clock-step", time_s=self.time_s, text=text),)
        return interval_s, events


class _Uses:
    """Who holds what, put together anew only when the driver has been asked for a list."""

    def __init__(self) -> None:
        self._lists: list[tuple[Holder, ...]] = []
        self._found: Mapping[int, GpuUse] = {}

    def of(self, reading: Reading) -> Mapping[int, GpuUse]:
        """Pid -> what it holds, over all GPUs."""
        lists = [held for _, _, held in reading.gpus]
        if len(lists) != len(self._lists) or any(map(is_not, lists, self._lists)):
            self._lists, self._found = lists, reading.uses()
        return self._found


class _IdlingHolders:
    """Who holds GPUs that are not busy: their threads tell what they wait for, at a cost others need not pay."""

    def __init__(self) -> None:
        self._busy_pct: dict[str, float] = {}
        self._holders: frozenset[int] = frozenset()

    def update(self, reading: Reading) -> frozenset[int] | None:
        """The holders, when they have changed. A mean over some ten readings keeps a saw-tooth from flickering."""
        holders: set[int] = set()
        for gpu, _, held in reading.gpus:
            percent = gpu.utilization_pct
            if percent is not None:
                mean = self._busy_pct.get(gpu.uuid, percent)
                self._busy_pct[gpu.uuid] = mean = mean + 0.1 * (percent - mean)
                if held and mean < BUSY_PCT:
                    holders.update(holder.pid for holder in held)
        if holders == self._holders:
            return None
        self._holders = frozenset(holders)
        return self._holders
