"""Knows how rules speak of one reading by itself: what stands in it is a fact, and whether it lasts is not known."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Confidence, Evidence, Finding, Gpu, Severity
from gpumon.rules import thermal
from gpumon.window import Window

_FEW_S = 60.0
AGAIN = "read it again in a few seconds: one reading may be a change of state"


def seen(
    window: Window,
    rule: str,
    gpu: Gpu,
    summary: str,
    words: tuple[Severity, Confidence],
    *,
    cause: str,
    cause_text: str | None,
    evidence: Sequence[Evidence],
    fixes: Sequence[str],
    fix_text: str | None = None,
) -> Finding:
    """A finding about one GPU in the last reading; its first remedy is another one."""
    readings = float(len(window.ages(_FEW_S)))
    few = Evidence(name="readings", value=readings, judged_by="too few to see whether it lasts")
    return Finding(
        rule=rule,
        severity=words[0],
        confidence=words[1],
        subject=thermal.subject_of(gpu),
        summary=summary,
        cause=cause,
        cause_text=cause_text,
        fix_text=fix_text,
        evidence=(*evidence, few),
        fixes=(AGAIN, *fixes),
    )


def has(gpu: Gpu, limiter: str) -> bool:
    """The limiter's bit is set."""
    return limiter in (gpu.clocks_event_reasons or ())


def shown(name: str, value: float | None, unit: str, *, limit: float | None = None, judged_by: str = "") -> Evidence:
    """A value of the reading beside what it is measured by."""
    return Evidence(
        name=name, value=thermal.whole(value), unit=unit, was=thermal.whole(limit), judged_by=judged_by or None
    )


def clock(gpu: Gpu) -> Evidence:
    """Its SM clock beside the highest."""
    return shown("SM clock", gpu.sm_clock_mhz, "MHz", limit=gpu.sm_clock_max_mhz, judged_by="its highest")
