"""``nvidia-smi -q -x``."""

from __future__ import annotations

import re

import pytest

from gpumon.logs.nvidia_smi_q import NvidiaSmiQ
from gpumon.logs.nvidia_smi_xml import NvidiaSmiXml
from gpumon.logs.reading import Facts, Place, Reading
from tests.logs.feeding import feed
from tests.logs.samples import nvidia_smi_q as text
from tests.logs.samples.nvidia_smi_xml import MODERN, OLD, SAMPLES, SPLIT

MIB = 1024**2


def only(document: str) -> Reading:
    readings, left_out, others = feed(NvidiaSmiXml, document)
    assert left_out == []
    assert [line for line in others if not line.startswith("<?xml")] == []
    assert len(readings) == 1
    return readings[0]


def facts_of(document: str) -> Facts:
    return only(document).gpus[0][1]


def test_document_says_what_the_text_of_the_same_moment_says() -> None:
    mine, same = only(MODERN), feed(NvidiaSmiQ, text.MODERN).readings[0]
    assert mine._replace(uses=()) == same._replace(uses=())
    assert [(use.pid, use.gpu, use.memory_bytes) for use in mine.uses] == [
        (use.pid, use.gpu, use.memory_bytes) for use in same.uses
    ]


def test_old_document_says_what_the_old_text_says() -> None:
    mine, same = facts_of(OLD), feed(NvidiaSmiQ, text.OLD).readings[0].gpus[0][1]
    differ = {"sm_clock_mhz", "memory_clock_max_mhz", "sm_clock_max_mhz", "persistence", "compute_mode"}
    differ |= {"encoder_pct", "decoder_pct"}
    differ |= {name for name in same if name.startswith("pcie_")}
    assert mine == {name: value for name, value in same.items() if name not in differ}


def test_places_are_those_of_the_gpu_elements() -> None:
    reading = only(OLD)
    assert [place for place, _ in reading.gpus] == [
        Place(0, "00000000:05:00.0", "GPU-0a0a0a0a-1111-2222-3333-444444444444"),
        Place(1, "00000000:06:00.0", "GPU-0b0b0b0b-1111-2222-3333-444444444444"),
    ]
    assert [(use.pid, use.gpu.index) for use in reading.uses] == [(77, 1)]
    assert reading.is_complete_process_list


def test_instances_stand_beside_their_gpu() -> None:
    reading = only(SPLIT)
    (gpu, parent), (first, instance), (second, other) = reading.gpus
    assert (parent["memory_used_bytes"], parent["temperature_c"]) == (9037 * MIB, 41.0)
    assert instance == {
        "sm_count": 42,
        "memory_total_bytes": 20096 * MIB,
        "memory_used_bytes": 37 * MIB,
        "mig_parent_uuid": gpu.uuid,
    }
    assert other["memory_used_bytes"] == 9000 * MIB
    assert (first.index, second.index) == (0, 1)
    assert [use.gpu for use in reading.uses] == [second]


def test_names_of_processes_may_break_the_rules_of_xml() -> None:
    assert only(MODERN).uses[1].facts["command"] == "serve & wait & see"
    broken = MODERN.replace("serve &amp; wait & see", "a <b> & </c> d < e")
    assert [use.pid for use in only(broken).uses] == [4711, 4712]


def test_sentences_in_place_of_values_are_unknown() -> None:
    facts = facts_of(MODERN.replace("97 %", "Requested functionality has been deprecated"))
    assert "utilization_pct" not in facts
    assert facts["memory_utilization_pct"] == 41.0


def test_several_documents_are_a_series_with_shares_from_the_counters() -> None:
    later = MODERN.replace("10:20:30", "10:20:40").replace(">5000000 us", ">12000000 us")
    first, second = feed(NvidiaSmiXml, MODERN + later).readings
    assert "throttled_pct" not in first.gpus[0][1]
    assert second.gpus[0][1]["throttled_pct"]["sw_power_cap"] == 70.0


def test_document_that_is_cut_gives_what_it_had() -> None:
    cut = MODERN[: MODERN.index("\t\t<ecc_mode>")]
    readings, left_out, _ = feed(NvidiaSmiXml, cut)
    assert readings[0].gpus[0][1]["utilization_pct"] == 97.0
    assert "temperature_c" not in readings[0].gpus[0][1]
    assert not readings[0].is_complete_process_list
    assert left_out == ["the document ends early"]


def test_document_after_one_that_was_cut_is_read() -> None:
    cut = MODERN[: MODERN.index("\t\t<ecc_mode>")]
    assert [len(reading.gpus) for reading in feed(NvidiaSmiXml, cut + OLD).readings] == [1, 2]


@pytest.mark.parametrize(
    "end", ["</fb_memory_usage>", "</bar1_memory_usage>", "<bar1_memory_usage>", "</utilization>", "</pci>"]
)
def test_line_that_was_lost_costs_no_other_value(end: str) -> None:
    damaged = MODERN.replace(f"\t\t{end}\n", "", 1)
    assert damaged != MODERN
    assert facts_of(damaged) == facts_of(MODERN)


def test_instance_whose_end_was_lost_does_not_take_what_is_the_gpus() -> None:
    damaged = SPLIT.replace("            </mig_device>\n", "")
    assert only(damaged) == only(SPLIT)


def test_one_long_line_is_read_as_well() -> None:
    assert only(re.sub(r"\n\s*", "", MODERN).replace("\n", "")) == only(MODERN)


def test_part_that_begins_with_a_gpu_is_read() -> None:
    part = OLD[OLD.index('    <gpu id="0000:06') : OLD.index("</nvidia_smi_log>")]
    readings = feed(NvidiaSmiXml, part).readings
    assert [place.bus for place, _ in readings[0].gpus] == ["00000000:06:00.0"]


def test_entities_are_neither_defined_nor_followed() -> None:
    bomb = (
        '<?xml version="1.0"?>\n<!DOCTYPE nvidia_smi_log [\n<!ENTITY a "97 %">\n'
        '<!ENTITY b SYSTEM "file:///etc/hostname">\n<!ENTITY c "&a;&a;&a;&a;&a;&a;&a;&a;">\n]>\n'
    )
    body = MODERN[MODERN.index("<nvidia_smi_log>") :]
    document = bomb + body.replace("97 %", "&a;").replace("/opt/conda/bin/python", "&b;&c;")
    readings = feed(NvidiaSmiXml, document).readings
    assert "utilization_pct" not in readings[0].gpus[0][1]
    assert readings[0].uses[0].facts["command"] == "&b;&c;"


def test_depth_and_size_have_bounds() -> None:
    deep = MODERN.replace("<temperature>", f"{'<x>' * 5000}{'</x>' * 5000}<temperature>")
    assert facts_of(deep)["power_w"] == 612.4
    long = MODERN.replace("/opt/conda/bin/python", "a" * 60_000)
    assert len(only(long).uses[0].facts["command"]) <= 4096


@pytest.mark.parametrize(
    "line", ["<html>", "<gpu>", "<nvidia_smi>", "<gpus id='1'>", "loss < 0.5", "<?xml version='1.0'?>"]
)
def test_other_text_does_not_begin_it(line: str) -> None:
    assert feed(NvidiaSmiXml, line).others == [line]


@pytest.mark.parametrize("line", ["# gpu   pwr", "+------+", "<html>", "==============NVSMI LOG=============="])
def test_other_text_ends_it(line: str) -> None:
    assert line in feed(NvidiaSmiXml, f"{OLD}{line}\n").others
    cut = OLD[: OLD.index("        <ecc_mode>")]
    assert line == "<html>" or line in feed(NvidiaSmiXml, f"{cut}{line}\n").others


def test_lost_gpu_is_told_by_its_core_fields() -> None:
    document = """\
<nvidia_smi_log>
    <gpu id="00000000:65:00.0">
        <uuid>Unknown Error</uuid>
        <fan_speed>Unknown Error</fan_speed>
        <temperature>
            <gpu_temp>GPU is lost</gpu_temp>
            <gpu_temp_slow_threshold>0 C</gpu_temp_slow_threshold>
        </temperature>
    </gpu>
</nvidia_smi_log>
"""
    assert facts_of(document) == {"is_lost": True}


def test_samples_are_each_understood() -> None:
    assert all(feed(NvidiaSmiXml, sample).readings for sample in SAMPLES)
