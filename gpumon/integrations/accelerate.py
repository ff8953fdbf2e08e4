"""HF Accelerate: ``Accelerator(log_with=[GpumonTracker()])`` adds whether the logged loss is still a number."""

from __future__ import annotations

from typing import Any

from accelerate.tracking import GeneralTracker

from gpumon.probe import load


class GpumonTracker(GeneralTracker):
    """Writes nothing anywhere."""

    name = "gpumon"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self) -> None:
        super().__init__()
        load().watch()

    @property
    def tracker(self) -> object:
        """There is nothing behind it."""
        return None

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """The configuration is the program's business."""

    def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:  # noqa: ANN401, ARG002
        """Look at what is called a loss."""
        for name, value in values.items():
            if "loss" in name:
                load().tell_loss(value)
