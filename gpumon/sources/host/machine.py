"""What the whole machine does: its processors, memory, pressure, disks and network, from /proc and /sys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpumon import text
from gpumon.model import Host
from gpumon.sources.host.chassis import chassis_of, socket_count
from gpumon.sources.host.driver_files import library_version
from gpumon.sources.host.network import NetworkReader
from gpumon.sources.host.procfs import ProcFile, count_listed, exists, list_names, number_after, rate, read, shm_bytes

_SECTOR_BYTES = 512
_SLOW_PERIOD_S = 5.0
_DEVICES_PERIOD_S = 60.0
_FILE_BYTES = 1 << 16
_PIECE_BYTES = 3000
_UNREAL_DISKS = ("loop", "ram", "zram", "sr", "fd")


class _Counters(NamedTuple):
    """Everything that only grows, at one moment."""

    at: float
    cpu_ticks: int | None
    cpu_idle_ticks: int | None
    disk_read_bytes: int | None
    disk_write_bytes: int | None
    disk_busy_ms: dict[str, int]
    net_rx_bytes: int | None
    net_tx_bytes: int | None


class _Slow(NamedTuple):
    """What is read every few seconds."""

    at: float
    cpu_pressure_pct: float | None
    io_pressure_pct: float | None
    memory_pressure_pct: float | None
    shm: tuple[int, int] | None
    swapped_in_pages: int | None
    swap_in_bytes_per_s: float | None
    oom_kills: int | None


class MachineReader:
    """Reads the host's totals on kept descriptors; rates are over the time since the last reading."""

    def __init__(self, proc: str, sys: str) -> None:
        self._proc = proc
        self._sys = sys
        names = ("stat", "meminfo", "loadavg", "diskstats", "self/net/dev", "vmstat")
        self._files = {name: ProcFile(f"{proc}/{name}") for name in names}
        for resource in ("cpu", "io", "memory"):
            self._files[resource] = ProcFile(f"{proc}/pressure/{resource}")
        self._static = Host(
            name=_host_name(proc),
            chassis=chassis_of(proc, sys),
            boot_id=_boot_id(proc),
            cpu_count=_cpu_count(sys),
            socket_count=socket_count(sys),
        )
        self._large: set[str] = set()
        """Files of many records answer about a page at a time: these need several reads."""
        self._counters: _Counters | None = None
        self._slow: _Slow | None = None
        self._devices_at: float | None = None
        self._disks: frozenset[str] = frozenset()
        self._nics: frozenset[str] = frozenset()
        self._library_version: str | None = None
        self._network = NetworkReader(proc, sys)
        self._last: tuple[float, Host] | None = None

    def read(self, now: float, period_s: float) -> Host:
        """Return the totals; those of the last reading while they are younger than the period."""
        if self._last is not None and now - self._last[0] < period_s * 0.9:
            return self._last[1]
        self._find_devices(now)
        before, counters = self._counters, self._count(now)
        self._counters = counters
        memory = self._content("meminfo")
        swap_total, swap_free = _kibibytes(memory, b"SwapTotal:"), _kibibytes(memory, b"SwapFree:")
        if self._slow is None or now - self._slow.at >= _SLOW_PERIOD_S * 0.9:
            self._slow = self._read_slow(now, has_swap=swap_total != 0)
        slow = self._slow
        shm_total_bytes, shm_used_bytes = slow.shm or (None, None)
        host = Host(
            name=self._static.name,
            chassis=self._static.chassis,
            boot_id=self._static.boot_id,
            driver_library_version=self._library_version,
            cpu_count=self._static.cpu_count,
            socket_count=self._static.socket_count,
            cpu_pct=_busy_pct(counters, before),
            load_1=_load(self._content("loadavg")),
            memory_total_bytes=_kibibytes(memory, b"MemTotal:"),
            memory_available_bytes=_kibibytes(memory, b"MemAvailable:"),
            swap_used_bytes=None if swap_total is None or swap_free is None else swap_total - swap_free,
            swap_in_bytes_per_s=slow.swap_in_bytes_per_s,
            oom_kills=slow.oom_kills,
            cpu_pressure_pct=slow.cpu_pressure_pct,
            io_pressure_pct=slow.io_pressure_pct,
            memory_pressure_pct=slow.memory_pressure_pct,
            shm_total_bytes=shm_total_bytes,
            shm_used_bytes=shm_used_bytes,
            disk_read_bytes_per_s=_growth(counters, before, lambda c: c.disk_read_bytes),
            disk_write_bytes_per_s=_growth(counters, before, lambda c: c.disk_write_bytes),
            disk_busy_pct=_disk_busy_pct(counters, before),
            net_rx_bytes_per_s=_growth(counters, before, lambda c: c.net_rx_bytes),
            net_tx_bytes_per_s=_growth(counters, before, lambda c: c.net_tx_bytes),
            **self._network.read(now, self._nics)._asdict(),
        )
        self._last = (now, host)
        return host

    def close(self) -> None:
        """Give back every descriptor."""
        for file in self._files.values():
            file.close()

    def _content(self, name: str) -> bytes:
        if name not in self._large:
            data = self._files[name].read(keeps=True, size=_FILE_BYTES) or b""
            if len(data) < _PIECE_BYTES:
                return data
            self._large.add(name)
        return read(f"{self._proc}/{name}", 1 << 20) or b""

    def _count(self, now: float) -> _Counters:
        cpu = (self._files["stat"].read(keeps=True, size=256) or b"").split(b"\n", 1)[0].split()
        # user nice system idle iowait irq softirq steal; guest time is part of user already.
        ticks = [int(word) for word in cpu[1:9] if word.isdigit()] if len(cpu) > 5 else None
        ticks = ticks if ticks is not None and len(ticks) >= 5 else None
        disks = _disk_counters(self._content("diskstats"), self._disks)
        nics = _net_counters(self._content("self/net/dev"), self._nics)
        return _Counters(
            at=now,
            cpu_ticks=None if ticks is None else sum(ticks),
            cpu_idle_ticks=None if ticks is None else ticks[3] + ticks[4],
            disk_read_bytes=sum(read_bytes for read_bytes, _, _ in disks.values()) if disks else None,
            disk_write_bytes=sum(write_bytes for _, write_bytes, _ in disks.values()) if disks else None,
            disk_busy_ms={name: busy_ms for name, (_, _, busy_ms) in disks.items()},
            net_rx_bytes=sum(rx for rx, _ in nics) if nics else None,
            net_tx_bytes=sum(tx for _, tx in nics) if nics else None,
        )

    def _read_slow(self, now: float, *, has_swap: bool) -> _Slow:
        before = self._slow
        vmstat = b"\n" + self._content("vmstat")
        pages = number_after(vmstat, b"\npswpin ") if has_swap else None
        pages_per_s = None if before is None else rate(pages, before.swapped_in_pages, now - before.at)
        swap_in = None if pages_per_s is None else pages_per_s * os.sysconf("SC_PAGE_SIZE")
        return _Slow(
            at=now,
            cpu_pressure_pct=_pressure_pct(self._pressure("cpu"), b"some"),
            io_pressure_pct=_pressure_pct(self._pressure("io"), b"some"),
            memory_pressure_pct=_pressure_pct(self._pressure("memory"), b"full"),
            shm=shm_bytes(self._proc, "self"),
            swapped_in_pages=pages,
            # Without swap nothing can come back from it: a measurement, not a gap.
            swap_in_bytes_per_s=swap_in if has_swap else 0.0,
            oom_kills=number_after(vmstat, b"\noom_kill "),
        )

    def _pressure(self, resource: str) -> bytes | None:
        return self._files[resource].read(keeps=True)

    def _find_devices(self, now: float) -> None:
        """Count what has hardware behind it: partitions, RAID members' sums and bridges would count twice."""
        if self._devices_at is not None and now - self._devices_at < _DEVICES_PERIOD_S:
            return
        self._devices_at = now
        self._library_version = library_version(self._proc)
        disks = [name for name in list_names(f"{self._sys}/block") if not name.startswith(_UNREAL_DISKS)]
        self._disks = _real(f"{self._sys}/block", disks)
        self._nics = _real(f"{self._sys}/class/net", [n for n in list_names(f"{self._sys}/class/net") if n != "lo"])


def _real(path: str, names: Iterable[str]) -> frozenset[str]:
    """Those with a device behind them; all where none has one (virtual machines, containers)."""
    listed = frozenset(names)
    return frozenset(name for name in listed if exists(f"{path}/{name}/device")) or listed


def _host_name(proc: str) -> str | None:
    data = read(f"{proc}/sys/kernel/hostname")
    return text.clean(data.strip()) if data else None


def _boot_id(proc: str) -> str | None:
    data = read(f"{proc}/sys/kernel/random/boot_id", 64)
    return text.clean(data.strip()) if data and data.strip() else None


def _cpu_count(sys: str) -> int | None:
    online = read(f"{sys}/devices/system/cpu/online")
    return (count_listed(online.decode("ascii", "replace")) if online else None) or os.cpu_count()


def _kibibytes(data: bytes, key: bytes) -> int | None:
    found = number_after(data, key)
    return None if found is None else found * 1024


def _load(data: bytes) -> float | None:
    return _number(data.split(None, 1)[0]) if data.strip() else None


def _number(word: bytes) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _pressure_pct(data: bytes | None, kind: bytes) -> float | None:
    """Return the share of the last ten seconds in which some (or all) tasks stalled."""
    for line in (data or b"").splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == kind and words[1].startswith(b"avg10="):
            return _number(words[1][6:])
    return None


def _disk_counters(data: bytes, disks: frozenset[str]) -> dict[str, tuple[int, int, int]]:
    """Disk -> bytes read, bytes written, milliseconds with a request in flight."""
    found = {}
    for line in data.splitlines():
        words = line.split(None, 14)
        if len(words) < 13 or not (words[5].isdigit() and words[9].isdigit() and words[12].isdigit()):
            continue
        if (name := words[2].decode("utf-8", "replace")) in disks:
            found[name] = (int(words[5]) * _SECTOR_BYTES, int(words[9]) * _SECTOR_BYTES, int(words[12]))
    return found


def _net_counters(data: bytes, nics: frozenset[str]) -> list[tuple[int, int]]:
    found = []
    for line in data.splitlines():
        name, colon, rest = line.partition(b":")
        if colon and name.strip().decode("utf-8", "replace") in nics:
            words = rest.split()
            if len(words) > 8 and words[0].isdigit() and words[8].isdigit():
                found.append((int(words[0]), int(words[8])))
    return found


def _growth(counters: _Counters, before: _Counters | None, of: Callable[[_Counters], int | None]) -> float | None:
    return None if before is None else rate(of(counters), of(before), counters.at - before.at)


def _busy_pct(counters: _Counters, before: _Counters | None) -> float | None:
    if before is None or None in (counters.cpu_ticks, before.cpu_ticks):
        return None
    total = (counters.cpu_ticks or 0) - (before.cpu_ticks or 0)
    idle = (counters.cpu_idle_ticks or 0) - (before.cpu_idle_ticks or 0)
    # The idle counter may step back by a tick (Documentation/filesystems/proc.rst on iowait).
    return min(100.0, max(0.0, 100 * (1 - idle / total))) if total > 0 else None


def _disk_busy_pct(counters: _Counters, before: _Counters | None) -> float | None:
    """Return how busy the busiest disk was: one full queue stalls a loader whatever the others do."""
    if before is None:
        return None
    seconds = counters.at - before.at
    shares = [
        growth / 10
        for name, busy_ms in counters.disk_busy_ms.items()
        if (growth := rate(busy_ms, before.disk_busy_ms.get(name), seconds)) is not None
    ]
    return min(100.0, max(shares)) if shares else None
