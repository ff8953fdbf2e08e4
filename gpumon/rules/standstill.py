"""Knows who keeps a job that stands still: which of its ranks is not where the others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Gpu, Process, Rank
from gpumon.progress import Look, looks
from gpumon.window import Window

_WAITS_S = 30.0
_BLOCKED_PCT = 50.0
_STOPPED = ("T", "t")
"""By a signal, by a debugger."""
_LEARNED = ("power_train_w", "pcie_train_bytes_per_s", "power_idle_w")


class Member(NamedTuple):
    """One GPU of a job, and who works on it."""

    gpu: Gpu
    look: Look | None
    trainer: Process | None
    rank: Rank | None

    @property
    def is_dead(self) -> bool:
        """Its process has ended or is stopped."""
        return self.trainer is not None and self.trainer.state in {"Z", "X", *_STOPPED}

    @property
    def waits_s(self) -> float:
        """How long it has waited for data, by its probe."""
        return 0.0 if self.rank is None else self.rank.waiting_s or 0.0

    @property
    def is_blocked(self) -> bool:
        """Its process hangs in the kernel, in disk or network I/O."""
        return self.trainer is not None and (self.trainer.disk_wait_pct or 0.0) >= _BLOCKED_PCT


_ODD: tuple[Callable[[Member], bool], ...] = (
    lambda one: one.gpu.is_lost,
    lambda one: one.is_dead,
    lambda one: one.waits_s >= _WAITS_S,
    lambda one: one.look == "idles",
    lambda one: one.is_blocked,
)
"""What tells one from all others, the surest sign first."""


def member_of(window: Window, gpu: Gpu, owners: Sequence[Process]) -> Member:
    """A GPU of a job as it looks now."""
    trainer = next((owner for owner in owners if gpu.uuid in owner.gpu_memory_bytes), None)
    known = {name: value for name in _LEARNED if (value := window.baseline(gpu, name)) is not None}
    rank = window.rank_of(trainer.pid) if trainer is not None else None
    return Member(gpu, looks(gpu, known), trainer, rank)


def culprit_of(members: Sequence[Member]) -> Member | None:
    """The one that is not where the others wait; None where none or several stand out."""
    for is_odd in _ODD:
        odd = [one for one in members if is_odd(one)]
        if len(odd) == 1:
            return odd[0]
    counted = sorted(members, key=_step)
    # Who counts fewer steps than all others has not come to where they are.
    if len(members) > 1 and 0 < _step(counted[0]) < _step(counted[1]):
        return counted[0]
    return None


def _step(one: Member) -> int:
    return one.rank.step or 0 if one.rank is not None else 0


def cause_of(culprit: Member | None, gone: int) -> tuple[str | None, str]:
    """Why it stands still: a stable id, and the words for the headline; ``gone`` ranks have ended."""
    if gone > 0:
        return "rank-gone", f"{gone} rank{'s' * (gone > 1)} ended, the others wait"
    if culprit is None:
        return None, "nobody stands out"
    name = f"rank {culprit.trainer.rank}" if culprit.trainer and culprit.trainer.rank is not None else "its process"
    if culprit.is_dead and culprit.trainer is not None:
        if culprit.trainer.state in _STOPPED:
            return "rank-stopped", f"{name} is stopped (debugger, Ctrl-Z)"
        return "rank-gone", f"{name} is dead"
    if culprit.waits_s >= _WAITS_S:
        return "rank-waits-for-data", f"{name} waits for data for {units.duration(culprit.waits_s)}"
    if culprit.is_blocked:
        return "rank-in-io", f"{name} hangs in disk or network I/O"
    return "rank-idle", f"{name} idles"


def told(one: Member) -> str:
    """One line of evidence: ``spins, 119 W, main thread S, heartbeat 84 s ago``."""
    parts: list[str] = [one.look or "unknown"]
    if one.gpu.power_w is not None:
        parts.append(f"{one.gpu.power_w:.0f} W")
    if one.trainer is not None and one.trainer.main_thread_state:
        parts.append(f"main thread {one.trainer.main_thread_state}")
    if one.rank is not None and one.rank.heartbeat_age_s is not None:
        parts.append(f"heartbeat {units.duration(one.rank.heartbeat_age_s)} ago")
    return ", ".join(parts)
