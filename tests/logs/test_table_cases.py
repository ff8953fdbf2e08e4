"""What the whole program says of tables that people paste, each with one kind of trouble or with none."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.logs.log import Log
from gpumon.opened import Opened

FOLDER = Path(__file__).parent.parent / "cases"
PREFIXES = ("table-", "nvlink-", "topology-", "gpustat-")


class Says(NamedTuple):
    rule: str
    severity: str
    confidence: str
    cause: str | None
    gpu: int | None = None


EXPECTED: dict[str, tuple[Says, ...]] = {
    "table-idle-and-healthy.txt": (),
    "table-full-load.txt": (),
    "table-encoder-only.txt": (),
    "table-unified-memory.txt": (),
    "table-windows.txt": (),
    "table-wsl.txt": (),
    "table-instances-at-work.txt": (),
    "table-in-a-container.txt": (),
    "table-cut-off.txt": (),
    "table-quoted-and-wrapped.txt": (),
    "table-of-2013.txt": (),
    "table-of-2016.txt": (Says("gpu-misconfigured", "info", "certain", "compute-mode", 1),),
    "table-one-lost-others-well.txt": (Says("gpu-lost", "critical", "certain", None),),
    "table-only-a-lost-gpu.txt": (Says("gpu-lost", "critical", "certain", None, 3),),
    "table-row-of-errors.txt": (Says("gpu-lost", "critical", "certain", None, 2),),
    "table-lost-without-a-name.txt": (Says("gpu-lost", "critical", "likely", "not-named"),),
    "table-no-devices.txt": (Says("gpu-lost", "critical", "likely", "not-named"),),
    "table-fan-error.txt": (Says("gpu-misconfigured", "warning", "certain", "fan-sensor", 0),),
    "table-tool-and-driver-differ.txt": (Says("driver-mismatch", "warning", "certain", "library-version"),),
    "table-library-mismatch.txt": (Says("driver-mismatch", "critical", "certain", "library-version"),),
    "table-no-driver.txt": (Says("driver-mismatch", "critical", "certain", "driver-away"),),
    "table-container-lost-access.txt": (Says("driver-mismatch", "critical", "likely", "container-access"),),
    "table-foreign-cuda.txt": (Says("driver-mismatch", "warning", "likely", "forward-compatibility"),),
    "table-wsl-garbage.txt": (Says("driver-mismatch", "warning", "likely", "wsl-garbage"),),
    "table-defunct-owner.txt": (Says("vram-orphaned", "warning", "likely", "dead-process", 0),),
    "table-not-found-owner.txt": (Says("vram-orphaned", "warning", "possible", "dead-process", 0),),
    "table-nobody-listed.txt": (Says("vram-orphaned", "info", "possible", "not-listed", 0),),
    "table-busy-but-cold.txt": (Says("collective-hang", "warning", "possible", "spins"),),
    "table-little-to-do-full-memory.txt": (Says("data-starved", "info", "possible", "one-reading", 0),),
    "table-held-and-idle.txt": (Says("idle-reserved", "info", "possible", "held-idle", 0),),
    "nvlink-fewer-links.txt": (Says("nvlink-down", "warning", "possible", "fewer-than-siblings", 2),),
    "topology-of-a-node.txt": (),
    "gpustat-no-owner.txt": (Says("vram-orphaned", "warning", "possible", "no-owner", 6),),
    "gpustat-users.txt": (),
}


def of(name: str) -> Diagnosis:
    log = Log([Opened(FOLDER / name)])
    found = diagnose(log, kind="nvidia-smi-table")
    assert log.unread == []
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_findings(name: str) -> None:
    """Exactly these and no other: what a reading cannot show is not said."""
    findings = [alert.finding for alert in of(name).alerts]
    said = [Says(one.rule, one.severity, one.confidence, one.cause, one.subject.gpu) for one in findings]
    assert said == list(EXPECTED[name])


def test_every_case_is_here() -> None:
    """No file is left without what it should say."""
    assert {path.name for path in FOLDER.iterdir() if path.name.startswith(PREFIXES)} == set(EXPECTED)


def test_lost_gpu_is_called_by_its_address_and_its_neighbours_stay() -> None:
    found = of("table-one-lost-others-well.txt")
    assert "a1:00.0" in found.alerts[0].finding.summary
    assert [gpu.name for gpu in found.gpus if not gpu.is_lost] == ["NVIDIA RTX A6000"]


def test_both_versions_are_named() -> None:
    cause = of("table-library-mismatch.txt").alerts[0].finding.cause_text
    assert cause == "driver 580.95.05 is loaded, its library is 580.126"


def test_instances_are_judged_instead_of_their_gpu() -> None:
    found = of("table-instances-at-work.txt")
    parent, first, second = found.gpus
    assert (first.mig_parent_uuid, second.mig_parent_uuid) == (parent.uuid, parent.uuid)
    assert any(one.rule == "idle-reserved" and "utilization" in one.because for one in found.abstained)
