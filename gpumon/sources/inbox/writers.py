"""Which process a probe's file is of, seen from here: a pid in a container is another one outside."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.probe._gpumon_probe import layout
from gpumon.sources.host.proc import read_stat
from gpumon.sources.host.procfs import list_numbers, parse_status, pids_in, read, read_link
from gpumon.sources.inbox.places import Entry, Place
from gpumon.sources.inbox.ring import Body
from gpumon.text import clean

_GONE = frozenset("ZX")
_ENVIRON_BYTES = 1 << 18
_NAMES = ("GPUMON_RUNTIME_DIR", "XDG_RUNTIME_DIR")
_MOST_PLACES = 64


class _Holder(NamedTuple):
    """What is known of a process on a GPU, read once."""

    started_ticks: int
    uid: int
    inner_pid: int
    """In its own pid namespace."""
    mount_namespace: str | None
    environment: Mapping[str, str]


class Writers:
    """Finds processes by the name of their file; only those on a GPU are looked for in other namespaces."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._boot = clean(read(f"{proc}/sys/kernel/random/boot_id") or b"").strip("· \n")
        self._mount_namespace = read_link(f"{proc}/self/ns/mnt")
        self._holders: dict[int, _Holder] = {}

    def pids(self) -> frozenset[int]:
        """Every process that there is."""
        return frozenset(list_numbers(self._proc))

    def is_alive(self, pid: int, started_ticks: int) -> bool:
        """Tell whether that process runs; a zombie does not, and another of its number is not it."""
        stat = read_stat(self._proc, pid)
        return stat is not None and stat.started_ticks == started_ticks and stat.state not in _GONE

    def find(self, entry: Entry, uid: int) -> int | None:
        """The pid here of the process that calls itself so, if it runs and is this user's."""
        if self.is_alive(entry.pid, entry.started_ticks) and self._uid(entry.pid) == uid:
            return entry.pid
        for pid, holder in self._holders.items():
            if (holder.inner_pid, holder.started_ticks, holder.uid) == (entry.pid, entry.started_ticks, uid):
                return pid if self.is_alive(pid, entry.started_ticks) else None
        return None

    def contradiction(self, body: Body, entry: Entry, *, is_far: bool) -> str | None:
        """What speaks against a header being that of this process; None where nothing does."""
        if body.pid not in (None, entry.pid) or body.start not in (None, entry.started_ticks):
            return "names another process"
        # Some containers are shown a boot id of their own.
        if body.boot is not None and self._boot and body.boot.strip() != self._boot and not is_far:
            return "of another boot"
        return None

    def meet(self, holders: Iterable[int]) -> bool:
        """Learn what there is to learn of new processes on a GPU; tell whether any came or went."""
        before = self._holders
        self._holders = {pid: known for pid in holders if (known := before.get(pid) or self._learn(pid)) is not None}
        return self._holders != before

    def places(self, kept: Iterable[Place]) -> list[Place]:
        """Where processes on a GPU publish, as far as it is not one's own; those in ``kept`` stay the same."""
        known = {(place.where, place.root): place for place in kept}
        found: dict[str, Place] = {}
        for pid, holder in self._holders.items():
            is_far = holder.mount_namespace != self._mount_namespace
            root = f"{self._proc}/{pid}/root" if is_far else None
            for path in layout.directories(holder.environment, holder.uid):
                place = Place(path, holder.uid, root, namespace=(holder.mount_namespace or "") if is_far else "")
                before = found.get(place.where)
                if before is None or (place.where, place.root) in known:
                    found[place.where] = known.get((place.where, place.root), place)
        return list(found.values())[:_MOST_PLACES]

    def _learn(self, pid: int) -> _Holder | None:
        stat, status = read_stat(self._proc, pid), read(f"{self._proc}/{pid}/status")
        parsed = parse_status(status)
        if stat is None or status is None or parsed is None or pid == os.getpid():
            return None
        at = status.find(b"\nNSpid:")
        inner = pids_in(status[at + 7 : status.find(b"\n", at + 1)]) if at >= 0 else []
        return _Holder(
            stat.started_ticks,
            parsed.uid,
            inner[-1] if inner else pid,
            read_link(f"{self._proc}/{pid}/ns/mnt"),
            _runtime_names(read(f"{self._proc}/{pid}/environ", _ENVIRON_BYTES)),
        )

    def _uid(self, pid: int) -> int | None:
        status = parse_status(read(f"{self._proc}/{pid}/status"))
        return None if status is None else status.uid


def _runtime_names(environ: bytes | None) -> Mapping[str, str]:
    """The two names that say where it publishes; nothing else of an environment is kept."""
    found: dict[str, str] = {}
    for entry in (environ or b"").split(b"\0"):
        name, equals, value = entry.partition(b"=")
        known = name.decode("ascii", "replace")
        path = os.fsdecode(value)
        if equals and known in _NAMES and path.startswith("/") and len(path) < 4096:
            found[known] = path
    return found
