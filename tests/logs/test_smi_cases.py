"""What the whole program says of dumps that people paste, each with one kind of trouble or with none."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.logs.log import Log
from gpumon.opened import Opened

FOLDER = Path(__file__).parent.parent / "cases"


class Says(NamedTuple):
    rule: str
    severity: str
    confidence: str
    gpu: int | None = None


EXPECTED: dict[str, tuple[Says, ...]] = {
    "q-power-brake-on-all.txt": (Says("power-brake", "critical", "likely"),),
    "q-contradicting-limiters.txt": (
        Says("power-brake", "warning", "possible", 2),
        Says("idle-reserved", "info", "possible", 2),
    ),
    "q-power-cap-at-the-default.txt": (),
    "q-held-and-idle.txt": (Says("idle-reserved", "info", "possible"),),
    "q-busy-at-little-power.txt": (Says("low-power-high-util", "info", "possible", 1),),
    "q-idle-and-healthy.txt": (),
    "q-error-in-an-informational-field.txt": (Says("idle-reserved", "info", "possible", 0),),
    "q-gpu-that-does-not-answer.txt": (Says("gpu-lost", "critical", "certain", 0),),
    "q-only-the-encoder-works.txt": (),
    "q-instances-at-work.txt": (),
    "q-windows.txt": (),
    "q-temperature-only.txt": (),
    "q-limiters-pasted.txt": (Says("hw-thermal", "warning", "likely", 0),),
    "xml-virtual-with-half-its-lanes.xml": (),
    "xml-sentences-for-values.xml": (),
}


def of(name: str) -> Diagnosis:
    log = Log([Opened(FOLDER / name)])
    found = diagnose(log, kind="nvidia-smi-q")
    assert log.unread == []
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_findings(name: str) -> None:
    """Exactly these and no other: what a reading cannot show is not said."""
    findings = [alert.finding for alert in of(name).alerts]
    said = [Says(one.rule, one.severity, one.confidence, one.subject.gpu) for one in findings]
    assert sorted(said, key=lambda one: one.rule) == sorted(EXPECTED[name], key=lambda one: one.rule)


def test_every_case_is_here() -> None:
    """No file is left without what it should say."""
    assert {path.name for path in FOLDER.iterdir() if path.name.startswith(("q-", "xml-"))} == set(EXPECTED)


def test_single_reading_asks_for_another() -> None:
    """What one reading shows may be a change of state: the first remedy is to look again."""
    alert = of("q-contradicting-limiters.txt").alerts[0]
    assert alert.finding.fixes[0].startswith("read it again")


def test_power_is_taken_from_whichever_field_has_it() -> None:
    """Where the average is a sentence, the instantaneous reading stands in."""
    assert of("xml-sentences-for-values.xml").gpus[0].power_w == 11.63


def test_limit_of_the_device_is_kept() -> None:
    """A laptop's GPU that may not run above 58 °C is not judged by what others may."""
    (gpu,) = of("q-temperature-only.txt").gpus
    assert (gpu.temperature_c, gpu.temperature_max_c, gpu.temperature_slowdown_c) == (57.0, 58.0, 97.0)
