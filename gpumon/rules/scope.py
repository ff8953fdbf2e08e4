"""Knows which jobs a rule about speed may judge, which of their GPUs fare alike, and how to speak of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpumon import units
from gpumon.fields import PAUSED_FIELD
from gpumon.model import Gpu, Job, Process, Subject
from gpumon.signals import label
from gpumon.window import Window

PAUSED = "the job paused within the time looked at"
"""Why a rule abstains: what its alert said before the pause stands until there is a whole window after it."""
_PAUSED_PCT = 3.0
_ROLLS_OUT = re.compile(
    r"\b(ppo|grpo|dqn|a2c|a3c|sac|td3|impala|apex|rllib|gym|gymnasium|rollouts?|self.?play|actors?|rlhf|reinforce|atari"
    r"|mujoco|isaac)(\b|_)|(_|\b)(rl|env|envs)(\b|_)"
)


def trained_for(window: Window, seconds: float, *, kinds: tuple[str, ...] = ("training", "notebook")) -> Iterator[Job]:
    """Jobs of these kinds that have trained for so long and do now: starts and pauses are no trouble."""
    for job in window.jobs:
        trained = job.trained_since_s
        if job.kind not in kinds or job.phase != "train" or trained is None:
            continue
        if window.last.time_s - trained >= seconds - window.interval_s:
            yield job


def has_paused(window: Window, gpu: Gpu, seconds: float) -> bool:
    """Whether evaluation, a checkpoint or another pause takes part of the time looked at: its means then mix two."""
    return (window.mean(gpu, PAUSED_FIELD, seconds) or 0.0) >= _PAUSED_PCT


def gpus_of(window: Window, job: Job) -> list[Gpu]:
    """The GPUs of a job that answer."""
    return [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids and not gpu.is_lost]


def groups_of(affected: Sequence[Gpu], gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """One group where more than half of a job's GPUs are affected, else each of them alone."""
    if len(affected) * 2 > len(gpus):
        return [list(affected)]
    return [[gpu] for gpu in affected]


def is_in_step(job: Job, processes: Mapping[int, Process]) -> bool:
    """Its GPUs meet at every step: ranks of one world, or one process driving all of them."""
    trainers = [processes[pid] for pid in job.trainers if pid in processes]
    return len(trainers) <= 1 or all((trainer.world_size or 1) > 1 for trainer in trainers)


def subject_of(job: Job, group: Sequence[Gpu]) -> Subject:
    """A single GPU is itself the subject, several are their job."""
    if len(group) == 1:
        return Subject(kind="gpu", gpu=group[0].index, uuid=group[0].uuid, job=job.id)
    return Subject(kind="job", job=job.id)


def part_of(job: Job, group: Sequence[Gpu]) -> Subject:
    """The job, with the GPU in it that is meant where it is one: which one it is may change while the trouble stays."""
    if len(job.gpu_uuids) == 1 or len(group) > 1:
        return subject_of(job, group)
    return Subject(kind="job", gpu=group[0].index, uuid=group[0].uuid, job=job.id)


def names(group: Sequence[Gpu], gpus: Sequence[Gpu]) -> str:
    """``GPU 3``, ``GPUs 0–3``, ``GPUs 1, 5``, ``5 GPUs``."""
    if len(group) == 1:
        return f"GPU {label(group[0], gpus)}"
    numbers = [gpu.index for gpu in group]
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"GPUs {numbers[0]}–{numbers[-1]}"
    return f"GPUs {', '.join(map(str, numbers))}" if len(numbers) <= 3 else f"{len(numbers)} GPUs"


def rolls_out(job: Job, trainer: Process | None) -> bool:
    """Whether it learns by acting: the environments on the CPU are the job, not a loader that is late."""
    return _ROLLS_OUT.search(f"{job.name} {(trainer.command if trainer else None) or ''}".lower()) is not None


def headroom(gpu: Gpu) -> str | None:
    """Memory that a larger batch could use; None where it is unknown or little."""
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    free = gpu.memory_total_bytes - gpu.memory_used_bytes - (gpu.memory_reserved_bytes or 0)
    return f"{units.gib(free):.0f} GiB" if free >= 0.1 * gpu.memory_total_bytes else None
