"""The stories of the demo: which machine, which jobs, what goes wrong and when."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec

from gpumon.errors import UsageError
from gpumon.model import Event

from .chips import ATTIC, CLUSTER, DGX2, GIB, LAB, MIB, NODE, Machine
from .job import JobSpec
from .world import World

NOW_S = 600.0
"""Simulated time at which a viewer joins: ten minutes of story are behind."""
ONSET_S = 225.0
DEFAULT = "throttled"
HOT_GPU = 5
LOST_GPU = 3
WATCHDOG_S = 600.0
"""PyTorch's NCCL watchdog aborts a job that hung this long."""

Turn = Callable[[World, bool], None]
"""Called when the trouble begins (True) and when it ends (False)."""


def _quiet(world: World, is_on: bool) -> None:
    """Nothing goes wrong."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One story. Trouble begins at ``onset_s``, lasts, pauses, and comes again, so that a demo never ends."""

    name: str
    description: str
    machine: Machine
    jobs: tuple[JobSpec, ...] = ()
    prepare: Callable[[World], None] | None = None
    turn: Turn = _quiet
    onset_s: float = ONSET_S
    lasts_s: float = 1800.0
    pauses_s: float = 600.0

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
    ) -> None:
        """Ready for the first snapshot at ``start_s`` of the story."""
        machine = scenario.machine
        if gpus is not None:
            machine = msgspec.structs.replace(machine, gpus=gpus)
        self.scenario = scenario
        self.world = World(
            machine, scenario.jobs, seed=seed, start_s=start_s, epoch_s=epoch_s, window_s=window_s
        )
        if scenario.prepare is not None:
            scenario.prepare(self.world)
        self._is_on = False
        self.world.begin()
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
                self.scenario.turn(self.world, is_on)
            self.world.advance(part)
            left -= part


# --- jobs ------------------------------------------------------------------------------------------

VISION = JobSpec(
    name="train",
    user="marco",
    command="python train.py --config resnet152.yaml --data /data/imagenet",
    pid=48213,
    step_s=0.2276,
    gap_share=0.022,
    prep_s=0.52,
    batch_bytes=16.4e6,
    copied_bytes=154e6,
    memory_bytes=int(18.8 * GIB),
    trainer_rss_bytes=9 * GIB,
    worker_rss_bytes=int(2.9 * GIB),
)
STARVED_PREP_S = 1.70
LLAMA = JobSpec(
    name="llama-8b",
    user="ana",
    command="python train.py --config llama-8b.yaml",
    pid=90211,
    step_s=0.4,
    gap_share=0.01,
    prep_s=1.33,
    batch_bytes=10.9e6,
    copied_bytes=2.1e6,
    memory_bytes=int(75.55 * GIB),
    memory_step_bytes=104 * MIB,
    trainer_rss_bytes=int(9.4 * GIB),
    worker_rss_bytes=int(1.95 * GIB),
    checkpoint_s=41.0,
    checkpoint_every_s=3600.0,
    checkpoint_bytes=64e9,
    tensor=0.56,
)
DETECTOR = JobSpec(
    name="dino",
    user="yuki",
    command="python -m torch.distributed.run tools/train.py configs/dino-swin-l.py",
    pid=31877,
    step_s=0.52,
    prep_s=1.5,
    workers=6,
    batch_bytes=22e6,
    copied_bytes=96e6,
    memory_bytes=int(61.4 * GIB),
    memory_step_bytes=210 * MIB,
    container="3f2a9c41d0b7",
)
SPEECH = JobSpec(
    name="whisper",
    user="ana",
    command="python finetune.py --model whisper-large-v3 --batch 24",
    pid=22041,
    step_s=0.31,
    jitter=0.03,
    gap_share=0.02,
    prep_s=0.9,
    workers=6,
    batch_bytes=9.6e6,
    copied_bytes=12e6,
    memory_bytes=int(11.3 * GIB),
    leak_bytes=5.1 * MIB,
    restart_after_s=25.0,
    age_s=2700.0,
)
CHAT = JobSpec(
    name="sft",
    user="noor",
    command="python sft.py --model qwen-7b --packing false --max-len 8192",
    pid=70433,
    gpus=(0,),
    step_s=0.58,
    jitter=0.12,
    prep_s=0.3,
    workers=4,
    batch_bytes=0.4e6,
    copied_bytes=0.6e6,
    memory_bytes=int(58.2 * GIB),
    waste_bytes=48 * MIB,
)
DGX = JobSpec(
    name="bert",
    user="ravi",
    command="python run_pretraining.py --fp16 --local-batch 64",
    pid=15502,
    step_s=0.62,
    gap_share=0.014,
    prep_s=0.55,
    workers=4,
    batch_bytes=3.1e6,
    copied_bytes=1.4e6,
    memory_bytes=int(26.7 * GIB),
    memory_step_bytes=260 * MIB,
    trainer_rss_bytes=6 * GIB,
    worker_rss_bytes=int(0.8 * GIB),
)


def _part(name: str, user: str, pid: int, instance: int, memory_gib: float, **changes: float) -> JobSpec:
    return msgspec.structs.replace(
        VISION,
        name=name,
        user=user,
        command=f"python {name}.py",
        pid=pid,
        gpus=(0,),
        instance=instance,
        memory_bytes=int(memory_gib * GIB),
        **changes,
    )


# --- what goes wrong -------------------------------------------------------------------------------


def _starve(world: World, is_on: bool) -> None:
    for job in world.jobs:
        job.set_prep_s(STARVED_PREP_S if is_on else 0.8)


def _warm_corner(world: World) -> None:
    world.cards[min(HOT_GPU, len(world.cards) - 1)].heat.air_target = 1.5


def _block_air(world: World, is_on: bool) -> None:
    world.cards[min(HOT_GPU, len(world.cards) - 1)].heat.air_target = 3.45 if is_on else 1.5


def _leak(world: World, is_on: bool) -> None:
    for job in world.jobs:
        job.is_ill = is_on


def _hang(world: World, is_on: bool) -> None:
    for job in world.jobs:
        if is_on:
            job.hang(world.now_s, culprit=min(2, len(job.ranks) - 1))
        else:
            job.kill(world.now_s, "watchdog: collective operation timeout")


def _slow_rank(world: World, is_on: bool) -> None:
    for job in world.jobs:
        job.set_prep_s(job.spec.prep_s * (3.0 if is_on else 1.0), rank=min(2, len(job.ranks) - 1))


def _lose_gpu(world: World, is_on: bool) -> None:
    """The card falls off the bus; its peers spin until the watchdog aborts the job, which never comes back."""
    index = min(LOST_GPU, len(world.cards) - 1)
    card = world.cards[index]
    if not is_on or card.is_lost:
        for job in world.jobs:
            job.kill(world.now_s, "watchdog: collective operation timeout")
            job.free_s = inf
        return
    card.is_lost = True
    bus = card.pci_bus_id[4:12].lower()
    text = f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    world.events.append(Event(kind="xid", gpu_uuid=card.uuid, xid=79, text=text))
    world.events.append(Event(kind="gpu-lost", gpu_uuid=card.uuid, text="fell off the bus"))
    for job in world.jobs:
        job.hang(world.now_s, culprit=index)


def _compile_next_door(world: World, is_on: bool) -> None:
    world.other_threads = 2.6 * world.machine.cores if is_on else 0.05 * world.machine.cores


def _warm_cache(world: World) -> None:
    world.disk.hit_share = 0.96


def _evict_cache(world: World, is_on: bool) -> None:
    world.disk.hit_share = 0.0 if is_on else 0.96


def _cold_cache(world: World, is_on: bool) -> None:
    world.disk.hit_share = 0.0 if is_on else 0.97


def _split(world: World) -> None:
    for card in world.cards:
        card.split(
            (("3g.40gb", 3, 40448 * MIB), ("2g.20gb", 2, 20096 * MIB), ("1g.10gb", 1, 9856 * MIB)), world.now_s
        )


def _starve_second(world: World, is_on: bool) -> None:
    world.jobs[1].set_prep_s(3.4 if is_on else 0.52)


SATA = msgspec.structs.replace(LAB, disk_bytes_per_s=118e6)

_ALL = (
    Scenario(name="healthy", description="one RTX 4090 that trains as it should", machine=LAB, jobs=(VISION,)),
    Scenario(
        name="input-bound",
        description="one RTX 4090 waits for data: four saturated loader workers",
        machine=LAB,
        jobs=(msgspec.structs.replace(VISION, workers=4, prep_s=0.8),),
        turn=_starve,
    ),
    Scenario(
        name="throttled",
        description="eight H100, one job; GPU 5 runs at its temperature limit, seven wait for it",
        machine=NODE,
        jobs=(LLAMA,),
        prepare=_warm_corner,
        turn=_block_air,
    ),
    Scenario(
        name="leaking",
        description="one RTX 4090 whose memory grows every step until the job dies and starts again",
        machine=LAB,
        jobs=(SPEECH,),
        turn=_leak,
        lasts_s=inf,
    ),
    Scenario(
        name="fragmented",
        description="one A100 near its memory limit: the allocator flushes its cache and steps stall",
        machine=msgspec.structs.replace(CLUSTER, gpus=1),
        jobs=(CHAT,),
        turn=_leak,
        lasts_s=inf,
    ),
    Scenario(
        name="hang",
        description="four A100; rank 2 skips a collective, the others spin at 100 % and little power",
        machine=CLUSTER,
        jobs=(DETECTOR,),
        turn=_hang,
        pauses_s=900.0,
    ),
    Scenario(
        name="straggler",
        description="four A100; the loader of rank 2 is slow and everybody waits for it",
        machine=CLUSTER,
        jobs=(DETECTOR,),
        turn=_slow_rank,
    ),
    Scenario(
        name="lost-gpu",
        description="eight H100; GPU 3 falls off the bus (Xid 79) and its job stands still",
        machine=NODE,
        jobs=(LLAMA,),
        turn=_lose_gpu,
        onset_s=390.0,
        lasts_s=WATCHDOG_S,
        pauses_s=inf,
    ),
    Scenario(name="idle", description="four A100 and nobody uses them", machine=CLUSTER),
    Scenario(
        name="first-epoch",
        description="one RTX 4090 in its first epoch: the page cache is cold",
        machine=SATA,
        jobs=(msgspec.structs.replace(VISION, batch_bytes=50e6, age_s=-290.0, lasts_s=2300.0),),
        turn=_cold_cache,
        onset_s=-inf,
        lasts_s=inf,
    ),
    Scenario(
        name="cpu-contention",
        description="one RTX 4090 starved because another user's build takes the cores",
        machine=LAB,
        jobs=(VISION,),
        turn=_compile_next_door,
    ),
    Scenario(
        name="disk-bound",
        description="one RTX 4090 starved by a disk that reads at its limit",
        machine=SATA,
        jobs=(msgspec.structs.replace(VISION, batch_bytes=50e6),),
        prepare=_warm_cache,
        turn=_evict_cache,
    ),
    Scenario(
        name="mig",
        description="one H100 in three MIG instances: one busy, one short of data, one idle",
        machine=msgspec.structs.replace(NODE, gpus=1, cores=32, sockets=1, memory_bytes=252 * GIB),
        jobs=(
            _part("pretrain", "ana", 51200, 0, 35.6, step_s=0.33, prep_s=0.9),
            _part("classify", "marco", 51711, 1, 16.3, step_s=0.22, prep_s=0.52),
        ),
        prepare=_split,
        turn=_starve_second,
    ),
    Scenario(
        name="no-gpm",
        description="two RTX 3090 with an old driver that reports little",
        machine=ATTIC,
        jobs=(msgspec.structs.replace(VISION, pid=9120, step_s=0.34, memory_bytes=int(20.1 * GIB)),),
    ),
    Scenario(name="many", description="sixteen V100 that train together as they should", machine=DGX2, jobs=(DGX,)),
)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}


def scenario_named(name: str) -> Scenario:
    """The scenario of this name; otherwise a UsageError that names the nearest one."""
    found = SCENARIOS.get(name)
    if found is not None:
        return found
    from difflib import get_close_matches  # noqa: PLC0415 - costs 5 ms at start and is rarely needed

    near = get_close_matches(name, SCENARIOS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SCENARIOS)}"
    message = f"no demo scenario {name!r}; {hint}"
    raise UsageError(message)
