"""What a single reading says of PCIe lanes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.diagnosis import diagnose
from gpumon.model import Finding, Gpu
from tests import builders
from tests.builders import ListSource

MODEL = "NVIDIA GeForce RTX 5060 Ti"


def judged(gpus: Sequence[Gpu]) -> list[Finding]:
    found = diagnose(ListSource([builders.snapshot(builders.NOON, gpus)]), kind="trace")
    return [alert.finding for alert in found.alerts if alert.finding.rule == "pcie-degraded"]


def card(index: int, width: int, **fields: object) -> Gpu:
    values = {"name": MODEL, "utilization_pct": None, "pcie_gen": 4, "pcie_gen_max": 4, "pcie_width_max": 8, **fields}
    return builders.gpu(index, pcie_width=width, **values)


def test_cards_with_fewer_lanes_than_their_siblings_are_named() -> None:
    (finding,) = judged([card(0, 4), card(1, 4), card(2, 8), card(3, 8)])
    assert (finding.severity, finding.confidence, finding.subject.kind) == ("info", "possible", "host")
    assert finding.summary == "GPUs 0, 1 run on x4, siblings of the same model on x8"
    (finding,) = judged([card(0, 8), card(1, 4)])
    assert (finding.subject.gpu, finding.summary) == (1, "GPU 1 runs on x4, siblings of the same model on x8")


@pytest.mark.parametrize(
    "gpus",
    [
        [card(0, 4), card(1, 4)],
        [card(0, 8), card(1, 8)],
        [card(0, 4), card(1, 8, name="NVIDIA GeForce RTX 4090")],
        [card(0, 4)],
    ],
)
def test_silent_without_a_sibling_that_has_more(gpus: Sequence[Gpu]) -> None:
    assert judged(gpus) == []
