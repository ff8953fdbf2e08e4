"""What the training loop does: its steps, its waits for data and its pauses, told by hooks and counted here.

Everything that runs in the loop's own thread is here, so it takes no lock, calls no driver and does no I/O. Sums only
grow; the publisher, in its own thread, reports their differences.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections import deque
from time import monotonic_ns
from typing import Any, Callable

from . import layout
from .compiling import Compiling
from .copies import Copies
from .tellers import BATCHES, MOST_KEYS, NOBODY, Election, Teller

FETCHES_BEFORE_BATCHES_COUNT = 20
"""So many batches without anybody who tells a step: then a batch is a step."""
STEPS_IN_A_PAUSE = 8
"""More steps than that in one pause: it is none any more (an exception left it, say)."""
STEPS_UNTIL_DATA_IS_KNOWN = 3
"""The first steps still sort out what was fetched before training began."""


class Loop:
    """The state of this process's training loop. There is one, and a fork starts it anew."""

    __slots__ = (
        "arrived",
        "asked",
        "background",
        "batches",
        "beat",
        "compiling",
        "copies",
        "dropped_batches",
        "dropped_samples",
        "dropped_wait",
        "election",
        "eval_batches",
        "fetched_samples",
        "floor",
        "forward",
        "framework",
        "has_errands",
        "is_doubtful",
        "is_evaluating",
        "is_floor_wanted",
        "is_grad_enabled",
        "is_started",
        "last_end",
        "loss_is_nan",
        "pause_seen",
        "pause_since",
        "pause_total",
        "paused_steps",
        "phases",
        "pid",
        "publish",
        "publish_due",
        "read_allocated",
        "restart",
        "samples",
        "sizes",
        "skipped",
        "start",
        "step",
        "steps",
        "teller",
        "thread",
        "timed",
        "told",
        "told_at_update",
        "trained",
        "wait",
        "waiting_since",
    )

    def __init__(self) -> None:
        self.start: Callable[[], None] = _nothing
        """Called once, at the first sign of a loop."""
        self.read_allocated: Callable[[], int] = _unknown
        self.is_grad_enabled: Callable[[], bool] = _always
        self.compiling: Compiling | None = None
        """None where nobody would tell of it."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: another process begins."""
        self.pid = os.getpid()
        self.is_started = False
        self.teller = NOBODY
        self.framework: str | None = None
        self.thread = get_ident()
        self.step = 0
        self.told = 0
        self.last_end = 0
        self.steps: deque[tuple[int, int]] = deque(maxlen=8192)
        self.timed = 0
        self.skipped = 0
        self.told_at_update = 0
        self.beat = 0
        self.election = Election()
        self.wait = 0
        self.waiting_since = 0
        self.batches = self.eval_batches = 0
        self.background = self.restart = 0
        self.trained: set[int] = set()
        self.asked: set[int] = set()
        self.is_evaluating = False
        self.dropped_wait = self.dropped_batches = self.dropped_samples = 0
        self.is_doubtful = False
        self.phases: list[int] = []
        self.paused_steps = 0
        self.pause_total = self.pause_since = self.pause_seen = 0
        self.arrived = 0
        self.forward: int | None = None
        self.samples: float | None = None
        self.fetched_samples = 0
        self.sizes: dict[int, int] = {}
        self.loss_is_nan: bool | None = None
        self.has_errands = True
        self.is_floor_wanted = False
        self.floor = -1
        self.copies = Copies()
        self.compiling = None if self.compiling is None else Compiling()
        self.publish_due = 0
        self.publish: Callable[[], None] = _nothing

    # --- steps -----------------------------------------------------------------------------------

    def one_stepped(self, teller: Teller, key: int) -> None:
        """One of perhaps many optimizers or functions did its step: the one that leads counts."""
        if self.teller.rank > teller.rank:
            return
        if key != self.election.leader:
            if not self.election.leads(key):
                return
            self.last_end = 0  # what passed since then was more than one step
        self.election.leader_steps += 1
        self.step_ended(teller)

    def step_ended(self, teller: Teller, absolute: int | None = None, count: int = 1) -> None:
        """A step is over; ``absolute`` is the count of steps where the teller knows it."""
        if teller is not self.teller and not self._takes_over(teller, absolute, count):
            return
        now = monotonic_ns()
        if self.pause_since:
            self._stepped_in_pause(now)
        if self.asked:
            self._remember_data()
        last = self.last_end
        if last:
            step, wait = now - last - (self.pause_total - self.pause_seen), self.wait
            for _ in range(count):
                self.steps.append((step // count, wait // count) if step > 0 else (0, wait // count))
            self.timed += count
        self.last_end = self.beat = now
        self.wait = 0
        self.pause_seen = self.pause_total
        self.step = self.step + count if absolute is None else absolute
        self.told += count
        self.thread = get_ident()
        if self.has_errands:
            self._run_errands(now)

    def _run_errands(self, now: int) -> None:
        """What is not to be done at every step, or by nobody but this thread; all behind one question."""
        self.has_errands = False
        if self.is_floor_wanted:
            self.take_floor()
        if self.copies.is_used:
            self.copies.step_ended()
        if not self.is_started:
            self.start()
        if self.publish_due and now >= self.publish_due:
            self.publish()
        if self.copies.is_used or self.publish_due:
            self.has_errands = True

    def _takes_over(self, teller: Teller, absolute: int | None, count: int) -> bool:
        """Whether this step counts: not where who told until now has told it already, or knows better."""
        if teller.rank <= self.teller.rank:
            return False
        was_told = self.told > 0
        self.teller = teller
        if was_told:
            self.step = self.step + count - 1 if absolute is None else absolute
        return not was_told

    def scale_updated(self) -> None:
        """A mixed-precision step is over; one without an optimizer's step in it was skipped."""
        if self.told == self.told_at_update and self.teller.rank > BATCHES.rank:
            self.skipped += 1
        self.told_at_update = self.told

    def take_floor(self) -> None:
        """Read what is allocated now, a counter of the allocator: the publisher asked for it."""
        self.is_floor_wanted = False
        now = self.read_allocated()
        if now >= 0 and (self.floor < 0 or now < self.floor):
            self.floor = now

    # --- data ------------------------------------------------------------------------------------

    def data_asked(self, data: int) -> int:
        """The loop asks for a batch of the data set ``data``; returns when."""
        now = monotonic_ns()
        if (
            not self.phases
            and self._is_training(data, now)
            and (data not in self.trained or self.told < STEPS_UNTIL_DATA_IS_KNOWN)
        ):
            self.asked.add(data)
        self.waiting_since = now
        if self.is_floor_wanted:
            self.take_floor()
        return now

    def _is_training(self, data: int, now: int) -> bool:
        """Tell training from evaluation: that is without gradients, or on data that no step was made with."""
        if not self.is_grad_enabled():
            is_known = False
        elif data in self.trained or not self.trained:
            if self.is_evaluating:
                self._evaluation_ended(now)
            return True
        else:
            is_known = True
        if not self.is_evaluating:
            self.is_evaluating, self.pause_since = True, now
            self.dropped_wait = self.dropped_batches = self.dropped_samples = 0
        self.is_doubtful = is_known
        return is_known

    def data_came(self, data: int, asked: int) -> None:
        """The batch is there."""
        now = monotonic_ns()
        self.waiting_since = 0
        if self.phases or self.is_evaluating:
            self.dropped_wait += now - asked
            self.dropped_batches += 1
            self.dropped_samples += self.sizes.get(data, 0)
            self.eval_batches += 1
            self.beat = now
        else:
            self.arrived = now
            self.wait += now - asked
            self.batches += 1
            self.fetched_samples += self.sizes.get(data, 0)
            if self.teller.rank <= BATCHES.rank:
                self._batch_is_step()
        if not self.is_started:
            self.start()

    def compiles(self, moment: Callable[[Compiling], None]) -> None:
        """The framework begins to compile, or has done so: a sign of life."""
        if self.compiling is None:
            self.compiling = Compiling()
        moment(self.compiling)
        self.beat = monotonic_ns()

    def synchronised(self) -> None:
        """The program waited for its device: a sign of life where no step can be seen."""
        self.beat = monotonic_ns()
        if not self.is_started:
            self.start()

    def copy_begins(self) -> Any:
        """A batch is about to be copied to the device: what ``copies.end`` wants; None where it is not timed."""
        if self.phases or self.is_evaluating or get_ident() != self.thread:
            return None
        self.has_errands = True
        return self.copies.begin()

    def data_ended(self, asked: int) -> None:
        """There are no more batches, or the loader failed; the workers' end is waited for as well."""
        now = monotonic_ns()
        self.waiting_since = 0
        if self.phases or self.is_evaluating:
            self.dropped_wait += now - asked
            self.is_doubtful = False
        else:
            self.wait += now - asked

    def loader_starts(self, data: int) -> int:
        """The loader's ``__iter__`` begins, which starts workers; returns when."""
        now = monotonic_ns()
        if not self.phases:
            self._is_training(data, now)
        return now

    def loader_started(self, data: int, begun: int, batch_size: object) -> None:
        """It is over; within a pause its time is the pause's."""
        if isinstance(batch_size, int):
            if len(self.sizes) >= MOST_KEYS:
                self.sizes.clear()
            self.sizes[data] = batch_size
        if not self.phases and not self.is_evaluating:
            self.restart += monotonic_ns() - begun

    def _batch_is_step(self) -> None:
        if self.batches > FETCHES_BEFORE_BATCHES_COUNT:
            if self.teller is NOBODY:
                self.teller, self.step = BATCHES, self.batches - 1
            self.step_ended(BATCHES)

    def _remember_data(self) -> None:
        """What was fetched for this step is training data."""
        if self.told < STEPS_UNTIL_DATA_IS_KNOWN:
            self.trained = set(self.asked)
        elif not self.asked <= self.trained:
            if len(self.trained) >= MOST_KEYS:
                self.trained.clear()
            self.trained |= self.asked
        self.asked.clear()

    def _evaluation_ended(self, now: int) -> None:
        if self.is_doubtful and self.dropped_batches == 1:
            self._was_training()  # one batch of it beside one of known data: two loaders that go together
            return
        self.is_evaluating = False
        self.asked.clear()
        self.pause_total += now - self.pause_since
        self.pause_since = 0

    def _stepped_in_pause(self, now: int) -> None:
        """A step on what looked like evaluation: it was none. Or in a pause whose end nobody told."""
        if self.is_evaluating and not self.phases:
            self._was_training()
            return
        self.pause_total += now - self.pause_since
        self.pause_since = now
        self.paused_steps += 1
        if self.paused_steps > STEPS_IN_A_PAUSE:
            self.phases.clear()
            self.is_evaluating = False
            self.pause_since = 0

    def _was_training(self) -> None:
        self.is_evaluating = False
        self.wait += self.dropped_wait
        self.batches += self.dropped_batches
        self.fetched_samples += self.dropped_samples
        self.eval_batches -= self.dropped_batches
        self.pause_since = 0

    # --- pauses ----------------------------------------------------------------------------------

    def entered(self, phase: int) -> bool:
        """A pause or a phase of the framework begins; True asks for the matching ``left``."""
        if self.told and get_ident() != self.thread:
            return False  # an asynchronous checkpoint, say: the loop goes on
        now = monotonic_ns()
        if not self.phases and not self.is_evaluating:
            self.pause_since = now
        self.phases.append(phase)
        self.paused_steps = 0
        self.beat = now
        return True

    def left(self) -> None:
        """The pause is over."""
        if not self.phases:
            return
        self.phases.pop()
        if not self.phases and not self.is_evaluating and self.pause_since:
            self.pause_total += monotonic_ns() - self.pause_since
            self.pause_since = 0

    def forward_ended(self) -> None:
        """The model's forward is over; what follows may wait for other ranks."""
        if self.arrived and not self.phases and not self.is_evaluating:
            self.forward = (self.forward or 0) + monotonic_ns() - self.arrived
            self.arrived = 0

    def phase(self) -> int:
        """The number of the phase, as a slot has it."""
        phases = self.phases
        if phases:
            return phases[-1]
        if self.is_evaluating:
            return layout.EVAL
        return layout.TRAIN if self.told or self.batches else layout.INIT

    def paused_ns(self, now: int) -> int:
        """All pauses so far, the one that goes on included."""
        since = self.pause_since
        return self.pause_total + (max(now - since, 0) if since else 0)


def _nothing() -> None:
    """Nobody publishes."""


def _unknown() -> int:
    return -1


def _always() -> bool:
    return True


loop = Loop()
