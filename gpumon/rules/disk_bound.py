"""Knows the cause ``disk-bound``: the loader waits for local disks."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake

_FIXES = (
    "stage the data on local NVMe or in /dev/shm",
    "pack small files: WebDataset, LMDB, Parquet, MosaicML shards",
    "if the data fits in RAM: read it once before the run (vmtouch -t)",
    "read shards in sequence and shuffle in a buffer",
    "more workers hide the latency of random reads",
)
_ON_DISK_PCT = 30.0
_PRESSURE_PCT = 20.0
_DISK_BUSY_PCT = 80.0


def disk_bound(intake: Intake, _lost_pct: float) -> Cause | None:
    """Workers sit in disk waits, or tasks stall on I/O, while the local disk is busy."""
    waits, cpu = intake.disk_wait_pct, intake.worker_cpu_pct or 0.0
    is_waiting = (waits or 0.0) >= _ON_DISK_PCT or intake.io_pressure_pct >= _PRESSURE_PCT
    is_disk = intake.disk_busy_pct >= _DISK_BUSY_PCT or ((waits or 0.0) >= _ON_DISK_PCT and cpu < 60.0)
    if not is_waiting or not is_disk or intake.network_filesystem is not None:
        return None
    busy = f"disk busy {intake.disk_busy_pct:.0f}%"
    text = busy if waits is None else f"loader waits on disk {waits:.0f}%, {busy}"
    return Cause(
        id="disk-bound",
        confidence="likely" if waits is not None and intake.disk_busy_pct >= _DISK_BUSY_PCT else "possible",
        text=text,
        fix_text="stage the data on local NVMe",
        fixes=_FIXES,
        evidence=(
            Evidence(
                name="workers on disk",
                value=None if waits is None else float(round(waits)),
                unit="%",
                judged_by=f"≥ {_ON_DISK_PCT:.0f}%",
            ),
            Evidence(
                name="disk busy",
                value=float(round(intake.disk_busy_pct)),
                unit="%",
                judged_by=f"≥ {_DISK_BUSY_PCT:.0f}%",
                field="disk_busy_pct",
            ),
            Evidence(
                name="I/O pressure",
                value=float(round(intake.io_pressure_pct)),
                unit="%",
                judged_by=f"≥ {_PRESSURE_PCT:.0f}%",
                field="io_pressure_pct",
            ),
            Evidence(name="disk read", value=units.rate(intake.host.disk_read_bytes_per_s).strip()),
        ),
        is_cold=True,
    )
