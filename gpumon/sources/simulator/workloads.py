"""What people train in the demo."""

from __future__ import annotations

import msgspec

from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.spec import JobSpec, Mix

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
LLAMA = JobSpec(
    name="llama-8b",
    user="ana",
    command="python train.py --config llama-8b.yaml",
    pid=90211,
    step_s=0.4,
    gap_share=0.01,
    prep_s=1.6,
    batch_bytes=10.9e6,
    copied_bytes=2.1e6,
    memory_bytes=int(75.55 * GIB),
    memory_step_bytes=104 * MIB,
    trainer_rss_bytes=int(9.4 * GIB),
    worker_rss_bytes=int(1.95 * GIB),
    checkpoint_s=41.0,
    checkpoint_every_s=3600.0,
    checkpoint_bytes=64e9,
    mix=Mix(tensor=0.56, dram=0.42),
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
    floor_share=0.36,
    peak_share=0.62,
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


def part_job(name: str, user: str, pid: int, instance: int, memory_gib: float, **changes: float) -> JobSpec:
    """A job on one MIG instance."""
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


NOTEBOOK = msgspec.structs.replace(
    VISION,
    name="notebook",
    user="yuki",
    command="python -m ipykernel_launcher -f /run/user/1004/jupyter/kernel-7c1e.json",
    pid=50388,
    gpus=(0,),
    instance=2,
    workers=0,
    memory_bytes=int(7.6 * GIB),
    trainer_rss_bytes=3 * GIB,
    role="notebook",
    is_idle=True,
)
