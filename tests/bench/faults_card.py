"""Faults of the card itself: its kernels' mix, heat, clocks, power, links and memory cells (rule groups B, C, E, F)."""

from __future__ import annotations

import msgspec

from gpumon.model import Event
from gpumon.sources.simulator.card import Card
from gpumon.sources.simulator.links import Links
from gpumon.sources.simulator.world import World
from tests.bench.faults import fault
from tests.bench.plan import (
    Draw,
    Plan,
    Truth,
    has_counters,
    has_ecc,
    has_fan,
    has_gpm,
    has_nvlink,
    of_memory,
)


def _loaded(draw: Draw, plan: Plan, **changes: object) -> Plan:
    plan.jobs = (draw.job(plan.machine, **changes),)
    return plan


def _clock_lost(gpu: int, *limiters: str) -> Truth:
    """Percent of the boost clock that the limiter costs now."""

    def lost(world: World) -> float:
        governor = world.cards[gpu].governor
        if governor.held_by not in limiters:
            return 0.0
        return 100.0 * (1.0 - world.cards[gpu].mhz / world.cards[gpu].boost_mhz)

    return lost


@fault("tensor-cores-idle", "tensor-cores-idle", budget_s=150.0)
def tensor_cores_idle(draw: Draw) -> Plan:
    """Full precision on the ordinary cores."""
    rng = draw.rng
    plan = _loaded(draw, Plan(machine=draw.machine(has_gpm, most=4)), gap_share=0.005)
    mix = plan.jobs[0].mix
    fp32 = rng.uniform(0.3, 0.62)
    mix = msgspec.structs.replace(
        mix, sm=rng.uniform(0.7, 0.95), tensor=rng.choice((0.0, 0.01, 0.03)), fp32=fp32, dram=rng.uniform(0.2, 0.5)
    )
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], mix=mix),)
    plan.is_static = True
    return plan


@fault("bandwidth-bound", "bandwidth-bound", is_info=True, budget_s=150.0)
def bandwidth_bound(draw: Draw) -> Plan:
    """Elementwise kernels: the memory is the limit."""
    rng = draw.rng
    plan = _loaded(draw, Plan(machine=draw.machine(has_gpm, most=4)), gap_share=0.005)
    mix = msgspec.structs.replace(
        plan.jobs[0].mix,
        sm=rng.uniform(0.7, 0.95),
        tensor=rng.uniform(0.02, 0.18),
        fp32=rng.uniform(0.05, 0.18),
        dram=rng.uniform(0.67, 0.85),
    )
    plan.jobs = (msgspec.structs.replace(plan.jobs[0], mix=mix),)
    plan.is_static = True
    return plan


@fault("hw-thermal", "hw-thermal", also=("sw-thermal", "straggler", "cooling-degraded"), budget_s=5.0)
def hw_thermal(draw: Draw) -> Plan:
    """A pump or all fans fail: even the lowest clock is too hot, and the hardware cuts it."""
    machine = draw.machine(has_counters)
    gpu, factor = draw.gpu(machine), draw.rng.uniform(9.0, 16.0)
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        heat = world.cards[gpu].heat
        heat.air_target = factor
        if machine.chip.fan is not None:
            heat.fan_stuck_pct = 0.0

    plan.turn, plan.lasts_s, plan.is_slow = turn, 420.0, True
    plan.truth = _clock_lost(gpu, "hw_thermal")
    plan.faulty_from, plan.healthy_to = 10.0, 0.5
    return plan


@fault(
    "sw-thermal", "sw-thermal", also=("straggler", "cooling-degraded", "throughput-drop"), budget_s=150.0, weight=2.0
)
def sw_thermal(draw: Draw) -> Plan:
    """Less air: the card stands at its temperature limit and lowers its clock."""
    rng = draw.rng
    plan = _loaded(draw, Plan(machine=draw.machine()))
    machine = plan.machine
    chosen = tuple(range(machine.gpus)) if rng.random() < 0.2 else (draw.gpu(machine),)
    factor = rng.uniform(1.3, 4.0)

    def turn(world: World) -> None:
        for gpu in chosen:
            world.cards[gpu].heat.air_target = factor

    def undo(world: World) -> None:
        for gpu in chosen:
            world.cards[gpu].heat.air_target = 1.0

    plan.turn, plan.undo, plan.lasts_s, plan.is_slow = turn, undo, 480.0, True
    plan.after_s = rng.choice((0.0, 240.0))
    plan.truth = _clock_lost(chosen[0], "sw_thermal", "hw_thermal")
    plan.faulty_from, plan.healthy_to = 5.0, 2.0
    return plan


@fault("memory-hot", "memory-hot", "sw-thermal", also=("straggler", "throughput-drop"))
def memory_hot(draw: Draw) -> Plan:
    """A pad of the memory has lost contact."""
    machine = draw.machine(of_memory)
    gpu, chip = draw.gpu(machine), machine.chip
    # Such that the memory would come to lie from far below its limit to far above.
    watts = 0.9 * min(chip.busy_w, chip.limit_w)
    aimed = (chip.memory_max_c or 95.0) + draw.rng.uniform(-10.0, 25.0)
    k_per_w = (aimed - 5.0 - chip.inlet_c - watts * chip.sink_k_per_w) / watts
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        world.cards[gpu].governor.memory_k_per_w = k_per_w

    limit = machine.chip.memory_max_c or 95.0
    plan.turn, plan.lasts_s, plan.is_slow = turn, 420.0, True
    plan.truth = lambda world: 100.0 - (limit - world.cards[gpu].governor.memory_c())
    plan.faulty_from, plan.healthy_to = 98.5, 95.0
    return plan


@fault("power-brake", "power-brake", also=("straggler", "throughput-drop"), budget_s=15.0)
def power_brake(draw: Draw) -> Plan:
    """The chassis pulls the brake."""
    machine = draw.machine(has_counters)
    gpu, share = draw.gpu(machine), draw.rng.uniform(0.05, 0.9)
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        world.cards[gpu].governor.brake_share = share

    plan.turn, plan.lasts_s = turn, 180.0
    return plan


@fault("power-capped-low", "power-capped-low", is_info=True)
def power_capped_low(draw: Draw) -> Plan:
    """Somebody has lowered the power limit, or the platform delivers less."""
    rng = draw.rng
    machine = draw.machine(has_counters)
    share = rng.uniform(0.5, 0.95)
    by_platform = rng.random() < 0.3
    plan = _loaded(draw, Plan(machine=machine), gap_share=0.005)

    def prepare(world: World) -> None:
        for card in world.cards:
            if by_platform:
                card.governor.powered_w = share * 0.9 * machine.chip.limit_w
            else:
                card.governor.limit_w = float(round(share * machine.chip.limit_w))

    plan.prepare, plan.is_static, plan.lasts_s = prepare, True, 480.0
    plan.truth = lambda world: 100.0 * (1.0 - world.cards[0].mhz / machine.chip.max_mhz)
    # Its definition: a limit below 0.9, and a clock below 0.9 of the highest.
    is_low = share < (0.8 if by_platform else 0.88)
    plan.faulty_from, plan.healthy_to = (11.5, 8.0) if is_low else (101.0, 0.0 if share < 0.93 else 100.0)
    return plan


@fault(
    "clocks-locked-low",
    "clocks-locked-low",
    also=("straggler", "throughput-drop", "low-power-high-util"),
    budget_s=125.0,
)
def clocks_locked_low(draw: Draw) -> Plan:
    """A benchmark has left a clock lock behind."""
    rng = draw.rng
    machine = draw.machine()
    locked = rng.uniform(0.4, 0.95)
    plan = _loaded(draw, Plan(machine=machine), gap_share=0.006)
    chosen = tuple(range(machine.gpus)) if rng.random() < 0.7 else (draw.gpu(machine),)

    def lock(world: World) -> None:
        for gpu in chosen:
            card = world.cards[gpu]
            card.governor.locked = locked * machine.chip.max_mhz / card.boost_mhz

    plan.is_static = rng.random() < 0.7
    if plan.is_static:
        plan.prepare = lock
    else:
        plan.turn = lock
    plan.truth = lambda world: 100.0 * (1.0 - world.cards[chosen[0]].mhz / machine.chip.max_mhz)
    plan.faulty_from, plan.healthy_to = 21.0, 18.5
    return plan


@fault("cooling-degraded", "cooling-degraded", "sw-thermal", "hw-thermal", also=("straggler", "throughput-drop"))
def cooling_degraded(draw: Draw) -> Plan:
    """A fan that stands still, dust that needs the fan at its highest, or a cooler worse than its siblings'."""
    rng = draw.rng
    kind = rng.choice(("stopped", "dusty", "worse"))
    machine = draw.machine(has_fan, least=2 if kind == "worse" else 1)
    gpu = draw.gpu(machine)
    plan = _loaded(draw, Plan(machine=machine), gap_share=0.006)
    factor = {"stopped": 1.0, "dusty": rng.uniform(1.15, 1.45), "worse": rng.uniform(1.1, 1.8)}[kind]

    def turn(world: World) -> None:
        heat = world.cards[gpu].heat
        heat.air_target = factor
        if kind == "stopped":
            heat.fan_stuck_pct = 0.0

    def truth(world: World) -> float:
        card = world.cards[gpu]
        if kind == "stopped":
            return 100.0 if card.heat.die_c >= 66 and card.power_w >= 85 else 0.0
        if kind == "dusty":
            near = card.heat.die_c >= machine.chip.max_c - 2.5
            return 100.0 if near and card.heat.fan_pct >= 96 else 50.0 if card.heat.fan_pct >= 90 else 0.0
        others = [one.heat for one in world.cards if one.index != gpu]
        mean = sum((one.die_c - one.inlet_c) / world.cards[0].power_w for one in others) / len(others)
        mine = (card.heat.die_c - machine.chip.inlet_c) / max(1.0, card.power_w)
        worse = 100.0 * (mine / mean - 1.0)
        # Far from its limit it costs nothing, and may be the place in the chassis.
        return worse if card.heat.die_c >= machine.chip.max_c - 8.0 else min(worse, 40.0)

    plan.turn, plan.lasts_s, plan.is_slow = turn, 900.0, True
    plan.truth = truth
    plan.faulty_from, plan.healthy_to = (99.0, 20.0) if kind != "worse" else (45.0, 25.0)
    plan.level, plan.is_info = kind, kind == "worse"
    return plan


def _copies(draw: Draw, plan: Plan, rate: float) -> Plan:
    """A job that copies at a rate which shows in the traffic."""
    spec = draw.job(plan.machine)
    plan.jobs = (msgspec.structs.replace(spec, copied_bytes=rate * spec.step_s),)
    return plan


@fault("pcie-degraded", "pcie-degraded", also=("straggler", "h2d-slow", "throughput-drop"), budget_s=60.0)
def pcie_degraded(draw: Draw) -> Plan:
    """The link trains to less than it could: generation or width."""
    rng = draw.rng
    machine = draw.machine()
    gpu = draw.gpu(machine)
    plan = _copies(draw, Plan(machine=machine), rng.uniform(0.7e9, 1.6e9))
    chip = machine.chip
    if rng.random() < 0.5:
        gen, width = max(1, chip.pcie_gen - rng.choice((1, 2, 3))), chip.pcie_width
    else:
        gen, width = chip.pcie_gen, rng.choice((8, 4, 1))

    def turn(world: World) -> None:
        world.cards[gpu].links.gen, world.cards[gpu].links.width = gen, width

    plan.is_static = rng.random() < 0.6
    plan.prepare, plan.turn = (turn, None) if plan.is_static else (None, turn)
    return plan


@fault("nvlink-down", "nvlink-down", also=("comm-bound", "throughput-drop", "straggler", "xid"), budget_s=30.0)
def nvlink_down(draw: Draw) -> Plan:
    """A link goes down, errors come by the hundred, or a recovery fails."""
    rng = draw.rng
    machine = draw.machine(has_nvlink, least=2)
    gpu, kind = draw.gpu(machine), rng.choice(("down", "down", "crc", "recovery"))
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        links = world.cards[gpu].links
        if kind == "down":
            links.nvlinks_active = (links.nvlinks_active or 1) - rng.choice((1, 1, 2))
        elif kind == "crc":
            links.crc_per_s = rng.uniform(150.0, 3000.0)
        else:
            links.recovery_failures += 1

    plan.turn = turn
    return plan


@fault("ecc-remap", "ecc-remap", "xid", also=("xid", "training-died", "gpu-lost"), budget_s=15.0)
def ecc_remap(draw: Draw) -> Plan:
    """Memory cells fail: an uncorrectable error, a remap that waits or failed, an action that NVIDIA asks for."""
    rng = draw.rng
    machine = draw.machine(lambda one: has_ecc(one) and one.chip.capability >= "8.0")
    gpu, kind = draw.gpu(machine), rng.choice(("uncorrected", "pending", "failed", "action"))
    plan = _loaded(draw, Plan(machine=machine))

    def turn(world: World) -> None:
        card: Card = world.cards[gpu]
        if kind == "uncorrected":
            card.said["ecc_uncorrected"] = 1 + rng.randrange(3)
            code = 94
            card.said["remap_pending"] = True
            world.events.append(Event(kind="xid", gpu_uuid=card.uuid, xid=code, text=_line(card, code)))
            for job in world.jobs:
                job.kill(world.now_s, None)
        elif kind == "pending":  # running work is not hurt: the rule informs
            card.said["remap_pending"] = True
            card.said["remapped_rows_uncorrected"] = 1
        elif kind == "failed":
            card.said["remap_failed"] = True
        else:
            card.said["recovery_action"] = rng.choice((1, 2, 4))

    plan.turn, plan.lasts_s, plan.is_info = turn, 120.0, kind == "pending"
    return plan


def _line(card: Card, code: int) -> str:
    bus = card.pci_bus_id[4:14].lower()
    return f"NVRM: Xid (PCI:{bus}): {code}, pid=4711, name=python, Ch 00000008"


HARDWARE_XIDS = (48, 62, 64, 74, 79, 95, 119, 140)
PROGRAM_XIDS = (13, 31, 43)


@fault(
    "xid-hardware",
    "xid",
    "gpu-lost",
    "ecc-remap",
    also=("training-died", "collective-hang", "nvlink-down"),
    budget_s=5.0,
)
def xid_hardware(draw: Draw) -> Plan:
    """The driver reports a fault of the hardware; the job dies of it."""
    return _xid(draw, HARDWARE_XIDS)


@fault("xid-program", "xid", also=("training-died",), budget_s=5.0)
def xid_program(draw: Draw) -> Plan:
    """The driver reports an illegal access by a program, which dies of it."""
    return _xid(draw, PROGRAM_XIDS)


def _xid(draw: Draw, codes: tuple[int, ...]) -> Plan:
    rng, machine = draw.rng, draw.machine()
    gpu, code = draw.gpu(machine), rng.choice(codes)
    plan = _loaded(draw, Plan(machine=machine), restart_after_s=1e9)

    def turn(world: World) -> None:
        card = world.cards[gpu]
        for _ in range(rng.choice((1, 1, 4))):
            world.events.append(Event(kind="xid", gpu_uuid=card.uuid, xid=code, text=_line(card, code)))
        for job in world.jobs:
            job.kill(world.now_s + 0.1, None)

    plan.turn, plan.lasts_s, plan.level = turn, 60.0, str(code)
    return plan


@fault("comm-bound", "comm-bound", is_info=True)
def comm_bound(draw: Draw) -> Plan:
    """Gradients go over PCIe and take longer than the backward pass hides."""
    machine = draw.machine(lambda one: not has_nvlink(one), least=2)
    plan = _loaded(draw, Plan(machine=machine), syncs=False)
    spec = plan.jobs[0]
    share = draw.rng.uniform(0.2, 2.6)
    rate = Links(machine.chip).pcie_bytes_per_s()
    spec = msgspec.structs.replace(
        spec, comm_bytes=share * spec.step_s * rate, mix=msgspec.structs.replace(spec.mix, tensor=0.4)
    )
    plan.jobs, plan.is_static, plan.lasts_s = (spec,), True, 480.0
    shown = max(0.15 * share, share - 0.5)
    plan.truth = lambda _world: 100.0 * share / (1.0 + shown)
    plan.faulty_from, plan.healthy_to = 80.0, 60.0
    plan.level = f"{share:.2f}"
    return plan
