"""Fixtures for the sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpumon.sources.nvml.reader import NvmlReader


@pytest.fixture
def start() -> Iterator[Callable[..., NvmlReader]]:
    """Starts readers of the loaded driver, and ends them."""
    readers: list[NvmlReader] = []

    def make(interval_s: float = 0.15, **options: Any) -> NvmlReader:
        reader = NvmlReader(interval_s, **options)
        readers.append(reader)
        reader.start()
        assert reader.wait_until_ready(5)
        return reader

    yield make
    for reader in readers:
        reader.close()
    for thread in threading.enumerate():
        if thread.name == "nvml":  # that of the events leaves the driver within a second
            thread.join(3)
