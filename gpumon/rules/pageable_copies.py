"""Knows the cause ``pageable-copies``: batches go to the GPU from memory that is not pinned."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Evidence
from gpumon.rules.intake import Cause, Intake

COPIES_PCT = 10.0
"""Share of a step spent copying that is worth a word."""
ARRIVES_BYTES_PER_S = 1e9
"""Traffic to the GPU that makes pageable memory slow it down."""
FIXES = (
    "DataLoader(pin_memory=True) and batch.to(device, non_blocking=True)",
    "send uint8, and normalise and convert on the GPU",
    "no tensor.pin_memory().to(device) by hand in the loop: it can be twice as slow",
    "copy the next batch on a stream of its own while the GPU computes",
)


def pageable_copies(intake: Intake, _lost_pct: float) -> Cause | None:
    """There is no pin-memory thread, and much is copied to the device."""
    copies, arrives = intake.copy_pct, intake.to_gpu_bytes_per_s
    is_much = arrives is not None and arrives >= ARRIVES_BYTES_PER_S
    if not intake.workers or intake.is_pinned is not False or not ((copies or 0.0) >= COPIES_PCT or is_much):
        return None
    shown = None if arrives is None else units.rate(arrives).strip()
    return Cause(
        id="pageable-copies",
        confidence="possible" if copies is None else "likely",
        text=f"no pin-memory thread, copies {f'at {shown}' if copies is None else f'{copies:.0f}% of steps'}",
        fix_text="pin_memory=True, non_blocking=True",
        fixes=FIXES,
        evidence=(
            Evidence(name="pin-memory thread", value="none", judged_by="pt_data_pin"),
            Evidence(name="copies", value=None if copies is None else float(round(copies)), unit="% of step time"),
            Evidence(name="to the GPU", value=shown, field="pcie_rx_bytes_per_s"),
        ),
    )
