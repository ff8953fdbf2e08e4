"""What a driver can do to its reader: refuse, lose GPUs, go away, come back, hang. Each with the right outcome."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from nvml_readers import MakeDriver, MakeReader, load, next_reading, until

from fakenvml import GIB, FakeDriver, Process, a100_mig, h100, rtx4090
from gpumon.errors import DriverBroken, DriverMissing, NoSourceError
from gpumon.model import Event, Gpu
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.sources.nvml.start import explanation, module_version


def gpus(reader: NvmlReader) -> list[Gpu]:
    return [reading.gpu for reading in reader.newest.gpus]


def lost(reader: NvmlReader) -> list[bool]:
    return [gpu.is_lost for gpu in gpus(reader)]


def events_of(reader: NvmlReader, kind: str, seconds: float = 5) -> list[Event]:
    """Waits for events of a kind."""
    found: list[Event] = []

    def has_come() -> bool:
        found.extend(event for event in reader.drain_events() if event.kind == kind)
        return bool(found)

    until(has_come, seconds)
    return found


def ages(reader: NvmlReader) -> list[float]:
    now = time.monotonic()
    return [now - reading.read_at for reading in reader.newest.gpus]


def reading_threads() -> int:
    return sum(thread.name == "nvml" for thread in threading.enumerate())


# --- one call fails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 4, 6, 13, 25, 999])
def test_a_refused_call_takes_its_own_field_only(fake_driver: MakeDriver, start: MakeReader, code: int) -> None:
    """Not supported, no permission, not found, no such function, unknown: None for that field, the rest is there."""
    load(fake_driver([h100()], system={f"call.{call}.error": code for call in ("nvmlDeviceGetEnforcedPowerLimit",)}))
    reader = start()
    next_reading(reader)
    (gpu,) = gpus(reader)
    assert gpu.power_limit_w is None
    assert gpu.is_lost is False
    assert (gpu.power_default_limit_w, gpu.temperature_c, gpu.utilization_pct) == (700, 62, 97)


def test_no_permission_for_anything_but_names(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A user without permission sees GPUs without values, not lost GPUs."""
    calls = [
        "UtilizationRates",
        "MemoryInfo",
        "MemoryInfo_v2",
        "Temperature",
        "TemperatureV",
        "ClockInfo",
        "PowerUsage",
    ]
    load(fake_driver([h100()], system={f"call.nvmlDeviceGet{call}.error": 4 for call in calls}))
    reader = start()
    for _ in range(3):
        next_reading(reader)
    (gpu,) = gpus(reader)
    assert gpu.is_lost is False
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert (gpu.utilization_pct, gpu.temperature_c, gpu.memory_used_bytes) == (None, None, None)
    assert reader.newest.error is None


def test_unknown_error_of_optional_calls_condemns_nobody(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Healthy GPUs answer "unknown error" to single calls: judged by utilization, memory, temperature and clock."""
    calls = ("ComputeMode", "PerformanceState", "FanSpeed_v2", "MemoryInfo_v2", "UtilizationRates", "Samples")
    load(fake_driver([h100()], system={f"call.nvmlDeviceGet{call}.error": 999 for call in calls}))
    reader = start()
    for _ in range(4):
        next_reading(reader)
    (gpu,) = gpus(reader)
    assert gpu.is_lost is False
    assert gpu.utilization_pct is None
    assert gpu.temperature_c == 62
    assert gpu.memory_used_bytes is not None


# --- GPUs get lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16])
def test_a_lost_gpu_keeps_its_identity(fake_driver: MakeDriver, start: MakeReader, code: int) -> None:
    """Lost or to be reset: that GPU is lost with its name, values None, its processes remembered; neighbours go on."""
    driver = load(fake_driver([h100(), rtx4090(), h100()]))
    driver.set_processes(1, [Process(55, GIB, sm_pct=10)])
    reader = start()
    driver.set("gpu.1.lost", code)
    until(lambda: lost(reader)[1])
    gpu = gpus(reader)[1]
    assert lost(reader) == [False, True, False]
    assert (gpu.name, gpu.index, gpu.pci_bus_id) == ("NVIDIA GeForce RTX 4090", 1, "00000000:11:00.0")
    assert gpu.uuid.startswith("GPU-00000001")
    assert (gpu.utilization_pct, gpu.temperature_c, gpu.memory_used_bytes, gpu.power_w) == (None, None, None, None)
    assert reader.newest.uses()[55].memory_bytes == {gpu.uuid: None}
    assert gpus(reader)[2].utilization_pct == 97
    assert reader.newest.error is None
    (event,) = events_of(reader, "gpu-lost")
    assert event.gpu_uuid == gpu.uuid
    next_reading(reader)
    assert max(ages(reader)) < 1  # that it is lost is a fresh fact


def test_a_lost_gpu_comes_back(fake_driver: MakeDriver, start: MakeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a reset the same GPU answers again under its UUID."""
    monkeypatch.setattr("gpumon.sources.nvml.watch.LOOK_AGAIN_S", 0.2)
    driver = load(fake_driver([h100(), h100()]))
    reader = start()
    driver.set("gpu.0.lost", 1)
    until(lambda: lost(reader) == [True, False])
    driver.set("gpu.0.lost", None)
    until(lambda: lost(reader) == [False, False])
    assert gpus(reader)[0].temperature_c == 62
    assert events_of(reader, "gpu-back")


def test_lost_parent_loses_its_instances(fake_driver: MakeDriver, start: MakeReader) -> None:
    """MIG instances are lost with their GPU and stay rows of their own."""
    driver = load(fake_driver([a100_mig(), rtx4090()]))
    reader = start()
    driver.set("gpu.0.lost", 1)
    until(lambda: lost(reader) == [True, True, True, True, False])
    assert gpus(reader)[1].mig_profile == "3g.20gb"


def test_unknown_error_from_all_of_one_gpu_is_a_loss(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A GPU whose vital calls all give "unknown error" twice running is lost; its neighbour is not."""
    driver = load(fake_driver([h100(), h100()]))
    reader = start()
    driver.set("gpu.1.call.*.error", 999)
    until(lambda: lost(reader) == [False, True])
    assert driver.counts()["nvmlInitWithFlags"] == 1
    assert gpus(reader)[0].temperature_c == 62


def test_one_pass_of_unknown_errors_is_a_hiccup(fake_driver: MakeDriver, start: MakeReader) -> None:
    """For a single bad pass the last values stay, with their age."""
    driver = load(fake_driver([h100(), h100()]))
    reader = start(0.4)
    driver.set("gpu.1.call.*.error", 999)
    next_reading(reader)
    driver.set("gpu.1.call.*.error", None)
    assert lost(reader) == [False, False]
    assert ages(reader)[1] > 0.3 > ages(reader)[0]
    assert gpus(reader)[1].temperature_c == 62
    next_reading(reader)
    assert ages(reader)[1] < 0.3


def test_a_gpu_that_drops_out_of_the_count_is_lost(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Fewer GPUs than at the start: the one that is missing is lost, by its UUID, and stays in its place."""
    driver = load(fake_driver([h100(), h100(), rtx4090()]))
    reader = start()
    driver.set("gpu.2.uuid", None)
    until(lambda: lost(reader) == [False, False, True])
    assert gpus(reader)[2].name == "NVIDIA GeForce RTX 4090"


def test_a_count_that_fails_condemns_nobody(fake_driver: MakeDriver, start: MakeReader) -> None:
    """An unknown error from the count alone is no reason to start NVML again."""
    driver = load(fake_driver([h100()]))
    reader = start()
    driver.set("call.nvmlDeviceGetCount_v2.error", 999)
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        next_reading(reader)
    assert lost(reader) == [False]
    assert max(ages(reader)) < 0.3
    assert reader.newest.error is None
    assert driver.counts()["nvmlInitWithFlags"] == 1


def test_a_gpu_that_was_lost_before_the_start(fake_driver: MakeDriver, tmp_path: Path) -> None:
    """It is shown as lost with the address that the kernel module still lists; the others work."""
    driver = load(fake_driver([h100(), h100()]))
    driver.set("gpu.0.lost", 1)
    for address in ("0000:01:00.0", "0000:11:00.0"):
        (tmp_path / "driver/nvidia/gpus" / address).mkdir(parents=True)
    reading = NvmlReader(proc=tmp_path).read_once()
    first, second = (gpu.gpu for gpu in reading.gpus)
    assert (first.is_lost, first.index, first.pci_bus_id) == (True, 0, "0000:01:00.0")
    assert (second.is_lost, second.index, second.temperature_c) == (False, 1, 62)


def test_gpus_of_another_container_are_not_ours(fake_driver: MakeDriver) -> None:
    """A GPU whose handle is not permitted is not shown; when that is all of them, it is said."""
    driver = load(fake_driver([h100(), h100()]))
    driver.set("gpu.0.lost", 4)
    assert [gpu.gpu.index for gpu in NvmlReader().read_once().gpus] == [1]
    driver.set("gpu.1.lost", 4)
    with pytest.raises(DriverBroken, match="no permission to use the NVIDIA driver"):
        NvmlReader().read_once()


# --- starting fails ---------------------------------------------------------------------------------

VERSION_FILE = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)
GCC version:  gcc version 12.3.0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc where the kernel module tells its version."""
    (tmp_path / "driver/nvidia").mkdir(parents=True)
    (tmp_path / "driver/nvidia/version").write_text(VERSION_FILE)
    return tmp_path


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        (9, DriverBroken, "the NVIDIA kernel driver is not loaded: run  sudo modprobe nvidia  or reboot"),
        (4, DriverBroken, "no permission to use the NVIDIA driver: ask for access to /dev/nvidiactl"),
        (18, DriverBroken, "driver 580.95.05 and library 575.57 do not match: reboot, or reload the nvidia kernel"),
        (13, DriverBroken, "driver 580.95.05 is too old for gpumon: install 450 or newer"),
        (15, DriverBroken, "a GPU fell off the bus and NVML does not start: reboot the node"),
        (8, DriverBroken, "a GPU lacks its power cables"),
        (999, DriverBroken, "NVML says Unknown Error: in a container, its GPUs were taken away"),
        (23, DriverBroken, "NVML does not start (Unknown Error, code 23): see  dmesg | grep -i nvrm"),
    ],
)
def test_a_failed_start_says_what_to_do(
    fake_driver: MakeDriver, proc: Path, code: int, kind: type[NoSourceError], line: str
) -> None:
    """Each reason not to start is one line that says which it is and what to do."""
    load(fake_driver([h100()], system={"init": code, "nvml_version": "12.575.57"}))
    with pytest.raises(kind) as error:
        NvmlReader(proc=proc).read_once()
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    reader = NvmlReader(proc=proc)
    reader.start()
    with pytest.raises(kind):
        reader.wait_until_ready(5)
    reader.close()


def test_no_library_is_no_driver() -> None:
    """Without the library there is no driver: the demo may open."""
    error = explanation(12)
    assert isinstance(error, DriverMissing)
    assert str(error) == (
        "no NVIDIA driver here (libnvidia-ml.so.1 not found). Install it, or start the container with --gpus all."
    )


def test_no_gpu_is_no_driver(fake_driver: MakeDriver) -> None:
    """A driver without a GPU: nothing to watch, and it is not called broken."""
    load(fake_driver([]))
    with pytest.raises(DriverMissing, match="no NVIDIA GPU here"):
        NvmlReader().read_once()


def test_versions_of_the_kernel_module(proc: Path, tmp_path: Path) -> None:
    """Both wordings of the version file are read; where it is missing the line does without."""
    assert module_version(proc) == "580.95.05"
    old = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    (proc / "driver/nvidia/version").write_text(old)
    assert module_version(proc) == "535.104.05"
    assert module_version(tmp_path / "nowhere") is None


def test_mismatch_where_nothing_can_be_read(fake_driver: MakeDriver, tmp_path: Path) -> None:
    """The mismatch is named even where neither version can be told."""
    load(fake_driver([h100()], system={"call.nvmlSystemGetNVMLVersion.error": 1}))
    assert str(explanation(18, tmp_path)) == (
        "driver and library do not match: reboot, or reload the nvidia kernel modules."
    )


# --- the driver goes away ---------------------------------------------------------------------------


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts to start again in fractions of a second."""
    monkeypatch.setattr("gpumon.sources.nvml.reader.RETRIES_S", (0.2, 0.3))


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("code", [1, 9, 18, 999])
def test_a_driver_that_goes_away_is_picked_up_again(fake_driver: MakeDriver, start: MakeReader, code: int) -> None:
    """Uninitialised, unloaded, replaced, unknown everywhere: last values age, why is said, and it comes back."""
    driver = load(fake_driver([h100(), rtx4090()]))
    NvmlReader().read_once()  # started twice in this process: one shutdown would not do
    reader = start()
    before = [gpu.uuid for gpu in gpus(reader)]
    driver.set("driver.gone", code)
    until(lambda: reader.newest.error is not None)
    answered_at = reader.newest.answered_at
    next_reading(reader)
    next_reading(reader)
    assert reader.newest.answered_at == answered_at
    assert [gpu.uuid for gpu in gpus(reader)] == before
    assert lost(reader) == [False, False]
    assert gpus(reader)[0].temperature_c == 62
    assert min(ages(reader)) > 0.2
    (event,) = events_of(reader, "driver-error")
    assert event.text == reader.newest.error
    driver.set("driver.gone", None)
    until(lambda: reader.newest.error is None)
    until(lambda: max(ages(reader)) < 0.2)
    assert [gpu.uuid for gpu in gpus(reader)] == before
    assert gpus(reader)[1].temperature_c == 62
    assert events_of(reader, "driver-back")
    driver.queue_xid(1, 48)
    assert events_of(reader, "xid")[0].xid == 48


@pytest.mark.usefixtures("quick_retries")
def test_a_driver_that_comes_back_with_fewer_gpus(fake_driver: MakeDriver, start: MakeReader) -> None:
    """After a reload the GPU that is missing is lost, not forgotten."""
    driver = load(fake_driver([h100(), rtx4090()]))
    reader = start()
    driver.set("driver.gone", 9)
    until(lambda: reader.newest.error is not None)
    driver.update({"driver.gone": None, "gpu.1.uuid": None})
    until(lambda: reader.newest.error is None and lost(reader) == [False, True])
    assert gpus(reader)[1].name == "NVIDIA GeForce RTX 4090"


@pytest.mark.usefixtures("quick_retries")
def test_unknown_error_from_the_only_gpu(fake_driver: MakeDriver, start: MakeReader) -> None:
    """With one GPU, "unknown error" may be the driver: NVML is started again once, and then it is the GPU."""
    driver = load(fake_driver([h100()]))
    reader = start()
    driver.set("gpu.0.call.*.error", 999)
    until(lambda: lost(reader) == [True])
    assert driver.counts()["nvmlInitWithFlags"] == 2
    assert gpus(reader)[0].name == "NVIDIA H100 80GB HBM3"
    for _ in range(4):
        next_reading(reader)
    assert driver.counts()["nvmlInitWithFlags"] == 2


# --- calls hang -------------------------------------------------------------------------------------


def test_a_gpu_that_hangs_is_left_alone(fake_driver: MakeDriver, start: MakeReader) -> None:
    """One new thread goes on with the others; the GPU that hangs keeps its values and ages; later it is read again."""
    driver = load(fake_driver([h100(), h100(), h100()]))
    reader = start(0.1, hang_after_s=0.4)
    driver.set("gpu.1.call.nvmlDeviceGetTemperature.hang_s", 60)
    until(lambda: max(ages(reader)) > 0.3)
    reader.replace_hung_thread()
    assert reading_threads() == 1  # not yet
    until(lambda: max(ages(reader)) > 0.8)
    calls = driver.counts()["nvmlDeviceGetTemperature"]
    reader.replace_hung_thread()
    assert reading_threads() == 2
    until(lambda: ages(reader)[0] < 0.2 and ages(reader)[2] < 0.2)
    for _ in range(4):
        next_reading(reader)
        reader.replace_hung_thread()
    assert reading_threads() == 2
    assert ages(reader)[1] > 0.8
    assert gpus(reader)[1].temperature_c == 62
    assert lost(reader) == [False, False, False]
    assert driver.counts()["nvmlDeviceGetTemperature"] > calls
    driver.set("gpu.1.call.nvmlDeviceGetTemperature.hang_s", None)
    until(lambda: max(ages(reader)) < 0.3)
    assert reading_threads() == 1


def test_a_second_gpu_that_hangs(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Each GPU that hangs costs one thread, and the third is still read."""
    driver = load(fake_driver([h100(), h100(), h100()]))
    reader = start(0.1, hang_after_s=0.3)
    for gpu in (2, 0):
        driver.set(f"gpu.{gpu}.call.*.hang_s", 60)
        until(lambda gpu=gpu: ages(reader)[gpu] > 0.5)
        reader.replace_hung_thread()
        until(lambda: ages(reader)[1] < 0.2)
    assert reading_threads() == 3
    assert ages(reader)[0] > 0.3
    assert ages(reader)[2] > 0.5
    driver.update({"gpu.0.call.*.hang_s": None, "gpu.2.call.*.hang_s": None})
    until(lambda: max(ages(reader)) < 0.3)


def test_a_driver_that_hangs_altogether(fake_driver: MakeDriver, start: MakeReader) -> None:
    """When the replacement gets no answer either, no third thread is spent on it."""
    driver = load(fake_driver([h100(), h100(), h100()]))
    reader = start(0.1, hang_after_s=0.3)
    driver.set("call.*.hang_s", 60)
    began = time.monotonic()
    while time.monotonic() - began < 2:
        reader.replace_hung_thread()
        time.sleep(0.05)
    assert reading_threads() <= 2
    assert min(ages(reader)) > 1
    driver.set("call.*.hang_s", None)
    until(lambda: max(ages(reader)) < 0.3)


def test_closing_does_not_wait_for_the_driver(fake_driver: MakeDriver, start: MakeReader) -> None:
    """``close`` returns at once while a call hangs, and the process is not held by its threads."""
    driver = load(fake_driver([h100()]))
    reader = start(0.1)
    driver.set("call.*.hang_s", 30)
    until(lambda: max(ages(reader)) > 0.3)
    began = time.monotonic()
    reader.close()
    assert time.monotonic() - began < 0.05
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("nvml"))
    driver.set("call.*.hang_s", None)


def test_a_start_that_hangs(fake_driver: MakeDriver) -> None:
    """While NVML itself does not start there is no reading, and nobody waits longer than they asked to."""
    driver = load(fake_driver([h100()], system={"call.nvmlInitWithFlags.hang_s": 30}))
    reader = NvmlReader(0.1)
    reader.start()
    began = time.monotonic()
    assert reader.wait_until_ready(0.3) is False
    assert time.monotonic() - began < 0.6
    driver.set("call.nvmlInitWithFlags.hang_s", None)
    assert reader.wait_until_ready(5) is True
    reader.close()


# --- events -----------------------------------------------------------------------------------------


def test_events_come_by_themselves(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Xid, unavailable GPU, memory error, recovery action: each is an event of its GPU, with the moment it came."""
    driver = load(fake_driver([h100(), rtx4090()]))
    reader = start(5)
    time.sleep(0.1)
    driver.queue_xid(1, 79)
    (xid,) = events_of(reader, "xid")
    assert (xid.xid, xid.gpu_uuid) == (79, gpus(reader)[1].uuid)
    assert xid.text == "Xid 79 on GPU 1 (00000000:11:00.0)"
    assert xid.time_s == pytest.approx(time.time(), abs=2)
    driver.queue_event(0, 0x4000)
    (unavailable,) = events_of(reader, "gpu-lost")
    assert unavailable.gpu_uuid == gpus(reader)[0].uuid
    driver.queue_event(0, 0x2)
    assert events_of(reader, "ecc")[0].text == "uncorrectable memory error on GPU 0 (00000000:01:00.0)"
    driver.queue_event(1, 0x8000, 2)
    assert events_of(reader, "recovery-action")[0].text is not None


def test_no_events_no_spinning(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A set that fails at once, as with a lost GPU in it, is not asked in a loop; where there are no events it ends."""
    driver = load(fake_driver([h100()], system={"call.nvmlEventSetWait_v2.error": 15}))
    reader = start(0.1)
    for _ in range(5):
        next_reading(reader)
    assert driver.counts()["nvmlEventSetWait_v2"] <= 2
    reader.close()
    none: FakeDriver = load(fake_driver([h100().but(event_types=0)]))
    reader = start(0.1)
    next_reading(reader)
    assert none.counts()["nvmlEventSetWait_v2"] == 0


def test_closing_ends_the_event_thread(fake_driver: MakeDriver, start: MakeReader) -> None:
    """It leaves the driver within its timeout of a second."""
    load(fake_driver([h100()]))
    reader = start()
    reader.close()
    until(lambda: not any(t.name == "nvml events" for t in threading.enumerate()), 3)


def test_a_fault_of_ours_reaches_the_consumer(
    fake_driver: MakeDriver, start: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception nobody expected is raised where it can be shown, not swallowed by a thread."""
    load(fake_driver([h100()]))
    reader = start()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("gpumon.sources.nvml.gpu.memory", broken)

    def has_failed() -> bool:
        try:
            reader.raise_failure()
        except ZeroDivisionError:
            return True
        return False

    until(has_failed)
