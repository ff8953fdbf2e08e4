"""A pseudo-terminal with a program in it: start, type, resize, signal, and read the screen as text."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte

ROOT = Path(__file__).parent.parent
WAIT_S = 20.0
"""Upper bound of every wait; the machine that runs the tests may be slow."""
DRAIN_S = 2.0
"""How much longer than asked for reading goes on while there is always more."""


class _Screen(pyte.Screen):
    """pyte's screen without the sequences that it takes for others."""

    def report_device_status(self, *_: Any, **__: Any) -> None:
        """Nobody reads the answer."""

    def set_margins(self, *args: Any, **kwargs: Any) -> None:
        """`CSI ? … r` is not DECSTBM."""
        kwargs.pop("private", None)
        super().set_margins(*args, **kwargs)


class PtyProgram:
    """A program under a pty, whose output is drained only while a method of this class waits."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        width: int = 80,
        height: int = 24,
        environment: Mapping[str, str] | None = None,
        background: bytes | None = None,
        cursor: bytes | None = None,
        ignore_hangup: bool = False,
        redirect: Mapping[str, int] | None = None,
    ) -> None:
        """Start it as session leader on the pty.

        Args:
            command: program and arguments.
            width: columns at the start.
            height: rows at the start.
            environment: replaces the one that it would get (PATH, HOME, TERM, LANG, PYTHONPATH).
            background: the terminal's answer to OSC 11; None stays silent.
            cursor: its answer to a question for the cursor's position.
            ignore_hangup: start with SIGHUP ignored, as under nohup.
            redirect: streams that are not the terminal: ``{"stdout": fd}``.
        """
        self.output = b""
        """Every byte so far."""
        self._answers = {b"\x1b]11;?": background, b"\x1b[6n": cursor}
        self._screen = _Screen(width, height)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self.resize(width, height, notify=False)
        given = redirect or {}
        self.process = subprocess.Popen(
            command,
            stdin=given.get("stdin", slave),
            stdout=given.get("stdout", slave),
            stderr=given.get("stderr", slave),
            env=dict(default_environment() if environment is None else environment),
            cwd=ROOT,
            preexec_fn=_session(slave, ignore_hangup=ignore_hangup),
        )
        os.close(slave)

    def __enter__(self) -> PtyProgram:  # noqa: PYI034 - Self is not in Python 3.10
        """Use it in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing running."""
        self.close()

    def close(self) -> None:
        """Kill the program and its children if it still runs, close the pty."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as a window manager does."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    # --- to the program ---

    def type(self, keys: str | bytes) -> None:
        """Send keys as the terminal would."""
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, width: int, height: int, *, notify: bool = True) -> None:
        """Change the size of the window."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self._screen.resize(height, width)
        if notify:
            self.process.send_signal(signal.SIGWINCH)

    # --- from the program ---

    def read(self, seconds: float = 0.0) -> bytes:
        """Take what the program writes for so long (at least what is there already); returns the new bytes."""
        until = time.monotonic() + seconds
        taken = b""
        while True:
            wait_s = max(0.0, until - time.monotonic())
            if not select.select([self._master], [], [], wait_s)[0]:
                break
            try:
                part = os.read(self._master, 65536)
            except OSError:
                break
            if not part:
                break
            taken += part
            self._show(part)
            if time.monotonic() > until + DRAIN_S:
                break  # it never stops writing
        return taken

    def read_until_quiet(self, quiet_s: float = 0.3, seconds: float = WAIT_S) -> None:
        """Read until nothing has come for a while."""
        until = time.monotonic() + seconds
        while self.read(quiet_s):
            assert time.monotonic() < until, f"never quiet:\n{self.text}"

    def _show(self, part: bytes) -> None:
        self.output += part
        for question, answer in self._answers.items():
            if answer is not None and question in part:
                os.write(self._master, answer)
        self._stream.feed(part)

    @property
    def text(self) -> str:
        """The screen's lines, without what is blank at their ends."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    @property
    def rows(self) -> list[str]:
        """The screen's lines at full width."""
        return list(self._screen.display)

    def cells(self) -> list[list[tuple[Any, ...]]]:
        """Every cell: character, colours, bold, reverse."""
        screen = self._screen
        return [
            [
                (cell.data, cell.fg, cell.bg, cell.bold, cell.reverse)
                for cell in (screen.buffer[y][x] for x in range(screen.columns))
            ]
            for y in range(screen.lines)
        ]

    def wait_for(self, text: str, seconds: float = WAIT_S) -> str:
        """Read until the text is on the screen; returns the screen."""
        return self.wait_until(lambda screen: text in screen, f"no {text!r}", seconds)

    def wait_until(self, is_there: Callable[[str], bool], complaint: str, seconds: float = WAIT_S) -> str:
        """Read until the screen satisfies a condition; AssertionError with the screen otherwise."""
        until = time.monotonic() + seconds
        while not is_there(self.text):
            assert time.monotonic() < until, f"{complaint} within {seconds} s on:\n{self.text}"
            assert self.process.poll() is None or self.read(0.05), f"{complaint}, program ended:\n{self.text}"
            self.read(0.05)
        return self.text

    def wait_for_exit(self, seconds: float = WAIT_S, *, is_draining: bool = True) -> int:
        """The exit code; AssertionError if it takes longer."""
        until = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < until, f"still running after {seconds} s on:\n{self.text}"
            if is_draining and self._master >= 0:
                self.read(0.02)
            else:
                time.sleep(0.02)
        if is_draining and self._master >= 0:
            self.read(0.05)
        return self.process.returncode

    def cpu_s(self) -> float:
        """User and system time that the program has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def state(self) -> str:
        """The program's state letter: R S D T Z."""
        return Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]

    def local_flags(self) -> int:
        """The terminal's local modes (ECHO, ICANON …): what a program must leave as it found them."""
        return int(termios.tcgetattr(self._master)[3])


def _session(slave: int, *, ignore_hangup: bool) -> Callable[[], None]:
    def begin() -> None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)  # as a login shell finds them, however the tests were started
        if ignore_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    return begin


def default_environment(**more: str) -> dict[str, str]:
    """What a user's shell would give, without this test run's own settings."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME", "/"),
        "TERM": "xterm-256color",
        "LANG": "en_US.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    with contextlib.suppress(KeyError):
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return environment | more


def python(*arguments: str) -> list[str]:
    """A command that runs this interpreter."""
    return [sys.executable, *arguments]
