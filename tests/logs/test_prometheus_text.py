"""Prometheus text of GPU exporters."""

from __future__ import annotations

import pytest

from gpumon.logs.prometheus_names import BY_LABEL, MEANINGS
from gpumon.logs.prometheus_text import INTERVAL_S, LAST_SEEN, PrometheusReader
from gpumon.logs.reading import Facts, Place, Reading
from gpumon.model import Event, Gpu, Snapshot
from tests.logs.feeding import feed
from tests.logs.samples.prometheus_text import (
    DCGM,
    DCGM_FIRST,
    DCGM_UNITS,
    DUMP,
    MIG,
    NVITOP,
    OTHERS,
    OWN,
    QUOTED,
    SMI,
)
from tests.logs.writers import prometheus_text as writer

MIB = 1024**2
MIDNIGHT = 1_772_409_600.0
A, B = Place(0, None, "GPU-aaaa"), Place(1, None, "GPU-bbbb")


def read(text: str) -> list[Reading]:
    readings, left_out, others = feed(PrometheusReader, text)
    assert (left_out, others) == ([], [])
    return readings


def by_uuid(reading: Reading) -> dict[str | None, Facts]:
    merged: dict[str | None, dict[str, object]] = {}
    for place, facts in reading.gpus:
        merged.setdefault(place.uuid, {}).update(facts)
    return dict(merged)


def test_dcgm_before_units() -> None:
    (reading,) = read(DCGM)
    gpus = by_uuid(reading)
    assert gpus["GPU-aaaa"] == {
        "name": "NVIDIA H100 80GB HBM3",
        "sm_clock_mhz": 1755.0,
        "utilization_pct": 97.0,
        "power_w": 612.345,
        "energy_j": 455497.156,
        "memory_used_bytes": 61000 * MIB,
        "memory_reserved_bytes": 559 * MIB,
        "memory_total_bytes": 81559 * MIB,
        "clocks_event_reasons": ("sw_power_cap", "sw_thermal"),
        "nvlink_rx_bytes_per_s": 15e9,
        "nvlink_tx_bytes_per_s": 15e9,
        "tensor_active_pct": pytest.approx(41.2),
        "pcie_rx_bytes_per_s": 45987793.0,
    }
    assert reading.host == {"name": "node7", "driver_version": "550.54.15"}
    assert (reading.time_s, reading.interval_s) == (None, INTERVAL_S)


def test_blanks_and_sensors_that_answer_zero_are_unknown() -> None:
    gpus = by_uuid(read(DCGM)[0])
    assert gpus["GPU-bbbb"] == {
        "name": "NVIDIA H100 80GB HBM3",
        "sm_clock_mhz": 345.0,
        "utilization_pct": 0.0,
        "clocks_event_reasons": (),
    }


def test_dcgm_with_units() -> None:
    (reading,) = read(DCGM_UNITS)
    gpus = by_uuid(reading)
    assert gpus["GPU-aaaa"] == {
        "utilization_pct": 97.0,
        "memory_used_bytes": 61000 * MIB,
        "memory_total_bytes": 85520809984,
        "power_w": 612.345,
        "power_limit_w": 700.0,
        "energy_j": 455497.0,
        "sm_clock_mhz": 1755.0,
        "memory_clock_mhz": 2619.0,
        "temperature_c": 61.0,
        "nvlink_rx_bytes_per_s": 15e9,
        "nvlink_tx_bytes_per_s": 15e9,
        "tensor_active_pct": pytest.approx(41.2),
        "remap_failed": True,
    }
    assert gpus["GPU-bbbb"] == {"utilization_pct": 100.0}
    assert reading.host["driver_version"] == "580.65.06"


def test_a_ratio_above_one_anywhere_is_percent_everywhere() -> None:
    series = 'DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu="{}",UUID="GPU-{}"}} {}\n'
    (reading,) = read(series.format(0, "aaaa", 1) + series.format(1, "bbbb", 97))
    gpus = by_uuid(reading)
    assert gpus["GPU-aaaa"]["utilization_pct"] == 1.0
    assert gpus["GPU-bbbb"]["utilization_pct"] == 97.0


def test_the_first_names() -> None:
    assert by_uuid(read(DCGM_FIRST)[0])["GPU-aaaa"] == {
        "utilization_pct": 55.0,
        "memory_used_bytes": 1000 * MIB,
        "memory_total_bytes": 16000 * MIB,
    }


def test_mig_instances_have_their_own_memory_and_activity_and_nobody_has_utilization() -> None:
    (reading,) = read(MIG)
    gpus = dict(reading.gpus)
    assert gpus[A] == {"name": "NVIDIA A100-SXM4-40GB", "temperature_c": 44.0, "mig_enabled": True}
    assert gpus[Place(13, None, "MIG-GPU-aaaa/13/0")] == {
        "name": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "mig_profile": "1g.5gb",
        "mig_parent_uuid": "GPU-aaaa",
        "memory_used_bytes": 3000 * MIB,
        "graphics_active_pct": 100.0,
    }


def test_own_names_and_counters_that_become_shares_and_rates() -> None:
    untimed, first, second = (by_uuid(one)["GPU-aaaa"] for one in read(OWN.replace("100 1772409600000", "100")))
    assert untimed == {
        "name": "NVIDIA L4",
        "utilization_pct": 50.0,
        "temperature_c": 60.0,
        "memory_temperature_c": 70.0,
        "sm_clock_mhz": 2040.0,
        "power_w": 70.5,
        "ecc_corrected": 3,
    }
    assert "throttled_pct" not in first
    assert second["throttled_pct"] == {"sw_thermal": 0.0}
    assert second["pcie_rx_bytes_per_s"] == 2e8


def test_times_at_the_end_of_lines() -> None:
    scrapes = read(OWN)
    assert [one.time_s for one in scrapes] == [MIDNIGHT, MIDNIGHT + 10.0, MIDNIGHT + 20.0]
    assert scrapes[1].has_zone
    assert by_uuid(scrapes[1])["GPU-aaaa"]["throttled_pct"] == {"sw_thermal": 40.0}


def test_nvitop_exporter_with_escapes_and_processes() -> None:
    (reading,) = read(NVITOP)
    assert by_uuid(reading)["GPU-aaaa"] == {
        "name": 'Card "B"\\x',
        "utilization_pct": 88.0,
        "memory_used_bytes": 2048 * MIB,
        "pcie_rx_bytes_per_s": 10.0 * MIB,
    }
    (use,) = reading.uses
    assert (use.pid, use.gpu, use.memory_bytes, use.sm_pct, use.facts) == (77, A, 2000 * MIB, 80.0, {"user": "ann"})
    assert reading.host == {"name": "10.1.1.1", "cpu_pct": 12.5}


def test_nvidia_gpu_exporter_whose_uuids_are_bare() -> None:
    (reading,) = read(SMI)
    uuid = "GPU-0a0b0c0d-1111-2222-3333-444455556666"
    assert by_uuid(reading)[uuid] == {
        "name": "NVIDIA GeForce RTX 3090",
        "utilization_pct": 31.0,
        "memory_used_bytes": 674 * MIB,
        "sm_clock_mhz": 1695.0,
        "performance_state": "P2",
        "clocks_event_reasons": ("sw_power_cap",),
    }
    assert reading.time_s == MIDNIGHT
    assert reading.uses[0].facts == {"name": "train"}
    ((place, event),) = reading.events
    assert place is not None
    assert place.uuid == uuid
    assert (event["xid"], event["time_s"], event["values"]) == (79, MIDNIGHT - 100.0, {"count": 1.0})


def test_other_dialects() -> None:
    gpus = by_uuid(read(OTHERS)[0])
    assert gpus["GPU-cccc"] == {
        "name": "Tesla V100",
        "utilization_pct": 42.0,
        "power_w": 151.0,
        "sm_clock_mhz": 1380.0,
        "ecc_uncorrected": 2,
    }
    assert gpus["GPU-dddd"] == {"name": "NVIDIA A30", "utilization_pct": 25.5, "power_w": 80.0}
    assert gpus["GPU-eeee"] == {"name": "NVIDIA T4", "utilization_pct": 75.0, "memory_used_bytes": 1024 * MIB}


def test_several_dialects_of_one_gpu_do_not_mix() -> None:
    own = 'gpumon_gpu_power_watts{gpu="0",uuid="GPU-aaaa"} 70.5\n'
    dcgm = 'DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa"} 71.0\n'
    for text in (own + dcgm, dcgm + own):
        assert by_uuid(read(text)[0])["GPU-aaaa"]["power_w"] == 70.5


def test_gpus_shared_by_time_have_their_largest_value() -> None:
    series = 'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-aaaa",pod="{}"}} {}\n'
    (reading,) = read(series.format("a", 80) + series.format("b", 95) + series.format("c", 95))
    assert by_uuid(reading)["GPU-aaaa"]["utilization_pct"] == 95.0


def test_repeated_series_are_the_next_scrape() -> None:
    scrapes = read(DCGM + DCGM.replace("} 97", "} 50"))
    assert [by_uuid(one)["GPU-aaaa"]["utilization_pct"] for one in scrapes] == [97.0, 50.0]


def test_a_date_between_scrapes_times_them() -> None:
    text = f"Mon Mar  2 00:00:00 UTC 2026\n{DCGM_FIRST}Mon Mar  2 00:00:30 UTC 2026\n{DCGM_FIRST}"
    assert [one.time_s for one in feed(PrometheusReader, text).readings] == [MIDNIGHT, MIDNIGHT + 30.0]


def test_a_dump_in_the_order_of_series_is_put_into_the_order_of_time() -> None:
    scrapes = read(DUMP)
    assert [one.time_s for one in scrapes] == [MIDNIGHT, MIDNIGHT + 15.0, MIDNIGHT + 30.0]
    assert by_uuid(scrapes[2])["GPU-aaaa"] == {"utilization_pct": 30.0, "temperature_c": 53.0}


# --- faults ------------------------------------------------------------------------------------


def test_the_last_xid_is_of_unknown_age_at_first_sight() -> None:
    ((place, event),) = read(DCGM)[0].events
    assert place == A
    assert event["xid"] == 31
    assert event["values"] == {LAST_SEEN: 1.0}
    assert "not known" in event["text"]
    assert "GPU memory page fault" in event["text"]


def test_the_last_xid_is_told_once_and_news_when_it_changes() -> None:
    events = [one.events for one in read(DCGM + DCGM + DCGM.replace("} 31", "} 79"))]
    assert [len(one) for one in events] == [1, 0, 1]
    ((_, event),) = events[2]
    assert (event["xid"], event.get("values")) == (79, None)


def test_a_series_of_the_last_xid_that_begins_later_is_news() -> None:
    before = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa"} 80\n'
    after = before + 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-aaaa"} 48\n'
    events = [one.events for one in read(before + after)]
    assert events[0] == []
    assert events[1][0][1].get("values") is None


def test_a_gpu_of_which_only_its_fault_is_left_is_lost() -> None:
    before = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa"} 80\nDCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-bbbb"} 80\n'
    after = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa"} 100\nDCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-bbbb"} 79\n'
    first, *rest = read(before + after + after)
    assert "is_lost" not in by_uuid(first)["GPU-bbbb"]
    assert [by_uuid(one)["GPU-bbbb"] for one in rest] == [{"is_lost": True}] * 2


def test_a_quoted_series_without_a_value() -> None:
    (reading,) = read(QUOTED)
    ((place, event),) = reading.events
    assert (place, event["xid"]) == (None, 43)


def test_counted_xids() -> None:
    window = 'DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="GPU-aaaa",window_size_in_ms="300000",xid="94"} 2\n'
    ((_, event),) = read(window)[0].events
    assert (event["xid"], event["values"]) == (94, {"count": 2.0})
    total = 'DCGM_EXP_XID_ERRORS_TOTAL{{gpu="0",UUID="GPU-aaaa",xid="94"}} {}\n'
    events = [one.events for one in read(total.format(2) + total.format(2) + total.format(5))]
    assert [[event["values"] for _, event in one] for one in events] == [
        [{"count": 2.0, LAST_SEEN: 1.0}],
        [],
        [{"count": 3.0}],
    ]


# --- damage and neighbours ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).",
        'DCGM_FI_DEV_GPU_UTIL{gpu="0"} > 90',
        "avg(DCGM_FI_DEV_GPU_UTIL) 3",
        "DCGM_FI_DEV_GPU_UTIL",
        "# HELP go_goroutines Number of goroutines that currently exist.",
        "go_goroutines 12",
        "9223372036854776000",
        "gpu_utilization 3",
    ],
)
def test_lines_that_are_no_samples_of_gpus_do_not_begin_it(line: str) -> None:
    assert feed(PrometheusReader, line).others == [line]


def test_a_damaged_line_is_named_and_the_rest_is_read() -> None:
    lines = DCGM_FIRST.split("\n")
    fed = feed(PrometheusReader, "\n".join([lines[0], 'dcgm_gpu_temp{gpu="0",uuid="GPU', *lines[1:]]))
    assert len(fed.readings) == 1
    assert len(fed.left_out) == 1


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e400", "-5", "9" * 400, "140737488355328", "2147483632"])
def test_values_that_are_none(value: str) -> None:
    readings = feed(PrometheusReader, f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="GPU-aaaa"}} {value}\n').readings
    assert [facts for one in readings for _, facts in one.gpus if facts] == []


@pytest.mark.parametrize("time", ["1e400", "0", "-5", "9999999999999999", "1"])
def test_times_that_are_none(time: str) -> None:
    (reading,) = read(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-aaaa"}} 5 {time}\n')
    assert reading.time_s is None


def test_an_index_of_another_machine_is_not_mixed_in() -> None:
    series = 'DCGM_FI_DEV_GPU_UTIL{{gpu="0",Hostname="{}"}} {}\n'
    fed = feed(PrometheusReader, series.format("one", 10) + series.format("two", 90))
    assert [facts for _, facts in fed.readings[0].gpus] == [{"utilization_pct": 10.0}]
    assert len(fed.left_out) == 1


def test_every_meaning_is_a_field_of_the_model() -> None:
    meanings = [*MEANINGS.values(), *(one for _, values in BY_LABEL.values() for one in values.values())]
    fields = {one.field for one in meanings}
    plain = {field.removeprefix("ratio.").removeprefix("rate.") for field in fields}
    known = {"share", "free", "both", "xid", "use", "host", "reason"}
    assert {field for field in plain if field.partition(".")[0] not in known} - {"info"} <= set(Gpu.__struct_fields__)


def test_what_is_written_is_read_back() -> None:
    gpu = Gpu(
        uuid="GPU-aaaa",
        index=0,
        name='A "quoted" name',
        utilization_pct=93.0,
        power_w=301.25,
        memory_used_bytes=40 * 1024 * MIB,
        memory_total_bytes=80 * 1024 * MIB,
        sm_clock_mhz=1410.0,
        clocks_event_reasons=("sw_thermal",),
        throttled_pct={"sw_thermal": 30.0},
        tensor_active_pct=12.5,
        pcie_gen=4,
    )
    event = Event(kind="xid", xid=63, gpu_uuid="GPU-aaaa")
    snapshots = [Snapshot(time_s=MIDNIGHT + 2.0 * n, interval_s=2.0, gpus=(gpu,)) for n in range(3)]
    readings = read(writer.log([*snapshots, Snapshot(time_s=MIDNIGHT + 6, gpus=(gpu,), events=(event,))]))
    assert [one.time_s for one in readings] == [MIDNIGHT, MIDNIGHT + 2, MIDNIGHT + 4, MIDNIGHT + 6]
    assert readings[1].gpus[0] == (
        A,
        {
            "name": 'A "quoted" name',
            "utilization_pct": 93.0,
            "power_w": 301.25,
            "memory_used_bytes": 40 * 1024 * MIB,
            "memory_total_bytes": 80 * 1024 * MIB,
            "sm_clock_mhz": 1410.0,
            "clocks_event_reasons": ("sw_thermal",),
            "throttled_pct": {"sw_thermal": pytest.approx(30.0)},
            "tensor_active_pct": 12.5,
            "pcie_gen": 4,
        },
    )
    assert [facts["xid"] for _, facts in readings[3].events] == [63]
