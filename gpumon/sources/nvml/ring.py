"""Knows the driver's ring of utilization windows: what happened between two readings."""

from __future__ import annotations

import ctypes
import struct

import pynvml

from gpumon.sources.nvml.calls import Asker, Records, c_function

_ROOM = 256
"""Rings of 100 to 120 entries have been seen."""
_SLACK_US = 500_000
_SAMPLE = struct.Struct("@QI4x")
"""nvmlSample_t: time stamp in microseconds, value (an unsigned number, here)."""
_PERCENT = tuple(map(float, range(101)))
"""Windows are kept for minutes, by the thousand: all of them share these objects."""


class UtilizationRing:
    """Drains one GPU's ring. Its time stamps are the driver's own: only compared with each other and fed back.

    The ring is empty while a GPU idles; the caller then has the current utilization only.
    """

    def __init__(self) -> None:
        self._seen_us = 0
        self._read_at: float | None = None
        self._samples = Records(_SAMPLE, _ROOM)

    def read(self, asker: Asker) -> tuple[float, ...]:
        """Windows since the last reading, oldest first; none on the first one."""
        samples: list[tuple[int, int]] | None = asker("nvmlDeviceGetSamples", self._call)
        since, self._read_at = self._read_at, asker.now
        if not samples:
            return ()
        samples.sort()
        newest_us = samples[-1][0]
        oldest_us = self._seen_us
        if not oldest_us and since is not None:  # nothing seen before: the ring reaches back further than we do
            oldest_us = newest_us - int(1e6 * (asker.now - since)) - _SLACK_US
        self._seen_us = max(self._seen_us, newest_us)
        if since is None:
            return ()
        return tuple([_PERCENT[percent] for at_us, percent in samples if at_us > oldest_us and percent <= 100])

    def _call(self, handle: object) -> list[tuple[int, int]]:
        """One call with room to spare; pynvml asks for the size first and copies every slot."""
        kind, count = ctypes.c_uint(), ctypes.c_uint(_ROOM)
        code = c_function("nvmlDeviceGetSamples")(
            handle,
            ctypes.c_uint(pynvml.NVML_GPU_UTILIZATION_SAMPLES),
            ctypes.c_ulonglong(self._seen_us),
            ctypes.byref(kind),
            ctypes.byref(count),
            self._samples.address,
        )
        if code == pynvml.NVML_ERROR_NOT_FOUND:
            return []
        if code != 0:
            raise pynvml.NVMLError(code)
        return list(self._samples.first(count.value))
