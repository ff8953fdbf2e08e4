"""Jobs that are over: who left when, what is not an end, and how runs of one program follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.endings import CONFIRM_S, EndingFold
from gpumon.jobs import JobFold
from gpumon.model import Ending, Event, Host, Process, Rank
from tests import builders


class Run:
    """Jobs and endings, second by second."""

    def __init__(self) -> None:
        self.jobs = JobFold()
        self.fold = EndingFold()
        self.at = -1

    def step(
        self,
        processes: Sequence[Process],
        seconds: int = 1,
        events: Sequence[Event] = (),
        host: Host | None = None,
        ranks: Sequence[Rank] = (),
    ) -> tuple[Ending, ...]:
        """The endings after some seconds with the same processes."""
        endings: tuple[Ending, ...] = ()
        for _ in range(seconds):
            self.at += 1
            gpus = [builders.gpu(0), builders.gpu(1)]
            interval_s = 1.0 if self.at else None
            taken = builders.snapshot(builders.NOON + self.at, gpus, processes, events, interval_s, host, ranks)
            endings = self.fold.append(taken, self.jobs.append(taken))
        return endings


def test_a_job_is_over_when_all_its_trainers_are_missed_for_some_seconds() -> None:
    """The end is the moment at which the last was first missed; until it is confirmed that is said."""
    run = Run()
    assert not run.step([builders.process()], 10)
    (ending,) = run.step([])
    assert not ending.is_confirmed
    (ending,) = run.step([], int(CONFIRM_S))
    assert ending.is_confirmed
    assert ending.ended_s == builders.NOON + 10
    assert (ending.elapsed_s, ending.lived_s, ending.remaining) == (10.0, 7210.0, ())
    (later,) = run.step([], 100)
    assert later == ending


def test_an_exit_that_was_told_needs_no_confirmation() -> None:
    """An event, also with a code and words, ends it at once, even where the driver's list still has it."""
    run = Run()
    run.step([builders.process()], 10)
    told = Event(kind="process-exit", pid=4242, exit_code=1, text="RuntimeError: CUDA error")
    (ending,) = run.step([builders.process()], events=[told])
    assert ending.is_confirmed
    assert (ending.codes, ending.said) == ({4242: 1}, "RuntimeError: CUDA error")


def test_lists_that_fail_and_drivers_that_are_silent_end_nothing() -> None:
    """A list that misses everybody for a moment, or nobody being asked, is no end; who comes back never left."""
    run = Run()
    run.step([builders.process()], 10)
    run.step([], 4)
    assert not run.step([builders.process()])
    (ending,) = run.step([], 60, host=builders.host(driver_age_s=20.0))
    assert not ending.is_confirmed
    assert not run.step([builders.process()])
    run.step([], 20)
    assert not run.step([builders.process()]), "a list that failed for long has ended nothing either"


def test_zombies_have_ended() -> None:
    """A trainer that waits for its parent to notice is over."""
    run = Run()
    run.step([builders.process()], 10)
    (ending,) = run.step([builders.process(state="Z")], 10)
    assert ending.is_confirmed


def test_ranks_that_leave_one_after_the_other() -> None:
    """While some remain the job is not over; in the end it is known who went first, and how long before."""
    run = Run()
    ranks = [builders.process(10 + rank, (rank,), rank=rank, world_size=2, ppid=7) for rank in (0, 1)]
    run.step(ranks, 10)
    (ending,) = run.step(ranks[:1], 20)
    assert (ending.remaining, ending.ranks) == ((10,), {10: 0, 11: 1})
    assert list(ending.exits) == [11]
    (ending,) = run.step([], 10)
    assert ending.remaining == ()
    assert ending.exits == {11: 20.0, 10: 0.0}
    assert ending.job.gpu_uuids == (builders.uuid(0), builders.uuid(1)), "as it was while it was whole"


def test_a_probe_says_farewell_at_the_end() -> None:
    """Who goes without it went abruptly, unless its probe had been silent before; the last word may come late."""
    reports, farewell = [builders.rank()], [builders.rank(phase="end")]
    ends: list[tuple[bool, bool]] = []
    for before_s, after in ((0, []), (60, []), (0, farewell)):
        run = Run()
        run.step([builders.process()], 10, ranks=reports)
        run.step([builders.process()], before_s)
        run.step([], ranks=after)
        (ending,) = run.step([], 10)
        ends.append((ending.is_abrupt, ending.is_finished))
    assert ends == [(True, False), (False, False), (False, True)]


def test_what_was_written_last() -> None:
    """The bytes of the last two minutes; None where nobody may read them."""
    run = Run()
    run.step([builders.process(write_bytes_per_s=1e6)], 300)
    (ending,) = run.step([], 10)
    assert ending.written_bytes is not None
    assert 118e6 <= ending.written_bytes <= 122e6
    hidden = Run()
    hidden.step([builders.process()], 10)
    (ending,) = hidden.step([], 10)
    assert ending.written_bytes is None


def test_restarts_are_told_from_runs_beside() -> None:
    """The same program within a minute is a restart, under its own number or the launcher's; attempts are counted."""
    run = Run()
    run.step([builders.process(10, started_s=builders.NOON, write_bytes_per_s=0.0)], 60)
    run.step([], 10)
    second = builders.process(11, started_s=builders.NOON + 70, write_bytes_per_s=0.0)
    (first,) = run.step([second], 60)
    assert first.is_restarted
    assert (first.attempt, first.short_attempts) == (1, 1)
    *_, last = run.step([], 10)
    assert (last.attempt, last.short_attempts, last.is_restarted) == (2, 2, False)


def test_a_launcher_that_starts_all_ranks_anew() -> None:
    """New processes under the job's old name are another run of it."""
    run = Run()
    run.step([builders.process(10, job_id="991")], 20)
    (ending,) = run.step([builders.process(20, job_id="991")], 5)
    assert ending.is_restarted
    assert list(ending.exits) == [10]


def test_only_the_last_hour_is_kept() -> None:
    """Endings do not pile up."""
    run = Run()
    run.step([builders.process()], 5)
    assert run.step([], 10)
    assert not run.step([], 3700)
