"""Faults of rule group A: the GPU waits, for data, for the host, for copies, for nobody."""

from __future__ import annotations

import msgspec

from gpumon.sources.simulator.chips import GIB, Machine
from gpumon.sources.simulator.world import World
from tests.bench.faults import fault
from tests.bench.plan import Draw, Plan, Rate, change, has_gpm, has_no_gpm

SLOW_DISK_BYTES_PER_S = 5e8
LOST = (0.03, 0.65)


def _starved(draw: Draw, plan: Plan, lost: float | None = None) -> Plan:
    plan.truth, plan.faulty_from, plan.healthy_to = Rate("starved_s", "launched_s"), 20.0, 5.0
    plan.level = None if lost is None else f"{lost:.2f}"
    plan.after_s = draw.rng.choice((0.0, 0.0, 240.0))
    # A loader that is too slow uses up first what it had prepared ahead.
    plan.is_slow = True
    return plan


def _loaded(draw: Draw, machine: Machine, **changes: object) -> Plan:
    return Plan(machine=machine, jobs=(draw.job(machine, eval_every_s=1e9, **changes),))


@fault(
    "workers-saturated",
    "data-starved",
    causes=("workers-saturated",),
    also=("throughput-drop",),
    budget_s=90.0,
    weight=2.0,
)
def workers_saturated(draw: Draw) -> Plan:
    """Preparing a batch takes longer: heavier augmentation, larger images."""
    rng, machine = draw.rng, draw.machine()
    plan = _loaded(draw, machine)
    spec, lost = plan.jobs[0], rng.uniform(*LOST)
    before, slow = spec.prep_s, spec.workers * spec.step_s / (1.0 - lost)
    plan.turn = lambda world: world.jobs[0].set_prep_s(slow)
    plan.undo = lambda world: world.jobs[0].set_prep_s(before)
    if spec.workers <= 2:
        plan.causes = ("workers-saturated", "too-few-workers")
    return _starved(draw, plan, lost)


@fault("too-few-workers", "data-starved", causes=("too-few-workers",), also=("throughput-drop",), budget_s=90.0)
def too_few_workers(draw: Draw) -> Plan:
    """The main thread loads by itself, or one or two workers do while cores idle."""
    rng, machine = draw.rng, draw.machine(most=4)
    workers = rng.choice((0, 0, 0, 1, 2))
    lost = rng.uniform(*LOST)
    plan = _loaded(draw, machine, workers=workers, syncs=workers == 0 or rng.random() < 0.4)
    spec = plan.jobs[0]
    prep = spec.step_s * lost / (1.0 - lost) if workers == 0 else workers * spec.step_s / (1.0 - lost)
    spec = msgspec.structs.replace(spec, prep_s=prep, batch_bytes=max(spec.batch_bytes, 6e7 * prep))
    plan.jobs = (spec,)
    plan.is_static = True
    # Without workers both names say the same, and the same cure: the probe knows that it is the main thread.
    plan.causes = ("too-few-workers", "workers-saturated" if workers else "main-thread")
    return _starved(draw, plan, lost)


@fault("disk-bound", "data-starved", causes=("disk-bound",), also=("throughput-drop",), budget_s=90.0)
def disk_bound(draw: Draw) -> Plan:
    """The page cache has lost the data set and the disk cannot keep up."""
    rng, machine = draw.rng, draw.machine()
    plan = _loaded(draw, machine)
    lost = rng.uniform(*LOST)
    spec = plan.jobs[0]
    size = max(spec.batch_bytes, 8e6)
    plan.jobs = (msgspec.structs.replace(spec, batch_bytes=size),)
    # As slow as it takes, for what the workers compute besides is hidden behind the reads of the others.
    rate = machine.gpus * size * (1.0 - lost) / spec.step_s

    def prepare(world: World) -> None:
        world.disk.hit_share, world.disk.bytes_per_s = 0.97, rate

    def turn(world: World) -> None:
        world.disk.hit_share = rng.uniform(0.0, 0.02)

    def undo(world: World) -> None:
        world.disk.hit_share = 0.97

    plan.prepare, plan.turn, plan.undo = prepare, turn, undo
    return _starved(draw, plan, lost)


@fault(
    "network-storage-bound", "data-starved", causes=("network-storage-bound",), also=("throughput-drop",), budget_s=90.0
)
def network_storage_bound(draw: Draw) -> Plan:
    """The file server answers slowly: little bandwidth is left, or each read takes long."""
    rng, machine = draw.rng, draw.machine()
    kind = rng.choice(("nfs4", "nfs4", "lustre", "fuse"))
    lost = rng.uniform(*LOST)
    plan = _loaded(draw, machine, data_filesystem=kind)
    spec = plan.jobs[0]
    size = max(spec.batch_bytes, 6e6)
    spec = msgspec.structs.replace(spec, batch_bytes=size, prep_s=min(spec.prep_s, 0.4 * spec.workers * spec.step_s))
    plan.jobs = (spec,)
    by_latency = rng.random() < 0.4
    cycle_s = spec.step_s / (1.0 - lost)

    def prepare(world: World) -> None:
        world.network.hit_share, world.network.bytes_per_s = 0.0, 6.0 * machine.gpus * size / spec.step_s

    def turn(world: World) -> None:
        if by_latency:
            world.network.latency_s = max(0.03, spec.workers * cycle_s - spec.prep_s)
        else:
            world.network.bytes_per_s = machine.gpus * size / cycle_s

    def undo(world: World) -> None:
        world.network.latency_s = 0.03
        world.network.bytes_per_s = 6.0 * machine.gpus * size / spec.step_s

    plan.prepare, plan.turn, plan.undo = prepare, turn, undo
    return _starved(draw, plan, lost)


@fault("cpu-neighbours", "data-starved", causes=("cpu-contention",), also=("throughput-drop",), budget_s=90.0)
def cpu_neighbours(draw: Draw) -> Plan:
    """Another user's processes take the cores."""
    rng, machine = draw.rng, draw.machine()
    plan = _loaded(draw, machine, launch_share=rng.uniform(0.1, 0.25))
    spec, lost = plan.jobs[0], rng.uniform(*LOST)
    # Loaders with little to spare, and so many others that each worker gets too little.
    prep = spec.workers * spec.step_s / 1.35
    slowdown = 1.35 / (1.0 - lost)
    threads = slowdown * machine.cores - machine.gpus * (spec.workers + 1)
    plan.jobs = (msgspec.structs.replace(spec, prep_s=prep),)

    def turn(world: World) -> None:
        world.other_threads = max(threads, 0.0)

    def undo(world: World) -> None:
        world.other_threads = 0.02 * machine.cores

    plan.turn, plan.undo = turn, undo
    return _starved(draw, plan, lost)


@fault("cpu-quota", "data-starved", causes=("cpu-contention",), also=("throughput-drop",), budget_s=90.0)
def cpu_quota(draw: Draw) -> Plan:
    """A container's quota, or cores forgotten in the job script, are too few for the workers."""
    rng, machine = draw.rng, draw.machine(most=2)
    plan = _loaded(draw, machine, launch_share=rng.uniform(0.1, 0.2), workers=rng.randint(4, 8))
    spec, lost = plan.jobs[0], rng.uniform(0.1, 0.65)
    needed = machine.gpus * (1 + spec.prep_s / spec.step_s)
    cores = max(1.0, needed * (1.0 - lost))
    if rng.random() < 0.5:
        spec = msgspec.structs.replace(spec, quota_cores=round(cores, 1), container="9c0d3b77e1aa")
    else:
        spec = msgspec.structs.replace(spec, cpus=max(1, round(cores)))
    plan.jobs = (spec,)
    plan.is_static = True
    return _starved(draw, plan, lost)


@fault("host-bound", "host-bound", also=("throughput-drop",), budget_s=125.0)
def host_bound(draw: Draw) -> Plan:
    """The main thread launches more slowly than the device works: tiny operations, a synchronization in each."""
    rng, machine = draw.rng, draw.machine(most=4)
    launch = rng.uniform(1.05, 4.0)
    plan = _loaded(draw, machine)
    before = plan.jobs[0].launch_share
    plan.is_static = rng.random() < 0.6
    if plan.is_static:
        plan.jobs = (msgspec.structs.replace(plan.jobs[0], launch_share=launch),)
    else:
        plan.turn = lambda world: change(world.jobs[0], launch_share=launch)
        plan.undo = lambda world: change(world.jobs[0], launch_share=before)
    plan.truth, plan.faulty_from, plan.healthy_to = Rate("launched_s"), 25.0, 10.0
    plan.level = f"{launch:.2f}"
    return plan


@fault("kernels-too-small", "kernels-too-small", budget_s=150.0)
def kernels_too_small(draw: Draw) -> Plan:
    """Kernels follow each other without a gap and fill a part of the multiprocessors."""
    rng = draw.rng
    machine = draw.machine(has_gpm, most=1)
    sm = rng.uniform(0.08, 0.75)
    plan = _loaded(draw, machine, gap_share=0.004, launch_share=0.4)
    mix = msgspec.structs.replace(plan.jobs[0].mix, sm=sm, tensor=0.4 * sm, dram=0.35 * sm, fp32=0.1 * sm)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], mix=mix),)
    plan.is_static = True
    plan.truth, plan.faulty_from, plan.healthy_to = (lambda _world: 100.0 * (1.0 - sm)), 54.0, 46.0
    return plan


@fault("low-power-high-util", "low-power-high-util", budget_s=150.0)
def low_power_high_util(draw: Draw) -> Plan:
    """The same where the GPU does not tell how busy its multiprocessors are."""
    rng = draw.rng
    machine = draw.machine(has_no_gpm, most=1)
    sm = rng.uniform(0.06, 0.75)
    plan = _loaded(draw, machine, gap_share=0.004, launch_share=0.4)
    mix = msgspec.structs.replace(plan.jobs[0].mix, sm=sm, tensor=0.3 * sm, dram=0.2 * sm, fp32=0.1 * sm)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], mix=mix),)
    plan.is_static = True
    plan.truth, plan.faulty_from, plan.healthy_to = (lambda _world: 100.0 * (1.0 - mix.power())), 74.0, 62.0
    return plan


@fault("cpu-training", "cpu-training", budget_s=150.0)
def cpu_training(draw: Draw) -> Plan:
    """The model never got to the device."""
    rng, machine = draw.rng, draw.machine(most=2)
    kind = rng.choice(("wheel", "hidden", "unknown"))
    libraries = ("libtorch_cpu",) if kind == "wheel" else ("libtorch_cuda",)
    environment = {"CUDA_VISIBLE_DEVICES": ""} if kind == "hidden" else {}
    spec = draw.job(machine, workers=rng.choice((0, 2, 4)), step_s=8.0, prep_s=2.0, age_s=rng.uniform(300, 4000))
    spec = msgspec.structs.replace(spec, gpus=(0,), on_cpu=True, libraries=libraries, environment=environment)
    return Plan(machine=machine, jobs=(spec,), is_static=True)


@fault("h2d-slow", "h2d-slow", "data-starved", causes=("pageable-copies",), budget_s=150.0)
def h2d_slow(draw: Draw) -> Plan:
    """Copies from pageable memory, staged by the main thread while the device waits."""
    rng, machine = draw.rng, draw.machine(most=4)
    share = rng.uniform(0.02, 0.4)
    plan = _loaded(draw, machine, is_pinned=False, syncs=True)
    spec = plan.jobs[0]
    step_s = min(0.4, spec.step_s)  # batches of gigabytes would fill the shared memory first
    plan.jobs = (msgspec.structs.replace(spec, step_s=step_s, prep_s=spec.prep_s * step_s / spec.step_s),)
    size = 4.2e9 * plan.jobs[0].step_s * share / (1.0 - share)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], copied_bytes=size),)
    plan.is_static = True
    plan.probe = rng.random() < 0.7
    plan.truth, plan.faulty_from, plan.healthy_to = Rate("copied_s"), 20.0 if not plan.probe else 12.0, 8.0
    return plan


@fault("pause-cost", "pause-cost", budget_s=None)
def pause_cost(draw: Draw) -> Plan:
    """Checkpoints that take a large part of the time."""
    rng, machine = draw.rng, draw.machine()
    share = rng.uniform(0.03, 0.6)
    every = rng.uniform(150.0, 420.0)
    saved = {
        "checkpoint_every_s": every,
        "checkpoint_s": every * share,
        "checkpoint_bytes": every * share * 4e8,
    }
    plan = _loaded(draw, machine, **saved)
    plan.is_static, plan.lasts_s, plan.interval_s = True, 2700.0, rng.choice((1.0, 2.0, 5.0))
    plan.truth, plan.faulty_from, plan.healthy_to = (lambda _world: 100.0 * share), 30.0, 21.0
    return plan


@fault("idle-reserved", "idle-reserved", budget_s=None)
def idle_reserved(draw: Draw) -> Plan:
    """Somebody's process holds memory for an hour and does nothing."""
    rng, machine = draw.rng, draw.machine(most=4)
    gpu = draw.gpu(machine)
    spec = draw.job(machine, is_idle=True, workers=0, gpus=(gpu,), memory_bytes=int(rng.uniform(2, 7) * GIB))
    spec = msgspec.structs.replace(spec, command="python scratch.py", age_s=rng.uniform(60.0, 9000.0))
    other = ()
    if machine.gpus > 1:
        free = tuple(index for index in range(machine.gpus) if index != gpu)
        other = (msgspec.structs.replace(draw.job(machine, gpus=free), pid=spec.pid + 9000),)
    plan = Plan(machine=machine, jobs=(spec, *other), is_static=True, lasts_s=rng.uniform(2300.0, 4200.0))
    plan.interval_s = rng.choice((2.0, 5.0))
    plan.also = ("no-progress-single",)
    return plan
