"""Feeds a text to one reader, as a log would."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.logs.reading import Reader, Reading


class Fed(NamedTuple):
    readings: list[Reading]
    left_out: list[str]
    others: list[str]
    """Lines that the reader did not want."""


def feed(kind: type[Reader], text: str) -> Fed:
    """Line by line; a stretch that is over may begin again."""
    fed = Fed([], [], [])
    reader = kind(fed.readings.append, fed.left_out.append)
    is_within = False
    for line in text.split("\n"):
        if is_within and not reader.take(line):
            reader.end()
            is_within = False
        elif is_within:
            continue
        if line and reader.starts(line) and reader.take(line):
            is_within = True
        elif line:
            fed.others.append(line)
    if is_within:
        reader.end()
    return fed
