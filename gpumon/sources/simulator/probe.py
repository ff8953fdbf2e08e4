"""What the probe inside each simulated training process reports."""

from __future__ import annotations

from typing import Literal

from gpumon.model import Rank as Report
from gpumon.sources.simulator.job import Job
from gpumon.sources.simulator.rank import Rank, Step

MOST_SAMPLES = 90
Phase = Literal["init", "train", "eval", "checkpoint", "end"]


def reports(job: Job, now_s: float, interval_s: float | None) -> tuple[Report, ...]:
    """One report per rank at ``now_s``, over the interval since the last one; each interval is asked for once."""
    if job.spec.role != "trainer" or job.spec.is_idle:
        return ()
    if job.state == "absent":
        return _farewell(job)
    paused_s = job.paused_s(now_s - (interval_s or 0.0), now_s)
    return tuple(_report(job, rank, now_s, interval_s, paused_s) for rank in job.ranks if not rank.is_gone)


def _farewell(job: Job) -> tuple[Report, ...]:
    """The last word of a process that ends by itself; one that is killed has none."""
    if not job.farewell:
        return ()
    job.farewell = False
    count = len(job.ranks)
    return tuple(
        Report(pid=one.pid, rank=one.number, world_size=count, gpu_uuid=one.slice.uuid, phase="end")
        for one in job.ranks
    )


def _report(job: Job, rank: Rank, now_s: float, interval_s: float | None, paused_s: float) -> Report:
    spec, count = job.spec, len(job.ranks)
    done = rank.steps_until(now_s)
    steps = [step for step in done if step.is_training]
    is_young = job.state == "loading"
    pulse_s = max(rank.pulse_s, job.started_s, job.checkpoint_begun_s(now_s))
    asked, got = rank.asked
    memory = {} if is_young else job.allocator.statistics(rank.memory_offset)
    return Report(
        pid=rank.pid,
        rank=rank.number,
        local_rank=rank.number,
        world_size=count,
        gpu_uuid=rank.slice.uuid,
        framework=spec.framework,
        phase=_phase(job, done, now_s, is_young=is_young),
        step=0 if is_young else job.first_step + rank.steps,
        waiting_s=round(now_s - asked, 3) if asked < now_s < got else None,
        heartbeat_age_s=round(now_s - pulse_s, 3),
        allocator=None if is_young else "native",
        **memory,  # type: ignore[arg-type]
        **(_times(job, steps, paused_s) if interval_s is not None and not is_young else {}),  # type: ignore[arg-type]
    )


def _times(job: Job, steps: list[Step], paused_s: float) -> dict[str, object]:
    if not steps:
        return {"pause_s": paused_s}
    count = len(steps)
    mean_s = sum(step.step_s for step in steps) / count
    few = steps[:MOST_SAMPLES]
    return {
        "step_s": round(mean_s, 6),
        "data_wait_s": round(sum(step.wait_s for step in steps) / count, 6),
        "forward_s": round(sum(step.forward_s for step in steps) / count, 6),
        "h2d_s": round(sum(step.copy_s for step in steps) / count, 6),
        "samples_per_s": round(job.batch / mean_s, 2),
        "step_samples_s": tuple(round(step.step_s, 6) for step in few),
        "data_wait_samples_s": tuple(round(step.wait_s, 6) for step in few),
        "pause_s": paused_s,
        "loss_is_nan": False,
    }


def _phase(job: Job, done: list[Step], now_s: float, *, is_young: bool) -> Phase:
    if is_young:
        return "init"
    if job.is_writing(now_s):
        return "checkpoint"
    is_eval = not done[-1].is_training if done else job.is_evaluating(now_s)
    return "eval" if is_eval else "train"
