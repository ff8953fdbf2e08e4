"""Faults of jobs and their memory: leaks, fragmentation, hangs, stragglers, ends (rule groups C8, D, E, H)."""

from __future__ import annotations

from collections import deque
from math import inf

import msgspec

from gpumon.sources.simulator.card import Card
from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.strangers import Stranger
from gpumon.sources.simulator.world import World
from tests.bench.faults import fault
from tests.bench.plan import Draw, Plan, Truth


def _loaded(draw: Draw, plan: Plan, **changes: object) -> Plan:
    plan.jobs = (draw.job(plan.machine, **changes),)
    return plan


@fault("throughput-drop", "throughput-drop", budget_s=None)
def throughput_drop(draw: Draw) -> Plan:
    """Steps take longer from one moment on and no signal says why."""
    rng = draw.rng
    plan = _loaded(draw, Plan(machine=draw.machine()), eval_every_s=inf)
    pace = rng.uniform(1.02, 1.7)

    def turn(world: World) -> None:
        world.jobs[0].pace = pace

    plan.turn, plan.probe, plan.before_s, plan.lasts_s = turn, True, rng.uniform(400.0, 700.0), 420.0
    plan.truth = lambda world: 100.0 * (world.jobs[0].pace - 1.0)
    plan.faulty_from, plan.healthy_to = 14.0, 8.0
    return plan


@fault("memory-leak", "memory-leak", "oom-risk", also=("training-died", "oom-risk"))
def memory_leak(draw: Draw) -> Plan:
    """Every step leaves tensors behind."""
    rng = draw.rng
    machine = draw.machine(most=4)
    rate = rng.uniform(0.6, 9.0) * MIB * machine.chip.memory_total_bytes / (48 * GIB)
    total = machine.chip.memory_total_bytes
    plan = _loaded(draw, Plan(machine=machine), leak_bytes=rate, memory_bytes=int(rng.uniform(0.35, 0.6) * total))
    spec = plan.jobs[0]

    def turn(world: World) -> None:
        world.jobs[0].is_ill = True

    to_oom_s = (0.96 * total - spec.memory_bytes) / rate * spec.step_s
    plan.turn, plan.probe = turn, True
    plan.lasts_s = min(to_oom_s * 0.9, 3600.0)
    plan.interval_s = 1.0 if plan.lasts_s < 1200 else 5.0
    plan.level = f"oom in {to_oom_s / 60:.0f} min"
    plan.truth = lambda world: 100.0 * world.jobs[0].is_ill
    plan.faulty_from = 50.0 if plan.lasts_s > 700 * spec.step_s else 101.0
    return plan


@fault("oom-risk", "oom-risk", "memory-leak", also=("memory-leak", "alloc-retry", "fragmentation", "training-died"))
def oom_risk(draw: Draw) -> Plan:
    """Memory is nearly full and still grows a little: the batches get longer."""
    rng = draw.rng
    machine = draw.machine(most=2)
    total = machine.chip.memory_total_bytes
    share = rng.uniform(0.9, 0.95)
    rate = rng.uniform(0.4, 2.0) * 1e-5 * total
    plan = _loaded(
        draw,
        Plan(machine=machine),
        memory_bytes=int(share * total) - 800 * MIB,
        memory_step_bytes=0,
        leak_bytes=rate,
        peak_share=0.985,
    )

    def turn(world: World) -> None:
        world.jobs[0].is_ill = True

    left = 0.965 * total - share * total
    plan.turn, plan.lasts_s = turn, min(900.0, 0.85 * left / rate * plan.jobs[0].step_s)
    grown = plan.lasts_s / plan.jobs[0].step_s * rate / total

    def truth(world: World) -> float:
        """How much it grows by; without a probe nobody can call 91 % nearly full."""
        used = max(sum(part.used_bytes() for part in card.slices) + card.desktop_bytes for card in world.cards)
        is_near = world.is_probed or used >= 0.92 * total
        return 100.0 * grown if is_near else min(1.0, 100.0 * grown)

    plan.truth, plan.faulty_from, plan.healthy_to, plan.is_slow = truth, 1.3, 0.0, True
    return plan


@fault("fragmentation", "fragmentation", "alloc-retry", also=("oom-risk", "alloc-retry", "throughput-drop"))
def fragmentation(draw: Draw) -> Plan:
    """Varying shapes cut the cache to pieces until it is twice what is ever needed."""
    return _torn(draw, peak=draw.rng.uniform(0.4, 0.62))


@fault("alloc-retry", "alloc-retry", "fragmentation", "oom-risk", also=("oom-risk", "fragmentation", "throughput-drop"))
def alloc_retry(draw: Draw) -> Plan:
    """The allocator asks for more than there is, flushes its cache and asks again, every few dozen steps."""
    plan = _torn(draw, peak=draw.rng.uniform(0.8, 0.95))
    # By its definition: from one failed allocation in 100 steps on; less is fragmentation alone.
    plan.truth, plan.faulty_from, plan.healthy_to, plan.is_slow = _retries_per_100_steps(), 1.1, 0.05, True
    return plan


def _retries_per_100_steps() -> Truth:
    """Over the last 300 steps of the first rank."""
    seen: deque[tuple[int, int]] = deque()

    def rate(world: World) -> float:
        job = world.jobs[0]
        seen.append((job.steps, job.allocator.retries))
        while seen[-1][0] - seen[0][0] > 300:
            seen.popleft()
        steps = seen[-1][0] - seen[0][0]
        return 100.0 * (seen[-1][1] - seen[0][1]) / steps if steps >= 200 else 0.0

    return rate


def _torn(draw: Draw, peak: float) -> Plan:
    rng = draw.rng
    machine = draw.machine(most=2)
    total = machine.chip.memory_total_bytes
    base = int(rng.uniform(0.66, 0.74) * total)
    waste = rng.uniform(0.15, 0.6) * MIB * total / GIB
    plan = _loaded(
        draw, Plan(machine=machine), memory_bytes=base, waste_bytes=waste, peak_share=peak, floor_share=0.5 * peak
    )
    spec = plan.jobs[0]
    step_s = min(0.6, spec.step_s)
    spec = msgspec.structs.replace(spec, jitter=0.12, step_s=step_s, prep_s=spec.prep_s * step_s / spec.step_s)
    plan.jobs = (spec,)

    def turn(world: World) -> None:
        world.jobs[0].is_ill = True

    fills_s = 0.3 * total / (3.0 * waste) * plan.jobs[0].step_s
    plan.turn, plan.probe, plan.lasts_s, plan.is_static = turn, True, fills_s + 500.0, True
    return plan


@fault("vram-orphaned", "vram-orphaned", "training-died", also=("training-died", "training-ended"))
def vram_orphaned(draw: Draw) -> Plan:
    """A killed run leaves its memory behind, held by nobody who can be seen."""
    machine = draw.machine(most=4)
    size = int(draw.rng.uniform(0.05, 0.3) * machine.chip.memory_total_bytes)
    gpu = draw.gpu(machine)
    plan = _loaded(draw, Plan(machine=machine), restart_after_s=inf)

    def turn(world: World) -> None:
        for job in world.jobs:
            job.kill(world.now_s, None)
        world.cards[gpu].orphaned_bytes = size

    plan.turn = turn
    return plan


@fault("gpu-contention", "gpu-contention", also=("throughput-drop", "oom-risk", "straggler"))
def gpu_contention(draw: Draw) -> Plan:
    """Somebody else starts a program on the same GPU."""
    rng = draw.rng
    machine = draw.machine(most=4)
    gpu, share = draw.gpu(machine), rng.uniform(0.02, 0.6)
    total = machine.chip.memory_total_bytes
    plan = _loaded(draw, Plan(machine=machine), memory_bytes=int(rng.uniform(0.4, 0.7) * total))
    held = int(rng.uniform(0.05, 0.2) * total)

    def turn(world: World) -> None:
        card = world.cards[gpu]
        stranger = Stranger(
            pid=61234, user="tom", command="python infer.py", card=card, held_bytes=held, sm_share=share
        )
        stranger.arrive(world.now_s)
        world.strangers.append(stranger)
        for rank in world.jobs[0].ranks:
            if rank.card is card:
                rank.slower, rank.taken_share = 1.0 / (1.0 - share), share

    plan.turn = turn
    plan.truth = lambda world: 100.0 * (share if world.strangers else 0.0)
    plan.faulty_from, plan.healthy_to = 15.0, 6.0
    return plan


@fault("collective-hang", "collective-hang", also=("training-died", "no-progress-single"), weight=2.0)
def collective_hang(draw: Draw) -> Plan:
    """A rank skips a collective, or dies, and the others spin for ever."""
    rng = draw.rng
    machine = draw.machine(least=2)
    culprit, dies = draw.gpu(machine), rng.random() < 0.4
    plan = _loaded(draw, Plan(machine=machine), checkpoint_every_s=inf, eval_every_s=inf)
    plan.before_s = rng.uniform(250.0, 600.0)

    def turn(world: World) -> None:
        job = world.jobs[0]
        if dies:
            job.lose_rank(world.now_s, culprit)
        else:
            job.hang(world.now_s, culprit)

    plan.turn, plan.lasts_s = turn, rng.choice((420.0, 420.0, 900.0))
    plan.level = "death" if dies else "skip"
    if dies:
        plan.rules = ("collective-hang", "training-died")
    return plan


@fault("straggler", "straggler", also=("data-starved", "throughput-drop", "sw-thermal"))
def straggler(draw: Draw) -> Plan:
    """One rank is slower than the others: its clock, its data, its work, its slot."""
    rng = draw.rng
    machine = draw.machine(least=2)
    gpu = draw.gpu(machine)
    kind = rng.choice(("clock", "data", "work"))
    plan = _loaded(draw, Plan(machine=machine), eval_every_s=inf)
    spec = plan.jobs[0]
    factor = rng.uniform(1.03, 1.7)

    def turn(world: World) -> None:
        if kind == "clock":
            world.cards[gpu].heat.air_target = 1.0 + 2.2 * (factor - 0.7)
        elif kind == "data":
            world.jobs[0].set_prep_s(spec.workers * spec.step_s * factor, rank=gpu)
        else:
            world.jobs[0].ranks[gpu].slower = factor

    plan.turn, plan.lasts_s, plan.level = turn, 480.0, f"{kind} {factor:.2f}"
    if kind == "work":
        plan.probe = True  # without it nothing tells such a rank from the others
        plan.truth = lambda world: 100.0 * (factor - 1.0) * (world.jobs[0].ranks[gpu].slower > 1.0)
        plan.faulty_from, plan.healthy_to = 40.0, 9.0
    elif kind == "clock":
        plan.rules, plan.also, plan.is_slow = ("sw-thermal", "straggler"), ("cooling-degraded",), True
        plan.truth = lambda world: 100.0 * (1.0 - world.cards[gpu].mhz / world.cards[gpu].boost_mhz)
        plan.faulty_from, plan.healthy_to = 8.0, 3.0
    else:
        plan.rules = ("data-starved", "straggler")
        plan.truth = lambda _world: 100.0 * (1.0 - 1.0 / factor)
        plan.faulty_from, plan.healthy_to = 22.0, 8.0
    return plan


@fault("mixed-gpus", "mixed-gpus", is_info=True, also=("straggler", "power-capped-low"))
def mixed_gpus(draw: Draw) -> Plan:
    """One job over GPUs of two kinds, or with two power limits."""
    rng = draw.rng
    machine = draw.machine(least=2)
    by_limit = rng.random() < 0.5

    def prepare(world: World) -> None:
        if by_limit:
            world.cards[-1].governor.limit_w = round(0.7 * machine.chip.limit_w)
            return
        old = world.cards[-1]
        window_s = old.slices[0].activity.window_s
        fewer = machine.chip.sm_count - 18
        other = msgspec.structs.replace(machine.chip, name=f"{machine.chip.name} PCIe", sm_count=fewer)
        world.cards[-1] = Card(
            other, old.index, inlet_c=machine.chip.inlet_c, window_s=window_s, start_s=world.now_s, rng=world.rng
        )

    plan = _loaded(draw, Plan(machine=machine))
    plan.prepare, plan.is_static = prepare, True
    return plan


@fault("training-died", "training-died", budget_s=15.0)
def training_died(draw: Draw) -> Plan:
    """The processes are gone, first one, then the others."""
    rng = draw.rng
    machine = draw.machine()
    plan = _loaded(draw, Plan(machine=machine), restart_after_s=inf, checkpoint_every_s=1e5)
    is_ragged = machine.gpus > 1 and rng.random() < 0.7

    def turn(world: World) -> None:
        job = world.jobs[0]
        if is_ragged:
            job.lose_rank(world.now_s, 0)
        else:
            job.kill(world.now_s, None)

    waits = [rng.uniform(15.0, 90.0) / plan.interval_s if plan.interval_s else rng.uniform(15.0, 60.0)]

    def tick(world: World) -> None:
        # The others follow when their collective gives up.
        waits[0] -= 1.0
        if is_ragged and waits[0] <= 0:
            world.jobs[0].kill(world.now_s, None)

    plan.level = "ragged" if is_ragged else "at once"
    plan.turn, plan.tick, plan.lasts_s = turn, tick, 120.0
    if is_ragged:
        # One has ended and the others wait for it in a collective: after a minute both are true.
        plan.rules = ("training-died", "collective-hang")
    if not is_ragged:
        # From outside nobody can tell a crash from the end; a process with the probe says farewell at its end.
        plan.probe = rng.random() < 0.6
        plan.rules = ("training-died",) if plan.probe else ("training-died", "training-ended")
        plan.is_info = not plan.probe
    return plan


@fault("training-ended", "training-ended", is_info=True, budget_s=15.0)
def training_ended(draw: Draw) -> Plan:
    """The job is done."""
    rng = draw.rng
    plan = _loaded(draw, Plan(machine=draw.machine()), restart_after_s=inf, age_s=3000.0)
    before = rng.uniform(150.0, 400.0)
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], lasts_s=3008.0 + before),)
    plan.before_s, plan.lasts_s, plan.probe = before, 120.0, True
    return plan


@fault("no-progress-single", "no-progress-single")
def no_progress_single(draw: Draw) -> Plan:
    """The only process of a job waits for ever: a lock, a prompt, a license server."""
    machine = draw.machine(most=1)
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        world.jobs[0].hang(world.now_s, culprit=0)

    plan.turn, plan.lasts_s, plan.before_s = turn, 600.0, 400.0
    return plan
