"""Who tells that a step is over: frameworks, optimizers, the program itself; and whose word counts."""

from __future__ import annotations

from typing import NamedTuple

MOST_KEYS = 4096
STEPS_OF_ANOTHER = 8
"""An optimizer that steps so often while the leading one does not step takes the lead."""


class Teller(NamedTuple):
    """Somebody who tells when a step is done; who knows better has the higher rank, and takes over."""

    rank: int
    framework: str | None
    unit: str


NOBODY = Teller(-1, None, "")
BATCHES = Teller(0, None, "batches")
OPTIMIZER = Teller(1, "pytorch", "optimizer steps")
FUNCTION = Teller(1, "tensorflow", "calls of a tf.function")
KERAS = Teller(2, "keras", "batches trained")
TRANSFORMERS = Teller(2, "transformers", "trainer steps")
DEEPSPEED = Teller(3, "deepspeed", "engine steps")
MANUAL = Teller(9, None, "steps")


class Election:
    """Which of several optimizers is the one whose steps are the loop's."""

    def __init__(self) -> None:
        self.leader = 0
        self.leader_steps = 0
        self.others: dict[int, list[int]] = {}

    def leads(self, key: int) -> bool:
        """Whether this one leads from now on: the first does, or one that steps much more often than the leader."""
        if not self.leader:
            self.leader = key
            return True
        if len(self.others) >= MOST_KEYS:
            self.others.clear()
        count = self.others.setdefault(key, [0, 0, self.leader_steps])
        if count[2] != self.leader_steps:
            count[1], count[2] = 0, self.leader_steps
        count[0] += 1
        count[1] += 1
        if count[1] <= STEPS_OF_ANOTHER and count[0] <= 2 * self.leader_steps + STEPS_OF_ANOTHER:
            return False
        self.leader, self.leader_steps = key, 0
        self.others.clear()
        return True
