"""Reads the output of a training program for what PyTorch, CUDA, NCCL and the loaders report in it.

The lines lie anywhere in a log of anything else. Only what reads like output counts: a message at the beginning of a
line, after a prefix of a launcher or a logger, or after the name of an exception; not the same words in prose, in a
comment or between quotes of a source file.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from gpumon.logs import cuda_text, loader_text, nccl_text, oom_text, values
from gpumon.logs.reading import Place, Reading
from gpumon.text import clean

TEXT_MAX = 300
_LINE_MAX = 16_384
"""A message begins and ends within so many characters of its line."""
_QUICK = ("emory", "CUDA", "cuda", "Cuda", "NCCL", "nccl", "rror", "orker", "orch", "oom", "OOM", "GPU", "SIGKILL")
_MORE = ("False", "atchdog", "exitcode", "joined", "to complete", "handler", "Killed", "barrier", "join", "itialized")
_PHRASES = (*oom_text.PHRASES, *nccl_text.PHRASES, *loader_text.PHRASES, *cuda_text.PHRASES)
_WRAPPED_MAX = 12
"""So many further lines may belong to a message that somebody wrapped."""
_TIME = re.compile(r"\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z|[+-]\d{2}:?\d{2})?")
_PREFIX = re.compile(
    r"^\s{0,16}(?:\[rank ?\d{1,6}\]:?|\[[EWIF]\d{3,4} [\d:.]{8,20} [\w./]{1,60}:\d{1,6}\]"
    r"|\(\w{1,60} pid=\d{1,10}[^)]{0,60}\)"
    r"|\[\d{1,6},\d{1,6}\]<std(?:err|out)>:|\d{1,5}: |[\w.-]{1,60} {0,20}\| |\[?" + _TIME.pattern + r"\]?[ ,:-]{0,4}"
    r"|\[?(?:ERROR|WARNING|CRITICAL|INFO|FATAL|WARN|DEBUG)\]?[ :-]{1,4}|\[[\w .,:/-]{1,60}\] ?)"
)
_PREFIXES_MAX = 6
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning|Abort|NotReady)(?: \[\d{1,6}\])?:\s{0,4}$")
_NAME = "._abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_BEFORE_MAX = 400
"""More than this before a message is no prefix."""
_COMMENT = re.compile(r"^\s{0,40}(?:#|//|/\*|\*|<!--|REM |--|;|%|\"\"\"|''')")
_QUOTES = frozenset("\"'`“”‘’«»")
_OPENERS = frozenset(":])>|!-—")


class _Message(NamedTuple):
    """Something that a line, or several, report."""

    place: Place | None
    facts: dict[str, Any]
    is_open: bool = False
    """Its next line may tell more."""

    def richness(self) -> int:
        return len(self.facts.get("values", ()))


class TorchLog:
    """One event per message."""

    kind: ClassVar[str] = "torch-log"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._text = ""
        """The message so far, as long as it may go on."""
        self._messages: tuple[_Message, ...] = ()
        self._wrapped = 0
        self._line = ""
        self._found: tuple[_Message, ...] = ()

    def starts(self, line: str) -> bool:
        """Whether a line reports something."""
        if not any(mark in line for mark in _QUICK) and not any(mark in line for mark in _MORE):
            return False
        return any(phrase in line for phrase in _PHRASES) and bool(self._look(line))

    def take(self, line: str) -> bool:
        """A message, or the rest of one that was wrapped."""
        if self._messages:
            if self._wrapped < _WRAPPED_MAX and self._goes_on(line):
                self._wrapped += 1
                return True
            self.end()
            if not self.starts(line):
                return False
        found = self._look(line)
        if not found:
            return False
        self._messages, self._text, self._wrapped = found, line, 0
        if not found[0].is_open:
            self.end()
        return True

    def end(self) -> None:
        """Give what has been read."""
        messages, text = self._messages, self._text
        self._messages, self._text, self._wrapped = (), "", 0
        if not messages:
            return
        if "Tried to allocate" in text and "total_bytes" not in messages[0].facts.get("values", {}):
            self._leave_out("the message about memory breaks off: how full the GPU was is not known")
        stamp = _TIME.search(text[:120])
        time_s = None if stamp is None else values.moment(stamp.group())
        self._give(
            Reading(
                time_s=time_s,
                has_zone=stamp is not None and values.has_zone(stamp.group()),
                events=tuple((one.place, one.facts) for one in messages),
            )
        )

    def _look(self, line: str) -> tuple[_Message, ...]:
        """What a line reports; asked twice of the same line, so remembered."""
        if line != self._line:
            self._line, self._found = line, messages_of(line)
        return self._found

    def _goes_on(self, line: str) -> bool:
        """Whether the pending message continues here: with it, it tells more, or it is the end of its advice."""
        rest = without_prefix(line)
        if not self._messages[0].is_open or not rest.strip():
            return False
        known = self._messages[0].richness()
        for glue in ("\n", ""):
            whole = self._text + glue + rest
            found = messages_of(whole)
            if found and found[0].facts["kind"] == self._messages[0].facts["kind"] and found[0].richness() > known:
                if messages_of(line):
                    continue  # it is complete by itself: the next message
                self._text, self._messages = whole, found
                return True
        is_oom = self._messages[0].facts["kind"] == "cuda-oom"
        if is_oom and (oom_text.is_tail(rest) or oom_text.may_go_on(rest)) and not messages_of(line):
            self._text += "\n" + rest
            return True
        return False


def messages_of(text: str) -> tuple[_Message, ...]:
    """All that a message reports; empty where it is none."""
    if _COMMENT.match(text) or (text.startswith("|") and text.endswith("|")):
        return ()
    text = text[:_LINE_MAX]
    rank = nccl_text.rank_of(text[:200])
    found = _oom(text) or _nccl(text) or _loader(text) or _cuda(text)
    for one in found:
        if rank is not None:
            one.facts.setdefault("values", {}).setdefault("rank", float(rank))
    return found


def without_prefix(line: str) -> str:
    """A line without the rank, time, level or process that launchers and loggers put before it."""
    for _ in range(_PREFIXES_MAX):
        match = _PREFIX.match(line)
        if match is None:
            break
        line = line[match.end() :]
    return line


def reads_like_output(text: str, begins_at: int) -> bool:
    """Whether what stands before a message is a prefix or an exception's name, not prose or a program's text."""
    before = text[text.rfind("\n", 0, begins_at) + 1 : begins_at]
    if len(before) > _BEFORE_MAX:
        return False
    rest = without_prefix(before).strip()
    named = _EXCEPTION.search(rest)
    if named is not None:
        rest = rest[: named.start()].rstrip(_NAME).rstrip()
    if not rest or rest.endswith("what():"):
        return True
    return (rest[-1] in _OPENERS or rest.endswith("NCCL WARN")) and _QUOTES.isdisjoint(rest)


def _oom(text: str) -> tuple[_Message, ...]:
    if not oom_text.is_oom(text):
        return ()
    oom = oom_text.oom_of(text)
    if oom is not None:
        # Numbers of a GPU are nobody's prose; but one's own file name or trial may stand before them.
        if "total_bytes" not in oom.values and not reads_like_output(text, oom.begins_at):
            return ()
        return (_message("cuda-oom", text, oom.begins_at, oom.values, place=oom.place, is_open=True),)
    start = oom_text.bare_oom_of(text)
    if start is None or not reads_like_output(text, start):
        return ()
    return (_message("cuda-oom", text, start, {}, is_open="CUDA out of memory" in text),)


def _nccl(text: str) -> tuple[_Message, ...]:
    if not nccl_text.is_nccl(text):
        return ()
    found = []
    for one in nccl_text.told_of(text):
        start = _start_of(text, one.begins_at, _NCCL_LEAD_IN)
        if reads_like_output(text, start):
            found.append(_message(one.kind, text, start, one.values, is_open=one.is_open))
    return tuple(found)


def _loader(text: str) -> tuple[_Message, ...]:
    told = loader_text.told_of(text)
    if told is None or not reads_like_output(text, told.begins_at):
        return ()
    message = _message(told.kind, text, told.begins_at, told.values)
    if told.pid is not None:
        message.facts["pid"] = told.pid
    return (message,)


def _cuda(text: str) -> tuple[_Message, ...]:
    fault = cuda_text.no_cuda_of(text) or cuda_text.error_of(text)
    if fault is None or not _QUOTES.isdisjoint(text[max(0, fault.begins_at - 2) : fault.begins_at]):
        return ()
    start = _start_of(text, fault.begins_at, _LEAD_IN)
    if not reads_like_output(text, start):
        return ()
    return (_message(fault.kind, text, start, fault.values, is_open=fault.is_open),)


_LEAD_IN = re.compile(
    r"\b(?:CUDA error|CUDA initialization|CUDA driver error|Unexpected error from cudaGetDeviceCount|"
    r"cuda runtime error|Cuda error|CUDA Error|RuntimeError|Error \d{3}|NVIDIA |Tesla |GeForce |Quadro |The NVIDIA)"
)


_NCCL_LEAD_IN = re.compile(
    r"NCCL error|failure detected by watchdog|Received a dump signal|ProcessGroupNCCL's|Timeout at NCCL work|- \["
)


def _start_of(text: str, at: int, lead_in: re.Pattern[str]) -> int:
    """Where the sentence begins in which the telling words stand: ``CUDA error: …``, ``… Error 804: …``."""
    line = text.rfind("\n", 0, at) + 1
    match = lead_in.search(text, line, at)
    return at if match is None else match.start()


def _message(
    kind: str,
    text: str,
    begins_at: int,
    found: dict[str, float],
    *,
    place: Place | None = None,
    is_open: bool = False,
) -> _Message:
    words = " ".join(text[begins_at : begins_at + 2 * TEXT_MAX].split())
    facts: dict[str, Any] = {"kind": kind, "text": clean(words, TEXT_MAX)}
    if found:
        facts["values"] = dict(found)
    return _Message(place, facts, is_open)
