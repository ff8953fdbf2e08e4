"""Knows what a printed table of PyTorch's allocator says: memory in pieces, the cache of a peak, flushes."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model import Evidence, Finding, Severity
from gpumon.rules.oom_reasons import LESS, SEGMENTS
from gpumon.rules.reports import gpus_named, reports, size, subject_of
from gpumon.window import Window

_GIB = 1024.0**3
_SPLIT = 0.15
"""Share of what is reserved that lies in pieces: with an overhang it is a warning."""
_OVERHANG = 2.0
_MANY_RETRIES = 10.0
"""More flushes than a program needs to find its size."""


def pieces_told(window: Window) -> Iterator[Finding]:
    """Reserved memory against what was in use, by the newest table of each GPU."""
    for uuid, (age_s, values) in _newest(window).items():
        reserved, peak, used = (values.get(f"{name}_bytes") for name in ("reserved", "allocated_peak", "allocated"))
        most = peak if peak is not None else used
        if not reserved or not most or reserved < _GIB or reserved < _OVERHANG * most:
            continue
        split = values.get("inactive_split_bytes")
        share = None if split is None else split / reserved
        is_split = share is not None and share >= _SPLIT
        who = gpus_named(window, [uuid])
        severity: Severity = "warning" if is_split else "info"
        if is_split:
            summary, cause = f"{who}: memory is fragmented", "pieces"
            text = f"{size(reserved)} held, {size(most)} used, {100 * (share or 0.0):.0f}% in pieces"
        elif peak is not None:
            summary, cause = f"{who}: much more memory held than used", "overhang"
            text = f"{size(reserved)} held, at most {size(peak)} used: room for others, no leak"
        else:
            summary, cause = f"{who}: a cache larger than what is in use", "cache-of-a-peak"
            text = f"{size(reserved)} held, {size(most)} in use now: an earlier peak, no leak"
        yield Finding(
            rule="fragmentation",
            severity=severity,
            confidence="likely" if peak is not None else "possible",
            subject=subject_of(window, [uuid]),
            summary=summary,
            cause=cause,
            cause_text=text,
            fix_text="PYTORCH_ALLOC_CONF=expandable_segments:True" if is_split else "nothing, unless it grows",
            evidence=(
                _amount("reserved", reserved),
                *((_amount("allocated now", used),) if used is not None else ()),
                *((_amount("allocated at most", peak),) if peak is not None else ()),
                *((_amount("in pieces that cannot be given back", split),) if split is not None else ()),
                *(
                    Evidence(name=name, value=values[field])
                    for name, field in (("cudaMalloc retries", "alloc_retries"), ("out of memory, times", "ooms"))
                    if values.get(field)
                ),
            ),
            fixes=(
                *((SEGMENTS,) if is_split else ()),
                "compare torch.cuda.max_memory_allocated() with what is reserved: evaluation or one long batch made it",
                "torch.cuda.empty_cache() once after it gives it back to others; your own program needs no such thing",
            ),
            onset_s=age_s,
            has_happened=True,
        )


def retries_told(window: Window) -> Iterator[Finding]:
    """Failed allocations that a table counts since the program began."""
    for uuid, (age_s, values) in _newest(window).items():
        retries, ooms = values.get("alloc_retries", 0.0), values.get("ooms", 0.0)
        if not retries and not ooms:
            continue
        who = gpus_named(window, [uuid])
        severity: Severity = "warning" if ooms or retries >= _MANY_RETRIES else "info"
        reserved, split = values.get("reserved_bytes"), values.get("inactive_split_bytes")
        is_split = bool(reserved and split and split >= _SPLIT * reserved)
        yield Finding(
            rule="alloc-retry",
            severity=severity,
            confidence="certain",
            subject=subject_of(window, [uuid]),
            summary=f"{who}: allocations failed",
            cause="fragmentation" if is_split else "memory-full",
            cause_text=f"{retries:.0f} flushes of the cache, {ooms:.0f} times out of memory",
            fix_text="expandable_segments:True" if is_split else "smaller micro-batch",
            evidence=(
                Evidence(name="cudaMalloc retries", value=retries, judged_by="a few while it finds its size"),
                Evidence(name="out of memory", value=ooms, unit="times"),
            ),
            fixes=(SEGMENTS, *LESS[:2]) if is_split else (*LESS, SEGMENTS),
            explained_by=("fragmentation",) if is_split else (),
            onset_s=age_s,
            has_happened=True,
        )


def _newest(window: Window) -> dict[str | None, tuple[float, dict[str, float]]]:
    """The last table of each GPU, with its age."""
    return {event.gpu_uuid: (age_s, event.values or {}) for age_s, event in reports(window, "memory-summary")}


def _amount(name: str, count_bytes: float) -> Evidence:
    return Evidence(name=name, value=round(count_bytes / _GIB, 2), unit="GiB")
