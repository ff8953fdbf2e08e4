"""Turns the bytes of any log into clean lines of text: encodings, caps, terminal colours, quoting."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator

from gpumon.opened import CHUNK_BYTES, Opened
from gpumon.text import clean

LINE_MAX = 64 * 1024
"""Characters of a line that are read; the rest of it is dropped and named."""
_PLAIN = bytes(range(0x20, 0x7F)) + b"\t\n\r"
_ESCAPE = re.compile(
    "\x1b(?:\\[[0-?]{0,32}[ -/]{0,8}[@-~]|\\][^\x07\x1b]{0,512}(?:\x07|\x1b\\\\)?"
    "|[PX^_][^\x1b]{0,512}(?:\x1b\\\\)?|[ -/]{0,4}[0-~])"
    "|\x9b[0-?]{0,32}[ -/]{0,8}[@-~]"
)
_NOTHING = {0: None, 0xFEFF: None}
"""NULs of sparse files and marks of byte order, which appending leaves in the middle."""
_OVERSTRUCK = re.compile("[^\x08]\x08")
_QUOTED = re.compile(r"[ \t]{0,8}(?:>[ \t]?){1,8}")
_FENCE = re.compile(r"[ \t]{0,8}(?:```|~~~)[A-Za-z0-9_+-]{0,20}[ \t]{0,8}$")


def lines(opened: Opened, leave_out: Callable[[int, str], None]) -> Iterator[tuple[int, str]]:
    """Yield line numbers and clean lines, without their ends; what a carriage return overwrote is a line of its own."""
    decoder = codecs.getincrementaldecoder(_encoding(opened.beginning) or "utf-8")("replace")
    may_be_plain = _encoding(opened.beginning) is None
    number, tail, is_overlong = 0, "", False
    while True:
        try:
            chunk = opened.file.read(CHUNK_BYTES)
        except OSError as error:
            leave_out(number, f"the rest cannot be read: {error.strerror or error}")
            chunk = b""
        is_plain = may_be_plain and not decoder.getstate()[0] and not chunk.translate(None, _PLAIN)
        text = chunk.decode("ascii") if is_plain else decoder.decode(chunk, not chunk)
        parts = (tail + text).split("\n")
        tail = parts.pop()
        if not chunk:
            parts, tail = [*parts, tail] if tail else parts, ""
        for part in parts:
            number += 1
            if is_overlong:  # its beginning has been given
                is_overlong = False
                continue
            part = part.removesuffix("\r")  # noqa: PLW2901 - the same line
            if len(part) > LINE_MAX:
                leave_out(number, f"longer than {LINE_MAX >> 10} KiB; its end is not read")
            yield from _pieces(number, part[:LINE_MAX])
        if len(tail) > LINE_MAX:
            if not is_overlong:
                leave_out(number + 1, f"longer than {LINE_MAX >> 10} KiB; its end is not read")
                yield from _pieces(number + 1, tail[:LINE_MAX])
            tail, is_overlong = "", True
        if not chunk:
            break
    why = opened.why_cut()
    if why is not None:
        leave_out(number, f"{why}; the rest is not read")


def _pieces(number: int, line: str) -> Iterator[tuple[int, str]]:
    if line.isascii() and line.isprintable():
        yield number, line if line[:1] not in _SUSPECTS else _unquoted(line)
        return
    for piece in line.split("\r"):
        text = _ESCAPE.sub("", piece)
        if "\x08" in text:
            text = _OVERSTRUCK.sub("", text)
        text = "\t".join(clean(part, LINE_MAX) for part in text.translate(_NOTHING).split("\t"))
        if text or not piece:
            yield number, _unquoted(text)


_SUSPECTS = frozenset(" \t>`~")


def _unquoted(line: str) -> str:
    """The line without the marks of a quotation or a code block around it."""
    if ">" in line[:16]:
        quote = _QUOTED.match(line)
        if quote is not None:
            line = line[quote.end() :]
    return "" if _FENCE.match(line) else line


def _encoding(beginning: bytes) -> str | None:
    """The encoding of a file that begins like this; None for UTF-8, of which most is plain ASCII."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = beginning[:512]
    if len(head) >= 4 and head[1::2].count(0) > len(head) // 4:
        return "utf-16-le"
    if len(head) >= 4 and head[::2].count(0) > len(head) // 4:
        return "utf-16-be"
    return None
