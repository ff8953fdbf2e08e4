"""Healthy runs that look like trouble: everything that must stay silent."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec

from gpumon.sources.simulator.chips import GIB, Machine
from gpumon.sources.simulator.spec import JobSpec
from gpumon.sources.simulator.strangers import Stranger
from gpumon.sources.simulator.world import World
from tests.bench import views
from tests.bench.machines import LAPTOP
from tests.bench.plan import Draw, Plan, has_fan, inlet_for

Make = Callable[[Draw], Plan]
CONFOUNDERS: dict[str, Make] = {}


def confounder(make: Make) -> Make:
    """Register a healthy kind of run under its function's name."""
    CONFOUNDERS[make.__name__.replace("_", "-")] = make
    return make


def _run(draw: Draw, machine: Machine | None = None, **changes: object) -> Plan:
    machine = machine or draw.machine()
    jobs = (draw.job(machine, **changes),)
    return Plan(machine=machine, jobs=jobs, lasts_s=draw.rng.uniform(900.0, 2100.0))


@confounder
def steady(draw: Draw) -> Plan:
    """A job that trains, with its checkpoints and evaluations."""
    return _run(draw)


@confounder
def warm_up_and_compile(draw: Draw) -> Plan:
    """The process loads and compiles for minutes before its first step."""
    rng = draw.rng
    return _run(draw, age_s=-rng.uniform(20.0, 120.0), load_s=rng.uniform(100.0, 1000.0), compiles=rng.random() < 0.7)


@confounder
def cold_first_epoch(draw: Draw) -> Plan:
    """The data set comes from the disk once, then from memory."""
    rng = draw.rng
    plan = _run(draw, age_s=-rng.uniform(20.0, 60.0), load_s=30.0)
    spec, machine = plan.jobs[0], plan.machine
    size = max(2e7, spec.batch_bytes)
    rate = machine.gpus * size / spec.step_s * rng.uniform(0.5, 0.95)
    plan.jobs = (msgspec.structs.replace(spec, batch_bytes=size, dataset_bytes=rate * rng.uniform(150.0, 330.0)),)

    def prepare(world: World) -> None:
        world.disk.hit_share, world.disk.bytes_per_s = 0.985, rate

    plan.prepare = prepare
    return plan


@confounder
def long_checkpoints(draw: Draw) -> Plan:
    """Rank 0 writes for up to five minutes while the others wait in a barrier; it is worth it once in an hour."""
    rng = draw.rng
    seconds = rng.uniform(10.0, 300.0)
    every = max(900.0, seconds * rng.uniform(12.0, 25.0))
    size = seconds * rng.uniform(1.2e8, 9e8)
    plan = _run(draw, checkpoint_s=seconds, checkpoint_every_s=every, checkpoint_bytes=size)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], age_s=every * 3 - rng.uniform(200.0, 700.0)),)
    return plan


@confounder
def evaluations(draw: Draw) -> Plan:
    """Evaluations every few minutes, with gaps and less power."""
    rng = draw.rng
    every = rng.uniform(240.0, 900.0)
    return _run(draw, eval_every_s=every, eval_s=every * rng.uniform(0.03, 0.09))


@confounder
def epoch_ends(draw: Draw) -> Plan:
    """Workers are started anew at the end of each epoch."""
    rng = draw.rng
    return _run(draw, epoch_s=rng.uniform(120.0, 600.0), respawn_s=rng.uniform(1.5, 8.0))


@confounder
def variable_lengths(draw: Draw) -> Plan:
    """Batches of very different lengths."""
    return _run(draw, jitter=draw.rng.uniform(0.12, 0.35))


@confounder
def curriculum(draw: Draw) -> Plan:
    """The batch changes on purpose half-way."""
    rng = draw.rng
    plan = _run(draw)
    pace = rng.choice((0.6, 1.35, 1.7, 2.0))

    def turn(world: World) -> None:
        job = world.jobs[0]
        job.pace, job.batch = pace, round(job.batch * pace)
        job.set_prep_s(pace * job.prep_s)

    plan.turn = turn
    return plan


@confounder
def gradient_accumulation(draw: Draw) -> Plan:
    """The optimizer steps every few batches only."""
    return _run(draw, accumulates=draw.rng.choice((2, 4, 8)))


@confounder
def power_cap_always_on(draw: Draw) -> Plan:
    """The power limiter counts as active all the time at the default limit."""
    plan = _run(draw)

    def prepare(world: World) -> None:
        for card in world.cards:
            card.governor.always_caps = True

    plan.prepare = prepare
    return plan


@confounder
def hot_but_not_throttling(draw: Draw) -> Plan:
    """A few degrees below the limit, and no limiter."""
    plan = _run(draw)
    chip = plan.machine.chip
    inlet_c = inlet_for(chip, plan.jobs[0].mix.power(), chip.max_c - draw.rng.uniform(2.5, 5.0))

    def prepare(world: World) -> None:
        for card in world.cards:
            card.heat.inlet_c = inlet_c

    plan.prepare = prepare
    return plan


@confounder
def link_sleeps_when_idle(draw: Draw) -> Plan:
    """A consumer card between short jobs: the link and the clocks go down and come back."""
    rng = draw.rng
    machine = draw.machine(has_fan)
    return _run(draw, machine, debug_every_s=rng.uniform(100.0, 260.0), debug_s=rng.uniform(20.0, 90.0))


@confounder
def debugger(draw: Draw) -> Plan:
    """Somebody stands at a breakpoint now and then."""
    rng = draw.rng
    return _run(draw, debug_every_s=rng.uniform(200.0, 700.0), debug_s=rng.uniform(10.0, 150.0))


@confounder
def preallocation(draw: Draw) -> Plan:
    """JAX takes three quarters of the memory, and much more, at once."""
    rng = draw.rng
    machine = draw.machine(most=4)
    share = rng.choice((0.75, 0.75, 0.9, 0.95))
    plan = _run(
        draw,
        machine,
        framework="jax",
        workers=0,
        prep_s=0.002,
        batch_bytes=1e4,
        libraries=("libjax", "xla_extension"),
        environment={"XLA_CLIENT_MEM_FRACTION": f"{share}"} if share != 0.75 else {},
        memory_bytes=int(share * machine.chip.memory_total_bytes) - 600 * (1 << 20),
        memory_step_bytes=0,
        command="python train_jax.py --model vit",
    )
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], age_s=rng.choice((-60.0, 9000.0))),)
    plan.probe = False
    return plan


def _notebook(draw: Draw, gpu: int) -> JobSpec:
    rng = draw.rng
    machine = draw.machine(most=1)
    spec = draw.job(machine, is_idle=True, workers=0, gpus=(gpu,))
    return msgspec.structs.replace(
        spec,
        command="python -m ipykernel_launcher -f /run/user/1004/jupyter/kernel-7c1e.json",
        role="notebook",
        memory_bytes=int(rng.uniform(0.6, 6.0) * GIB),
        memory_step_bytes=0,
        age_s=rng.uniform(100.0, 2500.0),
    )


@confounder
def idle_notebooks(draw: Draw) -> Plan:
    """Notebooks that hold memory for a quarter of an hour while their owners think."""
    machine = draw.machine()
    specs = [_notebook(draw, gpu) for gpu in range(min(4, machine.gpus))]
    jobs = tuple(msgspec.structs.replace(spec, pid=spec.pid + 3000 * number) for number, spec in enumerate(specs))
    return Plan(machine=machine, jobs=jobs, lasts_s=draw.rng.uniform(600.0, 900.0))


@confounder
def inference_server(draw: Draw) -> Plan:
    """A server with its memory full, its load up and down, idle at times."""
    rng = draw.rng
    machine = draw.machine(most=2)
    return _run(
        draw,
        machine,
        role="server",
        framework="vllm",
        command="vllm serve meta-llama/Llama-3.1-8B --gpu-memory-utilization 0.9",
        libraries=("vllm", "libtorch_cuda"),
        step_s=0.12,
        jitter=0.3,
        gap_share=rng.uniform(0.2, 1.5),
        workers=0,
        prep_s=0.001,
        batch_bytes=1e3,
        memory_bytes=int(0.88 * machine.chip.memory_total_bytes),
        memory_step_bytes=0,
        debug_every_s=rng.uniform(150.0, 500.0),
        debug_s=rng.uniform(20.0, 200.0),
        checkpoint_every_s=inf,
        eval_every_s=inf,
        mix=msgspec.structs.replace(draw.job(machine).mix, tensor=0.08, dram=0.7),
    )


@confounder
def reinforcement_learning(draw: Draw) -> Plan:
    """Environments on the CPU are the job: the GPU waits for them by design."""
    rng = draw.rng
    machine = draw.machine(most=1)
    return _run(
        draw,
        machine,
        command=rng.choice(("python ppo.py --env HalfCheetah-v5", "python train_rl.py --algo ppo --num-envs 8")),
        workers=min(machine.cores - 2, 8),
        prefetch=0,
        rollout_s=0.2,
        prep_s=rng.uniform(0.2, 1.2),
        batch_bytes=1e3,
        step_s=rng.uniform(0.1, 0.6),
        eval_every_s=inf,
        libraries=("libtorch_cuda", "gymnasium"),
    )


@confounder
def pipeline_bubbles(draw: Draw) -> Plan:
    """Pipeline stages wait for each other a fifth of the time."""
    return _run(draw, draw.machine(least=2), bubble_share=draw.rng.uniform(0.08, 0.3), comm_share=0.02)


@confounder
def missing_fields(draw: Draw) -> Plan:
    """A driver that does not report half a dozen fields."""
    plan = _run(draw)
    plan.sees = [views.without_fields, *([views.without_gpm] if draw.rng.random() < 0.5 else [])]
    return plan


@confounder
def laptop_on_battery(draw: Draw) -> Plan:
    """A laptop without its charger: little power, low clocks, hot."""
    rng = draw.rng
    plan, watts = _run(draw, LAPTOP, memory_bytes=5 * GIB, step_s=0.4), rng.uniform(35.0, 80.0)

    def prepare(world: World) -> None:
        world.cards[0].governor.battery_w = watts

    plan.prepare, plan.sees = prepare, [views.on_battery]
    return plan


@confounder
def container(draw: Draw) -> Plan:
    """In a container with PIDs of its own: no process can be seen."""
    plan = _run(draw)
    plan.sees = [views.in_container]
    return plan


@confounder
def hidden_processes(draw: Draw) -> Plan:
    """Another user's job: little of its processes can be read."""
    plan = _run(draw)
    plan.sees, plan.probe = [views.with_others_hidden], False
    return plan


@confounder
def counter_resets(draw: Draw) -> Plan:
    """The driver's counters begin anew."""
    plan = _run(draw)
    plan.sees = [views.with_resets]
    return plan


@confounder
def clock_jumps(draw: Draw) -> Plan:
    """The wall clock is set back, and the machine sleeps."""
    plan = _run(draw)
    plan.lasts_s, plan.sees = 1500.0, [views.with_clock_jumps]
    return plan


@confounder
def spinning_main_thread(draw: Draw) -> Plan:
    """A GPU-bound loop whose main thread spins at 100 % in every synchronization."""
    return _run(draw, syncs=True, launch_share=draw.rng.uniform(0.1, 0.8), gap_share=0.01)


@confounder
def busy_loader(draw: Draw) -> Plan:
    """Workers at nearly full CPU that just keep up."""
    plan = _run(draw)
    spec = plan.jobs[0]
    plan.jobs = (msgspec.structs.replace(spec, prep_s=spec.workers * spec.step_s / draw.rng.uniform(1.06, 1.2)),)
    return plan


@confounder
def mildly_starved(draw: Draw) -> Plan:
    """A loader that is a little too slow: a few percent, not worth an alert."""
    plan = _run(draw, eval_every_s=inf)
    spec = plan.jobs[0]
    plan.jobs = (msgspec.structs.replace(spec, prep_s=spec.workers * spec.step_s * draw.rng.uniform(0.98, 1.06)),)
    return plan


@confounder
def neighbour_in_peace(draw: Draw) -> Plan:
    """Another user's small process on the GPU, and a busy build elsewhere on the machine."""
    machine = draw.machine()
    plan = _run(draw, machine, memory_bytes=int(0.5 * machine.chip.memory_total_bytes))

    def prepare(world: World) -> None:
        world.other_threads = 0.2 * machine.cores
        one = Stranger(
            pid=7311,
            user="tom",
            command="/usr/bin/nvtop",
            card=world.cards[0],
            held_bytes=180 << 20,
            cpu_pct=4.0,
            role="other",
            framework=None,
        )
        one.arrive(world.now_s - 5000.0)
        world.strangers.append(one)

    plan.prepare = prepare
    return plan


@confounder
def high_water_creep(draw: Draw) -> Plan:
    """Reserved memory goes up in steps as new longest batches arrive, well within the card."""
    plan = _run(draw, jitter=0.2)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], age_s=250.0),)
    return plan


@confounder
def nobody(draw: Draw) -> Plan:
    """Idle GPUs and no job."""
    return Plan(machine=draw.machine(), lasts_s=1200.0)


@confounder
def several_jobs(draw: Draw) -> Plan:
    """Two jobs of two users on the GPUs of one machine."""
    machine = draw.machine(least=2)
    half = machine.gpus // 2
    first = draw.job(machine, gpus=tuple(range(half)))
    second = draw.job(machine, gpus=tuple(range(half, machine.gpus)))
    second = msgspec.structs.replace(second, pid=first.pid + 5000, user="tom")
    return Plan(machine=machine, jobs=(first, second), lasts_s=draw.rng.uniform(900.0, 1800.0))


@confounder
def ends_and_restarts(draw: Draw) -> Plan:
    """A sweep: short runs that end well, each followed by the next."""
    rng = draw.rng
    lasts_s, pause_s = rng.uniform(200.0, 500.0), rng.uniform(5.0, 40.0)
    plan = _run(draw, draw.machine(most=2), lasts_s=lasts_s, restart_after_s=pause_s, age_s=150.0)
    plan.also = ("training-ended",)
    command = plan.jobs[0].command + " --seed {attempt}"
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], command=command),)
    return plan
