"""Whether a job gets on: what is usual for its GPUs, how long it has stood still, how long its pauses were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.jobs import JobFold
from gpumon.model import Rank
from gpumon.progress import ProgressFold, looks, patience_s
from tests import builders

TRAINED = {"power_train_w": 640.0, "pcie_train_bytes_per_s": 200e6, "power_idle_w": 70.0}
SPINS = {"utilization_pct": 100.0, "power_w": 190.0}
IDLES = {"utilization_pct": 0.0, "power_w": 120.0}


class Progress:
    """Jobs and progress folded together over seconds; two ranks on two GPUs."""

    def __init__(self) -> None:
        self.jobs = JobFold()
        self.fold = ProgressFold()
        self.at = 0.0

    def run(
        self,
        seconds: int,
        *gpus: dict[str, Any],
        ranks: Iterable[Rank] = (),
        interval_s: float = 1.0,
        **fields: Any,
    ) -> dict[str, float]:
        """What was learned of the job after some seconds of the same."""
        known = gpus or ({}, {})
        processes = [
            builders.process(10 + number, (number,), ppid=5, rank=number, world_size=len(known), **fields)
            for number in range(len(known))
        ]
        for _ in range(round(seconds / interval_s)):
            taken = builders.snapshot(
                builders.NOON + self.at,
                [builders.gpu(number, **gpu) for number, gpu in enumerate(known)],
                processes,
                interval_s=interval_s,
                ranks=ranks,
            )
            jobs = self.jobs.append(taken, self.fold.still())
            self.fold.append(taken, jobs, {})
            self.at += interval_s
        self.phase = jobs[0].phase
        return self.fold.baselines()[jobs[0].id]

    def power_w(self) -> float | None:
        return self.fold.baselines()[builders.uuid(0)].get("power_train_w")


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({"utilization_pct": 98.0, "power_w": 640.0}, "works"),
        ({"utilization_pct": 100.0, "power_w": 190.0}, "spins"),
        ({"utilization_pct": 100.0, "power_w": 190.0, "pcie_rx_bytes_per_s": 150e6}, "works"),
        ({"utilization_pct": 100.0, "power_w": 190.0, "pcie_rx_bytes_per_s": 1e6}, "spins"),
        ({"utilization_pct": 100.0, "power_w": 190.0, "tensor_active_pct": 30.0}, "works"),
        ({"utilization_pct": 60.0, "power_w": 190.0}, "works"),
        ({"utilization_pct": 2.0, "power_w": 120.0}, "idles"),
        ({"utilization_pct": 100.0, "power_w": None}, None),
        ({"utilization_pct": None}, None),
        ({"is_lost": True}, "idles"),
    ],
    ids=str,
)
def test_a_waiting_kernel_is_told_from_work(gpu: dict[str, Any], expected: str | None) -> None:
    """Busy at little power, without copies and tensor work, is waiting; missing power is no verdict."""
    assert looks(builders.gpu(**gpu), TRAINED) == expected


def test_usual_power_is_learned_while_training() -> None:
    """A minute of training is enough; what looks like a hang does not soon become the usual thing."""
    progress = Progress()
    progress.run(30)
    assert progress.power_w() is None
    progress.run(60)
    assert progress.power_w() == pytest.approx(640.0)
    progress.run(300, SPINS, IDLES)
    assert progress.power_w() == pytest.approx(640.0)


def test_nothing_is_usual_where_two_jobs_share_a_gpu() -> None:
    """Whose power it is cannot be told; once one of them has gone, it can."""
    jobs, fold = JobFold(), ProgressFold()

    def power_w(at: int, *names: str) -> float | None:
        held = [builders.process(10 + number, job_id=name) for number, name in enumerate(names)]
        for second in range(90):
            taken = builders.snapshot(builders.NOON + at + second, processes=held)
            fold.append(taken, jobs.append(taken), {})
        return fold.baselines()[builders.uuid(0)].get("power_train_w") if builders.uuid(0) in fold.baselines() else None

    assert power_w(0, "a") == 640.0
    assert power_w(90, "a", "b") is None
    assert power_w(180, "a") == 640.0


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 2.0])
def test_standing_still_is_timed(interval_s: float) -> None:
    """One rank idle and one spinning: the seconds count, whatever the interval, until the job goes on."""
    progress = Progress()
    progress.run(100, interval_s=interval_s)
    assert progress.run(40, SPINS, IDLES, interval_s=interval_s)["quiet_s"] == pytest.approx(40, abs=interval_s)
    assert progress.fold.waiting() == {builders.uuid(0)}
    known = progress.run(10, interval_s=interval_s)
    assert known["quiet_s"] == 0
    assert known["longest_pause_s"] == pytest.approx(42, abs=3)
    assert progress.fold.waiting() == frozenset()


def test_an_odd_reading_ends_nothing() -> None:
    """A single sample of full power within a stretch without progress is passed over."""
    progress = Progress()
    progress.run(100)
    progress.run(30, SPINS, IDLES)
    progress.run(1)
    assert progress.run(30, SPINS, IDLES)["quiet_s"] == pytest.approx(61)


def test_writing_is_a_sign_of_life() -> None:
    """Rank 0 writes a checkpoint while the other one waits."""
    progress = Progress()
    progress.run(100)
    known = progress.run(90, SPINS, IDLES, write_bytes_per_s=300e6)
    assert known["quiet_s"] == 0


def test_without_power_nothing_is_known() -> None:
    """A GPU that may be spinning or working: no count, rather than a wrong one."""
    progress = Progress()
    progress.run(100)
    assert "quiet_s" not in progress.run(5, {"utilization_pct": 100.0, "power_w": None}, IDLES)


def test_heartbeats_are_believed() -> None:
    """With a probe the youngest heartbeat counts, whatever the GPUs look like; its drop ends a pause."""
    progress = Progress()
    beating = [builders.rank(10), builders.rank(11)]
    progress.run(100, ranks=beating)
    still = [builders.rank(10, heartbeat_age_s=33.0), builders.rank(11, heartbeat_age_s=35.0)]
    assert progress.run(1, ranks=still)["quiet_s"] == 33.0
    known = progress.run(1, ranks=beating)
    assert (known["quiet_s"], known["longest_pause_s"]) == (0.2, 33.0)
    assert known["step_p99_s"] == 0.5


def test_a_change_of_phase_is_a_sign_of_life() -> None:
    """A checkpoint of 130 s that is over was a pause, though the first step after it has not ended."""
    progress = Progress()
    progress.run(100, ranks=[builders.rank(10)])
    progress.run(1, ranks=[builders.rank(10, phase="checkpoint", heartbeat_age_s=1.2)])
    progress.run(129, ranks=[builders.rank(10, phase="checkpoint", heartbeat_age_s=130.2)])
    known = progress.run(3, ranks=[builders.rank(10, phase="train", heartbeat_age_s=133.0)])
    assert known["quiet_s"] == pytest.approx(2, abs=1)
    assert known["longest_pause_s"] == pytest.approx(130, abs=3)


@pytest.mark.parametrize("has_probe", [True, False])
def test_what_a_debugger_lets_go_lives(has_probe: bool) -> None:
    """After 90 s at a breakpoint the first step is yet to come: the time before it is no standstill."""

    def beats(age_s: float) -> list[Rank]:
        return [builders.rank(10, heartbeat_age_s=age_s)] if has_probe else []

    progress = Progress()
    progress.run(100, ranks=beats(0.2))
    held = progress.run(90, IDLES, IDLES, ranks=beats(90.0), state="t")
    assert held["quiet_s"] == pytest.approx(90, abs=1)
    assert progress.run(2, SPINS, IDLES, ranks=beats(92.0))["quiet_s"] <= 2
    assert progress.run(60, SPINS, IDLES, ranks=beats(152.0))["quiet_s"] == pytest.approx(61, abs=2)


def test_a_job_stalls_once_no_pause_explains_it() -> None:
    """After 60 s without progress, and after three times the longest pause where one was seen."""
    progress = Progress()
    progress.run(100)
    progress.run(58, SPINS, IDLES)
    assert progress.phase == "train"
    progress.run(5, SPINS, IDLES)
    assert progress.phase == "stall"
    progress.run(20)
    assert progress.phase == "train"
    progress.run(120, SPINS, IDLES)
    assert progress.phase == "train"


def test_patience_grows_with_pauses_and_steps() -> None:
    """A minute at least, three times the longest pause, ten of the slowest steps."""
    assert patience_s(0.0, 0.0) == 60
    assert patience_s(40.0, 0.5) == 120
    assert patience_s(5.0, 20.0) == 200


def test_a_job_that_is_gone_is_forgotten() -> None:
    """A minute later nothing of it is kept."""
    progress = Progress()
    progress.run(100)
    for number in range(70):
        taken = builders.snapshot(builders.NOON + 100 + number, [], [])
        progress.fold.append(taken, progress.jobs.append(taken), {})
    assert not any("quiet_s" in known for known in progress.fold.baselines().values())
