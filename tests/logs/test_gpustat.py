"""``gpustat``."""

from __future__ import annotations

import pytest

from gpumon.logs.gpustat import HIDDEN_FORGOTTEN, HIDDEN_USERS, Gpustat
from gpumon.logs.reading import Place
from tests.logs.feeding import feed
from tests.logs.samples.gpustat import FULL, OWNERLESS, USERS

MIB = 1024**2


def test_one_line_per_gpu() -> None:
    reading = feed(Gpustat, USERS).readings[0]
    assert reading.time_s == 1688125927.0
    assert reading.host == {"name": "node07", "driver_version": "550.54.15", "processes_hidden": HIDDEN_USERS}
    assert reading.gpus[0] == (
        Place(0),
        {
            "name": "NVIDIA A40",
            "temperature_c": 50.0,
            "utilization_pct": 73.0,
            "memory_used_bytes": 12894 * MIB,
            "memory_total_bytes": 46068 * MIB,
        },
    )
    assert reading.uses == []


def test_fan_power_and_pids_where_they_were_asked_for() -> None:
    reading = feed(Gpustat, FULL).readings[0]
    facts = reading.gpus[0][1]
    assert (facts["fan_pct"], facts["utilization_pct"], facts["power_w"], facts["power_limit_w"]) == (30, 96, 175, 300)
    assert "power_w" not in reading.gpus[1][1]
    (use,) = reading.uses
    assert (use.pid, use.gpu, use.memory_bytes) == (4242, Place(0), 11886 * MIB)
    assert use.facts == {"user": "ana", "name": "python"}
    assert "processes_hidden" not in reading.host


def test_a_loop_is_a_series() -> None:
    readings = feed(Gpustat, (USERS + FULL) * 2).readings
    assert [reading.time_s for reading in readings] == [1688125927.0, 1688125929.0] * 2


def test_memory_without_an_owner() -> None:
    reading = feed(Gpustat, OWNERLESS).readings[0]
    assert [(place, facts["kind"]) for place, facts in reading.events] == [(Place(6), "memory-unowned")]


def test_a_driver_whose_lists_are_not_whole() -> None:
    reading = feed(Gpustat, FULL.replace("550.54.15", "535.54.03")).readings[0]
    assert reading.host["processes_hidden"] == HIDDEN_FORGOTTEN


@pytest.mark.parametrize(
    "line",
    ["[0] hello", "[1] a | b | c", "[2024-01-01] INFO | 50 % | 3 MB", "[0] x | 40C | nothing", "[rank0] | 1C | 1/2 M"],
)
def test_lines_of_others_are_left_alone(line: str) -> None:
    assert feed(Gpustat, line).others == [line]
