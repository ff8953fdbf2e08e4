"""How often, and how long, a framework compiled what the program gave it; a program that recompiles is slow for it."""

from __future__ import annotations

from time import monotonic_ns


class Compiling:
    """The compilations of this process so far."""

    __slots__ = ("_since", "_total", "count")

    def __init__(self) -> None:
        self.count = 0
        self._total = self._since = 0

    def began(self) -> None:
        """One begins; within another it is a part of that."""
        self._since = self._since or monotonic_ns()

    def ended(self) -> None:
        """It is over."""
        if self._since:
            self.took(monotonic_ns() - self._since)
            self._since = 0

    def took(self, nanoseconds: int) -> None:
        """One is over that is told of only now."""
        self.count += 1
        self._total += nanoseconds

    def total_ns(self, now: int) -> int:
        """All so far, the one that goes on included."""
        since = self._since
        return self._total + (max(now - since, 0) if since else 0)
