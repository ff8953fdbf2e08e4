"""What the NVML reader says about links, fabric, fans and the place of a GPU, over the fake driver."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from nvml_readers import MakeDriver, MakeReader, load, second_gpus

from fakenvml import a100_mig, gb10, h100, laptop, ramp, rtx4090
from gpumon.sources.nvml import place as nvml_place
from gpumon.sources.nvml.calls import Asker
from gpumon.sources.nvml.devices import find_gpus
from gpumon.sources.nvml.gpu import GpuReader


def reader_of(fake_driver: MakeDriver, *profiles: object) -> list[GpuReader]:
    """Readers driven by the test's own clock."""
    load(fake_driver(list(profiles)))
    import pynvml

    pynvml.nvmlInit()
    return [GpuReader(device, "580.95") for device in find_gpus(Path("/proc"))]


def test_h100_has_all_its_links_and_their_errors(fake_driver: MakeDriver, start: MakeReader) -> None:
    """NVLink traffic from GPM, totals of errors, fabric state, replays and multiprocessors."""
    profile = h100().but(nvlink_crc_flit_errors=3, nvlink_crc_data_errors=4, nvlink_replay_errors=5, pcie_replays=7)
    load(fake_driver([profile.but(pcie_correctable_errors=9, temperature_memory_max=95)]))
    (gpu,) = second_gpus(start())
    assert (gpu.nvlinks_active, gpu.nvlinks_total) == (18, 18)
    assert gpu.nvlink_rx_bytes_per_s == pytest.approx(90e9, rel=0.02)
    assert gpu.nvlink_tx_bytes_per_s == pytest.approx(90e9, rel=0.02)
    assert (gpu.nvlink_crc_errors, gpu.nvlink_errors, gpu.nvlink_recovery_failures) == (7, 12, 0)
    assert (gpu.pcie_replays, gpu.pcie_correctable_errors) == (7, 9)
    assert gpu.fabric_state == "completed"
    assert gpu.memory_temperature_max_c == 95
    assert gpu.sm_count == 132


def test_errors_are_summed_over_links_where_there_are_no_totals(fake_driver: MakeDriver) -> None:
    """Twelve links with five CRC errors and one replay each."""
    profile = a100_mig().but({"mig_mode": 0, "field.163": 5, "field.161": 1, "field.162": 0})
    (reader, *_) = reader_of(fake_driver, profile)
    gpu = reader.read(1000.0).gpu
    assert (gpu.nvlink_crc_errors, gpu.nvlink_errors, gpu.nvlink_recovery_failures) == (60, 72, None)


def test_nvlink_traffic_from_counters_without_gpm(fake_driver: MakeDriver) -> None:
    """An A100 counts bytes over all its links; a rate needs two readings."""
    profile = a100_mig().but(mig_mode=0, nvlink_rx_bytes_per_s=5e9, nvlink_tx_bytes_per_s=1e9)
    (reader, *_) = reader_of(fake_driver, profile)
    first = reader.read(1000.0).gpu
    time.sleep(1.0)  # the counters run by the real clock
    second = reader.read(1006.0).gpu
    assert first.nvlink_rx_bytes_per_s is None
    assert second.nvlink_rx_bytes_per_s == pytest.approx(5e9, rel=0.02)
    assert second.nvlink_tx_bytes_per_s == pytest.approx(1e9, rel=0.02)


def test_a_link_that_is_down_is_not_counted(fake_driver: MakeDriver) -> None:
    """Seventeen of eighteen are active."""
    readers = reader_of(fake_driver, h100().but({"nvlink.3.state": 0}), h100())
    assert [reader.read(1000.0).gpu.nvlinks_active for reader in readers] == [17, 18]


def test_errors_are_asked_every_ten_seconds(fake_driver: MakeDriver) -> None:
    """In between the last counts stand, and the rest of the link is read every five."""
    (reader,) = reader_of(fake_driver, h100().but(nvlink_replay_errors=ramp(0, 1000, over_s=0.001)))
    counts = [reader.read(1000.0 + 5 * number).gpu.nvlink_errors for number in range(3)]
    assert counts[0] == counts[1] == 1000


def test_consumer_card_has_no_links_beyond_pcie(fake_driver: MakeDriver, start: MakeReader) -> None:
    """No NVLink, no fabric, no sensor limit: None, never 0; the fan's target is there."""
    load(fake_driver([rtx4090().but(fan_target_pct=48)]))
    (gpu,) = second_gpus(start())
    assert (gpu.fan_pct, gpu.fan_target_pct) == (46, 48)
    absent = (gpu.nvlink_errors, gpu.nvlink_rx_bytes_per_s, gpu.fabric_state, gpu.memory_temperature_max_c)
    assert absent == (None, None, None, None)
    assert gpu.sm_count == 128
    assert gpu.pcie_replays == 0


@pytest.mark.parametrize(("number", "word"), [(0, "ac"), (1, "battery"), (2, "undersized"), (9, None)])
def test_power_source_of_a_laptop(fake_driver: MakeDriver, number: int, word: str | None) -> None:
    """Battery and a charger that is too small are told apart."""
    (reader,) = reader_of(fake_driver, laptop().but(power_source=number))
    assert reader.read(1000.0).gpu.power_source == word


def test_gb10_has_no_pcie_link(fake_driver: MakeDriver) -> None:
    """Its Gen1 x1 is a placeholder: neither link nor errors are read."""
    (reader,) = reader_of(fake_driver, gb10())
    gpu = reader.read(1000.0).gpu
    assert (gpu.pcie_gen, gpu.pcie_width, gpu.pcie_gen_max, gpu.pcie_width_max, gpu.pcie_replays) == (None,) * 5


def test_fabric_states(fake_driver: MakeDriver) -> None:
    """Every state has its word."""
    readers = reader_of(fake_driver, *(h100().but(fabric_state=state) for state in range(4)))
    words = [reader.read(1000.0).gpu.fabric_state for reader in readers]
    assert words == ["not-supported", "not-started", "in-progress", "completed"]


@pytest.mark.parametrize(("content", "node"), [("1\n", 1), ("-1\n", None), ("", None)])
def test_numa_node_is_the_kernels(fake_driver: MakeDriver, tmp_path: Path, content: str, node: int | None) -> None:
    """From the PCI device in sysfs, whose domain has four digits; -1 is no node."""
    (reader,) = reader_of(fake_driver, h100())
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "numa_node").write_text(content)
    asker: Asker = reader.asker
    assert nvml_place.learn(asker, "00000000:01:00.0", tmp_path)["numa_node"] == node
