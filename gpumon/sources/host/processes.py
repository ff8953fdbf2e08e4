"""How often each process is read, and what role it plays: most is worth reading every few seconds only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.model import Event, Process, Volume
from gpumon.sources import GpuUse
from gpumon.sources.host import identity
from gpumon.sources.host.aside import Aside
from gpumon.sources.host.filesystems import DataFilesystems
from gpumon.sources.host.following import Following
from gpumon.sources.host.identity import Behaviour
from gpumon.sources.host.proc import Watch
from gpumon.sources.host.records import Records, holder_of
from gpumon.sources.host.states import PROCESSES_MAX, StateSampler
from gpumon.sources.host.strangers import Strangers

_FEW_GPUS = 4
_FEW_PROCESSES = 32
_MANY_PROCESSES = 48
_PERIOD_S = 2.0
_SLOW_PERIOD_S = 5.0
_SLOWEST_PERIOD_S = 10.0
"""For the many processes of large jobs: two seconds would cost a quarter percent of a core."""
_ROLE_AGAIN_S = 5.0
_MAPS_AT_ONCE = 2
"""The maps of a big trainer take milliseconds: 64 of them in one reading would be seen as a stutter."""
_DATA_AGAIN_S = 60.0
_DATA_KNOWN_AGAIN_S = 600.0
_NO_GPU = GpuUse({}, None)
_NO_TRAINERS = ("other", "server")
"""What a program with a serving library, or of another name than Python's, may be taken for."""


class _Pace(NamedTuple):
    """Seconds between two readings."""

    interval_s: float
    """Of the whole machine."""
    holder_s: float
    helper_s: float
    counters_s: float
    """Of a process's scheduler and I/O counters."""


class _Answer(NamedTuple):
    """What was returned last, and of what it was made."""

    pace: _Pace
    is_any_new: bool
    """Somebody was read only once and is due again."""
    changes: int
    holders: Mapping[int, GpuUse]
    processes: tuple[Process, ...]


class ProcessReader:
    """Turns the driver's list of holders into process records, reading each no more often than it pays."""

    def __init__(self, proc: str, sys: str, *, is_namespaced: bool) -> None:
        self._following = Following(proc, is_namespaced=is_namespaced)
        self._filesystems = DataFilesystems(proc)
        self._states = StateSampler(proc)
        self._strangers = Strangers(proc)
        self._records = Records(proc, sys)
        self._aside = Aside(proc)
        self.counts_shares = False
        """Count shares of memory, at a price for the processes: only while the machine's memory runs short."""
        self._probed: frozenset[int] = frozenset()
        self._state_holders: frozenset[int] = frozenset()
        self._roles_at: float | None = None
        self._last: _Answer | None = None
        self._read_at = 0.0
        """Monotonic time of the last reading that was not a repetition."""

    def read(self, holders: Mapping[int, GpuUse], now: float, interval_s: float) -> tuple[Process, ...]:
        """Return every holder, followed by its descendants; a holder that cannot be looked up has its pid alone.

        Who trains on the CPU is followed like a holder, and holds no memory of any GPU.
        """
        following = self._following
        strangers = (self._strangers.look(following.watches, now) | self._probed) - holders.keys()
        if strangers:
            holders = {**dict.fromkeys(strangers, _NO_GPU), **holders}
        if self._last is not None and self._is_resting(self._last, holders, now, interval_s):
            return self._last.processes
        pace = self._pace(holders, interval_s)
        following.strangers = strangers
        self._read_at = now
        following.follow(holders.keys(), now)
        self._look_aside(now)
        fresh = self._sample(now, pace)
        following.prune()
        is_mapped = self._look_inside(holders, now)
        last = self._last
        if last is not None and not fresh and not is_mapped and last[2:4] == (following.changes, holders):
            return last.processes
        self._identify(fresh, now)
        self._look_around(now)
        self._watch_states()
        processes = tuple(self._records.build(holders, following.watches, following.gone, now))
        is_any_new = any(watch.is_first_due() for watch in following.watches.values())
        self._last = _Answer(pace, is_any_new, following.changes, dict(holders), processes)
        return processes

    def _pace(self, holders: Mapping[int, GpuUse], interval_s: float) -> _Pace:
        """How often to read whom, by how many there are."""
        count = len(self._following.watches)
        gpus = {uuid for use in holders.values() for uuid in use.memory_bytes}
        if count > _MANY_PROCESSES:
            holder_s, helper_s, counters_s = _SLOW_PERIOD_S, _SLOW_PERIOD_S, _SLOWEST_PERIOD_S
        elif count > _FEW_PROCESSES or len(gpus) > _FEW_GPUS:
            holder_s, helper_s, counters_s = _PERIOD_S, _PERIOD_S, _SLOW_PERIOD_S
        else:
            holder_s, helper_s, counters_s = interval_s, interval_s, _PERIOD_S
        return _Pace(interval_s, *(max(interval_s, seconds) for seconds in (holder_s, helper_s, counters_s)))

    def _is_resting(self, last: _Answer, holders: Mapping[int, GpuUse], now: float, interval_s: float) -> bool:
        """Nobody came or went, and nobody is due: the last answer stands, and nothing is looked at."""
        return (
            now - self._read_at < last.pace.holder_s * 0.9
            and not last.is_any_new
            and interval_s == last.pace.interval_s
            and holders.keys() == last.holders.keys()
        )

    def drain_events(self) -> tuple[Event, ...]:
        """Holders that ended, and kills in their control groups, since the last call."""
        ended, self._following.ended = self._following.ended, []
        # Only a parent learns the exit code.
        exits = tuple(Event(kind="process-exit", pid=pid) for pid in dict.fromkeys(ended))
        return (*exits, *self._records.drain_events())

    def volumes(self) -> tuple[Volume, ...]:
        """Where the processes write."""
        return self._aside.volumes

    def resolved(self) -> frozenset[int]:
        """Return the holders that are processes here."""
        strangers = self._following.strangers
        return frozenset(
            pid for pid, watch in self._following.watches.items() if watch.is_holder and pid not in strangers
        )

    def watch_states(self, holders: Iterable[int]) -> None:
        """Sample the states of these holders and their workers four times a second, sixteen processes at most."""
        self._state_holders = frozenset(holders)

    def sample_states(self) -> None:
        """Take one state sample now, for a caller that has a clock of its own."""
        self._states.sample()

    def close(self) -> None:
        """Give back every descriptor and end the state sampler."""
        self._states.close()
        self._aside.close()
        self._following.close()

    def _sample(self, now: float, pace: _Pace) -> list[Watch]:
        """Read who is due; return those with new values, the ones just taken up among them."""
        watches = self._following.watches
        fresh = []
        for pid, watch in list(watches.items()):
            period_s = pace.holder_s if watch.is_holder else pace.helper_s
            if watch.is_first_due():
                period_s = pace.interval_s
            # A tick that comes a little early must not put a process off to the next one.
            if now - watch.at >= period_s * 0.9 and not watch.sample(now, self._states.take(pid), pace.counters_s):
                self._following.lose(pid, now)
            elif watch.at == now:
                fresh.append(watch)
        return fresh

    def _look_aside(self, now: float) -> None:
        """Take over what the slow thread found, and ask it anew."""
        watches = self._following.watches
        for pid, share in self._aside.shares.items():
            watch = watches.get(pid)
            if watch is not None:
                watch.note_share(share.pss_bytes, share.private_bytes)
        sharers = [pid for pid, one in watches.items() if one.is_holder or one.role == "dataloader-worker"]
        writers = [pid for pid, watch in watches.items() if watch.is_holder and watch.identity.is_own]
        self._aside.look(now, writers, sharers if self.counts_shares else ())

    def _look_inside(self, holders: Iterable[int], now: float) -> bool:
        """Read the maps of a holder or two that are due; tell if so."""
        watched = (self._following.watches.get(pid) for pid in holders)
        due = [watch for watch in watched if watch is not None and watch.is_map_due(now)][:_MAPS_AT_ONCE]
        for watch in due:
            watch.identify(now)
            watch.look_inside(now)
            self._judge_holder(watch)
        return bool(due)

    def _identify(self, fresh: list[Watch], now: float) -> None:
        is_any_new = False
        for watch in fresh:
            is_changed = watch.identify(now)
            if watch.is_holder:
                watch.look_at_threads(now)
                if is_changed:
                    self._judge_holder(watch)
            elif is_changed:
                watch.role, is_any_new = None, True
        if is_any_new or self._roles_at is None or now - self._roles_at >= _ROLE_AGAIN_S:
            self._roles_at = now
            self._judge_helpers()

    def know_trainers(self, pids: frozenset[int]) -> None:
        """Follow these like holders, on a GPU or not: they tell themselves that they train."""
        self._probed = pids
        for pid in pids:
            watch = self._following.watches.get(pid)
            if watch is not None and watch.is_holder and watch.role is not None:
                self._judge_holder(watch)

    def _judge_holder(self, watch: Watch) -> None:
        known, before = watch.identity, watch.role
        role = identity.role_of_holder(
            known.argv,
            known.name,
            watch.libraries,
            framework=watch.framework,
            is_ranked=known.rank.rank is not None,
        )
        watch.role = "trainer" if watch.pid in self._probed and role in _NO_TRAINERS else role
        watch.version += watch.role != before

    def _judge_helpers(self) -> None:
        """Tell the workers from the rest; who was once seen working stays a worker while it sleeps."""
        watches = self._following.watches
        likes = Counter((watch.stat.ppid, watch.identity.argv_hash) for watch in watches.values())
        for watch in watches.values():
            if watch.is_holder or watch.role not in (None, "other"):
                continue
            known, parent = watch.identity, watches.get(watch.stat.ppid)
            has_parents_command = parent is not None and known.argv_hash == parent.identity.argv_hash
            behaviour = Behaviour(
                is_forked=known.argv_hash is not None and has_parents_command,
                cpu_pct=watch.cpu_pct,
                rchar_bytes=None if watch.io is None else watch.io.rchar_bytes,
                like_siblings=likes[watch.stat.ppid, known.argv_hash],
            )
            role = identity.role_of_helper(known.argv, known.name, behaviour)
            watch.version += role != watch.role
            watch.role = role

    def _look_around(self, now: float) -> None:
        """Look at the open files of one process a reading: whoever reads most among those not looked at lately."""
        chosen: Watch | None = None
        for watch in self._following.watches.values():
            if not watch.is_holder and watch.role != "dataloader-worker":
                continue
            again_s = _DATA_AGAIN_S if watch.data_filesystem is None else _DATA_KNOWN_AGAIN_S
            is_due = watch.data_looked_at is None or (watch.rchar_bytes_per_s and now - watch.data_looked_at >= again_s)
            if is_due and (chosen is None or (watch.rchar_bytes_per_s or 0.0) > (chosen.rchar_bytes_per_s or 0.0)):
                chosen = watch
        if chosen is not None:
            chosen.data_looked_at = now
            found = self._filesystems.kind_of(chosen.pid, now)
            # A worker opens its files for moments: what was seen once is kept.
            if found is not None and found != chosen.data_filesystem:
                chosen.data_filesystem = found
                chosen.version += 1

    def _watch_states(self) -> None:
        watches = self._following.watches
        pids = [pid for pid in self._state_holders if pid in watches]
        if pids:
            chosen = frozenset(pids)
            pids += [
                pid
                for pid, watch in watches.items()
                if watch.role == "dataloader-worker" and holder_of(watch, watches) in chosen
            ]
        self._states.watch(pids[:PROCESSES_MAX])
