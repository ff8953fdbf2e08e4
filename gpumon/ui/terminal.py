"""How bytes reach the terminal and keys come from it without ever waiting; knows when the terminal is gone.

Differs from Textual's driver in what the traps of real terminals need: input sleeps in ``poll`` (no ten
wake-ups a second), end of input ends the program instead of spinning, a terminal that takes no bytes
blocks nothing, and a second SIGCONT does not start a second input thread. Private names of Textual used
here: ``_debug``, ``_loop``, ``_key_thread``, ``_must_signal_resume``, ``_xterm_parser``;
Textual is pinned and tests/ui/test_terminal.py opens, types, resizes, suspends and quits under a pty.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import threading
import time
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING

from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.message import Message
from textual.messages import TerminalSupportsSynchronizedOutput

from gpumon.ui import tty
from gpumon.ui.opening import ENTER
from gpumon.ui.painter import SYNC_END, SYNC_START

if TYPE_CHECKING:
    from gpumon.ui.stage import Stage

SMALL_WRITE = 256
"""A pty with any room at all has room for this much: what may be sent to a descriptor that can block."""
PENDING_MAX = 1 << 18
"""Beyond this much unsent, pictures are dropped: a full repaint follows when bytes flow again."""
PICTURE_CHARACTERS = 1000
"""What is shorter (a bell, a few cells) is sent as often as it is written."""
RESIZE_QUIET_S = 0.05
"""A window that is being dragged has many sizes; the one at which it rests is drawn."""
LAST_WORDS_S = 0.1
"""How long leaving the screen may wait for a terminal that takes no bytes."""

_LATE_ANSWER = re.compile(r"\x1b\]11;[^\x07\x1b]*(?:\x07|\x1b\\)")
_LATE_ANSWER_BEGUN = re.compile(r"\x1b\](?:1(?:1(?:;[^\x07\x1b]*\x1b?)?)?)?$")


class Terminal(LinuxDriver):
    """The driver; gives itself to the app as ``app.terminal``."""

    def __init__(
        self, app: Stage, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        """Open a descriptor of our own on the terminal, so that making it non-blocking bothers nobody."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._screen = app
        self.has_sync = False
        self.is_gone = False
        self._out, self._write_max = _open_own(tty.OUTPUT)
        self._is_own = self._out != tty.OUTPUT
        """Writing to it does not block, and tells whether there was room."""
        self._wake_read, self._wake_write = os.pipe()
        self._pending = bytearray()
        self._lock = threading.RLock()
        self._is_draining = False
        self._is_leaving = False
        self._has_left = False
        """Nothing is written any more: whatever Textual says now it says to the shell."""
        self.owes_redraw = False
        """What is on the terminal is not what was sent or asked for: every cell again, as soon as bytes flow."""
        self._opening = app.opening
        self._newest = ENTER if self._opening.has_picture else ""
        """What was written last: Textual sends all cells of a screen twice when it opens."""
        self._resize_timer: asyncio.TimerHandle | None = None
        self._typed = self._opening.typed
        app.terminal = self

    @property
    def is_stalled(self) -> bool:
        """Bytes wait because the terminal takes none, or its size is changing: draw nothing until asked to."""
        return bool(self._pending) or self.is_gone or self._resize_timer is not None

    # --- output ---

    def write(self, data: str) -> None:
        """Send now what the terminal takes; the rest follows when it can."""
        if self.is_gone or self._has_left or data == self._newest:
            return
        with self._lock:
            if len(self._pending) > PENDING_MAX and not self._is_leaving:
                self.owes_redraw = True
                return
            if data not in (SYNC_START, SYNC_END):
                self._newest = data if len(data) >= PICTURE_CHARACTERS else ""
            self._pending += data.encode("utf-8", "replace")
            self._send()
            must_wait = bool(self._pending) and not self._is_draining
            self._is_draining |= must_wait
        if must_wait:
            self._loop.call_soon_threadsafe(self._watch_output)

    def _send(self) -> None:
        while self._pending:
            try:
                if not self._is_own and not tty.has_room(self._out):
                    return
                sent = os.write(self._out, self._pending[: self._write_max])
            except BlockingIOError:
                return
            except OSError:
                self._lose()
                return
            del self._pending[:sent]

    def _watch_output(self) -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._loop.add_writer(self._out, self._drain)

    def _drain(self) -> None:
        with self._lock:
            self._send()
            if self._pending and not self.is_gone:
                return
            self._is_draining = False
            self._loop.remove_writer(self._out)
        if self.is_gone or self._is_leaving:
            return
        # A full repaint is more than a pty holds: asking for one after each stall would never end.
        if self.owes_redraw:
            self.owes_redraw = False
            self._screen.redraw()
        else:
            self._screen.draw()

    def _lose(self) -> None:
        """The terminal is closed: nothing can be shown or asked any more."""
        if not self.is_gone:
            self.is_gone = True
            self._pending.clear()
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._screen.exit)

    # --- start and stop ---

    def _get_terminal_size(self) -> tuple[int, int]:
        """Ask the terminal: COLUMNS and LINES of the shell are not updated by a resize."""
        return tty.size()

    def start_application_mode(self) -> None:
        """Take the terminal; after SIGSTOP (not SIGTSTP) it was never given back, so do that first."""
        if self._key_thread is not None and self._key_thread.is_alive():
            self.stop_application_mode()
            self.close()
            self._must_signal_resume = True
        self._is_leaving = self._has_left = False
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._key_thread is not None and self._key_thread.is_alive():  # else the terminal could not be taken
            signal.signal(signal.SIGWINCH, lambda *_: self._loop.call_soon_threadsafe(self._await_rest))
            if self._opening.is_holding:
                self.attrs_before = self._opening.hand_over()
                if self._opening.must_stop:
                    signal.raise_signal(signal.SIGTSTP)

    def _await_rest(self) -> None:
        """The window's size is changing: say so once it has been the same for a moment."""
        if self._resize_timer is not None:
            self._resize_timer.cancel()
        self._resize_timer = self._loop.call_later(RESIZE_QUIET_S, self._take_size)

    def _take_size(self) -> None:
        self._resize_timer = None
        if self._is_leaving or self.is_gone:
            return
        size = Size(*self._get_terminal_size())
        self.owes_redraw &= bool(self._pending)  # every cell is sent now in any case
        if size != self._screen.size:
            self._screen.post_message(events.Resize(size, size))
        else:  # there and back: what the terminal made of the cells on the way is not what was sent
            self._screen.redraw()

    def forget(self) -> None:
        """What was sent may not be on the terminal any more: send it again when it is written again."""
        self._newest = ""

    def disable_input(self) -> None:
        """Wake the input thread so that it ends now, and wait for it."""
        os.write(self._wake_write, b"x")
        super().disable_input()
        while select.select([self._wake_read], [], [], 0)[0]:
            os.read(self._wake_read, 64)

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was; a terminal that takes no bytes is not waited for."""
        self._is_leaving = True
        super().stop_application_mode()
        until = time.monotonic() + LAST_WORDS_S
        while self._pending and not self.is_gone and time.monotonic() < until:
            time.sleep(0.01)
            with self._lock:
                self._send()
        self._pending.clear()
        self._has_left = True

    # --- input ---

    def run_input_thread(self) -> None:
        """Turn bytes into events; sleeps until there are any, ends with the terminal."""
        poller = select.poll()
        poller.register(self.fileno, select.POLLIN)
        poller.register(self._wake_read, select.POLLIN)
        parser = XTermParser(self._debug)
        decoder = getincrementaldecoder("utf-8")("replace")
        held = ""
        data: bytes | None = self._typed
        self._typed = b""
        while True:
            if data:
                # Typed before the terminal was ours, Enter came through as a newline.
                text, held = _without_late_answer(held + decoder.decode(data).replace("\n", "\r"))
                for event in parser.feed(text) if text else ():  # feeding nothing means end of file to it
                    self.process_message(event)
            # One more round after each read: a lone Escape is one only when nothing follows it.
            ready = poller.poll(None if data is None else constants.ESCAPE_DELAY * 1000 + 10)
            for event in parser.tick():
                self.process_message(event)
            data = None
            for fd, _ in ready:
                if fd == self._wake_read:
                    return
                data = self._read()
                if not data:
                    self._lose()
                    return

    def _read(self) -> bytes:
        """What was typed; nothing at the terminal's end (EIO after a hang-up, EOF before it)."""
        try:
            return os.read(self.fileno, 4096)
        except OSError:
            return b""

    def process_message(self, message: Message) -> None:
        """Note what the terminal says it can do on the way; sizes wait until they rest."""
        if isinstance(message, TerminalSupportsSynchronizedOutput):
            self.has_sync = True
        if isinstance(message, events.Resize):
            self._loop.call_soon_threadsafe(self._await_rest)
            return
        super().process_message(message)


def _without_late_answer(text: str) -> tuple[str, str]:
    """Drop answers to OSC 11 that came after 100 ms, which would be taken for keys; hold one that has only begun."""
    if "\x1b]" not in text:
        return text, ""
    text = _LATE_ANSWER.sub("", text)
    begun = _LATE_ANSWER_BEGUN.search(text)
    return (text, "") if begun is None else (text[: begun.start()], text[begun.start() :])


def _open_own(fd: int) -> tuple[int, int]:
    """A non-blocking descriptor of our own on the same terminal and how much to write at once.

    O_NONBLOCK belongs to the open file, which the shell shares: setting it on the given one would break
    programs that run later. A terminal of another user (su, sudo -u) cannot be opened: small pieces then.
    """
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC), 1 << 16
    except OSError:
        return fd, SMALL_WRITE


def add_signal_handlers(loop: asyncio.AbstractEventLoop, app: Stage) -> None:
    """End properly on SIGTERM, SIGINT and SIGHUP; an ignored SIGHUP (nohup) stays ignored."""
    loop.add_signal_handler(signal.SIGTERM, app.exit)
    loop.add_signal_handler(signal.SIGINT, app.exit)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, app.exit)
