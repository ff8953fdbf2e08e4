"""Stands for the driver's reader on a machine that has none, where the host and the ranks are wanted all the same."""

from __future__ import annotations

import threading

from gpumon.model import Event
from gpumon.sources.nvml.reading import Reading


class AbsentDriver:
    """No GPU, ever; nothing is waited for."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.newest = Reading(answered_at=0.0, is_absent=True)
        self.published = threading.Event()

    def raise_failure(self) -> None:
        """Nothing fails."""

    def replace_hung_thread(self) -> None:
        """Nothing hangs."""

    def drain_events(self) -> tuple[Event, ...]:
        """Nothing happens."""
        return ()

    def close(self) -> None:
        """Wake who waits."""
        self.published.set()
