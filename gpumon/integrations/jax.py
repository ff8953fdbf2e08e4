"""JAX: a compiled function leaves no trace of its calls, so the step function is wrapped where it is made.

``train_step = counted(jax.jit(train_step))``: each call is a step, and its time is that from call to call. Nothing is
waited for, so a step's time is the host's; it follows the device's as soon as the loop waits for a result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gpumon.probe import load

Step = TypeVar("Step", bound=Callable[..., Any])


class _Counted:
    """The step function itself in everything but a call."""

    def __init__(self, function: Callable[..., Any], samples: int | None) -> None:
        self._function, self._samples = function, samples
        self._probe = load()
        self._probe.watch()

    def __call__(self, *args: object, **kwargs: object) -> object:
        result = self._function(*args, **kwargs)
        self._probe.step(samples=self._samples)
        return result

    def __getattr__(self, name: str) -> object:
        return getattr(self._function, name)  # lower, trace, clear_cache …


def counted(step: Step, samples: int | None = None) -> Step:
    """The same function, each call of which is told as a step (of so many samples)."""
    return _Counted(step, samples)  # type: ignore[return-value]
