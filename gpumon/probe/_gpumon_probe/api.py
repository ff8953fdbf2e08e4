"""What a program may say itself: one line switches the probe on, and a loop that nobody can see tells its steps."""

from __future__ import annotations

from types import TracebackType

from . import finder, layout, publisher
from .loop import loop
from .tellers import MANUAL
from .wraps import tell_loss


def watch() -> None:
    """Watch this process from now on: what is imported already, and what will be. Safe to call again."""
    loop.start = publisher.start
    finder.install()


def step(n: int = 1, samples: float | None = None, loss: float | None = None) -> None:
    """Tell that ``n`` steps are over; once told, nobody else's steps count.

    Args:
        n: how many steps.
        samples: how many samples they took.
        loss: a number; a tensor is not looked at, since reading it would wait for the GPU.
    """
    try:
        if samples is not None:
            loop.samples = (loop.samples or 0.0) + samples
        tell_loss(loss)
        loop.step_ended(MANUAL, count=n)
    except Exception:
        pass


def tell_samples(samples: float) -> None:
    """So many more samples were trained on; the steps are told by somebody else."""
    loop.samples = (loop.samples or 0.0) + samples


class phase:  # noqa: N801 - used like a function: `with gpumon.phase("eval"):`
    """The loop is in this phase meanwhile: "eval" or "checkpoint". Its time is a pause, not a long step."""

    def __init__(self, name: str) -> None:
        if name not in layout.PHASES:
            raise ValueError(f"phase: {name!r} is not known; known: {', '.join(layout.PHASES)}")
        self._number = layout.PHASES.index(name)
        self._is_entered = False

    def __enter__(self) -> None:
        self._is_entered = loop.entered(self._number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_entered:
            loop.left()
