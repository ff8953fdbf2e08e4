"""The probe's file: where it may lie, how it is made safely, and when it is removed.

It is written with ``pwrite`` and never mapped: on a full tmpfs, or where somebody cuts the file, a mapping ends the
process with SIGBUS, and a write with an error.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time

from . import layout

NAME = re.compile(r"^(\d{1,10})\.(\d{1,20})$")
KEPT_S = 600.0
"""How long the file of a process that is gone stays for a monitor that was not looking."""
MOST_SWEPT = 512
DESCRIPTOR_FROM = 200


def start_ticks(pid: int | str = "self") -> int | None:
    """When this process began, in clock ticks since boot: with the pid it names a process for ever."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def safe_directory() -> str | None:
    """The first place that is this user's alone; made where it is missing."""
    uid = os.geteuid()
    for path in layout.directories(os.environ, uid):
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            if error.errno != errno.EEXIST:
                continue
        if is_safe(path, uid):
            return path
    return None


def is_safe(path: str, uid: int) -> bool:
    """Whether ``path`` is a directory that only ``uid`` can use."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077
    return is_private and os.access(path, os.W_OK | os.X_OK)


def sweep(directory: str) -> None:
    """Remove the files of processes that are gone for long."""
    try:
        names = os.listdir(directory)[:MOST_SWEPT]
    except OSError:
        return
    for name in names:
        match = NAME.match(name)
        if match is None or str(start_ticks(match[1])) == match[2]:
            continue
        path = os.path.join(directory, name)
        try:
            if time.time() - os.lstat(path).st_mtime > KEPT_S:
                os.unlink(path)
        except OSError:
            continue


class Ring:
    """This process's own file, open."""

    def __init__(self, path: str, descriptor: int) -> None:
        """Use ``create``."""
        self.path = path
        self.descriptor = descriptor
        self.identity = _identity(descriptor)

    @classmethod
    def create(cls, pid: int | None = None) -> Ring | None:
        """A new file with all its room taken; None where there is no place or no room for it.

        ``pid`` is that of another process, where somebody outside of it tells of it: then none may be there yet.
        """
        directory, ticks = safe_directory(), start_ticks("self" if pid is None else pid)
        if directory is None or ticks is None:
            return None
        sweep(directory)
        path = os.path.join(directory, f"{os.getpid() if pid is None else pid}.{ticks}")
        try:
            if pid is None:
                os.unlink(path)  # of this very process, before it called exec
        except OSError:
            pass
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            descriptor = _out_of_the_way(descriptor)
            os.fchmod(descriptor, 0o600)
            os.posix_fallocate(descriptor, 0, layout.FILE_SIZE)
            return cls(path, descriptor)
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            return None

    def write_header(self, body: bytes) -> None:
        """Replace the header."""
        self._check()
        os.pwrite(self.descriptor, layout.encode_header(body), 0)

    def write_slot(self, seq: int, raw: bytes) -> None:
        """Put one report into its slot."""
        self._check()
        os.pwrite(self.descriptor, raw, layout.HEADER_SIZE + seq % layout.SLOTS * layout.SLOT_SIZE)

    def _check(self) -> None:
        """A program that closed every descriptor may have opened a file of its own under our number."""
        if _identity(self.descriptor) != self.identity:
            raise OSError(errno.EBADF, "the descriptor is another file's")

    def is_there(self) -> bool:
        """Whether the name still leads to this whole file: at logout /run/user/UID goes away under a job that stays."""
        try:
            return _identity(self.path) == self.identity and os.stat(self.path).st_size == layout.FILE_SIZE
        except OSError:
            return False

    def remove(self) -> None:
        """Close it and take the name away: nothing more will be written there."""
        try:
            if _identity(self.path) == self.identity:
                os.unlink(self.path)
        except OSError:
            pass
        self.close()

    def close(self) -> None:
        """Close it, if it is still ours."""
        try:
            self._check()
            os.close(self.descriptor)
        except OSError:
            pass


def _identity(file: int | str) -> tuple[int, int]:
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _out_of_the_way(descriptor: int) -> int:
    """A high number: the low ones are those that programs close, and expect to get."""
    for least in (DESCRIPTOR_FROM, 3):
        try:
            higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
        except OSError:
            continue
        os.close(descriptor)
        return higher
    return descriptor
