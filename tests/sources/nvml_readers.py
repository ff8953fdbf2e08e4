"""What the tests of the NVML reader share: loading the fake driver, and waiting for readings with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from fakenvml import FakeDriver
from gpumon.model import Gpu
from gpumon.sources.nvml.reader import NvmlReader
from gpumon.sources.nvml.reading import Reading

MakeDriver = Callable[..., FakeDriver]
MakeReader = Callable[..., NvmlReader]


def load(driver: FakeDriver) -> FakeDriver:
    """Make it this process's driver."""
    driver.load_in_process()
    return driver


def next_reading(reader: NvmlReader) -> Reading:
    """The next one that is published."""
    before = reader.newest
    until(lambda: reader.newest is not before, 5)
    return reader.newest


def until(condition: Callable[[], object], seconds: float = 6) -> None:
    """Wait for something to come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


def second_gpus(reader: NvmlReader) -> list[Gpu]:
    """The GPUs of a reading that has rates."""
    next_reading(reader)
    return [reading.gpu for reading in next_reading(reader).gpus]
