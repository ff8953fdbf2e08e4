"""Which processes are followed: the holders that the driver names, and whoever descends from them."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Set as AbstractSet

from gpumon.sources.host.births import Births
from gpumon.sources.host.pidview import holds_gpu
from gpumon.sources.host.proc import Watch, is_process, read_stat
from gpumon.sources.host.tree import Tree

_CHECK_PERIOD_S = 2.0
_WALK_PERIOD_S = 10.0
_YOUNG_WALK_PERIOD_S = 5.0
_YOUNG_S = 60.0
_SURE_WALK_PERIOD_S = 120.0
"""While everybody who is born is asked for his parent."""
_BIRTHS_EACH, _BIRTHS_LEAST, _BIRTHS_MAX = 4, 64, 512
"""So many newborn are asked for each process followed; beyond that walking is cheaper."""
_DISTRUST_S = 10.0
_GONE_S = 5.0
"""A process that ended stays in the driver's list until that is read again."""
_WATCHES_MAX = 2048
_KEPT_MAX = 256
_ANCESTORS_MAX = 64


class Following:
    """The watches, kept up from one reading to the next.

    Each holder's main thread is asked for children every two seconds, and whoever was started since for his parent.
    Where the newborn are too many or cannot be told, everybody's other threads are asked in turn within ten seconds.
    So the cost is bounded by the processes followed, whatever else runs on the host.
    """

    def __init__(self, proc: str, *, is_namespaced: bool) -> None:
        self._proc = proc
        self._is_namespaced = is_namespaced
        self._tree = Tree(proc)
        self._births = Births(proc)
        self._unsure_until = 0.0
        """Until everybody was walked since the last time that the newborn were not known."""
        self._holders: AbstractSet[int] = frozenset()
        self._distrusted: dict[int, float] = {}
        self._is_settled = False
        """Nobody came, went or changed parents since the last pruning."""
        self._checked_at: float | None = None
        self._scanned_at: float | None = None
        self._queue: list[int] = []
        soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        room = _KEPT_MAX * 4 if soft_limit == resource.RLIM_INFINITY else soft_limit
        self._kept_stats = min(_KEPT_MAX, room // 4)
        self._kept_counters = min(_KEPT_MAX, room // 16)
        """Three descriptors each."""
        self.strangers: AbstractSet[int] = frozenset()
        """Those among the holders whose pid is of this /proc for sure: not the driver named them."""
        self.watches: dict[int, Watch] = {}
        self.gone: dict[int, float] = {}
        """Who ended a moment ago, and when: the driver's list lags."""
        self.ended: list[int] = []
        """Holders that ended since somebody asked; he empties it."""
        self.changes = 0
        """Counts comings and goings, so that a reader sees that its last answer is out of date."""

    def follow(self, holders: AbstractSet[int], now: float) -> None:
        """Take up new holders and new descendants, and let go whom no holder leads to."""
        gone = {pid: since for pid, since in self.gone.items() if now - since <= _GONE_S}
        self.changes += len(gone) != len(self.gone)
        self.gone = gone
        if holders != self._holders:
            self._holders = frozenset(holders)
            self._is_settled = False
            for pid, watch in self.watches.items():
                if watch.is_holder and pid not in holders and not watch.is_alive():
                    self.ended.append(pid)
                watch.is_holder = pid in holders
        fresh = [pid for pid in holders if pid not in self.watches and self._take_up_holder(pid, now)]
        if self._tree.is_listed:
            self._walk(fresh, now)
        if not self._tree.is_listed:
            self._scan(now, is_urgent=bool(fresh))

    def lose(self, pid: int, now: float) -> None:
        """Let go of a process that ended."""
        self.gone[pid] = now
        if self.watches[pid].is_holder:
            self.ended.append(pid)
        self._drop(pid)

    def close(self) -> None:
        """Give back every descriptor."""
        for pid in list(self.watches):
            self._drop(pid)
        self._births.close()

    def prune(self) -> None:
        """Let go of those whose holder ended or holds no GPU any more."""
        if self._is_settled and not any(watch.is_reparented for watch in self.watches.values()):
            return
        belongs = dict.fromkeys(self._holders, True)
        for start in self.watches:
            chain: list[int] = []
            pid = start
            while pid not in belongs and pid in self.watches and len(chain) < _ANCESTORS_MAX:
                chain.append(pid)
                pid = self.watches[pid].stat.ppid
            belongs.update(dict.fromkeys(chain, belongs.get(pid, False)))
        for pid in [pid for pid in self.watches if not belongs[pid]]:
            self._drop(pid)
        for watch in self.watches.values():
            watch.is_reparented = False
        self._is_settled = True

    def _take_up_holder(self, pid: int, now: float) -> bool:
        if self._is_namespaced and pid not in self.strangers and not self._is_trusted(pid, now):
            return False
        return self._take_up(pid, now) is not None

    def _is_trusted(self, pid: int, now: float) -> bool:
        """In a pid namespace the driver's number may be anybody's here: only one with a GPU open is believed."""
        since = self._distrusted.get(pid)
        if since is not None and now - since < _DISTRUST_S:
            return False
        if holds_gpu(self._proc, pid):
            self._distrusted.pop(pid, None)
            return True
        self._distrusted[pid] = now
        return False

    def _take_up(self, pid: int, now: float) -> Watch | None:
        if len(self.watches) >= _WATCHES_MAX or pid == os.getpid():
            return None
        stat = read_stat(self._proc, pid)
        if stat is None:
            return None
        place = len(self.watches)
        watch = Watch(self._proc, pid, stat, now, is_holder=pid in self._holders)
        watch.keep(stat=place < self._kept_stats, counters=place < self._kept_counters)
        self.gone.pop(pid, None)
        self.watches[pid] = watch
        self._note_change()
        return watch

    def _drop(self, pid: int) -> None:
        self.watches.pop(pid).close()
        self._note_change()
        self._tree.forget(pid)

    def _note_change(self) -> None:
        self.changes += 1
        self._is_settled = False

    def _walk(self, fresh: list[int], now: float) -> None:
        to_walk = dict.fromkeys(fresh, True)
        if self._checked_at is None or now - self._checked_at >= _CHECK_PERIOD_S * 0.9:
            to_walk.update(dict.fromkeys(self._forked(now), True))
            self._take_up_newborn(now)
            for pid in self._turn(now):
                to_walk.setdefault(pid, False)
            self._checked_at = now
        queue = list(to_walk)
        while queue:
            pid = queue.pop()
            for child in self._tree.children(pid, all_threads=to_walk[pid]):
                if child not in self.watches and self._take_up(child, now) is not None:
                    to_walk[child] = True
                    queue.append(child)

    def _forked(self, now: float) -> list[int]:
        """Return the holders whose main thread has other children than two seconds ago."""
        forked = []
        for pid in self._holders:
            watch = self.watches.get(pid)
            if watch is not None and self._tree.forked(pid, keeps=watch.keeps_counters):
                watch.note_fork(now)
                forked.append(pid)
        return forked

    def _take_up_newborn(self, now: float) -> None:
        """Ask who was started since the last time for his parent."""
        most = min(max(_BIRTHS_EACH * len(self.watches), _BIRTHS_LEAST), _BIRTHS_MAX)
        numbers = self._births.numbers(most)
        if numbers is None:
            self._unsure_until = now + _WALK_PERIOD_S
            return
        for pid in numbers:
            stat = None if pid in self.watches else read_stat(self._proc, pid)
            parent = None if stat is None else self.watches.get(stat.ppid)
            if parent is not None and is_process(self._proc, pid) and self._take_up(pid, now) is not None:
                parent.note_fork(now)

    def _walk_period_s(self, now: float) -> float:
        watched = (self.watches[pid] for pid in self._holders if pid in self.watches)
        is_any_young = any(now - watch.seen_at < _YOUNG_S for watch in watched)
        return _YOUNG_WALK_PERIOD_S if is_any_young else _WALK_PERIOD_S

    def _turn(self, now: float) -> list[int]:
        """Return whose turn it is to be walked, so that everybody's comes within the walking period."""
        # A loader's worker starts nobody, as a rule: what it has is found when it is new.
        walked = [pid for pid, watch in self.watches.items() if watch.role != "dataloader-worker"]
        elapsed_s = 0.0 if self._checked_at is None else now - self._checked_at
        period_s = self._walk_period_s(now) if now < self._unsure_until else _SURE_WALK_PERIOD_S
        count = math.ceil(min(1.0, elapsed_s / period_s) * len(walked))
        if len(self._queue) < count:
            self._share_descriptors()
            self._queue += walked
        turn, self._queue = self._queue[:count], self._queue[count:]
        return [pid for pid in turn if pid in self.watches]

    def _scan(self, now: float, *, is_urgent: bool) -> None:
        period_s = self._walk_period_s(now) * 0.95
        if self._scanned_at is not None and now - self._scanned_at < period_s and not is_urgent:
            return
        self._scanned_at = now
        self._share_descriptors()
        for pid in self._tree.scan(self._holders):
            if pid not in self.watches:
                self._take_up(pid, now)

    def _share_descriptors(self) -> None:
        """Let the holders and then the busiest keep theirs; the others open and close at every reading."""
        ranked = list(self.watches.values())
        if len(ranked) > self._kept_counters:
            ranked.sort(key=lambda watch: (not watch.is_holder, -(watch.cpu_pct or 0.0)))
        for place, watch in enumerate(ranked):
            watch.keep(stat=place < self._kept_stats, counters=place < self._kept_counters)
