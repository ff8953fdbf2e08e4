"""The NVML reader over the fake driver: right values for every kind of GPU, right cadence, a single start."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_readers import MakeDriver, MakeReader, load, next_reading, second_gpus

from fakenvml import (
    GIB,
    MIB,
    Process,
    Profile,
    a100_mig,
    gb10,
    gb10_zero,
    h100,
    laptop,
    old_driver,
    ramp,
    rtx4090,
    rtx5090,
    wave,
)
from gpumon.errors import UsageError
from gpumon.sources.nvml.calls import Asker
from gpumon.sources.nvml.counters import Counter
from gpumon.sources.nvml.devices import Selection
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.sources.nvml.session import Session
from gpumon.sources.nvml.throttle import counter_fields

# --- values -----------------------------------------------------------------------------------------


def test_h100_reports_everything(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A data-centre GPU fills every field, from the call that is right for it."""
    load(fake_driver([h100()]))
    (gpu,) = second_gpus(start())
    assert gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.pci_bus_id == "00000000:01:00.0"
    assert gpu.utilization_pct == 97
    assert gpu.memory_utilization_pct == 60
    assert (gpu.encoder_pct, gpu.decoder_pct) == (0, 0)
    assert gpu.memory_total_bytes == 81559 * MIB
    assert gpu.memory_reserved_bytes == 551 * MIB
    assert gpu.memory_used_bytes == 0
    assert gpu.memory_is_shared is False
    assert gpu.power_w == pytest.approx(612, rel=0.02)
    assert (gpu.power_limit_w, gpu.power_default_limit_w) == (700, 700)
    assert gpu.energy_j is not None
    assert (gpu.temperature_c, gpu.memory_temperature_c) == (62, 71)
    assert (gpu.temperature_slowdown_c, gpu.temperature_max_c, gpu.temperature_shutdown_c) == (97, 90, 100)
    assert gpu.temperature_margin_c == 28
    assert gpu.fan_pct is None
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (1980, 1980)
    assert (gpu.memory_clock_mhz, gpu.memory_clock_max_mhz) == (2619, 2619)
    assert gpu.performance_state == "P0"
    assert gpu.clocks_event_reasons == ()
    assert gpu.pcie_rx_bytes_per_s == pytest.approx(2e9, rel=0.05)
    assert gpu.pcie_tx_bytes_per_s == pytest.approx(3e8, rel=0.05)
    assert (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (5, 5, 16, 16)
    assert (gpu.nvlinks_active, gpu.nvlinks_total) == (18, 18)
    assert gpu.graphics_active_pct == pytest.approx(97, abs=0.5)
    assert gpu.sm_active_pct == pytest.approx(82, abs=0.5)
    assert gpu.sm_occupancy_pct == pytest.approx(31, abs=0.5)
    assert gpu.tensor_active_pct == pytest.approx(44, abs=0.5)
    assert gpu.dram_active_pct == pytest.approx(52, abs=0.5)
    assert gpu.fp32_active_pct == pytest.approx(8, abs=0.5)
    assert gpu.fp64_active_pct == pytest.approx(0, abs=0.5)
    assert gpu.ecc_uncorrected == 0
    assert gpu.mig_enabled is False
    assert gpu.compute_mode == "default"


def test_video_engines(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Their shares are read; None where the driver does not tell them."""
    load(fake_driver([rtx4090().but(encoder=61, decoder=8), rtx4090().but(encoder="not_supported")]))
    first, second = second_gpus(start())
    assert (first.encoder_pct, first.decoder_pct) == (61, 8)
    assert (second.encoder_pct, second.decoder_pct) == (None, 0)


def test_consumer_card_has_none_where_it_has_nothing(fake_driver: MakeDriver, start: MakeReader) -> None:
    """What a 4090 does not report is None, never 0: memory temperature, ECC, NVLink, GPM."""
    load(fake_driver([rtx4090()]))
    (gpu,) = second_gpus(start())
    assert gpu.fan_pct == 46
    assert gpu.clocks_event_reasons == ("sw_power_cap",)
    absent = (gpu.memory_temperature_c, gpu.ecc_uncorrected, gpu.nvlinks_total, gpu.nvlinks_active)
    assert absent == (None, None, None, None)
    assert gpu.sm_active_pct is None
    assert gpu.mig_enabled is None


def test_laptop_without_fan_and_limit(fake_driver: MakeDriver, start: MakeReader) -> None:
    """On a laptop fans and limits belong to the machine: None, and the rest is there."""
    load(fake_driver([laptop()]))
    (gpu,) = second_gpus(start())
    assert (gpu.fan_pct, gpu.power_limit_w, gpu.power_default_limit_w) == (None, None, None)
    assert gpu.power_w == pytest.approx(88, rel=0.03)
    assert gpu.pcie_width == 8


def test_mig_instances_follow_their_parent(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Each instance is a row after its GPU, with profile, parent, memory and processes; utilization is None."""
    driver = load(fake_driver([rtx4090(), a100_mig(), rtx4090()]))
    driver.set_processes(1, [Process(4242, 7 * GIB, gpu_instance=1), Process(4343, 2 * GIB, gpu_instance=9)])
    reading = next_reading(start())
    gpus = [gpu for gpu, _, _ in reading.gpus]
    assert [gpu.index for gpu in gpus] == [0, 1, 0, 1, 2, 2]
    parent, instances = gpus[1], gpus[2:5]
    assert parent.mig_enabled is True
    assert parent.utilization_pct is None
    assert parent.power_w is not None
    assert [instance.mig_profile for instance in instances] == ["3g.20gb", "2g.10gb", "1g.5gb"]
    assert {instance.mig_parent_uuid for instance in instances} == {parent.uuid}
    assert {instance.pci_bus_id for instance in instances} == {parent.pci_bus_id}
    assert [instance.memory_total_bytes for instance in instances] == [20096 * MIB, 9856 * MIB, 4864 * MIB]
    assert [instance.memory_used_bytes for instance in instances] == [7 * GIB, 0, 2 * GIB]
    assert {instance.power_w for instance in instances} == {None}
    uses = reading.uses()
    assert uses[4242].memory_bytes == {instances[0].uuid: 7 * GIB}
    assert uses[4343].memory_bytes == {instances[2].uuid: 2 * GIB}
    assert uses[4242].sm_pct is None


@pytest.mark.parametrize("profile", [gb10, gb10_zero])
def test_unified_memory_is_the_hosts(fake_driver: MakeDriver, start: MakeReader, profile: Callable) -> None:
    """GB10 says "not supported" or 0 bytes: the host's memory, marked as shared, and no PCIe link."""
    load(fake_driver([profile()]))
    (gpu,) = second_gpus(start())
    kib = {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()[:5]}
    assert gpu.memory_is_shared is True
    assert gpu.memory_total_bytes == kib["MemTotal"] * 1024
    assert gpu.memory_used_bytes == pytest.approx((kib["MemTotal"] - kib["MemAvailable"]) * 1024, abs=2 * GIB)
    assert (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (None, None, None, None)
    assert gpu.power_limit_w is None


def test_old_driver_by_its_old_calls(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A driver of 2021 answers by version 1 of memory and process list, old throttle counters and one fan."""
    driver = load(fake_driver([old_driver().but({"throttle.thermal": 20, "throttle.sw_power_cap": 35})]))
    driver.set_processes(0, [Process(777, 3 * GIB, sm_pct=50), Process(778, 1 * GIB, kind="G")])
    reader = start(0.3)
    next_reading(reader)
    reading = next_reading(reader)
    gpu, _, holders = reading.gpus[0]
    assert (gpu.memory_used_bytes, gpu.memory_reserved_bytes) == (4 * GIB, None)
    assert [(holder.pid, holder.memory_bytes) for holder in holders] == [(777, 3 * GIB), (778, GIB)]
    assert gpu.fan_pct == 58
    assert gpu.clocks_event_reasons == ()
    assert gpu.temperature_margin_c is None
    assert gpu.power_w == pytest.approx(238, rel=0.02)
    assert gpu.throttled_pct is not None
    assert gpu.throttled_pct["sw_power_cap"] == pytest.approx(35, abs=2)
    assert gpu.throttled_pct["sw_thermal"] == pytest.approx(20, abs=2)
    assert "hw_power_brake" not in gpu.throttled_pct
    assert reading.versions == ("465.19.01", "11.465.19.01", "11.3")


def test_throttle_fields_missing_altogether(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Without counter fields the deprecated call is asked; heat counts as hardware's when its bit alone is set."""
    profile = old_driver().but({"throttle.thermal": 40, "field_max": 60, "clocks_event_reasons": ("hw_thermal",)})
    load(fake_driver([profile]))
    (gpu,) = second_gpus(start(0.3))
    assert gpu.throttled_pct is not None
    assert gpu.throttled_pct["hw_thermal"] == pytest.approx(40, abs=2)
    assert "sw_thermal" not in gpu.throttled_pct


def test_thermal_counters_before_they_were_renumbered(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Drivers before 580.82 have the thermal counters at 251 to 253, and at 269 to 271 something that is no time."""
    fields = {"field.251": ramp(0, 0.4e12, 1000), "field.252": 0, "field.253": 7, "field.269": 0, "field.270": 100}
    load(fake_driver([h100().but(fields)], system={"driver_version": "580.65.06"}))
    (gpu,) = second_gpus(start(0.4))
    assert gpu.throttled_pct is not None
    assert gpu.throttled_pct["sw_thermal"] == pytest.approx(40, abs=3)
    assert (gpu.throttled_pct["hw_thermal"], gpu.throttled_pct["hw_power_brake"]) == (0, 0)
    assert counter_fields("580.82.07")["sw_thermal"] == 269
    assert counter_fields("535.183.01")["sw_thermal"] == 251
    assert counter_fields(None)["hw_power_brake"] == 271


def test_throttle_shares_are_counted_in_nanoseconds(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Each reason's share of the interval comes from its own counter."""
    throttle = {"throttle.sw_power_cap": 80, "throttle.sw_thermal": 12.5, "throttle.hw_power_brake": 100}
    load(fake_driver([h100().but(throttle)]))
    (gpu,) = second_gpus(start(0.3))
    assert gpu.throttled_pct == pytest.approx(
        {"sw_power_cap": 80, "sync_boost": 0, "sw_thermal": 12.5, "hw_thermal": 0, "hw_power_brake": 100}, abs=2
    )


def test_mig_instances_have_their_own_activity(fake_driver: MakeDriver, start: MakeReader) -> None:
    """On Hopper each instance is sampled by GPM through its parent; it is all that says whether it works."""
    keys = {**h100().keys, "mig_mode": 1}
    instance = {
        "gpu_instance": 2,
        "compute_instance": 0,
        "gpu_slices": 3,
        "compute_slices": 3,
        "memory_total": 40 * GIB,
    }
    instance |= {f"gpm.{part}": 50 for part in ("graphics", "sm", "occupancy", "tensor", "dram", "fp64", "fp32")}
    load(fake_driver([Profile("NVIDIA H100 80GB HBM3", keys, (instance,), h100().system)]))
    parent, inside = second_gpus(start(0.2))
    assert parent.mig_enabled is True
    assert (inside.mig_profile, inside.name) == ("3g.40gb", "NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    assert inside.sm_active_pct is not None
    assert inside.utilization_pct is None


def test_blackwell_process_shares(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Where the old call has nothing (or only zeros) for a busy GPU, the newer one is used."""
    driver = load(fake_driver([rtx5090(), rtx5090().but(process_utilization=0), rtx4090()]))
    for gpu in range(3):
        driver.set_processes(gpu, [Process(1000 + gpu, GIB, sm_pct=64), Process(1100 + gpu, GIB, sm_pct=0)])
    reading = next_reading(start())
    shares = [[holder.sm_pct for holder in gpu.holders] for gpu in reading.gpus]
    assert shares == [[64, 0], [64, 0], [64, 0]]


def test_power_is_the_mean_from_the_energy_counter(fake_driver: MakeDriver, start: MakeReader) -> None:
    """First the driver's reading, then Δenergy/Δt: a wave that a sample would miss gives its mean."""
    profile = h100().but(power_w=wave(0.05, 50, 100, 500), power_averaging_s=0, has_power_fields=0)
    load(fake_driver([profile]))
    reader = start(0.5)
    first = reader.newest.gpus[0].gpu.power_w
    assert first in {100, 500}
    assert next_reading(reader).gpus[0].gpu.power_w == pytest.approx(300, rel=0.06)


def test_power_without_energy_counter(fake_driver: MakeDriver, start: MakeReader) -> None:
    """No energy counter: the plain call, and without it the field."""
    refused = {"call.nvmlDeviceGetTotalEnergyConsumption.error": 3, "gpu.1.call.nvmlDeviceGetPowerUsage.error": 26}
    old = rtx4090().but({"field.83": "not_supported", "has_power_fields": 0, "power_w": 201})
    new = rtx4090().but({"field.83": "not_supported", "power_w": 202})
    load(fake_driver([old, new], system=refused))
    gpus = second_gpus(start())
    assert [gpu.power_w for gpu in gpus] == [201, 202]
    assert [gpu.energy_j for gpu in gpus] == [None, None]


def test_energy_counter_that_restarts_is_no_negative_power(fake_driver: MakeDriver, start: MakeReader) -> None:
    """After a counter went back, power is the driver's reading until there is a new mean."""
    driver = load(fake_driver([h100().but({"field.83": 5_000_000})]))
    reader = start(0.15)
    next_reading(reader)
    driver.set("gpu.0.field.83", 1000)
    for _ in range(3):
        power_w = next_reading(reader).gpus[0].gpu.power_w
        assert power_w == pytest.approx(612, abs=1)


def test_ring_gives_the_windows_between_readings(fake_driver: MakeDriver, start: MakeReader) -> None:
    """The first reading has no windows; each later one those since the last, every window once."""
    load(fake_driver([h100().but(utilization=wave(1, 50, 0, 100), window_s=0.1)]))
    reader = start(0.5)
    assert reader.newest.gpus[0].gpu.utilization_samples_pct == ()
    windows = [next_reading(reader).gpus[0].gpu.utilization_samples_pct for _ in range(4)]
    assert all(4 <= len(part) <= 6 for part in windows)
    every = [value for part in windows for value in part]
    assert len(every) == pytest.approx(20, abs=1)
    assert sum(every) / len(every) == pytest.approx(50, abs=6)


def test_shares_of_more_processes_than_before(fake_driver: MakeDriver) -> None:
    """Room is asked for when it does not suffice, not before each reading; nobody's share is lost over it."""
    driver = load(fake_driver([h100()]))
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    try:
        for number, count in enumerate((3, 3, 3, 40, 40, 3)):
            driver.set_processes(0, [Process(1000 + one, GIB, sm_pct=1 + one) for one in range(count)])
            time.sleep(1.05)  # the driver makes a sample a second
            before = driver.counts()["nvmlDeviceGetProcessUtilization"]
            gpu.read(time.monotonic() + 4 * number)
            asked = driver.counts()["nvmlDeviceGetProcessUtilization"] - before
            assert [holder.sm_pct for holder in gpu.readings[0].holders] == [1 + one for one in range(count)]
            assert asked == (2 if number in (0, 3) else 1)
    finally:
        session.end()


def test_share_of_a_process_that_has_stopped(fake_driver: MakeDriver) -> None:
    """The driver keeps the last sample of an idle process: it counts once, then the share is a measured 0."""
    driver = load(fake_driver([h100()]))
    driver.set_processes(0, [Process(7, GIB, sm_pct=80), Process(8, GIB, sm_pct=20)])
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    gpu.read(1000.0)
    assert [holder.sm_pct for holder in gpu.readings[0].holders] == [80, 20]
    driver.set_processes(0, [Process(7, GIB, sm_pct=0), Process(8, GIB, sm_pct=20)])
    time.sleep(1.1)
    gpu.read(1002.0)
    time.sleep(1.1)
    gpu.read(1004.0)
    assert [holder.sm_pct for holder in gpu.readings[0].holders] == [0, 20]
    session.close()


def test_empty_ring_of_an_idle_gpu(fake_driver: MakeDriver, start: MakeReader) -> None:
    """An idle GPU's ring is empty or refused; its utilization is still a measured 0."""
    load(fake_driver([h100().but(utilization=0, ring_awake_s=0), rtx4090().but(has_ring=0, utilization=0)]))
    gpus = second_gpus(start())
    assert [gpu.utilization_samples_pct for gpu in gpus] == [(), ()]
    assert [gpu.utilization_pct for gpu in gpus] == [0, 0]


def test_memory_falls_back_from_version_2(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Version 2 missing, or answering "unknown error" (WSL): version 1, whose used includes the reserve."""
    missing = load(fake_driver([h100().but(memory_used=GIB)], system={"call.nvmlDeviceGetMemoryInfo_v2.error": 999}))
    (gpu,) = second_gpus(start())
    assert gpu.memory_used_bytes == GIB + 551 * MIB
    assert gpu.memory_reserved_bytes is None
    missing.set("call.nvmlDeviceGetMemoryInfo_v2.error", 13)
    assert gpu.is_lost is False


@pytest.mark.parametrize("margin", [0, -3])
def test_margin_at_or_below_zero_is_no_margin(fake_driver: MakeDriver, start: MakeReader, margin: int) -> None:
    """Some GPUs answer 0 or less to the margin call whatever the temperature."""
    load(fake_driver([h100().but(temperature_margin=margin)]))
    (gpu,) = second_gpus(start())
    assert gpu.temperature_margin_c is None


def test_sleeping_nvlinks_count_as_active(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Of 18 links one is down and two sleep: 17 are active."""
    links = {"nvlink.3.state": 0, "nvlink.7.state": 2, "nvlink.8.state": 2}
    load(fake_driver([h100().but(links)]))
    (gpu,) = second_gpus(start())
    assert (gpu.nvlinks_active, gpu.nvlinks_total) == (17, 18)


def test_narrow_byte_counters_are_not_trusted(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A byte counter of 32 bits wraps several times a second: the slow call answers instead."""
    load(fake_driver([rtx4090().but(pcie_counter_bits=32, pcie_rx_bytes_per_s=20e9)]))
    (gpu,) = second_gpus(start(0.4))
    assert gpu.pcie_rx_bytes_per_s == pytest.approx(20e9, rel=0.05)


def test_strings_from_the_driver_are_clean(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Control characters in a name never reach a terminal; bytes that are no text do not end the reader."""
    load(fake_driver([h100().but(name="RTX\x1b[31m 6000")]))
    assert start().newest.gpus[0].gpu.name == "RTX·[31m 6000"

    def garbage(_: object) -> str:
        return b"\xffRTX".decode()

    assert Asker(None).text("name", garbage) == "\N{REPLACEMENT CHARACTER}RTX"


def test_process_lists_that_lie(fake_driver: MakeDriver, start: MakeReader) -> None:
    """Memory that is not said or larger than the card is None; a list in the wrong layout is read by an older call."""
    driver = load(fake_driver([rtx4090(), rtx4090().but(short_process_layout=1)]))
    driver.set_processes(0, [Process(10, None), Process(11, 900 * GIB), Process(12, GIB, kind="C+G")])
    driver.set_processes(1, [Process(20, 10 * GIB), Process(21, 11 * GIB), Process(22, 12 * GIB)])
    first, second = start().newest.gpus
    assert [(holder.pid, holder.memory_bytes) for holder in first.holders] == [(10, None), (11, None), (12, GIB)]
    assert [(holder.pid, holder.memory_bytes) for holder in second.holders] == [
        (20, 10 * GIB),
        (21, 11 * GIB),
        (22, 12 * GIB),
    ]


def test_many_processes(fake_driver: MakeDriver, start: MakeReader) -> None:
    """More processes than the first buffer holds are all listed."""
    driver = load(fake_driver([h100()]))
    driver.set_processes(0, [Process(1000 + n, MIB) for n in range(150)])
    assert len(start().newest.gpus[0].holders) == 150


def test_one_process_on_several_gpus(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A process is one, with its memory and share on each of its GPUs."""
    driver = load(fake_driver([h100(), h100()]))
    driver.set_processes(0, [Process(50, 10 * GIB, sm_pct=70)])
    driver.set_processes(1, [Process(50, 20 * GIB, sm_pct=30)])
    reading = start().newest
    first, second = (gpu.gpu.uuid for gpu in reading.gpus)
    assert reading.uses()[50] == ({first: 10 * GIB, second: 20 * GIB}, {first: 70, second: 30})


# --- selection --------------------------------------------------------------------------------------


def test_gpus_are_chosen_by_index_uuid_and_mig_uuid(fake_driver: MakeDriver, start: MakeReader) -> None:
    """A GPU brings its instances; an instance comes alone; a beginning of a UUID is enough."""
    load(fake_driver([h100(), a100_mig(), rtx4090()]))

    def shown(*wanted: str) -> list[str]:
        return [gpu.gpu.mig_profile or str(gpu.gpu.index) for gpu in start(gpus=wanted).newest.gpus]

    assert shown("2", "0") == ["0", "2"]
    assert shown("1") == ["1", "3g.20gb", "2g.10gb", "1g.5gb"]
    assert shown("GPU-00000002") == ["2"]
    assert shown("MIG-00000001-fa4e-5000-8000-000000000001") == ["2g.10gb"]
    assert shown("MIG-GPU-00000001-fa4e-4000-8000-000000000001/9/0", "0") == ["0", "1g.5gb"]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("7", "--gpus 7: no such GPU; GPUs here are 0 to 1."),
        ("GPU-00000001-fa4e-4000-8000-000000000009", "did you mean GPU-00000001-fa4e-4000-8000-000000000001?"),
        ("GPU-", "begins the names of 2 GPUs here; write more of it"),
    ],
)
def test_unknown_gpu_is_a_usage_error(fake_driver: MakeDriver, wanted: str, hint: str) -> None:
    """A GPU that is not here is one line that names the nearest right thing."""
    load(fake_driver([h100(), h100()]))
    with pytest.raises(UsageError) as error:
        NvmlReader(gpus=[wanted]).read_once()
    assert hint in str(error.value)


# --- once and cadence -------------------------------------------------------------------------------


def test_one_reading_without_threads(fake_driver: MakeDriver) -> None:
    """``read_once`` takes power as it is at the moment and leaves everything out that needs two readings."""
    driver = load(fake_driver([h100().but(power_averaging_s=0), a100_mig()]))
    driver.set_processes(0, [Process(99, GIB, sm_pct=10)])
    threads = set(threading.enumerate())
    reading = NvmlReader().read_once()
    assert set(threading.enumerate()) <= threads
    gpu, _, holders = reading.gpus[0]
    assert gpu.power_w == pytest.approx(612)
    assert gpu.utilization_pct == 97
    assert gpu.memory_total_bytes == 81559 * MIB
    assert [holder.pid for holder in holders] == [99]
    rates = (gpu.throttled_pct, gpu.pcie_rx_bytes_per_s, gpu.sm_active_pct, gpu.utilization_samples_pct)
    assert rates == (None, None, None, ())
    assert len(reading.gpus) == 5
    counts = driver.counts()
    assert counts["nvmlDeviceGetPcieThroughput"] == 0
    assert counts["nvmlEventSetCreate"] == 0


def test_calls_of_a_minute(fake_driver: MakeDriver) -> None:
    """Each call comes as often as its value is worth: 8 GPUs cost some 80 calls a second, and one for each GPM."""
    driver = load(fake_driver([h100().but(utilization=97) for _ in range(4)] + [rtx4090() for _ in range(4)]))
    session = Session(Selection(None), deque())
    for gpu in session.gpus:
        gpu.read(1000.0)
    before = driver.counts()
    for second in range(1, 60):
        session.count(1000.0 + second)
        for gpu in session.gpus:
            gpu.read(1000.0 + second)
    calls = driver.counts() - before
    session.close()
    per_gpu = {name: count / 8 for name, count in calls.items()}
    assert per_gpu["nvmlDeviceGetUtilizationRates"] == 59
    assert per_gpu["nvmlDeviceGetSamples"] == 59
    assert per_gpu["nvmlDeviceGetMemoryInfo_v2"] == 59
    assert per_gpu["nvmlDeviceGetComputeRunningProcesses_v3"] == pytest.approx(29, abs=1)
    assert per_gpu["nvmlDeviceGetGraphicsRunningProcesses_v3"] == pytest.approx(5, abs=1)
    assert per_gpu["nvmlDeviceGetCurrPcieLinkWidth"] == pytest.approx(11, abs=1)
    assert per_gpu["nvmlDeviceGetEnforcedPowerLimit"] == pytest.approx(11, abs=1)
    assert 1 <= per_gpu["nvmlDeviceGetEncoderUtilization"] <= 2
    assert 1 <= per_gpu["nvmlDeviceGetDecoderUtilization"] <= 2
    assert per_gpu["nvmlDeviceGetPcieThroughput"] * 2 <= 2 * 6  # only the four without counters: twice each 10 s
    assert "nvmlDeviceGetName" not in calls
    assert "nvmlDeviceGetTemperatureThreshold" not in calls
    assert calls["nvmlDeviceGetPowerUsage"] == 0
    assert calls["nvmlDeviceGetTotalEccErrors"] <= 4
    per_second = sum(calls.values()) / 59
    gpm = (calls["nvmlGpmSampleGet"] + calls["nvmlGpmMetricsGet"]) / 59
    assert gpm <= 4.2
    assert per_second - gpm < 80


@pytest.mark.parametrize(("count", "every_s"), [(4, 2), (5, 4)])
def test_lists_of_crowded_gpus_are_asked_for_less_often(fake_driver: MakeDriver, count: int, every_s: int) -> None:
    """Nobody reads so many processes every two seconds."""
    driver = load(fake_driver([h100()]))
    driver.set_processes(0, [Process(1000 + one, GIB) for one in range(count)])
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    for second in range(61):
        gpu.read(1000.0 + second)
    session.close()
    calls = driver.counts()
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"] == pytest.approx(60 / every_s, abs=1)
    assert calls["nvmlDeviceGetProcessUtilization"] == pytest.approx(60 / every_s, abs=2)


def test_activity_is_sampled_every_second_pass(fake_driver: MakeDriver) -> None:
    """The first difference comes as soon as there is one; from then on each stands for two passes."""
    driver = load(fake_driver([h100().but(utilization=97)]))
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    shown, asked = [], []
    for second in range(6):
        gpu.read(1000.0 + second)
        shown.append(gpu.readings[0].gpu.sm_active_pct is not None)
        asked.append(driver.counts()["nvmlGpmSampleGet"])
    session.close()
    assert shown == [False, True, True, True, True, True]
    assert asked == [1, 2, 2, 3, 3, 4]


def test_how_long_a_call_may_take(fake_driver: MakeDriver) -> None:
    """With persistence mode a pass hangs after 10 s; without, healthy calls can take seconds, so after 30 s."""
    load(fake_driver([h100(), h100().but(persistence=0)]))
    session = Session(Selection(None), deque())
    for gpu in session.gpus:
        gpu.read(1000.0)
    assert [gpu.hang_after_s for gpu in session.gpus] == [10, 30]
    session.close()


def test_rate_of_a_counter() -> None:
    """Per second since the last reading; None at first, after a restart and when it is missing; never negative."""
    counter = Counter()
    readings = [(10.0, 100.0), (11.0, 150.0), (13.0, 150.0), (14.0, 20.0), (15.0, 30.0), (16.0, None), (17.0, 40.0)]
    assert [counter.rate(at_s, count) for at_s, count in readings] == [None, 50, 0, None, 10, None, None]


def test_rate_over_a_window() -> None:
    """A counter that moves in coarse steps is averaged over at least the window, at whatever interval it is read."""
    counter = Counter(window_s=1.0)
    rates = [counter.rate(tick / 10, 20.0 * (tick // 5)) for tick in range(31)]
    assert rates[5] == pytest.approx(40)
    assert all(rate == pytest.approx(40, abs=5) for rate in rates[15:])
    assert Counter(window_s=1.0).rate(0.0, 5.0) is None


def test_a_refused_call_is_asked_again_after_a_minute(fake_driver: MakeDriver) -> None:
    """Permissions and drivers change under a long run: what was refused comes back."""
    driver = load(fake_driver([h100()], system={"call.nvmlDeviceGetEnforcedPowerLimit.error": 4}))
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    gpu.read(1000.0)
    driver.set("call.nvmlDeviceGetEnforcedPowerLimit.error", None)
    gpu.read(1030.0)
    assert gpu.readings[0].gpu.power_limit_w is None
    gpu.read(1070.0)
    assert gpu.readings[0].gpu.power_limit_w == 700
    session.close()


def test_nvml_is_started_once(fake_driver: MakeDriver, start: MakeReader) -> None:
    """One start for the life of the reader, and no shutdown."""
    driver = load(fake_driver([h100(), rtx4090()]))
    reader = start(0.05)
    for _ in range(6):
        next_reading(reader)
    counts = driver.counts()
    assert counts["nvmlInitWithFlags"] == 1
    assert counts["nvmlShutdown"] == 0


def test_the_interval_can_be_changed_at_once(fake_driver: MakeDriver, start: MakeReader) -> None:
    """From 30 s to 0.1 s without waiting the 30 s out."""
    load(fake_driver([h100()]))
    reader = start(30)
    began = time.monotonic()
    reader.interval_s = 0.1
    next_reading(reader)
    next_reading(reader)
    assert time.monotonic() - began < 1


def test_new_mig_instances_appear(fake_driver: MakeDriver) -> None:
    """Instances made and destroyed during a run come and go."""
    driver = load(fake_driver([a100_mig()]))
    session = Session(Selection(None), deque())
    (gpu,) = session.gpus
    gpu.read(1000.0)
    driver.set("gpu.0.mig.1.uuid", None)
    gpu.read(1011.0)
    assert [reading.gpu.mig_profile for reading in gpu.readings] == [None, "3g.20gb", "1g.5gb"]
    driver.set("gpu.0.mig_mode", 0)
    driver.set("gpu.0.utilization", 55)
    time.sleep(0.4)
    gpu.read(1081.0)
    assert [reading.gpu.utilization_pct for reading in gpu.readings] == [55]
    session.close()
