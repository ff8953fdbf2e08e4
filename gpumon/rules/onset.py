"""Knows how to read in a series when a trouble began and whether it lasts or was only a burst."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.signals import mean_of
from gpumon.window import Known, Window

LOOK_BACK_S = 600.0


def began_ago_s(
    window: Window, subject: Known, field: str, is_bad: Callable[[float], bool], *, bridge_s: float = 20.0
) -> float | None:
    """How long ago the stretch of bad samples began that reaches to now.

    Stretches of good samples up to ``bridge_s`` long lie within it; gaps prove nothing and are passed over. A sample
    stands for the time since the one before it, where there is one.
    """
    times, covered = window.times(LOOK_BACK_S), window.covered(LOOK_BACK_S)
    # With the one before them, if it is no further away than the first one covers.
    values = window.series(subject, field, window.elapsed_s - times[0] + 1.01 * covered[0] + 0.01)
    if len(values) == len(times):
        values = [None, *values]
    began: int | None = None
    good_s = 0.0
    for number, (value, cover) in enumerate(zip(reversed(values), reversed(covered), strict=False), 1):
        if value is None:
            continue
        if is_bad(value):
            began, good_s = number, 0.0
        else:
            good_s += cover
            if good_s > bridge_s:
                break
    if began is None:
        return None
    return window.elapsed_s - times[-began] + (0.0 if values[-began - 1] is None else covered[-began])


def lasts(window: Window, subject: Known, field: str, *, seconds: float, at_least: float, parts: int = 4) -> bool:
    """Whether the mean reaches a level in every part of a stretch of time, as a single burst does not."""
    part_s = seconds / parts
    means = [mean_of(window.series(subject, field, part_s, ago_s=part_s * part)) for part in range(parts)]
    # A part without a sample, as with long intervals, proves nothing either way.
    return all(mean is None or mean >= at_least for mean in means)


def spread(values: Sequence[float | None]) -> str | None:
    """``59–63``: the range of what is known, in whole numbers."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = round(min(known)), round(max(known))
    return f"{low}–{high}" if low != high else f"{low}"
