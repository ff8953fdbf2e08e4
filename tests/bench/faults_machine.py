"""Faults of the machine around the GPUs: memory, /dev/shm, disks, a lost GPU, a driver that does not answer."""

from __future__ import annotations

from math import inf

import msgspec

from gpumon.model import Event, Snapshot
from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.world import World
from tests.bench.faults import fault
from tests.bench.plan import Draw, Eye, Plan


def _loaded(draw: Draw, plan: Plan, **changes: object) -> Plan:
    plan.jobs = (draw.job(plan.machine, **changes),)
    return plan


@fault("gpu-lost", "gpu-lost", "xid", also=("xid", "collective-hang", "training-died"), budget_s=5.0)
def gpu_lost(draw: Draw) -> Plan:
    """A GPU falls off the bus; its job stands still."""
    rng = draw.rng
    machine = draw.machine()
    gpu, has_line = draw.gpu(machine), rng.random() < 0.6
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        card = world.cards[gpu]
        card.is_lost = True
        if has_line:
            text = f"NVRM: Xid (PCI:{card.pci_bus_id[4:14].lower()}): 79, GPU has fallen off the bus."
            world.events.append(Event(kind="xid", gpu_uuid=card.uuid, xid=79, text=text))
        world.events.append(Event(kind="gpu-lost", gpu_uuid=card.uuid))
        for job in world.jobs:
            job.hang(world.now_s, culprit=gpu)

    plan.turn, plan.lasts_s = turn, 150.0
    return plan


def _stuck(snapshot: Snapshot, eye: Eye) -> Snapshot:
    """The driver has stopped to answer at the onset: values stay what they were and age."""
    age = eye.age_s(snapshot) - eye.onset_s
    if not eye.is_on or age <= 0:
        eye.last = snapshot
        return snapshot
    old = eye.last or snapshot
    gpus = tuple(msgspec.structs.replace(gpu, age_s=age, utilization_samples_pct=()) for gpu in old.gpus)
    host = msgspec.structs.replace(snapshot.host, driver_age_s=age)
    return msgspec.structs.replace(snapshot, gpus=gpus, host=host)


@fault("driver-stuck", "driver-stuck", budget_s=40.0)
def driver_stuck(draw: Draw) -> Plan:
    """A call into the driver does not come back."""
    plan = _loaded(draw, Plan(machine=draw.machine()))
    plan.sees, plan.lasts_s = [_stuck], 120.0
    return plan


@fault("ram-pressure", "ram-pressure", also=("worker-ram-leak", "training-died"))
def ram_pressure(draw: Draw) -> Plan:
    """Something eats the machine's memory."""
    rng = draw.rng
    machine = draw.machine()
    plan = _loaded(draw, Plan(machine=machine))
    spec = plan.jobs[0]
    ours = machine.gpus * (spec.trainer_rss_bytes + spec.workers * spec.worker_rss_bytes)
    left = machine.memory_bytes - machine.memory_base_bytes - ours
    target = rng.uniform(0.008, 0.3)
    begin = max(0.0, left - rng.uniform(0.35, 0.5) * machine.memory_bytes)
    over_s = rng.uniform(60.0, 240.0)
    rate = (left - target * machine.memory_bytes - begin) / over_s

    def prepare(world: World) -> None:
        world.hog_bytes = begin

    def turn(world: World) -> None:
        world.hog_bytes_per_s = max(0.0, rate)

    def tick(world: World) -> None:
        if world.hog_bytes >= left - target * machine.memory_bytes:
            world.hog_bytes_per_s = 0.0

    plan.prepare, plan.turn, plan.tick, plan.is_slow = prepare, turn, tick, True
    plan.truth = lambda world: 100.0 * (1.0 - (left - world.hog_bytes) / machine.memory_bytes)
    plan.faulty_from, plan.healthy_to = 91.0, 82.0
    plan.lasts_s, plan.level = 420.0, f"{target:.3f}"
    return plan


@fault("oom-kill", "ram-pressure", also=("worker-ram-leak", "training-died"))
def oom_kill(draw: Draw) -> Plan:
    """Memory runs out and the kernel kills the trainer."""
    machine = draw.machine()
    plan = _loaded(draw, Plan(machine=machine), restart_after_s=inf)
    rate = draw.rng.uniform(0.6, 1.6) * machine.memory_bytes / 200.0

    def turn(world: World) -> None:
        world.hog_bytes_per_s = rate

    def tick(world: World) -> None:
        if world.oom_kills:
            world.hog_bytes_per_s, world.hog_bytes = 0.0, 0.2 * machine.memory_bytes

    plan.turn, plan.tick, plan.lasts_s = turn, tick, 360.0
    plan.rules = ("ram-pressure", "training-died")
    return plan


@fault("shm-full", "shm-full", also=("training-died",))
def shm_full(draw: Draw) -> Plan:
    """/dev/shm fills up, or is as small as Docker makes it."""
    rng = draw.rng
    machine = draw.machine(most=4)
    is_small = rng.random() < 0.4
    changes: dict[str, object] = {"copied_bytes": 1.5e6, "container": "3f2a9c41d0b7"} if is_small else {}
    if is_small:
        changes["shm_total_bytes"] = 64 * MIB
    plan = _loaded(draw, Plan(machine=machine), **changes)
    total = machine.memory_bytes // 2
    share = rng.uniform(0.3, 0.99)

    def turn(world: World) -> None:
        if not is_small:
            world.shm_extra_bytes = share * total

    plan.turn = turn
    plan.is_static = is_small
    plan.also = ("ram-pressure",)
    plan.truth = lambda world: 100.0 if is_small else 100.0 * world.shm_extra_bytes / total
    plan.faulty_from, plan.healthy_to = 82.0, 75.0
    return plan


@fault("worker-ram-leak", "worker-ram-leak", "ram-pressure", also=("ram-pressure", "training-died"))
def worker_ram_leak(draw: Draw) -> Plan:
    """Workers copy the data set's Python objects page by page."""
    rng = draw.rng
    machine = draw.machine(most=4)
    plan = _loaded(draw, Plan(machine=machine))
    spec = plan.jobs[0]
    count = machine.gpus * spec.workers
    left = machine.memory_bytes - machine.memory_base_bytes - machine.gpus * spec.trainer_rss_bytes
    left -= count * spec.worker_rss_bytes
    over_s = rng.uniform(1500.0, 3000.0)
    rate = rng.uniform(0.35, 0.9) * left / over_s / count

    def turn(world: World) -> None:
        world.worker_leak_bytes_per_s = rate

    plan.turn, plan.lasts_s, plan.interval_s = turn, over_s, 5.0
    plan.level = f"{rate * count * over_s / GIB:.0f} GiB"
    return plan


@fault("disk-full", "disk-full")
def disk_full(draw: Draw) -> Plan:
    """The volume of the checkpoints has no room for two more."""
    rng = draw.rng
    machine = draw.machine()
    plan = _loaded(draw, Plan(machine=machine), checkpoint_every_s=rng.uniform(120.0, 240.0), checkpoint_s=8.0)
    size = plan.jobs[0].checkpoint_bytes
    room = rng.uniform(0.2, 8.0)
    total = 400.0 * size

    def prepare(world: World) -> None:
        world.volume = (total, 60.0 * size)

    def turn(world: World) -> None:
        world.volume = (total, room * size)

    plan.prepare, plan.turn, plan.before_s, plan.lasts_s = prepare, turn, 420.0, 400.0
    plan.truth = lambda world: 100.0 - (world.volume[1] / size if world.volume else 100.0)
    plan.faulty_from, plan.healthy_to = 98.5, 92.0
    return plan


def _updated(snapshot: Snapshot, eye: Eye) -> Snapshot:
    """The driver's package was updated under the loaded module."""
    if not eye.is_on:
        return snapshot
    host = msgspec.structs.replace(snapshot.host, nvml_version="13.590.44.01", driver_library_version="590.44.01")
    return msgspec.structs.replace(snapshot, host=host)


@fault("driver-mismatch", "driver-mismatch", budget_s=15.0)
def driver_mismatch(draw: Draw) -> Plan:
    """The library on disk is newer than the kernel module: running jobs go on, new ones fail."""
    plan = _loaded(draw, Plan(machine=draw.machine()))
    plan.sees, plan.lasts_s = [_updated], 120.0
    return plan


@fault("gpu-misconfigured", "gpu-misconfigured", is_info=True, budget_s=15.0)
def gpu_misconfigured(draw: Draw) -> Plan:
    """A setting left over: launches block, persistence is off, others are kept out."""
    rng = draw.rng
    machine = draw.machine(lambda one: one.chassis == "server")
    kind = rng.choice(("blocking", "persistence", "exclusive"))
    environment = {"CUDA_LAUNCH_BLOCKING": "1"} if kind == "blocking" else {}
    plan = _loaded(draw, Plan(machine=machine), environment=environment)

    def prepare(world: World) -> None:
        for card in world.cards:
            if kind == "persistence":
                card.said["persistence"] = False
            elif kind == "exclusive":
                card.said["compute_mode"] = "exclusive-process"

    plan.prepare, plan.is_static, plan.lasts_s, plan.level = prepare, True, 120.0, kind
    return plan
