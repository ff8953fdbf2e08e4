"""Keras: ``model.fit(…, callbacks=[GpumonCallback()])`` adds whether the loss is still a number, once an epoch."""

from __future__ import annotations

from typing import Any

import keras

from gpumon.probe import load


class GpumonCallback(keras.callbacks.Callback):
    """Asks for no logs of single batches, which would make Keras wait for each."""

    def __init__(self) -> None:
        super().__init__()
        load().watch()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        """The epoch's mean, which Keras has made a number already."""
        load().tell_loss((logs or {}).get("loss"))
