"""Simulated GPUs as a source: ten minutes of a scenario at once, then in real time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event as Signal
from time import monotonic, time
from typing import Literal

from gpumon.model import Snapshot
from gpumon.sources.simulator.scenarios import DEFAULT, NOW_S, SCENARIOS, Scenario, Story, scenario_named

__all__ = ["DEFAULT", "SCENARIOS", "DemoSource", "Scenario", "scenario_named", "simulate"]

TRACE_START_S = 1_796_126_400.0
"""2026-12-01 12:00 UTC: the wall clock of traces, so that they are the same on every day."""
LONGEST_NAP_S = 1.0
RECENT_S = 120.0
LONGEST_LEAP_S = 120.0
"""After a longer suspension the story goes on where it was."""
SUSPENDED_S = 5.0
"""A pause this much longer than asked for means that the machine or the program was stopped."""


def simulate(
    scenario: str,
    seconds: float,
    *,
    seed: int = 0,
    interval_s: float = 1.0,
    gpus: int | None = None,
    window_s: float | None = None,
    start_s: float = TRACE_START_S,
    at_s: float = 0.0,
    probe: bool | None = None,
) -> Iterator[Snapshot]:
    """A trace of a scenario: the same arguments give the same snapshots.

    Args:
        scenario: a name of ``SCENARIOS``.
        seconds: length; the first snapshot is at 0, the last at or before this.
        seed: of everything random.
        interval_s: between two snapshots.
        gpus: how many, instead of the scenario's own number.
        window_s: the driver's utilization window, instead of the card's own (1/6, 1/2 or 1 s).
        start_s: wall clock (epoch) of the first snapshot.
        at_s: where in the story to begin; most troubles begin at 225 s.
        probe: with what the probe in the training processes reports, or without; None: as the scenario says.
    """
    story = Story(
        scenario_named(scenario),
        seed=seed,
        gpus=gpus,
        window_s=window_s,
        start_s=at_s,
        epoch_s=start_s,
        is_probed=probe,
    )
    yield story.world.snapshot(None)
    for _ in range(int(seconds / interval_s + 1e-9)):
        story.advance(interval_s)
        yield story.world.snapshot(interval_s)


def _past(seconds: float, interval_s: float) -> list[float]:
    """Intervals of the backlog: the last two minutes as live, what is older at half the pace, to be there sooner."""
    recent = int(min(seconds, RECENT_S) / interval_s + 1e-9)
    older = int((seconds - recent * interval_s) / (2 * interval_s) + 1e-9)
    return [2 * interval_s] * older + [interval_s] * recent


class DemoSource:
    """Simulated GPUs that look like a live machine; ``kind`` tells everybody that they are not."""

    kind: Literal["demo"] = "demo"

    def __init__(
        self,
        scenario: str | None = None,
        *,
        seed: int = 0,
        interval_s: float = 1.0,
        backlog_s: float = NOW_S,
        gpus: int | None = None,
        now: Callable[[], float] = time,
    ) -> None:
        """``interval_s`` may be assigned while it runs. ``now`` is the wall clock."""
        self.is_catching_up = False
        self._scenario = scenario_named(scenario or DEFAULT)
        self.name = self._scenario.name
        self.interval_s = interval_s
        self._seed = seed
        self._backlog_s = backlog_s
        self._gpus = gpus
        self._now = now
        self._closed = Signal()

    def close(self) -> None:
        """End the iteration at once, from any thread."""
        self._closed.set()

    def __iter__(self) -> Iterator[Snapshot]:
        """The backlog without waiting, its times ending now; then one snapshot per interval for ever."""
        steps = _past(self._backlog_s, self.interval_s)
        past_s = sum(steps)
        began = monotonic()
        story = Story(
            self._scenario,
            seed=self._seed,
            gpus=self._gpus,
            start_s=NOW_S - past_s,
            epoch_s=self._now() - past_s,
        )
        self.is_catching_up = bool(steps)
        yield story.world.snapshot(None)
        for left, step_s in enumerate(steps, 1 - len(steps)):
            if self._closed.is_set():
                return
            story.advance(step_s)
            self.is_catching_up = left < 0
            yield story.world.snapshot(step_s)
        yield from self._live(story, began)

    def _live(self, story: Story, since: float) -> Iterator[Snapshot]:
        """Pace from ``since`` on; whoever took long over the backlog gets what was missed without waiting."""
        world = story.world
        while (waited := self._wait(since)) is not None:
            since += waited
            story.advance(min(waited, LONGEST_LEAP_S))
            if abs(self._now() - world.epoch_s - world.now_s) > SUSPENDED_S:
                world.epoch_s = self._now() - world.now_s
            yield story.world.snapshot(waited)

    def _wait(self, since: float) -> float | None:
        """Wait for the end of the interval that began at ``since``; how long it was, or None once closed."""
        while (left := since + self.interval_s - monotonic()) > 0:
            if self._closed.wait(min(left, LONGEST_NAP_S)):
                return None
        if self._closed.is_set():
            return None
        late = monotonic() - since
        return late if late > self.interval_s + SUSPENDED_S else self.interval_s
