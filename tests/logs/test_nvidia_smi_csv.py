"""``nvidia-smi --query-gpu``, ``--query-compute-apps`` and people's own CSV logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.commands.inputs import Input
from gpumon.diagnosis import diagnose
from gpumon.logs.nvidia_smi_csv import NvidiaSmiCsv
from gpumon.logs.reading import Facts, Place, Reading
from gpumon.sources.demo import simulate
from tests.builders import ListSource
from tests.logs.feeding import feed
from tests.logs.samples.nvidia_smi_csv import (
    APPS,
    COLAB,
    DAMAGED,
    DATED,
    ID_0,
    ID_1,
    LOCALIZED,
    LOOP,
    NO_HEADER,
    OLD,
    OWN,
    SAMPLES,
    WIDE,
)
from tests.logs.writers.nvidia_smi_csv import log

MIB = 1024**2
MORNING = 1_772_600_767.1
"""2026-03-04 05:06:07.1, as written."""


def readings_of(text: str) -> list[Reading]:
    readings, left_out, others = feed(NvidiaSmiCsv, text)
    assert (left_out, others) == ([], [])
    return readings


def facts_of(text: str) -> list[Facts]:
    return [facts for reading in readings_of(text) for _, facts in reading.gpus]


def facts_of_lines(*lines: str) -> list[Facts]:
    return [facts for reading in feed(NvidiaSmiCsv, rows(*lines)).readings for _, facts in reading.gpus]


def rows(*lines: str) -> str:
    return "\n".join(lines)


# --- nvidia-smi --------------------------------------------------------------------------------


def test_rows_of_one_poll_are_one_reading() -> None:
    first, second = readings_of(LOOP)
    assert first.time_s == pytest.approx(MORNING)
    assert second.time_s == pytest.approx(MORNING + 1.001)
    assert not first.has_zone
    assert [place for place, _ in first.gpus] == [Place(0, None, ID_0), Place(1, None, ID_1)]
    assert first.gpus[0][1] == {
        "name": "NVIDIA H100 80GB HBM3",
        "utilization_pct": 97.0,
        "memory_utilization_pct": 41.0,
        "memory_used_bytes": 40000 * MIB,
        "memory_total_bytes": 81559 * MIB,
        "temperature_c": 61.0,
        "power_w": 612.25,
        "sm_clock_mhz": 1755.0,
        "performance_state": "P0",
    }


def test_what_is_not_said_is_absent() -> None:
    facts = readings_of(LOOP)[1].gpus[1][1]
    assert not {"utilization_pct", "memory_utilization_pct", "power_w"} & set(facts)
    assert facts["memory_used_bytes"] == 40010 * MIB


def test_every_column_of_a_wide_query() -> None:
    (reading,) = readings_of(WIDE)
    ((place, facts),) = reading.gpus
    assert place == Place(0, "00000000:4e:00.0", ID_0)
    assert reading.host == {"driver_version": "590.48.01"}
    assert facts == {
        "name": "NVIDIA H100 80GB HBM3",
        "pcie_gen": 4,
        "pcie_gen_max": 4,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "persistence": True,
        "performance_state": "P0",
        "clocks_event_reasons": ("sw_power_cap", "sw_thermal"),
        "memory_total_bytes": 81559 * MIB,
        "memory_reserved_bytes": 479 * MIB,
        "memory_used_bytes": 40000 * MIB,
        "compute_mode": "exclusive-process",
        "compute_capability": "9.0",
        "utilization_pct": 97.0,
        "memory_utilization_pct": 41.0,
        "encoder_pct": 0.0,
        "ecc_enabled": True,
        "ecc_enabled_pending": False,
        "ecc_corrected": 42,
        "ecc_uncorrected": 4,
        "ecc_sram_uncorrected": 6,
        "remapped_rows_corrected": 1,
        "remapped_rows_uncorrected": 2,
        "remap_pending": True,
        "remap_failed": False,
        "temperature_c": 61.0,
        "temperature_margin_c": 26.0,
        "memory_temperature_c": 71.0,
        "power_w": 612.25,
        "power_limit_w": 650.0,
        "power_default_limit_w": 700.0,
        "sm_clock_mhz": 1740.0,
        "memory_clock_mhz": 2619.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_max_mhz": 2619.0,
        "mig_enabled": False,
        "recovery_action": 0,
        "fabric_state": "completed",
    }


def test_old_names_and_no_times() -> None:
    first, second = readings_of(OLD)
    assert (first.time_s, first.interval_s) == (None, 1.0)
    assert [place.index for place, _ in first.gpus] == [0, 1]
    assert [facts["clocks_event_reasons"] for _, facts in first.gpus] == [("gpu_idle",), ("hw_slowdown", "hw_thermal")]
    ((_, facts),) = second.gpus
    assert facts["clocks_event_reasons"] == ()
    assert (facts["sm_clock_mhz"], facts["memory_clock_mhz"], facts["sm_clock_max_mhz"]) == (875.0, 2505.0, 875.0)


def test_reasons_by_column_are_known_to_be_none_only_if_all_are_asked_for() -> None:
    every = "index, clocks_event_reasons.hw_slowdown, clocks_event_reasons.sw_power_cap, "
    every += "clocks_event_reasons.sw_thermal_slowdown"
    (facts,) = facts_of(rows(every, "0, Not Active, Not Active, Not Active"))
    assert facts["clocks_event_reasons"] == ()
    (facts,) = facts_of(rows(every, "0, Active, Not Active, Active"))
    assert facts["clocks_event_reasons"] == ("hw_slowdown", "sw_thermal")
    (facts,) = facts_of(rows(every, "0, Not Active, [N/A], Not Active"))
    assert "clocks_event_reasons" not in facts
    (facts,) = facts_of(rows("index, clocks_throttle_reasons.sw_power_cap", "0, Not Active"))
    assert "clocks_event_reasons" not in facts


def test_counters_of_limiters_become_shares_of_the_time() -> None:
    head = "timestamp, index, clocks_event_reasons_counters.sw_power_cap [us]"
    stamps = ("07.000", "07.500", "08.000", "09.000")
    counts = (1_000_000, 1_250_000, 1_500_000, 1_600_000)
    text = rows(head, *(f"2026/03/04 05:06:{s}, 0, {us} us" for s, us in zip(stamps, counts, strict=True)))
    shares = [facts.get("throttled_pct") for facts in facts_of(text)]
    assert shares == [None, None, {"sw_power_cap": pytest.approx(50.0)}, {"sw_power_cap": pytest.approx(10.0)}]


def test_power_and_link_come_from_the_best_column_that_has_a_value() -> None:
    (facts,) = facts_of(
        rows(
            "index, power.draw [W], power.draw.instant [W], power.draw.average [W], pcie.link.gen.gpumax, "
            "pcie.link.gen.hostmax, memory.used [MiB], memory.free [MiB]",
            "0, [N/A], 300.00 W, 280.00 W, 5, 4, 100 MiB, 900 MiB",
        )
    )
    assert facts == {
        "power_w": 280.0,
        "pcie_gen_max": 4,
        "memory_used_bytes": 100 * MIB,
        "memory_total_bytes": 1000 * MIB,
    }
    (facts,) = facts_of(rows("index, pcie.link.gen.current, pcie.link.gen.gpumax", "0, 3, 5"))
    assert facts == {"pcie_gen": 3}


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("utilization.gpu [%]", "140 %"),
        ("temperature.gpu", "9223372036854775794"),
        ("temperature.memory", "0"),
        ("memory.total [MiB]", "0 MiB"),
        ("power.draw [W]", "nan"),
        ("pcie.link.gen.max", "0"),
        ("pstate", "P99"),
        ("clocks.sm [MHz]", "-1 MHz"),
        ("ecc.errors.corrected.volatile.total", "2147483632"),
        ("fan.speed [%]", "Requested functionality has been deprecated"),
        ("clocks_event_reasons.active", "0xffffffffffffffff"),
    ],
)
def test_impossible_values_are_unknown(name: str, cell: str) -> None:
    assert facts_of(rows(f"timestamp, index, {name}", f"2026/03/04 05:06:07.100, 0, {cell}")) == [{}]


def test_lost_gpu_is_lost_and_the_other_goes_on() -> None:
    text = rows(
        "timestamp, index, utilization.gpu [%], temperature.gpu",
        "2026/03/04 05:06:07.100, 0, [GPU is lost], [GPU is lost]",
        "2026/03/04 05:06:07.104, 1, 50 %, 61",
    )
    assert facts_of(text) == [{"is_lost": True}, {"utilization_pct": 50.0, "temperature_c": 61.0}]


def test_processes_have_their_memory_and_no_secrets() -> None:
    (reading,) = readings_of(APPS)
    assert reading.gpus == ()
    assert not reading.is_complete_process_list
    trainer, other = reading.uses
    place = Place(None, "00000000:4e:00.0", ID_0)
    assert (trainer.pid, trainer.gpu, trainer.memory_bytes) == (4242, place, 30123 * MIB)
    assert trainer.facts == {"name": "python train.py --api-key ***"}
    assert (other.pid, other.memory_bytes) == (4243, None)


def test_processes_without_a_gpu_are_refused() -> None:
    readings, left_out, _ = feed(NvidiaSmiCsv, rows("pid, process_name, used_gpu_memory [MiB]", "1, python, 5 MiB"))
    assert readings == []
    assert left_out == ["processes without gpu_uuid or gpu_bus_id: on which GPU they are is not said"]


# --- damage and variety ------------------------------------------------------------------------


def test_localized_numbers_and_separators() -> None:
    assert facts_of(LOCALIZED) == [
        {"power_w": 71.5, "utilization_pct": 33.0, "memory_used_bytes": 1024 * MIB},
        {"power_w": 72.25, "utilization_pct": 34.0, "memory_used_bytes": 1024 * MIB},
    ]
    assert facts_of(rows("index, power.draw [W], pstate", "0, 71,50 W, P0")) == [
        {"power_w": 71.5, "performance_state": "P0"}
    ]
    assert facts_of("index\tpower.draw [W]\n0\t71.50 W") == [{"power_w": 71.5}]


def test_damage_costs_its_own_row_only() -> None:
    readings, left_out, others = feed(NvidiaSmiCsv, DAMAGED)
    assert others == []
    assert left_out == ["a row of 3 cells under a header of 4"]
    facts = [one for reading in readings for _, one in reading.gpus]
    assert [one.get("utilization_pct") for one in facts] == [33.0, 35.0, 36.0, None]
    assert facts[1]["name"] == "Quadro RTX 6000, Passive"
    assert facts[3] == {"temperature_c": 44.0, "name": "NVIDIA L4"}


def test_one_column_needs_a_unit_or_a_value_below_it() -> None:
    assert [facts["temperature_c"] for facts in facts_of_lines("temperature.gpu", "61", "62")] == [61.0, 62.0]
    names = (
        "memory.used",
        "Total memory allocated by active contexts.",
        "pstate",
        "temperature.gpu",
        "ecc.mode.current",
    )
    assert facts_of_lines(*names, "Errors detected in global SRAMs.") == []


def test_a_cut_last_cell_is_no_value() -> None:
    head = "timestamp, index, temperature.gpu, power.draw [W]"
    facts = facts_of(rows(head, "2026/03/04 05:06:07.100, 0, 61, 71.50 W", "2026/03/04 05:06:08.100, 0, 61, 7"))
    assert [one.get("power_w") for one in facts] == [71.5, None]


def test_other_lines_end_the_stretch_and_rows_resume_it() -> None:
    text = rows(
        *LOOP.splitlines()[:3], "NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.", *LOOP.splitlines()[3:]
    )
    readings, left_out, others = feed(NvidiaSmiCsv, text)
    assert left_out == []
    assert [line[:9] for line in others] == ["NVRM: Xid"]
    assert len(readings) == 2


def test_a_first_row_may_be_damaged_or_late() -> None:
    head, *later = LOOP.splitlines()
    readings, left_out, _ = feed(NvidiaSmiCsv, rows(head, "2026/03/04 05:06:06.100, 0, GPU-1d0c", *later))
    assert (len(readings), len(left_out)) == (2, 1)
    readings, left_out, others = feed(NvidiaSmiCsv, rows(head, "bash: nvcc: command not found", *later))
    assert (len(readings), left_out, len(others)) == (2, [], 1)


def test_a_date_between_polls_is_their_time() -> None:
    readings, _, others = feed(NvidiaSmiCsv, DATED)
    assert others == ["Wed Mar  4 05:06:07 UTC 2026"]
    assert [reading.time_s for reading in readings] == [MORNING - 0.1, MORNING - 0.1 + 10]
    assert [len(reading.gpus) for reading in readings] == [2, 2]


@pytest.mark.parametrize(
    ("stamp", "time_s", "has_zone"),
    [
        ("2026/03/04 05:06:07.100", MORNING, False),
        ("2026-03-04T05:06:07.100Z", MORNING, True),
        ("2026-03-04 07:06:07.1+02:00", MORNING, True),
        ("03-04-2026 05:06:07", MORNING - 0.1, False),
        ("1772600767.1", MORNING, True),
        ("1772600767100", MORNING, True),
    ],
)
def test_times(stamp: str, time_s: float, has_zone: bool) -> None:
    (reading,) = readings_of(rows("timestamp,index,utilization.gpu", f"{stamp},0,50"))
    assert reading.time_s == pytest.approx(time_s)
    assert reading.has_zone is has_zone


def test_milliseconds_after_a_comma_are_part_of_the_time() -> None:
    text = rows("timestamp,gpu_util_pct,gpu_power_w", *(f"2026-03-04 05:06:07,{ms},50,70.5" for ms in (100, 900)))
    assert [reading.time_s for reading in readings_of(text)] == [pytest.approx(MORNING), pytest.approx(MORNING + 0.8)]


def test_rows_without_gpu_numbers_are_told_apart_by_their_pauses() -> None:
    head = "timestamp, utilization.gpu [%], memory.used [MiB]"
    three = [f"2026/03/04 05:06:{s:02}.00{gpu}, {gpu}0 %, 1000 MiB" for s in range(4) for gpu in range(3)]
    readings = readings_of(rows(head, *three))
    assert [len(reading.gpus) for reading in readings] == [3, 3, 3, 3]
    assert [facts["utilization_pct"] for _, facts in readings[-1].gpus] == [0.0, 10.0, 20.0]
    cut = readings_of(rows(head, *three[1:]))
    assert [place.index for place, _ in cut[0].gpus] == [1, 2]
    fast = rows(head, *(f"2026/03/04 05:06:07.{ms:03}, 50 %, 1000 MiB" for ms in range(100, 900, 10)))
    assert len(readings_of(fast)) == 80


def test_rows_without_times_and_gpus_are_told_apart_by_their_values() -> None:
    one = rows("memory.used [MiB]", *(f"{1000 + i % 7} MiB" for i in range(40)))
    assert [len(reading.gpus) for reading in readings_of(one)] == [1] * 40
    two = rows("memory.used [MiB]", *(f"{(1000, 20000)[i % 2] + i % 7} MiB" for i in range(40)))
    assert [len(reading.gpus) for reading in readings_of(two)] == [2] * 20
    look = rows("name, memory.used [MiB]", *("NVIDIA L4, 4 MiB" for _ in range(4)))
    assert [len(reading.gpus) for reading in readings_of(look)] == [4]


# --- without a header --------------------------------------------------------------------------


def test_columns_without_header_are_told_by_units_and_values() -> None:
    idle, _, busy, _ = facts_of(NO_HEADER)
    assert idle == {
        "utilization_pct": 0.0,
        "memory_utilization_pct": 0.0,
        "memory_used_bytes": 4 * MIB,
        "memory_total_bytes": 24564 * MIB,
        "temperature_c": 31.0,
        "power_w": 12.1,
    }
    assert (busy["memory_used_bytes"], busy["memory_total_bytes"]) == (18004 * MIB, 24564 * MIB)


def test_total_memory_without_header_is_what_never_changes() -> None:
    text = rows(
        "2026/03/04 05:06:07.100, 0, NVIDIA L4, 4 MiB, 23034 MiB, P8",
        "2026/03/04 05:06:07.104, 1, NVIDIA L4, 4 MiB, 23034 MiB, P8",
        "2026/03/04 05:06:08.100, 0, NVIDIA L4, 9000 MiB, 23034 MiB, P0",
        "2026/03/04 05:06:08.104, 1, NVIDIA L4, 9000 MiB, 23034 MiB, P0",
    )
    readings = readings_of(text)
    assert [place.index for place, _ in readings[1].gpus] == [0, 1]
    assert readings[1].gpus[0][1] == {
        "name": "NVIDIA L4",
        "memory_used_bytes": 9000 * MIB,
        "memory_total_bytes": 23034 * MIB,
        "performance_state": "P0",
    }


def test_memory_that_shrinks_with_work_is_what_is_free() -> None:
    text = rows(
        "2026/03/04 05:06:07.100, 0 %, 24560 MiB, 24564 MiB",
        "2026/03/04 05:06:08.100, 95 %, 6560 MiB, 24564 MiB",
        "2026/03/04 05:06:09.100, 96 %, 6560 MiB, 24564 MiB",
    )
    assert not any("memory_used_bytes" in facts for facts in facts_of(text))


def test_what_is_not_certain_without_header_is_left_out() -> None:
    text = rows(*(f"2026/03/04 05:06:{s:02}.100, {s * 30} %, 9000 MiB, 1755 MHz" for s in range(4)))
    readings, left_out, _ = feed(NvidiaSmiCsv, text)
    assert [facts for reading in readings for _, facts in reading.gpus] == [
        {"utilization_pct": float(s * 30)} for s in range(4)
    ]
    memory, clock = (
        "memory.used, memory.free or memory.total",
        "a clock of SM, graphics, memory or video, now or at most",
    )
    left = f"column 3 could be {memory}; column 4 could be {clock}; left out; write --format=csv"
    assert left_out == [f"no header line: {left}"]


def test_gpus_that_differ_are_no_jumps() -> None:
    fans = rows(
        *(f"2026/03/04 05:06:{s:02}.10{gpu}, {gpu}, {30 + 40 * gpu} %, P0" for s in range(4) for gpu in range(2))
    )
    readings, left_out, _ = feed(NvidiaSmiCsv, fans)
    assert not any("utilization_pct" in facts for reading in readings for _, facts in reading.gpus)
    assert "column 3 could be utilization.gpu, utilization.memory or fan.speed" in left_out[0]


def test_bare_numbers_without_header_are_refused_in_one_line() -> None:
    text = rows(*(f"2026/03/04 05:06:{s:02}.100, 0, 93, 51, 9000, 24564" for s in range(40)))
    readings, left_out, others = feed(NvidiaSmiCsv, text)
    assert (readings, others) == ([], [])
    assert len(left_out) == 1
    assert left_out[0].startswith("no header line: columns 2, 3, 4, 5, 6 could be ")
    assert left_out[0].endswith("; write --format=csv")


# --- home-made -----------------------------------------------------------------------------------


def test_own_columns_whose_names_say_what_they_are() -> None:
    first, second = readings_of(OWN)
    assert (first.time_s, first.has_zone) == (1_772_600_767.5, True)
    assert second.gpus[0] == (
        Place(0),
        {
            "temperature_c": 42.0,
            "power_w": 161.0,
            "memory_used_bytes": 9000 * MIB,
            "memory_total_bytes": 24576 * MIB,
            "utilization_pct": 87.0,
        },
    )


def test_time_since_the_start_gives_intervals() -> None:
    readings = readings_of(COLAB)
    assert [reading.time_s for reading in readings] == [None, None, None]
    assert [reading.interval_s for reading in readings] == [None, 0.5, 1.0]
    assert readings[1].gpus[0][1] == {
        "utilization_pct": 37.0,
        "memory_used_bytes": 1121 * MIB,
        "memory_total_bytes": 15360 * MIB,
    }


@pytest.mark.parametrize(
    ("header", "cell", "expected"),
    [
        ("gpu_util", "37", {"utilization_pct": 37.0}),
        ("GPU Utilization (%)", "37.5", {"utilization_pct": 37.5}),
        ("gpuUtilPct", "37", {"utilization_pct": 37.0}),
        ("gpu_load_percent", "37", {"utilization_pct": 37.0}),
        ("gpu_mem_used_gb", "1.5", {"memory_used_bytes": 1536 * MIB}),
        ("vram_used_mb", "1500", {"memory_used_bytes": 1500 * MIB}),
        ("gpu_memory_used_bytes", "1048576", {"memory_used_bytes": MIB}),
        ("gpu_power_mW", "71500", {"power_w": 71.5}),
        ("gpu_power", "71.5", {"power_w": 71.5}),
        ("gpu_power", "71500", {}),
        ("power_draw", "71.5", {"power_w": 71.5}),
        ("temperature_gpu", "61", {"temperature_c": 61.0}),
        ("gpu_temp", "61", {"temperature_c": 61.0}),
        ("sm_clock_mhz", "1755", {"sm_clock_mhz": 1755.0}),
        ("gpu_clock_ghz", "1.755", {"sm_clock_mhz": 1755.0}),
        ("fan_pct", "40", {"fan_pct": 40.0}),
    ],
)
def test_own_names(header: str, cell: str, expected: Facts) -> None:
    assert facts_of(rows(f"time,gpu,{header}", f"2026-03-04 05:06:07,0,{cell}")) == [expected]


def test_own_names_that_do_not_say_enough_are_left_out() -> None:
    text = rows("timestamp,gpu_util,gpu_mem,gpu_memory_used,loss", "1772600767,50,12.5,9000,0.3")
    readings, left_out, _ = feed(NvidiaSmiCsv, text)
    assert readings[0].gpus[0][1] == {"utilization_pct": 50.0}
    assert left_out == ["left out: gpu_mem, gpu_memory_used (what it measures, or its unit, is not in the name)"]


def test_a_share_of_one_is_not_taken_for_percent() -> None:
    shares = rows("timestamp,gpu_util,gpu_power_w", *(f"17726007{s},0.{s},70" for s in range(10, 60)))
    readings, left_out, _ = feed(NvidiaSmiCsv, shares)
    assert not any("utilization_pct" in facts for reading in readings for _, facts in reading.gpus)
    assert left_out == ["left out: gpu_util (a share of 1 or of 100)"]
    floats = rows("timestamp,gpu_util,gpu_power_w", "1772600710,0.0,70", "1772600711,87.0,70", "1772600712,0.0,70")
    assert [facts.get("utilization_pct") for facts in facts_of(floats)] == [None, 87.0, 0.0]


@pytest.mark.parametrize(
    "text",
    [
        "epoch,train_loss,val_loss,lr\n1,2.5,2.4,0.001\n",
        "timestamp,cpu_pct,mem_used_mb,temp_c\n1772600767,50,2000,60\n",
        "step,loss,gpu_mem\n1,2.5,10.3\n",
        "name, age, city\nAda, 36, London\n",
        "I set power, temperature and memory, then it hung\n",
        "2026-03-04 05:06:07,123 - INFO - loaded, 12 MiB\n",
        "#gpu, pwr, gtemp, mtemp, sm, mem, enc, dec, mclk, pclk\n0, 71, 44, -, 33, 5, 0, 0, 5001, 1755\n",
        "gpu_utilization [%], mem_utilization [%], max_memory_usage [MiB], pid\n50 %, 20 %, 5 MiB, 42\n",
    ],
)
def test_other_tables_are_not_misread(text: str) -> None:
    assert feed(NvidiaSmiCsv, text).readings == []


# --- the whole -----------------------------------------------------------------------------------


def test_samples_are_of_gpus() -> None:
    assert all(feed(NvidiaSmiCsv, sample).readings for sample in SAMPLES)


def test_spaces_at_the_end_do_not_matter() -> None:
    assert feed(NvidiaSmiCsv, LOOP.replace("\n", "  \n")).readings == feed(NvidiaSmiCsv, LOOP).readings


def test_what_a_demo_run_writes_is_read_again() -> None:
    snapshots = list(simulate("throttled", 60))
    readings = readings_of(log(snapshots))
    assert len(readings) == len(snapshots)
    for reading, snapshot in zip(readings, snapshots, strict=True):
        assert reading.time_s == pytest.approx(snapshot.time_s, abs=0.001)
        for (place, facts), gpu in zip(reading.gpus, snapshot.gpus, strict=True):
            assert (place.uuid, place.index) == (gpu.uuid, gpu.index)
            assert facts["utilization_pct"] == pytest.approx(gpu.utilization_pct, abs=0.5)
            assert facts.get("clocks_event_reasons") == gpu.clocks_event_reasons
            assert facts["power_w"] == pytest.approx(gpu.power_w, abs=0.01)


@pytest.mark.parametrize("scenario", ["throttled", "hang"])
def test_what_a_demo_run_writes_is_judged_like_the_run(scenario: str, tmp_path: Path) -> None:
    snapshots = list(simulate(scenario, 240, at_s=150))
    path = tmp_path / "gpus.csv"
    path.write_text(log(snapshots), encoding="ascii")
    first, again = (
        [(alert.finding.rule, alert.finding.severity) for alert in diagnose(source, kind="trace").alerts[:1]]
        for source in (ListSource(snapshots), Input([path]))
    )
    assert first == again != []
