"""Knows the cause ``network-storage-bound``: the loader waits for files on another machine."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake

_FIXES = (
    "copy the data to a local disk when the job starts",
    "NFS: mount with nconnect=8 and a larger rsize; raise sunrpc.tcp_slot_table_entries",
    "pack small files: WebDataset, Parquet, MosaicML shards",
    "more workers and prefetch_factor=4 hide latency",
    "a cache in between: Alluxio, JuiceFS, fscache",
)
_ARRIVES_BYTES_PER_S = 20e6
_IDLE_CPU_PCT = 60.0


def network_storage_bound(intake: Intake, _lost_pct: float) -> Cause | None:
    """Workers are idle while their files lie on a network filesystem, or come in over the network."""
    cpu = intake.worker_cpu_pct if intake.workers else intake.main_cpu_pct
    arrives = intake.net_rx_bytes_per_s
    is_remote = intake.network_filesystem is not None
    if cpu is None or cpu >= _IDLE_CPU_PCT or intake.disk_busy_pct >= 50.0:
        return None
    if not is_remote and (arrives < _ARRIVES_BYTES_PER_S or not intake.workers):
        return None
    where = intake.network_filesystem or "network"
    return Cause(
        id="network-storage-bound",
        confidence="likely" if is_remote else "possible",
        text=f"data over {where} at {units.rate(arrives).strip()}, loader CPU {cpu:.0f}%",
        fix_text="copy the data to a local disk",
        fixes=_FIXES,
        evidence=(
            Evidence(name="data filesystem", value=intake.network_filesystem, judged_by="network or FUSE"),
            Evidence(name="network in", value=units.rate(arrives).strip(), field="net_rx_bytes_per_s"),
            Evidence(name="loader CPU", value=float(round(cpu)), unit="%", judged_by=f"< {_IDLE_CPU_PCT:.0f}%"),
        ),
        is_cold=True,
    )
