"""What the steps of a job are like, from what probes report."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from builders import GIB, NOON, frame, gpu, job, process, rank, snapshot, snapshots, uuid
from gpumon import steps
from gpumon.model import Rank
from gpumon.steps import Pace
from gpumon.window import Window
from ui.stage import demo


def told(reports: Sequence[Rank]) -> Window:
    """The window after one report a second."""
    series = [
        snapshot(NOON + second, ranks=(report,), interval_s=1.0 if second else None)
        for second, report in enumerate(reports)
    ]
    return frame(series, jobs=[job()]).window


def test_the_pace_is_the_mean_of_a_minute() -> None:
    """Two steps a second, one of which waits: mean step, share of waiting, steps and samples a second."""
    window = told([rank(step=100 + 2 * second, data_wait_s=0.1, samples_per_s=128.0) for second in range(61)])
    pace = steps.pace_of(window, window.last.ranks[0])
    assert (pace.step_s, pace.wait_pct, pace.steps_per_s, pace.samples_per_s) == pytest.approx((0.5, 20.0, 2.0, 128.0))


def test_the_first_report_is_told_at_once() -> None:
    """Before there are twenty steps the newest report says what is known."""
    window = told([rank(data_wait_s=0.25)])
    assert steps.pace_of(window, window.last.ranks[0])[:2] == (0.5, 50.0)


def test_a_probe_that_knows_no_steps_has_no_pace() -> None:
    """Nothing is 0 that was not measured; nor is the last step's pace that of a rank that stands still."""
    window = told([rank(step=None, step_s=None, data_wait_s=None)] * 5)
    assert steps.detailed(window, window.last.ranks[0]) == Pace()
    window = told(
        [*[rank(step=2 * second) for second in range(30)], *[rank(step=60, step_s=None, heartbeat_age_s=99.0)] * 90]
    )
    assert steps.pace_of(window, window.last.ranks[0]).step_s is None


def test_percentiles_are_of_single_steps() -> None:
    """Nine of ten steps take 0.1 s, one takes 1 s: the mean hides both."""
    singles = (0.1,) * 9 + (1.0,)
    window = told([rank(step_samples_s=singles, data_wait_samples_s=(0.0,) * 9 + (0.9,))] * 10)
    pace = steps.detailed(window, window.last.ranks[0])
    assert (pace.p50_s, pace.p95_s, pace.wait_p95_s, pace.every) == (0.1, 1.0, 0.9, 10)


@pytest.mark.parametrize(
    ("lengths", "waits", "every"),
    [
        ((0.2, 0.2, 0.2, 1.0) * 10, (0.0, 0.0, 0.0, 0.8) * 10, 4),
        ((0.2, 0.2, 0.2, 1.0) * 10, (), 4),
        ((0.2, 0.2, 0.2, 0.28) * 10, (0.0, 0.0, 0.0, 0.08) * 10, 4),
        ((0.2, 0.2, 0.2, 0.22) * 10, (0.0,) * 40, None),
        ((0.2,) * 40, (0.0,) * 40, None),
        ((0.4,) * 40, (0.2,) * 40, None),
        ((0.2, 1.0, 0.2, 0.2, 0.2, 0.2, 1.0, 0.2, 1.0, 1.0, 0.2, 0.2, 0.2) * 4, (), None),
        ((0.2, 0.2, 0.2, 1.0), (0.0, 0.0, 0.0, 0.8), None),
        ((), (), None),
    ],
)
def test_a_rhythm_is_seen_in_waits_or_in_lengths(
    lengths: Sequence[float], waits: Sequence[float], every: int | None
) -> None:
    """Every 4th step stalls, whether by its wait or by its length; even, irregular and few steps have no rhythm."""
    assert steps.stall_rhythm(lengths, waits) == every


@pytest.mark.parametrize(
    ("every", "seconds", "expected"), [(5, 1.5, (12, 30.0)), (30, 1.5, None), (5, 0.1, None), (1000, 0.0, None)]
)
def test_compiling_again_and_again(every: int, seconds: float, expected: tuple[int, float] | None) -> None:
    """Often, and long enough to be felt; not twice a minute, and not in no time."""
    reports = [
        rank(step=2 * second, compiles=second // every, compile_s=0.0 if second % every else seconds)
        for second in range(70)
    ]
    window = told(reports)
    found = steps.recompiled(window, window.last.ranks[0])
    assert found == (None if expected is None else pytest.approx(expected, abs=2.0))
    assert steps.recompiled(told([rank()] * 70), rank()) is None


def test_a_job_is_as_fast_as_all_and_waits_like_its_worst() -> None:
    """Ranks go in step, so the one that waits longest holds up all; samples are those of all ranks."""
    paces = [Pace(step_s=0.6, wait_pct=2.0, samples_per_s=100.0), Pace(step_s=0.6, wait_pct=43.0, samples_per_s=100.0)]
    assert steps.job_pace([*paces, Pace()]) == Pace(step_s=0.6, wait_pct=43.0, samples_per_s=200.0)
    assert steps.job_pace([]) == Pace()


def test_memory_in_use_is_the_peak_of_the_steps() -> None:
    """A random moment lies anywhere between two steps' ends; without a peak it must do."""
    assert steps.used_bytes(rank()) == 68 * GIB
    assert steps.used_bytes(rank(allocated_peak_bytes=None)) == 60 * GIB
    assert steps.used_bytes(rank(allocated_peak_bytes=None, allocated_bytes=None)) is None


def test_shares_of_columns_keep_their_gaps() -> None:
    """A column without a step has no share; one never exceeds the whole."""
    assert steps.wait_shares([0.5, None, 0.5, 0.4], [0.1, 0.1, None, 0.5]) == [20.0, None, None, 100.0]


def test_waits_are_measured_where_the_trainers_probe_tells_them() -> None:
    """With a probe that times waits; not from outside, and not for another GPU."""
    assert steps.is_measured(told([rank()] * 60), uuid(0))
    assert not steps.is_measured(told([rank()] * 60), uuid(1))
    assert not steps.is_measured(told([rank(data_wait_s=None)] * 60), uuid(0))
    assert not steps.is_measured(frame(snapshots(60), jobs=[job()]).window, uuid(0))


def test_a_hang_tells_for_how_long_and_who_keeps_it() -> None:
    """The demo's rank 2 has left a collective; the others wait."""
    window = demo("hang").window
    found = steps.standstill_of(window, window.jobs[0])
    assert found is not None
    assert found.quiet_s > 300.0
    assert (found.why, found.culprit, found.label) == ("rank 2 idles", window.jobs[0].trainers[2], None)


def test_what_goes_on_does_not_stand_still() -> None:
    """A job that trains, one that starts, and one of which nothing is known."""
    window = demo("fragmented").window
    assert steps.standstill_of(window, window.jobs[0]) is None
    plain = frame(snapshots(60, gpus=[gpu()], processes=[process()]), jobs=[job()]).window
    assert steps.standstill_of(plain, plain.jobs[0]) is None


def sampled(stacks: int, waits: int) -> Rank:
    return Rank(pid=4242, sampled_stacks=stacks, sampled_waits=waits)


def test_a_sampled_rank_has_a_wait_with_its_error_and_no_step() -> None:
    """Of a hundred looks in a minute thirty waited: Wilson's interval; under twenty looks nothing is claimed."""
    window = told([sampled(7 + 2 * second, second * 2 * 3 // 10) for second in range(51)])
    pace = steps.pace_of(window, window.last.ranks[0])
    assert (pace.step_s, pace.wait_pct, pace.is_sampled) == (None, pytest.approx(30.0), True)
    assert pace.sampled is not None
    assert pace.sampled.stacks == 100
    assert (pace.sampled.low_pct, pace.sampled.high_pct) == pytest.approx((21.9, 39.6), abs=0.05)
    few = told([sampled(2 * second, second) for second in range(10)])
    assert steps.pace_of(few, few.last.ranks[0]) == Pace(is_sampled=True)


def test_counts_that_began_anew_are_not_taken_for_steps_back() -> None:
    window = told(
        [*[sampled(500 + second, 100) for second in range(30)], *[sampled(second, second) for second in range(31)]]
    )
    pace = steps.pace_of(window, window.last.ranks[0])
    assert pace.sampled is not None
    assert (pace.sampled.stacks, pace.sampled.wait_pct) == (58, pytest.approx(100.0 * 30 / 58))


def test_the_wait_of_samples_over_time_is_told_of_twenty_at_least() -> None:
    stacks = [0.0, 10.0, None, 20.0, 30.0, 5.0, 15.0, 25.0]
    waits = [0.0, 10.0, None, 10.0, 20.0, 0.0, 5.0, 5.0]
    assert steps.sampled_shares(stacks, waits) == [None, None, None, 50.0, 50.0, None, None, 25.0]
