"""A program under a pseudo-terminal of 120×40 whose bytes are taken and counted, not drawn."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

import pyte

from tests.bench.cost.clock import cpu_s

COLUMNS, ROWS = 120, 40
WAIT_S = 180.0
_ANSWERS = {b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\", b"\x1b[6n": b"\x1b[1;1R"}
"""What xterm would say about its background and its cursor; without it some programs wait."""


class Screen:
    """The terminal and the program in it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, rows: int = ROWS) -> None:
        """Start it as the session leader of a new terminal."""
        self.rows = rows
        self.parts: list[tuple[float, bytes]] = []
        """What came since the last ``forget``, each part with its monotonic time."""
        self.bytes = 0
        """All that ever came."""
        self._master, slave = pty.openpty()
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, COLUMNS, 0, 0))
        self.began_s = time.monotonic()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> Screen:  # noqa: PYI034 - Self is not in Python 3.10
        """Use it in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing running."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)

    @property
    def pid(self) -> int:
        """The program's."""
        return self.process.pid

    def type(self, keys: bytes) -> None:
        """Send keys."""
        os.write(self._master, keys)

    def forget(self) -> None:
        """Keep nothing of what came so far."""
        self.parts = []

    def watch(self, seconds: float) -> None:
        """Take what comes for so long."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._take(left_s)

    def wait_for(self, pattern: bytes) -> tuple[float, float]:
        """Take what comes until it matches; wall and CPU seconds since the start, at that moment."""
        expression = re.compile(pattern)
        until = time.monotonic() + WAIT_S
        seen = b""
        while time.monotonic() < until:
            seen = seen[-4096:] + self._take(0.5)
            if expression.search(seen):
                return time.monotonic() - self.began_s, cpu_s(self.pid)
            if self.process.poll() is not None:
                break
        raise RuntimeError(f"{self.process.args!r} never showed {pattern!r}; it said {self.tail()!r}")

    def tail(self) -> bytes:
        """The end of what came."""
        return b"".join(part for _, part in self.parts)[-500:]

    def texts(self) -> list[tuple[float, list[str]]]:
        """The screen's lines after each part since the last ``forget``; begin with a full repaint."""
        screen = pyte.Screen(COLUMNS, self.rows)
        stream = pyte.ByteStream(screen)
        found = []
        for at_s, part in self.parts:
            stream.feed(part)
            found.append((at_s, list(screen.display)))
        return found

    def _take(self, seconds: float) -> bytes:
        if not select.select([self._master], [], [], seconds)[0]:
            return b""
        try:
            part = os.read(self._master, 1 << 16)
        except OSError:  # the program has ended
            time.sleep(min(seconds, 0.05))
            return b""
        for question, answer in _ANSWERS.items():
            if question in part:
                os.write(self._master, answer)
        self.parts.append((time.monotonic(), part))
        self.bytes += len(part)
        return part
