"""Knows ``alloc-retry``: the framework flushes its memory cache because an allocation failed."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from gpumon.model import Abstention, Cost, Evidence, Finding, Rank, Severity, Subject
from gpumon.rules import memory
from gpumon.rules.allocator_tables import retries_told
from gpumon.rules.fragmentation import FIXES as PIECES
from gpumon.rules.fragmentation import unseen
from gpumon.rules.memory import Holding
from gpumon.rules.oom_risk import FIXES as LESS
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window

_WARM_UP_STEPS = 100
_FULL_PCT = 85.0
_SPLIT = 0.15


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When retries count as trouble."""

    window_s: float = 180.0
    """The seconds looked at."""
    per_100_steps: float = 1.0
    """Failed allocations per 100 steps."""
    critical_per_100_steps: float = 10.0
    """From here on it is critical."""
    slower: float = 2.0
    """It is critical as well when the steps around a retry take so much longer than the usual one."""


@rule("alloc-retry", limits=Limits, every_s=5.0, clear_s=120.0, suppressed_by=("gpu-lost", "driver-stuck"))
def alloc_retry(window: Window, limits: Limits) -> Conclusions:
    """Allocations on the GPU fail and are retried after a flush of the cache: steps stall, out of memory is near.

    What it sees:
        PyTorch's own counter, through the probe, past the first 100 steps: at least one retry in 100 steps; at least
        two of them. It is critical from one in ten steps on, or when steps with a retry take twice as long as others.
        Errors "out of memory" that the program catches count too. In a log: the counts of a printed memory_summary().

    Why it matters:
        Every retry waits for the GPU, gives all cached memory back to the driver and asks again: it costs seconds, and
        the next one that fails ends the run.

    What to do:
        If much of the memory lies in pieces, use expandable segments; else the job needs less memory: a smaller
        micro-batch, checkpointed activations, bf16.

    When it is wrong:
        Hardly ever: it is a count. A few retries while a job finds its size are normal and not reported.
    """
    yield from retries_told(window)
    found: list[tuple[Holding, Finding]] = []
    for one in memory.holdings(window):
        if one.job.trained_since_s is None or one.job.kind == "notebook":
            continue
        missing = unseen(one)
        if missing is None and one.rank is not None:
            found += ((one, finding) for finding in _judge(window, one, one.rank, limits))
        elif (memory.used_pct(one.gpu) or 0.0) >= _FULL_PCT and missing is not None:
            subject = Subject(kind="gpu", gpu=one.gpu.index, uuid=one.gpu.uuid)
            yield Abstention(rule="alloc-retry", because=missing, subject=subject)
    yield from memory.merged(found, window)


def _judge(window: Window, one: Holding, rank: Rank, limits: Limits) -> Iterator[Finding]:
    retries = memory.increase(window, rank, "alloc_retries", limits.window_s)
    ooms = memory.increase(window, rank, "ooms", limits.window_s) or 0.0
    failed = (retries or 0.0) + ooms
    if retries is None or not failed:
        return
    steps = memory.increase(window, rank, "step", limits.window_s)
    if not steps or (rank.step or 0) - steps < _WARM_UP_STEPS:
        return
    strength = min(100.0 * failed / steps / limits.per_100_steps, failed / 2.0)
    if strength < 0.8:
        return
    usual_s, around_s = _step_times(window, rank, limits.window_s)
    is_slow = usual_s is not None and around_s is not None and around_s >= limits.slower * usual_s
    often = 100.0 * failed / steps >= limits.critical_per_100_steps
    severity: Severity = "critical" if often or is_slow else "warning"
    is_split = (rank.inactive_split_bytes or 0) >= _SPLIT * (rank.reserved_bytes or 1)
    lost = None
    if usual_s is not None and around_s is not None and around_s > usual_s:
        passed = sum(window.covered(limits.window_s))
        lost = min(90.0, 100.0 * failed * (around_s - usual_s) / passed) if passed else None
    yield Finding(
        rule="alloc-retry",
        severity=severity,
        confidence="certain",
        subject=memory.subject_of([one]),
        summary=f"{memory.who([one], window)}: allocations fail, steps stall",
        strength=strength,
        cause="fragmentation" if is_split else "memory-full",
        cause_text=f"{100 * failed / steps:.1f} per 100 steps, "
        + ("memory in pieces" if is_split else f"{memory.used_pct(one.gpu) or 0:.0f}% used"),
        fix_text="expandable_segments:True" if is_split else "smaller micro-batch",
        evidence=(
            Evidence(
                name="out of memory, caught" if ooms > retries else "failed allocations",
                value=float(failed),
                unit=f"in {steps:.0f} steps",
                judged_by=f"≥ {limits.per_100_steps:g} per 100",
                field="alloc_retries",
            ),
            *(
                (Evidence(name="step with a retry", value=around_s, unit="s", was=usual_s, judged_by="usual step"),)
                if usual_s is not None and around_s is not None
                else ()
            ),
        ),
        cost=None if lost is None else Cost(lost_pct=round(lost, 1)),
        fixes=(PIECES + LESS[:2]) if is_split else (LESS + PIECES[:1]),
    )


def _step_times(window: Window, rank: Rank, seconds: float) -> tuple[float | None, float | None]:
    """The usual step, and the slowest around a retry; means over an interval, so the true one is slower still."""
    counts = window.series(rank, "alloc_retries", seconds)
    times = window.series(rank, "step_s", seconds)
    usual = [time for time in times if time is not None]
    around: list[float] = []
    for place in range(1, len(counts)):
        earlier, later = counts[place - 1], counts[place]
        if earlier is not None and later is not None and later > earlier:
            around += [time for time in times[place : place + 2] if time is not None]
    return (median(usual) if usual else None), (max(around) if around else None)
