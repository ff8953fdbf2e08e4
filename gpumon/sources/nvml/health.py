"""Knows what the driver counts about a GPU's memory errors, and what it wants done with a sick GPU."""

from __future__ import annotations

from typing import Any

import pynvml

from gpumon.sources.nvml.calls import Asker, Fields

_CORRECTED, _UNCORRECTED = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
_COUNTS = {
    _CORRECTED: "ecc_corrected",
    _UNCORRECTED: "ecc_uncorrected",
    pynvml.NVML_FI_DEV_REMAPPED_COR: "remapped_rows_corrected",
    pynvml.NVML_FI_DEV_REMAPPED_UNC: "remapped_rows_uncorrected",
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: "recovery_action",
}
_FLAGS = {
    pynvml.NVML_FI_DEV_REMAPPED_PENDING: "remap_pending",
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE: "remap_failed",
}
_TOTALS = {
    "ecc_corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "ecc_uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}


class Health:
    """The error counters of one GPU. A GPU without ECC or without row remapping leaves them out."""

    def __init__(self) -> None:
        self._fields = Fields("health fields", [*_COUNTS, *_FLAGS])

    def read(self, asker: Asker) -> dict[str, Any]:
        """Errors since the driver was loaded, remapped rows, and the recovery action that the driver asks for."""
        answers = self._fields.read(asker)
        facts: dict[str, Any] = {name: answers.get(field) for field, name in _COUNTS.items()}
        facts.update({name: _flag(answers.get(field)) for field, name in _FLAGS.items()})
        for name, kind in _TOTALS.items():
            if facts[name] is None:
                facts[name] = asker(f"ecc {name}", pynvml.nvmlDeviceGetTotalEccErrors, kind, pynvml.NVML_VOLATILE_ECC)
        if facts["remap_failed"] is None:
            rows = asker("remapped rows", pynvml.nvmlDeviceGetRemappedRows)
            if rows is not None:
                facts.update(remapped_rows_corrected=rows[0], remapped_rows_uncorrected=rows[1])
                facts.update(remap_pending=bool(rows[2]), remap_failed=bool(rows[3]))
        return facts


def modes(asker: Asker) -> dict[str, Any]:
    """What somebody may have set: ECC now and after the next reset, persistence; and the lifetime's SRAM errors."""
    ecc = asker("ecc mode", pynvml.nvmlDeviceGetEccMode)
    persistence = asker("persistence", pynvml.nvmlDeviceGetPersistenceMode)
    sram = asker(
        "sram errors",
        pynvml.nvmlDeviceGetMemoryErrorCounter,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_AGGREGATE_ECC,
        pynvml.NVML_MEMORY_LOCATION_SRAM,
    )
    return {
        "ecc_enabled": None if ecc is None else ecc[0] == pynvml.NVML_FEATURE_ENABLED,
        "ecc_enabled_pending": None if ecc is None else ecc[1] == pynvml.NVML_FEATURE_ENABLED,
        "ecc_sram_uncorrected": sram,
        "persistence": None if persistence is None else persistence == pynvml.NVML_FEATURE_ENABLED,
    }


def capability(asker: Asker) -> str | None:
    """``9.0``: what the GPU's code must be compiled for."""
    version = asker("compute capability", pynvml.nvmlDeviceGetCudaComputeCapability)
    return None if version is None else f"{version[0]}.{version[1]}"


def _flag(value: float | None) -> bool | None:
    return None if value is None else bool(value)
