"""Knows ``nvidia-smi -q -x``: XML of any version, several documents in a row, cut off or damaged.

It is split into tags without an XML parser: the tool escapes nothing in the names of processes, so its own output
is not always well-formed, and a pasted document lacks lines. Declarations are passed over: no entity is ever defined.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from typing import ClassVar

from gpumon.logs.reading import Reading
from gpumon.logs.smi_dump import Card, Counted, Dump
from gpumon.logs.smi_fields import TOLD_APART
from gpumon.logs.values import bus_id

_TAG = re.compile(r"<(/?)([A-Za-z_][A-Za-z0-9_.-]{0,80})((?:\s[^<>]{0,400})?)>")
_MARKUP = re.compile(r"<[?!][^<>]{0,400}>?")
_ID = re.compile(r"""\bid\s?=\s?["']([^"']{1,40})["']""")
_BEGINNING = re.compile(r"<(?:!DOCTYPE\s{1,4})?nvidia_smi_log\b|<gpu\s{1,4}id\s?=")
_ROOT, _GPU, _INSTANCE, _PROCESSES = "nvidia_smi_log", "gpu", "mig_device", "processes"
_NEVER_WITHIN = {_GPU: _GPU, _INSTANCE: _INSTANCE}
_DEPTH_MAX = 24
_TEXT_MAX = 4096
_BARE_MAX = 3
"""Lines of text in one element; more are something else."""


class NvidiaSmiXml:
    """Reader of ``nvidia-smi -q -x``."""

    kind: ClassVar[str] = "nvidia-smi-xml"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._counted: dict[str, Counted] = {}
        self._begin()

    def _begin(self) -> None:
        self._dump = Dump()
        self._card: Card | None = None
        self._instance: Card | None = None
        self._open: list[str] = []
        self._text: str | None = None
        """Of the element that was opened last; None once anything was closed after it."""
        self._bare = 0

    def starts(self, line: str) -> bool:
        """The document type, the root or a GPU."""
        return "<" in line and _BEGINNING.search(line) is not None

    def take(self, line: str) -> bool:
        """Read a line of a document. Between documents only declarations are taken."""
        if "<" not in line:
            return self._take_bare(line)
        rest = _MARKUP.sub("", line) if "<?" in line or "<!" in line else line
        is_mine, at = rest != line, 0
        for tag in _TAG.finditer(rest):
            is_end, name = bool(tag.group(1)), tag.group(2)
            if not self._open and (is_end or name not in {_ROOT, _GPU}):
                break
            is_mine = True
            self._add(rest[at : tag.start()])
            at = tag.end()
            if is_end:
                self._close(name)
            else:
                self._open_tag(name, tag.group(3))
        self._add(rest[at:])
        return is_mine

    def end(self) -> None:
        """Give the document so far."""
        dump = self._dump
        if self._open:
            self._leave_out("the document ends early")
        self._begin()
        if not dump.is_empty():
            self._give(dump.reading(self._counted))

    def _take_bare(self, line: str) -> bool:
        """A line without a tag: a value that was wrapped, or the end of a declaration."""
        text = line.strip()
        if not text or (not self._open and text in {"]", "]>"}):
            return True
        self._bare += 1
        if self._text is None or self._bare > _BARE_MAX:
            return False
        self._add(f" {text}")
        return True

    def _add(self, text: str) -> None:
        if self._text is not None and len(self._text) < _TEXT_MAX:
            self._text += text[:_TEXT_MAX]

    def _open_tag(self, name: str, attributes: str) -> None:
        if name == _ROOT:
            self.end()
        if name in _NEVER_WITHIN and name in self._open:
            self._close(name)
        if len(self._open) < _DEPTH_MAX:
            self._open.append(name)
        self._text, self._bare = "", 0
        if name == _GPU and attributes:
            named = _ID.search(attributes)
            self._card = self._dump.new_card(bus_id(named.group(1)) if named else None)
            self._instance = None
        elif name == _INSTANCE and self._card is not None:
            self._instance = self._card.new_instance()

    def _close(self, name: str) -> None:
        """Leave an element, and those in it whose ends were lost."""
        if name not in self._open:
            self._text = None
            return
        text = self._text
        if text is not None and self._open[-1] == name:
            self._take_leaf(name, html.unescape(text).strip())
        self._text = None
        while self._open.pop() != name:
            pass
        if _INSTANCE not in self._open:
            self._instance = None
        if name == _PROCESSES and self._card is not None:
            self._card.lists_processes = text is None or text.strip().lower() in {"", "none"}
        elif name == _ROOT:
            self._open.clear()
            self.end()

    def _take_leaf(self, name: str, text: str) -> None:
        section = self._open[-2] if len(self._open) > 1 else ""
        if section == _ROOT:
            self._dump.put(name, text)
        elif self._card is not None and name not in {_GPU, _PROCESSES}:
            if section in TOLD_APART and len(self._open) > 2:
                section = f"{self._open[-3]}/{section}"
            (self._instance or self._card).put(section, name, text)
