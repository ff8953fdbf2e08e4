"""The kernel's messages: what is read from each, and that the driver's report of the same fault counts once."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from gpumon.kernel_lines import bus_of
from gpumon.model import Event
from gpumon.sources.host.happenings import SAME_S, Happenings
from gpumon.sources.host.kernel_log import KernelLog, Line, Parser
from tests import builders

BOOT_S = 1_796_000_000.0


def record(message: str, at_s: float = 12.5) -> bytes:
    """As /dev/kmsg gives it."""
    return f"4,1234,{round(at_s * 1e6)},-;{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n".encode()


def lines(*messages: str) -> list[Line]:
    """What a parser makes of these records."""
    parser = Parser(BOOT_S)
    return [line for message in messages for line in parser.read(record(message))]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
            ("xid", 0x9B, 79, None),
        ),
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout", ("xid", 0x9B, 119, 2024380)),
        ("NVRM: Xid (PCI:0000:3d:00): 43, pid=35521, Ch 00000008", ("xid", 0x3D, 43, 35521)),
        ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01", ("xid", 0x01, 149, None)),
        ("NVRM: Xid (0000:01:00): 31, Ch 00000008", ("xid", 0x01, 31, None)),
        ("Out of memory: Killed process 4242 (python) total-vm:1kB, anon-rss:1kB", ("oom-kill", None, None, 4242)),
        ("Memory cgroup out of memory: Killed process 77 (pt_data_worker) x", ("oom-kill", None, None, 77)),
        ("python[99]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+d3]", ("segfault", None, None, 99)),
    ],
)
def test_records(message: str, expected: tuple[str, int | None, int | None, int | None]) -> None:
    """Kind, GPU, code and process are read; the time is the kernel's."""
    (line,) = lines(message)
    assert (line.kind, line.bus[1] if line.bus else None, line.xid, line.pid) == expected
    assert line.time_s == BOOT_S + 12.5


@pytest.mark.parametrize(
    "messages",
    [
        (
            (
                r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0a"
                r"NVRM: fallen off the bus and is not responding to commands."
            ),
        ),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0",
            "NVRM: (PCI ID: 10de:26b5) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ),
    ],
)
def test_fallen_off_the_bus_without_xid(messages: tuple[str, ...]) -> None:
    """The words are found across wrapped lines, and the GPU in the first of them."""
    (line,) = lines(*messages)
    assert (line.kind, line.bus, line.xid) == ("gpu-lost", (0, 0xB3, 0), None)


def test_noise_and_torn_records() -> None:
    """Other messages of the driver, its helpers and of anybody say nothing, and garbage breaks nothing."""
    assert not lines("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context", "NVRM: loading")
    assert not list(Parser(0.0).read(b"NVRM: Xid (PCI:0000:9b:00): 79"))
    assert not list(Parser(0.0).read(b"4,x,y;NVRM: Xid (PCI:0000:9b:00): 79"))


def test_lines_come_from_a_thread_that_ends(tmp_path: Path) -> None:
    """Lines written before and after the start arrive; closing ends the thread."""
    fifo = tmp_path / "kmsg"
    os.mkfifo(fifo)
    keeper = os.open(fifo, os.O_RDWR)
    os.write(keeper, record("NVRM: Xid (PCI:0000:9b:00): 79, pid=1, x"))
    log = KernelLog(str(fifo))
    found = log.drain()
    deadline = time.monotonic() + 5
    while not found and time.monotonic() < deadline:
        time.sleep(0.01)
        found = log.drain()
    assert [line.xid for line in found] == [79]
    thread = next(one for one in threading.enumerate() if one.name == "kernel log")
    log.close()
    thread.join(5)
    assert not thread.is_alive()
    os.close(keeper)


def test_unreadable_log_is_an_empty_one(tmp_path: Path) -> None:
    """Where the kernel's messages may not be read there are none, and no thread."""
    log = KernelLog(str(tmp_path / "absent"))
    assert not log.drain()
    log.close()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("00000000:9B:00.0", (0, 0x9B, 0)),
        ("0009:01:00", (9, 1, 0)),
        ("00000009:01:00.0", (9, 1, 0)),
        ("1:00", (0, 1, 0)),
        ("", None),
        (None, None),
    ],
)
def test_bus_addresses(address: str | None, expected: tuple[int, int, int] | None) -> None:
    """NVML's and the kernel's way to write an address mean the same GPU."""
    expected = None if address == "1:00" else expected
    assert bus_of(address) == expected


class Told(KernelLog):
    """A log that says what it is told to."""

    def __init__(self) -> None:
        super().__init__("/nowhere")

    def tell(self, *given: Line) -> None:
        self._lines.extend(given)


def xid(number: int = 13) -> Event:
    """As the driver reports it."""
    return Event(kind="xid", gpu_uuid=builders.uuid(0), xid=number, text=f"Xid {number} on GPU 0")


def line(number: int = 13, pid: int | None = 4242) -> Line:
    """As the kernel writes it."""
    return Line("xid", 5.0, f"NVRM: Xid (PCI:0000:01:00): {number}, pid={pid}", (0, 1, 0), number, pid)


GPUS = (builders.gpu(0, pci_bus_id="00000000:01:00.0"),)


def test_both_reports_of_one_fault_count_once() -> None:
    """Whichever comes first stays; together the kernel's stays, for it names the process."""
    log = Told()
    happenings = Happenings(log)
    log.tell(line())
    (event,) = happenings.join([xid()], GPUS, 0.0)
    assert (event.pid, event.gpu_uuid, event.values) == (4242, builders.uuid(0), None)
    (event,) = happenings.join([xid(31)], GPUS, 1.0)
    assert event.pid is None
    log.tell(line(31))
    assert not happenings.join([], GPUS, 2.0)
    log.tell(line(31))
    assert len(happenings.join([], GPUS, 2.0 + SAME_S + 1.0)) == 1


def test_a_storm_is_one_event_with_its_number() -> None:
    """Thousands of equal lines become one event that says how many they were; other processes stay apart."""
    log = Told()
    log.tell(*[line(45)] * 3000, *[line(45, 77)] * 2)
    events = Happenings(log).join([xid(45)] * 3002, GPUS, 0.0)
    assert [(event.pid, event.values) for event in events] == [(4242, {"count": 3000.0}), (77, {"count": 2.0})]
