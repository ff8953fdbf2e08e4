"""The terminal before Textual has it: silent, with the first picture on it, and given back whatever ends that."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any

from gpumon.ui import tty
from gpumon.ui.palette import Palette
from gpumon.ui.row import Row

ENTER = "\x1b[?1049h"
_HIDE_CURSOR = "\x1b[?25l"
_LEAVE = b"\x1b[?1049l\x1b[?25h"


class Opening:
    """Holds the terminal from the first question to it until Textual takes it over."""

    def __init__(self) -> None:
        """Nothing is touched before it is entered, and in the background nothing at all."""
        self.is_holding = False
        self.has_picture = False
        """The alternate screen is on, and full."""
        self.typed = b""
        """Keys that came meanwhile."""
        self.must_stop = False
        """So did Ctrl-Z; Textual knows how to stop and to come back."""
        self._modes: list[Any] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Opening:  # noqa: PYI034 - Self is not in Python 3.10
        """Keys neither show nor wait for Enter, and signals leave the terminal as it was found."""
        if not tty.is_in_foreground():
            return self
        answers = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), self._end)
        for number, answer in (*answers.items(), (signal.SIGTSTP, self._stop_later)):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, answer)
        self._modes = termios.tcgetattr(0)
        silent = termios.tcgetattr(0)
        silent[3] &= ~(termios.ECHO | termios.ICANON)
        self.is_holding = True
        termios.tcsetattr(0, termios.TCSANOW, silent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _give_back(self) -> None:
        """What has not been handed over."""
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone
            if self.has_picture and tty.has_room(tty.OUTPUT):
                os.write(tty.OUTPUT, _LEAVE)
            if self.is_holding:
                termios.tcsetattr(0, termios.TCSANOW, self._modes)

    def show(self, rows: Sequence[Row], palette: Palette) -> None:
        """Put the first picture on the alternate screen, unless the terminal takes no bytes."""
        if self.is_holding and tty.has_room(tty.OUTPUT):
            lines = [f"\x1b[{y};1H{palette.text(row)}" for y, row in enumerate(rows, 1)]
            self.has_picture = True
            os.write(tty.OUTPUT, "".join([ENTER, _HIDE_CURSOR, *lines]).encode("utf-8", "replace"))

    def hand_over(self) -> list[Any]:
        """From now on Textual looks after the terminal; its modes as they were found, for the end."""
        self.is_holding = self.has_picture = False
        return self._modes

    def _stop_later(self, _number: int, _frame: FrameType | None) -> None:
        self.must_stop = True

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        """At once: an exception could be taken for one of what is being imported."""
        self._give_back()
        os._exit(0)
