"""Knows what the machine's network can carry, what passes the kernel by (RDMA), and how long its NFS servers take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.sources.host.procfs import list_names, rate, read

PERIOD_S = 5.0

_WORD_BYTES = 4
"""InfiniBand counts in words of four bytes."""
_BITS = 8
_MOUNTS_BYTES = 1 << 20


class Network(NamedTuple):
    """Fields of the host's record."""

    net_limit_bytes_per_s: float | None = None
    rdma_rx_bytes_per_s: float | None = None
    rdma_tx_bytes_per_s: float | None = None
    rdma_limit_bytes_per_s: float | None = None
    nfs_read_s: float | None = None


class _Counts(NamedTuple):
    """What only grows, at one moment."""

    at: float
    rdma_rx_words: int | None
    rdma_tx_words: int | None
    nfs_reads: int | None
    nfs_read_ms: int | None


class NetworkReader:
    """Reads limits, RDMA ports and NFS times every few seconds; in between the last values stand."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        self._counts: _Counts | None = None
        self._last = Network()

    def read(self, now: float, nics: Iterable[str]) -> Network:
        """The values now; ``nics`` are the interfaces whose traffic the host's record counts."""
        before = self._counts
        if before is not None and now - before.at < PERIOD_S * 0.9:
            return self._last
        ports = self._active_ports()
        counts = self._counts = self._count(now, ports)
        seconds = 0.0 if before is None else now - before.at
        rx = None if before is None else rate(counts.rdma_rx_words, before.rdma_rx_words, seconds)
        tx = None if before is None else rate(counts.rdma_tx_words, before.rdma_tx_words, seconds)
        self._last = Network(
            net_limit_bytes_per_s=_net_limit(self._sys, nics),
            rdma_rx_bytes_per_s=None if rx is None else rx * _WORD_BYTES,
            rdma_tx_bytes_per_s=None if tx is None else tx * _WORD_BYTES,
            rdma_limit_bytes_per_s=_rdma_limit(ports),
            nfs_read_s=_mean_read_s(counts, before),
        )
        return self._last

    def _active_ports(self) -> list[str]:
        base = f"{self._sys}/class/infiniband"
        ports = [
            f"{base}/{device}/ports/{port}"
            for device in sorted(list_names(base))
            for port in sorted(list_names(f"{base}/{device}/ports"))
        ]
        return [port for port in ports if b"ACTIVE" in (read(f"{port}/state") or b"")]

    def _count(self, now: float, ports: list[str]) -> _Counts:
        rx = [_number(read(f"{port}/counters/port_rcv_data")) for port in ports]
        tx = [_number(read(f"{port}/counters/port_xmit_data")) for port in ports]
        reads, read_ms = nfs_reads(read(f"{self._proc}/self/mountstats", _MOUNTS_BYTES))
        return _Counts(now, _sum(rx), _sum(tx), reads, read_ms)


def nfs_reads(mountstats: bytes | None) -> tuple[int | None, int | None]:
    """READ operations so far and the milliseconds that servers took for them, over all NFS mounts."""
    reads = read_ms = 0
    has_nfs = False
    for line in (mountstats or b"").splitlines():
        words = line.split()
        # READ: operations transmissions timeouts bytes-sent bytes-received queue-ms rtt-ms execute-ms [errors]
        if len(words) >= 9 and words[0] == b"READ:" and words[1].isdigit() and words[7].isdigit():
            has_nfs = True
            reads += int(words[1])
            read_ms += int(words[7])
    return (reads, read_ms) if has_nfs else (None, None)


def _mean_read_s(counts: _Counts, before: _Counts | None) -> float | None:
    if before is None or counts.nfs_reads is None or before.nfs_reads is None:
        return None
    reads = counts.nfs_reads - before.nfs_reads
    read_ms = (counts.nfs_read_ms or 0) - (before.nfs_read_ms or 0)
    return read_ms / reads / 1000 if reads > 0 and read_ms >= 0 else None


def _net_limit(sys: str, nics: Iterable[str]) -> float | None:
    """Of the interfaces that are up, together, each way; None where one does not say (wireless, virtual)."""
    speeds: list[int | None] = []
    for nic in sorted(nics):
        state = (read(f"{sys}/class/net/{nic}/operstate") or b"").strip()
        if state == b"up":
            speeds.append(_number(read(f"{sys}/class/net/{nic}/speed")))
    known = [speed for speed in speeds if speed]
    return sum(known) * 1e6 / _BITS if known and len(known) == len(speeds) else None


def _rdma_limit(ports: list[str]) -> float | None:
    """``100 Gb/sec (4X EDR)`` of every port, together."""
    limits: list[float] = []
    for port in ports:
        words = (read(f"{port}/rate") or b"").split()
        try:
            limits.append(float(words[0]) * 1e9 / _BITS)
        except (IndexError, ValueError):
            return None
    return sum(limits) if limits else None


def _number(data: bytes | None) -> int | None:
    text = (data or b"").strip()
    return int(text) if text.isdigit() else None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
