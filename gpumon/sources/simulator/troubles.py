"""What goes wrong in the demo, and how it is put right again."""

from __future__ import annotations

from math import inf

from gpumon.model import Event
from gpumon.sources.simulator.chips import MIB
from gpumon.sources.simulator.world import World

STARVED_PREP_S = 1.70
HOT_GPU = 5
LOST_GPU = 3


def nothing(world: World, *, is_on: bool) -> None:
    """All is well."""


def starve(world: World, *, is_on: bool) -> None:
    """Preparing a batch takes twice as long: heavier augmentation, larger images."""
    for job in world.jobs:
        job.set_prep_s(STARVED_PREP_S if is_on else 0.8)


def warm_corner(world: World) -> None:
    """The hot GPU sits in warm air from the start."""
    world.cards[min(HOT_GPU, len(world.cards) - 1)].heat.air_target = 1.5


def block_air(world: World, *, is_on: bool) -> None:
    """The air to one GPU is blocked, and cleared again."""
    world.cards[min(HOT_GPU, len(world.cards) - 1)].heat.air_target = 3.3 if is_on else 1.5


def leak(world: World, *, is_on: bool) -> None:
    """Leak and fragmentation are at work from now on."""
    for job in world.jobs:
        job.is_ill = is_on


def hang(world: World, *, is_on: bool) -> None:
    """One rank skips a collective; in the end the watchdog aborts the job."""
    for job in world.jobs:
        if is_on:
            job.hang(world.now_s, culprit=min(2, len(job.ranks) - 1))
        else:
            job.kill(world.now_s, "watchdog: collective operation timeout")


def slow_rank(world: World, *, is_on: bool) -> None:
    """The loader of one rank needs three times as long."""
    for job in world.jobs:
        job.set_prep_s(job.spec.prep_s * (3.0 if is_on else 1.0), rank=min(2, len(job.ranks) - 1))


def lose_gpu(world: World, *, is_on: bool) -> None:
    """The card falls off the bus; its peers spin until the watchdog aborts the job, which never comes back."""
    index = min(LOST_GPU, len(world.cards) - 1)
    card = world.cards[index]
    if not is_on or card.is_lost:
        for job in world.jobs:
            job.kill(world.now_s, "watchdog: collective operation timeout")
            job.free_s = inf
        return
    card.is_lost = True
    bus = card.pci_bus_id[4:14].lower()
    text = f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    world.events.append(Event(kind="xid", gpu_uuid=card.uuid, xid=79, text=text))
    world.events.append(Event(kind="gpu-lost", gpu_uuid=card.uuid, text="fell off the bus"))
    for job in world.jobs:
        job.hang(world.now_s, culprit=index)


def compile_next_door(world: World, *, is_on: bool) -> None:
    """Another user's build takes the cores."""
    world.other_threads = 1.95 * world.machine.cores if is_on else 0.05 * world.machine.cores


def warm_cache(world: World) -> None:
    """Most of the data set is in the page cache."""
    world.disk.hit_share = 0.96


def evict_cache(world: World, *, is_on: bool) -> None:
    """Something else fills the memory: the data set must be read from the disk again."""
    world.disk.hit_share = 0.0 if is_on else 0.96


def split(world: World) -> None:
    """MIG is on, with three instances."""
    for card in world.cards:
        card.split((("3g.40gb", 3, 40448 * MIB), ("2g.20gb", 2, 20096 * MIB), ("1g.10gb", 1, 9856 * MIB)), world.now_s)


def starve_second(world: World, *, is_on: bool) -> None:
    """The job on the second instance runs short of data."""
    world.jobs[1].set_prep_s(3.4 if is_on else 0.52)
