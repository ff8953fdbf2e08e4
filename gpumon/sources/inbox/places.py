"""Where probes publish: which directories may be believed, and which names in them are of processes that live."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

from gpumon.probe._gpumon_probe import layout

MOST_FILES = 256
"""In one directory; the processes that started last come first."""
_NAME = re.compile(r"([1-9]\d{0,9})\.(\d{1,19})", re.ASCII)
_RACY_S = 0.1
"""A directory's time of change is that coarse: what comes right after a listing may not move it."""
_CROWD = 4 * MOST_FILES
_CROWDED_S = 10.0
"""A directory with more names than processes is not looked through every second."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """A name that a probe may have written."""

    name: str
    pid: int
    """In the writer's own /proc."""
    started_ticks: int
    inode: int


class Place:
    """One directory of one user, looked at anew only when something came or went in it."""

    def __init__(self, path: str, uid: int, root: str | None = None, namespace: str = "") -> None:
        """``root`` is that of a process in another mount namespace: ``/proc/PID/root``."""
        self.path = path
        self.uid = uid
        self.root = root
        self.where = f"{namespace}{path}"
        """Its name, whichever process of the namespace it is reached by."""
        self._seen: tuple[int, int] | None = None
        self._listed_at = 0.0
        self._is_crowded = False

    def has_changed(self, now: float) -> bool:
        """Tell whether names came or went since the last listing; costs one look at the directory."""
        try:
            facts = os.lstat(self.path if self.root is None else f"{self.root}{self.path}")
        except OSError:
            gone, self._seen = self._seen is not None, None
            return gone
        seen = (facts.st_ino, facts.st_mtime_ns)
        if seen == self._seen or (self._is_crowded and now - self._listed_at < _CROWDED_S):
            return False
        self._listed_at = now
        self._seen = seen if time.time() - facts.st_mtime > _RACY_S else (0, 0)
        return True

    @contextlib.contextmanager
    def opened(self) -> Iterator[int | None]:
        """The directory's descriptor; None where it is not there or not to be believed."""
        fd = self._open()
        if fd is None or not _is_trusted(fd, self.uid):
            if fd is not None:
                os.close(fd)
            yield None
            return
        try:
            yield fd
        finally:
            os.close(fd)

    def is_mine(self) -> bool:
        """Tell whether it is one's own, to be kept tidy."""
        return self.root is None and self.uid == os.geteuid()

    def entries(self, fd: int, pids: Callable[[], Container[int]]) -> list[Entry]:
        """The names in an open directory, youngest process first, so many at most.

        Args:
            fd: The directory.
            pids: Tells which processes exist; asked only where there are too many names.
        """
        found = []
        with os.scandir(fd) as entries:
            for entry in entries:
                match = _NAME.fullmatch(entry.name)
                if match is not None:
                    found.append(Entry(entry.name, int(match[1]), int(match[2]), entry.inode()))
        self._is_crowded = len(found) > _CROWD
        if len(found) > MOST_FILES:
            alive = pids()
            found = [entry for entry in found if entry.pid in alive]
        found.sort(key=lambda entry: -entry.started_ticks)
        return found[:MOST_FILES]

    def _open(self) -> int | None:
        try:
            if self.root is None:
                return os.open(self.path, _DIRECTORY)
            return _open_beneath(self.root, self.path)
        except OSError:
            return None


def own_places(environment: Mapping[str, str], uid: int) -> list[Place]:
    """Where processes of this user in this mount namespace publish."""
    return [Place(path, uid) for path in layout.directories(environment, uid) if path.startswith("/")]


def _open_beneath(root: str, path: str) -> int:
    """Open a directory of another root. No link is followed: an absolute one would lead into ours."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in path.strip("/").split("/"):
            if part in {"", ".", ".."}:
                raise FileNotFoundError(path)
            deeper = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = deeper
    except OSError:
        os.close(fd)
        raise
    return fd


def _is_trusted(fd: int, uid: int) -> bool:
    """A directory of this user that no other may look into or write to."""
    facts = os.fstat(fd)
    return facts.st_uid == uid and not facts.st_mode & 0o077
