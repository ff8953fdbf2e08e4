"""Knows ``tensor-cores-idle``: the arithmetic runs on the CUDA cores, in full FP32."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Finding, Gpu, Job
from gpumon.rules.picture import Picture, busy_jobs, pipe_evidence, unseen
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import groups_of, names, subject_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When idle tensor cores count as trouble."""

    window_s: float = 120.0
    """The seconds looked at."""
    tensor_below_pct: float = 5.0
    """The tensor cores are active for less than this share of the time."""
    fp32_pct: float = 25.0
    """The FP32 pipe is active for at least this share."""
    fp64_below_pct: float = 10.0
    """From this share of FP64 on it is science, which needs the digits."""


@rule(
    "tensor-cores-idle",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "collective-hang"),
)
def tensor_cores_idle(window: Window, limits: Limits) -> Conclusions:
    """The GPU computes in full FP32 on its CUDA cores while its tensor cores do nothing.

    What it sees:
        By GPM, over two minutes of training, the multiprocessors are active at least 60 % of the time, the FP32 pipe
        at least 25 %, the tensor cores less than 5 %, FP64 less than 10 %, and memory is not the limit. The figures
        are shares of time in which a pipe was busy, not shares of the peak.

    Why it matters:
        Matrix multiplications in TF32 or BF16 are many times faster on tensor cores. In PyTorch, FP32 multiplications
        have not used them by default since 1.12.

    What to do:
        ``torch.set_float32_matmul_precision("high")`` is one line and keeps the weights in FP32; mixed precision
        (``torch.autocast`` with bfloat16) gains more. Dimensions should be multiples of 8.

    When it is wrong:
        Work without matrix multiplications (graph networks, embeddings, simulation) has no use for tensor cores:
        mute the rule for such a job.
    """
    for job, pictures in busy_jobs(window, limits.window_s):
        yield from unseen("tensor-cores-idle", job, pictures)
        affected = [(gpu, seen) for gpu, seen in pictures if _can(gpu) and _strength(seen, limits) >= 0.8]
        for group in groups_of([gpu for gpu, _ in affected], [gpu for gpu, _ in pictures]):
            yield _finding(window, job, [one for one in affected if one[0] in group], limits)


def _can(gpu: Gpu) -> bool:
    """It has tensor cores: since compute capability 7.0."""
    major = (gpu.compute_capability or "9").partition(".")[0]
    return not major.isdigit() or int(major) >= 7


def _strength(seen: Picture, limits: Limits) -> float:
    if seen.kind != "fp32" or seen.fp32_pct is None or seen.tensor_pct is None:
        return 0.0
    if (seen.fp64_pct or 0.0) >= limits.fp64_below_pct:
        return 0.0
    return min(seen.fp32_pct / limits.fp32_pct, limits.tensor_below_pct / max(0.1, seen.tensor_pct), 4.0)


def _finding(window: Window, job: Job, group: Sequence[tuple[Gpu, Picture]], limits: Limits) -> Finding:
    gpus = [gpu for gpu, _ in group]
    first = group[0][1]
    span = f"{limits.window_s / 60:g} min"
    major = (gpus[0].compute_capability or "9").partition(".")[0]
    kind = "float16 and a GradScaler (no bfloat16 on this GPU)" if major == "7" else "bfloat16"
    precise = () if major == "7" else ('torch.set_float32_matmul_precision("high")',)
    return Finding(
        rule="tensor-cores-idle",
        severity="warning",
        confidence="likely",
        subject=subject_of(job, gpus),
        summary=f"{names(gpus, window.last.gpus)} compute{'s' * (len(gpus) == 1)} in FP32: tensor cores idle",
        strength=min(_strength(seen, limits) for _, seen in group),
        cause_text=f"FP32 pipe busy {first.fp32_pct or 0:.0f}% of the time, tensor cores {first.tensor_pct or 0:.0f}%",
        fix_text=(precise or ("mixed precision in float16",))[0],
        evidence=(
            pipe_evidence(
                "tensor cores", "tensor_active_pct", first.tensor_pct, f"< {limits.tensor_below_pct:g}% of {span}"
            ),
            pipe_evidence("FP32 pipe", "fp32_active_pct", first.fp32_pct, f"≥ {limits.fp32_pct:g}%"),
            pipe_evidence("SM active", "sm_active_pct", first.sm_pct, "≥ 60%"),
            pipe_evidence("memory", "dram_active_pct", first.dram_pct, "< 60%: not the limit"),
        ),
        fixes=(
            *precise,
            f"mixed precision: torch.autocast with {kind}; Hugging Face bf16=True; Lightning precision='bf16-mixed'",
            "dimensions as multiples of 8 (64 for large products), the vocabulary padded",
            "scaled_dot_product_attention or flash attention",
        ),
        onset_s=limits.window_s,
    )
