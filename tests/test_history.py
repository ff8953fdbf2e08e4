"""Series, means, columns and tiers: what was sampled is what is read, and gaps stay gaps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.history import History, Window
from gpumon.model import Event
from gpumon.rings import Ring, Sums, Timeline
from tests import builders

GPU = builders.gpu()


def filled(powers: list[float | None], interval_s: float = 1.0, start_s: float = builders.NOON) -> Window:
    """A window after one sample per power."""
    history = History()
    for number, power in enumerate(powers):
        gpus = [builders.gpu(power_w=power)]
        window = history.append(
            builders.snapshot(start_s + number * interval_s, gpus, interval_s=interval_s if number else None)
        )
    return window


def test_a_series_gives_the_samples_with_their_gaps() -> None:
    """Oldest first, None where the driver reported nothing, and as long as the ages."""
    window = filled([100.0, None, 300.0, 400.0])
    assert window.series(GPU, "power_w", 3) == [None, 300.0, 400.0]
    assert window.ages(3) == [2.0, 1.0, 0.0]
    assert window.series(GPU, "power_w", 100) == [100.0, None, 300.0, 400.0]


def test_an_unknown_field_names_the_nearest() -> None:
    """A misspelt series is a mistake of the caller."""
    with pytest.raises(KeyError, match="power_w"):
        filled([1.0]).series(GPU, "powr_w", 10)
    with pytest.raises(KeyError, match="power_w"):
        filled([1.0]).series("GPU-that-is-not", "powr_w", 10)


def test_an_unknown_subject_is_all_gaps() -> None:
    """A GPU that was never there has no samples, as many as there are moments."""
    assert filled([1.0, 2.0]).series("GPU-that-is-not", "power_w", 10) == [None, None]


def test_a_mean_counts_time_not_samples() -> None:
    """A sample over three seconds weighs three times one over a second."""
    history = History()
    history.append(builders.snapshot(interval_s=None, gpus=[builders.gpu(power_w=0.0)]))
    history.append(builders.snapshot(builders.NOON + 3, [builders.gpu(power_w=100.0)], interval_s=3.0))
    window = history.append(builders.snapshot(builders.NOON + 4, [builders.gpu(power_w=500.0)], interval_s=1.0))
    assert window.mean(GPU, "power_w", 4) == pytest.approx(200.0)


def test_a_mean_of_less_than_half_is_no_mean() -> None:
    """Twenty of sixty seconds are too little to judge a minute."""
    window = filled([100.0] * 20)
    assert window.mean(GPU, "power_w", 60) is None
    assert window.mean(GPU, "power_w", 30) == pytest.approx(100.0)
    assert filled([None] * 40 + [100.0] * 20).mean(GPU, "power_w", 60) is None


def test_a_mean_may_end_earlier() -> None:
    """``ago_s`` gives the mean of the time before something began."""
    window = filled([100.0] * 60 + [300.0] * 30)
    assert window.mean(GPU, "power_w", 60, ago_s=30) == pytest.approx(100.0)


def test_covers_needs_four_fifths() -> None:
    """A minute is covered by 60 samples or by 48 that are there, not by half of it."""
    assert filled([1.0] * 61).covers(60)
    assert not filled([1.0] * 30).covers(60)


def test_share_of_time() -> None:
    """Bounds are half open: at least, below."""
    window = filled([10.0, 20.0, 30.0, 40.0])
    assert window.share(GPU, "power_w", 4, below=30) == pytest.approx(50.0)
    assert window.share(GPU, "power_w", 4, at_least=30) == pytest.approx(50.0)


def test_an_older_window_never_changes() -> None:
    """A reader may hold a window while sampling goes on."""
    history = History()
    for number in range(50):
        window = history.append(builders.snapshot(builders.NOON + number, [builders.gpu(power_w=float(number))]))
        if number == 20:
            held = window
            before = (held.series(GPU, "power_w", 10), held.mean(GPU, "power_w", 10), held.elapsed_s)
    assert (held.series(GPU, "power_w", 10), held.mean(GPU, "power_w", 10), held.elapsed_s) == before
    assert held.last.gpus[0].power_w == 20.0


def test_a_stale_or_lost_gpu_is_a_gap() -> None:
    """Old values are never repeated as if they were new."""
    history = History()
    history.append(builders.snapshot(interval_s=None))
    history.append(builders.snapshot(builders.NOON + 1, [builders.gpu(age_s=4.0)]))
    window = history.append(builders.snapshot(builders.NOON + 2, [builders.gpu(is_lost=True)]))
    assert window.series(GPU, "power_w", 3) == [640.0, None, None]


def test_limiters_come_from_counters_else_from_bits() -> None:
    """Rules and charts share one series; a window tells which it is."""
    history = History()
    counted = builders.gpu(0, throttled_pct={"sw_thermal": 12.0})
    by_bits = builders.gpu(1, throttled_pct=None, clocks_event_reasons=("sw_thermal",))
    unknown = builders.gpu(2, throttled_pct=None, clocks_event_reasons=None)
    window = history.append(builders.snapshot(gpus=[counted, by_bits, unknown], interval_s=None))
    found = [window.series(gpu, "throttled_pct.sw_thermal", 1)[0] for gpu in (counted, by_bits, unknown)]
    assert found == [12.0, 100.0, None]
    assert [window.is_counted(gpu) for gpu in (counted, by_bits)] == [True, False]


def test_the_drivers_windows_are_kept_and_stand_for_time() -> None:
    """The ring is read whole; an idle GPU's empty ring counts as long as a full one."""
    history = History()
    history.append(builders.snapshot(interval_s=None, gpus=[builders.gpu(utilization_samples_pct=(9.0,))]))
    busy = builders.gpu(utilization_samples_pct=(100.0, 0.0, 100.0, 0.0, 100.0, 0.0))
    history.append(builders.snapshot(builders.NOON + 1, [busy]))
    window = history.append(builders.snapshot(builders.NOON + 2, [builders.gpu(utilization_pct=0.0)]))
    assert window.samples(GPU, 2) == [100.0, 0.0, 100.0, 0.0, 100.0, 0.0] + [0.0] * 6
    assert window.series(GPU, "utilization_pct", 2) == [50.0, 0.0]


def test_columns_are_aligned_to_the_clock() -> None:
    """A column holds the samples taken in it; before the first and after the last there is nothing."""
    window = filled([float(number) for number in range(31)])
    columns = window.bins(GPU, "power_w", end_s=builders.NOON + 40, width_s=10, count=5)
    assert columns == [None, pytest.approx(5.5), pytest.approx(15.5), pytest.approx(25.5), None]
    assert window.bins(GPU, "power_w", end_s=builders.NOON + 30, width_s=10, count=1, how="max") == [30.0]
    assert window.bins(GPU, "power_w", end_s=builders.NOON + 30, width_s=10, count=1, how="min") == [21.0]


def test_a_column_shorter_than_the_interval_is_filled() -> None:
    """With a sample every 5 s, columns of 1 s all show the sample that covers them."""
    window = filled([10.0, 20.0, 30.0], interval_s=5.0)
    columns = window.bins(GPU, "power_w", end_s=builders.NOON + 10, width_s=1, count=10)
    assert columns == [20.0] * 5 + [30.0] * 5


def test_a_suspend_is_a_gap() -> None:
    """Five minutes without samples are not drawn from the sample after them."""
    history = History()
    for number in range(20):
        history.append(builders.snapshot(builders.NOON + number, interval_s=1.0 if number else None))
    window = history.append(builders.snapshot(builders.NOON + 319, interval_s=300.0))
    columns = window.bins(GPU, "power_w", end_s=builders.NOON + 320, width_s=20, count=16)
    assert columns[0] == 640.0
    assert columns[1:15] == [None] * 14
    assert columns[15] == 640.0
    assert window.passed_s == 3.0


def test_a_step_of_the_clock_tears_nothing() -> None:
    """After a step by an hour the whole past moves along with it."""
    history = History()
    for number in range(20):
        history.append(builders.snapshot(builders.NOON + number, interval_s=1.0 if number else None))
    window = history.append(builders.snapshot(builders.NOON + 3620, interval_s=1.0))
    columns = window.bins(GPU, "power_w", end_s=builders.NOON + 3620, width_s=10, count=2)
    assert columns == [640.0, 640.0]


@pytest.mark.parametrize("interval_s", [0.5, 2.0])
def test_settled_columns_come_from_memory_and_stay_the_same(interval_s: float) -> None:
    """Asking again gives equal columns, and an older window sees its own past only."""
    history = History()
    for number in range(int(120 / interval_s)):
        gpus = [builders.gpu(power_w=float(number))]
        window = history.append(builders.snapshot(builders.NOON + number * interval_s, gpus, interval_s=interval_s))
        if number == int(60 / interval_s):
            early = window
    end = builders.NOON + 120
    first = window.bins(GPU, "power_w", end_s=end, width_s=10, count=12)
    assert window.bins(GPU, "power_w", end_s=end, width_s=10, count=12) == first
    assert early.bins(GPU, "power_w", end_s=end, width_s=10, count=12)[:6] == first[:6]
    assert early.bins(GPU, "power_w", end_s=end, width_s=10, count=12)[7:] == [None] * 5


def test_old_columns_come_from_the_coarser_tiers() -> None:
    """When the raw ring has gone round, mean, min and max of ten seconds remain."""
    history = History(raw_slots=60)
    for number in range(401):
        gpus = [builders.gpu(power_w=float(number % 10))]
        window = history.append(builders.snapshot(builders.NOON + number, gpus, interval_s=1.0 if number else None))
    end = builders.NOON + 400
    assert window.bins(GPU, "power_w", end_s=end, width_s=20, count=20)[1] == pytest.approx(4.5)
    assert window.bins(GPU, "power_w", end_s=end, width_s=20, count=20, how="max")[1] == 9.0
    assert window.bins(GPU, "power_w", end_s=end, width_s=20, count=20, how="min")[1] == 0.0
    assert window.span_s == pytest.approx(400, abs=10)
    assert len(window.series(GPU, "power_w", 400)) == pytest.approx(60, abs=3)


def test_processes_that_ended_are_forgotten() -> None:
    """Workers that come and go do not pile up."""
    history = History(raw_slots=100)
    for number in range(400):
        processes = [builders.process(), builders.worker(5000 + number // 10)]
        window = history.append(builders.snapshot(builders.NOON + number, processes=processes))
    assert len([key for key in history._store.series if key[0].isdigit()]) < 25
    assert window.mean(builders.process(), "cpu_pct", 60) == pytest.approx(60.0)


def test_events_are_found_by_their_age() -> None:
    """Only what happened in the last seconds, oldest first."""
    history = History()
    for number in range(10):
        happened = [Event(kind="xid", xid=number)]
        window = history.append(builders.snapshot(builders.NOON + number, events=happened))
    assert [event.xid for event in window.events(3)] == [7, 8, 9]


def test_what_was_learned_is_offered() -> None:
    """Baselines given by the budget fold are read through the window."""
    window = History().append(builders.snapshot(), baselines={builders.uuid(0): {"power_idle_w": 71.0}})
    assert window.baseline(GPU, "power_idle_w") == 71.0
    assert window.baseline(GPU, "sm_clock_cool_mhz") is None


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.none(), st.integers(0, 1000).map(float)), min_size=1, max_size=90),
        # Long stretches without a change, in what is reported and in what is not.
        st.lists(
            st.tuples(st.sampled_from([7.0, 8.0, math.nan, None]), st.integers(1, 60)), min_size=1, max_size=5
        ).map(lambda runs: [value for value, count in runs for _ in range(count)]),
    ),
    st.integers(1, 100),
    st.booleans(),
)
def test_a_ring_gives_back_what_was_written(values: list[float | None], slots: int, repeats: bool) -> None:
    """Whatever was written last, in whatever order of gaps, the newest rows read back unchanged, field by field."""
    ring = Ring(3, slots, 0)
    before: float | None = None
    for row, value in enumerate(values):
        if value is not None:
            if repeats and value == before:
                ring.repeat(row)
            else:
                ring.write(row, [value, -value, 5.0])
        before = value
    last = len(values) - 1
    first = max(0, last - slots + 1)
    of_field = (lambda value: value, lambda value: -value, lambda _: 5.0)
    for field, of in enumerate(of_field):
        wanted = [math.nan if value is None else of(value) for value in values[first:]]
        assert list(map(repr, ring.column(field, first, last))) == list(map(repr, wanted))
        single = [ring.values(row)[field] if ring.values(row) else math.nan for row in range(first, last + 1)]
        assert list(map(repr, single)) == list(map(repr, wanted))
        steady = ring.steady(field, first, last)
        assert steady is None or {repr(steady)} == set(map(repr, wanted))
    if None not in values:
        assert ring.steady(2, first, last) == 5.0


def test_ranks_have_series_of_their_own() -> None:
    """What a probe reports is read like any other signal, by its record or by its pid."""
    history = History()
    for number in range(5):
        rank = builders.rank(42, data_wait_s=number / 10)
        window = history.append(builders.snapshot(builders.NOON + number, ranks=[rank]))
    assert window.series(rank, "data_wait_s", 2) == [pytest.approx(0.3), pytest.approx(0.4)]
    assert window.series("rank:42", "reserved_bytes", 1) == [rank.reserved_bytes]
    assert window.rank_of(42) == rank
    assert window.rank_of(43) is None
    assert window.ranks_of(builders.job(trainers=(41, 42))) == (rank,)


def test_a_step_longer_than_the_interval_holds_until_the_next() -> None:
    """Steps of 3 s sampled each second have a mean; once no step ends for long, they have not."""
    history = History()
    for number in range(40):
        is_done = number % 3 == 0 and number < 30
        rank = builders.rank(
            42, step_s=3.0 if is_done else None, heartbeat_age_s=float(number % 3 + 20 * (number >= 30))
        )
        window = history.append(builders.snapshot(builders.NOON + number, ranks=[rank]))
        if number == 29:
            assert window.mean(rank, "step_s", 20.0) == pytest.approx(3.0)
    assert window.mean("rank:42", "step_s", 9.0) is None


@given(
    rows=st.lists(
        st.tuples(
            st.integers(1, 4),
            st.one_of(st.none(), st.floats(0, 1e12)),
            st.floats(0.1, 3.0),
        ),
        min_size=1,
        max_size=60,
    ),
    first=st.integers(0, 5),
    data=st.data(),
)
def test_running_sums_are_the_sums(
    rows: list[tuple[int, float | None, float]], first: int, data: st.DataObject
) -> None:
    """Sum and known time of any stretch still held equal the plain ones, across missed rows, gaps and wraps."""
    slots = 20
    sums = Sums((0,), slots, first)
    written: dict[int, tuple[float | None, float]] = {}
    row = first
    for step, value, cover_s in rows:
        sums.write(row, [math.nan if value is None else value], cover_s)
        written[row] = (value, cover_s)
        row += step
    low = data.draw(st.integers(max(0, sums.last - slots - 2), sums.last))
    high = data.draw(st.integers(low, sums.last + 2))
    found = sums.between(sums.places[0], low, high)
    if found is None:
        assert low - 1 < sums.last - slots + 2
        return
    known = [entry for at, entry in written.items() if low <= at <= high and entry[0] is not None]
    assert found[1] == pytest.approx(sum(cover_s for _, cover_s in known), abs=1e-6)
    scale = max([abs(value or 0.0) for value, _ in written.values()] + [1.0])
    assert found[0] == pytest.approx(sum((value or 0.0) * cover_s for value, cover_s in known), abs=1e-9 * scale)


@given(
    values=st.lists(st.one_of(st.none(), st.floats(0, 1000)), min_size=2, max_size=60),
    asked_at=st.integers(1, 59),
    ago=st.integers(0, 60),
)
def test_sums_that_begin_late_are_the_sums(values: list[float | None], asked_at: int, ago: int) -> None:
    """Sums taken up when they are first asked for say the same as the ring, or nothing."""
    timeline, ring, sums = Timeline(30), Ring(1, 30, 0), None
    for row, value in enumerate(values):
        timeline.write(row, float(row), 1.0)
        ring.write(row, [math.nan if value is None else value])
        if sums is not None:
            sums.write(row, [math.nan if value is None else value], 1.0)
        elif row == asked_at:
            sums = Sums.of(ring, [0], 20, timeline)
    if sums is None:
        sums = Sums.of(ring, [0], 20, timeline)
    last = len(values) - 1
    first = max(0, last - ago)
    found = sums.between(sums.places[0], first, last)
    if found is None:
        assert ago >= min(17, asked_at)
        return
    known = [value for value in values[first:] if value is not None]
    assert found == (pytest.approx(sum(known), rel=1e-6, abs=1e-3), len(known))


def test_means_are_kept_once_they_are_asked_for() -> None:
    """The first question is answered from the samples, the next ones from sums: the same, and no other field's."""
    history = History()
    means = []
    for second in range(40):
        gpu = builders.gpu(power_w=100.0 + second, temperature_c=50.0)
        window = history.append(builders.snapshot(builders.NOON + second, [gpu]))
        means.append(window.mean(gpu, "power_w", 5))
    assert means[10:] == [pytest.approx(100.0 + second - 2.0) for second in range(10, 40)]
    kept = window._store.series[builders.uuid(0)].sums
    assert kept is not None
    assert set(kept.places) == {history.gpu_fields["power_w"]}


def test_a_long_gap_is_not_filled_with_windows() -> None:
    """A reading without a ring after a year stands for no more than a few minutes of them."""
    history = History()
    history.append(builders.snapshot(builders.NOON, [builders.gpu(utilization_samples_pct=(1.0,) * 6)]))
    history.append(
        builders.snapshot(builders.NOON + 1, [builders.gpu(utilization_samples_pct=(1.0,) * 6)], interval_s=1.0)
    )
    window = history.append(builders.snapshot(builders.NOON + 4e7, [builders.gpu()], interval_s=4e7))
    assert len(window.samples(builders.uuid(0), 60.0)) <= 600


def test_leaps_over_years_leave_nothing_in_between() -> None:
    """Each sample stands for an hour at most, and what is skipped reads as a gap."""
    history, at_s = History(), 0.0
    for step_s in (0.0, 1.0, 8e7, 1.0, 8e7, 8e7, 8e7, 5e4):
        at_s += step_s
        snapshot = builders.snapshot(builders.NOON + at_s, [builders.gpu()], interval_s=step_s or None)
        window = history.append(snapshot)
    end_s = builders.NOON + at_s
    hours = window.bins(builders.uuid(0), "power_w", end_s=end_s, width_s=3600.0, count=20)
    known = [number for number, value in enumerate(hours) if value is not None]
    assert known[-1] == 19
    assert len(known) <= 4
    assert window.covered(1e9)[-1] == 3600.0


@given(covers=st.lists(st.floats(0.1, 3.0), min_size=1, max_size=40), data=st.data())
def test_what_rows_stand_for_together(covers: list[float], data: st.DataObject) -> None:
    """The time that any rows still held stand for is the sum of theirs, across the ring's end."""
    timeline = Timeline(20)
    for row, cover_s in enumerate(covers):
        timeline.write(row, float(row), cover_s)
    first = data.draw(st.integers(timeline.oldest(), timeline.last))
    last = data.draw(st.integers(first - 1, timeline.last))
    assert timeline.covered(first, last) == pytest.approx(sum(timeline.covers(first, last)), abs=1e-9)


def test_a_mean_by_weights_leaves_out_what_does_not_count() -> None:
    """Samples without a weight and gaps count for nothing; where nothing else is known there is no mean."""
    history = History()
    for second, (power_w, temperature_c) in enumerate([(100.0, None), (None, 50.0), (400.0, None), (300.0, None)]):
        gpu = builders.gpu(power_w=power_w, temperature_c=temperature_c)
        window = history.append(builders.snapshot(builders.NOON + second, [gpu]))
    assert window.mean_by(gpu, "power_w", 4.0, [1.0, 5.0, 0.0, 3.0]) == pytest.approx(250.0)
    assert window.mean_by(gpu, "temperature_c", 4.0, [1.0, 0.0, 1.0, 1.0]) is None
    assert window.mean_by(gpu, "power_w", 2.0, [2.0, 1.0], ago_s=1.0) == pytest.approx(400.0)


def test_means_of_ranks_are_kept_once_they_are_asked_for() -> None:
    """As those of a GPU, across steps that are longer than the interval."""
    history = History()
    means = []
    for second in range(40):
        rank = builders.rank(pid=7, step=second, step_s=None if second % 3 == 0 else 1.0 + second)
        window = history.append(builders.snapshot(builders.NOON + second, [builders.gpu()], ranks=(rank,)))
        means.append(window.mean(rank, "step_s", 6))
        values = [value for value in window.series(rank, "step_s", 6) if value is not None]
        assert means[-1] is None or means[-1] == pytest.approx(sum(values) / len(values))
    assert None not in means[10:]
    kept = window._store.series["rank:7"].sums
    assert kept is not None
    assert set(kept.places) == {history.rank_fields["step_s"]}


@given(
    values=st.lists(st.one_of(st.none(), st.sampled_from([5.0, 7.0])), min_size=1, max_size=30),
    seconds=st.integers(1, 40),
    idle=st.integers(0, 30),
)
def test_the_extent_is_that_of_the_samples(values: list[float | None], seconds: int, idle: int) -> None:
    """Least and greatest of a stretch, of what never changed as of what did, and nothing once it is long gone."""
    history, gpu = History(raw_slots=20), builders.gpu()
    for second in range(len(values) + idle):
        gpu = builders.gpu(power_w=values[min(second, len(values) - 1)])
        shown = [gpu] if second < len(values) else []
        window = history.append(builders.snapshot(builders.NOON + second, shown))
    known = [value for value in window.series(gpu, "power_w", seconds) if value is not None]
    assert window.extent(gpu, "power_w", seconds) == ((min(known), max(known)) if known else None)
