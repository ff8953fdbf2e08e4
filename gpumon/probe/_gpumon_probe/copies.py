"""How long copying batches to the GPU takes, by the GPU's own clock: an event before, one after, both read when past.

The host's time would not tell it: a copy from ordinary memory waits for everything that was queued before it. Nothing
here waits. An event is put between the copies and asked at the end of a later step, for a few steps of each report.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

STEPS_TIMED = 4
"""Of each report's; two events cost a few microseconds."""
MOST_PENDING = 8
MOST_COPIES = 64
"""In one step."""


class Copies:
    """The copies of the loop's own thread."""

    __slots__ = ("_is_within", "_pairs", "_pending", "_spare", "is_timing", "is_used", "ns", "steps", "wanted")

    def __init__(self) -> None:
        self.is_used = False
        """A framework copies its batches where we see it, and CUDA runs."""
        self.is_timing = False
        self.wanted = STEPS_TIMED
        """So many more steps are to be timed; whoever reports asks for more."""
        self.steps = self.ns = 0
        """Of the steps that were timed: how many, and how long all copies in them took."""
        self._is_within = False
        self._pairs: list[tuple[Any, Any]] = []
        self._pending: deque[list[tuple[Any, Any]]] = deque()
        self._spare: list[tuple[Any, Any]] = []

    def begin(self) -> Any:
        """A batch is about to be copied: what ``end`` wants; None where it is not timed."""
        if self._is_within or (self.is_used and not self.is_timing):
            return None
        try:
            cuda = sys.modules.get("torch.cuda")
            if cuda is None or not cuda.is_initialized():
                return None
            self.is_used = True
            if not self.is_timing or len(self._pairs) >= MOST_COPIES or cuda.is_current_stream_capturing():
                return None
            pair = self._spare.pop() if self._spare else (_event(cuda), _event(cuda))
            pair[0].record()
        except Exception:
            self._give_up()
            return None
        self._is_within = True
        return pair

    def end(self, pair: Any) -> None:
        """It was copied, or queued to be."""
        self._is_within = False
        try:
            pair[1].record()
            self._pairs.append(pair)
        except Exception:
            self._give_up()

    def step_ended(self) -> None:
        """A step is over: see which copies are done by now, and whether those of the next step are timed."""
        try:
            if self.is_timing:
                self.wanted -= 1
                self._pending.append(self._pairs)
                self._pairs = []
            pending = self._pending
            while pending and all(after.query() for _, after in pending[0]):
                pairs = pending.popleft()
                self.ns += int(1e6 * sum(before.elapsed_time(after) for before, after in pairs))
                self.steps += 1
                self._spare += pairs
            self.is_timing = self.wanted > 0 and len(pending) < MOST_PENDING
        except Exception:
            self._give_up()

    def _give_up(self) -> None:
        """Nothing is timed any more: a version with other events, or a device that failed."""
        self.is_timing, self.wanted = False, -sys.maxsize
        self._pairs = []
        self._pending.clear()


def _event(cuda: Any) -> Any:
    return cuda.Event(enable_timing=True)
