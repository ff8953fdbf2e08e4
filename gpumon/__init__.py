"""gpumon: is the training run healthy, what is wrong, why, and what to do."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is 10 ms
    from contextlib import AbstractContextManager

__version__ = "0.1.0"


def watch() -> None:
    """Switch the probe on in this process: what `gpumon run` does from outside. Safe to call again."""
    from gpumon.probe import load

    load().watch()


def step(n: int = 1, samples: float | None = None, loss: float | None = None) -> None:
    """Tell that ``n`` steps are over, where no framework tells it; a tensor given as loss is not looked at."""
    from gpumon.probe import load

    load().step(n, samples, loss)


def phase(name: str) -> AbstractContextManager[None]:
    """``with gpumon.phase("eval"):`` (or "checkpoint"): its time is a pause, not a long step."""
    from gpumon.probe import load

    entered: AbstractContextManager[None] = load().phase(name)
    return entered
