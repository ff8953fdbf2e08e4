"""Who descends from the GPU processes, found from them downwards: what else runs on the host costs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from gpumon.sources.host.procfs import ProcFile, exists, list_numbers, parse_stat, pids_in, read

_THREADS_AT_ONCE = 48
"""Other threads than the main one seldom fork, and a trainer has hundreds: they are asked in turn."""


class Tree:
    """Reads /proc/PID/task/TID/children, or every new process's parent where the kernel has no such file."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._mains: dict[int, ProcFile] = {}
        self._seen: dict[int, bytes | None] = {}
        self._next_thread: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self.is_listed = True
        """The kernel lists children (CONFIG_PROC_CHILDREN)."""

    def forked(self, pid: int, *, keeps: bool) -> bool:
        """Tell whether the children of the main thread changed since the last call; costs one read."""
        main = self._mains.get(pid)
        if main is None:
            main = self._mains[pid] = ProcFile(f"{self._proc}/{pid}/task/{pid}/children")
        listed = main.read(keeps=keeps, size=4096)
        before = self._seen.get(pid, b"")
        self._seen[pid] = listed
        return listed is not None and listed != before

    def children(self, pid: int, *, all_threads: bool) -> Iterator[int]:
        """Yield the children of a process: of its main thread, and of all or the next few of its other threads."""
        task = f"{self._proc}/{pid}/task"
        listed = read(f"{task}/{pid}/children")
        if listed is None:
            if self.is_listed and exists(f"{task}/{pid}/stat") and not exists(f"{task}/{pid}/children"):
                self.is_listed = False
            return
        yield from pids_in(listed)
        others = [tid for tid in list_numbers(task) if tid != pid]
        if len(others) > _THREADS_AT_ONCE and not all_threads:
            start = self._next_thread.get(pid, 0) % len(others)
            self._next_thread[pid] = start + _THREADS_AT_ONCE
            others = list(itertools.islice(itertools.cycle(others), start, start + _THREADS_AT_ONCE))
        for tid in others:
            yield from pids_in(read(f"{task}/{tid}/children"))

    def scan(self, roots: Iterable[int]) -> list[int]:
        """Find all descendants by listing every process and asking the new ones for their parent (the fallback)."""
        pids = set(list_numbers(self._proc))
        for pid in self._parents.keys() - pids:
            del self._parents[pid]
        for pid in pids - self._parents.keys():
            stat = parse_stat(read(f"{self._proc}/{pid}/stat"))
            if stat is not None:
                self._parents[pid] = stat.ppid
        children: dict[int, list[int]] = {}
        for pid, ppid in self._parents.items():
            children.setdefault(ppid, []).append(pid)
        starts = set(roots)
        found: dict[int, None] = {}
        queue = list(starts)
        while queue:
            for child in children.get(queue.pop(), ()):
                if child not in found and child not in starts:
                    found[child] = None
                    queue.append(child)
        return list(found)

    def forget(self, pid: int) -> None:
        """Drop what is kept about a process that is watched no longer."""
        main = self._mains.pop(pid, None)
        if main is not None:
            main.close()
        self._seen.pop(pid, None)
        self._next_thread.pop(pid, None)
