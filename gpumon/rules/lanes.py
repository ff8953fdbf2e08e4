"""Knows what one reading says of PCIe lanes: cards that are alike beside each other, whatever their load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.model import Evidence, Finding, Gpu, Subject
from gpumon.rules.limiters import boards
from gpumon.rules.links import has_slot
from gpumon.rules.rule import Conclusions
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


def narrower_than_siblings(window: Window, _limits: Base) -> Conclusions:
    """Cards with fewer lanes than others of their model: an idle link lowers its generation, not its lanes."""
    if window.last.host.chassis == "virtual":
        return
    models: dict[tuple[str, int], list[Gpu]] = {}
    for gpu in boards(window):
        if has_slot(gpu) and gpu.name and gpu.pcie_width and gpu.pcie_width_max:
            models.setdefault((gpu.name, gpu.pcie_width_max), []).append(gpu)
    yield from (found for gpus in models.values() for found in _narrow(gpus))


def _narrow(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    narrow = [gpu for gpu in gpus if (gpu.pcie_width or 0) < (gpu.pcie_width_max or 0)]
    if not narrow or len(narrow) == len(gpus):
        return
    is_one = len(narrow) == 1
    who = f"GPU {narrow[0].index} runs" if is_one else f"GPUs {', '.join(str(gpu.index) for gpu in narrow)} run"
    lanes = " and ".join(sorted({f"x{gpu.pcie_width}" for gpu in narrow}))
    most = f"x{narrow[0].pcie_width_max}"
    yield Finding(
        rule="pcie-degraded",
        severity="info",
        confidence="possible",
        subject=Subject(kind="gpu", gpu=narrow[0].index, uuid=narrow[0].uuid) if is_one else Subject(kind="host"),
        summary=f"{who} on {lanes}, siblings of the same model on {most}",
        cause="fewer-lanes",
        cause_text=f"others of the same model have {most}; whether the lanes are needed is not known",
        fix_text="slot on the CPU with all its lanes; riser; BIOS",
        evidence=(
            Evidence(name="lanes", value=lanes, was=most, judged_by="siblings of the same model", field="pcie_width"),
            Evidence(name="narrow", value=float(len(narrow)), judged_by=f"of {len(gpus)} {gpus[0].name}"),
        ),
        fixes=(
            "use a slot wired to the CPU with all its lanes; M.2 adapters, risers and drives take lanes away",
            "measure it under load: gpumon diagnose while the job runs",
        ),
    )
