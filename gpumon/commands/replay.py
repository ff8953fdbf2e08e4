"""``gpumon replay``: the live screen on a recording or a log, at its end or played from a moment on."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from gpumon.commands.inputs import Input
from gpumon.errors import UsageError
from gpumon.logs.values import moment
from gpumon.sources.replay import Replay

SPEED_MAX = 3600.0
DAY_S = 86_400.0
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def source_of(paths: Sequence[Path], at: str | None, speed: float | None) -> Replay:
    """The files as a source for the screen.

    Raises:
        UsageError: a file cannot be read, or the time or speed is none.
    """
    if speed is not None and not 0.0 < speed <= SPEED_MAX:
        raise UsageError(f"--speed: {speed:g} is not within 0 to {SPEED_MAX:g}")
    begin = _begin(at if at is not None or speed is None else "start")
    return Replay(Input(paths), begin=begin, speed=speed or 1.0)


def _begin(at: str | None) -> Callable[[float], float] | None:
    """From the time of the first snapshot the one to play from; None stays at the end."""
    if at is None or at == "end":
        return None
    if at == "start":
        return lambda first_s: first_s
    clock = _CLOCK.fullmatch(at.strip())
    if clock is not None:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        of_day_s = 3600.0 * hours + 60.0 * minutes + seconds
        return lambda first_s: first_s + (of_day_s - first_s) % DAY_S
    time_s = moment(at)
    if time_s is None:
        raise UsageError(f"--at: {at!r} is no time; write 14:02, 2026-12-01T14:02:00, start or end")
    return lambda _: time_s
