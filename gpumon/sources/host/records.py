"""How watched processes become process records: what each owns, and what it shares with its container or job."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gpumon.model import Event, Process
from gpumon.sources import GpuUse
from gpumon.sources.host.cgroup import CgroupReader, Limits, Place
from gpumon.sources.host.identity import Rank
from gpumon.sources.host.proc import Watch
from gpumon.sources.host.procfs import TICKS_PER_S, number_after, read, shm_bytes

_SHM_AGAIN_S = 5.0
_NAMESPACES_MAX = 256
_ANCESTORS_MAX = 16

_Shm = tuple[int, int]
_Key = tuple[float, int, GpuUse | None, Rank | None, str | None]


def boot_time_s(proc: str) -> int | None:
    """Return when the system started (epoch): the zero of every process's start time."""
    return number_after(read(f"{proc}/stat", 1 << 20) or b"", b"\nbtime ")


def started_s(boot_s: int | None, started_ticks: int) -> float | None:
    """Return when a process started (epoch); the same number at every reading, for it is half of an identity."""
    return None if boot_s is None else round(boot_s + started_ticks / TICKS_PER_S, 2)


def holder_of(watch: Watch, watches: Mapping[int, Watch]) -> int | None:
    """Return the nearest ancestor that holds a GPU."""
    for _ in range(_ANCESTORS_MAX):
        parent = watches.get(watch.stat.ppid)
        if parent is None:
            return None
        if parent.is_holder:
            return parent.pid
        watch = parent
    return None


class Records:
    """Builds records, and keeps each while nothing of its process changes: most are the same for seconds."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._boot_s = boot_time_s(proc)
        self._cgroups = CgroupReader(sys)
        self._shm: dict[str, tuple[float, _Shm | None]] = {}
        self._built: dict[int, tuple[_Key, Process]] = {}
        self._kills: dict[Place, int] = {}
        self._events: list[Event] = []

    def build(
        self, holders: Mapping[int, GpuUse], watches: Mapping[int, Watch], gone: Collection[int], now: float
    ) -> Iterator[Process]:
        """Yield every holder, followed by its descendants; of one that cannot be looked up what the driver says."""
        helpers: dict[int | None, list[Watch]] = {}
        started_ranks: dict[int, Rank] = {}
        for watch in watches.values():
            if not watch.is_holder:
                helpers.setdefault(holder_of(watch, watches), []).append(watch)
            elif (watch.identity.rank.local_rank or 0) > 0:
                started_ranks.setdefault(watch.stat.ppid, watch.identity.rank)
        for pid in sorted(holders):
            holder, use = watches.get(pid), holders[pid]
            if holder is not None:
                own = sorted(helpers.get(pid, ()), key=lambda watch: watch.pid)
                rank = _rank_of(holder, started_ranks.get(pid))
                seen = (helper.data_filesystem for helper in own if helper.data_filesystem is not None)
                yield self._record(holder, use, now, rank=rank, data=holder.data_filesystem or next(seen, None))
                for helper in own:
                    yield self._record(helper, None, now, rank=None, data=helper.data_filesystem)
            elif pid not in gone:
                yield Process(pid=pid, gpu_memory_bytes=use.memory_bytes, gpu_sm_pct=use.sm_pct)
        if len(self._built) > len(watches):
            for pid in self._built.keys() - watches.keys():
                del self._built[pid]
            self._cgroups.forget({place for watch in watches.values() if (place := watch.identity.place) is not None})

    def _record(self, watch: Watch, use: GpuUse | None, now: float, *, rank: Rank | None, data: str | None) -> Process:
        key = (watch.at, watch.version, use, rank, data)
        built = self._built.get(watch.pid)
        if built is not None and built[0] == key:
            return built[1]
        limits = self._cgroups.read(watch.identity.place, now)
        self._note_kills(watch, limits)
        shm = self._shm_of(watch, now) if watch.is_holder else None
        process = self._new_record(watch, use, limits, shm=shm, rank=rank or Rank(), data=data)
        self._built[watch.pid] = (key, process)
        return process

    def _new_record(
        self, watch: Watch, use: GpuUse | None, limits: Limits, *, shm: _Shm | None, rank: Rank, data: str | None
    ) -> Process:
        known, stat = watch.identity, watch.stat
        return Process(
            pid=watch.pid,
            ppid=stat.ppid,
            session_id=stat.session_id,
            started_s=started_s(self._boot_s, stat.started_ticks),
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
            memory_pss_bytes=watch.pss_bytes,
            memory_private_bytes=watch.private_bytes,
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

    def drain_events(self) -> tuple[Event, ...]:
        """Processes that the kernel killed in the control groups of jobs, since the last call."""
        events, self._events = tuple(self._events), []
        return events

    def _note_kills(self, watch: Watch, limits: Limits) -> None:
        place, kills = watch.identity.place, limits.oom_kills
        if place is None or kills is None:
            return
        before, self._kills[place] = self._kills.get(place, kills), kills
        if kills > before:
            values = {"count": float(kills - before), "beside_pid": float(watch.pid)}
            self._events.append(Event(kind="oom-kill", text="killed by the job's memory limit", values=values))

    def _shm_of(self, watch: Watch, now: float) -> _Shm | None:
        """Read the /dev/shm of a mount namespace once for all the processes in it."""
        namespace = watch.identity.mount_namespace or str(watch.pid)
        read_at, found = self._shm.get(namespace, (None, None))
        if read_at is None or now - read_at >= _SHM_AGAIN_S:
            if len(self._shm) > _NAMESPACES_MAX:
                self._shm.clear()
            found = shm_bytes(self._proc, watch.pid)
            self._shm[namespace] = (now, found)
        return found


def _rank_of(holder: Watch, started: Rank | None) -> Rank:
    """Call a trainer that started ranks 1, 2, … itself rank 0: Lightning writes that in no environment."""
    found = holder.identity.rank
    if found.rank is not None or started is None:
        return found
    return Rank(0, 0, started.world_size, found.job_id or started.job_id)
