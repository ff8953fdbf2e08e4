"""What a control group allows its processes, and which container, pod or job its path names."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon import text
from gpumon.sources.host.procfs import exists, number_after, rate, read

_CONTAINER = re.compile(r"(?:^|[/\-:])([0-9a-f]{64})(?=$|[./])")
_NAMED = re.compile(r"(?:lxc\.payload[./]|lxc/|machine-|systemd-nspawn@)([^/]{1,64}?)(?:\.(?:scope|service))?(?:/|$)")
_POD = re.compile(r"(?:/|-)pod([0-9a-f]{8}[-_][0-9a-f_\-]{27})(?=$|[./])")
_SLURM_JOB = re.compile(r"/slurm(?:stepd\.scope|[^/]*)?/(?:uid_\d+/)?job_(\d{1,12})(?=/|$)")
_LEVELS_MAX = 12
_LOOK_AGAIN_S = 60.0
"""A limit is rarely moved to another level."""
_COUNT_AGAIN_S = 5.0
# v1 writes "no limit" as the largest page-aligned number.
_V1_UNLIMITED_BYTES = 1 << 60


class Place(NamedTuple):
    """The control group of a process, one path per hierarchy that matters here."""

    unified: str | None
    cpu: str | None
    """Only where the version 1 controller is mounted."""
    memory: str | None


class Limits(NamedTuple):
    """What a control group and those above it allow, and how much of it is used up."""

    cpu_quota_cores: float | None = None
    cpu_throttled_pct: float | None = None
    memory_limit_bytes: int | None = None
    memory_charged_bytes: int | None = None
    oom_kills: int | None = None
    """Cumulative, in the group whose limit binds."""


def parse_place(data: bytes | None) -> Place | None:
    """Parse /proc/PID/cgroup; None where it cannot be read."""
    if not data:
        return None
    paths: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(",") if number != "0" else ("unified",):
            paths[controller] = path
    return Place(paths.get("unified"), paths.get("cpu"), paths.get("memory"))


def _paths(place: Place) -> tuple[str, ...]:
    return tuple(path for path in place if path)


def container_id(place: Place) -> str | None:
    """Return the short id (or the name, for LXC and nspawn) of the container a path belongs to."""
    for path in _paths(place):
        # The innermost one: docker in docker shows both.
        if ids := _CONTAINER.findall(path):
            return str(ids[-1])[:12]
    for path in _paths(place):
        if named := _NAMED.search(path):
            return text.clean(named.group(1))
    return None


def pod_uid(place: Place) -> str | None:
    """Return the uid of the Kubernetes pod a path belongs to."""
    for path in _paths(place):
        if pod := _POD.search(path):
            return pod.group(1).replace("_", "-")
    return None


def slurm_job(place: Place) -> str | None:
    """Return the Slurm job a path belongs to; known for everybody's processes, unlike the environment."""
    for path in _paths(place):
        if job := _SLURM_JOB.search(path):
            return job.group(1)
    return None


def _levels(root: str, path: str) -> list[str]:
    """Directories from the group up to the mount point; empty where the path is not below our own root."""
    if "/.." in path or not exists(root):
        return []
    parts = [part for part in path.split("/") if part]
    return ["/".join([root, *parts[:depth]]) for depth in range(len(parts), -1, -1)][:_LEVELS_MAX]


def _number(path: str) -> int | None:
    words = (read(path) or b"").split(None, 1)
    return int(words[0]) if words and words[0].removeprefix(b"-").isdigit() else None


class _Group:
    """One control group: the levels that bind it, and the counters of the last reading."""

    def __init__(self, root: str, place: Place) -> None:
        self._root = root
        self._place = place
        self._looked_at: float | None = None
        self._counted_at: float | None = None
        self._cpu_level: str | None = None
        self._quota_cores: float | None = None
        self._memory_level: str | None = None
        self._memory_limit_bytes: int | None = None
        self._periods: tuple[int, int] | None = None
        self.limits = Limits()

    def read(self, now: float) -> Limits:
        """Return limits and use, read anew when they are old enough."""
        if self._counted_at is not None and now - self._counted_at < _COUNT_AGAIN_S:
            return self.limits
        if self._looked_at is None or now - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at = now
            self._find_cpu_level()
            self._find_memory_level()
        self._counted_at = now
        self.limits = Limits(
            cpu_quota_cores=self._quota_cores,
            cpu_throttled_pct=self._throttled_pct(),
            memory_limit_bytes=self._memory_limit_bytes,
            memory_charged_bytes=self._charged_bytes(),
            oom_kills=self._oom_kills(),
        )
        return self.limits

    def _unified_root(self) -> str:
        hybrid = f"{self._root}/unified"
        return hybrid if exists(hybrid) else self._root

    def _find_cpu_level(self) -> None:
        tightest: tuple[float, str] | None = None
        if self._place.cpu is None:
            for level in _levels(self._unified_root(), self._place.unified or "/.."):
                words = (read(f"{level}/cpu.max") or b"").split()
                if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
                    found = (int(words[0]) / int(words[1]), level)
                    tightest = found if tightest is None else min(tightest, found)
        else:
            for level in _levels(self._v1_root("cpu"), self._place.cpu):
                quota, period = _number(f"{level}/cpu.cfs_quota_us"), _number(f"{level}/cpu.cfs_period_us")
                if quota is not None and period and quota > 0:
                    found = (quota / period, level)
                    tightest = found if tightest is None else min(tightest, found)
        quota_cores, level_found = tightest or (None, None)
        if level_found != self._cpu_level:
            self._periods = None
        self._quota_cores, self._cpu_level = quota_cores, level_found

    def _v1_root(self, controller: str) -> str:
        both = f"{self._root}/cpu,cpuacct"
        return both if controller == "cpu" and exists(both) else f"{self._root}/{controller}"

    def _find_memory_level(self) -> None:
        if self._place.memory is None:
            levels, name = _levels(self._unified_root(), self._place.unified or "/.."), "memory.max"
        else:
            levels, name = _levels(self._v1_root("memory"), self._place.memory), "memory.limit_in_bytes"
        found = [(limit, level) for level in levels if (limit := _number(f"{level}/{name}")) is not None]
        limit, level = min((pair for pair in found if pair[0] < _V1_UNLIMITED_BYTES), default=(None, None))
        self._memory_limit_bytes, self._memory_level = limit, level

    def _throttled_pct(self) -> float | None:
        if self._cpu_level is None:
            return None
        data = read(f"{self._cpu_level}/cpu.stat") or b""
        periods, throttled = number_after(data, b"nr_periods "), number_after(data, b"nr_throttled ")
        before, self._periods = self._periods, None
        if periods is None or throttled is None:
            return None
        self._periods = (periods, throttled)
        if before is None or periods < before[0]:
            return None
        share = rate(throttled, before[1], periods - before[0])
        # A group that slept had no period to be throttled in.
        return 0.0 if periods == before[0] else None if share is None else min(100.0, 100 * share)

    def _oom_kills(self) -> int | None:
        if self._memory_level is None:
            return None
        name = "memory.events" if self._place.memory is None else "memory.oom_control"
        return number_after(b"\n" + (read(f"{self._memory_level}/{name}") or b""), b"\noom_kill ")

    def _charged_bytes(self) -> int | None:
        """Memory that cannot be dropped: without the page cache, which would make every loader look full."""
        if self._memory_level is None:
            return None
        data = b"\n" + (read(f"{self._memory_level}/memory.stat") or b"")
        prefix, anonymous = (b"total_", b"rss") if self._place.memory is not None else (b"", b"anon")
        anonymous_bytes = number_after(data, b"\n" + prefix + anonymous + b" ")
        shared_bytes = number_after(data, b"\n" + prefix + b"shmem ")
        return None if anonymous_bytes is None else anonymous_bytes + (shared_bytes or 0)


class CgroupReader:
    """Limits per control group, read once for all the processes in it."""

    def __init__(self, sys: str) -> None:
        self._root = f"{sys}/fs/cgroup"
        self._groups: dict[Place, _Group] = {}

    def read(self, place: Place | None, now: float) -> Limits:
        """Return what holds for a process of this group; empty where the group cannot be found."""
        if place is None:
            return Limits()
        group = self._groups.get(place)
        if group is None:
            group = self._groups[place] = _Group(self._root, place)
        return group.read(now)

    def forget(self, alive: set[Place]) -> None:
        """Drop the groups no process is in any more."""
        for place in self._groups.keys() - alive:
            del self._groups[place]
