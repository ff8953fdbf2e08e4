"""``nvidia-smi -L``, ``topo -m`` and ``nvlink``."""

from __future__ import annotations

import pytest

from gpumon.logs.reading import Facts, Place
from gpumon.logs.topology import Topology
from tests.logs.feeding import feed
from tests.logs.samples import topology as text

ONE = Place(0, uuid="GPU-7e57a000-0000-4000-8000-000000000001")


def said(output: str) -> dict[int | None, Facts]:
    """By index, of a text that is all claimed."""
    readings, left_out, others = feed(Topology, output)
    assert left_out == others == []
    assert len(readings) <= 1
    return {place.index: facts for reading in readings for place, facts in reading.gpus}


def test_list_names_gpus() -> None:
    reading = feed(Topology, text.LISTED).readings[0]
    assert reading.gpus[0] == (ONE, {"name": "NVIDIA A100-SXM4-40GB"})
    assert [place.index for place, _ in reading.gpus] == [0, 1]


def test_masked_uuids_are_none() -> None:
    masked = text.LISTED.replace("7e57a000-0000-4000-8000-000000000001", "00000000-0000-0000-0000-000000000000")
    assert feed(Topology, masked).readings[0].gpus[0][0] == Place(0)


def test_matrix_gives_numa_nodes_and_links() -> None:
    assert said(text.MATRIX) == {
        0: {"nvlinks_active": 8, "numa_node": 0},
        1: {"nvlinks_active": 8, "numa_node": 1},
        2: {"nvlinks_active": 8},
    }


def test_links_through_a_switch_are_the_same_ones_towards_everybody() -> None:
    assert said(text.SWITCHED) == {
        0: {"nvlinks_active": 18, "numa_node": 0},
        1: {"nvlinks_active": 18, "numa_node": 0},
        2: {"nvlinks_active": 18},
    }


def test_gpus_that_meet_over_pcie_have_no_active_link() -> None:
    assert said(text.PCIE_ONLY) == {0: {"nvlinks_active": 0}, 1: {"nvlinks_active": 0}}


def test_a_gpu_alone_says_nothing_of_links() -> None:
    assert said("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-15\t0\n") == {0: {"numa_node": 0}}


def test_status_counts_links() -> None:
    found = said(text.STATUS)
    assert (found[0]["nvlinks_active"], found[0]["nvlinks_total"]) == (2, 3)
    assert (found[1]["nvlinks_active"], found[1]["nvlinks_total"]) == (3, 3)


def test_status_of_older_drivers_has_no_uuid() -> None:
    readings = feed(Topology, text.OLD_STATUS).readings
    assert readings[0].gpus[0][0] == Place(3)
    assert readings[0].gpus[0][1]["nvlinks_active"] == 2


def test_errors_are_added_up() -> None:
    assert said(text.ERRORS)[0] == {"name": "NVIDIA A100-SXM4-40GB", "nvlink_errors": 27, "nvlink_crc_errors": 22}


def test_two_commands_are_two_readings() -> None:
    readings = feed(Topology, text.STATUS + text.ERRORS).readings
    assert [sorted(reading.gpus[0][1]) for reading in readings] == [
        ["name", "nvlinks_active", "nvlinks_total"],
        ["name", "nvlink_crc_errors", "nvlink_errors"],
    ]


def test_capabilities_are_passed_over() -> None:
    assert said(text.CAPABILITIES) == {0: {"name": "NVIDIA A100-SXM4-40GB"}}


def test_cards_without_links_say_so() -> None:
    found = said(text.NONE)
    assert found[0] == {"name": "NVIDIA RTX A4000"}
    assert found[1]["nvlinks_active"] == 0


@pytest.mark.parametrize(
    "line",
    ["GPU 0: A40", "Link 0: up", "GPU0 is busy", "GPU 0: 98%", "Legend:", "X = Self", "GPU0,GPU1", "Link 1: 3 errors"],
)
def test_lines_of_others_are_left_alone(line: str) -> None:
    assert feed(Topology, line).others == [line]
