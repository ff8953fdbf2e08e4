"""Where a stretch of bad samples is said to begin."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.history import History
from gpumon.rules.onset import began_ago_s
from gpumon.window import Window
from tests import builders


def window_of(samples: Sequence[tuple[float, float | None]]) -> Window:
    """Of moments with the utilization of a GPU, which is not there where it is None."""
    history, before_s = History(), None
    for at_s, use in samples:
        gpus = [] if use is None else [builders.gpu(0, utilization_pct=use)]
        interval_s = None if before_s is None else at_s - before_s
        window = history.append(builders.snapshot(builders.NOON + at_s, gpus, [], interval_s=interval_s))
        before_s = at_s
    return window


def began(samples: Sequence[tuple[float, float | None]]) -> float | None:
    return began_ago_s(window_of(samples), builders.uuid(0), "utilization_pct", lambda value: value < 50.0)


SECONDS = [(float(number), 90.0) for number in range(10)]


def test_a_bad_sample_stands_for_the_time_since_the_one_before() -> None:
    assert began([*SECONDS, (10.0, 10.0), (11.0, 10.0)]) == 2.0
    assert began([*SECONDS, *((10.0 + number, 10.0) for number in range(700))]) == pytest.approx(600.0, abs=1.0)


def test_it_does_not_reach_over_a_gap_into_what_is_not_known() -> None:
    first = 6 * 3600.0
    bad = [(first + number, 10.0) for number in range(4)]
    assert began([(0.0, None), (1.0, None), *bad[:1]]) == 0.0
    assert began([(0.0, None), (1.0, None), *bad]) == 3.0
    assert began([*SECONDS, *bad]) == 3.0


def test_a_short_gap_within_it_is_passed_over() -> None:
    assert began([*SECONDS, (10.0, 10.0), (11.0, None), (12.0, None), (13.0, 10.0)]) == 4.0
