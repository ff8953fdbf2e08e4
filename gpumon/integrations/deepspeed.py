"""DeepSpeed: ``engine = counted(engine)`` adds samples per second where no ``DataLoader`` feeds the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.probe import load

if TYPE_CHECKING:
    from deepspeed import DeepSpeedEngine


def counted(engine: DeepSpeedEngine) -> DeepSpeedEngine:
    """The same engine; each of its steps that moved its counter tells this process's share of the batch."""
    probe = load()
    probe.watch()
    original = engine.step
    samples = engine.train_micro_batch_size_per_gpu() * engine.gradient_accumulation_steps()

    def step(*args: object, **kwargs: object) -> object:
        done = engine.global_steps
        result = original(*args, **kwargs)
        if engine.global_steps != done:
            probe.tell_samples(samples)
        return result

    engine.step = step
    return engine
