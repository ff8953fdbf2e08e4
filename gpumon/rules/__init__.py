"""Knows which rules there are, in the order in which they are shown."""

from __future__ import annotations

from gpumon.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
