"""Processes become jobs with kind and phase; ages count from the processes' own start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.jobs import JobFold
from gpumon.model import Gpu, Job, Process
from tests import builders

YOUNG = builders.NOON - 5.0


def jobs_of(processes: Iterable[Process], gpus: int = 8) -> tuple[Job, ...]:
    """Jobs of one instant."""
    return JobFold().append(builders.snapshot(gpus=[builders.gpu(index) for index in range(gpus)], processes=processes))


def phases(steps: Iterable[tuple[int, dict[str, Any], dict[str, Any]]], processes: Any = None) -> list[str]:
    """Phase at the end of each step: seconds, GPU fields, process fields."""
    fold, at, found = JobFold(), 0, []
    for seconds, gpu, process in steps:
        for _ in range(seconds):
            taken = builders.snapshot(
                builders.NOON + at, [builders.gpu(**gpu)], [builders.process(**process), *(processes or [])]
            )
            jobs = fold.append(taken)
            at += 1
        found.append(jobs[0].phase)
    return found


def test_ranks_of_one_launcher_are_one_job() -> None:
    """Eight processes with a world and one parent train together, in rank order."""
    ranks = [builders.process(107 - rank, (rank,), ppid=50, rank=rank, world_size=8) for rank in range(8)]
    (job,) = jobs_of(ranks)
    assert job.trainers == tuple(107 - rank for rank in range(8))
    assert job.gpu_uuids == tuple(builders.uuid(index) for index in range(8))
    assert job.kind == "training"


def test_two_runs_from_one_shell_are_two_jobs() -> None:
    """A common parent alone does not make a job."""
    found = jobs_of([builders.process(10, (0,), ppid=5), builders.process(11, (1,), ppid=5)])
    assert [job.trainers for job in found] == [(10,), (11,)]


def test_the_schedulers_id_joins_what_it_started() -> None:
    """A Slurm or torchrun id is the job's identity."""
    found = jobs_of([builders.process(10, (0,), job_id="slurm-77"), builders.process(11, (1,), job_id="slurm-77")])
    assert [job.id for job in found] == ["slurm-77"]


def test_children_on_the_gpu_belong_to_their_parent() -> None:
    """Ranks spawned by a process that holds a GPU itself are one job with it."""
    found = jobs_of([builders.process(10, (0,)), builders.process(11, (1,), ppid=10)])
    assert [job.trainers for job in found] == [(10, 11)]


def test_helpers_are_the_descendants() -> None:
    """Workers and their children belong to the trainer above them."""
    processes = [
        builders.process(10, (0,)),
        builders.worker(20, 10),
        builders.worker(21, 20),
        builders.worker(30, 99),
    ]
    (job,) = jobs_of(processes)
    assert job.helpers == {10: (20, 21)}


@pytest.mark.parametrize(
    ("fields", "kind", "name"),
    [
        ({"command": "python /home/ana/train.py --lr 1"}, "training", "train.py"),
        ({"command": "python -m vllm.entrypoints.api_server", "role": None}, "serving", "vllm.entrypoints.api_server"),
        ({"command": "torchrun -m torch.distributed.run pretrain.py"}, "training", "pretrain.py"),
        ({"command": "python -m ipykernel_launcher -f x", "role": "notebook"}, "notebook", "ipykernel_launcher"),
        ({"command": "/usr/lib/xorg/Xorg", "role": "other", "framework": None, "name": "Xorg"}, "unknown", "Xorg"),
    ],
)
def test_kind_and_name(fields: dict[str, Any], kind: str, name: str) -> None:
    """Kind by role and command, name by the script."""
    (job,) = jobs_of([builders.process(**fields)])
    assert (job.kind, job.name) == (kind, name)


def test_an_old_process_trains_at_once() -> None:
    """Ages count from the process's start: one that has run for two hours is not starting."""
    assert phases([(2, {}, {})]) == ["train"]


def test_a_young_process_starts_for_two_minutes() -> None:
    """Then it trains, if it was busy for a minute."""
    young = {"started_s": YOUNG}
    assert phases([(100, {}, young), (20, {}, young)]) == ["start", "train"]
    assert phases([(110, {"utilization_pct": 0.0}, young), (30, {}, young), (40, {}, young)]) == [
        "start",
        "start",
        "train",
    ]


def test_compiling_extends_the_start() -> None:
    """As long as compile children compute, it starts; never longer than twenty minutes."""
    compiling = [builders.worker(7, role="compile", cpu_pct=100.0)]
    young = {"started_s": YOUNG}
    assert phases([(600, {}, young), (600, {}, young)], compiling) == ["start", "train"]


def test_an_idle_gap_is_a_pause_then_a_stall() -> None:
    """A short gap pauses; one that lasts much longer than any before is a stall; work ends it."""
    found = phases([(30, {}, {}), (60, {"utilization_pct": 0.0}, {}), (120, {"utilization_pct": 0.0}, {}), (5, {}, {})])
    assert found == ["train", "pause", "stall", "train"]


def test_a_gap_with_a_working_loader_is_training() -> None:
    """A GPU that waits for a loader at full CPU does not pause."""
    workers = [builders.worker(7, cpu_pct=99.0)]
    assert phases([(30, {}, {}), (30, {"utilization_pct": 0.0}, {})], workers) == ["train", "train"]


def test_a_write_burst_is_a_checkpoint() -> None:
    """Writing 400 MB/s while the GPU idles is a pause."""
    assert phases([(30, {}, {}), (2, {"utilization_pct": 5.0}, {"write_bytes_per_s": 4e8})]) == ["train", "pause"]


def test_a_dead_process_ends_the_job() -> None:
    """A zombie trains no more."""
    assert phases([(5, {}, {}), (1, {}, {"state": "Z"})]) == ["train", "end"]


def test_the_first_ten_minutes_are_the_first_epoch() -> None:
    """By the age of the process."""
    (job,) = jobs_of([builders.process(started_s=builders.NOON - 300)])
    assert job.is_first_epoch
    (job,) = jobs_of([builders.process(started_s=builders.NOON - 700)])
    assert not job.is_first_epoch


def test_unknown_utilization_still_trains() -> None:
    """A MIG instance without GPM reports no use; its job is not stuck in its start."""
    gpu = Gpu(uuid=builders.uuid(0), index=0)
    (job,) = JobFold().append(builders.snapshot(gpus=[gpu]))
    assert job.phase == "train"


def test_a_process_list_that_fails_once_loses_nothing() -> None:
    """The job goes on in its phase, with its past."""
    fold = JobFold()
    for second in range(5):
        (job,) = fold.append(builders.snapshot(builders.NOON + second))
    fold.append(builders.snapshot(builders.NOON + 5, processes=[]))
    (again,) = fold.append(builders.snapshot(builders.NOON + 6))
    assert again.trained_since_s == job.trained_since_s == builders.NOON


def phase_with(fold: JobFold, at: int, seconds: int, gpu: dict[str, Any], rank: dict[str, Any], **fields: Any) -> str:
    """Phase after some seconds in which a probe reports."""
    for second in range(at, at + seconds):
        taken = builders.snapshot(
            builders.NOON + second, [builders.gpu(**gpu)], [builders.process(**fields)], ranks=[builders.rank(**rank)]
        )
        (job,) = fold.append(taken)
    return job.phase


def test_a_probe_says_when_training_begins() -> None:
    """Steps for a minute end the start, before two minutes have passed; loading does not, however busy the GPU."""
    fold = JobFold()
    assert phase_with(fold, 0, 30, {}, {"phase": "init", "heartbeat_age_s": None}, started_s=YOUNG) == "start"
    assert phase_with(fold, 30, 50, {}, {}, started_s=YOUNG) == "start"
    assert phase_with(fold, 80, 15, {}, {}, started_s=YOUNG) == "train"


@pytest.mark.parametrize(("told", "phase"), [("eval", "pause"), ("checkpoint", "pause"), ("end", "end")])
def test_a_probe_says_what_a_pause_is(told: str, phase: str) -> None:
    """Its own word counts, whatever the GPU looks like."""
    fold = JobFold()
    assert phase_with(fold, 0, 5, {}, {}) == "train"
    assert phase_with(fold, 5, 1, {}, {"phase": told}) == phase


def test_steps_are_training_even_on_a_quiet_gpu() -> None:
    """A GPU that hardly works between steps that still come is starved, not paused."""
    fold = JobFold()
    phase_with(fold, 0, 5, {}, {})
    assert phase_with(fold, 5, 30, {"utilization_pct": 4.0}, {"step_s": 2.0}) == "train"


def test_a_loop_that_pauses_without_a_word_is_seen_by_its_gpu() -> None:
    """No step for long and an idle GPU: a pause, though the probe still says that it trains."""
    fold = JobFold()
    phase_with(fold, 0, 5, {}, {})
    assert phase_with(fold, 5, 20, {"utilization_pct": 0.0}, {"heartbeat_age_s": 15.0}) == "pause"


def test_a_table_that_stands_leads_to_the_same_jobs() -> None:
    """Sources hand out one table of processes for seconds: phases go on, and a card that moves takes its job along."""

    def run(*, is_kept: bool) -> list[tuple[Job, ...]]:
        fold, found = JobFold(), []
        young = [builders.process(10, (1,), started_s=YOUNG), builders.worker(20, 10)]
        table = (*young, builders.process(11, (0,)), builders.process(12, (2,), job_id="slurm-7", ppid=None))
        for at in range(400):
            busy = 0.0 if 150 <= at < 170 or at >= 250 else 97.0
            gpus = [builders.gpu(index, utilization_pct=busy) for index in (range(3) if at < 300 else (2, 1, 0))]
            taken = builders.snapshot(builders.NOON + at, gpus, table if is_kept else list(table))
            assert (taken.processes is table) == is_kept
            found.append(fold.append(taken))
        return found

    kept = run(is_kept=True)
    assert kept == run(is_kept=False)
    assert {job.phase for jobs in kept for job in jobs} == {"start", "train", "pause", "stall"}
    assert [job.gpu_uuids for job in kept[-1]] == [(builders.uuid(index),) for index in (2, 1, 0)]
