"""One probe's file: whether it may be read at all, and which of its slots are new; nothing in it is trusted."""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import zlib
from typing import NamedTuple

import msgspec

from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.layout import HEADER_SIZE, SLOT_SIZE, SLOTS, Slot

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A FIFO must not keep us, and a link must not lead us anywhere."""
_SLOT = struct.Struct(f"{layout.SLOT.format}{layout.LATER_AT - layout.SLOT.size}x{layout.LATER.format[1:]}")
"""All of a slot but its single steps, read at once: a second of 64 ranks has 128 of them."""
_SEQ = struct.Struct("<Q")
_MOST = 2**53
_DAY_NS = 86_400 * 10**9
_AHEAD_NS = 10**9
"""Threads write these times one after the other."""


class Now(NamedTuple):
    """This moment by the two clocks that slots are stamped with."""

    mono_ns: int
    wall_ns: int


Report = tuple[Slot, bytes, int]
"""One slot, and the bytes and the place in them where it lies with its single steps."""


class Body(msgspec.Struct, frozen=True):
    """What the header says. Each part may be missing, and any may be a lie."""

    pid: int | None = None
    start: int | None = None
    boot: str | None = None
    framework: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    environment: dict[str, str] | None = None
    devices: list[str | None] | None = None
    allocator: str | None = None
    run: str | None = None
    error: str | None = None
    """The exception that ended it."""
    exit_code: int | None = None
    """Added by ``gpumon run`` when its command has ended, to the file of that process."""
    run_exit_code: int | None = None
    """The same in the files of all its processes."""
    sampled: bool | None = None
    """No probe tells this, but somebody who looks at stacks from outside."""


_BODY = msgspec.json.Decoder(Body)


class Ring:
    """An open file of a probe. What is read is a copy, so that what was checked stays what it was."""

    def __init__(self, fd: int, facts: os.stat_result) -> None:
        self.inode = facts.st_ino
        self.body = Body()
        self._uid = facts.st_uid
        self._fd = fd
        self._header = b""
        self._seq = 0
        self._read_ns = 0

    def read_header(self) -> bool:
        """Read the header anew; tell whether it changed. A damaged one is being written: the last one stays."""
        raw = self._pread(HEADER_SIZE, 0)
        body = None if raw == self._header else body_of(raw)
        if body is None:
            return False
        self._header, self.body = raw, body
        return True

    def newest(self, now: Now, seconds: float) -> list[Report]:
        """The newest slot and those within ``seconds`` before it, oldest first; reading goes on from there."""
        raw = self._pread(layout.FILE_SIZE, 0)
        if len(raw) != layout.FILE_SIZE:
            return []
        places = range(HEADER_SIZE, layout.FILE_SIZE, SLOT_SIZE)
        found: list[Report] = []
        for seq, at in sorted(((_SEQ.unpack_from(raw, at)[0], at) for at in places), reverse=True):
            report = _report(raw, at, now) if seq else None
            if report is not None:
                found.insert(0, report)
                if found[-1][0].mono_ns - report[0].mono_ns >= seconds * 1e9:
                    break
            elif found or not seq:
                break
        if found:
            self._seq = found[-1][0].seq
        self._read_ns = now.mono_ns
        return found

    def new(self, now: Now) -> list[Report] | None:
        """The slots since the last ones; None where the writer is not where we were and they must be looked for."""
        found: list[Report] = []
        # As many as the time since then brings, and one to see that there are no more.
        expected, self._read_ns = int((now.mono_ns - self._read_ns) / 1e9 / layout.PERIOD_S) + 2, now.mono_ns
        for _ in range(SLOTS):
            place = (self._seq + 1) % SLOTS
            wanted = max(1, min(expected, SLOTS - place)) * SLOT_SIZE
            raw = self._pread(wanted, HEADER_SIZE + place * SLOT_SIZE)
            for at in range(0, len(raw) - SLOT_SIZE + 1, SLOT_SIZE):
                seq: int = _SEQ.unpack_from(raw, at)[0]
                if seq != self._seq + 1:
                    return found if seq <= self._seq else None
                report = _report(raw, at, now)
                if report is not None:
                    found.append(report)
                elif not self._is_written(seq + 1):
                    return found  # it may be complete the next time
                self._seq = seq
            if len(raw) < wanted:
                break
        return found

    def is_sound(self) -> bool:
        """Tell whether the file is still one that may be read, and has its name."""
        return _reason(os.fstat(self._fd), self._uid) is None

    def close(self) -> None:
        """Give the descriptor back."""
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _is_written(self, seq: int) -> bool:
        raw = self._pread(_SEQ.size, HEADER_SIZE + seq % SLOTS * SLOT_SIZE)
        return len(raw) == _SEQ.size and bool(_SEQ.unpack(raw)[0] == seq)

    def _pread(self, size: int, at: int) -> bytes:
        try:
            return os.pread(self._fd, size, at)
        except OSError:
            return b""


def open_ring(name: str, directory: int, uid: int) -> Ring | str:
    """Open a probe's file in an open directory; the reason where it may not be read.

    Args:
        name: Its name, already known to be two numbers.
        directory: Descriptor of the directory.
        uid: Who must own it: the owner of the directory.
    """
    try:
        fd = os.open(name, _FLAGS, dir_fd=directory)
    except OSError as error:
        return (error.strerror or "cannot be opened").lower()
    facts = os.fstat(fd)
    reason = _reason(facts, uid)
    if reason is not None:
        os.close(fd)
        return reason
    ring = Ring(fd, facts)
    if not ring.read_header():
        ring.close()
        return "no header of a probe of this version"
    return ring


def body_of(raw: bytes) -> Body | None:
    """Decode a header; None where it is not one."""
    body = layout.decode_header(raw)
    if body is None:
        return None
    try:
        return _BODY.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _reason(facts: os.stat_result, uid: int) -> str | None:
    """Why a file with these properties is not a probe's; None where it may be."""
    if not stat.S_ISREG(facts.st_mode):
        return "not a file"
    if facts.st_uid != uid:
        return "another user's"
    if facts.st_nlink != 1:
        return "not of one name"
    if facts.st_mode & 0o077:
        return "open to others"
    if facts.st_size != layout.FILE_SIZE:
        return "not of the right size"
    return None


def _report(raw: bytes, at: int, now: Now) -> Report | None:
    """The slot at this place; None where it is damaged or says what cannot be."""
    crc, low = layout.TAIL.unpack_from(raw, at + layout.TAIL_AT)
    if zlib.crc32(raw[at : at + layout.TAIL_AT]) != crc:
        return None
    values = _SLOT.unpack_from(raw, at)
    slot = Slot._make(values)
    if slot.seq & 0xFFFFFFFF != low or max(values[_COUNTED]) > _MOST or slot.pairs > layout.PAIRS_MOST:
        return None
    told, timed = values[_OF_ALLOCATOR], values[_OF_PARTS]
    if told != _NOTHING_KNOWN and (min(told) < -1 or max(told) > _MOST):
        return None
    if timed != _NOTHING_TIMED and max([0 if part == layout.UNKNOWN else part for part in timed]) > _MOST:
        return None
    latest_ns = slot.mono_ns + _AHEAD_NS
    if slot.since_ns > latest_ns or slot.beat_ns > latest_ns or slot.pause_since_ns > latest_ns:
        return None
    return (slot, raw, at) if _is_possible(slot) and _is_of_now(slot, now) else None


_COUNTED = slice(Slot._fields.index("step"), Slot._fields.index("phase"))
_OF_ALLOCATOR = slice(Slot._fields.index("device"), Slot._fields.index("samples"))
_NOTHING_KNOWN = (-1,) * 13
_OF_PARTS = slice(Slot._fields.index("forward_ns"), Slot._fields.index("beat_ns"))
_NOTHING_TIMED = (layout.UNKNOWN,) * 4
_PHASES = len(layout.PHASES)


def _is_possible(slot: Slot) -> bool:
    """Whether an honest writer could have written these numbers."""
    if slot.phase >= _PHASES or slot.restart_ns > _MOST or slot.pause_ns > _MOST:
        return False
    return 0.0 <= slot.samples <= _MOST or slot.samples != slot.samples


def _is_of_now(slot: Slot, now: Now) -> bool:
    """Whether it was written in the last day; another time namespace has another monotonic clock."""
    return abs(now.mono_ns - slot.mono_ns) <= _DAY_NS or abs(now.wall_ns - slot.wall_ns) <= _DAY_NS
