"""Functions of others, wrapped so that the loop learns of them; what they return and raise stays theirs."""

from __future__ import annotations

import math
from functools import wraps
from typing import Any, Callable

from . import layout
from .loop import loop


def paused(phase: int, original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, during which the loop is in this phase."""

    @wraps(original)
    def within(*args: Any, **kwargs: Any) -> Any:
        is_entered = loop.entered(phase)
        try:
            return original(*args, **kwargs)
        finally:
            if is_entered:
                loop.left()

    return within


def pause(owner: Any, phase: int, *names: str) -> None:
    """Wrap those of the functions or methods that this version has."""
    for name in names:
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, paused(phase, original))


def checkpoint(*names: str) -> Callable[[Any], None]:
    """For a module with functions that write checkpoints."""

    def hook(module: Any) -> None:
        pause(module, layout.CHECKPOINT, *names)

    return hook


def copied(original: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which copies a batch to the device: now and then the device times it."""

    @wraps(original)
    def copy(*args: Any, **kwargs: Any) -> Any:
        timed = loop.copy_begins()
        if timed is None:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            loop.copies.end(timed)

    return copy


def before(owner: Any, name: str, notice: Callable[..., None]) -> None:
    """Call ``notice`` with the same arguments before the function."""
    original = getattr(owner, name)

    @wraps(original)
    def noticed(*args: Any, **kwargs: Any) -> Any:
        try:
            notice(*args, **kwargs)
        except Exception:
            pass
        return original(*args, **kwargs)

    setattr(owner, name, noticed)


def after(owner: Any, name: str, notice: Callable[..., None]) -> None:
    """Call ``notice`` with the same arguments after the function returned."""
    original = getattr(owner, name)

    @wraps(original)
    def noticed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            notice(*args, **kwargs)
        except Exception:
            pass
        return result

    setattr(owner, name, noticed)


def tell_loss(loss: object) -> None:
    """A number is looked at; a tensor is not: reading it would wait for the device."""
    if type(loss) in {int, float}:
        loop.loss_is_nan = not math.isfinite(loss)  # type: ignore[arg-type]
