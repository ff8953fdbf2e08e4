"""The process records of one instant: how often each is read, what role it plays, and what it shares with others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gpumon.model import Process
from gpumon.sources import GpuUse, identity
from gpumon.sources.cgroup import CgroupReader, Limits
from gpumon.sources.filesystems import DataFilesystems
from gpumon.sources.following import Following
from gpumon.sources.identity import Behaviour, Rank
from gpumon.sources.proc import Watch
from gpumon.sources.procfs import TICKS_PER_S, number_after, read, shm_bytes
from gpumon.sources.states import PROCESSES_MAX, StateSampler

_FEW_GPUS = 4
_FEW_PROCESSES = 64
_PERIOD_S = 2.0
_HELPER_PERIOD_S = 5.0
"""For jobs of so many helpers that two seconds would cost a quarter percent of a core."""
_ROLE_AGAIN_S = 5.0
_MAPS_AT_ONCE = 2
"""The maps of a big trainer take milliseconds: 64 of them in one reading would be seen as a stutter."""
_DATA_AGAIN_S = 60.0
_SHM_AGAIN_S = 5.0

_Shm = tuple[int, int]


class ProcessReader:
    """Turns the driver's list of holders into process records, reading each no more often than it pays."""

    def __init__(self, proc: str, sys: str, *, is_namespaced: bool) -> None:
        self._proc = proc
        self._following = Following(proc, is_namespaced=is_namespaced)
        self._cgroups = CgroupReader(sys)
        self._filesystems = DataFilesystems(proc)
        self._states = StateSampler(proc)
        self._state_holders: frozenset[int] = frozenset()
        self._roles_at: float | None = None
        self._shm: dict[str, tuple[float, _Shm | None]] = {}
        self._built: dict[int, tuple[tuple[float, int, GpuUse | None, Rank | None, str | None], Process]] = {}
        self._boot_s = number_after(read(f"{proc}/stat", 1 << 20) or b"", b"\nbtime ")

    def read(self, holders: Mapping[int, GpuUse], now: float, interval_s: float) -> tuple[Process, ...]:
        """Return every holder, followed by its descendants; a holder that cannot be looked up has its pid alone."""
        self._following.follow(holders, now)
        self._sample(holders, now, interval_s)
        self._following.prune()
        self._identify(now)
        self._look_around(now)
        self._watch_states()
        return tuple(self._build(holders, now))

    def resolved(self) -> frozenset[int]:
        """Return the holders that are processes here."""
        return frozenset(pid for pid, watch in self._following.watches.items() if watch.is_holder)

    def watch_states(self, holders: Iterable[int]) -> None:
        """Sample the states of these holders and their workers four times a second, sixteen processes at most."""
        self._state_holders = frozenset(holders)

    def sample_states(self) -> None:
        """Take one state sample now, for a caller that has a clock of its own."""
        self._states.sample()

    def close(self) -> None:
        """Give back every descriptor and end the state sampler."""
        self._states.close()
        self._following.close()

    def _sample(self, holders: Mapping[int, GpuUse], now: float, interval_s: float) -> None:
        watches = self._following.watches
        gpus = {uuid for use in holders.values() for uuid in use.memory_bytes}
        is_many = len(watches) > _FEW_PROCESSES
        holder_period_s = max(interval_s, _PERIOD_S) if is_many or len(gpus) > _FEW_GPUS else interval_s
        helper_period_s = max(interval_s, _HELPER_PERIOD_S) if is_many else holder_period_s
        for pid, watch in list(watches.items()):
            period_s = helper_period_s
            if watch.is_holder:
                period_s = holder_period_s
            elif watch.is_first_due():
                period_s = interval_s
            # A tick that comes a little early must not put a process off to the next one.
            if now - watch.at >= period_s * 0.9 and not watch.sample(now, self._states.take(pid)):
                self._following.lose(pid, now)

    def _identify(self, now: float) -> None:
        watches = self._following.watches
        is_any_new = False
        maps_left = _MAPS_AT_ONCE
        for watch in watches.values():
            is_changed = watch.identify(now)
            if watch.is_holder:
                if maps_left and watch.is_map_due(now):
                    maps_left -= 1
                    watch.look_inside(now)
                    is_changed = True
                else:
                    watch.look_at_threads(now)
                if is_changed:
                    self._judge_holder(watch)
            elif is_changed:
                watch.role, is_any_new = None, True
        if is_any_new or self._roles_at is None or now - self._roles_at >= _ROLE_AGAIN_S:
            self._roles_at = now
            self._judge_helpers()

    def _judge_holder(self, watch: Watch) -> None:
        known = watch.identity
        watch.role = identity.role_of_holder(
            known.argv,
            known.name,
            watch.libraries,
            framework=watch.framework,
            is_ranked=known.rank.rank is not None,
        )

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
        due = [
            watch
            for watch in self._following.watches.values()
            if (watch.is_holder or watch.role == "dataloader-worker")
            and (watch.data_looked_at is None or now - watch.data_looked_at >= _DATA_AGAIN_S)
        ]
        if due:
            watch = max(due, key=lambda watch: watch.rchar_bytes_per_s or 0.0)
            watch.data_looked_at = now
            found = self._filesystems.kind_of(watch.pid, now)
            # A worker opens its files for moments: what was seen once is kept.
            if found is not None and found != watch.data_filesystem:
                watch.data_filesystem = found
                watch.version += 1

    def _watch_states(self) -> None:
        watches = self._following.watches
        pids = [pid for pid in self._state_holders if pid in watches]
        if pids:
            chosen = frozenset(pids)
            pids += [
                pid
                for pid, watch in watches.items()
                if watch.role == "dataloader-worker" and self._holder_of(watch) in chosen
            ]
        self._states.watch(pids[:PROCESSES_MAX])

    def _holder_of(self, watch: Watch) -> int | None:
        watches = self._following.watches
        for _ in range(16):
            parent = watches.get(watch.stat.ppid)
            if parent is None or parent.is_holder:
                return None if parent is None else parent.pid
            watch = parent
        return None

    def _build(self, holders: Mapping[int, GpuUse], now: float) -> Iterator[Process]:
        watches = self._following.watches
        helpers: dict[int | None, list[Watch]] = {}
        for watch in watches.values():
            if not watch.is_holder:
                helpers.setdefault(self._holder_of(watch), []).append(watch)
        for pid in sorted(holders):
            use, holder = holders[pid], watches.get(pid)
            if holder is None:
                if not self._following.is_gone(pid):
                    yield Process(pid=pid, gpu_memory_bytes=use.memory_bytes, gpu_sm_pct=use.sm_pct)
                continue
            own = sorted(helpers.get(pid, ()), key=lambda watch: watch.pid)
            seen = (worker.data_filesystem for worker in own if worker.data_filesystem is not None)
            yield self._record(
                holder, use, now, rank=self._rank(holder), data=holder.data_filesystem or next(seen, None)
            )
            for helper in own:
                yield self._record(helper, None, now, rank=None, data=helper.data_filesystem)
        for pid in self._built.keys() - watches.keys():
            del self._built[pid]

    def _rank(self, holder: Watch) -> Rank:
        """Call a trainer that started ranks 1, 2, … itself rank 0: Lightning writes that in no environment."""
        found = holder.identity.rank
        if found.rank is not None:
            return found
        for watch in self._following.watches.values():
            if watch.is_holder and watch.stat.ppid == holder.pid and (watch.identity.rank.local_rank or 0) > 0:
                return Rank(0, 0, watch.identity.rank.world_size, found.job_id or watch.identity.rank.job_id)
        return found

    def _record(self, watch: Watch, use: GpuUse | None, now: float, *, rank: Rank | None, data: str | None) -> Process:
        key = (watch.at, watch.version, use, rank, data)
        built = self._built.get(watch.pid)
        if built is not None and built[0] == key:
            return built[1]
        shm = self._shm_of(watch, now) if watch.is_holder else None
        process = self._new_record(watch, use, self._cgroups.read(watch.identity.place, now), shm, rank or Rank(), data)
        self._built[watch.pid] = (key, process)
        return process

    def _new_record(
        self, watch: Watch, use: GpuUse | None, limits: Limits, shm: _Shm | None, rank: Rank, data: str | None
    ) -> Process:
        known, stat = watch.identity, watch.stat
        return Process(
            pid=watch.pid,
            ppid=stat.ppid,
            session_id=stat.session_id,
            started_s=None if self._boot_s is None else round(self._boot_s + stat.started_ticks / TICKS_PER_S, 2),
            user=known.user,
            name=known.name,
            command=known.command,
            state=stat.state,
            gpu_memory_bytes={} if use is None else use.memory_bytes,
            gpu_sm_pct=None if use is None else use.sm_pct,
            cpu_pct=watch.cpu_pct,
            main_thread_cpu_pct=watch.main_thread_cpu_pct,
            main_thread_state=watch.main_thread_state,
            disk_wait_pct=watch.disk_wait_pct,
            run_delay_pct=watch.run_delay_pct,
            cpu_throttled_pct=limits.cpu_throttled_pct,
            cpu_quota_cores=limits.cpu_quota_cores,
            cpus_allowed=known.cpus_allowed,
            memory_rss_bytes=stat.rss_bytes,
            memory_limit_bytes=limits.memory_limit_bytes,
            memory_charged_bytes=limits.memory_charged_bytes,
            shm_total_bytes=shm[0] if shm else None,
            shm_used_bytes=shm[1] if shm else None,
            read_bytes_per_s=watch.read_bytes_per_s,
            write_bytes_per_s=watch.write_bytes_per_s,
            rchar_bytes_per_s=watch.rchar_bytes_per_s,
            role=watch.role,
            framework=watch.framework,
            container=known.container,
            job_id=rank.job_id,
            rank=rank.rank,
            local_rank=rank.local_rank,
            world_size=rank.world_size,
            libraries=watch.libraries,
            threads=watch.threads,
            environment=known.environment,
            data_filesystem=data,
        )

    def _shm_of(self, watch: Watch, now: float) -> _Shm | None:
        """Read the /dev/shm of a mount namespace once for all the processes in it."""
        namespace = watch.identity.mount_namespace or str(watch.pid)
        read_at, found = self._shm.get(namespace, (None, None))
        if read_at is None or now - read_at >= _SHM_AGAIN_S:
            if len(self._shm) > 256:
                self._shm.clear()
            found = shm_bytes(self._proc, watch.pid)
            self._shm[namespace] = (now, found)
        return found
