"""Knows how busy the parts of a GPU really were: NVML's GPM counters, by the difference of two samples."""

from __future__ import annotations

import math
import struct
from typing import Any

import pynvml

from gpumon.sources.nvml.calls import Asker

SHORTEST_S = 0.1
"""GPM wants at least this long between its two samples; until then the last difference stands."""
EVERY_S = 1.8
"""Two calls that take longer than all others: every second pass at the usual interval."""

_MIB = 2**20
_METRICS = (
    (pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL, "graphics_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_SM_UTIL, "sm_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_SM_OCCUPANCY, "sm_occupancy_pct", 1),
    (pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, "tensor_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL, "dram_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_FP64_UTIL, "fp64_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_FP32_UTIL, "fp32_active_pct", 1),
    (pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, "pcie_tx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, "pcie_rx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, "nvlink_tx_bytes_per_s", _MIB),
    (pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, "nvlink_rx_bytes_per_s", _MIB),
)
"""Metric, field, and how much of the field's unit one is."""
_ANSWERS = struct.Struct("@24x" + len(_METRICS) * "4xId24x")
"""NVML's code and the value of each metric in nvmlGpmMetricsGet_t: its ctypes members take a microsecond each."""


def is_supported(asker: Asker) -> bool:
    """GPM exists on this GPU (ask the parent for a MIG instance)."""
    support = asker("gpm support", pynvml.nvmlGpmQueryDeviceSupport)
    return support is not None and bool(support.isSupportedDevice)


class Activity:
    """The two newest GPM samples of a GPU or MIG instance."""

    def __init__(self, gpu_instance: int | None = None) -> None:
        """A MIG instance is sampled through its parent's handle and its number there; it has no other utilization."""
        self._gpu_instance = gpu_instance
        self._every_s = EVERY_S if gpu_instance is None else SHORTEST_S
        self._older: Any = None
        self._newer: Any = None
        self._newer_at = 0.0
        self._last: dict[str, float] = {}
        self._question: Any = None

    def read(self, asker: Asker) -> dict[str, float]:
        """Means since the last sample; empty on the first reading and where the GPU refuses."""
        now = asker.now
        every_s = self._every_s if self._last else SHORTEST_S
        if self._newer is not None and now - self._newer_at < every_s:
            return self._last
        sample = self._older if self._older is not None else asker("gpm alloc", lambda _: pynvml.nvmlGpmSampleAlloc())
        if sample is None:
            return {}
        self._older = sample
        if self._gpu_instance is None:
            taken = asker("gpm sample", pynvml.nvmlGpmSampleGet, sample)
        else:
            taken = asker("gpm sample", pynvml.nvmlGpmMigSampleGet, self._gpu_instance, sample)
        if taken is None:
            return {}
        self._older, self._newer, self._newer_at = self._newer, sample, now
        if self._older is None:
            return {}
        self._last = self._difference(asker)
        return self._last

    def free(self) -> None:
        """Give the samples back; only while the driver answers."""
        for sample in (self._older, self._newer):
            if sample is not None:
                try:
                    pynvml.nvmlGpmSampleFree(sample)
                except pynvml.NVMLError:
                    break
        self._older = self._newer = None

    def _difference(self, asker: Asker) -> dict[str, float]:
        question = self._question
        if question is None:
            question = self._question = pynvml.c_nvmlGpmMetricsGet_t()
            question.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            question.numMetrics = len(_METRICS)
            for slot, (metric, _, _) in zip(question.metrics, _METRICS, strict=False):
                slot.metricId = metric
        question.sample1, question.sample2 = self._older, self._newer
        if asker("gpm metrics", lambda _: pynvml.nvmlGpmMetricsGet(question)) is None:
            return {}
        values: dict[str, float] = {}
        answers = _ANSWERS.unpack_from(question)
        for (_, field, scale), code, value in zip(_METRICS, answers[::2], answers[1::2], strict=True):
            if code == 0 and math.isfinite(value) and value >= 0:
                values[field] = min(value, 100.0) if scale == 1 else value * scale
        return values
