"""Logs without processes in which a GPU's memory falls to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.logs.log import Log
from gpumon.model import Process, Snapshot
from gpumon.opened import Opened
from tests import builders
from tests.logs.writers import nvidia_smi_csv, nvidia_smi_xml

GIB = 1024**3


def run(*stretches: tuple[int, float], step_s: float = 1.0, processes: Sequence[Process] = ()) -> list[Snapshot]:
    """So many readings with so many GiB in use, and a second GPU that does nothing."""
    held = [gib for count, gib in stretches for _ in range(count)]
    return [
        builders.snapshot(
            builders.NOON + number * step_s,
            [
                builders.gpu(
                    index,
                    pci_bus_id=f"00000000:{index + 3:02x}:00.0",
                    memory_used_bytes=round(gib * GIB),
                    utilization_pct=97.0 if gib > 1 else 0.0,
                    power_w=640.0 if gib > 1 else 70.0,
                )
                for index, gib in enumerate((mine, 0.0))
            ],
            processes,
            interval_s=step_s if number else None,
        )
        for number, mine in enumerate(held)
    ]


def judged(path: Path, text: str) -> Diagnosis:
    path.write_text(text, encoding="utf-8")
    return diagnose(Log([Opened(path)]), kind="log")


def ends(found: Diagnosis) -> list[tuple[int | None, float, str, str]]:
    return [
        (one.finding.subject.gpu, round(one.since_s - builders.NOON), one.finding.severity, one.finding.confidence)
        for one in found.alerts
        if one.finding.rule == "training-ended"
    ]


@pytest.mark.parametrize(
    ("stretches", "step_s", "expected"),
    [
        (((20, 40.0), (180, 0.0)), 1.0, [19]),
        (((20, 40.0), (180, 0.3)), 1.0, [19]),
        (((100, 40.0), (100, 0.0), (100, 40.0), (100, 0.0), (30, 40.0), (90, 0.0)), 1.0, [429]),
        (((400, 40.0), (900, 0.0)), 60.0, [23_940]),
        (((20, 40.0), (180, 0.0), (5, 40.0)), 1.0, []),
        (((200, 40.0), (30, 0.0)), 1.0, []),
        (((200, 40.0), (100, 20.0)), 1.0, []),
        (((200, 0.4), (100, 0.0)), 1.0, []),
        (((300, 0.0),), 1.0, []),
    ],
)
def test_the_last_work_of_a_gpu_ended(
    tmp_path: Path, stretches: tuple[tuple[int, float], ...], step_s: float, expected: list[int]
) -> None:
    found = judged(tmp_path / "gpus.csv", nvidia_smi_csv.log(run(*stretches, step_s=step_s)))
    assert ends(found) == [
        (0, pytest.approx(at, abs=60.0 if step_s > 1 else 1.0), "info", "possible") for at in expected
    ]
    assert found.is_healthy()


def test_where_processes_are_listed_they_tell_of_ends(tmp_path: Path) -> None:
    assert ends(judged(tmp_path / "gpus.xml", nvidia_smi_xml.write(run((20, 40.0), (180, 0.0))))) == []
