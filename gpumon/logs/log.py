"""Knows which formats there are, and reads a file of any of them, or of several, as one source of snapshots."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Literal

from gpumon.errors import UsageError
from gpumon.logs.assembly import GPUS_MAX, Assembly
from gpumon.logs.collect_env import CollectEnv
from gpumon.logs.dcgm_health import DcgmHealth
from gpumon.logs.dcgmi_dmon import DcgmiDmonReader
from gpumon.logs.dmon import DmonReader
from gpumon.logs.gpustat import Gpustat
from gpumon.logs.kernel_log import KernelLog
from gpumon.logs.lines import lines
from gpumon.logs.memory_summary import MemorySummary
from gpumon.logs.nvidia_smi_csv import NvidiaSmiCsv
from gpumon.logs.nvidia_smi_q import NvidiaSmiQ
from gpumon.logs.nvidia_smi_table import NvidiaSmiTable
from gpumon.logs.nvidia_smi_xml import NvidiaSmiXml
from gpumon.logs.pmon import PmonReader
from gpumon.logs.prometheus_text import PrometheusReader
from gpumon.logs.reading import Reader, Reading
from gpumon.logs.tegrastats import TegrastatsReader
from gpumon.logs.topology import Topology
from gpumon.logs.torch_log import TorchLog
from gpumon.model import Snapshot
from gpumon.opened import Opened
from gpumon.text import clean
from gpumon.trace import UNREAD_MAX, Unread

FORMATS: tuple[type[Reader], ...] = (
    NvidiaSmiXml,
    NvidiaSmiQ,
    NvidiaSmiTable,
    Topology,
    Gpustat,
    NvidiaSmiCsv,
    PrometheusReader,
    DmonReader,
    PmonReader,
    DcgmiDmonReader,
    DcgmHealth,
    TegrastatsReader,
    MemorySummary,
    CollectEnv,
    KernelLog,
    TorchLog,
)
"""Asked in this order whether a line begins one of their stretches: what is most certain first."""

EXPECTED = (
    "a gpumon trace, nvidia-smi (table, -q, -q -x, --format=csv, dmon, pmon, topo, nvlink), dcgmi dmon, gpustat,"
    " tegrastats, Prometheus text, a kernel log with NVRM lines, or output of PyTorch, NCCL or CUDA"
)


class Recognised:
    """One file's readings with the number of their stream, found by content."""

    def __init__(self, opened: Opened) -> None:
        self.name = opened.name
        self.unread: list[Unread] = []
        """Grows while iterating."""
        self.kinds: list[str] = []
        """Of the formats found so far, in order."""
        self._opened = opened
        self._number = 0
        self._given: list[tuple[str, Reading]] = []
        self._readers = [self._reader(kind) for kind in FORMATS]

    def __iter__(self) -> Iterator[tuple[str, Reading]]:
        """Yield ``(kind, reading)`` in the order of the file, and let the file go at its end."""
        active: Reader | None = None
        try:
            for number, line in lines(self._opened, self._leave_out_at):
                self._number = number
                if active is not None and not active.take(line):
                    active.end()
                    active = None
                    active = self._starting(line)
                elif active is None and line:
                    active = self._starting(line)
                if self._given:
                    yield from self._given
                    self._given.clear()
            if active is not None:
                active.end()
            yield from self._given
            self._given.clear()
        finally:
            self._opened.close()

    def close(self) -> None:
        """Let the file go."""
        self._opened.close()

    def _starting(self, line: str) -> Reader | None:
        for reader in self._readers:
            if reader.starts(line) and reader.take(line):
                if reader.kind not in self.kinds:
                    self.kinds.append(reader.kind)
                return reader
        return None

    def _reader(self, kind: type[Reader]) -> Reader:
        return kind(lambda reading: self._given.append((kind.kind, reading)), self._leave_out)

    def _leave_out(self, because: str) -> None:
        self._leave_out_at(self._number, because)

    def _leave_out_at(self, number: int, because: str) -> None:
        if len(self.unread) < UNREAD_MAX:
            self.unread.append(Unread(number, clean(because)))


class Log:
    """Snapshots read from logs of one machine, once, in the order of time. It is a source for ``frames()``."""

    kind: Literal["replay"] = "replay"

    def __init__(self, files: Sequence[Opened]) -> None:
        self.name = ", ".join(opened.name for opened in files)
        self.assembly = Assembly()
        self._files = [Recognised(opened) for opened in files]

    @property
    def unread(self) -> list[Unread]:
        """What was left out so far."""
        found = [part for file in self._files for part in file.unread]
        if self.assembly.has_more_gpus:
            found.append(Unread(0, f"more than {GPUS_MAX} GPUs: only the first are read; give one machine's logs"))
        if self.assembly.lost_events:
            found.append(Unread(0, f"{self.assembly.lost_events} further events of one moment"))
        return found

    @property
    def kinds(self) -> list[str]:
        """The formats found so far."""
        return list(dict.fromkeys(kind for file in self._files for kind in file.kinds))

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield snapshots to the end of the files.

        Raises:
            UsageError: nothing in a file is of a known format.
        """
        in_order = (_in_order(number, file) for number, file in enumerate(self._files))
        for _, stream, reading in heapq.merge(*in_order, key=itemgetter(0)):
            yield from self.assembly.take(stream, reading)
        yield from self.assembly.end()

    def close(self) -> None:
        """Let the files go."""
        for file in self._files:
            file.close()


def _in_order(number: int, file: Recognised) -> Iterator[tuple[float, str, Reading]]:
    """A file's readings with the time by which they are merged with other files'."""
    latest_s = -math.inf
    for kind, reading in file:
        latest_s = latest_s if reading.time_s is None else max(latest_s, reading.time_s)
        yield latest_s, f"{number}:{kind}", reading
    if not file.kinds:
        because = f": {file.unread[0].because}" if file.unread else ""
        raise UsageError(f"{file.name}: not recognised{because}; expected {EXPECTED}")
