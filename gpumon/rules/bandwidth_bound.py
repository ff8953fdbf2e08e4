"""Knows ``bandwidth-bound``: the GPU's memory is busier than its arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Finding, Gpu, Job
from gpumon.rules.picture import Picture, busy_jobs, pipe_evidence, unseen
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import groups_of, names, subject_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When memory counts as the limit."""

    window_s: float = 120.0
    """The seconds looked at."""
    dram_pct: float = 60.0
    """Memory is active for at least this share of the time; about 80 % is the practical ceiling."""


@rule(
    "bandwidth-bound",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "collective-hang"),
)
def bandwidth_bound(window: Window, limits: Limits) -> Conclusions:
    """The GPU's memory is the limit: it moves data most of the time and multiplies little.

    What it sees:
        By GPM, over two minutes of training, memory is active at least 60 % of the time, the multiprocessors at
        least 60 %, the tensor cores less than 25 %.

    Why it matters:
        It is information, and often right: many models move more than they multiply. Fusing operations or smaller
        numbers can still make them faster, more cores cannot.

    What to do:
        Fuse what runs element by element (``torch.compile``, fused optimizers and norms), keep activations in
        bfloat16, use flash attention, enlarge the batch where that raises the share of multiplications.

    When it is wrong:
        Embedding tables and generation token by token are bound by memory by nature. There is nothing to cure then.
    """
    for job, pictures in busy_jobs(window, limits.window_s):
        yield from unseen("bandwidth-bound", job, pictures)
        affected = [
            (gpu, seen)
            for gpu, seen in pictures
            if seen.kind == "memory" and (seen.dram_pct or 0.0) >= 0.8 * limits.dram_pct
        ]
        for group in groups_of([gpu for gpu, _ in affected], [gpu for gpu, _ in pictures]):
            yield _finding(window, job, [one for one in affected if one[0] in group], limits)


def _finding(window: Window, job: Job, group: Sequence[tuple[Gpu, Picture]], limits: Limits) -> Finding:
    gpus = [gpu for gpu, _ in group]
    first = group[0][1]
    span = f"{limits.window_s / 60:g} min"
    return Finding(
        rule="bandwidth-bound",
        severity="info",
        confidence="likely",
        subject=subject_of(job, gpus),
        summary=f"{names(gpus, window.last.gpus)}: limited by memory bandwidth",
        strength=min((seen.dram_pct or 0.0) / limits.dram_pct for _, seen in group),
        cause_text=f"memory busy {first.dram_pct or 0:.0f}% of the time, tensor cores {first.tensor_pct or 0:.0f}%",
        fix_text="fuse: torch.compile(model)",
        evidence=(
            pipe_evidence("memory", "dram_active_pct", first.dram_pct, f"≥ {limits.dram_pct:g}% of {span}"),
            pipe_evidence("tensor cores", "tensor_active_pct", first.tensor_pct, "< 25%"),
            pipe_evidence("SM active", "sm_active_pct", first.sm_pct, "≥ 60%"),
        ),
        fixes=(
            "torch.compile(model); torch.optim.AdamW(..., fused=True)",
            "bfloat16 activations (torch.autocast), flash attention, channels_last",
            "a larger batch, where that raises the share of matrix products",
        ),
        onset_s=limits.window_s,
    )
