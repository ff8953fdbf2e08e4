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
_SLOW_READ_S = 0.010
"""From here on a loader that reads one file after another waits more than it reads."""


def network_storage_bound(intake: Intake, _lost_pct: float) -> Cause | None:
    """Workers are idle while their files lie on a network filesystem, or come in over the network."""
    cpu = intake.worker_cpu_pct if intake.workers else intake.main_cpu_pct
    arrives = intake.net_rx_bytes_per_s
    is_remote = intake.network_filesystem is not None
    read_s = intake.nfs_read_s
    is_slow = read_s is not None and read_s >= _SLOW_READ_S
    if cpu is None or cpu >= _IDLE_CPU_PCT or intake.disk_busy_pct >= 50.0:
        return None
    # Latency starves a loader as well as bandwidth does, at hardly any traffic.
    if not is_remote and not is_slow and (arrives < _ARRIVES_BYTES_PER_S or not intake.workers):
        return None
    where = intake.network_filesystem or ("nfs" if is_slow else "network")
    late = f", {1000.0 * read_s:.0f} ms a read" if read_s is not None and is_slow else ""
    return Cause(
        id="network-storage-bound",
        confidence="likely" if is_remote else "possible",
        text=f"data over {where} at {units.rate(arrives).strip()}{late}, loader CPU {cpu:.0f}%",
        fix_text="copy the data to a local disk",
        fixes=_FIXES,
        evidence=(
            Evidence(name="data filesystem", value=intake.network_filesystem, judged_by="network or FUSE"),
            Evidence(name="network in", value=units.rate(arrives).strip(), field="net_rx_bytes_per_s"),
            Evidence(
                name="NFS read",
                value=None if read_s is None else round(1000.0 * read_s, 1),
                unit="ms",
                judged_by=f"≥ {1000.0 * _SLOW_READ_S:.0f} ms",
                field="nfs_read_s",
            ),
            Evidence(name="loader CPU", value=float(round(cpu)), unit="%", judged_by=f"< {_IDLE_CPU_PCT:.0f}%"),
        ),
        is_cold=True,
    )
