"""Knows ``oom-risk``: a training run that is about to need more GPU memory than there is."""

from __future__ import annotations

from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Rank, Severity, Subject
from gpumon.rules import memory, ooms
from gpumon.rules.memory import GIB, Holding
from gpumon.rules.memory_leak import seconds_left
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window

_SETTLED_S = 120.0
_RECENT_S = 600.0
_NEEDED = 0.95
_SEGMENT_BYTES = 20 * memory.MIB


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When memory counts as nearly full."""

    used_pct: float = 92.0
    """Memory used, while it still rises."""
    critical_used_pct: float = 97.0
    """From here on it is critical, if it still rises."""
    peak_pct: float = 95.0
    """With the probe: the highest use within a step, of the memory that the process can have."""
    risen_pct: float = 1.0
    """What counts as rising: so much of the GPU's memory in half an hour."""
    left_s: float = 3600.0
    """A leak that fills the memory sooner than this."""
    critical_left_s: float = 600.0
    """It is critical from here on."""


class _Risk(NamedTuple):
    """What is wrong and how surely."""

    severity: Severity
    confidence: Confidence
    text: str
    strength: float
    cause: str | None = None


FIXES = (
    "a smaller micro-batch, and gradient accumulation for the rest",
    "checkpoint activations (torch.utils.checkpoint)",
    "bf16 autocast; an 8-bit or sharded optimizer (ZeRO, FSDP)",
    "PYTORCH_ALLOC_CONF=expandable_segments:True",
    "cap the longest sequence, or sort into buckets by length",
    "evaluate under torch.no_grad() with a smaller batch",
)


@rule("oom-risk", limits=Limits, every_s=10.0, clear_s=120.0, suppressed_by=("gpu-lost", "driver-stuck"))
def oom_risk(window: Window, limits: Limits) -> Conclusions:
    """GPU memory is nearly used up and still rises, or a leak will fill it soon: the next peak ends the run.

    What it sees:
        With the probe: a steady growth of what is kept between steps that fills the memory within an hour (critical:
        ten minutes), or a peak within a step of at least 95 % that still rises. Without it, or where a step needs
        nearly all that is reserved: at least 92 % used (critical: 97 %) that rose by 1 % in the last half hour and
        still does. In a log: PyTorch's, JAX's or TensorFlow's message that memory ran out, judged by its numbers: full,
        larger than the card, an impossible size, a limit of the process, or free memory that it does not get.

    Why it matters:
        An out-of-memory error ends the run and costs everything since the last checkpoint.

    What to do:
        Write a checkpoint now. Then a smaller micro-batch with gradient accumulation, activation checkpointing, bf16;
        if it grows by itself, see ``gpumon explain memory-leak``.

    When it is wrong:
        A framework keeps what it once needed, so memory in use is a high-water mark: with batches of many lengths it
        creeps up without any danger. Only the probe can tell the two apart. Frameworks that take all memory at the
        start are not judged.
    """
    yield from ooms.told_of(window, "oom-risk")
    risks: list[tuple[Holding, _Risk]] = []
    for one in memory.holdings(window):
        used = memory.used_pct(one.gpu)
        if one.job.trained_since_s is None or used is None:
            continue
        if one.rank is not None and one.rank.allocated_peak_bytes is not None:
            risk = _from_inside(window, one, one.rank, used, limits)
        elif used >= 0.97 * limits.used_pct and memory.is_pool(one.trainer):
            yield Abstention(
                rule="oom-risk",
                because="its framework takes memory as one pool; what is used of it needs the probe",
                subject=Subject(kind="gpu", gpu=one.gpu.index, uuid=one.gpu.uuid),
            )
            continue
        else:
            risk = _from_outside(window, one, used, limits)
        if risk is not None:
            risks.append((one, risk))
    of_gpu = {one.gpu.uuid: risk for one, risk in risks}
    for group in memory.grouped([one for one, _ in risks]):
        worst = max((of_gpu[one.gpu.uuid] for one in group), key=lambda risk: risk.strength)
        yield _finding(window, group, worst)


def _from_inside(window: Window, one: Holding, rank: Rank, used: float, limits: Limits) -> _Risk | None:
    """By what the probe says: a leak, or a peak that nears the limit."""
    total = float(one.gpu.memory_total_bytes or 0)
    grown = memory.growth_of(window, rank, max(256 * memory.MIB, 0.01 * total))
    left_s = seconds_left(one, grown) if grown is not None else None
    if grown is not None and left_s is not None and left_s <= 1.25 * limits.left_s:
        severity: Severity = "critical" if left_s <= limits.critical_left_s else "warning"
        text = f"leaks {grown.bytes_per_step / memory.MIB:.1f} MiB a step, full in about {units.duration(left_s)}"
        return _Risk(severity, "likely", text, limits.left_s / max(1.0, left_s), "memory-leak")
    peak_bytes, reserved = rank.allocated_peak_bytes or 0, rank.reserved_bytes or 0
    if reserved and peak_bytes >= _NEEDED * reserved:
        # A step needs nearly all that is reserved, so what is used is no mere high-water mark.
        risk = _from_outside(window, one, used, limits)
        if risk is not None:
            return risk._replace(confidence="likely")
    others = max(0, (one.gpu.memory_used_bytes or 0) - reserved)
    room = total - others - (one.gpu.memory_reserved_bytes or 0)
    peak = 100.0 * peak_bytes / room if room > 0 else 0.0
    if peak < 0.97 * limits.peak_pct or _risen_pct(window, one, f"rank:{rank.pid}", "allocated_peak_bytes") < 0.1:
        return None
    text = f"peak of a step {peak:.0f}% of {room / GIB:.0f} GiB and rising"
    severity = "critical" if peak >= limits.critical_used_pct else "warning"
    return _Risk(severity, "likely", text, peak / limits.peak_pct)


def _from_outside(window: Window, one: Holding, used: float, limits: Limits) -> _Risk | None:
    """By what the driver says: nearly full, and more and more."""
    if used < 0.97 * limits.used_pct:
        return None
    if _risen_bytes(window, one, one.gpu.uuid, "memory_used_bytes", _RECENT_S) < _SEGMENT_BYTES:
        return None
    risen = _risen_pct(window, one, one.gpu.uuid, "memory_used_bytes")
    if risen < 0.8 * limits.risen_pct:
        return None
    severity: Severity = "critical" if used >= limits.critical_used_pct else "warning"
    if one.job.is_first_epoch:
        severity = "info"
    text = f"{used:.0f}% used, +{risen:.0f}% in half an hour and rising"
    return _Risk(severity, "possible", text, min(used / limits.used_pct, risen / limits.risen_pct))


def _risen_pct(window: Window, one: Holding, key: str, field: str) -> float:
    total = float(one.gpu.memory_total_bytes or 0)
    return 100.0 * _risen_bytes(window, one, key, field, 1800.0) / total if total else 0.0


def _risen_bytes(window: Window, one: Holding, key: str, field: str, seconds: float) -> float:
    """Rise since then, or since the job was steady: what it takes while it starts is no trend."""
    steady_s = window.last.time_s - (one.job.trained_since_s or window.last.time_s) - _SETTLED_S
    within_s = min(seconds, steady_s, window.span_s)
    if within_s < _SETTLED_S:
        return 0.0
    now_s, part_s = window.last.time_s, within_s / 10
    # Both ends first: most of the time nothing rises. A mean is quickly read, and never above the highest.
    first = window.mean(key, field, part_s, ago_s=within_s - part_s)
    (last,) = window.bins(key, field, end_s=now_s, width_s=part_s, count=1, how="max")
    if first is not None and last is not None and last - first < memory.MIB:
        return 0.0
    values = window.bins(key, field, end_s=now_s, width_s=part_s, count=10, how="max")
    known = [value for value in values if value is not None]
    return known[-1] - known[0] if len(known) >= 8 else 0.0


def _finding(window: Window, group: list[Holding], risk: _Risk) -> Finding:
    one = group[0]
    used = memory.used_pct(one.gpu) or 0.0
    verb = "is" if len(group) == 1 else "are"
    return Finding(
        rule="oom-risk",
        severity=risk.severity,
        confidence=risk.confidence,
        subject=memory.subject_of(group),
        summary=f"{memory.who(group, window)} {verb} about to run out of memory",
        strength=risk.strength,
        cause=risk.cause,
        cause_text=risk.text,
        fix_text="checkpoint now; smaller micro-batch",
        evidence=(
            Evidence(
                name="memory used",
                value=round(used, 1),
                unit="%",
                judged_by=f"of {(one.gpu.memory_total_bytes or 0) / GIB:.0f} GiB",
                field="memory_used_bytes",
            ),
            Evidence(name="trend", value=risk.text),
        ),
        fixes=("write a checkpoint now", *FIXES),
    )
