"""Knows how to open what a user names: a file or stdin, unpacked within bounds where it is compressed."""

from __future__ import annotations

import io
import sys
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from gpumon.errors import UsageError

OUTPUT_MAX_BYTES = 1 << 30
"""Of a compressed file. It is read piece by piece, so this bounds the time; a week of eight GPUs is below."""
RATIO_MAX = 500
RATIO_FROM_BYTES = 1 << 20
"""Logs compress to a tenth or, when nothing changes, to a hundredth; bombs to a thousandth."""
CHUNK_BYTES = 1 << 18
_PIECE_BYTES = 1 << 12
"""Of compressed data at a time: what a damaged piece holds is lost."""

_GZIP = b"\x1f\x8b"


class Inflated(io.RawIOBase):
    """What a gzip file holds, within bounds; cut at the bound or where the file is damaged, and ``why`` says so."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self.why: str | None = None
        self._file = file
        self._inflate = zlib.decompressobj(wbits=31)
        self._input = b""
        self._taken = self._given = 0

    def readable(self) -> bool:
        """It is a stream to read from."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer; 0 at the end."""
        target = memoryview(cast("bytearray", buffer))
        while self.why is None:
            if not self._input:
                self._input = self._file.read(_PIECE_BYTES)
                self._taken += len(self._input)
                if not self._input:
                    self._end()
                    break
            if self._inflate.eof:
                if not self._input.startswith(_GZIP):  # padding after the last member
                    break
                self._inflate = zlib.decompressobj(wbits=31)
            try:
                piece = self._inflate.decompress(self._input, len(target))
            except zlib.error as error:
                self.why = f"the compressed data is damaged: {error}"
                break
            self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if piece:
                self._given += len(piece)
                self._check()
                target[: len(piece)] = piece
                return len(piece)
        return 0

    def _end(self) -> None:
        if not self._inflate.eof:
            self.why = "the compressed file ends early"

    def _check(self) -> None:
        if self._given > OUTPUT_MAX_BYTES:
            self.why = f"more than {OUTPUT_MAX_BYTES >> 30} GiB when unpacked"
        elif self._given > RATIO_FROM_BYTES and self._given > RATIO_MAX * max(1, self._taken - len(self._input)):
            self.why = f"unpacks to more than {RATIO_MAX} times its size"


class Opened:
    """A file, or stdin for ``-``, unpacked where it is compressed."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            UsageError: it cannot be opened or read.
        """
        self.name = "stdin" if str(path) == "-" else path.name
        self.inflated: Inflated | None = None
        self._stack = ExitStack()
        try:
            raw = sys.stdin.buffer if str(path) == "-" else self._stack.enter_context(path.open("rb"))
            file = cast("io.BufferedReader", raw)
            if file.peek(2)[:2] == _GZIP:
                self.inflated = Inflated(file)
                file = io.BufferedReader(self.inflated, CHUNK_BYTES)
            self.file = file
            self.beginning = file.peek(1)
        except OSError as error:
            self._stack.close()
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None

    def why_cut(self) -> str | None:
        """Why the end of a compressed file could not be read."""
        return None if self.inflated is None else self.inflated.why

    def close(self) -> None:
        """Let the file go."""
        self._stack.close()
