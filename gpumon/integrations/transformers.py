"""HF Transformers: ``Trainer(callbacks=[GpumonCallback()])`` adds samples per second, accumulation included."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from gpumon.probe import load


class GpumonCallback(TrainerCallback):
    """Counts what this process trained on."""

    def __init__(self) -> None:
        load().watch()

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **_: Any,  # noqa: ANN401
    ) -> None:
        """One step of this process is its batch times the accumulation."""
        load().tell_samples(args.train_batch_size * args.gradient_accumulation_steps)
