"""How a training job runs: steps with a barrier between ranks, pauses, a hang, an out-of-memory, a restart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Literal

import msgspec

from gpumon.model import Event, Role
from gpumon.sources.simulator.card import Card, Slice
from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.loader import Disk, Loader

CONTEXT_BYTES = 522 * MIB
SEGMENT_BYTES = 20 * MIB
RETRY_S = 1.3
"""A failed cudaMalloc: wait for the device, give back cached blocks, allocate again."""
HANDOFF_S = 0.004
"""From a batch in hand to the first kernel."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody trains, and how."""

    name: str
    user: str
    command: str
    pid: int
    gpus: tuple[int, ...] | None = None
    """None: all of the machine's."""
    instance: int = 0
    """Which MIG instance of its card."""
    step_s: float
    """Compute time of a step at the boost clock."""
    jitter: float = 0.012
    rank_jitter: float = 0.004
    gap_share: float = 0.012
    """Of a step: the device waits for the host (logging, a synchronizing ``item()``)."""
    comm_share: float = 0.012
    memory_bound: float = 0.02
    """Of a step: does not get slower when the SM clock falls."""
    launch_share: float = 0.55
    """Of a step: the main thread's own work. It runs one step ahead of the device."""
    workers: int = 8
    prefetch: int = 2
    prep_s: float
    batch_bytes: float
    dataset_bytes: float | None = None
    """None: read before, what memory holds of it is known to the disk; else the first epoch comes from the disk."""
    copied_bytes: float = 38e6
    memory_bytes: int
    """Reserved by the framework on rank 0."""
    memory_step_bytes: int = 0
    leak_bytes: float = 0.0
    waste_bytes: float = 0.0
    """Per step: memory that fragmentation makes unusable."""
    trainer_rss_bytes: int = 9 * GIB
    worker_rss_bytes: int = 2 * GIB
    age_s: float = 7440.0
    """How long it has run when the story begins; negative: it starts that much later."""
    load_s: float = 38.0
    lasts_s: float = inf
    """How long it trains before it ends and another one starts."""
    restart_after_s: float = 30.0
    checkpoint_every_s: float = 1800.0
    checkpoint_s: float = 9.0
    checkpoint_bytes: float = 2.6e9
    eval_every_s: float = 2700.0
    eval_s: float = 24.0
    framework: str = "torch"
    container: str | None = None
    job_id: str | None = None
    data_filesystem: str = "ext4"
    tensor: float = 0.52
    role: Role = "trainer"
    is_idle: bool = False
    """Holds its memory and does nothing."""


class Allocator:
    """PyTorch's caching allocator as the driver sees it: a high-water mark in segments."""

    def __init__(self, spec: JobSpec, limit_bytes: float) -> None:
        """Past its warm-up: the largest batch so far has been seen."""
        self.reserved_bytes = float(spec.memory_bytes)
        self.limit_bytes = limit_bytes
        self.leaked_bytes = 0.0
        self.retries = 0
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
                return inf
            self.retries += 1
            self._waste_bytes *= 0.7
            self.reserved_bytes = spec.memory_bytes + self.leaked_bytes + self._waste_bytes
            return RETRY_S
        segments = -int(-(wanted - self.reserved_bytes) // SEGMENT_BYTES)
        self.reserved_bytes += segments * SEGMENT_BYTES
        return 0.0


class Rank:
    """One process of a job and the device it drives."""

    __slots__ = (
        "card",
        "copied_bytes",
        "loader",
        "main_free_s",
        "memory_offset",
        "naps",
        "number",
        "pid",
        "slice",
        "worker_pids",
    )

    def __init__(self, number: int, card: Card, part: Slice, memory_offset: int) -> None:
        """Not started yet."""
        self.number, self.card, self.slice, self.memory_offset = number, card, part, memory_offset
        self.pid = 0
        self.worker_pids: tuple[int, ...] = ()
        self.loader: Loader | None = None
        self.main_free_s = 0.0
        self.naps: deque[tuple[float, float]] = deque()
        """When its main thread slept, waiting for a batch."""
        self.copied_bytes = 0.0

    def asleep_s(self, begin_s: float, end_s: float) -> float:
        """How long its main thread slept in [begin, end); each interval is asked for once, in order."""
        asleep = 0.0
        naps = self.naps
        while naps and naps[0][0] < end_s:
            low, high = naps[0]
            asleep += max(0.0, min(high, end_s) - max(low, begin_s))
            if high > end_s:
                break
            naps.popleft()
        return asleep


class Job:
    """Ranks that step together. Time moves from event to event; ``free_s`` is when the next one is due."""

    def __init__(self, spec: JobSpec, cards: list[Card], disk: Disk, rng: Random, start_s: float) -> None:
        """Running already where ``spec.age_s`` says so."""
        self.spec = spec
        self.disk = disk
        self.rng = rng
        chosen = cards if spec.gpus is None else [cards[index] for index in spec.gpus if index < len(cards)]
        self.ranks = [self._rank(number, card) for number, card in enumerate(chosen)]
        self.state: Literal["absent", "loading", "training", "hung"] = "absent"
        self.is_ill = False
        """Whether leak and fragmentation are at work."""
        self.prep_s = spec.prep_s
        self.started_s = start_s - spec.age_s
        self.launcher_pid = 0
        self.attempt = 0
        self.steps = 0
        self.events: list[Event] = []
        self.free_s = start_s
        self._next: Callable[[], None] = self._launch
        self._writes: tuple[float, float, float] | None = None
        self._eval_until_s = self._next_eval_s = self._next_checkpoint_s = -inf
        self._ends_s = inf
        if spec.age_s < 0:
            self.free_s = start_s - spec.age_s
        else:
            self._launch()
            self.free_s = start_s
            self._train()
            self.steps = int(spec.age_s / spec.step_s)

    def _rank(self, number: int, card: Card) -> Rank:
        part = card.slices[self.spec.instance]
        offset = self.spec.memory_step_bytes * (number * 2 % 5 if number != 5 else 0)
        part.tensor = self.spec.tensor
        return Rank(number, card, part, offset)

    # --- what happens ------------------------------------------------------------------------------

    def advance(self, end_s: float) -> None:
        """Live until nothing is due before ``end_s``."""
        while self.free_s < end_s:
            self._next()

    def _launch(self) -> None:
        """Processes appear and load: a context on the device, a busy main thread."""
        spec, rng = self.spec, self.rng
        pid = spec.pid + self.attempt * (417 + int(60 * rng.random()))
        self.attempt += 1
        self.launcher_pid = pid - 6
        if self.attempt > 1 or spec.age_s < 0:
            self.started_s = self.free_s
        for rank in self.ranks:
            rank.pid = pid + rank.number
            first = pid + 64 + rank.number * (spec.workers + 3)
            rank.worker_pids = tuple(range(first, first + spec.workers))
            rank.loader = None
            rank.slice.holders[rank.pid] = CONTEXT_BYTES
        self.state = "loading"
        self.free_s += spec.load_s
        self._next = self._train

    def _train(self) -> None:
        """Weights are on the device, the workers start."""
        spec, now = self.spec, self.free_s
        if spec.dataset_bytes is not None:
            self.disk.forget(spec.dataset_bytes)
        total = self.ranks[0].slice.total_bytes
        self.allocator = Allocator(spec, total - CONTEXT_BYTES - 0.9 * GIB)
        for rank in self.ranks:
            rank.loader = Loader(
                workers=spec.workers,
                prefetch=spec.prefetch,
                prep_s=self.prep_s,
                batch_bytes=spec.batch_bytes,
                disk=self.disk,
            )
            rank.loader.start(now, self.rng)
            rank.main_free_s = now
            rank.naps.clear()
        self.steps = 0
        self.state = "training"
        self._hold_memory()
        age = now - self.started_s
        self._next_checkpoint_s = now + spec.checkpoint_every_s - age % spec.checkpoint_every_s
        self._next_eval_s = now + spec.eval_every_s - age % spec.eval_every_s
        self._ends_s = self.started_s + spec.lasts_s
        self._next = self._step
        if spec.is_idle:
            self.hang(now, culprit=0)

    def _step(self) -> None:
        """One step of all ranks, up to the barrier."""
        spec, rng, free = self.spec, self.rng, self.free_s
        if free >= self._next_checkpoint_s:
            self._checkpoint()
            return
        if free >= self._ends_s:
            self.kill(free, "finished")
            return
        is_eval = self._is_evaluating(free)
        common = spec.step_s * (1.0 + spec.jitter * 2.45 * (rng.random() + rng.random() - 1.0))
        if is_eval:
            common *= 0.34
        start_at = free + common * spec.gap_share * (6.0 if is_eval else 1.0 + 0.6 * (rng.random() - 0.5))
        latest = free
        begun = []
        for rank in self.ranks:
            asked = rank.main_free_s
            got = asked if is_eval or rank.loader is None else rank.loader.take(asked, rng)
            if got > asked:
                rank.naps.append((asked, got))
            start = got + HANDOFF_S
            start = max(start, start_at)
            slower = spec.memory_bound + (1.0 - spec.memory_bound) * rank.card.chip.boost_mhz / rank.card.mhz
            done = start + common * slower * (1.0 + spec.rank_jitter * 3.46 * (rng.random() - 0.5))
            latest = max(latest, done)
            launched = got + common * spec.launch_share * (rank.loader.slowdown if rank.loader else 1.0)
            rank.main_free_s = max(start, launched)
            rank.copied_bytes += spec.copied_bytes
            begun.append((start, done))
        self._finish_step(free, begun, latest)

    def _finish_step(self, free: float, begun: list[tuple[float, float]], latest: float) -> None:
        end = latest
        if len(self.ranks) > 1:
            end += self.spec.step_s * self.spec.comm_share
        for rank, (start, done) in zip(self.ranks, begun, strict=True):
            rank.slice.activity.record(free, start, done, end)
        self.steps += 1
        stall = self.allocator.step(self.steps, self.rng, is_ill=self.is_ill)
        if stall == inf:
            self.kill(end, "torch.OutOfMemoryError: CUDA out of memory")
            return
        self._hold_memory()
        self.free_s = end + stall

    def _is_evaluating(self, now_s: float) -> bool:
        if now_s >= self._next_eval_s:
            self._eval_until_s = now_s + self.spec.eval_s
            self._next_eval_s += self.spec.eval_every_s
        return now_s < self._eval_until_s

    def _checkpoint(self) -> None:
        """Rank 0 writes, the others wait for it inside a barrier."""
        spec, begin = self.spec, self.free_s
        end = begin + spec.checkpoint_s
        for rank in self.ranks:
            if rank.number > 0:
                rank.slice.activity.record(begin, begin, begin, end)
            rank.main_free_s = end
        self.ranks[0].naps.append((begin + 0.4 * spec.checkpoint_s, end))
        self._writes = (begin, end, spec.checkpoint_bytes / spec.checkpoint_s)
        self._next_checkpoint_s += spec.checkpoint_every_s
        self.free_s = end

    def write_checkpoint(self, begin_s: float, end_s: float) -> float:
        """Write what is due in [begin, end); returns the bytes per second."""
        if self._writes is None:
            return 0.0
        low, high, rate = self._writes
        overlap = min(high, end_s) - max(low, begin_s)
        if overlap <= 0:
            return 0.0
        self.disk.write(rate * overlap)
        return rate * overlap / (end_s - begin_s)

    def _hold_memory(self) -> None:
        reserved = int(self.allocator.reserved_bytes) + CONTEXT_BYTES
        for rank in self.ranks:
            rank.slice.holders[rank.pid] = reserved + rank.memory_offset

    # --- what is done to it ------------------------------------------------------------------------

    def set_prep_s(self, prep_s: float, rank: int | None = None) -> None:
        """From the next batches on, preparing one takes this long (on one rank, or on all)."""
        if rank is None:
            self.prep_s = prep_s
        for one in self.ranks:
            if one.loader is not None and rank in (None, one.number):
                one.loader.prep_s = prep_s

    def hang(self, now_s: float, culprit: int) -> None:
        """The culprit skips a collective and sleeps; the others spin in it for ever."""
        if self.state != "training":
            return
        begin = max(self.free_s, now_s)
        for rank in self.ranks:
            if rank.number == culprit:
                rank.naps.append((begin, inf))
            else:
                rank.slice.activity.record(begin, begin, begin, inf)
        self.state = "hung"
        self.free_s = inf

    def kill(self, now_s: float, reason: str) -> None:
        """All its processes exit; another attempt follows."""
        if self.state == "absent":
            return
        for rank in self.ranks:
            rank.slice.activity.stop(now_s)
            rank.slice.holders.pop(rank.pid, None)
            rank.loader = None
            rank.naps.clear()
            self.events.append(Event(kind="process-exit", pid=rank.pid, gpu_uuid=rank.slice.uuid, text=reason))
        self.state = "absent"
        self.free_s = now_s + self.spec.restart_after_s
        self._next = self._launch
