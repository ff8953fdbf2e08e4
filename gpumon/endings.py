"""Knows which jobs are over or have lost a trainer, and keeps what was last seen of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import inf
from typing import NamedTuple

import msgspec

from gpumon.model import Ending, Job, Process, Snapshot
from gpumon.signals import stale_after_s

CONFIRM_S = 5.0
"""The driver's list of processes may fail for a moment: only who is missed for so long is gone."""
WRITTEN_S = 120.0
RESTART_S = 60.0
ATTEMPTS_S = 1800.0
SHORT_S = 300.0
TOLD_S = 10.0
"""So shortly before a process was missed its probe must still have reported to count as its last word."""
LEAVES_BYTES = 1e6
"""Who wrote less in his last two minutes left no checkpoint and no results."""
_KEPT_S = 3600.0
_KEPT_MAX = 64
_GONE_STATES = ("Z", "X")


class _Trainer:
    """One process of a job."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.missed_at: float | None = None
        self.missed_for_s = 0.0
        self.has_exited = False
        """An event said so."""
        self.code: int | None = None
        self.told_s: float | None = None
        """When its probe last reported."""
        self.has_said_farewell = False

    def is_gone(self) -> bool:
        return self.has_exited or self.missed_for_s >= CONFIRM_S

    def left_unsaid(self, within_s: float) -> bool:
        """Its probe reported to the last and never said that this is the end."""
        if self.told_s is None or self.missed_at is None or self.has_said_farewell:
            return False
        return self.missed_at - self.told_s <= within_s


class _Life:
    """What is remembered of one job."""

    def __init__(self, job: Job, now_s: float) -> None:
        self.job = job
        self.first_s = now_s
        self.trainers: dict[int, _Trainer] = {}
        self.written: deque[tuple[float, float]] = deque()
        self.is_readable = False
        self.said: str | None = None
        self.ending: Ending | None = None

    @property
    def is_finished(self) -> bool:
        """All that have a probe said farewell."""
        told = [one.has_said_farewell for one in self.trainers.values() if one.told_s is not None]
        return bool(told) and all(told)

    def is_over(self) -> bool:
        return all(trainer.is_gone() for trainer in self.trainers.values())


class _Run(NamedTuple):
    """One start of a program, of the last half hour."""

    began_s: float
    name: str
    user: str | None
    command: str | None
    job_id: str
    lived_s: float = inf
    """Longer than any while it runs."""
    is_empty: bool = False
    """It left next to nothing behind."""


class EndingFold:
    """Snapshots and their jobs in, endings out: those of the last hour, newest last."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self._endings: list[Ending] = []
        self._runs: list[_Run] = []
        self._now_s = 0.0

    def append(self, snapshot: Snapshot, jobs: tuple[Job, ...]) -> tuple[Ending, ...]:
        """Take in an instant."""
        passed_s = snapshot.interval_s or 0.0
        self._now_s += passed_s
        age_s = snapshot.host.driver_age_s
        # While the driver is silent nothing is known of who left.
        is_blind = age_s is not None and age_s >= stale_after_s(passed_s or 1.0)
        processes = {one.pid: one for one in snapshot.processes if one.state not in _GONE_STATES}
        for job in jobs:
            if any(pid in processes for pid in job.trainers):
                self._see(job, snapshot, processes)
        told = {event.pid: event for event in snapshot.events if event.kind == "process-exit" and event.pid is not None}
        # Who only looks from outside learns of no farewell.
        reports = {rank.pid: rank.phase for rank in snapshot.ranks if not rank.is_sampled}
        for life in list(self._lives.values()):
            for pid, trainer in life.trainers.items():
                if pid in reports:
                    # Also of a process that is gone already: its last word may come with the next sample.
                    trainer.told_s, trainer.has_said_farewell = self._now_s, reports[pid] == "end"
                event = told.get(pid)
                if event is not None:
                    trainer.has_exited, trainer.code = True, event.exit_code
                    life.said = event.text or life.said
                if pid in processes and not trainer.has_exited:
                    trainer.missed_at, trainer.missed_for_s = None, 0.0
                elif trainer.missed_at is None:
                    trainer.missed_at = self._now_s
                elif not is_blind:
                    trainer.missed_for_s += passed_s
            self._conclude(life, snapshot)
        self._endings = [one for one in self._endings if self._now_s - one.elapsed_s <= _KEPT_S][-_KEPT_MAX:]
        partial = [life.ending for life in self._lives.values() if life.ending is not None]
        return (*self._endings, *partial)

    def _see(self, job: Job, snapshot: Snapshot, processes: Mapping[int, Process]) -> None:
        life = self._lives.get(job.id)
        if life is not None and life.trainers.keys().isdisjoint(job.trainers):
            # A launcher that starts all its ranks anew keeps the job's name.
            for trainer in life.trainers.values():
                trainer.has_exited = True
                trainer.missed_at = self._now_s if trainer.missed_at is None else trainer.missed_at
            self._conclude(life, snapshot)
            life = None
        if life is None:
            life = self._lives[job.id] = _Life(job, self._now_s)
            first = processes.get(job.trainers[0])
            self._begin(job, None if first is None else first.command)
        if len(job.trainers) >= len(life.job.trainers) or life.job.phase == "start":
            life.job = job
        for pid in job.trainers:
            if pid not in life.trainers:
                life.trainers[pid] = _Trainer(processes[pid].rank if pid in processes else None)
        rates = [processes[pid].write_bytes_per_s for pid in job.trainers if pid in processes]
        known = [value for value in rates if value is not None]
        if known:
            life.is_readable = True
            life.written.append((self._now_s, sum(known) * (snapshot.interval_s or 0.0)))
        while life.written and self._now_s - life.written[0][0] > WRITTEN_S:
            life.written.popleft()

    def _begin(self, job: Job, command: str | None) -> None:
        only_missed = [one for one in self._endings if one.job.id == job.id and set(one.exits) & set(job.trainers)]
        if only_missed:
            # It was there all the time.
            self._endings = [one for one in self._endings if one not in only_missed]
            return
        self._runs = [run for run in self._runs if self._now_s - run.began_s <= ATTEMPTS_S]
        self._runs.append(_Run(self._now_s, job.name, job.user, command, job.id))
        for number, ending in enumerate(self._endings):
            is_same = (ending.job.name, ending.job.user) == (job.name, job.user)
            if is_same and self._now_s - ending.elapsed_s <= RESTART_S:
                self._endings[number] = msgspec.structs.replace(ending, is_restarted=True)

    def _conclude(self, life: _Life, snapshot: Snapshot) -> None:
        gone = {pid: trainer for pid, trainer in life.trainers.items() if trainer.missed_at is not None}
        if not gone:
            life.ending = None
            return
        moments = {pid: trainer.missed_at or 0.0 for pid, trainer in gone.items()}
        last_s = max(moments.values())
        ago_s = self._now_s - last_s
        job = life.job
        lived_s = last_s - life.first_s
        if job.started_s is not None:
            lived_s = max(lived_s, snapshot.time_s - ago_s - job.started_s)
        written = sum(size for _, size in life.written) if life.is_readable else None
        if len(gone) == len(life.trainers):
            is_empty = written is not None and written < LEAVES_BYTES and not life.is_finished
            self._runs = [
                run._replace(lived_s=lived_s, is_empty=is_empty) if run.job_id == job.id else run for run in self._runs
            ]
        mine = [run for run in self._runs if (run.name, run.user) == (job.name, job.user)]
        command = next((run.command for run in mine if run.job_id == job.id), None)
        short = [run for run in mine if run.lived_s < SHORT_S and run.is_empty and run.command == command is not None]
        within_s = max(TOLD_S, 3.0 * (snapshot.interval_s or 0.0))
        ending = Ending(
            job=job,
            ended_s=snapshot.time_s - ago_s,
            elapsed_s=last_s,
            lived_s=lived_s,
            is_confirmed=all(trainer.is_gone() for trainer in gone.values()),
            remaining=tuple(pid for pid in life.trainers if pid not in gone),
            exits={pid: last_s - at for pid, at in sorted(moments.items(), key=lambda item: item[1])},
            ranks={pid: one.rank for pid, one in life.trainers.items() if one.rank is not None},
            codes={pid: one.code for pid, one in gone.items() if one.code is not None},
            said=life.said,
            is_finished=life.is_finished,
            is_abrupt=all(trainer.told_s is not None for trainer in life.trainers.values())
            and any(trainer.left_unsaid(within_s) for trainer in gone.values()),
            written_bytes=written,
            attempt=max(1, len(mine)),
            short_attempts=len(short),
            is_restarted=any(run.began_s >= last_s and run.job_id != job.id for run in mine),
        )
        if not life.is_over():
            life.ending = ending
        else:
            self._endings.append(ending)
            del self._lives[job.id]
