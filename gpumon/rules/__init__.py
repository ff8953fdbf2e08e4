"""What can be wrong with a run, one rule a file; ``RULES`` is all of them, in the order in which they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumon.rules.registry import RULES

__all__ = ["RULES"]


def __getattr__(name: str) -> object:
    """Load the rules when they are first asked for: ninety modules, of which the first picture needs none."""
    if name != "RULES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpumon.rules.registry import RULES

    return RULES
