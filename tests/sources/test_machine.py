"""The machine's totals, exact from a /proc that is written down and plausible from the one at hand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from proctree import BOOT_S, GIB, FakeProc, reader_of, use

from gpumon.model import Host, Process
from gpumon.sources.host.machine import MachineReader


def machine(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.write("stat", f"cpu  1000 0 500 8000 500 0 0 0 0 0\ncpu0 1 2 3 4\nbtime {BOOT_S}\n")
    fake.write(
        "meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
    )
    fake.write("loadavg", "3.25 1.0 0.5 2/100 999\n")
    fake.write("vmstat", "nr_free_pages 5\npswpin 100\npswpout 7\n")
    fake.write(
        "pressure/cpu", "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0 avg300=0 total=0\n"
    )
    fake.write(
        "pressure/io", "some avg10=3.00 avg60=1.00 avg300=0.00 total=1\nfull avg10=9.00 avg60=0 avg300=0 total=0\n"
    )
    fake.write(
        "pressure/memory", "some avg10=9.00 avg60=1.00 avg300=0.00 total=1\nfull avg10=1.50 avg60=0 avg300=0 total=0\n"
    )
    disks(fake, sectors_read=100, sectors_written=10, busy_ms=1000)
    network(fake, rx=1000, tx=500)
    block = ("block/sda/device/x", "block/sdb/device/x", "block/md0/x")
    for name in (*block, "class/net/eth0/device/x", "class/net/br0/x", "class/net/lo/x"):
        fake.write(f"../sys/{name}", "")
    fake.write("sys/kernel/hostname", "lab7\x1b[2J\n")
    fake.write("cpuinfo", "processor : 0\nflags : fpu sse2\n")
    fake.write("../sys/devices/system/cpu/online", "0-3\n")
    for cpu, siblings in ((0, "0,2\n"), (1, "1,3\n")):
        fake.write(f"../sys/devices/system/cpu/cpu{cpu}/topology/package_cpus_list", siblings)
    fake.write("../sys/class/dmi/id/chassis_type", "23\n")
    return fake


def disks(fake: FakeProc, *, sectors_read: int, sectors_written: int, busy_ms: int) -> None:
    line = f"1 0 {sectors_read} 5 1 0 {sectors_written} 5 0 {busy_ms} 9 0 0 0 0 0 0"
    idle = "1 0 40 5 1 0 20 5 0 100 9 0 0 0 0 0 0"
    fake.write("diskstats", f"8 0 sda {line}\n8 1 sda1 {line}\n8 16 sdb {idle}\n9 0 md0 {line}\n7 0 loop0 {line}\n")


def network(fake: FakeProc, *, rx: int, tx: int) -> None:
    row = f"{rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0"
    fake.write("self/net/dev", f"Inter-| Receive\n face |bytes\n    lo: {row}\n  eth0: {row}\n   br0: {row}\n")


def test_totals_of_the_machine(tmp_path: Path) -> None:
    """Every total has the right value: rates over the time between readings, each disk and card counted once."""
    fake = machine(tmp_path)
    with reader_of(fake.proc, fake.sys) as reader:
        first = reader.read({}, 100.0)[0]
        fake.write("stat", f"cpu  1300 0 600 8500 600 0 0 0 0 0\nbtime {BOOT_S}\n")
        fake.write("vmstat", "nr_free_pages 5\npswpin 350\npswpout 7\n")
        disks(fake, sectors_read=100 + 20_000, sectors_written=10 + 200, busy_ms=1000 + 4000)
        network(fake, rx=6000, tx=1000)
        second = reader.read({}, 105.0)[0]

    assert first.name == "lab7·[2J"
    assert (first.cpu_count, first.socket_count, first.chassis) == (4, 2, "server")
    assert (first.cpu_pct, first.disk_read_bytes_per_s, first.net_rx_bytes_per_s) == (None, None, None)
    assert (first.memory_total_bytes, first.memory_available_bytes, first.swap_used_bytes) == (
        1024_000,
        409_600,
        61_440,
    )
    assert (first.cpu_pressure_pct, first.io_pressure_pct, first.memory_pressure_pct) == (12.5, 3.0, 1.5)
    assert first.load_1 == 3.25
    assert second.cpu_pct == pytest.approx(40)
    assert second.disk_read_bytes_per_s == pytest.approx(20_000 * 512 / 5)
    assert second.disk_write_bytes_per_s == pytest.approx(200 * 512 / 5)
    assert second.disk_busy_pct == pytest.approx(80)
    assert (second.net_rx_bytes_per_s, second.net_tx_bytes_per_s) == (1000, 100)
    assert second.swap_in_bytes_per_s == pytest.approx(250 * os.sysconf("SC_PAGE_SIZE") / 5)


def test_machine_without_pressure_or_swap(tmp_path: Path) -> None:
    """A kernel without PSI gives None for it; without swap nothing can be swapped in, which is a zero."""
    fake = machine(tmp_path)
    for resource in ("cpu", "io", "memory"):
        (fake.proc / "pressure" / resource).unlink()
    fake.write("meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n")
    with reader_of(fake.proc, fake.sys) as reader:
        host = reader.read({}, 100.0)[0]

    assert (host.cpu_pressure_pct, host.io_pressure_pct, host.memory_pressure_pct) == (None, None, None)
    assert (host.swap_used_bytes, host.swap_in_bytes_per_s) == (0, 0.0)


def test_machine_that_tells_nothing(tmp_path: Path) -> None:
    """With an empty /proc and /sys every total is None, and nothing is raised."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "sys").mkdir()
    with reader_of(tmp_path / "proc", tmp_path / "sys") as reader:
        reader.read({}, 1.0)
        host, processes = reader.read({7: use()}, 2.0)

    assert processes == (Process(pid=7, gpu_memory_bytes={"GPU-a": GIB}),)
    assert host == Host(cpu_count=os.cpu_count(), sees_host_pids=host.sees_host_pids, swap_in_bytes_per_s=None)


@pytest.mark.parametrize(
    ("cpuinfo", "kind", "vendor", "chassis"),
    [
        ("flags : fpu hypervisor sse\n", "1", "QEMU", "virtual"),
        ("flags : fpu sse\n", "10", "LENOVO", "laptop"),
        ("flags : fpu sse\n", "3", "ASUS", "desktop"),
        ("flags : fpu sse\n", "1", "Amazon EC2", "virtual"),
        ("flags : fpu sse\n", "2", "ASUS", None),
    ],
)
def test_chassis(tmp_path: Path, cpuinfo: str, kind: str, vendor: str, chassis: str | None) -> None:
    """Firmware and processor tell a laptop from a desktop and both from a virtual machine."""
    fake = FakeProc(tmp_path)
    fake.write("cpuinfo", cpuinfo)
    fake.write("../sys/class/dmi/id/chassis_type", f"{kind}\n")
    fake.write("../sys/class/dmi/id/sys_vendor", f"{vendor}\n")
    with reader_of(fake.proc, fake.sys) as reader:
        assert reader.read({}, 1.0)[0].chassis == chassis


def test_this_machine() -> None:
    """On the machine at hand the totals are those of the operating system."""
    with reader_of() as reader:
        reader.read({}, time.monotonic())
        time.sleep(1.1)
        host, _ = reader.read({}, time.monotonic())

    assert host.name == os.uname().nodename
    assert host.cpu_pct is not None
    assert 0 <= host.cpu_pct <= 100
    assert host.memory_total_bytes is not None
    assert host.memory_total_bytes == pytest.approx(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), rel=0.02)
    assert host.memory_available_bytes is not None
    assert 0 < host.memory_available_bytes <= host.memory_total_bytes
    assert host.cpu_count == os.cpu_count()


def test_boot_and_kills(tmp_path: Path) -> None:
    """The boot's id and the number of processes that the kernel killed for memory are read; without them None."""
    fake = FakeProc(tmp_path)
    machine = MachineReader(str(fake.proc), str(fake.sys))
    host = machine.read(0.0, 1.0)
    assert (host.boot_id, host.oom_kills) == (None, None)
    fake.write("sys/kernel/random/boot_id", "7f1b6c2e-0001\n")
    fake.write("vmstat", "nr_free_pages 1\noom_kill 3\n")
    host = MachineReader(str(fake.proc), str(fake.sys)).read(0.0, 1.0)
    assert (host.boot_id, host.oom_kills) == ("7f1b6c2e-0001", 3)
