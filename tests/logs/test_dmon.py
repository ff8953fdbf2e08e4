"""``nvidia-smi dmon``."""

from __future__ import annotations

import pytest

from gpumon.logs.dmon import NOT_SUPPORTED, DmonReader
from gpumon.logs.reading import Facts, Place, Reading
from gpumon.model import Gpu, Snapshot
from tests.logs.feeding import feed
from tests.logs.samples.dmon import (
    CSV,
    EVERYTHING,
    GPM,
    HEADLESS,
    OLD,
    OLDEST,
    REFUSED,
    STAMPED,
    USUAL,
)
from tests.logs.writers import dmon as writer

MIB = 1024**2
MIDNIGHT = 1_772_409_600.0
"""2026-03-02 00:00:00, as written."""


def read(text: str) -> list[Reading]:
    readings, left_out, others = feed(DmonReader, text)
    assert (left_out, others) == ([], [])
    return readings


def facts(reading: Reading, index: int = 0) -> Facts:
    return dict(reading.gpus)[Place(index)]


def test_rows_of_one_moment_are_one_reading() -> None:
    first, second = read(USUAL)
    assert facts(first) == {
        "power_w": 301.0,
        "temperature_c": 61.0,
        "memory_temperature_c": 70.0,
        "utilization_pct": 97.0,
        "memory_utilization_pct": 55.0,
        "encoder_pct": 0.0,
        "decoder_pct": 0.0,
        "memory_clock_mhz": 1593.0,
        "sm_clock_mhz": 1980.0,
    }
    assert (first.time_s, first.interval_s) == (None, 1.0)
    assert facts(second, 1)["power_w"] == 75.0


def test_a_dash_is_unknown() -> None:
    first, second = read(USUAL)
    assert "memory_temperature_c" not in facts(first, 1)
    assert "utilization_pct" not in facts(second, 1)


def test_all_columns_with_date_and_time_over_midnight() -> None:
    before, after = read(EVERYTHING)
    assert (before.time_s, after.time_s) == (MIDNIGHT - 1.0, MIDNIGHT)
    assert facts(after) == {
        "power_w": 187.0,
        "temperature_c": 85.0,
        "utilization_pct": 94.0,
        "memory_utilization_pct": 60.0,
        "encoder_pct": 0.0,
        "decoder_pct": 0.0,
        "memory_clock_mhz": 9501.0,
        "sm_clock_mhz": 1395.0,
        "throttled_pct": {"sw_power_cap": 41.0, "sw_thermal": 0.0},
        "memory_used_bytes": 20481 * MIB,
        "ecc_corrected": 3,
        "ecc_uncorrected": 1,
        "pcie_replays": 7,
        "pcie_rx_bytes_per_s": 1100e6,
        "pcie_tx_bytes_per_s": 80e6,
    }


def test_a_thermal_violation_is_a_flag_or_a_share_by_its_unit() -> None:
    title = "# gpu pviol tviol\n"
    (flag,) = read(title + "# Idx     %  bool\n    0    12     1\n")
    (share,) = read(title + "# Idx     %     %\n    0    12     3\n")
    assert facts(flag)["throttled_pct"] == {"sw_power_cap": 12.0, "sw_thermal": 100.0}
    assert facts(share)["throttled_pct"] == {"sw_power_cap": 12.0, "sw_thermal": 3.0}


def test_older_titles() -> None:
    _, later = read(OLD)
    assert facts(later)["memory_used_bytes"] == 11181 * MIB
    (both,) = read(OLDEST)
    assert facts(both)["temperature_c"] == 50.0
    assert "power_w" not in facts(both)
    assert "ecc_corrected" not in facts(both)
    assert facts(both, 1)["pcie_rx_bytes_per_s"] == 0.0


def test_activity_by_gpm_and_days_counted_by_their_midnights() -> None:
    empty, full, next_day = read(GPM)
    assert set(facts(empty)) == {"power_w", "temperature_c", "memory_temperature_c"}
    assert facts(full) == {
        "power_w": 571.0,
        "temperature_c": 62.0,
        "memory_temperature_c": 81.0,
        "graphics_active_pct": 99.0,
        "sm_active_pct": 91.0,
        "sm_occupancy_pct": 38.0,
        "tensor_active_pct": 61.0,
        "dram_active_pct": 44.0,
        "fp64_active_pct": 0.0,
        "fp32_active_pct": 12.0,
        "pcie_tx_bytes_per_s": 100.0 * MIB,
        "pcie_rx_bytes_per_s": 200.0 * MIB,
        "nvlink_rx_bytes_per_s": 3000.0 * MIB,
        "nvlink_tx_bytes_per_s": 4000.0 * MIB,
    }
    assert (full.time_s, next_day.time_s) == (86_399.0, 86_401.0)


def test_csv() -> None:
    first, second = read(CSV)
    assert facts(first)["power_w"] == 97.0
    assert facts(second)["utilization_pct"] == 8.0


def test_csv_with_units_but_no_title() -> None:
    text = CSV.split("\n", 1)[1]
    assert [facts(one) for one in read(text)] == [facts(one) for one in read(CSV)]


@pytest.mark.parametrize("text", [HEADLESS, "0, 97, 45, -, 7, 3, 100, 0, 0, 0, 7500, 2055\n"])
def test_default_columns_are_known_without_a_title(text: str) -> None:
    assert {"power_w", "temperature_c", "utilization_pct", "sm_clock_mhz"} <= set(facts(read(text)[0]))


@pytest.mark.parametrize(
    "line",
    [
        "    0    301     61     70     97     55      0",  # no such selection by itself
        "    0    301     61     70    197     55      0      0      0      0   1593   1980",
        "    0    301     61     70     97     55      0      0      0      0      3      4",
        "0 301 61 70 97 55 0 0 0 0 1593 1980",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12",
        "    0      -      -      -      -      -      -      -      -      -      -      -",
        "   ²    301     61     70     97     55      0      0      0      0   1593   1980",
    ],
)
def test_other_rows_without_a_title_are_not_guessed(line: str) -> None:
    assert feed(DmonReader, line).others == [line]


def test_a_time_in_front_of_each_line() -> None:
    first, second = read(STAMPED)
    assert second.time_s is not None
    assert first.time_s is not None
    assert second.time_s - first.time_s == 2.0
    assert facts(second)["utilization_pct"] == 91.0


def test_a_date_before_it_gives_the_day() -> None:
    times = feed(DmonReader, "Mon Mar  2 08:00:00 UTC 2026\n" + GPM).readings[0].time_s
    assert times == MIDNIGHT + 86_398.0
    plain = feed(DmonReader, "Mon Mar  2 08:00:00 UTC 2026\n" + USUAL).readings
    assert [one.time_s for one in plain] == [MIDNIGHT + 8 * 3600.0, None]


def test_titles_come_again_and_runs_follow_each_other() -> None:
    title = USUAL.split("\n    0", maxsplit=1)[0] + "\n"
    assert len(read(USUAL + title + USUAL.removeprefix(title))) == 4
    assert len(read(USUAL + OLD)) == 4


def test_rows_between_the_lines_of_another_program() -> None:
    rows = USUAL.split("\n")
    text = "\n".join([*rows[:4], "epoch 1 loss 0.4", *rows[4:]])
    fed = feed(DmonReader, text)
    assert len(fed.readings) == 2
    assert fed.others == ["epoch 1 loss 0.4"]


def test_rows_of_processes_are_left_to_their_reader() -> None:
    row = "    0       4100     C     93     40      -      -      -      -   2048      0    python3"
    assert feed(DmonReader, USUAL + row).others == [row]


@pytest.mark.parametrize(
    "row",
    [
        "    0    301     61     70     97     55      0      0      0      0   1593",  # cut
        "    0    301     61     70     97     55      0      0    0    301     61     70     97     55",  # torn
        "    0    301     61     70    970     55      0      0      0      0   1593   1980",  # no percentage
    ],
)
def test_a_damaged_row_is_named_and_the_rest_is_read(row: str) -> None:
    lines = USUAL.rstrip("\n").split("\n")
    fed = feed(DmonReader, "\n".join([*lines[:4], row, *lines[4:]]))
    assert len(fed.readings) == 2
    assert len(fed.left_out) == 1


def test_sensors_that_answer_zero_are_not_there() -> None:
    (reading,) = read("# gpu   pwr gtemp mtemp    sm\n# Idx     W     C     C     %\n    0     0     0     0     0\n")
    assert facts(reading) == {"utilization_pct": 0.0}


def test_a_refusal_is_told_once_and_is_no_reading() -> None:
    fed = feed(DmonReader, f"{REFUSED}\n{REFUSED}\n")
    assert fed.readings == []
    assert fed.left_out == [NOT_SUPPORTED]
    assert fed.others == []


def test_what_is_written_is_read_back() -> None:
    gpus = tuple(
        Gpu(
            uuid=f"GPU-{number}",
            index=number,
            power_w=200.0 + number,
            temperature_c=60.0,
            utilization_pct=90.0,
            sm_clock_mhz=1400.0,
            memory_used_bytes=8192 * MIB,
        )
        for number in range(2)
    )
    snapshots = [Snapshot(time_s=MIDNIGHT + second, gpus=gpus) for second in range(25)]
    readings = read(writer.log(snapshots))
    assert [one.time_s for one in readings] == [one.time_s for one in snapshots]
    assert facts(readings[-1], 1) == {
        "power_w": 201.0,
        "temperature_c": 60.0,
        "utilization_pct": 90.0,
        "sm_clock_mhz": 1400.0,
        "memory_used_bytes": 8192 * MIB,
    }
