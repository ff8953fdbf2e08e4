"""Which training processes tell of themselves at this moment: their files found, held open, and let go at their end."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpumon.model import Event, Gpu, Rank
from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.ring import sweep
from gpumon.sources import GpuUse
from gpumon.sources.inbox.devices import gpu_of
from gpumon.sources.inbox.places import Entry, Place, own_places
from gpumon.sources.inbox.reports import Story
from gpumon.sources.inbox.ring import Body, Now, Report, Ring, open_ring
from gpumon.sources.inbox.writers import Writers
from gpumon.text import clean

_MOST_RANKS = 256
_MOST = 1 << 31
_FIRST_S = 1.0
"""The first report covers as much of what was there already."""
_LATE_NS = round(1.2e9 * layout.PERIOD_S)
"""A report that is older makes us look whether its process lives."""
_LOST_NS = 2 * 10**9
"""So long without a new slot the newest is looked for: one with a damaged number may be in the way."""
_PARTING_S = 3.0
"""After the end of a process its ``gpumon run`` writes down the exit code."""
_CODES = range(-64, 256)
_LONGEST_NAME = 48
_PERIODS = ((48, 4), (16, 2))
"""More ranks than these are read every so many seconds, an equal part of them at a time."""
_HEADER_S, _YOUNG_HEADER_S, _YOUNG_S = 10.0, 1.0, 60.0
_AGAIN_S, _AGAIN_MOST_S = 1.0, 60.0
"""What is refused may be in the making."""
_OTHERS_S = 5.0
_SWEEP_S = 600.0

_Key = tuple[str, str]
"""Directory and name."""


class _Refusal(NamedTuple):
    """A file that was not read."""

    inode: int
    again_at: float
    pause_s: float


class _Writer:
    """A process that writes, and how far it was read."""

    def __init__(self, ring: Ring, pid: int, entry: Entry, now: float) -> None:
        self.ring = ring
        self.pid = pid
        self.ticks = entry.started_ticks
        self.story = Story(pid)
        self.story.hear(ring.body)
        self.since = self.header_at = now
        self.headers = 0
        self.searched_ns = 0
        self.placed_by: tuple[object, ...] = ()
        self.gpu_uuid: str | None = None
        self.due_at = now
        self.told: Rank | None = None
        """What holds between two readings, where ranks are read seldom."""

    def reports(self, now: Now) -> list[Report]:
        """The slots since the last call."""
        last = self.story.last
        if last is not None:
            new = self.ring.new(now)
            is_quiet = not new and now.mono_ns - max(last.mono_ns, self.searched_ns) > _LOST_NS
            if new is not None and not is_quiet:
                return new
            self.searched_ns = now.mono_ns
        found = self.ring.newest(now, _FIRST_S)
        if len(found) > 1 and (last is None or found[0][0].seq > last.seq):
            self.story.begin(found.pop(0)[0])
        return [report for report in found if last is None or report[0].seq > last.seq]

    def look_at_header(self, now: float) -> bool:
        """Read the header if that is due; False where the file is not what it was."""
        if now - self.header_at < (_YOUNG_HEADER_S if now - self.since < _YOUNG_S else _HEADER_S) * 0.9:
            return True
        self.header_at = now
        if self.ring.read_header():
            self.headers += 1
            self.story.hear(self.ring.body)
        return self.ring.is_sound()


class Inbox:
    """Reads what probes publish; while there is no directory of theirs it costs a few looks at nothing."""

    def __init__(self, environment: Mapping[str, str] | None = None, proc: str = "/proc") -> None:
        self._own = own_places(os.environ if environment is None else environment, os.geteuid())
        self._others: list[Place] = []
        self._others_at: float | None = None
        self._swept_at: float | None = None
        self._writers: dict[_Key, _Writer] = {}
        self._refused: dict[_Key, _Refusal] = {}
        self._parting: list[tuple[Ring, int, float]] = []
        """Files of ended processes, whose they are, and until when they are worth a look."""
        self._events: list[Event] = []
        self._processes = Writers(proc)
        self._gpus: Sequence[Gpu] = ()
        self._uuids: tuple[str, ...] = ()
        self.pids: frozenset[int] = frozenset()
        """The processes that tell of themselves."""

    def read(self, holders: Mapping[int, GpuUse], gpus: Sequence[Gpu], now: float) -> tuple[Rank, ...]:
        """What each process told since the last call, in rank order.

        Args:
            holders: What the driver says about each process on a GPU, by pid.
            gpus: The GPUs of this machine.
            now: Monotonic seconds at this call.
        """
        self._look(holders, now)
        if self._parting:
            self._hear_exit_codes(now)
        if not self._writers:
            return ()
        moment = Now(time.monotonic_ns(), time.time_ns())
        self._gpus, self._uuids = gpus, tuple([gpu.uuid for gpu in gpus])
        ranks: list[Rank] = []
        parts = next((parts for least, parts in _PERIODS if len(self._writers) > least), 1)
        for number, (key, writer) in enumerate(list(self._writers.items())):
            if writer.told is not None and parts > 1 and now < writer.due_at:
                ranks.append(writer.told)
                continue
            held = holders.get(writer.pid)
            rank, is_gone = self._hear(writer, now, moment, () if held is None else tuple(held.memory_bytes))
            if rank is not None:
                ranks.append(rank)
            if is_gone:
                self._part(key, now)
            elif parts > 1 and rank is not None:
                turn = parts if writer.told is not None else number % parts + 1
                writer.due_at = now + 0.9 * turn
                writer.told = replace(rank, step_samples_s=(), data_wait_samples_s=(), pause_s=None)
        ranks.sort(key=_order)
        return tuple(ranks)

    def _hear(self, writer: _Writer, now: float, moment: Now, held: tuple[str, ...]) -> tuple[Rank | None, bool]:
        """What one process told, and whether it is gone."""
        reports = writer.reports(moment)
        last = reports[-1][0] if reports else writer.story.last
        is_late = last is None or moment.mono_ns - last.mono_ns > _LATE_NS
        is_gone = not writer.look_at_header(now) or (is_late and not self._processes.is_alive(writer.pid, writer.ticks))
        # The last word of one that is gone already comes once; one that was killed has none.
        if last is None or (is_gone and not (reports and last.phase == layout.END)):
            return None, is_gone
        by = (writer.headers, last.device, self._uuids, held)
        if by != writer.placed_by:
            writer.placed_by, writer.gpu_uuid = by, gpu_of(writer.ring.body, last.device, held, self._gpus)
        return writer.story.tell(reports, moment, writer.gpu_uuid), is_gone

    def drain_events(self) -> tuple[Event, ...]:
        """Exit codes of processes under ``gpumon run``, since the last call."""
        events, self._events = tuple(self._events), []
        return events

    def close(self) -> None:
        """Give every descriptor back."""
        for key in list(self._writers):
            self._forget(key)
        for ring, _, _ in self._parting:
            ring.close()
        self._parting = []

    def _part(self, key: _Key, now: float) -> None:
        """Let go of a process that ended; of one under ``gpumon run`` its exit code is to come, or there."""
        writer = self._writers.pop(key)
        self.pids -= {writer.pid}
        writer.ring.read_header()
        until = now + (_PARTING_S if writer.ring.body.run else 0.0)
        self._parting.append((writer.ring, writer.pid, until))
        self._hear_exit_codes(now)

    def _hear_exit_codes(self, now: float) -> None:
        waiting = []
        for ring, pid, until in self._parting:
            ring.read_header()
            is_over = now >= until
            event = exit_of(ring.body, pid, is_over=is_over)
            if event is None and not is_over:
                waiting.append((ring, pid, until))
                continue
            self._events += () if event is None else (event,)
            ring.close()
        self._parting = waiting

    # --- whose files there are -------------------------------------------------------------------

    def _look(self, holders: Mapping[int, GpuUse], now: float) -> None:
        """List the directories in which something came or went, or something is to be tried again."""
        due = {key[0] for key, refusal in self._refused.items() if refusal.again_at <= now} if self._refused else ()
        places = self._own
        if self._others_at is None or now - self._others_at >= _OTHERS_S:
            self._others_at = now
            if self._processes.meet(holders):
                own = {place.where for place in self._own}
                self._others = [place for place in self._processes.places(self._others) if place.where not in own]
            places = [*places, *self._others]
        for place in places:
            if place.has_changed(now) or place.where in due:
                self._list(place, now)

    def _list(self, place: Place, now: float) -> None:
        with place.opened() as directory:
            if directory is None:
                return
            if place.is_mine() and (self._swept_at is None or now - self._swept_at >= _SWEEP_S):
                self._swept_at = now
                sweep(place.path)
            entries = place.entries(directory, self._processes.pids)
            known = {entry.name for entry in entries}
            for key in [key for key in self._refused if key[0] == place.where and key[1] not in known]:
                del self._refused[key]
            for entry in entries:
                self._take_up(place, entry, directory, now)

    def _take_up(self, place: Place, entry: Entry, directory: int, now: float) -> None:
        key = (place.where, entry.name)
        writer, refusal = self._writers.get(key), self._refused.get(key)
        if writer is not None and writer.ring.inode == entry.inode:
            return
        if refusal is not None and refusal.inode == entry.inode and now < refusal.again_at:
            return
        reason = self._open(place, entry, directory, now)
        if reason is None:
            self._refused.pop(key, None)
            return
        is_known = refusal is not None and refusal.inode == entry.inode
        pause_s = min(2.0 * refusal.pause_s, _AGAIN_MOST_S) if refusal is not None and is_known else _AGAIN_S
        self._refused[key] = _Refusal(entry.inode, now + pause_s, pause_s)
        if not is_known:
            import logging

            logging.getLogger(__name__).info("not read: %s in %s: %s", entry.name, place.where, reason)

    def _open(self, place: Place, entry: Entry, directory: int, now: float) -> str | None:
        """Hold a file from now on; the reason where it is not to be believed."""
        if len(self._writers) >= _MOST_RANKS:
            return "one too many"
        pid = self._processes.find(entry, place.uid)
        if pid is None:
            return "no such process"
        ring = open_ring(entry.name, directory, place.uid)
        if isinstance(ring, str):
            return ring
        reason = self._processes.contradiction(ring.body, entry, is_far=place.root is not None)
        same = [key for key, writer in self._writers.items() if writer.pid == pid]
        if reason is None and same:
            # It called exec, or its directory went away with its session: what was written last is meant.
            moment = Now(time.monotonic_ns(), time.time_ns())
            newest, last = ring.newest(moment, 0.0), self._writers[same[0]].story.last
            if last is not None and (not newest or newest[-1][0].mono_ns <= last.mono_ns):
                reason = "an older file of the same process"
        if reason is not None:
            ring.close()
            return reason
        for key in same:
            self._forget(key)
        self._writers[place.where, entry.name] = _Writer(ring, pid, entry, now)
        self.pids |= {pid}
        return None

    def _forget(self, key: _Key) -> None:
        writer = self._writers.pop(key)
        writer.ring.close()
        self.pids -= {writer.pid}


def _order(rank: Rank) -> tuple[int, int]:
    return (_MOST if rank.rank is None else rank.rank, rank.pid)


def exit_of(body: Body, pid: int, *, is_over: bool) -> Event | None:
    """How a process ended: the code that its ``gpumon run`` wrote down, which is not that of the command's children.

    ``is_over``: no code is to come any more; then the exception counts that it said it ended with.
    """
    code, of_run = body.exit_code, body.run_exit_code
    error = None if body.error is None else f"ended with {clean(body.error, _LONGEST_NAME)}"
    if code is None and of_run == 0:
        code = 0
    if code in _CODES:
        return Event(kind="process-exit", pid=pid, exit_code=code, text=error)
    if of_run in _CODES:
        return Event(kind="process-exit", pid=pid, text=error or f"error: its run ended with code {of_run}")
    return Event(kind="process-exit", pid=pid, text=error) if error is not None and is_over else None
