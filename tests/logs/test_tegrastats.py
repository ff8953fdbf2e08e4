"""``tegrastats``."""

from __future__ import annotations

from gpumon.logs.tegrastats import TegrastatsReader
from tests.logs.feeding import feed
from tests.logs.samples.tegrastats import NEW, OLD

MIB = 1024**2
MIDNIGHT = 1_772_409_600.0


def test_old_lines_without_times_or_units() -> None:
    fed = feed(TegrastatsReader, OLD)
    assert (fed.left_out, fed.others) == ([], [])
    first, second = fed.readings
    assert first.gpus[0][1] == {
        "memory_is_shared": True,
        "utilization_pct": 18.0,
        "sm_clock_mhz": 1134.0,
        "temperature_c": 41.5,
        "power_w": 0.371,
    }
    assert first.host == {
        "memory_total_bytes": 7850 * MIB,
        "memory_available_bytes": 5217 * MIB,
        "cpu_count": 4,
        "cpu_pct": 15.0,
    }
    assert (first.time_s, first.interval_s) == (None, 1.0)
    assert second.gpus[0][1] == {"memory_is_shared": True}


def test_new_lines() -> None:
    first, second = feed(TegrastatsReader, NEW).readings
    assert (first.time_s, second.time_s) == (MIDNIGHT, MIDNIGHT + 2.0)
    assert first.gpus[0][1] == {
        "memory_is_shared": True,
        "utilization_pct": 99.0,
        "sm_clock_mhz": 1300.0,
        "temperature_c": 52.968,
        "power_w": 5.139,
    }
    assert first.host["swap_used_bytes"] == 542 * MIB
    assert "utilization_pct" not in second.gpus[0][1]


def test_other_lines_do_not_begin_it() -> None:
    lines = ["RAM 100/200MB is what it has", "it has RAM 2633/7850MB", "CPU [1%@2]"]
    assert feed(TegrastatsReader, "\n".join(lines)).others == lines
