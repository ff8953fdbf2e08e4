"""Inputs from public reports, read in place: each gives what its report says, or what the input alone supports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.cli import run

SHARED = Path(__file__).resolve().parents[3] / "shared"
CASES = SHARED / "cases"
CHECK = SHARED / "field" / "check_field.py"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not CASES.is_dir(), reason="the shared inputs are not here"),
]


class Wanted(NamedTuple):
    """The right answer for one file."""

    file: str
    code: int
    """Exit code: 0 nothing of warning or worse, 1 findings, 2 refused in one line."""
    rule: str | None = None
    """Of the first finding; None: there is none at all."""
    cause: str | None = None
    why: str = ""


QUIET, FOUND, REFUSED = 0, 1, 2
ANSWERS = (
    Wanted("01-old-card-util-na/input.txt", QUIET, why="use is not supported there, which is not 0 %"),
    Wanted("03-power-na-quadro-k2100m/input.txt", QUIET),
    Wanted("04-dmon-pmon-not-supported/input.txt", QUIET, why="says that nothing was measured"),
    Wanted("06-gb10-table-mem-not-supported/input.txt", QUIET),
    Wanted("07-gb10-csv-mem-na-series/input.csv", QUIET),
    Wanted("12-orin-util-not-supported-thread-dies/input.txt", REFUSED, why="another tool's messages"),
    Wanted("13-wsl-555-garbage-name/input.txt", FOUND, "driver-mismatch", "wsl-garbage"),
    Wanted("15-v3-struct-missing-process/input.txt", QUIET, why="a list that may lack a process proves no orphan"),
    Wanted("18-memory-v2-version-constant/input.txt", REFUSED, why="a traceback's last line"),
    Wanted("19-process-gone-between-calls/input.txt", REFUSED, why="another tool's messages"),
    Wanted("22-windows-accessdenied-dwm/input.txt", REFUSED, why="a traceback's last line"),
    Wanted("24-wsl-per-process-mem-na/input.txt", REFUSED, why="another tool's screen"),
    *(
        Wanted(f"25-windows-wddm-na-processes/{name}", QUIET)
        for name in ("compute-apps.csv", "dmon.txt", "input.txt", "pmon.txt", "smi-q.txt")
    ),
    Wanted("27-table-starred-not-supported/input.txt", FOUND, "driver-mismatch", "library-version"),
    Wanted("28-one-gpu-lost-segfault/input.txt", FOUND, "gpu-lost"),
    Wanted("30-lost-gpu-invisible-to-exporter/input.txt", FOUND, "gpu-lost"),
    Wanted("31-driver-library-mismatch/input.txt", FOUND, "driver-mismatch", "library-version"),
    Wanted("33-suspend-resume-errors/input.txt", REFUSED, why="another tool's messages"),
    *(
        Wanted(f"36-mig-util-na-under-full-load/{name}", QUIET)
        for name in ("compute-apps.csv", "dmon.txt", "input.txt", "pmon.txt", "query-gpu.csv", "smi-q.txt")
    ),
    Wanted("37-mig-uuid-visible-devices/input.txt", REFUSED, why="a list of names and a traceback"),
    Wanted("39-dcgm-blank-sentinel-temp/input.txt", REFUSED, why="a bare number"),
    Wanted("40-dcgm-xid-gauge-sticky/input.prom.txt", QUIET, "xid", "xid-45", "the last one seen, its age unknown"),
    Wanted("42-terminal-locale-term/input.txt", REFUSED, why="terminal settings"),
    Wanted("45-xml-deprecated-values/input.xml", QUIET),
    Wanted("46-azure-pci-domain/input.txt", QUIET),
    Wanted("48-addressing-mode-unknown-error/input.txt", QUIET, "idle-reserved", "held-idle"),
    Wanted("49-err-fan-cell/input.txt", FOUND, "gpu-misconfigured", "fan-sensor"),
    Wanted("52-hw-power-brake-all-8-h100/input.txt", FOUND, "power-brake", "external-power"),
    Wanted("53-mixed-throttle-flags-one-gpu/input.txt", FOUND, "power-brake", "external-power"),
    Wanted("54-sw-power-cap-normal-4090/input.txt", QUIET),
    Wanted("55-vram-held-idle-8-gpus/input.txt", QUIET, "idle-reserved", "held-idle"),
    Wanted("56-mixed-node-util100-low-power/input.txt", QUIET, "idle-reserved", "held-idle"),
    Wanted("57-healthy-8-h100-idle/input.txt", QUIET),
    Wanted("58-laptop-max-temp-57/input.txt", QUIET, why="a temperature without a clock shows no throttling"),
    Wanted("58-laptop-max-temp-57/smi-table.txt", QUIET),
    Wanted("60-overheating-laptop-step-time/input.txt", REFUSED, why="a program's own progress, without a GPU"),
    Wanted("61-thermal-violation-at-75c/input.txt", QUIET, "sw-thermal", "temperature-limit"),
    Wanted("63-rtx3090-power-limited-run/failed-run-daemon.log", REFUSED, why="a program's own output"),
    Wanted("63-rtx3090-power-limited-run/failed-run.csv", QUIET, "training-ended", "memory-freed"),
    Wanted("63-rtx3090-power-limited-run/healthy-run.csv", QUIET),
    Wanted("66-training-low-util-4090/input.txt", QUIET, "data-starved", "one-reading", "asks for a series"),
    Wanted("69-h100-100pct-155w/input.csv", QUIET, "low-power-high-util", "collective-or-small-kernels"),
    Wanted("70-hang-v100-99pct-70w/input.txt", FOUND, "collective-hang", "spins"),
    *(
        Wanted(f"73-encoder-load-only/{name}", QUIET)
        for name in ("dmon.txt", "input.txt", "pmon.txt", "query-gpu.csv", "smi-q.txt")
    ),
    *(
        Wanted(f"74-h100-full-load-control/{name}", QUIET)
        for name in ("dmon.txt", "input.txt", "pmon.txt", "query-gpu.csv", "smi-q.txt")
    ),
    Wanted("75-oom-fragmentation-half-reserved/input.txt", FOUND, "oom-risk", "large-request"),
    Wanted("76-oom-truly-full/input.txt", FOUND, "oom-risk", "full"),
    Wanted("78-oom-absurd-request-bug/input.txt", FOUND, "oom-risk", "impossible-request"),
    Wanted("79-oom-with-free-memory/input.txt", FOUND, "oom-risk", "free-not-allocatable"),
    Wanted("81-memory-summary-healthy/input.txt", QUIET),
    Wanted("82-reserved-much-larger/input.txt", QUIET, "fragmentation", "cache-of-a-peak", "no leak"),
    Wanted("85-gpustat-null-owner/input.txt", FOUND, "vram-orphaned", "no-owner"),
    Wanted("87-process-name-unknown-error/input.txt", FOUND, "vram-orphaned", "dead-process"),
    Wanted("88-d-state-training-process/input.txt", REFUSED, why="a line of ps"),
    Wanted("89-xid48-63-94-hbm-dbe/input.dmesg.txt", FOUND, "xid", "xid-48"),
    Wanted("91-xid119-gsp-timeout/input.dmesg.txt", FOUND, "xid", "xid-119"),
    Wanted("92-xid13-43-illegal-address/input.dmesg.txt", FOUND, "xid", "xid-13"),
    Wanted("92-xid13-43-illegal-address/nccl-segfault.dmesg.txt", FOUND, "training-died", "segfault"),
    Wanted("93-xid149-154-nvlink-gb200/input.dmesg.txt", FOUND, "xid", "xid-149"),
    Wanted("96-xid31-43-faulty-device/input.dmesg.txt", FOUND, "xid", "xid-31"),
    Wanted("99-fallen-off-bus-no-xid/input.dmesg.txt", FOUND, "gpu-lost"),
    Wanted("100-aer-corrected-before-loss/input.dmesg.txt", FOUND, "gpu-lost"),
    Wanted("102-rminitadapter-failed/input.dmesg.txt", FOUND, "gpu-lost", "init-failed"),
    Wanted("105-pcie-m2-risers-x4/input.csv", QUIET, "pcie-degraded", "fewer-lanes", "the load is not known"),
    Wanted("106-pcie-gen3-x4-under-load-log/input.csv", FOUND, "pcie-degraded", "fewer-lanes"),
    Wanted("106-pcie-gen3-x4-under-load-log/pcie.dmesg.txt", QUIET, "pcie-degraded", "fewer-lanes"),
    Wanted("108-pcie-cloud-x8-of-x16/a10g.xml", QUIET),
    Wanted("108-pcie-cloud-x8-of-x16/tesla-t4.xml", QUIET, "idle-reserved", "held-idle"),
    Wanted("111-torch-runs-on-cpu-banner/input.txt", FOUND, "driver-mismatch", "driver-too-old"),
    Wanted("112-cpu-only-collect-env/input.txt", FOUND, "cpu-training", "cpu-only-wheel"),
    Wanted("114-error-804-forward-compat/input.txt", FOUND, "driver-mismatch", "compat-library"),
    Wanted("115-error-802-fabric-manager/input.txt", FOUND, "driver-mismatch", "fabric-manager"),
    Wanted("117-gpu-unused-tcc-v100/input.txt", QUIET, "idle-reserved", "held-idle"),
)


def diagnosed(capsys: pytest.CaptureFixture[str], *files: Path) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and stderr of ``gpumon diagnose``."""
    code = run(["diagnose", "--json", *map(str, files)])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else {}, captured.err


@pytest.mark.parametrize("wanted", ANSWERS, ids=lambda wanted: wanted.file)
def test_each_case_gets_its_answer(wanted: Wanted, capsys: pytest.CaptureFixture[str]) -> None:
    """The first finding, its cause and the exit code."""
    code, found, complaint = diagnosed(capsys, CASES / wanted.file)
    assert code == wanted.code, complaint or found["findings"]
    if code == REFUSED:
        assert complaint.count("\n") == 1
        assert Path(wanted.file).name in complaint
        return
    first = found["findings"][0] if found["findings"] else {"rule": None, "cause": None}
    assert first["rule"] == wanted.rule
    assert wanted.cause is None or first["cause"] == wanted.cause
    assert all(finding["fixes"] for finding in found["findings"] if finding["severity"] != "info")


def test_every_input_has_an_answer() -> None:
    """No file is left out."""
    files = {str(path.relative_to(CASES)) for path in CASES.glob("*/*") if path.is_file() and path.name != "case.md"}
    assert files == {wanted.file for wanted in ANSWERS}


def test_several_files_of_one_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """All captures of one machine in one command are one reading of one GPU, and nothing is wrong with it."""
    folder = CASES / "74-h100-full-load-control"
    code, found, _ = diagnosed(capsys, *sorted(path for path in folder.iterdir() if path.suffix != ".md"))
    assert code == QUIET
    assert found["source"]["kind"] == "mixed"
    assert len(found["gpus"]) == 1


def test_long_logs_of_others_are_read_without_false_alarms() -> None:
    """The field check: every promised format is read, and no finding is one that its label rules out."""
    command = f"{sys.executable} -m gpumon"
    checked = subprocess.run(
        [sys.executable, str(CHECK), "--cmd", command, "--jobs", "2"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout
