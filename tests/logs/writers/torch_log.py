"""Writes what a program on these snapshots would print: tables of its allocator, and PyTorch's message at the end."""

from __future__ import annotations

from collections.abc import Iterable

from gpumon.model import Rank, Snapshot

_MIB, _GIB = 1024**2, 1024**3
_EDGE = "|" + 75 * "="
_RULE = "|" + 75 * "-"


def memory_summary(snapshots: Iterable[Snapshot]) -> str:
    """``torch.cuda.memory_summary()`` of every rank, as of the last snapshot that tells of it."""
    ranks: dict[int, Rank] = {}
    indices: dict[str | None, int] = {}
    for snapshot in snapshots:
        ranks |= {rank.pid: rank for rank in snapshot.ranks}
        indices |= {gpu.uuid: gpu.index for gpu in snapshot.gpus}
    return "".join(_table(rank, indices.get(rank.gpu_uuid, 0)) for rank in ranks.values())


def _table(rank: Rank, index: int) -> str:
    counts = (
        f"CUDA OOMs: {rank.ooms or 0}".center(35) + "|" + f"cudaMalloc retries: {rank.alloc_retries or 0}".center(39)
    )
    rows = [_EDGE, "|" + f"PyTorch CUDA memory summary, device ID {index}".center(75), _RULE, "|" + counts, _EDGE]
    rows.append("|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ")
    for name, now, peak in (
        ("Allocated memory", rank.allocated_bytes, rank.allocated_peak_bytes),
        ("GPU reserved memory", rank.reserved_bytes, rank.reserved_bytes),
        ("Non-releasable memory", rank.inactive_split_bytes, rank.inactive_split_bytes),
    ):
        if now is not None:
            cells = (now, now if peak is None else peak, 10 * now, 9 * now)
            written = " | ".join(f"{cell // _MIB:>6} MiB" for cell in cells)
            rows += [_RULE, f"| {name:<21} | {written} "]
    return "|\n".join([*rows, _EDGE]) + "|\n"


def out_of_memory(snapshot: Snapshot, *, asks_bytes: int) -> str:
    """The message of a program on the first GPU of a snapshot that cannot get so many bytes more."""
    gpu, rank = snapshot.gpus[0], snapshot.ranks[0]
    used, total = gpu.memory_used_bytes or 0, gpu.memory_total_bytes or 0
    allocated, reserved = rank.allocated_bytes or 0, rank.reserved_bytes or 0
    mine = sum(one.gpu_memory_bytes.get(gpu.uuid) or 0 for one in snapshot.processes if one.pid == rank.pid)
    others = [
        f"Process {one.pid} has {_size(size)} memory in use. "
        for one in snapshot.processes
        if one.pid != rank.pid and (size := one.gpu_memory_bytes.get(gpu.uuid))
    ]
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {_size(asks_bytes)}. GPU {gpu.index} has a"
        f" total capacity of {_size(total)} of which {_size(total - used)} is free. {''.join(others)}Including"
        f" non-PyTorch memory, this process has {_size(mine)} memory in use. Of the allocated memory"
        f" {_size(allocated)} is allocated by PyTorch, and {_size(reserved - allocated)} is reserved by PyTorch but"
        " unallocated.\n"
    )


def _size(count_bytes: int) -> str:
    """As PyTorch's ``format_size``."""
    if count_bytes <= 1024:
        return f"{count_bytes} bytes"
    if count_bytes <= _MIB:
        return f"{count_bytes / 1024:.2f} KiB"
    return f"{count_bytes / _MIB:.2f} MiB" if count_bytes <= _GIB else f"{count_bytes / _GIB:.2f} GiB"
