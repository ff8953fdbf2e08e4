"""The change point: found where there is one, and nowhere else."""

from __future__ import annotations

from random import Random

import pytest

from gpumon.rules.change import change_point, deviation


def noisy(levels: list[tuple[float, int]], scatter: float, seed: int = 0) -> list[float]:
    """Levels, each for so many values, with even noise."""
    rng = Random(seed)
    return [level + scatter * (rng.random() - 0.5) for level, count in levels for _ in range(count)]


@pytest.mark.parametrize("scatter", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("at", [30, 60, 100])
def test_a_step_is_found_at_its_place(scatter: float, at: int) -> None:
    """A rise of 0.2 within noise up to as large is found within two values of its place, with its size."""
    change = change_point(noisy([(0.0, at), (0.2, 130 - at)], scatter), before=24, after=12)
    assert change is not None
    assert abs(change.at - at) <= 2
    assert change.rise == pytest.approx(0.2, abs=0.03)


def test_a_fall_is_a_change_too() -> None:
    """Its sign says which way."""
    change = change_point(noisy([(0.3, 60), (0.0, 60)], 0.1), before=24, after=12)
    assert change is not None
    assert change.rise < 0


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_has_no_moment(seed: int) -> None:
    """Without a step nothing is found, whatever the noise."""
    assert change_point(noisy([(0.0, 180)], 0.4, seed), before=24, after=12) is None


def test_a_drift_has_no_moment() -> None:
    """A slow rise ends as far up, but never at once."""
    assert change_point([0.002 * number for number in range(180)], before=24, after=12) is None


def test_a_burst_is_over() -> None:
    """What lasted less than the least stretch is no new level."""
    assert change_point(noisy([(0.0, 100), (0.5, 6), (0.0, 60)], 0.05), before=24, after=12) is None


def test_too_little_is_no_answer() -> None:
    """Fewer values than both stretches need."""
    assert change_point([0.0] * 20 + [1.0] * 10, before=24, after=12) is None


def test_deviation() -> None:
    """Root mean square about the mean; nothing scatters by 0."""
    assert deviation([1.0, 3.0]) == 1.0
    assert deviation([]) == 0.0
