"""The table of plain ``nvidia-smi``."""

from __future__ import annotations

import time

import pytest

from gpumon.logs.nvidia_smi_table import (
    HIDDEN_CONTAINER,
    HIDDEN_PART,
    HIDDEN_WDDM,
    HIDDEN_WSL,
    NvidiaSmiTable,
)
from gpumon.logs.reading import Facts, Place, Reading
from tests import builders
from tests.logs.feeding import feed
from tests.logs.samples import nvidia_smi_table as text
from tests.logs.writers.nvidia_smi_table import write

MIB = 1024**2


def readings_of(table: str) -> list[Reading]:
    """Of a text that is all claimed."""
    readings, left_out, others = feed(NvidiaSmiTable, table)
    assert left_out == []
    assert [line for line in others if ":" not in line and not line.startswith("+--")] == []  # the time is only noted
    return readings


def only(table: str) -> Reading:
    readings = readings_of(table)
    assert len(readings) == 1
    return readings[0]


def facts_of(table: str) -> list[Facts]:
    return [facts for _, facts in only(table).gpus]


def told(reading: Reading) -> list[tuple[Place | None, str, str]]:
    return [(place, facts["kind"], facts["text"]) for place, facts in reading.events]


# --- generations of the driver -------------------------------------------------------------------


def test_table_of_today() -> None:
    reading = only(text.PLAIN)
    assert reading.time_s == 1781000430.0
    assert not reading.has_zone
    assert reading.host == {"driver_version": "590.44.01", "cuda_version": "13.1"}
    (place, first), (_, second) = reading.gpus
    assert place == Place(0, "00000000:4e:00.0")
    assert first == {
        "name": "NVIDIA H100 80GB HBM3",
        "persistence": True,
        "ecc_enabled": True,
        "ecc_uncorrected": 2,
        "temperature_c": 61.0,
        "performance_state": "P0",
        "power_w": 655.0,
        "power_limit_w": 700.0,
        "memory_used_bytes": 61203 * MIB,
        "memory_total_bytes": 81559 * MIB,
        "utilization_pct": 98.0,
        "compute_mode": "exclusive-process",
        "mig_enabled": False,
    }
    assert (second["utilization_pct"], second["compute_mode"]) == (0.0, "default")


def test_processes_of_today() -> None:
    reading = only(text.PLAIN)
    assert reading.is_complete_process_list
    desktop, trainer = reading.uses
    assert (desktop.pid, desktop.facts["name"], desktop.facts["role"]) == (2042, "Xorg", "other")
    assert (trainer.pid, trainer.gpu, trainer.memory_bytes) == (41007, Place(0, "00000000:4e:00.0"), 61180 * MIB)
    assert trainer.facts == {"name": "python", "command": ".../envs/llm/bin/python"}


def test_two_rows_of_the_old_table() -> None:
    reading = only(text.YEAR_2016)
    first, second = (facts for _, facts in reading.gpus)
    assert reading.host == {"driver_version": "352.79"}
    assert first["name"] == "Tesla K80"
    assert (first["power_w"], first["power_limit_w"], first["memory_used_bytes"]) == (61.0, 149.0, 2311 * MIB)
    assert second["compute_mode"] == "prohibited"
    assert "power_w" not in second
    assert "fan_pct" not in second
    assert "ecc_enabled" not in second
    assert [(use.pid, use.memory_bytes) for use in reading.uses] == [(10021, 2287 * MIB), (1210, 199 * MIB)]
    assert reading.is_complete_process_list


def test_oldest_table_writes_mb() -> None:
    reading = only(text.YEAR_2013)
    facts = reading.gpus[0][1]
    assert reading.host == {"driver_version": "319.37"}, "the tool's own number stands before the driver's"
    assert (facts["fan_pct"], facts["temperature_c"], facts["memory_total_bytes"]) == (35.0, 42.0, 2047 * MIB)
    assert "performance_state" not in facts
    assert "utilization_pct" not in facts
    assert not reading.is_complete_process_list


def test_windows_has_driver_models_and_no_memory_per_process() -> None:
    reading = only(text.WINDOWS)
    first, second = (facts for _, facts in reading.gpus)
    assert first["name"] == "NVIDIA GeForce RTX 4070 ..."
    assert "persistence" not in first
    assert second["name"] == "Tesla V100-PCIE-16GB"
    assert [(use.pid, use.gpu.index, use.memory_bytes) for use in reading.uses] == [(8713, 0, None), (9001, 1, None)]
    assert reading.uses[0].facts["name"] == "train | test.exe"
    assert reading.uses[1].facts == {}, "a missing permission is no name"
    assert reading.host["processes_hidden"] == HIDDEN_WDDM


def test_windows_without_a_list_says_why() -> None:
    table = text.WINDOWS.partition("\n\n")[0] + "\n" + text.EMPTY_LIST
    reading = only(table)
    assert reading.host["processes_hidden"] == HIDDEN_WDDM
    assert not reading.is_complete_process_list


def test_starred_words_are_no_memory_and_the_library_has_a_version() -> None:
    reading = only(text.OLD_LIBRARY)
    facts = reading.gpus[0][1]
    assert not {"memory_used_bytes", "memory_total_bytes", "memory_is_shared"} & set(facts)
    assert (facts["utilization_pct"], facts["power_w"], facts["ecc_enabled"]) == (44.0, 88.0, False)
    assert reading.host["driver_version"] == "461.40"
    assert reading.host["driver_library_version"] == "516.40"


def test_wsl_is_told_by_its_two_versions() -> None:
    reading = only(text.WSL)
    assert reading.host["processes_hidden"] == HIDDEN_WSL
    assert not reading.is_complete_process_list


def test_memory_of_gb10_is_not_told() -> None:
    facts = facts_of(text.SHARED)[0]
    assert not {"memory_used_bytes", "memory_total_bytes"} & set(facts)
    assert (facts["power_w"], facts["utilization_pct"]) == (9.0, 6.0)
    assert "power_limit_w" not in facts


def test_mig_instances_stand_beside_their_gpu() -> None:
    reading = only(text.SPLIT)
    (_, parent), (first, instance), (_, other) = reading.gpus
    assert parent["mig_enabled"] is True
    assert parent["ecc_enabled"] is True
    assert parent["memory_used_bytes"] == 20517 * MIB
    assert "utilization_pct" not in parent
    assert instance == {
        "index": 0,
        "mig_parent_uuid": "bus:00000000:07:00.0",
        "memory_used_bytes": 20480 * MIB,
        "memory_total_bytes": 40192 * MIB,
        "sm_count": 42,
        "ecc_uncorrected": 3,
    }
    assert other["memory_used_bytes"] == 37 * MIB
    assert reading.uses[0].gpu == first


# --- what does not work --------------------------------------------------------------------------


def test_a_failing_sensor_leaves_the_rest_valid() -> None:
    reading = only(text.BROKEN_SENSORS)
    first, second, third = (facts for _, facts in reading.gpus)
    assert (first["temperature_c"], first["memory_used_bytes"], first["utilization_pct"]) == (41.0, 5000 * MIB, 60.0)
    assert "fan_pct" not in first
    assert second["utilization_pct"] == 0.0
    assert third == {"persistence": True, "is_lost": True}
    said = [(place.index if place else None, kind, words) for place, kind, words in told(reading)]
    assert said == [
        (0, "sensor-error", "fan: ERR!"),
        (1, "sensor-error", "temperature: ERR!"),
        (1, "sensor-error", "power: ERR!"),
        (1, "sensor-error", "power limit: ERR!"),
        (2, "gpu-lost", said[-1][2]),
    ]
    assert "temperature" in said[-1][2]


def test_lost_gpus_join_the_table_that_follows() -> None:
    reading = only(text.LOST + text.PLAIN)
    assert [(place, facts["is_lost"]) for place, facts in reading.gpus if "is_lost" in facts] == [
        (Place(bus="00000000:a1:00.0"), True),
        (Place(3, "00000000:c1:00.0"), True),
    ]
    assert len(reading.gpus) == 4
    assert [kind for _, kind, _ in told(reading)] == ["gpu-lost", "gpu-lost"]


@pytest.mark.parametrize(
    ("which", "place"),
    [
        (" for GPU 0000:0A:00.0: Unknown Error", Place(bus="00000000:0a:00.0")),
        (" for gpu 0000:0A:00.0: Unknown Error", Place(bus="00000000:0a:00.0")),
        (" for GPU0000:0A:00.0: Not Found", Place(bus="00000000:0a:00.0")),
        (" for GPU 000:0A:80.0: Unknown Error", Place(bus="00000000:0a:80.0")),
        (" for GPU5: 0000:0A:00.0: GPU is lost.  Reboot the system to recover this GPU", Place(5, "00000000:0a:00.0")),
        (" for GPU5: Unknown Error", Place(5)),
        ("", None),
        (" for GPU 0000:0A:00", None),
    ],
)
def test_handles_that_cannot_be_had(which: str, place: Place | None) -> None:
    reading = only("Unable to determine the device handle" + which)
    assert [where for where, _ in reading.gpus] == ([] if place is None else [place])
    assert told(reading) == [(place, "gpu-lost", "Unable to determine the device handle" + which)]


def test_refusals_are_errors_of_the_driver() -> None:
    refused, away, none = ("\n".join(part.split("\n")) for part in text.REFUSALS.split("\n\n") if "NVRM" not in part)
    reading = only(refused)
    assert reading.host == {
        "driver_error": "Failed to initialize NVML: Driver/library version mismatch",
        "driver_library_version": "580.126",
    }
    assert told(reading) == [(None, "driver-error", "Failed to initialize NVML: Driver/library version mismatch")]
    assert only(away).host["driver_error"].startswith("NVIDIA-SMI has failed because it couldn't communicate")
    assert only(none).host == {"driver_error": "No devices were found"}


def test_the_version_of_the_module_is_read() -> None:
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)"
    assert only(line).host == {"driver_version": "580.95.05"}


def test_a_driver_that_comes_back_is_no_longer_away() -> None:
    readings = readings_of(text.PLAIN + "NVIDIA-SMI has failed because it couldn't communicate\n" + text.PLAIN)
    assert [reading.host.get("driver_error", "unsaid") for reading in readings] == [
        "unsaid",
        "NVIDIA-SMI has failed because it couldn't communicate",
        None,
    ]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Unknown Error", {"state": "Z"}),
        ("[Not Found]", {"state": "X"}),
        ("Insufficient Permissions", {}),
        ("python", {"name": "python", "command": "python"}),
        ("VLLM::EngineCore", {"name": "VLLM::EngineCore", "command": "VLLM::EngineCore"}),
    ],
)
def test_words_in_the_place_of_a_name(name: str, facts: Facts) -> None:
    reading = only(text.PLAIN.replace(".../envs/llm/bin/python", f"{name:<23}"))
    assert reading.uses[1].facts == facts


def test_an_empty_list_beside_work_is_a_container() -> None:
    table = text.PLAIN.partition("\n\n")[0] + "\n\n" + text.EMPTY_LIST
    reading = only(table)
    assert reading.host["processes_hidden"] == HIDDEN_CONTAINER
    assert not reading.is_complete_process_list
    idle = only(table.replace("98%", " 0%"))
    assert "processes_hidden" not in idle.host
    assert idle.is_complete_process_list


# --- series --------------------------------------------------------------------------------------


def test_times_between_tables_make_a_series() -> None:
    first, second = readings_of(text.LOOP)
    assert second.time_s is not None
    assert first.time_s is not None
    assert second.time_s - first.time_s == 5.0
    assert [reading.gpus[0][1]["utilization_pct"] for reading in (first, second)] == [10.0, 20.0]


def test_tables_without_times_follow_each_other() -> None:
    table = "\n".join(text.PLAIN.split("\n")[1:])
    readings = readings_of(table * 3)
    assert [reading.time_s for reading in readings] == [None] * 3
    assert all(reading == readings[0] for reading in readings)


def test_tables_without_heads_are_told_apart_by_their_first_gpu() -> None:
    rows = [line for line in text.PLAIN.split("\n") if line.startswith(("|   0", "| N/A", "|   1", "|    0"))]
    with_list = readings_of("\n".join([*text.PLAIN.split("\n")[1:], *rows, *rows[:4]]))
    assert [len(reading.gpus) for reading in with_list] == [2, 2, 2]
    assert [place for place, _ in with_list[1].gpus] == [place for place, _ in with_list[0].gpus]


def test_watch_says_how_often() -> None:
    head = "Every 2.0s: nvidia-smi                        node07: Tue Jun  9 10:20:29 2026\n\n"
    readings = readings_of((head + text.PLAIN) * 2)
    assert [reading.interval_s for reading in readings] == [2.0, 2.0]
    assert readings[0].time_s == 1781000430.0
    bare = "Every 2,0s: nvidia-smi\n\n" + "\n".join(text.PLAIN.split("\n")[1:])
    assert [(reading.time_s, reading.interval_s) for reading in readings_of(bare)] == [(None, 2.0)]


def test_a_date_far_above_is_not_the_tables() -> None:
    lines = "\n".join(f"step {number}" for number in range(20))
    fed = feed(NvidiaSmiTable, f"Tue Jun  9 10:20:30 2026\n{lines}\n{text.SHARED}")
    assert fed.readings[0].time_s is None


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["    ", "> ", "trainer-1  | ", "3: ", "2026-06-09T10:20:30Z ", "\t"])
def test_what_stands_in_front_of_lines_does_not_matter(prefix: str) -> None:
    damaged = "\n".join(prefix + line for line in text.PLAIN.rstrip("\n").split("\n")[1:])
    assert feed(NvidiaSmiTable, damaged).readings[0]._replace(time_s=None) == only(text.PLAIN)._replace(
        time_s=None, has_zone=False
    )


def test_squeezed_spaces_do_not_matter() -> None:
    squeezed = "\n".join(" ".join(line.split()) for line in text.PLAIN.split("\n"))
    assert only(squeezed) == only(text.PLAIN)


def test_a_table_on_one_line_is_read() -> None:
    reading = only(" ".join(text.PLAIN.partition("\n\n")[0].split("\n")[1:]))
    assert [dict(facts) for _, facts in reading.gpus] == [dict(facts) for _, facts in only(text.PLAIN).gpus]


def test_wrapped_rows_are_joined() -> None:
    reading = only(text.WRAPPED)
    facts = reading.gpus[0][1]
    assert (facts["ecc_uncorrected"], facts["compute_mode"], facts["utilization_pct"]) == (0, "default", 10.0)
    assert [(use.pid, use.memory_bytes) for use in reading.uses] == [(20037, 538 * MIB)]


def test_missing_header_and_footer() -> None:
    rows = [line for line in text.PLAIN.split("\n") if line.startswith(("|   0", "| N/A", "|   1"))]
    reading = only("\n".join(rows))
    assert [dict(facts) for _, facts in reading.gpus][1]["power_w"] == 71.0
    assert not reading.is_complete_process_list


@pytest.mark.parametrize("end", range(0, 1600, 7))
def test_a_cut_off_table_gives_nothing_wrong(end: int) -> None:
    whole = only(text.PLAIN).gpus
    for reading in feed(NvidiaSmiTable, text.PLAIN[:end]).readings:
        for (_, facts), (_, expected) in zip(reading.gpus, whole, strict=False):
            assert dict(facts).items() - {"name": facts.get("name")}.items() <= dict(expected).items()


def test_a_list_without_its_end_is_not_whole() -> None:
    cut = only(text.PLAIN.rstrip("\n").rpartition("\n")[0])
    assert not cut.is_complete_process_list
    assert cut.host["processes_hidden"] == HIDDEN_PART
    broken = feed(NvidiaSmiTable, text.PLAIN.replace("41007      C ", "4x007      C "))
    assert not broken.readings[0].is_complete_process_list
    assert broken.left_out == ["a row of the list of processes that cannot be read"]


def test_text_after_the_table_is_not_claimed() -> None:
    fed = feed(NvidiaSmiTable, text.PLAIN + "Traceback (most recent call last):\n| a | markdown table |\nloss 0.1\n")
    assert fed.others[2:] == ["Traceback (most recent call last):", "| a | markdown table |", "loss 0.1"]


@pytest.mark.parametrize(
    "line",
    [
        "| GPU | Name | Memory |",
        "|---|---|---|",
        "| 0 | NVIDIA A100 | 40GB |",
        "NVIDIA-SMI is not installed",
        "| Step | Loss | 95% |",
        "+---------+",
        "Mon Jun  3 12:00:00 2024",
        "GPU 0000:01:00.0: 45C",
        "driver version 550.54.15",
    ],
)
def test_lines_of_others_are_left_alone(line: str) -> None:
    assert feed(NvidiaSmiTable, line).others == [line]


def test_hostile_lines_are_read_at_once() -> None:
    began_s = time.perf_counter()
    for unit in (
        "|",
        "| ",
        "|   0  ",
        "ERR! ",
        "0 ",
        "9",
        "a",
        "N/A ",
        "MiB / ",
        "00000000:00:00.0 ",
        "GPU ",
        "/",
        "C ",
    ):
        hostile = unit * (64_000 // len(unit))
        feed(NvidiaSmiTable, f"{hostile}\n{text.PLAIN}{hostile}\n|{hostile}|\nNVIDIA-SMI 1.0{hostile}\n")
    assert time.perf_counter() - began_s < 5.0


# --- round trip ----------------------------------------------------------------------------------


def test_what_is_written_is_read_again() -> None:
    gpus = [
        builders.gpu(
            0, persistence=True, ecc_enabled=True, ecc_uncorrected=1, compute_mode="default", mig_enabled=False
        ),
        builders.gpu(1, name="NVIDIA GeForce RTX 2080 SUPER Max-Q", power_limit_w=None, utilization_pct=0.0),
        builders.gpu(2, is_lost=True),
    ]
    written = builders.snapshot(builders.NOON, gpus, [builders.process(77, (0, 1))])
    first, second = readings_of(write([written, written]))
    assert first == second
    assert first.time_s == builders.NOON
    one, two, lost = first.gpus
    assert lost == (Place(2, "00000000:12:00.0"), {"is_lost": True})
    assert one[1]["utilization_pct"] == gpus[0].utilization_pct
    assert one[1]["memory_used_bytes"] == gpus[0].memory_used_bytes
    assert one[1]["ecc_uncorrected"] == 1
    assert "power_limit_w" not in two[1]
    assert [(use.pid, use.gpu.index) for use in first.uses] == [(77, 0), (77, 1)]
    assert first.is_complete_process_list


def test_instances_that_are_written_are_read_again() -> None:
    parent = builders.gpu(0, mig_enabled=True, utilization_pct=None)
    part = builders.gpu(1, uuid="MIG-x", mig_parent_uuid=parent.uuid, memory_used_bytes=9 * 1024 * MIB)
    owner = builders.process(77, (), gpu_memory_bytes={"MIG-x": 8 * 1024 * MIB})
    reading = only(write([builders.snapshot(builders.NOON, [parent, part], [owner])]))
    (_, whole), (place, facts) = reading.gpus
    assert whole["mig_enabled"] is True
    assert (facts["index"], facts["memory_used_bytes"]) == (1, 9 * 1024 * MIB)
    assert [(use.pid, use.gpu) for use in reading.uses] == [(77, place)]


def test_a_tab_in_the_drivers_message_is_cleaned() -> None:
    (reading,) = feed(NvidiaSmiTable, "Failed to initialize NVML: Driver/library\tversion mismatch\n").readings
    assert reading.host["driver_error"] == "Failed to initialize NVML: Driver/library·version mismatch"
