"""Knows what a rule is: a pure function of a window, with its limits, its rhythm and its documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gpumon.model import Abstention, Finding
from gpumon.window import Window

Conclusions = Iterator[Finding | Abstention]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user may set for a rule; a rule without settings uses this one."""


Check = Callable[[Window, Any], Conclusions]
"""A rule's function as it is written; the second argument is its own Limits."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One diagnosis and how it is kept over time."""

    id: str
    """A symptom in kebab-case that reads as ``gpu 3 has …``."""
    doc: str
    """Its documentation; the first line says what it is about."""
    check: Check
    limits: type[msgspec.Struct] = Limits
    every_s: float = 5.0
    """How often it is judged; in between its last conclusions stand."""
    hold_s: float = 0.0
    """How long it must hold before it is raised. A rule with a window of its own needs none."""
    clear_s: float = 0.0
    """How long it must be gone before the alert ends."""
    suppressed_by: tuple[str, ...] = ()
    """Rules that explain this one where both are about the same GPU or job."""
    at_once: Check | None = None
    """What the last reading says by itself, for a run that is too short to see anything last."""
    at_end: Check | None = None
    """What can only be said once the run is over."""


def rule(
    name: str,
    *,
    limits: type[msgspec.Struct] = Limits,
    every_s: float = 5.0,
    hold_s: float = 0.0,
    clear_s: float = 0.0,
    suppressed_by: tuple[str, ...] = (),
    at_once: Check | None = None,
    at_end: Check | None = None,
) -> Callable[[Check], Rule]:
    """Make a rule of a function; its docstring is what ``gpumon explain`` prints."""

    def declare(check: Check) -> Rule:
        return Rule(
            id=name,
            doc=inspect.cleandoc(check.__doc__ or ""),
            check=check,
            limits=limits,
            every_s=every_s,
            hold_s=hold_s,
            clear_s=clear_s,
            suppressed_by=suppressed_by,
            at_once=at_once,
            at_end=at_end,
        )

    return declare
