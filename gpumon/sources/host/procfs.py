"""How Linux writes a process down under /proc, and that any of it may vanish or be refused mid-read."""

# Paths are plain strings and descriptors plain numbers: pathlib would double what a read costs.
# ruff: noqa: PTH110, PTH115, PTH208

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STAT_BYTES = 1024
_CHUNK_BYTES = 1 << 16


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that gpumon uses."""

    comm: bytes
    state: str
    """Of the main thread."""
    ppid: int
    session_id: int
    cpu_ticks: int
    """User and system time of all threads, dead ones included."""
    started_ticks: int
    """Since boot. A pid and its start make an identity that is never given out twice."""
    rss_bytes: int


class Status(NamedTuple):
    """The fields of /proc/PID/status that gpumon uses."""

    uid: int
    """The real one: /proc/PID itself belongs to root where a process may not be dumped."""
    cpus_allowed: int | None


class Io(NamedTuple):
    """/proc/PID/io: what reached the storage, and what was asked for (cache hits included)."""

    read_bytes: int
    write_bytes: int
    rchar_bytes: int


class Sched(NamedTuple):
    """/proc/PID/schedstat: the main thread's time on a processor and its time waiting for one."""

    run_ns: int
    delay_ns: int


def read(path: str, limit: int = _CHUNK_BYTES) -> bytes | None:
    """Read a file of /proc or /sys up to ``limit`` bytes; None where it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, min(limit, _CHUNK_BYTES))
        # Only files of many records come in pieces, of about a page: a short first piece is the whole.
        if len(data) < 2048 and limit <= _CHUNK_BYTES:
            return data
        pieces = [data]
        left = limit - len(data)
        while left > 0 and (piece := os.read(fd, min(left, _CHUNK_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(fd)


class ProcFile:
    """A small file of /proc that is read again and again, on a kept descriptor if that can be afforded.

    A descriptor halves the cost, and one on a process that died never answers for another of the same pid.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def read(self, *, keeps: bool, size: int = _STAT_BYTES) -> bytes | None:
        """Read the content now; None where it is gone or not ours to read."""
        fd = self._fd
        try:
            if fd < 0:
                fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
                if keeps:
                    self._fd = fd
            return os.pread(fd, size, 0)
        except OSError:
            return None
        finally:
            if fd >= 0 and fd != self._fd:
                os.close(fd)

    def close(self) -> None:
        """Give the descriptor back; a later read opens it anew."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def parse_stat(data: bytes | None) -> Stat | None:
    """Parse /proc/PID/stat; None where it is empty or torn."""
    if not data:
        return None
    # The name may contain anything, `) R 1` included: the last bracket ends it.
    begin, end = data.find(b"("), data.rfind(b")")
    fields = data[end + 2 :].split(None, 22)
    if begin < 0 or len(fields) < 22:
        return None
    try:
        return Stat(
            comm=data[begin + 1 : end],
            state=fields[0].decode("ascii", "replace"),
            ppid=int(fields[1]),
            session_id=int(fields[3]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            started_ticks=int(fields[19]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )
    except ValueError:
        # Not the kernel's own /proc (sandboxes write one that looks alike).
        return None


def number_after(data: bytes, key: bytes) -> int | None:
    """Return the whole number that follows ``key`` in a file of `key value` lines."""
    at = data.find(key)
    if at < 0:
        return None
    words = data[at + len(key) : at + len(key) + 40].split(None, 1)
    return int(words[0]) if words and words[0].isdigit() else None


def parse_status(data: bytes | None) -> Status | None:
    """Parse /proc/PID/status; None where it cannot be read."""
    uid = number_after(data, b"\nUid:") if data else None
    if data is None or uid is None:
        return None
    at = data.find(b"\nCpus_allowed_list:")
    listed = data[at + 19 : data.find(b"\n", at + 1)] if at >= 0 else b""
    return Status(uid, count_listed(listed.decode("ascii", "replace")))


def parse_io(data: bytes | None) -> Io | None:
    """Parse /proc/PID/io; None where it cannot be read."""
    if not data:
        return None
    # `rchar` begins the file, so `read_bytes` and `write_bytes` are looked for with their line break.
    rchar = number_after(data, b"rchar:")
    read_bytes, write_bytes = number_after(data, b"\nread_bytes:"), number_after(data, b"\nwrite_bytes:")
    if rchar is None or read_bytes is None or write_bytes is None:
        return None
    return Io(read_bytes, write_bytes, rchar)


def parse_sched(data: bytes | None) -> Sched | None:
    """Parse /proc/PID/schedstat; None where it cannot be read or the kernel does not count."""
    words = data.split() if data else []
    if len(words) < 3 or words[2] == b"0" or not (words[0].isdigit() and words[1].isdigit()):
        return None
    return Sched(int(words[0]), int(words[1]))


def count_listed(listed: str) -> int | None:
    """Count the members of a kernel list such as ``0-3,8``."""
    try:
        ends = [part.split("-") for part in listed.strip().split(",") if part]
        return sum(int(end[-1]) - int(end[0]) + 1 for end in ends) or None
    except ValueError:
        return None


def pids_in(data: bytes | None) -> list[int]:
    """Parse a list of pids (`children`); what is not a number is left out."""
    return [int(word) for word in data.split() if word.isdigit()] if data else []


def list_names(path: str) -> list[str]:
    """List the entries of a directory; empty where it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def list_numbers(path: str) -> list[int]:
    """List the entries of a directory that are numbers: pids, tids, descriptors."""
    return [int(name) for name in list_names(path) if name.isdigit()]


def read_link(path: str) -> str | None:
    """Return where a symbolic link of /proc points, without touching the target; None where it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def exists(path: str) -> bool:
    """Tell whether a path of /proc is there at all, readable or not."""
    return os.path.exists(path)


def shm_bytes(proc: str, pid: int | str) -> tuple[int, int] | None:
    """Return total and used bytes of the /dev/shm that a process sees, which is its container's own."""
    try:
        space = os.statvfs(f"{proc}/{pid}/root/dev/shm")
    except OSError:
        return None
    return space.f_blocks * space.f_frsize, (space.f_blocks - space.f_bfree) * space.f_frsize


def rate(new: float | None, old: float | None, seconds: float) -> float | None:
    """Return the growth per second of a counter; None without two readings or when it went backwards."""
    if new is None or old is None or seconds <= 0 or new < old:
        return None
    return (new - old) / seconds
