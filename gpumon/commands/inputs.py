"""Knows how files that a user names become one source: recordings and logs of one machine, merged by time."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import msgspec

from gpumon.diagnosis import Diagnosis
from gpumon.logs.assembly import BOOT_CLOCK_S, Assembly
from gpumon.logs.log import Log
from gpumon.model import Snapshot
from gpumon.opened import Opened
from gpumon.trace import Trace, Unread, is_trace


class Input:
    """Files of one machine, in the order of time. It is a source for ``frames()``."""

    kind: Literal["replay"] = "replay"

    def __init__(self, paths: Sequence[Path]) -> None:
        """Open them all.

        Raises:
            UsageError: one cannot be read.
        """
        with ExitStack() as stack:
            files: list[tuple[Path, Opened]] = []
            for path in paths:
                files.append((path, Opened(path)))
                stack.callback(files[-1][1].close)
            self._traces = [Trace(path, opened) for path, opened in files if is_trace(opened.beginning)]
            foreign = [opened for _, opened in files if not is_trace(opened.beginning)]
            self._log = Log(foreign) if foreign else None
            self._stack = stack.pop_all()
        self.name = ", ".join(opened.name for _, opened in files)

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield snapshots to the end of the files.

        Raises:
            UsageError: nothing in a file is of a known format.
        """
        parts = self._parts()
        if len(parts) == 1:
            yield from parts[0]
            return
        before_s: float | None = None
        for snapshot in heapq.merge(*parts, key=lambda one: one.time_s):
            interval_s = None if before_s is None else max(0.0, snapshot.time_s - before_s)
            before_s = snapshot.time_s
            yield msgspec.structs.replace(snapshot, interval_s=interval_s)

    @property
    def unread(self) -> tuple[Unread, ...]:
        """What was left out so far."""
        return tuple(part for one in self._parts() for part in one.unread)

    def close(self) -> None:
        """Let the files go."""
        self._stack.close()

    def told(self, found: Diagnosis) -> Diagnosis:
        """The diagnosis of this input with what is to be said of it."""
        found = msgspec.structs.replace(found, unread=self.unread)
        if self._log is None:
            return found
        assembly, with_traces = self._log.assembly, bool(self._traces)
        kinds = [*self._log.kinds, *(["trace"] if with_traces else [])]
        return msgspec.structs.replace(
            found,
            kind=kinds[0] if len(kinds) == 1 else "mixed",
            has_times=assembly.has_times or with_traces,
            time_zone=_zone(found, assembly) if assembly.has_times and not with_traces else None,
            assumed_interval_s=assembly.assumed_s,
            judged_every_s=assembly.judged_every_s,
        )

    def _parts(self) -> list[Trace | Log]:
        return [*self._traces, *([] if self._log is None else [self._log])]


def _zone(found: Diagnosis, assembly: Assembly) -> str | None:
    """What is to be said of the times of logs."""
    if found.start_s is not None and found.start_s + found.duration_s < BOOT_CLOCK_S:
        return "since-boot"
    return None if assembly.has_zone else "unknown"
