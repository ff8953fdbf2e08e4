"""What state a few main threads are in, four times a second: the share of time a process waits for its disk."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable

PERIOD_S = 0.25
PROCESSES_MAX = 16
_LETTERS_MAX = 64


class StateSampler:
    """Collects the state letters of the watched pids; its thread sleeps for good while none is watched.

    One thread samples, another watches and takes. The pids are a tuple swapped by one assignment and the
    letters are deques, so neither waits for the other.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._pids: tuple[int, ...] = ()
        self._letters: dict[int, deque[str]] = {}
        self._fds: dict[int, int] = {}
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, pids: Iterable[int]) -> None:
        """Sample these from now on, the first sixteen at most; starts the thread at the first pid."""
        watched = tuple(pids)[:PROCESSES_MAX]
        if watched == self._pids or self._closed.is_set():
            return
        for pid in self._letters.keys() - set(watched):
            del self._letters[pid]
        for pid in watched:
            self._letters.setdefault(pid, deque(maxlen=_LETTERS_MAX))
        self._pids = watched
        if watched and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gpumon-states", daemon=True)
            self._thread.start()
        self._wake.set()

    def take(self, pid: int) -> str:
        """Return the letters seen since the last call, oldest first."""
        letters = self._letters.get(pid)
        if not letters:
            return ""
        return "".join(letters.popleft() for _ in range(len(letters)))

    def sample(self) -> None:
        """Read the state of every watched main thread once."""
        watched = self._pids
        for pid in self._fds.keys() - set(watched):
            self._close(pid)
        for pid in watched:
            letter = self._state(pid)
            letters = self._letters.get(pid)
            if letter is not None and letters is not None:
                letters.append(letter)

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._closed.set()
        self._wake.set()
        if self._thread is None:
            self._close_all()

    def _run(self) -> None:
        while not self._closed.is_set():
            if not self._pids:
                self._wake.wait()
                self._wake.clear()
                continue
            self.sample()
            self._closed.wait(PERIOD_S)
        self._close_all()

    def _state(self, pid: int) -> str | None:
        try:
            fd = self._fds.get(pid)
            if fd is None:
                # The thread's own file: the process's would add up the times of all its threads.
                path = f"{self._proc}/{pid}/task/{pid}/stat"
                fd = self._fds[pid] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(fd, 128, 0)
        except OSError:
            self._close(pid)
            return None
        at = data.rfind(b") ") + 2
        return data[at : at + 1].decode("ascii", "replace") if at >= 2 else None

    def _close(self, pid: int) -> None:
        fd = self._fds.pop(pid, None)
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def _close_all(self) -> None:
        for pid in list(self._fds):
            self._close(pid)
