"""What a run is made of: a machine, its jobs, what happens to them, and how to tell what it really cost."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from gpumon.model import Event, Snapshot
from gpumon.sources.simulator.chips import Chip, Machine
from gpumon.sources.simulator.governor import POWER_SHARE
from gpumon.sources.simulator.heat import leakage
from gpumon.sources.simulator.job import Job
from gpumon.sources.simulator.spec import JobSpec
from gpumon.sources.simulator.world import World
from tests.bench.jobs import Wanted, any_machine, pick_job, pick_machine
from tests.bench.machines import Split

Turn = Callable[[World], None]
Truth = Callable[[World], float]
"""What is lost at this moment, in percent."""
See = Callable[[Snapshot, "Eye"], Snapshot | None]
"""What a monitor gets to see of a snapshot; None: nothing."""


class Eye:
    """What an observation remembers from snapshot to snapshot."""

    def __init__(self, seed: str) -> None:
        self.rng = Random(seed)
        self.began_s: float | None = None
        self.onset_s = 0.0
        """Since the first snapshot."""
        self.is_on = False
        self.last: Snapshot | None = None
        self.memory: dict[str, float] = {}
        self.names: tuple[str, ...] = ()
        self.process_names: tuple[str, ...] = ()
        self.events: tuple[Event, ...] = ()

    def age_s(self, snapshot: Snapshot) -> float:
        if self.began_s is None:
            self.began_s = snapshot.time_s
        return snapshot.time_s - self.began_s


class Draw:
    """Random choices of one run."""

    def __init__(self, seed: str, split: Split) -> None:
        self.rng = Random(seed)
        self.split: Split = split

    def machine(self, wanted: Wanted = any_machine, *, least: int = 1, most: int = 8) -> Machine:
        return pick_machine(self.rng, self.split, wanted, least=least, most=most)

    def job(self, machine: Machine, **changes: object) -> JobSpec:
        return pick_job(self.rng, self.split, machine, **changes)

    def gpu(self, machine: Machine) -> int:
        return self.rng.randrange(machine.gpus)


class Plan(msgspec.Struct, kw_only=True):
    """One run before it is run."""

    machine: Machine
    jobs: tuple[JobSpec, ...] = ()
    prepare: Turn | None = None
    """Before the jobs begin."""
    turn: Turn | None = None
    """At the onset."""
    undo: Turn | None = None
    tick: Turn | None = None
    """Once per sample from the onset on."""
    truth: Truth | None = None
    faulty_from: float = 0.0
    healthy_to: float = 0.0
    """A truth below this is no fault; in between either answer is right."""
    is_slow: bool = False
    """The trouble begins when the truth says so, not when it is injected."""
    is_static: bool = False
    """It is there from the beginning."""
    before_s: float | None = None
    lasts_s: float = 300.0
    after_s: float = 0.0
    probe: bool | None = None
    interval_s: float | None = None
    sees: list[See] = []
    rules: tuple[str, ...] | None = None
    """Right headlines of this run, where they differ from the fault's."""
    also: tuple[str, ...] = ()
    causes: tuple[str, ...] | None = None
    level: str | None = None
    is_info: bool | None = None
    """What was wrong is only worth an information; None: as the fault says."""


class Rate:
    """Percent of the time in which a sum of seconds over all jobs' ranks grew, as a truth."""

    def __init__(self, *fields: str, worst: bool = True) -> None:
        self._fields, self._worst = fields, worst
        self._last: tuple[float, dict[int, float]] | None = None

    def __call__(self, world: World) -> float:
        ranks = [rank for job in world.jobs for rank in job.ranks]
        sums = {id(rank): sum(getattr(rank, field) for field in self._fields) for rank in ranks}
        last, self._last = self._last, (world.now_s, sums)
        if last is None or world.now_s <= last[0]:
            return 0.0
        shares = [100.0 * (value - last[1].get(key, value)) / (world.now_s - last[0]) for key, value in sums.items()]
        return max(shares) if self._worst else sum(shares) / len(shares)


def change(job: Job, **changes: object) -> None:
    """Another specification for a running job."""
    job.spec = msgspec.structs.replace(job.spec, **changes)


def inlet_for(chip: Chip, power: float, die_c: float) -> float:
    """The inlet that holds a fully busy card at a temperature, its fan and the leakage of a hot die included."""
    busy_w = chip.context_w + (chip.busy_w - chip.context_w) * leakage(die_c) * power
    fan = chip.fan
    air = 1.0 if fan is None else (fan.at_pct / fan.wanted_pct(die_c)) ** 0.7
    return die_c - min(POWER_SHARE * chip.limit_w, busy_w) * (chip.die_k_per_w + chip.sink_k_per_w * air)


def has_gpm(machine: Machine) -> bool:
    return machine.chip.has_gpm


def has_no_gpm(machine: Machine) -> bool:
    return not machine.chip.has_gpm


def has_fan(machine: Machine) -> bool:
    return machine.chip.fan is not None


def has_counters(machine: Machine) -> bool:
    return machine.chip.has_limiter_counters


def has_nvlink(machine: Machine) -> bool:
    return bool(machine.chip.nvlinks)


def has_ecc(machine: Machine) -> bool:
    return machine.chip.has_ecc


def of_memory(machine: Machine) -> bool:
    return machine.chip.memory_max_c is not None
