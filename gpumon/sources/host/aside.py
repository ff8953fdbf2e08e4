"""Knows what may block for long and is asked seldom: sizes of filesystems and shares of memory, on its own thread.

A dead file server holds whoever asks for its size, and a process whose memory map is locked holds whoever reads it.
So nobody waits: the newest answers are two attributes, and while a question hangs they stay as they were.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon import text
from gpumon.model import Volume
from gpumon.sources.host.filesystems import parse_mounts
from gpumon.sources.host.procfs import list_numbers, number_after, read, read_link

VOLUMES_S = 30.0
SHARES_S = 60.0
_PROCESSES_MAX = 64
_WRITERS_MAX = 8
_DESCRIPTORS_MAX = 512
_VOLUMES_MAX = 16
_UNREAL = frozenset(
    """proc sysfs devtmpfs devpts cgroup cgroup2 tmpfs ramfs squashfs iso9660 tracefs debugfs securityfs pstore
    bpf mqueue hugetlbfs fusectl configfs autofs nsfs binfmt_misc""".split()
)
"""Without room of their own to run out of; /dev/shm is looked at by itself."""
_NOT_FILES = re.compile(r"/(?:dev|proc|sys)(?:/|$)|/memfd:|.* \(deleted\)$")


class Share(NamedTuple):
    """A process's part of the memory, as /proc/PID/smaps_rollup counts it."""

    pss_bytes: int
    private_bytes: int


class Aside:
    """One daemon thread, started with the first question."""

    def __init__(self, proc: str) -> None:
        self.volumes: tuple[Volume, ...] = ()
        """Where the processes write, by mount point."""
        self.shares: dict[int, Share] = {}
        """Replaced as a whole."""
        self._proc = proc
        self._question: tuple[Sequence[int], Sequence[int]] | None = None
        self._asked = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._volumes_at: float | None = None
        self._shares_at: float | None = None

    def look(self, now: float, writers: Iterable[int], sharers: Iterable[int]) -> None:
        """Ask for what is due; returns at once.

        Args:
            now: monotonic seconds.
            writers: processes whose filesystems are wanted, most important first.
            sharers: processes whose share of memory is wanted; none for none.
        """
        if self._question is not None:
            return
        first, second = tuple(writers)[:_WRITERS_MAX], tuple(sharers)[:_PROCESSES_MAX]
        is_due = bool(first) and (self._volumes_at is None or now - self._volumes_at >= VOLUMES_S)
        is_share_due = bool(second) and (self._shares_at is None or now - self._shares_at >= SHARES_S)
        if not is_due and not is_share_due:
            return
        if is_due:
            self._volumes_at = now
        if is_share_due:
            self._shares_at = now
        self._question = (first if is_due else (), second if is_share_due else ())
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="aside", daemon=True)
            self._thread.start()
        self._asked.set()

    def close(self) -> None:
        """End, without waiting."""
        self._is_closed = True
        self._asked.set()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._is_closed:
                return
            writers, sharers = self._question or ((), ())
            if writers:
                self.volumes = volumes_of(self._proc, writers)
            if sharers:
                found = ((pid, share_of(self._proc, pid)) for pid in sharers)
                self.shares = {pid: share for pid, share in found if share is not None}
            self._question = None


def share_of(proc: str, pid: int) -> Share | None:
    """Walks all pages of a process."""
    data = read(f"{proc}/{pid}/smaps_rollup") or b""
    sizes = [number_after(data, b"\n" + name) for name in (b"Pss:", b"Private_Clean:", b"Private_Dirty:")]
    known = [size * 1024 for size in sizes if size is not None]
    return Share(known[0], known[1] + known[2]) if len(known) == 3 else None


def volumes_of(proc: str, pids: Iterable[int]) -> tuple[Volume, ...]:
    """The filesystems on which these processes work and have files open for writing."""
    found: dict[tuple[str, str], str] = {}
    kinds: dict[tuple[str, str], str] = {}
    for pid in pids:
        namespace = read_link(f"{proc}/{pid}/ns/mnt") or str(pid)
        mounts = parse_mounts(read(f"{proc}/{pid}/mounts", 1 << 20))
        for path in _written(proc, pid):
            place = _mount_of(path, mounts)
            if place is not None and mounts[place] not in _UNREAL:
                found.setdefault((namespace, place), f"{proc}/{pid}/root{place}")
                kinds[namespace, place] = mounts[place]
    volumes: dict[str, Volume] = {}
    for (namespace, place), path in list(found.items())[:_VOLUMES_MAX]:
        volume = _measured(path, place, kinds[namespace, place])
        if volume is not None:
            volumes.setdefault(volume.path, volume)
    return tuple(volumes.values())


def _measured(path: str, place: str, kind: str) -> Volume | None:
    import psutil

    try:
        usage = psutil.disk_usage(path)
        nodes = os.statvfs(path)
    except OSError:
        return None
    if not usage.total:
        return None
    # What root alone may still use is no use to a job; filesystems without a table of inodes have none to run out of.
    free_pct = round(100.0 * nodes.f_favail / nodes.f_files, 1) if nodes.f_files else None
    return Volume(
        path=text.clean(place),
        filesystem=text.clean(kind),
        total_bytes=usage.total,
        free_bytes=usage.free,
        free_inodes_pct=free_pct,
    )


def _written(proc: str, pid: int) -> Iterable[str]:
    """Its working directory, and each regular file it has open for writing."""
    directory = read_link(f"{proc}/{pid}/cwd")
    if directory is not None and directory.startswith("/"):
        yield f"{directory.rstrip('/')}/"
    for number in list_numbers(f"{proc}/{pid}/fd")[:_DESCRIPTORS_MAX]:
        path = read_link(f"{proc}/{pid}/fd/{number}")
        if path is None or not path.startswith("/") or _NOT_FILES.match(path):
            continue
        flags = number_after(read(f"{proc}/{pid}/fdinfo/{number}") or b"", b"flags:")
        if flags is not None and flags % 10 & 3:
            yield path


def _mount_of(path: str, mounts: dict[str, str]) -> str | None:
    at = path
    while at:
        at = at.rsplit("/", 1)[0]
        if (at or "/") in mounts:
            return at or "/"
    return None
