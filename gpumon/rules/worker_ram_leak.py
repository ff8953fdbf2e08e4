"""Knows ``worker-ram-leak``: the memory of loader workers grows while the trainer's own does not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from gpumon import units
from gpumon.model import Abstention, Evidence, Finding, Job, Process, Subject
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.trend import points_of
from gpumon.signals import workers_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much growth counts."""

    window_s: float = 600.0
    """The seconds looked at; memory is counted once a minute."""
    grown_gib: float = 1.0
    """Growth of trainer and workers together over that time."""
    own_pct: float = 20.0
    """At most this share of it may be the trainer's own memory."""


_BLOCKS = 4
_LOST_SHARE = 0.1
"""So much of what leaks at least is missing in the machine; somebody else may have given back the rest."""


@rule("worker-ram-leak", limits=Limits, every_s=30.0, clear_s=120.0)
def worker_ram_leak(window: Window, limits: Limits) -> Conclusions:
    """The loader's workers copy the dataset page by page: host memory grows through the whole epoch.

    What it sees:
        The proportional memory (PSS) of trainer and workers together grew by 1 GiB in ten minutes, in each quarter of
        them, while the trainer's private memory stayed flat. It is counted once a minute, and only while the machine's
        available memory falls.

    Why it matters:
        Reading a Python object changes its reference count, so each worker gets its own copy of every list and
        dictionary it touches. The sum ends in ram-pressure, hours into the run.

    What to do:
        Keep the dataset's index in numpy arrays, torch tensors or Arrow tables instead of lists and dictionaries; use
        fewer workers; persistent_workers=False gives the copies back at each epoch's end.

    When it is wrong:
        A dataset that fills a cache of its own in each worker grows the same way, and stops when the cache is full.
        Plain RSS counts shared pages for every worker, and is not used. Where others on the machine give back as much
        as the workers take, nothing is said meanwhile.
    """
    lost_bytes = _lost_bytes(window, limits)
    if window.last.host.memory_available_bytes is not None and lost_bytes < _LOST_SHARE * limits.grown_gib * 2**30:
        return
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        if job.kind == "serving":
            continue
        for pid in job.trainers:
            owner = processes.get(pid)
            workers = () if owner is None else workers_of(job, pid, processes)
            if owner is None or not workers:
                continue
            if owner.memory_pss_bytes is None:
                if lost_bytes >= limits.grown_gib * 2**30:
                    because = "the workers' share of memory (PSS) cannot be read"
                    yield Abstention(rule="worker-ram-leak", because=because, subject=Subject(kind="job", job=job.id))
                break
            found = _judged(window, job, owner, workers, limits)
            if found is not None:
                yield found
                break


def _lost_bytes(window: Window, limits: Limits) -> float:
    """How much of its available memory the machine lost meanwhile; 0 where that is not known."""
    before = window.mean("host", "memory_available_bytes", 60.0, ago_s=limits.window_s - 60.0)
    now = window.last.host.memory_available_bytes
    return 0.0 if before is None or now is None else before - now


def _judged(window: Window, job: Job, owner: Process, workers: Sequence[Process], limits: Limits) -> Finding | None:
    if not window.covers(limits.window_s) or not _grew(window, (owner, *workers), limits):
        return None
    marks = _marks(window, (owner, *workers), "memory_pss_bytes", limits.window_s)
    own = _marks(window, (owner,), "memory_private_bytes", limits.window_s)
    if marks is None or own is None:
        return None
    grown = marks[-1] - marks[0]
    strength = grown / (limits.grown_gib * 2**30)
    if strength < 0.8 or any(later <= earlier for earlier, later in itertools.pairwise(marks)):
        return None
    if own[-1] - own[0] > limits.own_pct / 100.0 * grown:
        return None
    per_min = grown / limits.window_s * 60.0
    free = window.last.host.memory_available_bytes
    left = "" if free is None else f"; no memory in {units.duration(free / per_min * 60.0)}"
    count = len(workers)
    return Finding(
        rule="worker-ram-leak",
        severity="warning",
        confidence="likely",
        subject=Subject(kind="job", job=job.id),
        summary=f"{job.name[:20]}: loader workers grow in memory",
        strength=strength,
        cause="copy-on-access",
        cause_text=f"{per_min / 2**20:.0f} MiB/min over {count} workers{left}",
        fix_text="index in numpy or Arrow, not lists; fewer workers",
        evidence=(
            Evidence(
                name="memory of trainer and workers (PSS)",
                value=round(units.gib(marks[-1]), 1),
                unit="GiB",
                was=round(units.gib(marks[0]), 1),
                judged_by=f"+{limits.grown_gib:g} GiB in {limits.window_s / 60:g} min",
            ),
            Evidence(
                name="trainer's own memory",
                value=round(units.gib(own[-1]), 1),
                unit="GiB",
                was=round(units.gib(own[0]), 1),
                judged_by="flat",
                field="memory_private_bytes",
            ),
        ),
        fixes=(
            "keep the dataset's index in numpy arrays, tensors or Arrow, not in lists and dictionaries",
            f"num_workers {count} → {max(1, count // 2)}" if count > 1 else "persistent_workers=False",
            'multiprocessing_context="spawn" shows whether the fork is to blame',
        ),
        onset_s=limits.window_s,
    )


def _grew(window: Window, processes: Sequence[Process], limits: Limits) -> bool:
    """A cheap look at both ends, before the way between them is looked at."""
    grown = 0.0
    for process in processes:
        before = window.mean(process, "memory_pss_bytes", 60.0, ago_s=limits.window_s - 60.0)
        grown += (process.memory_pss_bytes or 0.0) - (before or 0.0)
    return grown >= 0.7 * limits.grown_gib * 2**30


def _marks(window: Window, processes: Sequence[Process], field: str, seconds: float) -> list[float] | None:
    """The sum at the beginning, at each quarter's end and now; None where one of them was not counted then."""
    sums = [0.0] * (_BLOCKS + 1)
    for process in processes:
        points = points_of(window, process, field, seconds)
        if not points or points[0][0] > -0.75 * seconds:
            return None
        for number in range(_BLOCKS + 1):
            at = -seconds * (1.0 - number / _BLOCKS)
            sums[number] += min(points, key=lambda point: abs(point[0] - at))[1]
    return sums
