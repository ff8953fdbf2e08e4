"""Knows the trace format: JSON lines that carry snapshots between machines, bug reports and tests."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from gpumon.errors import UsageError
from gpumon.model import Event, Gpu, Host, Process, Rank, Snapshot, Value
from gpumon.opened import Opened
from gpumon.text import clean

VERSION = 1
LINE_MAX_BYTES = 16 * 1024 * 1024
"""A snapshot of 16 GPUs and hundreds of processes is far below; a longer line is no snapshot."""
UNREAD_MAX = 1000
NO_PROCESSES = "the input lists no processes"
"""Why none is known, where nothing says that there are none."""
NO_UUID = ("bus:", "index:")
"""Prefixes of the identity of a GPU whose log gives no UUID."""


class Unread(NamedTuple):
    """A part of the input that was left out, and why."""

    line: int
    because: str


def public_uuid(uuid: str | None) -> str | None:
    """The GPU's UUID, or None where ours only stands in for it."""
    return None if uuid is None or uuid.startswith(NO_UUID) else uuid


def is_trace(beginning: bytes) -> bool:
    """Whether a file that begins so is a trace."""
    return b'"gpumon_trace"' in beginning.split(b"\n", 1)[0]


def write(path: Path, snapshots: Iterable[Snapshot], **facts: object) -> None:
    """Write a trace; a name that ends in ``.gz`` is compressed. ``facts`` go into the first line."""
    encoder = msgspec.json.Encoder()
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(encoder.encode({"gpumon_trace": VERSION, **facts}) + b"\n")
        for snapshot in snapshots:
            file.write(encoder.encode(_without_nulls(msgspec.to_builtins(snapshot))) + b"\n")


class Writer:
    """A trace that grows. Whatever ends it (a crash, a full disk), it is valid up to its last line."""

    def __init__(self, path: Path, **facts: object) -> None:
        """Make the file, which nobody else may read; a name that ends in ``.gz`` is compressed.

        Raises:
            UsageError: there is one already, or it cannot be made or written.
        """
        self._path = path
        self._encoder = msgspec.json.Encoder()
        self._pack = zlib.compressobj(wbits=31) if path.suffix == ".gz" else None
        self._size = 0
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise UsageError(f"{path} is there already; name another file, or remove it") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        try:
            self._put(self._encoder.encode({"gpumon_trace": VERSION, **facts}))
        except OSError as error:
            self.discard()
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None

    def append(self, snapshot: Snapshot) -> None:
        """Add one. Raises OSError where there is no room; what was written stays as it was, and no more can be."""
        self._put(self._encoder.encode(_without_nulls(msgspec.to_builtins(snapshot))))

    def close(self) -> None:
        """Complete the file."""
        try:
            if self._pack is not None:
                self._write(self._pack.flush(zlib.Z_FINISH))
        finally:
            os.close(self._fd)

    def discard(self) -> None:
        """Take the file away again."""
        os.close(self._fd)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _put(self, line: bytes) -> None:
        if self._pack is None:
            self._write(line + b"\n")
        else:
            # Flushed, so that a reader can unpack all that was written so far.
            self._write(self._pack.compress(line + b"\n") + self._pack.flush(zlib.Z_SYNC_FLUSH))

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)


class Trace:
    """Snapshots read from a trace file, once, in the order of the file. It is a source for ``frames()``."""

    kind: Literal["replay"] = "replay"

    def __init__(self, path: Path, opened: Opened | None = None) -> None:
        """Read the first line; ``-`` is stdin, ``opened`` what has been opened by that name.

        Raises:
            UsageError: unreadable, or not a trace.
        """
        self._opened = opened or Opened(path)
        self.name = self._opened.name
        self.unread: list[Unread] = []
        """Grows while iterating."""
        self._line = 0
        self._decoder = msgspec.json.Decoder(Snapshot)
        try:
            self.header = self._read_header()
        except OSError as error:
            self.close()
            raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
        except UsageError:
            self.close()
            raise

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield what can be read; a broken record is left out and named in ``unread``, never the rest with it."""
        before: Snapshot | None = None
        usual_s = 1.0
        try:
            for raw in self._lines():
                snapshot = self._snapshot(raw, before, usual_s)
                if snapshot is None:
                    continue
                usual_s = snapshot.interval_s or usual_s
                before = snapshot
                yield snapshot
        finally:
            self.close()

    def close(self) -> None:
        """Let the file go."""
        self._opened.close()

    def _read_header(self) -> Mapping[str, Any]:
        first = self._opened.file.readline(LINE_MAX_BYTES)
        self._line = 1
        try:
            header = msgspec.json.decode(first)
        except (msgspec.DecodeError, UnicodeDecodeError):
            header = None
        why = self._opened.why_cut()
        if why is not None and header is None:
            raise UsageError(f"{self.name}: cannot be read: {why}")
        if not isinstance(header, dict) or "gpumon_trace" not in header:
            raise UsageError(
                f"{self.name}: not recognised; expected a gpumon trace, whose first line is"
                f' {{"gpumon_trace": {VERSION}, …}}'
            )
        if header["gpumon_trace"] != VERSION:
            version = header["gpumon_trace"]
            raise UsageError(f"{self.name}: trace version {version!r} is not known; this reads {VERSION}")
        return header

    def _lines(self) -> Iterator[bytes]:
        try:
            for raw in iter(lambda: self._opened.file.readline(LINE_MAX_BYTES), b""):
                self._line += 1
                if raw.strip():
                    yield raw
        except OSError as error:
            self._leave_out(f"the rest cannot be read: {error.strerror or error}")
        why = self._opened.why_cut()
        if why is not None:
            self._leave_out(why)

    def _snapshot(self, raw: bytes, before: Snapshot | None, usual_s: float) -> Snapshot | None:
        if raw.isascii() and b"\\" not in raw:
            # Nothing in it needs cleaning; most lines are also complete, and then this is ten times as fast.
            try:
                snapshot = self._decoder.decode(raw)
            except msgspec.DecodeError:
                pass
            else:
                if before is None or (snapshot.interval_s or -1.0) >= 0:
                    return snapshot if b'"processes"' in raw else _without_list(snapshot)
        try:
            # The standard library's reader lives with lone surrogates; NaN and Infinity are no measurements.
            table = json.loads(raw.decode("utf-8", "replace"), parse_constant=lambda _: None)
        except (ValueError, RecursionError) as error:
            self._leave_out(f"not JSON: {error}")
            return None
        if not isinstance(table, dict):
            self._leave_out("not a snapshot")
            return None
        time_s, interval_s = _number(table.get("time_s")), _number(table.get("interval_s"))
        if time_s is None:
            if before is None or interval_s is None:
                self._leave_out("a snapshot without time_s")
                return None
            time_s = before.time_s + interval_s
        if interval_s is None and before is not None:
            # Without the monotonic interval only the wall clock is known; where it went back, the usual pace is.
            interval_s = time_s - before.time_s if time_s > before.time_s else usual_s
        host = self._record(Host, table.get("host")) if table.get("host") is not None else None
        snapshot = Snapshot(
            time_s=time_s,
            interval_s=interval_s if interval_s is None or interval_s >= 0 else usual_s,
            gpus=tuple(self._records(Gpu, table, "gpus")),
            processes=tuple(self._records(Process, table, "processes")),
            host=host or Host(),
            ranks=tuple(self._records(Rank, table, "ranks")),
            events=tuple(self._records(Event, table, "events")),
        )
        return snapshot if table.get("processes") is not None else _without_list(snapshot)

    def _records(self, kind: type[V], table: Mapping[str, Any], name: str) -> Iterator[V]:
        rows = table.get(name)
        if rows is None:
            return
        if not isinstance(rows, list):
            self._leave_out(f"{name} is not a list")
            return
        for position, row in enumerate(rows):
            if kind is Gpu and isinstance(row, dict):
                row = _identified(row, position)  # noqa: PLW2901 - the same row with its identity
            record = self._record(kind, row)
            if record is not None:
                yield record

    def _record(self, kind: type[V], row: object) -> V | None:
        try:
            return msgspec.convert(_cleaned(_without_nulls(row)), kind, strict=True)
        except msgspec.ValidationError as error:
            self._leave_out(f"{kind.__name__.lower()}: {error}")
            return None

    def _leave_out(self, because: str) -> None:
        if len(self.unread) < UNREAD_MAX:
            self.unread.append(Unread(self._line, clean(because)))


V = TypeVar("V", bound=Value)


def _without_list(snapshot: Snapshot) -> Snapshot:
    """The same, saying that its processes are not known."""
    host = msgspec.structs.replace(snapshot.host, processes_hidden=snapshot.host.processes_hidden or NO_PROCESSES)
    return msgspec.structs.replace(snapshot, host=host)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _identified(row: Mapping[str, Any], position: int) -> Mapping[str, Any]:
    """The row with an identity: its UUID, else its bus id, else its index."""
    index = row.get("index")
    if not isinstance(index, int):
        index = position
    bus = row.get("pci_bus_id")
    return {**row, "index": index, "uuid": row.get("uuid") or (f"bus:{bus}" if bus else f"index:{index}")}


_MAPS = frozenset({"gpu_memory_bytes"})
"""Maps in which null is information: a process whose memory the driver does not name."""
STRING_MAX = 4096


def _without_nulls(row: Any) -> Any:  # noqa: ANN401 - any JSON value
    """JSON without keys that are null: absent and null mean the same. Values of maps keep their nulls."""
    if isinstance(row, dict):
        return {
            key: value if key in _MAPS else _without_nulls(value)
            for key, value in row.items()
            if value is not None and not (isinstance(value, float) and not math.isfinite(value))
        }
    if isinstance(row, (list, tuple)):
        return [_without_nulls(value) for value in row]
    return row


def _cleaned(row: Any) -> Any:  # noqa: ANN401 - any JSON value
    """JSON whose strings, keys of maps included, are safe to show."""
    if isinstance(row, dict):
        return {clean(key): _cleaned(value) for key, value in row.items()}
    if isinstance(row, list):
        return [_cleaned(value) for value in row]
    return clean(row, STRING_MAX) if isinstance(row, str) else row
