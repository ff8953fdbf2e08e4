"""The fake driver as the real nvidia-ml-py sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pynvml
import pytest

from fakenvml import (
    GIB,
    MIB,
    FakeDriver,
    Process,
    Profile,
    h100,
    library_that_does_not_load,
    ramp,
    rtx4090,
    wave,
)

MakeDriver = Callable[..., FakeDriver]


@pytest.fixture
def start(fake_driver: MakeDriver) -> Iterator[Callable[..., FakeDriver]]:
    """Starts a driver in this process, with pynvml initialised."""
    started = []

    def make(*gpus: Profile, **options: float) -> FakeDriver:
        driver = fake_driver(gpus, **options)
        driver.load_in_process()
        pynvml.nvmlInit()
        started.append(driver)
        return driver

    yield make
    if started:
        started[-1].load_in_process()  # whatever the test broke, the next one starts without a session


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


def test_the_loaded_library_is_the_one_pynvml_finds(start: Callable[..., FakeDriver]) -> None:
    """In the test's own process the soname resolves to the fake driver, and the GPUs have identities of their own."""
    start(rtx4090(), rtx4090())
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    assert len(set(uuids)) == 2
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuids[1].encode())) == 1
    assert pynvml.nvmlDeviceGetPciInfo(handles[1]).busId == "00000000:11:00.0"


def test_each_value_arrives_in_nvmls_own_units(start: Callable[..., FakeDriver]) -> None:
    """Power in mW, temperatures, clocks and utilization as whole numbers."""
    driver = start(h100())
    driver.update({"gpu.0.power_w": 612.5, "gpu.0.temperature": 71, "gpu.0.clock_sm": 1725, "gpu.0.utilization": 40})
    time.sleep(0.4)
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    driver.set("gpu.0.power_averaging_s", 0)
    assert pynvml.nvmlDeviceGetPowerUsage(gpu) == 612500
    assert pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU) == 71
    assert pynvml.nvmlDeviceGetTemperatureV(gpu, pynvml.NVML_TEMPERATURE_GPU) == 71
    assert pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM) == 1725
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 40


def test_memory_and_processes_agree(start: Callable[..., FakeDriver]) -> None:
    """Used memory is what the processes hold; the first version of the call adds the driver's reserve."""
    driver = start(h100())
    driver.set_processes(0, [Process(os.getpid(), 20 * GIB, 90), Process(1, None), Process(2, GIB, kind="G")])
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
    assert (memory.used, memory.reserved, memory.total) == (21 * GIB, 551 * MIB, 81559 * MIB)
    assert pynvml.nvmlDeviceGetMemoryInfo(gpu).used == 21 * GIB + 551 * MIB
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert [(p.pid, p.usedGpuMemory) for p in compute] == [(os.getpid(), 20 * GIB), (1, None)]
    assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(gpu)] == [2]


def test_energy_is_the_integral_of_power(start: Callable[..., FakeDriver]) -> None:
    """A change of power bends the counter from the moment of the change, and it never steps back."""
    driver = start(h100(), uptime_s=100)
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    driver.set("gpu.0.power_w", 0)
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    assert before == pytest.approx(1_000_000 + 612_000 * 100, rel=0.01)
    time.sleep(0.1)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) == pytest.approx(before, abs=1)
    driver.set("gpu.0.power_w", 1000)
    start_s = time.monotonic()
    time.sleep(0.2)
    gained = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before
    assert gained == pytest.approx(1_000_000 * (time.monotonic() - start_s), rel=0.05)
