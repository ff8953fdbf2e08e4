"""Knows what the kernel writes about GPUs and killed processes, and that it may be read without ever waiting."""

from __future__ import annotations

import errno
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gpumon import text

_LINES_MAX = 4096
"""One broken job can write thousands of lines before anyone drains them."""
_RECORD_BYTES = 8192
_WANTED = (b"NVRM", b"Killed process", b"segfault at")

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)(?:, pid='?(\d+))?")
_NAMED_GPU = re.compile(
    r"(?:The NVIDIA GPU|GPU at(?: PCI:)?|NVRM: GPU|PCI:)\s*([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
)
_KILLED = re.compile(r"[Oo]ut of memory.*?Killed process (\d+) \((.*?)\)")
_SEGFAULT = re.compile(r"^(\S+?)\[(\d+)\]: segfault at .*")
_BUS = re.compile(r"(?:([0-9a-fA-F]+):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.\d)?")


class Line(NamedTuple):
    """One line worth knowing."""

    kind: str
    """As in ``Event``: xid, gpu-lost, oom-kill, segfault."""
    time_s: float
    """Epoch, by the clock of today."""
    text: str
    bus: tuple[int, int, int] | None = None
    xid: int | None = None
    pid: int | None = None


def bus_of(address: str | None) -> tuple[int, int, int] | None:
    """Domain, bus and device of a PCI address, in however many digits."""
    found = _BUS.search(address or "")
    return None if found is None else (int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16))


class Parser:
    """Turns records of /dev/kmsg into lines; remembers which GPU a message of several records is about."""

    def __init__(self, boot_s: float) -> None:
        """``boot_s``: the epoch at which the kernel's clock was 0."""
        self._boot_s = boot_s
        self._named: tuple[int, int, int] | None = None

    def read(self, record: bytes) -> Iterator[Line]:
        """What one record says."""
        if not any(wanted in record for wanted in _WANTED):
            return
        head, _, body = record.partition(b";")
        fields = head.split(b",")
        if len(fields) < 3 or not fields[2].isdigit():
            return
        time_s = self._boot_s + int(fields[2]) / 1e6
        # Continuation lines (SUBSYSTEM=, DEVICE=) follow after a line break; breaks of the message are escaped.
        message = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), body.split(b"\n", 1)[0])
        for part in message.decode("utf-8", "replace").split("\n"):
            line = self._line(part, time_s)
            if line is not None:
                yield line

    def _line(self, message: str, time_s: float) -> Line | None:
        shown = text.clean(message.strip())
        xid = _XID.search(message)
        if xid is not None:
            pid = None if xid[3] is None else int(xid[3])
            return Line("xid", time_s, shown, bus_of(xid[1]), int(xid[2]), pid)
        named = _NAMED_GPU.search(message)
        if named is not None:
            self._named = bus_of(named[1] or named[2])
        if "fallen off the bus" in message:
            return Line("gpu-lost", time_s, shown, self._named)
        killed = _KILLED.search(message)
        if killed is not None:
            return Line("oom-kill", time_s, shown, pid=int(killed[1]))
        fault = _SEGFAULT.search(message)
        if fault is not None:
            return Line("segfault", time_s, shown, pid=int(fault[2]))
        return None


class KernelLog:
    """Follows the kernel's messages on a daemon thread, from the oldest that the kernel still has.

    Where they may not be read (containers, ``dmesg_restrict``) there are none.
    """

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self._lines: deque[Line] = deque(maxlen=_LINES_MAX)
        self._is_closed = False
        self._wake: int | None = None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        ended, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        threading.Thread(target=self._run, args=(ended,), name="kernel log", daemon=True).start()

    def drain(self) -> list[Line]:
        """Lines since the last call, oldest first."""
        drained: list[Line] = []
        while self._lines:
            drained.append(self._lines.popleft())
        return drained

    def close(self) -> None:
        """End, without waiting."""
        wake, self._wake = self._wake, None
        self._is_closed = True
        if wake is not None:
            os.close(wake)

    def _run(self, ended: int) -> None:
        parser = Parser(time.time() - time.monotonic())
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        poll.register(ended, select.POLLHUP)
        try:
            while not self._is_closed and self._read(parser):
                poll.poll()
        finally:
            os.close(self._fd)
            os.close(ended)

    def _read(self, parser: Parser) -> bool:
        """Take in all that is there; False where nothing more can come."""
        while not self._is_closed:
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    continue  # overwritten before it was read, or longer than we care for
                return False
            if not record:
                return False
            self._lines.extend(parser.read(record))
        return False
