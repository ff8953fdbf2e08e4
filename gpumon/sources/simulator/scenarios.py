"""The stories of the demo: which machine, which jobs, what goes wrong and when."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Protocol

import msgspec

from gpumon.errors import UsageError
from gpumon.sources.simulator.chips import ATTIC, CLUSTER, DGX2, GIB, LAB, NODE, Machine
from gpumon.sources.simulator.spec import JobSpec
from gpumon.sources.simulator.troubles import (
    block_air,
    compile_next_door,
    evict_cache,
    hang,
    leak,
    lose_gpu,
    nothing,
    slow_rank,
    split,
    starve,
    starve_second,
    warm_cache,
    warm_corner,
)
from gpumon.sources.simulator.workloads import CHAT, DETECTOR, DGX, LLAMA, NOTEBOOK, SPEECH, VISION, part_job
from gpumon.sources.simulator.world import World

NOW_S = 600.0
"""Simulated time at which a viewer joins: ten minutes of story are behind."""
ONSET_S = 225.0
DEFAULT = "throttled"
WATCHDOG_S = 600.0
"""PyTorch's NCCL watchdog aborts a job that hung this long."""


class Turn(Protocol):
    """What happens to the world when the trouble begins and when it ends."""

    def __call__(self, world: World, *, is_on: bool) -> None:
        """Change the world."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One story. Trouble begins at ``onset_s``, lasts, pauses, and comes again, so that a demo never ends."""

    name: str
    description: str
    machine: Machine
    jobs: tuple[JobSpec, ...] = ()
    prepare: Callable[[World], None] | None = None
    turn: Turn = nothing
    onset_s: float = ONSET_S
    lasts_s: float = 1800.0
    pauses_s: float = 600.0
    is_probed: bool = False
    """The training processes carry gpumon's probe."""

    def is_troubled(self, now_s: float) -> bool:
        """Whether the trouble is on at this time of the story."""
        if now_s < self.onset_s:
            return False
        return self.lasts_s == inf or (now_s - self.onset_s) % (self.lasts_s + self.pauses_s) < self.lasts_s


class Story:
    """A world and its scenario, on their way."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        gpus: int | None = None,
        window_s: float | None = None,
        start_s: float = 0.0,
        epoch_s: float = 0.0,
        is_probed: bool | None = None,
    ) -> None:
        """Ready for the first snapshot at ``start_s`` of the story."""
        machine = scenario.machine
        if gpus is not None:
            machine = msgspec.structs.replace(machine, gpus=gpus)
        self.scenario = scenario
        self.world = World(
            machine,
            scenario.jobs,
            seed=seed,
            start_s=start_s,
            epoch_s=epoch_s,
            window_s=window_s,
            is_probed=scenario.is_probed if is_probed is None else is_probed,
        )
        if scenario.prepare is not None:
            scenario.prepare(self.world)
        self.world.begin()
        self._is_on = scenario.is_troubled(self.world.now_s)
        if self._is_on:
            scenario.turn(self.world, is_on=True)
        self.world.settle()
        self.advance(start_s - self.world.now_s)
        self.world.snapshot(None)

    def advance(self, seconds: float) -> None:
        """Let time pass, turning the trouble on and off on the way."""
        left = seconds
        while left > 1e-9:
            part = min(left, 1.0)
            is_on = self.scenario.is_troubled(self.world.now_s)
            if is_on != self._is_on:
                self._is_on = is_on
                self.scenario.turn(self.world, is_on=is_on)
            self.world.advance(part)
            left -= part


SATA = msgspec.structs.replace(LAB, disk_bytes_per_s=118e6)

_ALL = (
    Scenario(name="healthy", description="one RTX 4090 that trains as it should", machine=LAB, jobs=(VISION,)),
    Scenario(
        name="input-bound",
        description="one RTX 4090 waits for data: four saturated loader workers",
        machine=LAB,
        jobs=(msgspec.structs.replace(VISION, workers=4, prep_s=0.8),),
        turn=starve,
    ),
    Scenario(
        name="throttled",
        description="eight H100, one job; GPU 5 runs at its temperature limit, seven wait for it",
        machine=NODE,
        jobs=(LLAMA,),
        prepare=warm_corner,
        turn=block_air,
    ),
    Scenario(
        name="leaking",
        description="one RTX 4090 whose memory grows until the job dies and starts again; with the probe",
        machine=LAB,
        jobs=(SPEECH,),
        is_probed=True,
        turn=leak,
        lasts_s=inf,
    ),
    Scenario(
        name="fragmented",
        description="one A100 near its memory limit: the cache is flushed, steps stall; with the probe",
        machine=msgspec.structs.replace(CLUSTER, gpus=1),
        jobs=(CHAT,),
        is_probed=True,
        turn=leak,
        lasts_s=inf,
    ),
    Scenario(
        name="hang",
        description="four A100; rank 2 skips a collective, the others spin at 100 %; with the probe",
        machine=CLUSTER,
        jobs=(DETECTOR,),
        is_probed=True,
        turn=hang,
        pauses_s=900.0,
    ),
    Scenario(
        name="straggler",
        description="four A100; the loader of rank 2 is slow and everybody waits for it",
        machine=CLUSTER,
        jobs=(DETECTOR,),
        turn=slow_rank,
    ),
    Scenario(
        name="lost-gpu",
        description="eight H100; GPU 3 falls off the bus (Xid 79) and its job stands still",
        machine=NODE,
        jobs=(LLAMA,),
        turn=lose_gpu,
        onset_s=390.0,
        lasts_s=WATCHDOG_S,
        pauses_s=inf,
    ),
    Scenario(name="idle", description="four A100 and nobody uses them", machine=CLUSTER),
    Scenario(
        name="first-epoch",
        description="one RTX 4090 in its first epoch: the page cache is cold",
        machine=SATA,
        jobs=(msgspec.structs.replace(VISION, batch_bytes=50e6, dataset_bytes=58e9, age_s=-290.0, lasts_s=2300.0),),
        prepare=warm_cache,
    ),
    Scenario(
        name="cpu-contention",
        description="one RTX 4090 starved because another user's build takes the cores",
        machine=LAB,
        jobs=(msgspec.structs.replace(VISION, workers=4, prep_s=0.74, launch_share=0.3),),
        turn=compile_next_door,
    ),
    Scenario(
        name="disk-bound",
        description="one RTX 4090 starved by a disk that reads at its limit",
        machine=SATA,
        jobs=(msgspec.structs.replace(VISION, batch_bytes=50e6),),
        prepare=warm_cache,
        turn=evict_cache,
    ),
    Scenario(
        name="mig",
        description="one H100 in three MIG instances: one busy, one short of data, one idle",
        machine=msgspec.structs.replace(NODE, gpus=1, cores=32, sockets=1, memory_bytes=252 * GIB),
        jobs=(
            part_job("pretrain", "ana", 51200, 0, 35.6, step_s=0.33, prep_s=0.9),
            part_job("classify", "marco", 51711, 1, 16.3, step_s=0.22, prep_s=0.52),
            NOTEBOOK,
        ),
        prepare=split,
        turn=starve_second,
    ),
    Scenario(
        name="no-gpm",
        description="two RTX 3090 with an old driver that reports little",
        machine=ATTIC,
        jobs=(
            msgspec.structs.replace(
                VISION,
                pid=9120,
                step_s=0.34,
                workers=6,
                memory_bytes=int(20.1 * GIB),
                trainer_rss_bytes=5 * GIB,
                worker_rss_bytes=int(1.4 * GIB),
            ),
        ),
    ),
    Scenario(name="many", description="sixteen V100 that train together as they should", machine=DGX2, jobs=(DGX,)),
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def scenario_named(name: str) -> Scenario:
    """The scenario of this name; otherwise a UsageError that names the nearest one."""
    found = SCENARIOS.get(name)
    if found is not None:
        return found
    from difflib import get_close_matches  # costs 5 ms at start and is rarely needed

    near = get_close_matches(name, SCENARIOS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCENARIOS)}"
    raise UsageError(f"no demo scenario {name!r}; {hint}")
