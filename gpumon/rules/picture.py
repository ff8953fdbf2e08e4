"""Knows the pictures that a training GPU shows over a window, of which at most one is true at a time.

====== ======= ======= ======= ======= ========= =========================================
busy   waits   SM      DRAM    tensor  picture   read by
====== ======= ======= ======= ======= ========= =========================================
any    ≥ 10 %  any     any     any     waits     data-starved
< 90   < 10 %  any     any     any     host      host-bound, where the main thread is hot
≥ 90   < 10 %  unknown any     any     closed    low-power-high-util
≥ 90   < 10 %  < 60    any     any     small     kernels-too-small, from < 50 on
≥ 90   < 10 %  ≥ 60    ≥ 60    < 25    memory    bandwidth-bound
≥ 90   < 10 %  ≥ 60    < 60    < 6     fp32      tensor-cores-idle
≥ 90   < 10 %  ≥ 60    any     else    good      nobody: say nothing
====== ======= ======= ======= ======= ========= =========================================
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from gpumon.model import Abstention, Evidence, Gpu, Job
from gpumon.rules.scope import gpus_of, subject_of, trained_for
from gpumon.signals import power_share
from gpumon.window import Window

Kind = Literal["waits", "host", "closed", "small", "memory", "fp32", "good"]

_BUSY_PCT = 90.0
_WAITS_PCT = 10.0
_SM_PCT = 60.0
_DRAM_PCT = 60.0
_TENSOR_LOW_PCT = 25.0
_TENSOR_IDLE_PCT = 6.0
_IDLE_PCT = 2.0

_NO_GPM = "GPM is not available on this GPU, so what its multiprocessors do is unknown"


class Picture(NamedTuple):
    """Means of one GPU over a window, in percent; None where unknown. What only some rules ask for is read then."""

    kind: Kind
    busy_pct: float
    data_pct: float
    window: Window
    gpu: Gpu
    seconds: float

    @property
    def sm_pct(self) -> float | None:
        """Its multiprocessors are active."""
        return self.window.mean(self.gpu, "sm_active_pct", self.seconds)

    @property
    def tensor_pct(self) -> float | None:
        """Its tensor cores are."""
        return self.window.mean(self.gpu, "tensor_active_pct", self.seconds)

    @property
    def dram_pct(self) -> float | None:
        """Its memory is."""
        return self.window.mean(self.gpu, "dram_active_pct", self.seconds)

    @property
    def fp32_pct(self) -> float | None:
        """The pipe for FP32 is."""
        return self.window.mean(self.gpu, "fp32_active_pct", self.seconds)

    @property
    def fp64_pct(self) -> float | None:
        """The pipe for FP64 is."""
        return self.window.mean(self.gpu, "fp64_active_pct", self.seconds)

    @property
    def power_share(self) -> float | None:
        """How far its power lies between idle and limit, 0 to 1."""
        return power_share_of(self.window, self.gpu, self.seconds)


def picture_of(window: Window, gpu: Gpu, seconds: float) -> Picture | None:
    """What a GPU looks like; None where its use is unknown or there is none."""
    busy = window.mean(gpu, "graphics_active_pct", seconds)
    if busy is None:
        busy = window.mean(gpu, "utilization_pct", seconds)
    if busy is None or busy < _IDLE_PCT:
        return None
    data = window.mean(gpu, "budget.data_pct", seconds) or 0.0
    return Picture(_kind(window, gpu, seconds, busy, data), busy, data, window, gpu, seconds)


@lru_cache(maxsize=2)
def busy_jobs(window: Window, seconds: float) -> tuple[tuple[Job, list[tuple[Gpu, Picture]]], ...]:
    """Training jobs with the pictures of their GPUs, where at least one of them is busy all the time.

    Several rules ask for them of the same window, one after the other.
    """
    found = []
    for job in trained_for(window, seconds):
        gpus = gpus_of(window, job)
        uses = (window.mean(gpu, "utilization_pct", seconds) for gpu in gpus)
        if any(use is None or use >= _BUSY_PCT - 5.0 for use in uses):
            seen = [(gpu, picture_of(window, gpu, seconds)) for gpu in gpus]
            found.append((job, [(gpu, picture) for gpu, picture in seen if picture is not None]))
    return tuple(found)


def unseen(rule: str, job: Job, pictures: list[tuple[Gpu, Picture]]) -> Iterator[Abstention]:
    """Say once for a job that GPM is missing on GPUs that would be judged by it."""
    closed = [gpu for gpu, picture in pictures if picture.kind == "closed"]
    if closed:
        yield Abstention(rule=rule, because=_NO_GPM, subject=subject_of(job, closed))


def pipe_evidence(name: str, field: str, value: float | None, judged_by: str) -> Evidence:
    """How long one of a GPU's parts was busy; a share of the time, not of the peak."""
    shown = None if value is None else float(round(value))
    return Evidence(name=name, value=shown, unit="% of time", judged_by=judged_by, field=field)


def power_share_of(window: Window, gpu: Gpu, seconds: float) -> float | None:
    """The mean of its power between idle and limit, 0 to 1: a single reading may lie in a gap."""
    mean = msgspec.structs.replace(gpu, power_w=window.mean(gpu, "power_w", seconds))
    return power_share(mean, window.baseline(gpu, "power_idle_w"))


def _kind(window: Window, gpu: Gpu, seconds: float, busy: float, data: float) -> Kind:
    if data >= _WAITS_PCT:
        return "waits"
    if busy < _BUSY_PCT:
        return "host"
    sm = window.mean(gpu, "sm_active_pct", seconds)
    if sm is None:
        return "closed"
    if sm < _SM_PCT:
        return "small"
    tensor = window.mean(gpu, "tensor_active_pct", seconds)
    if tensor is None or tensor >= _TENSOR_LOW_PCT:
        return "good"
    if (window.mean(gpu, "dram_active_pct", seconds) or 0.0) >= _DRAM_PCT:
        return "memory"
    return "fp32" if tensor < _TENSOR_IDLE_PCT else "good"
