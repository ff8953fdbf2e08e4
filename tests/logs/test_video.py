"""Logs of GPUs whose video encoder or decoder works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.diagnosis import diagnose
from gpumon.logs.log import Log
from gpumon.model import Snapshot
from gpumon.opened import Opened
from tests import builders
from tests.logs.writers import dmon, nvidia_smi_csv, nvidia_smi_xml, prometheus_text

WRITERS = (dmon.log, nvidia_smi_csv.log, nvidia_smi_xml.write, prometheus_text.log)


def run(**fields: float) -> Iterator[Snapshot]:
    """Short kernels with pauses, as of an encoder or of a loader that is too slow."""
    for number in range(300):
        gpu = builders.gpu(
            pci_bus_id="00000000:3b:00.0", utilization_pct=(95.0, 70.0, 5.0, 0.0)[number % 4], power_w=220.0, **fields
        )
        yield builders.snapshot(builders.NOON + number, [gpu], interval_s=1.0 if number else None)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("engine", ["encoder_pct", "decoder_pct"])
def test_its_pauses_are_no_waits_for_data(write: object, engine: str, tmp_path: Path) -> None:
    found = {}
    for share in (0.0, 60.0):
        path = tmp_path / f"{share}.log"
        path.write_text(write(run(**{engine: share})), encoding="utf-8")
        log = Log([Opened(path)])
        found[share] = [alert.finding.rule for alert in diagnose(log, kind="log").alerts]
        assert next(iter(Log([Opened(path)]))).gpus[0].encoder_pct == (share if engine == "encoder_pct" else None)
    assert found == {0.0: ["data-starved"], 60.0: []}
