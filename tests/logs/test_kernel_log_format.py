"""The kernel's log in all its forms: stamps, bursts, identities, and what the rules make of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.kernel_lines import Messages
from gpumon.logs.assembly import Assembly
from gpumon.logs.kernel_log import QUIET_S, KernelLog
from gpumon.logs.kernel_stamps import Clock, split
from gpumon.logs.log import Log
from gpumon.logs.reading import Place, Reading
from gpumon.model import Alert, Event, Snapshot
from gpumon.opened import Opened
from tests import builders
from tests.logs.feeding import feed
from tests.logs.samples import kernel_log as samples
from tests.logs.writers import kernel_log as writer

Found = tuple[str, int | None, int | None, float]
JUNE_2026 = 1_781_000_000.0
XID = "NVRM: Xid (PCI:0000:3b:00): "


def told(text: str) -> list[Found]:
    """Kind, number, process and how many lines of each event."""
    fed = feed(KernelLog, text)
    return [
        (facts["kind"], facts.get("xid"), facts.get("pid"), facts["values"].get("count", 1.0))
        for reading in fed.readings
        for _, facts in reading.events
    ]


def events(text: str) -> list[tuple[Place | None, dict[str, Any]]]:
    return [(place, dict(facts)) for reading in feed(KernelLog, text).readings for place, facts in reading.events]


def diagnosed(tmp_path: Path, text: str) -> Diagnosis:
    path = tmp_path / "dmesg.txt"
    path.write_text(text, encoding="utf-8")
    log = Log([Opened(path)])
    return diagnose(log, kind="kernel-log")


def said(found: Diagnosis) -> list[tuple[str, str, str]]:
    return [(one.finding.rule, one.finding.severity, one.finding.summary) for one in found.alerts]


TABLE = """\
Tue Jun  9 10:20:30 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 590.44.01              Driver Version: 590.44.01      CUDA Version: 13.1     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   2  NVIDIA H100 80GB HBM3          On  |   00000000:4E:00.0 Off |                    0 |
| N/A   61C    P0            655W /  700W |   61203MiB /  81559MiB |     98%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
"""


# --- stamps --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", writer.FORMS)
def test_every_form_tells_the_same(form: str) -> None:
    """An Xid and a kill, at their time where the form has dates, else from the boot on; to the second at least."""
    fault = Event(kind="xid", gpu_uuid=builders.uuid(0), xid=79, pid=4242, text="GPU has fallen off the bus.")
    kill = Event(kind="oom-kill", pid=77)
    gpu = builders.gpu(0, pci_bus_id="00000000:3B:00.0")
    run = [
        builders.snapshot(builders.NOON + at, [gpu], events=happened)
        for at, happened in ((0.0, ()), (30.0, (fault,)), (90.0, (kill,)), (120.0, ()))
    ]
    fed = feed(KernelLog, writer.write(run, form))
    assert not fed.left_out
    assert all("nvme" in line or "nvidia-uvm" in line for line in fed.others)
    found = [(place, facts) for reading in fed.readings for place, facts in reading.events]
    assert [(place, facts["kind"], facts.get("xid"), facts["pid"]) for place, facts in found] == [
        (Place(bus="00000000:3b:00.0"), "xid", 79, 4242),
        (None, "oom-kill", None, 77),
    ]
    first, second = (facts["time_s"] for _, facts in found)
    assert second - first == 60.0
    assert fed.readings[-1].time_s == pytest.approx(first + 90.0) or fed.others
    has_date = any(abs(first - 30.0 - base) < 1.0 for base in (builders.NOON, builders.NOON - 365 * 86_400.0))
    assert has_date or first == writer.UPTIME_S + 30.0


@pytest.mark.parametrize(
    ("line", "time_s", "has_zone"),
    [
        (f"[Mon Jun  3 12:00:00 2024] {XID}79", 1_717_416_000.0, False),
        (f"2024-06-03T12:00:00,491363+02:00 {XID}79", 1_717_408_800.491363, True),
        (f"kern  :warn  : 2024-06-03T12:00:00,500000+00:00 {XID}79", 1_717_416_000.5, True),
        (f"2024-06-03T12:00:00+0200 node1 kernel: {XID}79", 1_717_408_800.0, True),
        (f"Mon 2024-06-03 12:00:00 CEST node1 kernel: {XID}79", 1_717_416_000.0, False),
        (f"Jun  3 12:00:00 node1 kernel: {XID}79", 1_780_488_000.0, False),
        (f"Jun 03 12:00:00.250000 node1 kernel: {XID}79", 1_780_488_000.25, False),
        (f"Dec 31 12:00:00 node1 kernel: {XID}79", 1_767_182_400.0, False),
        (f"Feb 29 12:00:00 node1 kernel: {XID}79", 1_709_208_000.0, False),
        (f"Jun  3 2024 12:00:00 node1 kernel: {XID}79", 1_717_416_000.0, False),
        (f"[12345.678901] {XID}79", 12_345.678901, False),
        (f"[12345.678901] [T17] {XID}79", 12_345.678901, False),
        (f"[    0.000001 <    0.000000>] {XID}79", 0.000001, False),
        (f"4,1234,5678901,-;{XID}79", 5.678901, False),
        (f"<4>[12345.678901] {XID}79", 12_345.678901, False),
        (f"/var/log/kern.log.1:Jun  3 12:00:00 node1 kernel: {XID}79", 1_780_488_000.0, False),
        (json.dumps({"ts": 1_717_416_000, "message": f"{XID}79"}), 1_717_416_000.0, True),
        (json.dumps({"time": "2024-06-03T12:00:00.5Z", "log": f"{XID}79\n"}), 1_717_416_000.5, True),
        (f"{XID}79", None, False),
    ],
)
def test_stamps(line: str, time_s: float | None, has_zone: bool) -> None:
    """What a stamp means; a date without a year is of the latest year in which it is not in the future."""
    clock = Clock(lambda: JUNE_2026)
    head = split(line)
    assert head.message.strip() == f"{XID}79"
    assert clock.moment_of(head) == time_s
    assert clock.has_zone is has_zone


def test_time_since_boot_becomes_a_date_once_a_line_has_both() -> None:
    """As in a bug report that holds the system's log and dmesg."""
    clock = Clock(lambda: JUNE_2026)
    both = clock.moment_of(split(f"Jun  3 12:00:00 node1 kernel: [  100.000000] {XID}79"))
    assert both == 1_780_488_000.0
    assert clock.moment_of(split(f"[  160.500000] {XID}79")) == both + 60.5


def test_another_boot_goes_on_after_the_last() -> None:
    """Without dates a second boot in one file is later than the first."""
    clock = Clock()
    times = [clock.moment_of(split(f"[{up:12.6f}] {XID}79")) for up in (10.0, 5000.0, 3.0, 20.0)]
    assert times == [10.0, 5000.0, 5003.0, 5020.0]


def test_steps_between_lines_add_up() -> None:
    """``dmesg -H`` shows a minute, then only how much later each line is."""
    first, second = (facts["time_s"] for _, facts in events(samples.RELATIVE))
    assert second - first == pytest.approx(2.500005)


# --- bursts and repetitions ----------------------------------------------------------------------


def test_a_storm_is_one_reading_with_numbers() -> None:
    """Twelve exceptions, one reset and forty clean-ups of three seconds."""
    assert told(samples.STORM) == [("xid", 13, None, 12.0), ("xid", 43, 777, 1.0), ("xid", 45, 777, 40.0)]
    assert len([one for one in feed(KernelLog, samples.STORM).readings if one.events]) == 1


def test_bursts_minutes_apart_are_readings_of_their_own_with_quiet_between() -> None:
    """Alerts that are shown for a while can end between them."""
    fed = feed(KernelLog, f"[  100.000000] {XID}31, pid=9, x\n[ 9000.000000] {XID}31, pid=9, x\n[ 9500.000000] usb\n")
    assert [(one.time_s, len(one.events)) for one in fed.readings] == [
        (100.0, 0),
        (100.0, 1),
        (100.0 + QUIET_S, 0),
        (9000.0, 1),
        (9500.0, 0),
    ]


def test_what_a_bug_report_repeats_counts_once() -> None:
    """The same lines again, further down, with or without a date."""
    again = samples.NOT_STARTED + "".join(
        line.partition("kernel: ")[2] + "\n" for line in samples.NOT_STARTED.splitlines() if "kernel: " in line
    )
    assert told(again) == told(samples.NOT_STARTED) == [("gpu-init-failed", None, None, 1.0)] * 2


def test_equal_lines_of_one_second_are_counted() -> None:
    """A log of whole seconds repeats itself where the fault does."""
    assert told(f"Jun  3 12:00:00 n kernel: {XID}45, pid=9, Ch 08\n" * 30) == [("xid", 45, 9, 30.0)]


def test_a_burst_of_endless_variety_is_bounded() -> None:
    """Thousands of processes in one burst become a few hundred events that together count them all."""
    found = told("".join(f"[  100.000000] {XID}45, pid={pid}, Ch 08\n" for pid in range(1, 5001)))
    assert len(found) <= 256
    assert sum(count for *_, count in found) == 5000


# --- messages ------------------------------------------------------------------------------------


def test_a_memory_error_and_what_follows() -> None:
    """The GPU has its UUID from the line before; harmless noise says nothing."""
    found = events(samples.MEMORY_ERROR)
    place = Place(bus="00000000:4e:00.0", uuid="GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01")
    assert [(where, facts.get("xid"), facts.get("pid")) for where, facts in found] == [
        (None, None, None),
        (place, 48, None),
        (place, 63, None),
        (place, 94, None),
        (place, 94, 31001),
    ]
    assert all(facts["values"]["logged"] for _, facts in found)


def test_a_message_of_several_lines() -> None:
    """The GPU is named in the first line, the fault in the third; both are of the stamp before."""
    (where, lost), (_, start) = events(samples.FALLEN)
    assert (where, lost["kind"], lost["time_s"]) == (Place(bus="00000000:81:00.0"), "gpu-lost", 210.308145)
    assert start["kind"] == "driver-start"


def test_links() -> None:
    """Errors of a port are its GPU's where the log tells what is behind it, and nobody's where that is a disk."""
    link, port, own = events(samples.LINK)
    place = Place(bus="00000000:41:00.0")
    assert link[0] == port[0] == own[0] == place
    assert link[1]["values"] == {"gen": 3.0, "width": 4.0, "gen_max": 4.0, "width_max": 16.0, "logged": 1.0}
    assert (port[1]["values"]["count"], port[1]["values"]["is_physical"]) == (2.0, 0.0)
    assert own[1]["values"]["is_physical"] == 1.0


def test_errors_of_a_port_that_nothing_is_known_of() -> None:
    """They are told without a GPU; the text names the port."""
    line = "[ 10.000000] pcieport 0000:00:1c.4: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
    ((place, facts),) = events(line + ", (Requester ID)\n")
    assert place is None
    assert "0000:00:1c.4" in facts["text"]
    assert facts["values"] == {"is_corrected": 0.0, "is_fatal": 1.0, "is_physical": 0.0, "logged": 1.0}


def test_processes_and_switches() -> None:
    """A refusal over two lines, a kill, a crash, hanging tasks, and switch errors without their appendices."""
    found = [(facts["kind"], facts.get("pid")) for _, facts in events(samples.HOST)]
    assert found == [
        ("driver-error", None),
        ("oom-kill", 4712),
        ("segfault", 4713),
        ("task-blocked", 4714),
        ("driver-blocked", 4714),
        ("task-blocked", 4715),
        ("sxid", None),
        ("sxid", None),
    ]


def test_a_reason_stands_before_its_consequence() -> None:
    """A card that needs other modules is told so, not that it failed to start."""
    assert [(facts["kind"], place) for place, facts in events(samples.UNFIT)] == [
        ("driver-start", None),
        ("driver-error", Place(bus="00000000:02:00.0")),
    ]


def test_old_forms() -> None:
    """Addresses without ``PCI:``, failures without an address."""
    assert [(facts["kind"], place) for place, facts in events(samples.OLD)] == [
        ("gpu-init-failed", None),
        ("xid", Place(bus="00000000:03:00.0")),
    ]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", ("xid", 79, None)),
        (f"{XID}31, pid=9, Ch 00000010, intr 00000000. MMU Fault", ("xid", 31, 9)),
        (f"{XID}31, Ch 00000010, engmask 00000101, intr 10000000", ("xid", 31, None)),
        ("NVRM: Xid (PCI:0000:3b:00.0): 95, Uncontained: LTC TAG", ("xid", 95, None)),
        (f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", ("xid", 154, None)),
        ("NVRM: GPU at PCI:0000:3b:00.0 has fallen off the bus.", ("gpu-lost", None, None)),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", ("gpu-lost", None, None)),
        ("Killed process 4242 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB", ("oom-kill", None, 4242)),
        ("Killed process 4242, UID 1000, (python) total-vm:1kB", ("oom-kill", None, 4242)),
        (
            "traps: python3[99] general protection fault ip:7f10 sp:7f20 error:0 in libcuda.so.1[7f+d]",
            ("segfault", None, 99),
        ),
        ("NVRM: The NVIDIA probe routine was not called for 1 device(s).", ("driver-error", None, None)),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", ("gpu-init-failed", None, None)),
        ("nvidia: version magic '6.5.0-14 SMP' should be '6.8.0-45 SMP'", ("driver-error", None, None)),
        ("nvidia 0000:01:00.0: probe with driver nvidia failed with error -1", ("gpu-init-failed", None, None)),
        ("NVRM: GPU at 0000:3b:00.0: over-temperature, clocks reduced", ("gpu-hot", None, None)),
    ],
)
def test_single_messages(message: str, expected: tuple[str, int | None, int | None]) -> None:
    """All generations of the driver and the kernel."""
    found = Messages().read(message)
    assert found is not None
    assert (found.kind, found.xid, found.pid) == expected


@pytest.mark.parametrize(
    "message",
    [
        "NVRM: Persistence mode is deprecated and will be removed in a future release.",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "nvidia: loading out-of-tree module taints kernel.",
        "NVRM: GPU4 RPC history (CPU -> GSP):",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
        "pcieport 0000:00:03.0: AER: Corrected error received: 0000:00:03.0",
        "iwlwifi 0000:04:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "python invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0",
        "CPU: 17 PID: 2024380 Comm: nvidia-smi Tainted: P           OE     5.15.0-112-generic",
    ],
)
def test_noise(message: str) -> None:
    """Lines that go with faults, or with every start, are no faults."""
    assert Messages().read(message) is None


def test_an_xid_line_that_is_cut_off_is_named() -> None:
    """A part that cannot be read is said; the rest goes on."""
    fed = feed(KernelLog, f"[    1.000000] NVRM: Xid (PCI:0000:3b\n[    2.000000] {XID}79\n")
    assert fed.left_out == ["an Xid line without a number"]
    assert sum(len(one.events) for one in fed.readings) == 1


@pytest.mark.parametrize(
    "line",
    [
        "Nvidia-smi says nothing about kernels",
        "| NVIDIA-SMI 550.54.14              Driver Version: 550.54.14      CUDA Version: 12.4     |",
        "0, 3, 75, 61, 143.12",
        "step 12000 [12.5] loss 0.31",
        "[2024-06-03 12:00:00] epoch 3",
        '{"step": 3, "loss": 0.2}',
        "Killed",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  520.56.06",
    ],
)
def test_other_texts_are_left_to_others(line: str) -> None:
    """Only what is the kernel's begins a stretch."""
    assert not KernelLog(print, print).starts(line)


def test_other_daemons_lines_do_not_end_a_syslog() -> None:
    """Only what another format may want to read does."""
    fed = feed(KernelLog, samples.NOT_STARTED)
    assert not fed.others
    trainer = "Jun  3 11:49:54 node1 python[7]: RuntimeError: CUDA out of memory."
    assert feed(KernelLog, samples.NOT_STARTED + trainer + "\n").others == [trainer]


# --- hostile texts -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*samples.SAMPLES, samples.MEMORY_ERROR[:1031]])
def test_every_beginning_of_a_sample_can_be_read(text: str) -> None:
    """A log that is cut anywhere, and one without its beginnings of lines."""
    for length in range(0, len(text), 17):
        feed(KernelLog, text[:length])
    feed(KernelLog, "\n".join(line[20:] for line in text.split("\n")))


PIECES = (
    "a",
    "aaaa!",
    " ",
    "9",
    "[ ",
    "0:",
    "{",
    "<1>",
    "-",
    "/",
    "kernel ",
    "NVRM: GPU ",
    "Xid (",
    "PCI:",
    "task ",
    "\\",
)
BEGINNINGS = (
    "",
    "NVRM ",
    "Xid (",
    "PCIe Bus Error ",
    "PCIe bandwidth ",
    "[10de: ",
    "Killed process ",
    "blocked for more than ",
)


@pytest.mark.parametrize("piece", PIECES)
def test_no_line_takes_long(piece: str) -> None:
    """64 KiB of anything, whatever words make a line worth a look."""
    for beginning in BEGINNINGS:
        line = (beginning + piece * 65_536)[:65_536]
        reader = KernelLog(lambda _: None, lambda _: None)
        began_s = time.process_time()
        reader.starts(line)
        reader.take(line)
        reader.end()
        assert time.process_time() - began_s < 0.05


# --- what becomes of it --------------------------------------------------------------------------


def test_a_memory_error_is_one_incident_with_its_chain(tmp_path: Path) -> None:
    """Named after what began it; the UUID is known, the index is not."""
    found = diagnosed(tmp_path, samples.MEMORY_ERROR)
    (alert,) = found.alerts
    assert said(found) == [("xid", "critical", "GPU 4e:00.0: uncorrectable memory error (Xid 48)")]
    assert (alert.finding.subject.gpu, alert.finding.subject.uuid) == (None, "GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01")
    assert alert.finding.evidence[0].value == "Xid 48, 63, 94 ×3"
    assert alert.since_s == pytest.approx(9000.1, abs=0.2)
    assert alert.is_firing()


def test_a_programs_fault_with_its_teardown_is_one_warning(tmp_path: Path) -> None:
    """Not fifty-three of them."""
    assert said(diagnosed(tmp_path, samples.STORM)) == [
        ("xid", "warning", "GPU 3b:00.0: illegal address or instruction (Xid 13)")
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.FALLEN, [("gpu-lost", "critical", "GPU 81:00.0 lost (fell off the bus)")]),
        (samples.NOT_STARTED, [("gpu-lost", "critical", "GPU 5e:00.0: the driver cannot start it")]),
        (samples.UNFIT, [("driver-mismatch", "critical", "GPU 02:00.0 needs the open kernel modules")]),
    ],
)
def test_gpus_that_are_not_there(tmp_path: Path, text: str, expected: list[tuple[str, str, str]]) -> None:
    """Said at once, with the address of the one that is missing."""
    assert said(diagnosed(tmp_path, text)) == expected


def test_a_machine_in_trouble(tmp_path: Path) -> None:
    """Each trouble by the rule that knows it."""
    rules = {(rule, severity) for rule, severity, _ in said(diagnosed(tmp_path, samples.HOST))}
    assert rules == {
        ("driver-mismatch", "critical"),
        ("driver-stuck", "critical"),
        ("ram-pressure", "critical"),
        ("nvlink-down", "critical"),
        ("training-died", "critical"),
        ("no-progress-single", "warning"),
    }


def test_a_quiet_log_is_healthy(tmp_path: Path) -> None:
    """Starts of the driver, noise and other devices are nothing."""
    quiet = samples.MEMORY_ERROR.split("[ 9000")[0] + "[90000.000000] usb 1-1: new high-speed USB device number 4\n"
    found = diagnosed(tmp_path, quiet)
    assert found.alerts == ()
    assert found.duration_s == pytest.approx(90_000.0)


def test_a_reboot_ends_what_was_broken(tmp_path: Path) -> None:
    """Broken hardware stays so until the driver is loaded anew, however long the log goes on."""
    long_after = samples.MEMORY_ERROR + "[40000.000000] usb 1-1: new\n"
    assert diagnosed(tmp_path, long_after).alerts[0].is_firing()
    start = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024"
    rebooted = f"{long_after}[    1.000000] usb 1-1: new\n[    5.290021] {start}\n[ 9000.000000] usb 1-1: new\n"
    (alert,) = diagnosed(tmp_path, rebooted).alerts
    assert not alert.is_firing()
    assert alert.finding.severity == "critical"


def test_a_programs_fault_is_over_after_a_while(tmp_path: Path) -> None:
    """The log goes on for hours: it is kept with its end."""
    found = diagnosed(tmp_path, f"[  100.000000] {XID}31, pid=9, x\n[ 9000.000000] usb 1-1: new\n")
    (alert,) = found.alerts
    assert alert.cleared_s == pytest.approx(100.0 + QUIET_S)


@pytest.mark.parametrize(
    ("rule", "happened"),
    [
        ("gpu-lost", Event(kind="xid", gpu_uuid=builders.uuid(1), xid=79, text="GPU has fallen off the bus.")),
        ("xid", Event(kind="xid", gpu_uuid=builders.uuid(1), xid=95, text="Uncontained: LTC TAG")),
        ("ram-pressure", Event(kind="oom-kill", pid=4242)),
    ],
)
def test_round_trip(tmp_path: Path, rule: str, happened: Event) -> None:
    """What a run's events say when they are written as a kernel log and read back."""
    gpus = [builders.gpu(index, pci_bus_id=f"00000000:{0x17 + index:02X}:00.0") for index in range(2)]

    def run() -> list[Snapshot]:
        return [
            builders.snapshot(builders.NOON + at, gpus, events=(happened,) if at == 60 else (), interval_s=1.0)
            for at in range(90)
        ]

    top: Alert = diagnosed(tmp_path, writer.write(run(), "dmesg --time-format iso")).alerts[0]
    assert top.finding.rule == rule
    assert top.since_s == pytest.approx(builders.NOON + 60.0, abs=1.0)


def test_a_table_in_the_same_file_gives_the_gpu_its_number() -> None:
    """Address and index of one GPU come together, whichever is read first."""
    assembly, kernel = Assembly(), feed(KernelLog, f"[  100.000000] {XID}79\n").readings
    taken = [one for reading in kernel for one in assembly.take("kernel-log", reading)]
    table = Reading(time_s=builders.NOON, gpus=((Place(5, "00000000:3b:00.0"), {"utilization_pct": 3.0}),))
    taken += [*assembly.take("nvidia-smi-table", table), *assembly.end()]
    uuids = {event.gpu_uuid for snapshot in taken for event in snapshot.events}
    assert uuids == {gpu.uuid for snapshot in taken for gpu in snapshot.gpus} == {"bus:00000000:3b:00.0"}


def test_dmesg_before_a_table_is_of_the_same_day(tmp_path: Path) -> None:
    """Time since boot and dates in one file do not make a run of decades; the table gives the GPU its number."""
    found = diagnosed(tmp_path, samples.MEMORY_ERROR + "\n" + TABLE)
    assert said(found)[0] == ("xid", "critical", "GPU 2: uncorrectable memory error (Xid 48)")
    assert found.alerts[0].is_firing()
    assert found.duration_s < 86_400.0


def test_a_gpu_that_a_later_table_does_not_show_is_lost(tmp_path: Path) -> None:
    """Though others are there."""
    found = diagnosed(tmp_path, TABLE + "\n" + samples.FALLEN)
    assert said(found)[0] == ("gpu-lost", "critical", "GPU 81:00.0 lost (fell off the bus)")


def test_readers_take_what_they_give_to_anybody() -> None:
    """The reader asks for no more than a place to put things."""
    give: Callable[[Reading], None] = [].append
    reader = KernelLog(give, lambda _: None)
    reader.end()
