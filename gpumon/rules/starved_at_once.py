"""Knows what one reading says of GPUs that may wait for input: little to do now, and marks of work a moment ago."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Evidence, Finding, Gpu
from gpumon.rules.limiters import boards, together
from gpumon.rules.one_reading import seen, shown
from gpumon.rules.rule import Conclusions
from gpumon.signals import busy_pct, power_share, works_on_video
from gpumon.window import Window

_LITTLE_PCT, _NONE_PCT = 30.0, 1.0
_FULL_SHARE = 0.5
_WORKED_SHARE, _SURELY_SHARE = 0.15, 0.3
"""Shares of the way from idle to the limit: something ran within the last second, also where no kernel runs now."""
_AWAKE = frozenset({"P0", "P1", "P2"})


def starved(window: Window, _limits: object) -> Conclusions:
    """Memory that a model fills, clocks that are up, power that was drawn, and hardly a kernel: perhaps it waits."""
    cards = tuple(boards(window))
    found = [_seen(window, gpu) for gpu in cards if _waits(gpu) and not _serves(window, gpu)]
    yield from together(found, len(cards), "do little now, with full memory")


def _waits(gpu: Gpu) -> bool:
    use, share, total = busy_pct(gpu), power_share(gpu, None), gpu.memory_total_bytes
    if use is None or use >= _LITTLE_PCT or share is None or not total or gpu.mig_enabled or works_on_video(gpu):
        return False
    is_full = (gpu.memory_used_bytes or 0) >= _FULL_SHARE * total
    has_worked = share >= (_WORKED_SHARE if use > _NONE_PCT else _SURELY_SHARE)
    return is_full and has_worked and gpu.performance_state in _AWAKE


def _serves(window: Window, gpu: Gpu) -> bool:
    job = window.job_of(gpu.uuid)
    return job is not None and job.kind == "serving"


def _seen(window: Window, gpu: Gpu) -> Finding:
    return seen(
        window,
        "data-starved",
        gpu,
        f"GPU {gpu.index} does little now, with full memory",
        ("info", "possible"),
        cause="one-reading",
        cause_text=f"{busy_pct(gpu) or 0:.0f}% busy at {gpu.power_w or 0:.0f} W: waits for data, or between two steps",
        fix_text="record a minute: gpumon diagnose --for 60s",
        evidence=(
            shown("busy", busy_pct(gpu), "%"),
            shown("power", gpu.power_w, "W", limit=gpu.power_limit_w, judged_by="its limit"),
            Evidence(name="memory in use", value=round(units.gib(gpu.memory_used_bytes or 0), 1), unit="GiB"),
        ),
        fixes=(
            "a series tells: gpumon diagnose --for 60s, or nvidia-smi dmon -s pucm for a minute",
            "time 100 batches of the loader alone, and 100 steps on one cached batch: the slower is the limit",
        ),
    )
