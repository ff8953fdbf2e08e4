"""Knows what messages about exhausted GPU memory come to: one finding a cause, whatever the number of messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpumon.model import Event, Evidence, Finding
from gpumon.rules.oom_reasons import GIB, PIECES, SEGMENTS, Oom, Reason, reasons
from gpumon.rules.reports import gpus_named, number, reports, size, subject_of
from gpumon.window import Window


def told_of(window: Window, rule: str) -> Iterator[Finding]:
    """What a rule has to say about the messages of the last minutes: one finding per cause, whatever the GPUs."""
    by_gpu: dict[str | None, list[Oom]] = {}
    for age_s, event in reports(window, "cuda-oom"):
        by_gpu.setdefault(event.gpu_uuid, []).append(_read(age_s, event))
    by_cause: dict[str, list[tuple[str | None, list[Oom], Oom, Reason]]] = {}
    for uuid, messages in by_gpu.items():
        concluded = _mostly(messages, rule)
        if concluded is not None:
            by_cause.setdefault(concluded[1].cause, []).append((uuid, messages, *concluded))
    for group in by_cause.values():
        yield _finding(window, group, is_only=len(by_cause) == 1)


def _read(age_s: float, event: Event) -> Oom:
    return Oom(
        event=event,
        age_s=age_s,
        requested=number(event, "requested_bytes"),
        total=number(event, "total_bytes"),
        free=number(event, "free_bytes") or 0.0,
        allocated=number(event, "allocated_bytes"),
        reserved=number(event, "reserved_bytes"),
        unused=number(event, "reserved_unallocated_bytes") or 0.0,
        process=number(event, "process_bytes"),
        others=number(event, "other_processes_bytes") or 0.0,
        allowed=number(event, "allowed_bytes"),
    )


def _mostly(messages: Sequence[Oom], rule: str) -> tuple[Oom, Reason] | None:
    """What most messages about one GPU come to in the words of a rule, with the first of them."""
    found = [(oom, reason) for oom in messages for reason in reasons(oom) if reason.rule == rule]
    counted = Counter(reason.cause for _, reason in found)
    if not counted:
        return None
    (cause, _), *_ = counted.most_common(1)
    return next((oom, reason) for oom, reason in found if reason.cause == cause)


# --- the finding ---------------------------------------------------------------------------------

_SUMMARIES = {
    "cache": "{who}: half of the memory is held unused",
    "oom-risk": "{who} ran out of memory",
    "fragmentation": "{who}: memory in pieces, allocation failed",
    "gpu-contention": "{who}: memory taken by somebody else",
    "vram-orphaned": "{who}: memory held by nobody known",
}


def _finding(window: Window, group: Sequence[tuple[str | None, list[Oom], Oom, Reason]], *, is_only: bool) -> Finding:
    uuids = [uuid for uuid, *_ in group]
    _, _, oom, reason = group[0]
    messages = [message for _, told_here, *_ in group for message in told_here]
    return Finding(
        rule=reason.rule,
        severity=reason.severity,
        confidence=reason.confidence,
        subject=subject_of(window, uuids if is_only else uuids[:1]),
        summary=_SUMMARIES.get(reason.cause, _SUMMARIES[reason.rule]).format(who=gpus_named(window, uuids)),
        cause=reason.cause,
        cause_text=reason.text,
        fix_text=reason.fix,
        evidence=(*_evidence(oom), *_further(messages, reason)),
        fixes=reason.fixes,
        command=SEGMENTS.partition("   ")[0] if reason.rule == "fragmentation" else None,
        onset_s=max(message.age_s for message in messages),
        has_happened=True,
    )


def _evidence(oom: Oom) -> Iterator[Evidence]:
    """The numbers as they were printed."""
    total = None if oom.total is None else f"of {size(oom.total)}"
    free = None if "free_bytes" not in (oom.event.values or {}) else oom.free
    both = None if oom.share() < PIECES else oom.free + oom.unused
    for name, amount, judged_by in (
        ("asked for", oom.requested, total),
        ("free", free, total),
        ("allocated by tensors", oom.allocated, total),
        (
            "reserved and unused",
            None if oom.reserved is None else oom.unused,
            f"{100 * oom.share():.0f}% of what is held",
        ),
        ("free and unused together", both, None if oom.requested is None else f"asked for {size(oom.requested)}"),
        ("held by other processes", oom.others or None, total),
        ("allowed to this process", oom.allowed, total),
    ):
        if amount is not None:
            unit, one = ("GiB", GIB) if amount >= GIB else ("MiB", GIB / 1024)
            yield Evidence(name=name, value=round(amount / one, 2), unit=unit, judged_by=judged_by)


def _further(messages: Sequence[Oom], reason: Reason) -> Iterator[Evidence]:
    """How many there were, and what the others said if it was something else."""
    if len(messages) > 1:
        yield Evidence(name="messages", value=float(len(messages)))
    seen = {reason.cause}
    for oom in messages:
        for other in reasons(oom):
            if other.rule == reason.rule and other.cause not in seen:
                seen.add(other.cause)
                yield Evidence(name="another message", value=other.text)
    if messages[0].event.text and messages[0].requested is None:
        yield Evidence(name="reported", value=messages[0].event.text)
