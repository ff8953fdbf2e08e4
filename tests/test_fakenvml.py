"""The fake driver as the real nvidia-ml-py sees it."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from fakenvml import (
    GIB,
    MIB,
    FakeDriver,
    Process,
    Profile,
    a100_mig,
    gb10,
    gb10_zero,
    h100,
    laptop,
    library_that_does_not_load,
    old_driver,
    ramp,
    reasons,
    rtx4090,
    rtx5090,
    steps,
    wave,
)

MakeDriver = Callable[..., FakeDriver]
StartDriver = Callable[..., FakeDriver]


@pytest.fixture
def start(fake_driver: MakeDriver) -> Iterator[StartDriver]:
    """Starts a driver in this process, with pynvml initialised."""
    started = []

    def make(*gpus: Profile, **options: Any) -> FakeDriver:
        driver = fake_driver(gpus, **options)
        driver.load_in_process()
        pynvml.nvmlInit()
        started.append(driver)
        return driver

    yield make
    if started:
        started[-1].load_in_process()  # whatever the test broke, the next one starts without a session


def gpu(index: int = 0) -> Any:
    """A fresh handle."""
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def fails_with(code: int) -> Any:
    """The body must raise pynvml's exception for this code."""
    return pytest.raises(pynvml.nvmlExceptionClass(code))


def fields(*ids: int | tuple[int, int]) -> list[tuple[int, float]]:
    """(result, value) of each field."""
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal")
    values = pynvml.nvmlDeviceGetFieldValues(gpu(), ids)
    return [(field.nvmlReturn, getattr(field.value, members[field.valueType])) for field in values]


def run_python(driver: FakeDriver | None, code: str, extra: dict[str, str] | None = None) -> str:
    """What this code prints in a process of its own that finds the driver through the environment."""
    env = {**os.environ, **(driver.env if driver else {}), **(extra or {})}
    script = "import pynvml\n" + code
    result = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=30, check=True
    )
    return result.stdout.strip()


def test_a_subprocess_finds_the_driver_by_its_environment(fake_driver: MakeDriver) -> None:
    """pynvml in another process counts the GPUs and reads the versions and names."""
    driver = fake_driver([h100()] * 8)
    code = """
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2())
print(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(7)))
"""
    assert run_python(driver, code) == "8 580.95.05 13000\nNVIDIA H100 80GB HBM3"


def test_the_loaded_library_is_the_one_pynvml_finds(start: StartDriver) -> None:
    """In the test's own process the soname resolves to the fake driver, and the GPUs have identities of their own."""
    start(rtx4090(), rtx4090())
    handles = [gpu(index) for index in range(2)]
    uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    assert len(set(uuids)) == 2
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuids[1].encode())) == 1
    assert pynvml.nvmlDeviceGetPciInfo(handles[1]).busId == "00000000:11:00.0"


def test_each_value_arrives_in_nvmls_own_units(start: StartDriver) -> None:
    """Power in mW, temperatures, clocks and utilization as whole numbers."""
    start(h100().but(power_w=612.5, temperature=71, clock_sm=1725, utilization=40, power_averaging_s=0))
    assert pynvml.nvmlDeviceGetPowerUsage(gpu()) == 612500
    assert pynvml.nvmlDeviceGetTemperature(gpu(), pynvml.NVML_TEMPERATURE_GPU) == 71
    assert pynvml.nvmlDeviceGetTemperatureV(gpu(), pynvml.NVML_TEMPERATURE_GPU) == 71
    assert pynvml.nvmlDeviceGetClockInfo(gpu(), pynvml.NVML_CLOCK_SM) == 1725
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu()).gpu == 40
    assert pynvml.nvmlDeviceGetCudaComputeCapability(gpu()) == (9, 0)
    assert pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu()) == 700_000


def test_memory_and_processes_agree(start: StartDriver) -> None:
    """Used memory is what the processes hold; the first version of the call adds the driver's reserve."""
    driver = start(h100())
    driver.set_processes(0, [Process(os.getpid(), 20 * GIB, 90), Process(1, None), Process(2, GIB, kind="G")])
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu(), pynvml.nvmlMemory_v2)
    assert (memory.used, memory.reserved, memory.total) == (21 * GIB, 551 * MIB, 81559 * MIB)
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu()).used == 21 * GIB + 551 * MIB
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(os.getpid(), 20 * GIB), (1, None)]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu())] == [2]


def test_a_leak_grows_memory_with_time(start: StartDriver) -> None:
    """The bytes of a process may be a function of time."""
    driver = start(h100(), system={"now": 5})
    driver.set_processes(0, [Process(1, ramp(0, 10 * GIB, over_s=10))])
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu(), pynvml.nvmlMemory_v2).used == 5 * GIB


def test_a_wrong_structure_version_is_refused(start: StartDriver) -> None:
    """A structure says its size and version, and the driver looks at both."""
    start(h100())
    with fails_with(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH):
        pynvml.nvmlDeviceGetMemoryInfo(gpu(), 0x01000028)
    temperature = pynvml.c_nvmlTemperature_v1_t(version=1)
    assert pynvml.nvmlLib.nvmlDeviceGetTemperatureV(gpu(), ctypes.byref(temperature)) == 25
    support = pynvml.c_nvmlGpmSupport_t(version=2)
    assert pynvml.nvmlLib.nvmlGpmQueryDeviceSupport(gpu(), ctypes.byref(support)) == 25


def test_a_buffer_that_is_too_small_is_told_the_size(start: StartDriver) -> None:
    """INSUFFICIENT_SIZE with the count that is needed; nothing is written beyond the buffer."""
    driver = start(h100())
    driver.set_processes(0, [Process(pid, MIB) for pid in (11, 12, 13)])
    count, room = ctypes.c_uint(2), (pynvml.c_nvmlProcessInfo_v3_t * 2)()
    assert pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3(gpu(), ctypes.byref(count), room) == 7
    assert (count.value, room[0].pid) == (3, 0)
    name = ctypes.create_string_buffer(5)
    assert pynvml.nvmlLib.nvmlDeviceGetName(gpu(), name, 5) == 7


@pytest.mark.parametrize(("suffix", "size"), [("", 16), ("_v2", 24), ("_v3", 24)])
def test_every_generation_of_the_process_list_has_its_own_layout(start: StartDriver, suffix: str, size: int) -> None:
    """16 bytes a process at first, 24 since MIG."""
    driver = start(a100_mig())
    driver.set_processes(0, [Process(11, MIB, gpu_instance=3), Process(12, 2 * MIB, gpu_instance=9)])
    count, buffer = ctypes.c_uint(2), ctypes.create_string_buffer(2 * size)
    function = getattr(pynvml.nvmlLib, f"nvmlDeviceGetComputeRunningProcesses{suffix}")
    assert function(gpu(), ctypes.byref(count), buffer) == 0
    second = buffer.raw[size:]
    assert int.from_bytes(second[:4], sys.byteorder) == 12
    assert int.from_bytes(second[8:16], sys.byteorder) == 2 * MIB
    if size == 24:
        assert int.from_bytes(second[16:20], sys.byteorder) == 9


# --- values over time ----------------------------------------------------------------------------


def test_energy_is_the_integral_of_power(start: StartDriver) -> None:
    """A change of power bends the counter from the moment of the change, and it never steps back."""
    driver = start(h100(), system={"now": 100})
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 1_000_000 + 612_000 * 100
    driver.set("gpu.0.power_w", 0)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 1_000_000 + 612_000 * 100
    driver.set("now", 110)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 1_000_000 + 612_000 * 100
    driver.update({"now": 112, "gpu.0.power_w": 1000})
    pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu())
    driver.set("now", 112.5)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) == 1_000_000 + 612_000 * 100 + 500_000
    assert fields(83) == [(0, 1_000_000 + 612_000 * 100 + 500_000)]


def test_a_change_counts_from_when_it_was_made(start: StartDriver) -> None:
    """Not from when the next call notices it."""
    driver = start(h100(), uptime_s=100)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu())
    driver.set("gpu.0.power_w", 0)
    limit_s = driver.now_s - 100 + 0.3
    time.sleep(0.4)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) - before < 612_000 * limit_s


@pytest.mark.parametrize(
    ("function", "at_s", "mean_1s"),
    [
        (wave(4, 25, 100, 500), 4.5, 500 * 0.5 + 100 * 0.5),
        (wave(4, 25, 100, 500), 5.5, 500 * 0.5 + 100 * 0.5),
        (ramp(0, 100, 10), 5, 45),
        (ramp(0, 100, 10), 20, 100),
        (steps((0, 50), (4.5, 150), (9, 7)), 5, 100),
        ("30 @ 2", 5, 30),
        (ramp(0, 100, 10) + " @ 3", 5, 15),
    ],
)
def test_a_function_of_time_is_averaged_exactly(start: StartDriver, function: str, at_s: float, mean_1s: float) -> None:
    """Power averaged over the last second is the mean of the function, whatever its shape."""
    start(h100().but(power_w=function), system={"now": at_s})
    assert pynvml.nvmlDeviceGetPowerUsage(gpu()) / 1000 == pytest.approx(mean_1s)


def test_throttling_is_counted_in_nanoseconds(start: StartDriver) -> None:
    """A duty share of 40 % adds 0.4 s a second to the new fields and to the old call."""
    driver = start(h100().but({"throttle.sw_thermal": 40, "throttle.sw_power_cap": 10}), system={"now": 50})
    assert fields(269, 74) == [(0, 20_000_000_000), (0, 5_000_000_000)]
    before = pynvml.nvmlDeviceGetViolationStatus(gpu(), pynvml.NVML_PERF_POLICY_POWER)
    driver.set("now", 52)
    after = pynvml.nvmlDeviceGetViolationStatus(gpu(), pynvml.NVML_PERF_POLICY_POWER)
    assert after.referenceTime - before.referenceTime == 2_000_000
    assert after.violationTime - before.violationTime == 200_000_000


def test_the_ring_has_every_window_once(start: StartDriver) -> None:
    """Reading again from the last timestamp gives only what is new; whole windows of a wave are 0 or 100."""
    driver = start(h100().but(window_s=0.05, utilization=wave(0.1, 50, 0, 100)), system={"now": 600})
    kind, ring = pynvml.nvmlDeviceGetSamples(gpu(), pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert kind == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    assert len(ring) == 100
    assert sorted({sample.sampleValue.uiVal for sample in ring}) == [0, 100]
    assert {b.timeStamp - a.timeStamp for a, b in itertools.pairwise(ring)} == {50_000}
    driver.set("now", 600.2)
    _, news = pynvml.nvmlDeviceGetSamples(gpu(), pynvml.NVML_GPU_UTILIZATION_SAMPLES, ring[-1].timeStamp)
    assert [sample.timeStamp - ring[-1].timeStamp for sample in news] == [50_000, 100_000, 150_000, 200_000]


def test_the_ring_runs_empty_on_an_idle_gpu(start: StartDriver) -> None:
    """NOT_FOUND, while the old call still says 0 %."""
    start(h100().but(utilization=0))
    with fails_with(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetSamples(gpu(), pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu()).gpu == 0


def gpm_between(code_between: Callable[[], object], *ids: int) -> list[tuple[int, float]]:
    """(result, value) of these metrics between two samples."""
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(ids)
    request.sample1, request.sample2 = pynvml.nvmlGpmSampleAlloc(), pynvml.nvmlGpmSampleAlloc()
    for slot, metric in enumerate(ids):
        request.metrics[slot].metricId = metric
    pynvml.nvmlGpmSampleGet(gpu(), request.sample1)
    code_between()
    pynvml.nvmlGpmSampleGet(gpu(), request.sample2)
    pynvml.nvmlGpmMetricsGet(request)
    for sample in (request.sample1, request.sample2):
        pynvml.nvmlGpmSampleFree(sample)
    return [(request.metrics[slot].nvmlReturn, request.metrics[slot].value) for slot in range(len(ids))]


def test_gpm_gives_the_mean_between_two_samples(start: StartDriver) -> None:
    """Activities in percent, PCIe in MiB/s, and an unknown metric fails alone."""
    keys = {"gpm.sm": wave(0.1, 50, 0, 80), "pcie_rx_bytes_per_s": 512 * MIB}
    driver = start(h100().but(keys), system={"now": 10})
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu()).isSupportedDevice
    busy, tensor, received, unknown = gpm_between(lambda: driver.set("now", 10.4), 2, 5, 21, 199)
    assert busy == (0, pytest.approx(40))
    assert tensor == (0, pytest.approx(44))
    assert received == (0, pytest.approx(512))
    assert unknown[0] == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_pcie_throughput_blocks_and_the_byte_counters_wrap(start: StartDriver) -> None:
    """The throughput call takes its 20 ms; a 32-bit counter starts again at 4 GiB."""
    start(h100().but(pcie_rx_bytes_per_s=GIB, pcie_tx_bytes_per_s=0, pcie_counter_bits=32), system={"now": 5})
    before = time.perf_counter()
    assert pynvml.nvmlDeviceGetPcieThroughput(gpu(), pynvml.NVML_PCIE_UTIL_RX_BYTES) == GIB // 1024
    assert time.perf_counter() - before >= 0.02
    (sent, received) = fields(197, 198)
    assert sent == (0, 0)
    assert received == (0, GIB)


def test_processes_used_what_they_say_since_the_last_look(start: StartDriver) -> None:
    """One sample a second and busy process, stamped apart from the others; nothing new is NOT_FOUND."""
    driver = start(h100(), system={"now": 30})
    driver.set_processes(0, [Process(11, MIB, 70), Process(24, MIB, 20), Process(30, MIB, 0)])
    samples = pynvml.nvmlDeviceGetProcessUtilization(gpu(), 0)
    assert {sample.pid: sample.smUtil for sample in samples} == {11: 70, 24: 20}
    assert samples[0].timeStamp != samples[1].timeStamp
    newest = max(sample.timeStamp for sample in samples)
    with fails_with(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetProcessUtilization(gpu(), newest)
    driver.set("now", 31)
    assert len(pynvml.nvmlDeviceGetProcessUtilization(gpu(), newest)) == 2


# --- kinds of GPU --------------------------------------------------------------------------------


def test_a_laptop_has_no_fan_and_no_power_limit(start: StartDriver) -> None:
    """NOT_SUPPORTED, not zero."""
    start(laptop())
    for call in (pynvml.nvmlDeviceGetFanSpeed, pynvml.nvmlDeviceGetEnforcedPowerLimit):
        with fails_with(pynvml.NVML_ERROR_NOT_SUPPORTED):
            call(gpu())


def test_a_partitioned_gpu_has_instances_with_their_own_memory_and_processes(start: StartDriver) -> None:
    """Utilization is not supported on GPU or instances; each process belongs to one instance."""
    driver = start(a100_mig())
    driver.set_processes(0, [Process(11, GIB, 50, gpu_instance=1), Process(12, 2 * GIB, 50, gpu_instance=3)])
    assert pynvml.nvmlDeviceGetMigMode(gpu()) == [1, 1]
    instances = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index) for index in range(3)]
    with fails_with(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), 3)
    assert pynvml.nvmlDeviceGetName(instances[1]) == "NVIDIA A100-SXM4-40GB MIG 2g.10gb"
    assert [pynvml.nvmlDeviceGetGpuInstanceId(instance) for instance in instances] == [1, 3, 9]
    assert pynvml.nvmlDeviceGetMemoryInfo(instances[1], pynvml.nvmlMemory_v2).used == 2 * GIB
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(instances[0])] == [11]
    assert [p.gpuInstanceId for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())] == [1, 3]
    assert pynvml.nvmlDeviceGetAttributes(instances[0]).memorySizeMB == 20096
    assert pynvml.nvmlDeviceIsMigDeviceHandle(instances[2]).value == 1
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(instances[2])
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(gpu())
    for device in (gpu(), instances[0]):
        with fails_with(pynvml.NVML_ERROR_NOT_SUPPORTED):
            pynvml.nvmlDeviceGetUtilizationRates(device)
        with fails_with(pynvml.NVML_ERROR_NOT_SUPPORTED):
            pynvml.nvmlDeviceGetSamples(device, pynvml.NVML_GPU_UTILIZATION_SAMPLES, 0)


def test_an_unpartitioned_gpu_has_no_instances(start: StartDriver) -> None:
    """A GPU that could be partitioned says so, one that could not says NOT_SUPPORTED."""
    start(h100(), rtx4090())
    assert pynvml.nvmlDeviceGetMigMode(gpu(0)) == [0, 0]
    assert pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu(1)) == 0
    with fails_with(pynvml.NVML_ERROR_NOT_SUPPORTED):
        pynvml.nvmlDeviceGetMigMode(gpu(1))


def test_nvlinks_are_active_asleep_or_down(start: StartDriver) -> None:
    """Eighteen links; a sleeping one is told from a dead one by the field only."""
    start(h100().but({"nvlink.3.state": 0, "nvlink.4.state": 2}))
    assert fields(91) == [(0, 18)]
    assert fields((165, 3), (165, 4), (165, 5)) == [(0, 0), (0, 2), (0, 1)]
    assert [pynvml.nvmlDeviceGetNvLinkState(gpu(), link) for link in (3, 4, 5)] == [0, 0, 1]
    with fails_with(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceGetNvLinkState(gpu(), 18)


@pytest.mark.parametrize("version", [None, pynvml.nvmlMemory_v2])
def test_unified_memory_is_not_supported_or_zero(start: StartDriver, version: int | None) -> None:
    """Two drivers of the same machine: one refuses, one answers zeros."""
    start(gb10(), gb10_zero())
    with fails_with(pynvml.NVML_ERROR_NOT_SUPPORTED):
        pynvml.nvmlDeviceGetMemoryInfo(gpu(0), version)
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu(1), version).total == 0
    assert pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu(0)) == 1


def test_an_old_driver_lacks_the_new_names_but_has_the_old_ones(start: StartDriver) -> None:
    """FUNCTION_NOT_FOUND for what came later, unknown fields fail one by one, and the old calls answer."""
    driver = start(old_driver())
    driver.set_processes(0, [Process(11, GIB)])
    for call in (pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetComputeRunningProcesses_v3):
        with fails_with(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            call(gpu())
    driver.set("gpu.0.clocks_event_reasons", ["sw_power_cap", "sw_thermal"])
    assert pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu()) == 0x24 == reasons("sw_power_cap", "sw_thermal")
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu()).used == GIB
    assert [result for result, _ in fields(74, 269, 83)] == [0, pynvml.NVML_ERROR_INVALID_ARGUMENT, 0]
    assert pynvml.nvmlDeviceGetViolationStatus(gpu(), pynvml.NVML_PERF_POLICY_THERMAL).violationTime == 0


def test_on_blackwell_only_the_newer_process_call_works(start: StartDriver) -> None:
    """The old call never has anything, whatever runs; GPM works."""
    driver = start(rtx5090())
    driver.set_processes(0, [Process(11, GIB, 88)])
    with fails_with(pynvml.NVML_ERROR_NOT_FOUND):
        pynvml.nvmlDeviceGetProcessUtilization(gpu(), 0)
    (sample,) = pynvml.nvmlDeviceGetProcessesUtilizationInfo(gpu(), 0)
    assert (sample.pid, sample.smUtil) == (11, 88)
    assert pynvml.nvmlGpmQueryDeviceSupport(gpu()).isSupportedDevice
    driver.set("gpu.0.process_utilization", 0)
    assert [s.smUtil for s in pynvml.nvmlDeviceGetProcessUtilization(gpu(), 0)] == [0]


def test_limits_errors_and_margins_are_reported(start: StartDriver) -> None:
    """Thresholds in °C, T.Limit fields as signed offsets, ECC by kind, a margin that may be negative."""
    start(h100().but(temperature_margin=-3, ecc_volatile_uncorrected=2, recovery_action=1))
    slowdown = pynvml.nvmlDeviceGetTemperatureThreshold(gpu(), pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    assert slowdown == 97
    assert fields(193, 194, 82, 230) == [(0, -5), (0, -2), (0, 71), (0, 1)]
    assert pynvml.nvmlDeviceGetMarginTemperature(gpu()) == -3
    kinds = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
    assert pynvml.nvmlDeviceGetTotalEccErrors(gpu(), *kinds) == 2


# --- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [4, 9, 18, 999])
def test_initialising_may_fail(fake_driver: MakeDriver, code: int) -> None:
    """`init = CODE` is what nvmlInit answers, until the line is gone."""
    driver = fake_driver([h100()])
    driver.load_in_process()
    driver.set("init", code)
    with fails_with(code):
        pynvml.nvmlInit()
    assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"  # needs no session, as in the real library
    driver.set("init", None)
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 1


def test_a_missing_library_is_not_found(tmp_path: Path) -> None:
    """On any machine, with a driver or without."""
    code = """
try:
    pynvml.nvmlInit()
except pynvml.NVMLError_LibraryNotFound as error:
    print(error)
"""
    assert run_python(None, code, library_that_does_not_load(tmp_path / "lib")) == "NVML Shared Library Not Found"


def test_a_call_fails_alone(start: StartDriver) -> None:
    """For one GPU or all, by name; its neighbours and other calls answer."""
    driver = start(h100(), h100())
    driver.set("gpu.0.call.nvmlDeviceGetPowerUsage.error", 4)
    with fails_with(pynvml.NVML_ERROR_NO_PERMISSION):
        pynvml.nvmlDeviceGetPowerUsage(gpu(0))
    assert pynvml.nvmlDeviceGetPowerUsage(gpu(1)) == 612_000
    assert pynvml.nvmlDeviceGetTemperature(gpu(0), 0) == 62
    driver.set("gpu.0.temperature", "unknown")
    with fails_with(pynvml.NVML_ERROR_UNKNOWN):
        pynvml.nvmlDeviceGetTemperature(gpu(0), 0)


def test_a_lost_gpu_leaves_its_neighbours_alone(start: StartDriver) -> None:
    """GPU_IS_LOST from every call on it, and no new handle; it still counts."""
    driver = start(h100(), h100())
    lost, well = gpu(0), gpu(1)
    driver.set("gpu.0.lost", 1)
    for call in (pynvml.nvmlDeviceGetName, pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetIndex):
        with fails_with(pynvml.NVML_ERROR_GPU_IS_LOST):
            call(lost)
    with fails_with(pynvml.NVML_ERROR_GPU_IS_LOST):
        gpu(0)
    assert pynvml.nvmlDeviceGetName(well) == "NVIDIA H100 80GB HBM3"
    assert pynvml.nvmlDeviceGetCount() == 2


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_UNKNOWN])
def test_a_driver_that_was_away_needs_a_new_session(start: StartDriver, code: int) -> None:
    """The old session and its handles stay broken; shutting down and initialising again brings it back."""
    driver = start(h100())
    handle = gpu()
    driver.set("driver.gone", code)
    with fails_with(code):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    with fails_with(code):
        pynvml.nvmlInit()
    driver.set("driver.gone", None)
    with fails_with(code):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    with fails_with(pynvml.NVML_ERROR_INVALID_ARGUMENT):
        pynvml.nvmlDeviceGetPowerUsage(handle)
    assert pynvml.nvmlDeviceGetPowerUsage(gpu()) == 612_000


def test_a_hanging_call_blocks_only_its_own_thread(start: StartDriver) -> None:
    """It does not come back while others are answered, and ends as soon as its line is gone."""
    driver = start(h100(), h100())
    hung, well = gpu(0), gpu(1)
    driver.set("gpu.0.call.nvmlDeviceGetTemperature.hang_s", 30)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetTemperature(hung, 0)), daemon=True)
    thread.start()
    time.sleep(0.1)
    assert pynvml.nvmlDeviceGetTemperature(well, 0) == 62
    assert thread.is_alive()
    driver.set("gpu.0.call.nvmlDeviceGetTemperature.hang_s", None)
    thread.join(5)
    assert answers == [62]


def test_a_process_that_hangs_in_a_call_can_be_ended(fake_driver: MakeDriver) -> None:
    """The hang is a sleep, so that no test leaves an unkillable process."""
    driver = fake_driver([h100()], system={"call.nvmlDeviceGetCount_v2.hang_s": 60})
    code = "import pynvml\npynvml.nvmlInit()\nprint('in', flush=True)\npynvml.nvmlDeviceGetCount()"
    env = {**os.environ, **driver.env}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"in\n"
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM


def test_latency_is_added_to_every_call(start: StartDriver) -> None:
    """`call.*.latency_ms` makes a slow driver."""
    driver = start(h100())
    handle = gpu()
    driver.set("call.*.latency_ms", 30)
    before = time.perf_counter()
    pynvml.nvmlDeviceGetName(handle)
    assert 0.03 <= time.perf_counter() - before < 1


def test_an_xid_is_given_once_to_who_waits(start: StartDriver) -> None:
    """What was queued before registration is past; a wait without an event lasts its timeout."""
    driver = start(h100(), h100())
    driver.queue_xid(gpu=0, xid=13)
    events = pynvml.nvmlEventSetCreate()
    for index in range(2):
        pynvml.nvmlDeviceRegisterEvents(gpu(index), pynvml.nvmlEventTypeXidCriticalError, events)
    before = time.perf_counter()
    with fails_with(pynvml.NVML_ERROR_TIMEOUT):
        pynvml.nvmlEventSetWait(events, 100)
    assert time.perf_counter() - before >= 0.1
    timer = threading.Timer(0.1, driver.queue_xid, kwargs={"gpu": 1, "xid": 79})
    timer.start()
    event = pynvml.nvmlEventSetWait(events, 5000)
    timer.join()
    assert (event.eventType, event.eventData) == (pynvml.nvmlEventTypeXidCriticalError, 79)
    assert pynvml.nvmlDeviceGetIndex(event.device) == 1
    with fails_with(pynvml.NVML_ERROR_TIMEOUT):
        pynvml.nvmlEventSetWait(events, 30)
    driver.queue_event(gpu=0, kind=pynvml.nvmlEventTypeGpuUnavailableError)  # not registered for
    with fails_with(pynvml.NVML_ERROR_TIMEOUT):
        pynvml.nvmlEventSetWait(events, 30)


# --- the harness itself --------------------------------------------------------------------------


def test_calls_are_counted_while_a_process_runs_and_after(fake_driver: MakeDriver) -> None:
    """By function and process."""
    driver = fake_driver([h100()])
    code = """
import os
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
for _ in range(5):
    pynvml.nvmlDeviceGetTemperature(handle, 0)
print(os.getpid())
"""
    pids = [int(run_python(driver, code)) for _ in range(2)]
    assert driver.counts()["nvmlDeviceGetTemperature"] == 10
    assert driver.counts(pids[0]) == {
        "nvmlInitWithFlags": 1,
        "nvmlDeviceGetHandleByIndex_v2": 1,
        "nvmlDeviceGetTemperature": 5,
    }


def test_processes_share_one_clock(fake_driver: MakeDriver) -> None:
    """A process started later sees the same energy at the same moment."""
    driver = fake_driver([h100()], uptime_s=100)
    code = """
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetTotalEnergyConsumption(pynvml.nvmlDeviceGetHandleByIndex(0)))
"""
    elsewhere = int(run_python(driver, code))
    driver.load_in_process()
    pynvml.nvmlInit()
    assert 0 <= pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu()) - elsewhere < 612_000 * 20


def test_many_threads_may_call_while_the_state_changes(start: StartDriver) -> None:
    """Every answer is one of the states, and the counter never steps back."""
    driver = start(*[h100()] * 4)
    stop = threading.Event()
    failures: list[object] = []

    def read(handle: Any) -> None:
        energy = 0
        while not stop.is_set():
            now = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
            temperature = pynvml.nvmlDeviceGetTemperature(handle, 0)
            if now < energy or temperature not in (62, 80):
                failures.append((energy, now, temperature))
            energy = now
            time.sleep(0.001)

    threads = [threading.Thread(target=read, args=(gpu(index),)) for index in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(40):
        values = {f"gpu.{index}.temperature": (80, 62)[turn % 2] for index in range(4)}
        driver.update({**values, **{f"gpu.{index}.power_w": (0, 700)[turn % 2] for index in range(4)}})
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_name_that_is_not_utf_8_arrives_as_it_is(start: StartDriver) -> None:
    """Some drivers hand out garbage; pynvml then cannot decode it."""
    start(h100().but(name="NVIDIA \udcff\udcfe"))
    with pytest.raises(UnicodeDecodeError):
        pynvml.nvmlDeviceGetName(gpu())


def test_processes_that_ended_disappear_on_request(start: StartDriver) -> None:
    """Off by default: a driver also names PIDs of the host that do not exist here."""
    driver = start(h100())
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    driver.set_processes(0, [Process(os.getpid(), MIB), Process(ended.pid, MIB)])
    assert len(pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())) == 2
    driver.set("drop_dead_processes", value=True)
    assert [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu())] == [os.getpid()]
