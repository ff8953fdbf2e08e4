"""Knows where each GPU's time went, sample by sample, and what the GPU was like before any trouble."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from gpumon.model import Gpu, Host, Job, Process, Rank, Snapshot
from gpumon.signals import (
    LEAST_STACKS,
    busy_pct,
    is_in_step,
    is_throttled,
    stale_after_s,
    temperature_limit_c,
    trainer_of,
    waits_for_input,
    workers_of,
)

Shares = dict[str, float | None]

_COOL_TAU_S = 60.0
_COOL_AFTER_S = 30.0
"""A governor lets go in steps: a clock counts as cool only this long after the last limit."""
_COOL_KNOWN_S = 10.0
_IDLE_TAU_S = 20.0
_PEER_TAU_S = 4.0
_STACKS_TAU_S = 30.0
_PEER_PCT = 10.0


class _Stacks:
    """How often a process was found waiting for data of late, where its stack is sampled."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._seen = self._waited = 0.0

    def share(self, stacks: int, waits: int, passed_s: float) -> float | None:
        """The share with what came since the last call; None while that says nothing."""
        before, self._before = self._before, (stacks, waits)
        if before is None or stacks < before[0]:
            self._seen = self._waited = 0.0
            return None
        fade = math.exp(-passed_s / _STACKS_TAU_S)
        self._seen = self._seen * fade + stacks - before[0]
        self._waited = self._waited * fade + max(0, waits - before[1])
        # One that was never found waiting may have a loader that no table knows.
        return min(1.0, self._waited / self._seen) if waits and self._seen >= LEAST_STACKS else None


class _Learned:
    """What is remembered of one GPU."""

    def __init__(self) -> None:
        self.job: str | None = None
        self.cool_mhz: float | None = None
        self.cool_for_s = 0.0
        self.limited_ago_s = math.inf
        self.idle_w: float | None = None
        self.wait_share: float | None = None
        """Of a step, by the probe; None where none reports."""
        self.stacks = _Stacks()
        self.wait_for_s = 0.0
        """How much longer that may be taken for now: a step may be longer than an interval."""
        self.lost_pct: float | None = None
        """Recent mean of what this GPU itself loses, for its peers."""

    def look(self, gpu: Gpu, job: Job | None, busy: float, passed_s: float) -> None:
        """Learn the idle power and the clock of a cool, busy GPU under the job it has now."""
        if (job.id if job else None) != self.job:
            self.job = job.id if job else None
            self.cool_mhz, self.cool_for_s = None, 0.0
        self.limited_ago_s = 0.0 if is_throttled(gpu) else self.limited_ago_s + passed_s
        if busy == 0.0 and gpu.power_w is not None and (job is None or "gpu_idle" in (gpu.clocks_event_reasons or ())):
            self.idle_w = _toward(self.idle_w, gpu.power_w, passed_s, _IDLE_TAU_S)
        limit = temperature_limit_c(gpu)
        is_hot = limit is not None and gpu.temperature_c is not None and gpu.temperature_c >= limit - 1.0
        if job is None or gpu.sm_clock_mhz is None or busy < 50.0 or is_hot or self.limited_ago_s < _COOL_AFTER_S:
            return
        self.cool_mhz = _toward(self.cool_mhz, gpu.sm_clock_mhz, passed_s, _COOL_TAU_S)
        self.cool_for_s += passed_s

    def measure(self, rank: Rank, passed_s: float) -> float | None:
        """Share of its time that a process waits for data, as its probe measures it or its stacks show."""
        if rank.sampled_stacks is not None:
            return self.stacks.share(rank.sampled_stacks, rank.sampled_waits or 0, passed_s)
        if rank.step_s and rank.data_wait_s is not None:
            self.wait_share = min(1.0, rank.data_wait_s / rank.step_s)
            self.wait_for_s = 3 * rank.step_s
        else:
            self.wait_for_s -= passed_s
        if rank.waiting_s is not None and rank.waiting_s >= max(passed_s, 0.5):
            return 1.0
        return self.wait_share if self.wait_for_s > 0 else None

    def cool(self) -> float | None:
        """The clock while cool, once it was seen for long enough."""
        return self.cool_mhz if self.cool_for_s >= _COOL_KNOWN_S else None


class _Scene(NamedTuple):
    """One snapshot with its records by identity."""

    processes: Mapping[int, Process]
    ranks: Mapping[int, Rank]
    host: Host
    passed_s: float


class BudgetFold:
    """Snapshots in, shares of time per GPU out: useful, data, throttled, peer, idle; together 100."""

    def __init__(self) -> None:
        self._learned: dict[str, _Learned] = {}

    def append(self, snapshot: Snapshot, jobs: tuple[Job, ...], waiting: Collection[str] = ()) -> dict[str, Shares]:
        """The budget of this instant by GPU uuid; every share is None where use is not reported.

        GPUs in ``waiting`` are busy with nothing but waiting for their peers.
        """
        processes = {process.pid: process for process in snapshot.processes}
        gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
        owners = {uuid: job for job in jobs for uuid in job.gpu_uuids}
        passed_s = snapshot.interval_s or 0.0
        scene = _Scene(processes, {rank.pid: rank for rank in snapshot.ranks}, snapshot.host, passed_s)
        stale_s = stale_after_s(passed_s)
        budget: dict[str, Shares] = {}
        for uuid, gpu in gpus.items():
            busy = None if gpu.age_s is not None and gpu.age_s >= stale_s else busy_pct(gpu)
            learned = self._learned.setdefault(uuid, _Learned())
            if busy is None:
                learned.lost_pct = 100.0 if gpu.is_lost else None
                budget[uuid] = _shares(None, None, None, None)
                continue
            job = owners.get(uuid)
            learned.look(gpu, job, busy, passed_s)
            throttled = busy * self._clock_lost(gpu, job, gpus)
            data = self._data_pct(job, uuid, busy, scene) if job else 0.0
            learned.lost_pct = _toward(learned.lost_pct, throttled + data, passed_s, _PEER_TAU_S)
            peer = busy - throttled if uuid in waiting else 0.0
            budget[uuid] = _shares(busy - throttled - peer, data, throttled, peer)
        for job in jobs:
            if is_in_step(job, processes):
                self._share_waiting(job, budget)
        return budget

    def _data_pct(self, job: Job, uuid: str, busy: float, scene: _Scene) -> float:
        """Share of the time lost to waiting for data: as the probe measured it, else as the loader looks."""
        idle = 100.0 - busy
        if idle <= 0 or job.kind == "serving" or job.phase in {"pause", "end"}:
            return 0.0
        trainer = trainer_of(job, uuid, scene.processes)
        if trainer is None:
            return 0.0
        rank = scene.ranks.get(trainer.pid)
        share = self._learned[uuid].measure(rank, scene.passed_s) if rank else None
        if share is not None:
            return min(idle, 100.0 * share)
        helpers = workers_of(job, trainer.pid, scene.processes)
        return idle if waits_for_input(trainer, helpers, scene.host) else 0.0

    def baselines(self) -> dict[str, dict[str, float]]:
        """GPU uuid -> what was learned: ``power_idle_w``, ``sm_clock_cool_mhz``."""
        found: dict[str, dict[str, float]] = {}
        for uuid, learned in self._learned.items():
            known = {"power_idle_w": learned.idle_w, "sm_clock_cool_mhz": learned.cool()}
            found[uuid] = {name: value for name, value in known.items() if value is not None}
        return found

    def _clock_lost(self, gpu: Gpu, job: Job | None, gpus: Mapping[str, Gpu]) -> float:
        """Share of its speed that a GPU loses to heat or the power brake right now."""
        if not is_throttled(gpu) or gpu.sm_clock_mhz is None:
            return 0.0
        cool = self._learned[gpu.uuid].cool() or sibling_clock_mhz(gpu, job, gpus) or gpu.sm_clock_max_mhz
        return max(0.0, 1.0 - gpu.sm_clock_mhz / cool) if cool else 0.0

    def _share_waiting(self, job: Job, budget: dict[str, Shares]) -> None:
        """Ranks in step lose what the slowest loses: the difference is spent waiting for it."""
        lost = {uuid: self._learned[uuid].lost_pct for uuid in job.gpu_uuids if uuid in budget}
        worst = max((value for value in lost.values() if value is not None), default=0.0)
        for uuid, own in lost.items():
            shares = budget[uuid]
            useful, idle = shares["budget.useful_pct"], shares["budget.idle_pct"]
            if own is None or useful is None or idle is None or worst - own < _PEER_PCT:
                continue
            waiting = min(worst - own, useful + idle)
            from_idle = min(idle, waiting)
            shares["budget.peer_pct"] = waiting
            shares["budget.idle_pct"] = idle - from_idle
            shares["budget.useful_pct"] = useful - (waiting - from_idle)


def sibling_clock_mhz(gpu: Gpu, job: Job | None, gpus: Mapping[str, Gpu]) -> float | None:
    """Median clock of the job's other GPUs of this model that nothing holds back."""
    others = (gpus[uuid] for uuid in (job.gpu_uuids if job else ()) if uuid in gpus and uuid != gpu.uuid)
    clocks = sorted(
        other.sm_clock_mhz
        for other in others
        if other.sm_clock_mhz is not None and other.name == gpu.name and not is_throttled(other)
    )
    return clocks[len(clocks) // 2] if clocks else None


def _shares(useful: float | None, data: float | None, throttled: float | None, peer: float | None) -> Shares:
    idle = None
    if useful is not None and data is not None and throttled is not None and peer is not None:
        idle = max(0.0, 100.0 - useful - data - throttled - peer)
    return {
        "budget.useful_pct": useful,
        "budget.data_pct": data,
        "budget.throttled_pct": throttled,
        "budget.peer_pct": peer,
        "budget.idle_pct": idle,
    }


def _toward(before: float | None, value: float, passed_s: float, tau_s: float) -> float:
    """One step of an exponential mean whose memory is ``tau_s`` long, whatever the interval."""
    if before is None:
        return value
    return before + (value - before) * (1.0 - math.exp(-passed_s / tau_s))
