"""PyTorch's caching allocator: what it gives out, what it keeps, and how both look from inside and outside."""

from __future__ import annotations

from math import inf
from random import Random

from gpumon.sources.simulator.chips import MIB
from gpumon.sources.simulator.spec import JobSpec

SEGMENT_BYTES = 20 * MIB
RETRY_S = 1.3
"""A failed cudaMalloc: wait for the device, give back cached blocks, allocate again."""


class Allocator:
    """A high-water mark in segments, above what is in use and what has become unusable."""

    def __init__(self, spec: JobSpec, limit_bytes: float) -> None:
        """Past its warm-up: the largest batch so far has been seen."""
        self.reserved_bytes = float(spec.memory_bytes)
        self.limit_bytes = limit_bytes
        self.leaked_bytes = 0.0
        self.retries = 0
        self.ooms = 0
        self.peak_share = spec.peak_share
        self._waste_bytes = 0.0
        self._spec = spec

    def step(self, steps_done: int, rng: Random, *, is_ill: bool) -> float:
        """One step's allocations; returns how long they stalled it, ``inf`` for out of memory."""
        spec = self._spec
        if rng.random() * (steps_done + 1) < 1.0:  # records come ever more rarely
            self._waste_bytes += SEGMENT_BYTES * (1 + int(3 * rng.random()))
        if spec.leak_bytes and is_ill:
            self.leaked_bytes += spec.leak_bytes
        if spec.waste_bytes:
            self._waste_bytes += spec.waste_bytes * (3.0 if is_ill else 1.0) * 2.0 * rng.random()
        wanted = spec.memory_bytes + self.leaked_bytes + self._waste_bytes
        if wanted <= self.reserved_bytes:
            return 0.0
        if wanted > self.limit_bytes:
            if self._waste_bytes < 0.1 * wanted:
                self.ooms += 1
                return inf
            self.retries += 1
            self._waste_bytes *= 0.7
            self.reserved_bytes = spec.memory_bytes + self.leaked_bytes + self._waste_bytes
            return RETRY_S
        segments = -int(-(wanted - self.reserved_bytes) // SEGMENT_BYTES)
        self.reserved_bytes += segments * SEGMENT_BYTES
        return 0.0

    def statistics(self, offset_bytes: int) -> dict[str, int]:
        """What ``torch.cuda.memory_stats()`` would say of a rank that holds ``offset_bytes`` more than rank 0."""
        spec = self._spec
        base = spec.memory_bytes + offset_bytes
        floor = spec.floor_share * base + self.leaked_bytes
        peak = self.peak_share * base + self.leaked_bytes
        reserved = self.reserved_bytes + offset_bytes
        # Between two steps the activations' blocks lie free in the cache; what is split and cannot be given back
        # is the waste, and a little of the rest.
        split = 0.02 * base + max(0.0, 0.95 - self.peak_share) * base + self._waste_bytes
        return {
            "allocated_bytes": int(floor),
            "allocated_min_bytes": int(floor),
            "allocated_peak_bytes": int(min(peak, reserved)),
            "active_bytes": int(floor),
            "reserved_bytes": int(reserved),
            "inactive_split_bytes": int(min(split, reserved - floor)),
            "alloc_retries": self.retries,
            "ooms": self.ooms,
        }
