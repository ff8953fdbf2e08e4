"""What the whole program says of logs of programs that failed, each with one kind of trouble or with none."""

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
    cause: str | None
    gpu: int | None = None


EXPECTED: dict[str, tuple[Says, ...]] = {
    "torch-oom-full.txt": (Says("oom-risk", "critical", "full", 0),),
    "torch-oom-on-eight.txt": (Says("oom-risk", "critical", "full"),),
    "torch-oom-in-pieces-old.txt": (
        Says("fragmentation", "critical", "pieces", 1),
        Says("oom-risk", "warning", "full", 1),
    ),
    "torch-oom-half-held.txt": (
        Says("oom-risk", "critical", "large-request", 0),
        Says("fragmentation", "warning", "cache", 0),
    ),
    "torch-oom-impossible.txt": (Says("oom-risk", "critical", "impossible-request", 0),),
    "torch-oom-withheld.txt": (Says("oom-risk", "critical", "free-not-allocatable", 0),),
    "torch-oom-process-limit.txt": (Says("oom-risk", "critical", "memory-fraction", 0),),
    "torch-oom-neighbour-sweep.txt": (Says("gpu-contention", "critical", "neighbour", 0),),
    "torch-oom-wrapped-mail.txt": (Says("oom-risk", "critical", "full", 0),),
    "torch-table-fragmented.txt": (Says("fragmentation", "warning", "pieces", 1),),
    "torch-table-healthy.txt": (),
    "torch-printed-cache.txt": (Says("fragmentation", "info", "cache-of-a-peak"),),
    "torch-rank-behind.txt": (Says("collective-hang", "critical", "rank-behind"),),
    "torch-oom-then-timeout.txt": (
        Says("oom-risk", "critical", "full", 3),
        Says("collective-hang", "warning", "rank-failed"),
    ),
    "torch-old-driver-on-cpu.txt": (
        Says("driver-mismatch", "critical", "driver-too-old"),
        Says("cpu-training", "warning", "driver-too-old"),
    ),
    "torch-cpu-only-build.txt": (Says("cpu-training", "warning", "cpu-only-wheel"),),
    "torch-new-gpu-old-build.txt": (Says("driver-mismatch", "critical", "no-kernel-image"),),
    "torch-compat-library.txt": (Says("driver-mismatch", "critical", "compat-library"),),
    "torch-fabric-manager.txt": (Says("driver-mismatch", "critical", "fabric-manager"),),
    "torch-device-assert.txt": (Says("training-died", "critical", "device-assert"),),
    "torch-loader-bus-error.txt": (
        Says("shm-full", "critical", "shm-used-up"),
        Says("gpu-misconfigured", "info", "loader-workers"),
    ),
    "torch-loader-killed.txt": (Says("ram-pressure", "critical", "killed"),),
}


def of(name: str) -> Diagnosis:
    log = Log([Opened(FOLDER / name)])
    found = diagnose(log, kind="torch-log")
    assert log.unread == []
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_findings(name: str) -> None:
    """Exactly these, the one to act on first."""
    findings = [alert.finding for alert in of(name).alerts]
    assert [Says(one.rule, one.severity, one.cause, one.subject.gpu) for one in findings] == list(EXPECTED[name])
    assert all(one.fixes for one in findings)


def test_every_case_is_expected() -> None:
    assert {path.name for path in FOLDER.glob("torch-*")} == set(EXPECTED)
