"""Knows ``kernels-too-small``: a kernel always runs and most of the GPU's multiprocessors do nothing."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Abstention, Cost, Finding, Gpu, Job
from gpumon.rules.links import link_share_pct
from gpumon.rules.picture import Picture, busy_jobs, pipe_evidence, unseen
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import PAUSED, groups_of, has_paused, headroom, names, subject_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a busy clock on an empty GPU counts as trouble."""

    window_s: float = 120.0
    """The seconds looked at."""
    sm_below_pct: float = 50.0
    """The multiprocessors are active for less than this share of the time."""
    exchanges_pct: float = 40.0
    """Of a job on several GPUs none fills its PCIe or NVLink so far (both ways): it waits for gradients."""
    still_s: float = 10.0
    """A job on several GPUs without a sign of progress for so long, and for two of its slowest steps, may hang."""
    works_dram_pct: float = 3.0
    """Of a job on several GPUs each moves at least this much memory: less is waiting in a collective."""


@rule(
    "kernels-too-small",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "data-starved", "collective-hang", "straggler"),
)
def kernels_too_small(window: Window, limits: Limits) -> Conclusions:
    """The GPU is always busy but mostly empty: its kernels are too small for it.

    What it sees:
        By GPM, over two minutes of training, a kernel runs at least 90 % of the time while the multiprocessors are
        active less than 50 % of it.

    Why it matters:
        Utilization counts the time in which any kernel runs, even on one multiprocessor of a hundred. NVIDIA calls
        less than 50 % SM activity a likely sign of ineffective use: the money buys an empty GPU.

    What to do:
        Give each kernel more work: a larger batch, packed sequences, channels_last, fused operations
        (``torch.compile``). Where the job is small by nature, run several on one GPU (MPS, MIG), or use a smaller one.

    When it is wrong:
        Ranks that wait for each other in a collective look busy and empty too: on several GPUs it speaks only if
        all of them are so and move memory, and no link is full. Generating text token by token is often small by
        nature.
    """
    for job, pictures in busy_jobs(window, limits.window_s):
        yield from unseen("kernels-too-small", job, pictures)
        affected = [(gpu, seen) for gpu, seen in pictures if _strength(seen, limits) >= 0.8]
        if affected and has_paused(window, affected[0][0], limits.window_s):
            subject = subject_of(job, [gpu for gpu, _ in pictures])
            yield Abstention(rule="kernels-too-small", because=PAUSED, subject=subject)
            continue
        if _is_shared(window, job):
            if _is_still(window, job, limits) or not _all_work(job, pictures, affected, limits):
                continue
            if any(_exchanges(window, gpu, limits) for gpu, _ in affected):
                continue
        for group in groups_of([gpu for gpu, _ in affected], [gpu for gpu, _ in pictures]):
            yield _finding(window, job, [one for one in affected if one[0] in group], limits)


def _strength(seen: Picture, limits: Limits) -> float:
    if seen.kind != "small" or seen.sm_pct is None:
        return 0.0
    return limits.sm_below_pct / max(1.0, seen.sm_pct)


def _exchanges(window: Window, gpu: Gpu, limits: Limits) -> bool:
    """The link is full enough that its empty time is that of collectives."""
    share = link_share_pct(window, gpu, limits.window_s)
    return share is not None and share >= limits.exchanges_pct


def _is_still(window: Window, job: Job, limits: Limits) -> bool:
    quiet, step = (window.baseline(job, name) or 0.0 for name in ("quiet_s", "step_p99_s"))
    return quiet >= max(limits.still_s, 2.0 * step)


def _is_shared(window: Window, job: Job) -> bool:
    """It has or had ranks on other GPUs, here or elsewhere."""
    worlds = (process.world_size or 1 for process in window.last.processes if process.pid in job.trainers)
    return max(len(job.gpu_uuids), window.baseline(job, "ranks_seen") or 0, *worlds) > 1


def _all_work(
    job: Job, pictures: Sequence[tuple[Gpu, Picture]], affected: Sequence[tuple[Gpu, Picture]], limits: Limits
) -> bool:
    moves = all((seen.dram_pct or 0.0) >= limits.works_dram_pct for _, seen in pictures)
    return moves and len(affected) == len(pictures) == len(job.gpu_uuids)


def _finding(window: Window, job: Job, group: Sequence[tuple[Gpu, Picture]], limits: Limits) -> Finding:
    gpus = [gpu for gpu, _ in group]
    sm = sum(seen.sm_pct or 0.0 for _, seen in group) / len(group)
    first = group[0][1]
    room = headroom(gpus[0])
    larger = "a larger batch, or packed sequences" + ("" if room is None else f": {room} of GPU memory are free")
    span = f"{limits.window_s / 60:g} min"
    who = names(gpus, window.last.gpus)
    return Finding(
        rule="kernels-too-small",
        severity="warning",
        confidence="likely",
        subject=subject_of(job, gpus),
        summary=f"{who} {'is' if len(gpus) == 1 else 'are'} busy but {100 - sm:.0f}% empty",
        strength=min(_strength(seen, limits) for _, seen in group),
        cause_text=f"multiprocessors active {sm:.0f}% of the time",
        fix_text="larger batch, fused kernels",
        evidence=(
            pipe_evidence("kernel running", "graphics_active_pct", first.busy_pct, f"≥ 90% of {span}"),
            pipe_evidence("SM active", "sm_active_pct", sm, f"< {limits.sm_below_pct:g}% of {span}"),
            pipe_evidence("tensor cores", "tensor_active_pct", first.tensor_pct, "low"),
            pipe_evidence("memory", "dram_active_pct", first.dram_pct, "low"),
        ),
        cost=Cost(speedup_max=round(80.0 / max(8.0, sm), 1)) if sm < 80.0 else None,
        fixes=(
            larger,
            "torch.compile(model): fewer and larger kernels",
            "model.to(memory_format=torch.channels_last) for convolutions",
            "several jobs on one GPU (MPS, MIG), or a smaller GPU",
        ),
        onset_s=limits.window_s,
    )
