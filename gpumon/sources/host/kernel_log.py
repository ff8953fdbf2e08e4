"""Knows that the kernel's messages may be read without ever waiting, and which of them matter at once."""

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

from gpumon.kernel_lines import Bus, Messages

_LINES_MAX = 4096
"""One broken job can write thousands of lines before anyone drains them."""
_RECORD_BYTES = 8192
_WANTED = (b"NVRM", b"Killed process", b"segfault at")
_KINDS = ("xid", "gpu-lost", "oom-kill", "segfault")
"""Of what the kernel says; NVML tells the rest better while it happens."""

_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


class Line(NamedTuple):
    """One line worth knowing."""

    kind: str
    """As in ``Event``: xid, gpu-lost, oom-kill, segfault."""
    time_s: float
    """Epoch, by the clock of today."""
    text: str
    bus: Bus | None = None
    xid: int | None = None
    pid: int | None = None


class Parser:
    """Turns records of /dev/kmsg into lines."""

    def __init__(self, boot_s: float) -> None:
        """``boot_s``: the epoch at which the kernel's clock was 0."""
        self._boot_s = boot_s
        self._messages = Messages()

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
            said = self._messages.read(part)
            if said is not None and said.kind in _KINDS:
                yield Line(said.kind, time_s, said.text, said.bus, said.xid, said.pid)


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
