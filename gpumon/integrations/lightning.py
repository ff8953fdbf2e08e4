"""PyTorch Lightning: ``Trainer(callbacks=[GpumonCallback()])`` adds whether the logged loss is still a number."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from gpumon.probe import load


class GpumonCallback(Callback):
    """Holds no state, so checkpoints do not know it."""

    def __init__(self) -> None:
        load().watch()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Of the metrics, those that are on the host already."""
        for name, value in trainer.logged_metrics.items():
            if "loss" in name and value.device.type == "cpu":
                load().tell_loss(value.item())
