"""What the terminal is and can do, found out before Textual is imported: colours, glyphs, light or dark."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpumon.errors import NotATerminal
from gpumon.ui.glyphs import Tier

Depth = Literal[256, 16, 0]

OUTPUT = 2
"""Where the screen is written, as Textual does."""

ANSWER_S = 0.1
"""How long the terminal may take to name its background."""

_MANY_COLORS = ("256color", "direct", "kitty", "alacritty", "ghostty", "wezterm", "foot", "contour", "rio")
_CURSOR = re.compile(rb"\x1b\[\d+;(\d+)R")
_BACKGROUND = re.compile(rb"\x1b\]11;rgba?:([0-9a-fA-F]+)/([0-9a-fA-F]+)/([0-9a-fA-F]+)[^\x07\x1b]*(?:\x07|\x1b\\)")


def require_terminal(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse with one line where a screen cannot be drawn, read or left; NotATerminal."""
    for stream, name in ((sys.__stdout__, "stdout"), (sys.__stderr__, "stderr"), (sys.__stdin__, "stdin")):
        if stream is None or stream.closed or not stream.isatty():
            raise NotATerminal(f"{name} is not a terminal; use  gpumon once  or  gpumon once --json")
    if environment.get("TERM") == "dumb":
        raise NotATerminal("TERM=dumb cannot show a screen; use  gpumon once  or  gpumon once --json")


def size() -> tuple[int, int]:
    """Columns and rows, by the terminal: COLUMNS and LINES of the shell are not updated by a resize."""
    try:
        width, height = os.get_terminal_size(OUTPUT)
    except OSError:
        return 80, 24
    return width or 80, height or 24


def has_room(fd: int) -> bool:
    """The terminal takes bytes at the moment."""
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    ready = poller.poll(0)
    return bool(ready) and bool(ready[0][1] & select.POLLOUT)


def is_in_foreground() -> bool:
    """A background job would be stopped by touching the terminal."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def depth(environment: Mapping[str, str] = os.environ, *, no_color: bool = False) -> Depth:
    """How many colours to send; never 24 bits: they cost three times the bytes."""
    if no_color or environment.get("NO_COLOR"):
        return 0
    term = environment.get("TERM", "")
    if any(word in term for word in _MANY_COLORS) or environment.get("COLORTERM") in ("truecolor", "24bit"):
        return 256
    return 16


def tier(environment: Mapping[str, str] | None = None, *, is_ascii: bool = False) -> Tier:
    """Which characters the terminal can be expected to show."""
    environment = users_environment() if environment is None else environment
    if is_ascii or not _is_utf8(environment):
        return "ascii"
    return "half" if environment.get("TERM") == "linux" else "blocks"


def _is_utf8(environment: Mapping[str, str]) -> bool:
    """The user's locale is UTF-8. Where no locale is set at all (most containers) the terminal still is."""
    stream = sys.__stderr__
    if stream is not None and "utf" not in (stream.encoding or "").lower():
        return False
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        value = environment.get(name)
        if value:
            return "utf8" in value.lower().replace("-", "")
    return True


def users_environment() -> dict[str, str]:
    """The environment as the user gave it: Python itself sets LC_CTYPE=C.UTF-8 under LANG=C (PEP 538)."""
    environment = dict(os.environ)
    if environment.get("LC_CTYPE") == "C.UTF-8":
        try:
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return environment
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
            del environment["LC_CTYPE"]
    return environment


def is_light(answer: tuple[float, float, float] | None, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the background is light: by the terminal's own answer, else COLORFGBG, else it is dark."""
    if answer is not None:
        red, green, blue = answer
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.5
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return background.isdigit() and int(background) in (7, *range(9, 16))


def parse_background(reply: bytes) -> tuple[float, float, float] | None:
    """The colour in an answer to OSC 11, each part 0 to 1; None where there is none."""
    match = _BACKGROUND.search(reply)
    if match is None:
        return None
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in match.groups())
    return red, green, blue


def without_background(reply: bytes) -> bytes:
    """What else was in the reply: keys that the user typed meanwhile."""
    return _BACKGROUND.sub(b"", reply)


def may_be_wide(environment: Mapping[str, str] | None = None) -> bool:
    """In these locales a terminal may draw `·` and `▇` two cells wide: worth asking it."""
    environment = users_environment() if environment is None else environment
    locale = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    return locale.startswith(("zh", "ja", "ko"))


class Interview:
    """Asks a terminal that is silent and takes the answers in ``listen``; what needs no answer goes on in between."""

    def __init__(self, *, asks_background: bool, asks_width: bool) -> None:
        """Ask: OSC 11, and how far the cursor moves over a character of ambiguous width."""
        self._questions = b"\x1b]11;?\x1b\\" if asks_background else b""
        if asks_width:
            self._questions += "\r·\x1b[6n\r\x1b[K".encode()
        self.background: tuple[float, float, float] | None = None
        """Red, green, blue from 0 to 1; None where the terminal did not say in time."""
        self.is_wide = False
        """Characters of ambiguous width take two cells here."""
        self.typed = b""
        """Keys that came in with the answers."""
        if self._questions:
            os.write(OUTPUT, self._questions)
        self._until = time.monotonic() + ANSWER_S

    def listen(self) -> None:
        """Take the answers; waits for what is left of the 100 ms."""
        reply = b""
        while not self._is_answered(reply):
            wait_s = max(0.0, self._until - time.monotonic())
            if not select.select([0], [], [], wait_s)[0]:
                break
            part = os.read(0, 4096)
            if not part:
                break
            reply += part
        self.background = parse_background(reply)
        column = _CURSOR.search(reply)
        self.is_wide = column is not None and int(column[1]) > 2  # it began at 1
        self.typed = _CURSOR.sub(b"", without_background(reply))

    def _is_answered(self, reply: bytes) -> bool:
        has_color = b"]11;" not in self._questions or parse_background(reply) is not None
        return has_color and (b"[6n" not in self._questions or _CURSOR.search(reply) is not None)
