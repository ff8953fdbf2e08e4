"""Guesses which work belongs together where nothing but its looks is known, as in most logs.

Ranks of one run begin together, on cards of one kind, and hold about as much memory each.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

TOGETHER_S = 60.0
_ALIKE = 0.2
_FORGET_S = 30.0


class Looks(NamedTuple):
    """What is seen of one part: a GPU in use, or a process on it."""

    part: Hashable
    uuid: str
    """Of its GPU: two parts of one run are on different ones."""
    kind: str | None
    """The card's or the program's name."""
    memory_bytes: int | None


class _Group:
    def __init__(self, key: str, looks: Looks, began_s: float) -> None:
        self.key = key
        self.began_s = began_s
        self.looks = looks
        self.uuids = {looks.uuid}

    def takes(self, looks: Looks, time_s: float) -> bool:
        return (
            looks.kind == self.looks.kind
            and looks.uuid not in self.uuids
            and time_s - self.began_s <= TOGETHER_S
            and _is_alike(looks.memory_bytes, self.looks.memory_bytes)
        )


class Likeness:
    """Parts in, keys of groups out; who belongs to a group stays in it."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, _Group] = {}
        self._seen_s: dict[Hashable, float] = {}

    def key(self, looks: Looks, time_s: float) -> str:
        """The name of the group that a part belongs to; its first part's own, where it begins one."""
        group = self._groups.get(looks.part)
        if group is None:
            taking = (each for each in self._groups.values() if each.takes(looks, time_s))
            group = next(taking, None) or _Group(f"on {looks.uuid} {looks.part}", looks, time_s)
            group.uuids.add(looks.uuid)
            self._groups[looks.part] = group
        self._seen_s[looks.part] = time_s
        return group.key

    def forget(self, time_s: float) -> None:
        """Let go of parts that have not been seen of late."""
        for part, seen_s in list(self._seen_s.items()):
            if not 0.0 <= time_s - seen_s <= _FORGET_S:
                del self._groups[part], self._seen_s[part]


def _is_alike(mine: int | None, other: int | None) -> bool:
    if mine is None or other is None:
        return mine is other
    return abs(mine - other) <= _ALIKE * max(mine, other)
