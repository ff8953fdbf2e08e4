"""Writes snapshots as ``nvidia-smi pmon -s um -o DT`` prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from gpumon.model import Snapshot

_MIB = 1024**2
_TITLE = (
    "#Date        Time         gpu         pid   type     sm    mem    enc    dec     fb    command\n"
    "#YYYYMMDD    HH:MM:SS     Idx           #    C/G      %      %      %      %     MB    name\n"
)


def log(snapshots: Iterable[Snapshot]) -> str:
    """The rows of each moment under one title."""
    return _TITLE + "".join(row for snapshot in snapshots for row in _rows(snapshot))


def _rows(snapshot: Snapshot) -> Iterator[str]:
    when = datetime.fromtimestamp(snapshot.time_s, tz=timezone.utc)
    for gpu in snapshot.gpus:
        if gpu.mig_parent_uuid is not None or gpu.is_lost:
            continue
        begin = f" {when:%Y%m%d}    {when:%H:%M:%S}     {gpu.index:>3}"
        rows = []
        names = {gpu.uuid, *(one.uuid for one in snapshot.gpus if one.mig_parent_uuid == gpu.uuid)}
        for process in sorted(snapshot.processes, key=lambda one: one.pid):
            for uuid in names & set(process.gpu_memory_bytes):
                held = process.gpu_memory_bytes[uuid] if uuid == gpu.uuid else None
                sm = (process.gpu_sm_pct or {}).get(uuid)
                share = f"{'-' if sm is None else f'{sm:.0f}':>7}"
                memory = f"{'-' if held is None else f'{held / _MIB:.0f}':>7}"
                name = (process.name or "python")[:15]
                rows.append(f"{begin}{process.pid:>12}      C{share}      -      -      -{memory}    {name}\n")
        yield from rows or [f"{begin}           -      -      -      -      -      -      -    -\n"]
