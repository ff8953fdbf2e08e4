"""``nvidia-smi -q`` as text."""

from __future__ import annotations

import pytest

from gpumon.logs.nvidia_smi_q import NvidiaSmiQ
from gpumon.logs.reading import Facts, Place, Reading
from tests.logs.feeding import feed
from tests.logs.samples.nvidia_smi_q import LOST, MODERN, OLD, PASTED, SAMPLES, SPLIT

MIB = 1024**2
NOON = 1_781_000_430.0
"""2026-06-09 10:20:30, as written."""


def only(text: str) -> Reading:
    readings, left_out, others = feed(NvidiaSmiQ, text)
    assert (left_out, others) == ([], [])
    assert len(readings) == 1
    return readings[0]


def facts_of(text: str) -> Facts:
    return only(text).gpus[0][1]


def test_modern_dump_gives_every_fact() -> None:
    reading = only(MODERN)
    ((place, facts),) = reading.gpus
    assert reading.time_s == NOON
    assert not reading.has_zone
    assert reading.host == {"driver_version": "590.44.01", "cuda_version": "13.1"}
    assert place == Place(0, "00000000:4e:00.0", "GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01")
    assert facts == {
        "name": "NVIDIA H100 80GB HBM3",
        "persistence": True,
        "mig_enabled": False,
        "recovery_action": 0,
        "pcie_gen": 4,
        "pcie_gen_max": 4,
        "pcie_width": 8,
        "pcie_width_max": 16,
        "pcie_replays": 3,
        "pcie_tx_bytes_per_s": 1_024_000.0,
        "pcie_rx_bytes_per_s": 2_048_000.0,
        "performance_state": "P0",
        "clocks_event_reasons": ("sw_power_cap", "sw_thermal"),
        "memory_total_bytes": 81559 * MIB,
        "memory_reserved_bytes": 500 * MIB,
        "memory_used_bytes": 40000 * MIB,
        "compute_mode": "exclusive-process",
        "utilization_pct": 97.0,
        "memory_utilization_pct": 41.0,
        "encoder_pct": 0.0,
        "decoder_pct": 0.0,
        "ecc_enabled": True,
        "ecc_enabled_pending": False,
        "ecc_corrected": 42,
        "ecc_uncorrected": 4,
        "ecc_sram_uncorrected": 6,
        "remapped_rows_corrected": 1,
        "remapped_rows_uncorrected": 6,
        "remap_pending": True,
        "remap_failed": False,
        "temperature_c": 61.0,
        "temperature_margin_c": 26.0,
        "memory_temperature_c": 72.0,
        "power_w": 612.4,
        "power_limit_w": 650.0,
        "power_default_limit_w": 700.0,
        "sm_clock_mhz": 1695.0,
        "memory_clock_mhz": 2619.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_max_mhz": 2619.0,
        "fabric_state": "in-progress",
    }


def test_processes_of_a_dump_are_all_there_are() -> None:
    reading = only(MODERN)
    python, server = reading.uses
    assert reading.is_complete_process_list
    assert (python.pid, python.memory_bytes) == (4711, 39000 * MIB)
    assert python.facts == {"name": "python", "command": "/opt/conda/bin/python"}
    assert (server.pid, server.memory_bytes) == (4712, None)
    assert server.facts["command"] == "[serve: worker@node:Main] -active- (-n x@%h -E) 100%"


def test_old_dump_has_other_words_for_the_same() -> None:
    reading = only(OLD)
    (first, facts), (second, _) = reading.gpus
    assert first == Place(0, "00000000:05:00.0", "GPU-0a0a0a0a-1111-2222-3333-444444444444")
    assert second.index == 1
    assert reading.host["chassis"] == "virtual"
    assert facts["clocks_event_reasons"] == ("gpu_idle",)
    assert (facts["memory_used_bytes"], "memory_reserved_bytes" in facts) == (11 * MIB, False)
    assert (facts["ecc_corrected"], facts["ecc_uncorrected"], facts["ecc_enabled"]) == (5, 2, True)
    assert (facts["power_w"], facts["power_limit_w"], facts["power_default_limit_w"]) == (41.7, 250.0, 300.0)
    limits = {name: facts[name] for name in facts if name.startswith(("temperature_", "memory_temperature_"))}
    assert limits == {
        "temperature_c": 33.0,
        "temperature_shutdown_c": 90.0,
        "temperature_slowdown_c": 87.0,
        "temperature_max_c": 83.0,
        "memory_temperature_c": 30.0,
        "memory_temperature_max_c": 85.0,
    }
    assert (facts["fan_pct"], facts["performance_state"]) == (38.0, "P8")
    assert "remap_pending" not in facts


def test_processes_none_is_an_answer() -> None:
    reading = only(OLD)
    assert reading.is_complete_process_list
    assert [(use.pid, use.gpu.index) for use in reading.uses] == [(77, 1)]


def test_processes_not_available_are_unknown() -> None:
    assert not only(LOST.replace(": None\n", ": N/A\n")).is_complete_process_list


def test_instances_stand_beside_their_gpu() -> None:
    reading = only(SPLIT)
    (gpu, parent), (first, instance), (second, other) = reading.gpus
    assert (parent["mig_enabled"], parent["memory_used_bytes"], parent["ecc_uncorrected"]) == (True, 9037 * MIB, 0)
    assert "utilization_pct" not in parent
    assert instance == {
        "sm_count": 42,
        "ecc_uncorrected": 1,
        "memory_total_bytes": 20096 * MIB,
        "memory_reserved_bytes": 0,
        "memory_used_bytes": 37 * MIB,
        "mig_parent_uuid": gpu.uuid,
    }
    assert (first.index, second.index, other["memory_used_bytes"]) == (0, 1, 9000 * MIB)
    assert first.uuid != second.uuid
    assert [use.gpu for use in reading.uses] == [second]


def test_errors_in_core_fields_mean_that_the_gpu_is_lost() -> None:
    reading = only(LOST)
    ((place, facts),) = reading.gpus
    assert facts == {
        "name": "NVIDIA A100 80GB PCIe",
        "memory_total_bytes": 81920 * MIB,
        "recovery_action": 4,
        "is_lost": True,
    }
    ((where, event),) = reading.events
    assert (where, event["kind"]) == (place, "gpu-lost")
    assert event["text"] == "nvidia-smi: error for UUID, VBIOS, fan, clock limiters, temperature"


@pytest.mark.parametrize("field", ["Addressing Mode", "VBIOS Version", "Fan Speed", "Performance State"])
def test_error_in_another_field_means_only_that_it_is_unknown(field: str) -> None:
    lines = [
        f"{line.partition(':')[0]}: Unknown Error" if line.strip().startswith(field) else line
        for line in MODERN.split("\n")
    ]
    assert "is_lost" not in facts_of("\n".join(lines))


@pytest.mark.parametrize(
    "cell",
    [
        "N/A",
        "[N/A]",
        "Not Supported",
        "[Unknown Error]",
        "Insufficient Permissions",
        "Requested functionality has been deprecated",
        "",
    ],
)
def test_words_in_place_of_a_number_are_unknown(cell: str) -> None:
    facts = facts_of(MODERN.replace("97 %", cell).replace("61 C", cell).replace("81559 MiB", cell))
    assert not {"utilization_pct", "temperature_c", "memory_total_bytes", "is_lost"} & set(facts)


def test_zero_degrees_and_zero_megahertz_are_no_measurement() -> None:
    facts = facts_of(OLD.replace("87 C", "0 C").replace("135 MHz", "0 MHz"))
    assert not {"temperature_slowdown_c", "sm_clock_mhz"} & set(facts)


def test_power_of_the_module_is_not_the_gpus() -> None:
    without = "\n".join(line for line in MODERN.split("\n") if "612.40" not in line and "598.10" not in line)
    assert "power_w" not in facts_of(without)


def test_instantaneous_power_stands_in_for_the_average() -> None:
    assert facts_of(MODERN.replace("612.40 W", "N/A"))["power_w"] == 598.1


def test_lost_indentation_changes_nothing() -> None:
    flat = "\n".join(line.strip() for line in MODERN.split("\n"))
    assert only(flat) == only(MODERN)
    split = "\n".join(line.strip() for line in SPLIT.split("\n"))
    assert only(split) == only(SPLIT)


def test_more_indentation_changes_nothing() -> None:
    deeper = "\n".join(f"\t      {line}" for line in OLD.split("\n"))
    assert only(deeper) == only(OLD)


def test_collapsed_spaces_change_nothing() -> None:
    narrow = "\n".join(" : ".join(part.strip() for part in line.split(" : ", 1)) for line in OLD.split("\n"))
    assert only(narrow) == only(OLD)


def test_part_pasted_without_header_is_of_gpu_0() -> None:
    reading = only(PASTED)
    assert reading.time_s is None
    assert reading.gpus == [
        (Place(0), {"clocks_event_reasons": ("hw_slowdown", "hw_thermal"), "temperature_c": 94.0}),
    ]


def test_part_of_a_dump_without_the_heading_above_it() -> None:
    assert facts_of("        GPU Current Temp                  : 94 C\n") == {"temperature_c": 94.0}


def test_list_of_reasons_that_was_cut_says_nothing_about_the_rest() -> None:
    cut = PASTED[: PASTED.index("            HW Thermal")].replace("Active", "Not Active").replace("Not Not", "Not")
    assert facts_of(cut) == {}
    assert facts_of(PASTED.replace(": Active", ": Not Active"))["clocks_event_reasons"] == ()


def test_cut_dump_gives_what_it_had() -> None:
    ((_, facts),) = only(MODERN[: MODERN.index("    ECC Mode")]).gpus
    assert facts["utilization_pct"] == 97.0
    assert "temperature_c" not in facts


def test_cut_dump_does_not_list_all_processes() -> None:
    assert not only(OLD[: OLD.index("    Processes\n")]).is_complete_process_list


@pytest.mark.parametrize(
    "line", ["+-----------------------------+", "# gpu   pwr", "real 3m10.161s", "Done in: 4 s", "[1]+  Done"]
)
def test_other_text_ends_it(line: str) -> None:
    fed = feed(NvidiaSmiQ, f"{OLD}{line}\n")
    assert fed.others == [line]
    assert len(fed.readings) == 1


@pytest.mark.parametrize(
    "line",
    [
        "Temperature",
        "Processes:",
        "GPU 0: NVIDIA H100 (UUID: GPU-1)",
        "Driver Version: 535.54",
        "| NVIDIA-SMI 535.54   Driver Version: 535.54   CUDA Version: 12.2  |",
        "DRIVER version      : 590.44.01",
        "  Total : 81559 MiB",
        "Timestamp : soon",
        "=========",
        "x : y",
    ],
)
def test_other_text_does_not_begin_it(line: str) -> None:
    assert feed(NvidiaSmiQ, line).readings == []
    assert feed(NvidiaSmiQ, line).others == [line]


def test_several_dumps_are_a_series_with_shares_from_the_counters() -> None:
    later = (
        MODERN.replace("10:20:30", "10:20:40")
        .replace(": 2000000 us", ": 2500000 us")
        .replace(": 5000000 us", ": 12000000 us")
        .replace("HW Power Braking                               : 0 us", "HW Power Braking : 99999999999 us")
    )
    first, second, third = feed(NvidiaSmiQ, MODERN + later + MODERN.replace("10:20:30", "10:20:50")).readings
    assert "throttled_pct" not in first.gpus[0][1]
    assert second.gpus[0][1]["throttled_pct"] == {
        "sw_power_cap": 70.0,
        "sync_boost": 0.0,
        "sw_thermal": 5.0,
        "hw_thermal": 0.0,
        "hw_power_brake": 100.0,
    }
    assert third.gpus[0][1]["throttled_pct"] == {"sync_boost": 0.0, "hw_thermal": 0.0}, "the driver was loaded anew"


def test_dumps_are_told_apart_without_banner_and_time() -> None:
    gpu = "GPU 00000000:05:00.0\n    Fan Speed : {} %\n"
    readings = feed(NvidiaSmiQ, gpu.format(30) + gpu.format(40)).readings
    assert [reading.gpus[0][1]["fan_pct"] for reading in readings] == [30.0, 40.0]


def test_a_dump_of_one_gpu_of_several_goes_by_its_minor_number() -> None:
    one = OLD.replace("Attached GPUs                       : 2", "Attached GPUs : 4")
    assert [place.index for place, _ in only(one).gpus] == [1, 0]


def test_uuids_that_were_masked_alike_identify_nobody() -> None:
    masked = OLD.replace("0a0a0a0a", "00000000").replace("0b0b0b0b", "00000000")
    assert [place.uuid for place, _ in only(masked).gpus] == [None, None]
    assert [place.bus for place, _ in only(masked).gpus] == ["00000000:05:00.0", "00000000:06:00.0"]


def test_domains_are_kept() -> None:
    place, _ = only("GPU 1A2B3C4D:00:00.0\n    Product Name : Tesla K80\n").gpus[0]
    assert place.bus == "1a2b3c4d:00:00.0"


def test_accounted_processes_are_no_processes() -> None:
    text = "GPU 00000000:05:00.0\n    Processes : None\n    Accounted Processes\n        Process ID : 5\n"
    assert only(text).uses == []


def test_windows_does_not_say_whose_memory_it_is() -> None:
    text = MODERN.replace("/opt/conda/bin/python", r"C:\Program Files\Some Thing\a b.exe").replace(
        "39000 MiB", "Not available in WDDM driver model"
    )
    use = only(text).uses[0]
    assert (use.memory_bytes, use.facts["name"]) == (None, "a b.exe")


def test_dump_goes_on_after_a_line_of_something_else() -> None:
    noise = "[  12.5] usb 1-1: new device\n"
    at = OLD.index("    Temperature")
    first, second = feed(NvidiaSmiQ, OLD[:at] + noise + OLD[at:]).readings
    whole = only(OLD)
    assert second.time_s == first.time_s == whole.time_s
    assert [place.bus for place, _ in second.gpus] == [place.bus for place, _ in whole.gpus]
    assert {**first.gpus[0][1], **second.gpus[0][1]} == whole.gpus[0][1]
    assert [use.pid for use in second.uses] == [77]


def test_gpu_after_a_line_of_something_else_is_not_the_first() -> None:
    at = OLD.index("GPU 00000000:06")
    first, second = feed(NvidiaSmiQ, f"{OLD[:at]}$ make: done\n{OLD[at:]}").readings
    assert second.time_s == first.time_s
    assert [(place.index, place.bus) for place, _ in second.gpus] == [(0, "00000000:06:00.0")]
    assert [place.index for place, _ in first.gpus] == [1]


def test_part_pasted_after_another_dump_is_of_its_last_gpu() -> None:
    place, _ = feed(NvidiaSmiQ, f"{OLD}# then\n{PASTED}").readings[-1].gpus[0]
    assert place.bus == "00000000:06:00.0"


def test_numbers_beyond_all_measure_are_unknown() -> None:
    text = MODERN.replace("97 %", f"{'9' * 5000} %").replace("61 C", "1e400 C").replace("1000 KB/s", "-1635107216 KB/s")
    assert not {"utilization_pct", "temperature_c", "pcie_tx_bytes_per_s"} & set(facts_of(text))


def test_samples_are_each_understood() -> None:
    assert all(feed(NvidiaSmiQ, sample).readings for sample in SAMPLES)
