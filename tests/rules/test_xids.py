"""The table of Xids, and what real kernel logs of others make of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from gpumon.model import Alert, Event
from gpumon.monitor import Monitor
from gpumon.rules import xids
from gpumon.sources.host.happenings import Happenings
from gpumon.sources.host.kernel_log import KernelLog, Parser
from tests import builders

LISTED = {
    *(8, 11, 25, 32, 80, 13, 31, 37, 38, 39, 40, 41, 71, 76, 77, 43, 44, 66, 67, 45, 46, 48, 54, 60, 68, 69, 82, 83),
    *(96, 97, 61, 62, 63, 64, 74, 78, 79, 92, 93, 94, 95, 106, 107, 109, 110, 119, 120, 121, 56, 57, 58, 65, 122, 123),
    *(125, 136, 137, 140, 141, 143, *range(144, 152), *range(154, 166), 167, 171, 172),
}


def test_every_listed_number_is_known() -> None:
    """Each number of NVIDIA's catalogue has words that fit the headline and something to do."""
    assert set(xids.XIDS) >= LISTED
    for code, xid in xids.XIDS.items():
        assert xid.code == code
        assert len(xid.meaning) <= 30, xid.meaning
        assert len(f" fix {xids.fix_of(xid, 12)}") <= 70
        assert xids.fixes_of(xid, 3)


def test_a_new_number_is_not_passed_over() -> None:
    """What NVIDIA adds later is a warning that says so."""
    assert (xids.known(9999).severity, xids.known(9999).code) == ("warning", 9999)


@pytest.mark.parametrize("code", [13, 31, 43, 68, 109])
def test_programs_faults_are_no_critical_hardware(code: int) -> None:
    """Codes with which NVIDIA's own device plugin leaves a GPU in service are a warning at most."""
    assert xids.known(code).severity == "warning"
    assert xids.known(code).blame in ("program", "either")


@pytest.mark.parametrize("code", [48, 64, 74, 79, 95, 119, 140])
def test_hardware_is_critical(code: int) -> None:
    """Codes after which a GPU must be reset or replaced are critical."""
    assert xids.known(code).severity == "critical"


class Log(KernelLog):
    """The kernel's messages as a test gives them."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("/nowhere")
        parser = Parser(builders.NOON)
        for message in messages:
            self._lines.extend(parser.read(f"4,1,30000000,-;{message}\n".encode()))


def alerts_of(messages: Sequence[str], buses: Sequence[str]) -> list[Alert]:
    """What is said after half a minute of training and these messages at once."""
    gpus = [builders.gpu(index, pci_bus_id=bus) for index, bus in enumerate(buses)]
    events: tuple[Event, ...] = Happenings(Log(messages)).join((), gpus, 0.0)
    monitor = Monitor()
    alerts: tuple[Alert, ...] = ()
    for number in range(40):
        at = builders.NOON + number
        taken = builders.snapshot(at, gpus, events=events if number == 30 else (), interval_s=1.0 if number else None)
        alerts = monitor.take(taken)[1]
    return [alert for alert in alerts if alert.finding.rule == "xid" and alert.is_firing()]


NVRM = "NVRM: Xid (PCI:{}): "


@pytest.mark.parametrize(
    ("messages", "buses", "expected"),
    [
        pytest.param(
            [
                "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
                "NVRM: Xid (PCI:0000:19:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error",
                "NVRM: Xid (PCI:0000:19:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked",
                "NVRM: Xid (PCI:0000:19:00): 94, pid=4242, name=pt_main_thread, Ch 00000008",
            ],
            ["00000000:19:00.0"],
            [("gpu", 0, "critical", "xid-48")],
            id="an uncorrectable error, what follows from it, and noise are one incident",
        ),
        pytest.param(
            [
                f"NVRM: Xid (PCI:0000:38:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception {n}"
                for n in range(16)
            ]
            + ["NVRM: Xid (PCI:0000:38:00): 43, pid=4242, name=pt_main_thread, Ch 00000008"],
            ["00000000:38:00.0"],
            [("job", 0, "warning", "xid-13")],
            id="sixteen lines of one illegal access are one incident of the program",
        ),
        pytest.param(
            [
                "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)",
                "NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
                "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000)",
            ],
            ["00000008:01:00.0", "00000009:01:00.0"],
            [("gpu", 0, "critical", "xid-149"), ("gpu", 1, "critical", "xid-149")],
            id="domains other than 0 name the right GPUs",
        ),
        pytest.param(
            [
                (
                    r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0a"
                    r"NVRM: fallen off the bus and is not responding to commands."
                ),
                "NVRM: The NVIDIA probe routine failed for 1 device(s).",
            ],
            ["00000000:19:00.0"],
            [("host", None, "critical", "xid-79")],
            id="a GPU that fell off the bus without a number, and is not in the list",
        ),
        pytest.param(
            ["NVRM: Xid (PCI:0000:19:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked"],
            ["00000000:19:00.0"],
            [("gpu", 0, "info", "xid-63")],
            id="a remapped row alone is information",
        ),
    ],
)
def test_logs(messages: list[str], buses: list[str], expected: list[tuple[str, int | None, str, str]]) -> None:
    """From the kernel's messages to the alert."""
    found = [
        (alert.finding.subject.kind, alert.finding.subject.gpu, alert.finding.severity, alert.finding.cause)
        for alert in alerts_of(messages, buses)
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_a_program_that_trains_again_has_left_its_fault_behind() -> None:
    """The alert about its illegal access ends when another run trains on the GPU."""
    monitor = Monitor()
    history = []
    for number in range(300):
        first = builders.process(10)
        second = builders.process(11, started_s=builders.NOON + 60)
        processes = [first] if number < 40 else [second] if number >= 60 else []
        fault = Event(kind="xid", gpu_uuid=builders.uuid(0), xid=13, pid=10)
        events = [fault] if number == 38 else []
        taken = builders.snapshot(
            builders.NOON + number, processes=processes, events=events, interval_s=1.0 if number else None
        )
        alerts = monitor.take(taken)[1]
        mine = [alert for alert in alerts if alert.finding.rule == "xid"]
        history.append((number, [alert.is_firing() for alert in mine], [one.finding.subject.kind for one in mine]))
    firing = [number for number, states, _ in history if any(states)]
    assert firing[0] == 38
    assert 150 < firing[-1] < 250
    assert {kind for _, _, kinds in history for kind in kinds} == {"job"}
    assert all(later == earlier + 1 for earlier, later in itertools.pairwise(firing))
