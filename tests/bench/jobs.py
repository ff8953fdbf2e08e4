"""Random training jobs that run as they should, and machines for them."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from random import Random

import msgspec

from gpumon.sources.simulator.chips import GIB, MIB, Machine
from gpumon.sources.simulator.spec import JobSpec, Mix
from tests.bench.machines import MACHINES, Split


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of training: what it is called and between what its numbers lie."""

    command: str
    step_s: tuple[float, float]
    batch_bytes: tuple[float, float]
    copied_bytes: tuple[float, float]
    memory: tuple[float, float]
    """Share of a GPU's memory."""
    workers: tuple[int, int] = (4, 10)
    jitter: tuple[float, float] = (0.01, 0.05)
    launch: tuple[float, float] = (0.25, 0.75)
    comm: tuple[float, float] = (0.01, 0.06)
    tensor: tuple[float, float] = (0.3, 0.6)
    dram: tuple[float, float] = (0.25, 0.5)
    sm: tuple[float, float] = (0.75, 0.95)


FAMILIES: dict[Split, tuple[Family, ...]] = {
    "dev": (
        Family(
            command="python train.py --config resnet152.yaml --data /data/imagenet",
            step_s=(0.12, 0.5),
            batch_bytes=(6e6, 4e7),
            copied_bytes=(2e7, 1.6e8),
            memory=(0.4, 0.85),
        ),
        Family(
            command="python -m torch.distributed.run tools/train.py configs/dino-swin-l.py",
            step_s=(0.3, 1.1),
            batch_bytes=(8e6, 5e7),
            copied_bytes=(3e7, 1.2e8),
            memory=(0.5, 0.85),
            jitter=(0.02, 0.08),
        ),
        Family(
            command="python train.py --config llama-8b.yaml",
            step_s=(0.35, 2.2),
            batch_bytes=(1e5, 1.2e7),
            copied_bytes=(1e5, 4e6),
            memory=(0.7, 0.9),
            workers=(2, 8),
            launch=(0.15, 0.5),
            tensor=(0.45, 0.65),
        ),
        Family(
            command="python finetune.py --model whisper-large-v3 --batch 24",
            step_s=(0.2, 0.6),
            batch_bytes=(4e6, 2e7),
            copied_bytes=(6e6, 3e7),
            memory=(0.35, 0.8),
            jitter=(0.02, 0.06),
        ),
    ),
    "test": (
        Family(
            command="accelerate launch train_text_to_image.py --resolution 768",
            step_s=(0.25, 0.9),
            batch_bytes=(5e6, 3e7),
            copied_bytes=(1e7, 8e7),
            memory=(0.5, 0.88),
            workers=(3, 12),
        ),
        Family(
            command="python run_mlm.py --model_name_or_path roberta-large --fp16",
            step_s=(0.15, 0.7),
            batch_bytes=(2e5, 5e6),
            copied_bytes=(3e5, 3e6),
            memory=(0.45, 0.8),
            workers=(3, 8),
            launch=(0.3, 0.8),
        ),
        Family(
            command="python main.py --model convnext_large --batch-size 96",
            step_s=(0.18, 0.8),
            batch_bytes=(6e6, 6e7),
            copied_bytes=(2e7, 1.4e8),
            memory=(0.4, 0.85),
        ),
        Family(
            command="python pretrain_gpt.py --num-layers 32",
            step_s=(0.5, 3.0),
            batch_bytes=(1e5, 8e6),
            copied_bytes=(1e5, 3e6),
            memory=(0.7, 0.9),
            workers=(2, 6),
            launch=(0.15, 0.5),
            tensor=(0.45, 0.65),
        ),
    ),
}
Wanted = Callable[[Machine], bool]


def any_machine(_machine: Machine) -> bool:
    """Whatever there is."""
    return True


def pick_machine(rng: Random, split: Split, wanted: Wanted, *, least: int = 1, most: int = 8) -> Machine:
    """A machine of the split that a run can take place on, sometimes with fewer GPUs than it could have."""
    fitting = [one for one in MACHINES[split] if wanted(one) and one.gpus >= least]
    machine = rng.choice(fitting)
    most = min(most, machine.gpus)
    counts = [count for count in (1, 2, 4, 8) if least <= count <= most] or [most]
    return msgspec.structs.replace(machine, gpus=rng.choice(counts))


def between(rng: Random, bounds: tuple[float, float]) -> float:
    """A number between two, evenly on the logarithmic scale."""
    low, high = bounds
    return exp(rng.uniform(log(low), log(high)))


def pick_job(rng: Random, split: Split, machine: Machine, **changes: object) -> JobSpec:
    """A healthy job: its loader and its cores have something to spare, at the pace that is asked for as well."""
    family = rng.choice(FAMILIES[split])
    gpus = machine.gpus
    step_s = max(between(rng, family.step_s), 0.1 * gpus**0.5)
    most = max(2, int(0.7 * machine.cores / gpus))
    workers = min(most, rng.randint(*family.workers))
    prep_s = workers * step_s / rng.uniform(1.3, 3.0)
    total = machine.chip.memory_total_bytes
    age_s = between(rng, (1500.0, 2e5))
    spec = JobSpec(
        name="job",
        user=rng.choice(("ana", "marco", "yuki", "noor", "ravi")),
        command=family.command,
        pid=rng.randint(4000, 90000),
        step_s=step_s,
        jitter=between(rng, family.jitter),
        rank_jitter=rng.uniform(0.002, 0.01),
        gap_share=rng.uniform(0.004, 0.03),
        comm_share=between(rng, family.comm) if gpus > 1 else 0.0,
        memory_bound=rng.uniform(0.0, 0.15),
        launch_share=rng.uniform(*family.launch),
        syncs=rng.random() < 0.4,
        batch=rng.choice((8, 16, 32, 64, 128)),
        workers=workers,
        prefetch=rng.choice((2, 2, 2, 4)),
        prep_s=prep_s,
        batch_bytes=min(between(rng, family.batch_bytes), 0.35 * machine.disk_bytes_per_s * step_s / gpus),
        copied_bytes=between(rng, family.copied_bytes),
        memory_bytes=int(rng.uniform(*family.memory) * total) - 700 * MIB,
        memory_step_bytes=rng.choice((0, 60, 180)) * MIB,
        floor_share=rng.uniform(0.4, 0.7),
        peak_share=rng.uniform(0.86, 0.97),
        trainer_rss_bytes=int(min(between(rng, (2.0, 10.0)) * GIB, 0.25 * machine.memory_bytes / gpus)),
        worker_rss_bytes=int(min(between(rng, (0.3, 2.0)) * GIB, 0.3 * machine.memory_bytes / gpus / workers)),
        age_s=age_s,
        load_s=rng.uniform(15.0, 60.0),
        checkpoint_every_s=between(rng, (700.0, 7200.0)),
        checkpoint_s=between(rng, (2.0, 45.0)),
        checkpoint_bytes=between(rng, (4e8, 2e10)),
        eval_every_s=between(rng, (900.0, 7200.0)),
        eval_s=between(rng, (8.0, 80.0)),
        container=rng.choice((None, None, "3f2a9c41d0b7")),
        mix=Mix(
            sm=rng.uniform(*family.sm),
            occupancy=rng.uniform(0.1, 0.5),
            tensor=rng.uniform(*family.tensor),
            dram=rng.uniform(*family.dram),
            fp32=rng.uniform(0.03, 0.15),
        ),
    )
    if "prep_s" not in changes:
        changes["prep_s"] = prep_s * float(changes.get("step_s", step_s)) / step_s
    return msgspec.structs.replace(spec, **changes)
