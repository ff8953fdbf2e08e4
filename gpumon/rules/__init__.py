"""Knows which rules there are, in the order in which they are shown."""

from __future__ import annotations

RULES: tuple[object, ...] = ()
