"""One process of a simulated job: the device it drives, when its main thread slept, and its diary of steps."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from gpumon.sources.simulator.card import Card, Slice
from gpumon.sources.simulator.loader import Loader


class Step(NamedTuple):
    """One line of the diary."""

    end_s: float
    step_s: float
    wait_s: float
    forward_s: float
    copy_s: float
    is_training: bool
    """False: a batch of an evaluation."""


class Rank:
    """One process of a job and the device it drives."""

    __slots__ = (
        "asked",
        "card",
        "copied_s",
        "copy_free_s",
        "diary",
        "is_gone",
        "last",
        "launched_s",
        "loader",
        "main_free_s",
        "memory_offset",
        "naps",
        "number",
        "pid",
        "pulse_s",
        "slice",
        "slower",
        "starved_s",
        "steps",
        "taken_share",
        "worker_pids",
    )

    def __init__(self, number: int, card: Card, part: Slice, memory_offset: int) -> None:
        """Not started yet."""
        self.number, self.card, self.slice, self.memory_offset = number, card, part, memory_offset
        self.pid = 0
        self.worker_pids: tuple[int, ...] = ()
        self.loader: Loader | None = None
        self.main_free_s = 0.0
        self.naps: deque[tuple[float, float]] = deque()
        """When its main thread slept, waiting for a batch."""
        self.copy_free_s = 0.0
        """When the copy engine is done with what it has."""
        self.last = (0.0, 0.0, 0.0)
        """Of the step just planned: the wait for its batch, its copy, its forward pass."""
        self.is_gone = False
        self.slower = 1.0
        """How much longer it computes than the others, for a reason of its own."""
        self.taken_share = 0.0
        """Of the device's time that somebody else takes."""
        self.asked = (-inf, -inf)
        """When it last asked for a batch and when it got it."""
        self.diary: deque[Step] = deque()
        """Steps that nobody has asked about, some of them not over yet."""
        self.pulse_s = -inf
        """The last sign of life: a step's end, an evaluation's batch, the start of a checkpoint."""
        self.starved_s = self.launched_s = self.copied_s = 0.0
        """What its device has lost to late batches, to slow launches and to copies that nothing overlaps."""
        self.steps = 0
        """Training steps taken out of the diary."""

    def asleep_s(self, begin_s: float, end_s: float) -> float:
        """How long its main thread slept in [begin, end); each interval is asked for once, in order."""
        asleep = 0.0
        naps = self.naps
        while naps and naps[0][0] < end_s:
            low, high = naps[0]
            asleep += max(0.0, min(high, end_s) - max(low, begin_s))
            if high > end_s:
                break
            naps.popleft()
        return asleep

    def steps_until(self, now_s: float) -> list[Step]:
        """Take out of the diary what was over by ``now_s``."""
        diary, done = self.diary, []
        while diary and diary[0].end_s <= now_s:
            step = diary.popleft()
            self.pulse_s = max(self.pulse_s, step.end_s)
            self.steps += step.is_training
            done.append(step)
        return done
