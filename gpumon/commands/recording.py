"""What ``gpumon run --record`` does beside its command: samples this machine as the live screen does, into a trace."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpumon import __version__
from gpumon.commands.endings import Body
from gpumon.config import Config
from gpumon.errors import GpumonError, NoSourceError, UsageError
from gpumon.model import Event
from gpumon.probe._gpumon_probe import layout
from gpumon.sources.host.kernel_log import KernelLog
from gpumon.sources.host.reader import HostReader
from gpumon.sources.inbox.inbox import Inbox, exit_of
from gpumon.sources.inbox.ring import body_of
from gpumon.sources.live import FIRST_READING_S, LiveSource
from gpumon.sources.nvml.absent import AbsentDriver
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.text import redact_command
from gpumon.trace import Writer

NICE = 10
LAST_S = 0.1
"""The last sample comes that soon after the command's end."""
PATIENCE_S = 5.0
"""So long at most the end waits for it."""


class _Ending(NamedTuple):
    """How the command ended."""

    pid: int
    code: int
    last_words: Mapping[int, Body]
    """Of the processes in it that told of themselves."""


class Recorder:
    """A trace that grows on a thread of its own until the command has ended."""

    def __init__(self, path: Path, command: Sequence[str], config: Config, gpus: Sequence[str] | None) -> None:
        """Make the file; ``gpus`` are those that were named.

        Raises:
            UsageError: the file is there already, or cannot be written.
        """
        self._path = path
        try:
            self._writer = Writer(path, gpumon=__version__, command=redact_command(command))
        except UsageError as error:
            raise UsageError(f"run: --record: {error}") from None
        self._config = config
        self._gpus = gpus
        self._source: LiveSource | None = None
        self._ending: _Ending | None = None
        self._ended: set[int] = set()
        self._thread = threading.Thread(target=self._record, name="record", daemon=True)

    def start(self) -> None:
        """Begin to sample. All signals are blocked by now, and so they are on this thread and those it starts."""
        try:
            self._thread.start()
        except RuntimeError:  # the user may have no more threads
            self._complain(UsageError("no thread to be had"))
            self._complete()

    def discard(self) -> None:
        """The command did not start: take the file away."""
        self._writer.discard()

    def finish(self, pid: int, code: int, last_words: Mapping[int, Body]) -> None:
        """Sample once more, with how it ended, and complete the file.

        Args:
            pid: Of the command.
            code: Its exit code; minus n after signal n.
            last_words: Of the processes in it that told of themselves, by pid.
        """
        self._ending = _Ending(pid, code, last_words)
        if self._source is not None:
            self._source.interval_s = LAST_S
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)

    def _record(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        try:
            source = self._source = self._machine()
            try:
                self._sample(source)
            finally:
                source.close()
        except (OSError, GpumonError) as error:
            self._complain(error)
        finally:
            self._complete()

    def _machine(self) -> LiveSource:
        """This machine; where it has no driver, the host and the ranks alone."""
        interval_s = self._config.interval_s
        reader = NvmlReader(interval_s, self._gpus)
        reader.start()
        try:
            reader.wait_until_ready(FIRST_READING_S)
        except NoSourceError:
            return LiveSource(AbsentDriver(interval_s), HostReader(interval_s), interval_s, KernelLog(), Inbox())
        return LiveSource(reader, HostReader(interval_s), interval_s, KernelLog(), Inbox())

    def _sample(self, source: LiveSource) -> None:
        if self._ending is not None:
            source.interval_s = LAST_S
        snapshots = iter(source)
        while True:
            ending = self._ending  # what is sampled from here on is of a time after it
            snapshot = next(snapshots)
            told = {event.pid for event in snapshot.events if event.kind == "process-exit" and _says_how(event)}
            self._ended.update(pid for pid in told if pid is not None)
            if ending is not None:
                snapshot = msgspec.structs.replace(snapshot, events=(*snapshot.events, *self._exits(ending)))
            self._writer.append(snapshot)
            if ending is not None:
                return

    def _exits(self, ending: _Ending) -> list[Event]:
        """How processes ended, as far as no sample has told it yet."""
        found = {ending.pid: Event(kind="process-exit", pid=ending.pid, exit_code=ending.code)}
        for pid, body in ending.last_words.items():
            event = _exit(pid, body)
            if event is not None:
                found[pid] = event
        return [event for pid, event in found.items() if pid not in self._ended]

    def _complain(self, error: OSError | GpumonError) -> None:
        """One line; the command has its own business on stderr."""
        because = error.strerror if isinstance(error, OSError) else error
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"gpumon: run: --record: {self._path}: {because}: it ends here, the command goes on\n")

    def _complete(self) -> None:
        with contextlib.suppress(OSError):
            self._writer.close()


def _says_how(event: Event) -> bool:
    return event.exit_code is not None or event.text is not None


def _exit(pid: int, body: Body) -> Event | None:
    """What a monitor that still read its file would say of a process."""
    raw = json.dumps(body, separators=(",", ":")).encode("ascii")
    told = body_of(layout.encode_header(raw)) if len(raw) <= layout.BODY_MOST else None
    return None if told is None else exit_of(told, pid, is_over=True)
