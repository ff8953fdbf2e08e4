"""Knows ``fragmentation``: memory that the framework keeps, cut into pieces too small to use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from gpumon.model import Abstention, Evidence, Finding, Rank, Severity, Subject
from gpumon.rules import memory, ooms
from gpumon.rules.allocator_tables import pieces_told
from gpumon.rules.memory import GIB, Holding
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window

_BLOCK_S = 600.0
_BLOCKS = 4
_ROOMY_PCT = 70.0
_NEARLY = 0.8


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When kept memory counts as fragmented."""

    window_s: float = 120.0
    """The seconds looked at."""
    split_pct: float = 15.0
    """Share of the reserved memory that lies in pieces of blocks which cannot be given back."""
    used_pct: float = 85.0
    """It is a warning from this fill on; with room to spare it harms nobody."""
    overhang: float = 2.0
    """Reserved memory against the highest use within a step."""
    overhang_reserved_pct: float = 30.0
    """Such an overhang counts from this share of the GPU's memory on."""


FIXES = (
    "export PYTORCH_ALLOC_CONF=expandable_segments:True   # older releases: PYTORCH_CUDA_ALLOC_CONF",
    "pad batches to a few shapes, or sort them into buckets by length",
    "run the largest batch first, so that its blocks are there from the start",
    "where expandable segments do not work: max_split_size_mb:128",
    "torch.cuda.empty_cache() once between training and evaluation, never per step",
)


@rule("fragmentation", limits=Limits, every_s=5.0, clear_s=120.0, suppressed_by=("gpu-lost", "driver-stuck"))
def fragmentation(window: Window, limits: Limits) -> Conclusions:
    """The framework holds much more GPU memory than it uses, in pieces that fit nothing.

    What it sees:
        A message that memory ran out, in a log: what PyTorch held without using it would have been enough for what it
        asked for, and was a tenth or more of all it held; or a printed memory_summary(). With the probe: the GPU is at
        least 85 % full, at least 15 % of what PyTorch reserves lies in split blocks that it cannot give back, and it
        shows: reserved memory is twice the highest use within a step, or the allocator had to flush its cache, or the
        gap between the two grew in each of three blocks of ten minutes. Twice the use alone, with room to spare, is
        information.

    Why it matters:
        Memory that is there cannot be used: allocations fail or flush the cache, and the run ends out of memory
        though its tensors would fit.

    What to do:
        Expandable segments cure most of it; batches of few different shapes do the rest.

    When it is wrong:
        After one large evaluation the pool is large and reusable: no trouble. Graphs captured with CUDA graphs keep
        pools of their own. ``cudaMallocAsync`` reports nothing and is not judged.
    """
    told = tuple(ooms.told_of(window, "fragmentation"))
    yield from told or pieces_told(window)
    found: list[tuple[Holding, Finding]] = []
    for one in memory.holdings(window):
        used = window.mean(one.gpu, "memory_used_bytes", limits.window_s)
        total = one.gpu.memory_total_bytes
        if one.job.trained_since_s is None or one.job.kind == "notebook" or not total or used is None:
            continue
        fill = 100.0 * used / total
        missing = unseen(one)
        if missing is None and one.rank is not None:
            found += ((one, finding) for finding in _judge(window, one, one.rank, fill, limits))
        elif fill >= limits.used_pct and missing is not None:
            subject = Subject(kind="gpu", gpu=one.gpu.index, uuid=one.gpu.uuid)
            yield Abstention(rule="fragmentation", because=missing, subject=subject)
    yield from memory.merged(found, window)


def unseen(one: Holding) -> str | None:
    """Why nothing is known of the framework's allocator; None where it is."""
    if one.rank is None or one.rank.reserved_bytes is None:
        return "what the framework uses of its memory needs the probe"
    if one.rank.allocator == "cuda-malloc-async":
        return "cudaMallocAsync does not report it"
    return None


def _judge(window: Window, one: Holding, rank: Rank, fill: float, limits: Limits) -> Iterator[Finding]:
    reserved = window.mean(rank, "reserved_bytes", limits.window_s)
    peak = window.mean(rank, "allocated_peak_bytes", limits.window_s)
    split = window.mean(rank, "inactive_split_bytes", limits.window_s)
    if not reserved or not peak:
        return
    overhang = reserved / peak
    is_over = overhang >= limits.overhang
    split_pct = None if split is None else 100.0 * split / reserved
    sizes = (reserved, peak, split_pct)
    strength = 0.0 if split_pct is None else min(split_pct / limits.split_pct, fill / limits.used_pct)
    if strength >= _NEARLY and not (is_over or _shows(window, rank)):
        strength = 0.0
    kept_pct = 100.0 * reserved / (one.gpu.memory_total_bytes or 1)
    if is_over and strength < 1.0 and kept_pct >= limits.overhang_reserved_pct and fill >= _ROOMY_PCT:
        yield _finding(window, one, sizes, "info", overhang / limits.overhang)
    elif strength >= _NEARLY:
        yield _finding(window, one, sizes, "warning", strength)


def _shows(window: Window, rank: Rank) -> bool:
    """Whether it harms: the cache had to be flushed, or ever more is kept."""
    return (memory.increase(window, rank, "alloc_retries", _BLOCK_S) or 0.0) >= 1.0 or _drifts(window, rank)


def _drifts(window: Window, rank: Rank) -> bool:
    """Whether the gap between reserved and used grew in each of the last blocks of ten minutes."""
    kept, used = (
        window.bins(rank, field, end_s=window.last.time_s, width_s=_BLOCK_S, count=_BLOCKS)
        for field in ("reserved_bytes", "allocated_peak_bytes")
    )
    gaps = [one - other for one, other in zip(kept, used, strict=True) if one is not None and other is not None]
    return len(gaps) == _BLOCKS and all(later >= earlier + 3 * 20 * memory.MIB for earlier, later in pairwise(gaps))


def _finding(
    window: Window, one: Holding, sizes: tuple[float, float, float | None], severity: Severity, strength: float
) -> Finding:
    reserved, peak, split_pct = sizes
    split = "" if split_pct is None else f", {split_pct:.0f}% in pieces"
    evidence = [
        Evidence(
            name="reserved",
            value=round(reserved / GIB, 1),
            unit="GiB",
            was=round(peak / GIB, 1),
            judged_by="the highest use within a step",
            field="reserved_bytes",
        )
    ]
    if split_pct is not None:
        evidence.append(
            Evidence(
                name="in pieces that cannot be given back",
                value=round(split_pct, 1),
                unit="% of it",
                field="inactive_split_bytes",
            )
        )
    return Finding(
        rule="fragmentation",
        severity=severity,
        confidence="likely",
        subject=memory.subject_of([one]),
        summary=f"{memory.who([one], window)}: memory is fragmented",
        strength=strength,
        cause_text=f"{reserved / GIB:.0f} GiB held, {peak / GIB:.0f} used{split}",
        fix_text="PYTORCH_ALLOC_CONF=expandable_segments:True",
        evidence=tuple(evidence),
        fixes=FIXES,
    )
