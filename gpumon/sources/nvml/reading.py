"""What one pass over the driver brought, as the reader publishes it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gpumon.model import Gpu, Host
from gpumon.sources import GpuUse


class Holder(NamedTuple):
    """One process on one GPU."""

    pid: int
    memory_bytes: int | None
    sm_pct: float | None


class GpuReading(NamedTuple):
    """One GPU as it last answered."""

    gpu: Gpu
    read_at: float
    """Monotonic."""
    holders: tuple[Holder, ...] = ()


class Versions(NamedTuple):
    """What the driver says about itself."""

    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None


class Reading(NamedTuple):
    """All GPUs in NVML's order, MIG instances right after their parent."""

    gpus: tuple[GpuReading, ...] = ()
    versions: Versions = Versions()
    answered_at: float | None = None
    """Monotonic time of the driver's last answer of any kind; None before the first."""
    error: str | None = None
    """Why NVML is away at the moment."""
    cpu_ms: float = 0.0
    """CPU time of the pass."""
    is_absent: bool = False
    """There is no driver, and none is waited for."""

    def uses(self) -> dict[int, GpuUse]:
        """Pid -> what it holds, over all GPUs."""
        uses: dict[int, GpuUse] = {}
        for gpu, _, holders in self.gpus:
            uuid = gpu.uuid
            for pid, memory_bytes, sm_pct in holders:
                use = uses.get(pid)
                if use is None:
                    use = uses[pid] = GpuUse({}, {} if sm_pct is not None else None)
                elif sm_pct is not None and use.sm_pct is None:
                    use = uses[pid] = GpuUse(use.memory_bytes, {})
                use.memory_bytes[uuid] = memory_bytes
                if sm_pct is not None and use.sm_pct is not None:
                    use.sm_pct[uuid] = sm_pct
        return uses


def aged(reading: Reading, now: float, since: float = 0.0) -> tuple[Gpu, ...]:
    """The reading's GPUs with their age. Windows of the driver's ring read before ``since`` were given out already."""
    replace = msgspec.structs.replace
    gpus = []
    for gpu, read_at, _ in reading.gpus:
        age_s = max(now - read_at, 0.0)
        if read_at >= since or not gpu.utilization_samples_pct:
            gpus.append(replace(gpu, age_s=age_s))
        else:
            gpus.append(replace(gpu, age_s=age_s, utilization_samples_pct=()))
    return tuple(gpus)


def with_driver(host: Host, reading: Reading, age_s: float) -> Host:
    """The host with what NVML says about the driver."""
    driver, nvml, cuda = reading.versions
    return msgspec.structs.replace(
        host,
        driver_version=driver,
        nvml_version=nvml,
        cuda_version=cuda,
        driver_age_s=None if reading.is_absent else age_s,
        driver_error=reading.error,
    )
