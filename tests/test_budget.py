"""The time budget: five shares of 100, decided from each sample, coloured from where the trouble starts."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.budget import BudgetFold
from gpumon.jobs import JobFold
from gpumon.model import Gpu, Process, Snapshot
from tests import builders

SHARES = ("useful", "data", "throttled", "peer", "idle")


class Budget:
    """Jobs and budget folded together over seconds."""

    def __init__(self) -> None:
        self.jobs = JobFold()
        self.fold = BudgetFold()
        self.at = 0

    def run(
        self, seconds: int, gpus: list[Gpu], processes: list[Process], **fields: Any
    ) -> list[dict[str, float | None]]:
        """Shares of every GPU after some seconds of the same."""
        for _ in range(seconds):
            taken: Snapshot = builders.snapshot(builders.NOON + self.at, gpus, processes, **fields)
            found = self.fold.append(taken, self.jobs.append(taken))
            self.at += 1
        return [{name: found[gpu.uuid][f"budget.{name}_pct"] for name in SHARES} for gpu in gpus]


def ranks(count: int, **fields: Any) -> list[Process]:
    return [
        builders.process(10 + rank, (rank,), ppid=5, rank=rank, world_size=count, **fields) for rank in range(count)
    ]


def test_a_busy_gpu_is_useful() -> None:
    """98 % busy is 98 useful and 2 idle."""
    (shares,) = Budget().run(5, [builders.gpu()], [builders.process()])
    assert shares == {"useful": 98, "data": 0, "throttled": 0, "peer": 0, "idle": pytest.approx(2)}


def test_waiting_starts_with_the_first_starved_sample() -> None:
    """No rule has fired yet and the share is already data."""
    budget = Budget()
    processes = [builders.process(main_thread_cpu_pct=40.0), *(builders.worker(20 + n, cpu_pct=99.0) for n in range(4))]
    budget.run(5, [builders.gpu()], processes)
    (shares,) = budget.run(1, [builders.gpu(utilization_pct=56.0)], processes)
    assert (shares["useful"], shares["data"], shares["idle"]) == (56, 44, 0)


def test_the_drivers_ring_is_the_busy_share() -> None:
    """One poll says 0, the ring says half."""
    gpu = builders.gpu(utilization_pct=0.0, utilization_samples_pct=(100.0, 0.0, 100.0, 0.0, 100.0, 0.0))
    (shares,) = Budget().run(1, [gpu], [builders.process()])
    assert shares["useful"] == 50


def test_an_idle_gpu_with_an_idle_loader_idles() -> None:
    """Nothing says that it waits for data."""
    (shares,) = Budget().run(3, [builders.gpu(utilization_pct=0.0)], [builders.process(), builders.worker(20)])
    assert (shares["idle"], shares["data"]) == (100, 0)


def test_the_clock_lost_to_heat_is_throttled() -> None:
    """A third of the cool clock is lost, so a third of the busy time."""
    budget = Budget()
    budget.run(60, [builders.gpu()], [builders.process()])
    hot = builders.gpu(utilization_pct=99.0, sm_clock_mhz=1170.0, throttled_pct={"sw_thermal": 96.0})
    (shares,) = budget.run(1, [hot], [builders.process()])
    assert shares["throttled"] == pytest.approx(33, abs=0.5)
    assert shares["useful"] == pytest.approx(66, abs=0.5)
    assert budget.fold.baselines()[builders.uuid(0)]["sm_clock_cool_mhz"] == pytest.approx(1755, abs=1)


def test_the_power_cap_is_no_loss() -> None:
    """A lower clock under the software power cap is normal."""
    budget = Budget()
    budget.run(60, [builders.gpu()], [builders.process()])
    (shares,) = budget.run(1, [builders.gpu(sm_clock_mhz=1400.0)], [builders.process()])
    assert shares["throttled"] == 0


def test_the_cool_clock_is_not_learned_while_hot() -> None:
    """Ten minutes at the limit leave the cool clock as it was."""
    budget = Budget()
    budget.run(60, [builders.gpu()], [builders.process()])
    hot = builders.gpu(sm_clock_mhz=1170.0, throttled_pct={"sw_thermal": 96.0})
    budget.run(600, [hot], [builders.process()])
    assert budget.fold.baselines()[builders.uuid(0)]["sm_clock_cool_mhz"] == pytest.approx(1755, abs=1)


def test_peers_lose_what_the_slowest_loses() -> None:
    """Its siblings spin at 100 % and wait for it; nobody else is blamed."""
    budget = Budget()
    budget.run(60, [builders.gpu(index) for index in range(4)], ranks(4))
    gpus = [builders.gpu(index, utilization_pct=100.0) for index in range(4)]
    gpus[2] = builders.gpu(2, utilization_pct=100.0, sm_clock_mhz=1170.0, throttled_pct={"sw_thermal": 96.0})
    shares = budget.run(30, gpus, ranks(4))
    assert shares[2]["peer"] == 0
    assert shares[2]["throttled"] == pytest.approx(33, abs=1)
    for victim in (0, 1, 3):
        assert shares[victim]["peer"] == pytest.approx(33, abs=1)
        assert shares[victim]["useful"] == pytest.approx(67, abs=1)


def test_independent_runs_do_not_wait_for_each_other() -> None:
    """Two single jobs: one starved, the other one useful."""
    starved = [builders.process(10, (0,)), *(builders.worker(20 + n, 10, cpu_pct=99.0) for n in range(4))]
    gpus = [builders.gpu(0, utilization_pct=50.0), builders.gpu(1)]
    shares = Budget().run(20, gpus, [*starved, builders.process(11, (1,))])
    assert shares[0]["data"] == 50
    assert shares[1]["peer"] == 0


def test_the_shares_are_unknown_where_use_is() -> None:
    """No utilization, a lost GPU, an old value: None five times, not 0."""
    gpus = [
        builders.gpu(0, utilization_pct=None),
        builders.gpu(1, is_lost=True),
        builders.gpu(2, age_s=9.0),
    ]
    for shares in Budget().run(2, gpus, []):
        assert set(shares.values()) == {None}


def test_ranks_wait_for_a_lost_gpu() -> None:
    """What spins beside a lost rank does nothing useful."""
    budget = Budget()
    gpus = [builders.gpu(0, utilization_pct=100.0), builders.gpu(1, is_lost=True)]
    shares = budget.run(20, gpus, ranks(2))
    assert shares[0]["peer"] == pytest.approx(100, abs=1)


def test_shares_add_up() -> None:
    """Always to 100."""
    budget = Budget()
    gpus = [builders.gpu(index, utilization_pct=30.0 + 20 * index) for index in range(4)]
    workers = [builders.worker(100 + 10 * rank, 10 + rank, cpu_pct=95.0) for rank in range(4)]
    for shares in budget.run(20, gpus, [*ranks(4), *workers]):
        assert sum(value or 0.0 for value in shares.values()) == pytest.approx(100)


def test_idle_power_is_learned() -> None:
    """From a GPU without a job."""
    budget = Budget()
    budget.run(60, [builders.gpu(utilization_pct=0.0, power_w=71.0)], [])
    assert budget.fold.baselines()[builders.uuid(0)]["power_idle_w"] == pytest.approx(71.0)


def test_a_measured_wait_is_believed() -> None:
    """With a probe the share is what it measures, though the loader looks idle; the rest of the gap is idle time."""
    budget = Budget()
    rank = builders.rank(step_s=1.0, data_wait_s=0.3)
    (shares,) = budget.run(5, [builders.gpu(utilization_pct=60.0)], [builders.process()], ranks=[rank])
    assert (shares["useful"], shares["data"], shares["idle"]) == (60, 30, 10)


def test_a_measured_wait_is_no_more_than_the_gap() -> None:
    """What the GPU still works off while the loader is late is not lost."""
    rank = builders.rank(step_s=1.0, data_wait_s=0.3)
    (shares,) = Budget().run(5, [builders.gpu(utilization_pct=95.0)], [builders.process()], ranks=[rank])
    assert (shares["useful"], shares["data"]) == (95, 5)


def test_a_step_longer_than_the_interval_keeps_its_share() -> None:
    """Between two reports the last one holds; a wait that goes on is all waiting."""
    budget = Budget()
    gpus, processes = [builders.gpu(utilization_pct=50.0)], [builders.process()]
    budget.run(1, gpus, processes, ranks=[builders.rank(step_s=4.0, data_wait_s=1.0)])
    silent = builders.rank(step_s=None, data_wait_s=None)
    (shares,) = budget.run(3, gpus, processes, ranks=[silent])
    assert (shares["data"], shares["idle"]) == (25, 25)
    waiting = builders.rank(step_s=None, data_wait_s=None, waiting_s=6.0)
    (shares,) = budget.run(1, gpus, processes, ranks=[waiting])
    assert (shares["data"], shares["idle"]) == (50, 0)


def test_healthy_workers_at_full_cpu_do_not_starve_a_measured_job() -> None:
    """The probe says that hardly any time is waited for data: the gap is something else."""
    processes = [builders.process(), *(builders.worker(20 + n, cpu_pct=99.0) for n in range(4))]
    (shares,) = Budget().run(5, [builders.gpu(utilization_pct=60.0)], processes, ranks=[builders.rank()])
    assert shares["data"] == pytest.approx(1)
    assert shares["idle"] == pytest.approx(39)


def test_what_spins_is_not_useful() -> None:
    """GPUs that are busy with waiting for a peer have a peer's share."""
    taken = builders.snapshot(gpus=[builders.gpu(utilization_pct=100.0)])
    fold = BudgetFold()
    found = fold.append(taken, JobFold().append(taken), waiting={builders.uuid(0)})[builders.uuid(0)]
    assert (found["budget.peer_pct"], found["budget.useful_pct"]) == (100, 0)
