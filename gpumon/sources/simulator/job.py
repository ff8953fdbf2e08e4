"""How a training job runs: steps with a barrier between ranks, pauses, a hang, an out-of-memory, a restart."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from random import Random
from typing import Literal

from gpumon.model import Event
from gpumon.sources.simulator.allocator import Allocator
from gpumon.sources.simulator.card import Card
from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.loader import Disk, Loader
from gpumon.sources.simulator.rank import Rank, Step
from gpumon.sources.simulator.spec import JobSpec

CONTEXT_BYTES = 522 * MIB
HANDOFF_S = 0.004
"""From a batch in hand to the first kernel."""
STAGED_BYTES_PER_S = 4.2e9
"""A copy from pageable memory: the main thread moves it through a small pinned buffer."""
FORWARD_SHARE = 0.34
"""Of a step's own compute time."""
EVAL_STEP = 0.34


class Job:
    """Ranks that step together. Time moves from event to event; ``free_s`` is when the next one is due."""

    def __init__(
        self, spec: JobSpec, cards: list[Card], disk: Disk, rng: Random, start_s: float, *, is_probed: bool = False
    ) -> None:
        """Running already where ``spec.age_s`` says so."""
        self.spec = spec
        self.disk = disk
        self.rng = rng
        self.is_probed = is_probed
        chosen = cards if spec.gpus is None else [cards[index] for index in spec.gpus if index < len(cards)]
        self.ranks = [self._rank(number, card) for number, card in enumerate(chosen)]
        self.state: Literal["absent", "loading", "training", "hung"] = "absent"
        self.is_ill = False
        """Whether leak and fragmentation are at work."""
        self.prep_s = spec.prep_s
        self.pace = 1.0
        """How long a step is against the one that it began with: another batch, other code, other data."""
        self.batch = spec.batch
        self.checkpoint_s = spec.checkpoint_s
        self.checkpoint_every_s = spec.checkpoint_every_s
        self.restart_after_s = spec.restart_after_s
        self.started_s = start_s - spec.age_s
        self.worker_extra_bytes = 0.0
        """What each worker has copied of the data set's objects by touching them."""
        self.is_over_quota = False
        """The cgroup's quota, not a lack of cores, makes its threads wait."""
        self.launcher_pid = 0
        self.attempt = 0
        self.steps = self.first_step = 0
        self.events: list[Event] = []
        self.free_s = start_s
        self.farewell = False
        """It has ended by itself and said so; told once."""
        self._next: Callable[[], None] = self._launch
        self._writes: tuple[float, float, float] | None = None
        self._pauses: deque[tuple[float, float]] = deque()
        self._debugged: tuple[float, float] = (-inf, -inf)
        self._eval_until_s = self._next_eval_s = self._next_checkpoint_s = -inf
        self._next_epoch_s = self._next_debug_s = self._ends_s = inf
        if spec.age_s < 0:
            self.free_s = start_s - spec.age_s
        else:
            self._launch()
            self.free_s = start_s
            self._train()
            self.steps = self.first_step = int(spec.age_s / spec.step_s)

    def _rank(self, number: int, card: Card) -> Rank:
        part = card.slices[self.spec.instance]
        offset = self.spec.memory_step_bytes * (number * 2 % 5 if number != 5 else 0)
        part.mix = self.spec.mix
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
            rank.loader = None
            rank.is_gone = False
            if not spec.on_cpu:
                rank.slice.holders[rank.pid] = CONTEXT_BYTES
        self.state = "loading"
        self.farewell = False
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
            rank.diary.clear()
            rank.steps = 0
            rank.pulse_s = now
            rank.naps.clear()
        self.steps = self.first_step = 0
        self.state = "training"
        self._start_workers(now, generation=0)
        self._hold_memory()
        age = now - self.started_s
        self._next_checkpoint_s = now + self.checkpoint_every_s - age % self.checkpoint_every_s
        self._next_eval_s = now + spec.eval_every_s - age % spec.eval_every_s
        self._next_epoch_s = now + spec.epoch_s - age % spec.epoch_s if spec.epoch_s < inf else inf
        self._next_debug_s = now + spec.debug_every_s * (0.3 + 0.7 * self.rng.random())
        self._ends_s = self.started_s + spec.lasts_s
        self._next = self._step
        if spec.is_idle:
            self.hang(now, culprit=0)

    def _start_workers(self, now_s: float, generation: int) -> None:
        spec = self.spec
        for rank in self.ranks:
            first = rank.pid + 64 + rank.number * (spec.workers + 2) + 1000 * generation
            rank.worker_pids = tuple(range(first, first + spec.workers))
            rank.loader = Loader(
                workers=spec.workers,
                prefetch=spec.prefetch,
                prep_s=self.prep_s,
                batch_bytes=spec.batch_bytes,
                disk=self.disk,
            )
            rank.loader.start(now_s, self.rng)
            rank.main_free_s = rank.copy_free_s = now_s

    def _step(self) -> None:
        """One step of all ranks, up to the barrier; or what is due instead of it."""
        spec, rng, free = self.spec, self.rng, self.free_s
        if free >= min(self._next_checkpoint_s, self._ends_s, self._next_epoch_s, self._next_debug_s):
            self._interrupt(free)
            return
        is_eval = self._evaluates(free)
        common = self.pace * spec.step_s * (1.0 + spec.jitter * 2.45 * (rng.random() + rng.random() - 1.0))
        is_last = self.steps % spec.accumulates == spec.accumulates - 1
        if spec.accumulates > 1:
            common *= 1.25 if is_last else 0.95
        if is_eval:
            common *= EVAL_STEP
        gap = common * spec.gap_share * (6.0 if is_eval else 1.0 + 0.6 * (rng.random() - 0.5))
        begun = [self._compute(rank, free, common, free + gap, is_eval=is_eval) for rank in self.ranks]
        self._finish_step(free, begun, is_eval=is_eval, exchanges=is_last)

    def _compute(
        self, rank: Rank, free: float, common: float, start_at: float, *, is_eval: bool
    ) -> tuple[float, float, float]:
        """When a rank's device begins, ends, and which share of that time it computes."""
        spec, loader, rng = self.spec, rank.loader, self.rng
        asked = rank.main_free_s
        if spec.rollout_s:
            asked = max(asked, free)
        got = asked if is_eval or loader is None else loader.take(asked, rng)
        slowdown = loader.slowdown if loader is not None else 1.0
        rank.asked = (asked, got)
        if got > asked and spec.workers:
            rank.naps.append((asked, got))
        card = rank.card
        copy_s = spec.copied_bytes / card.links.pcie_bytes_per_s()
        if not spec.is_pinned:
            copy_s = max(copy_s, spec.copied_bytes / STAGED_BYTES_PER_S)
        ready = max(got, rank.copy_free_s if spec.is_pinned else got) + copy_s
        rank.copy_free_s = ready
        start = max(ready + HANDOFF_S, start_at)
        at_clock = spec.memory_bound + (1.0 - spec.memory_bound) * card.chip.boost_mhz / card.mhz
        own = common * rank.slower
        own *= at_clock * (1.0 + spec.rank_jitter * 3.46 * (rng.random() - 0.5))
        bubble = spec.bubble_share * common
        if bubble:
            start += bubble * (rank.number + 1) / (len(self.ranks) + 1)
        launched = (got if spec.is_pinned else ready) + common * spec.launch_share * slowdown
        done = max(start + own, launched)
        rank.main_free_s = done if spec.syncs else max(start, launched)
        rank.starved_s += max(0.0, got - max(start_at - HANDOFF_S, free))
        rank.launched_s += done - start - own
        rank.copied_s += 0.0 if spec.is_pinned else copy_s
        card.links.copied_bytes += spec.copied_bytes
        rank.last = (got - asked, copy_s, FORWARD_SHARE * own)
        return start, done, own / (done - start)

    def _finish_step(
        self, free: float, begun: list[tuple[float, float, float]], *, is_eval: bool, exchanges: bool
    ) -> None:
        spec = self.spec
        end = max(done for _, done, _ in begun)
        if len(self.ranks) > 1 and exchanges:
            end += self._exchange(end)
        if spec.bubble_share:
            end = max(end, free + self.pace * spec.step_s)
        self.steps += not is_eval
        stall = self.allocator.step(self.steps, self.rng, is_ill=self.is_ill)
        for rank, (start, done, density) in zip(self.ranks, begun, strict=True):
            if not spec.on_cpu:
                rank.slice.activity.record(free, start, done, end, density)
            if spec.syncs:
                rank.main_free_s = end
            if self.is_probed and stall < inf:
                wait, copied, forward = rank.last
                rank.diary.append(Step(end + stall, end + stall - free, wait, forward, copied, not is_eval))
        if is_eval:
            self._pauses.append((free, end))
        if stall == inf:
            self.kill(end, "torch.OutOfMemoryError: CUDA out of memory")
            return
        self._hold_memory()
        self.free_s = end + stall

    def _exchange(self, done_s: float) -> float:
        """How long the ranks exchange gradients after the last of them is done; what goes over which link."""
        spec, cards = self.spec, [rank.card for rank in self.ranks]
        rate = min(card.links.peer_bytes_per_s() for card in cards)
        if spec.comm_bytes is None:
            for card in cards:
                card.links.exchanged_bytes += 3.0 * spec.step_s * spec.comm_share * rate
            return spec.step_s * spec.comm_share
        whole_s = spec.comm_bytes / rate
        shown_s = max(0.15 * whole_s, whole_s - 0.5 * self.pace * spec.step_s)
        for card in cards:
            card.links.exchange(done_s + shown_s - whole_s, done_s + shown_s, spec.comm_bytes)
        return shown_s

    def is_evaluating(self, now_s: float) -> bool:
        """Whether it evaluates at this moment."""
        return now_s < self._eval_until_s

    def _evaluates(self, now_s: float) -> bool:
        """Whether its next batch is one of an evaluation, which may begin with it."""
        if now_s >= self._next_eval_s:
            self._eval_until_s = now_s + self.spec.eval_s
            self._next_eval_s += self.spec.eval_every_s
        return now_s < self._eval_until_s

    # --- pauses ------------------------------------------------------------------------------------

    def _interrupt(self, begin: float) -> None:
        spec = self.spec
        if begin >= self._ends_s:
            self.farewell = True
            self.kill(begin, "finished")
        elif begin >= self._next_checkpoint_s:
            self._checkpoint()
        elif begin >= self._next_epoch_s:
            self._next_epoch_s += spec.epoch_s
            self.free_s = begin + spec.respawn_s
            generation = 1 + int((begin - self.started_s) / spec.epoch_s) % 20
            self._start_workers(self.free_s, generation)
            for rank in self.ranks:
                rank.naps.append((begin, self.free_s))
        else:
            self._next_debug_s += spec.debug_every_s * (0.5 + self.rng.random())
            self.free_s = begin + spec.debug_s * (0.5 + self.rng.random())
            self._debugged = (begin, self.free_s)
            for rank in self.ranks:
                rank.naps.append((begin, self.free_s))
                rank.main_free_s = self.free_s

    def _checkpoint(self) -> None:
        """Rank 0 writes, the others wait for it inside a barrier."""
        spec, begin = self.spec, self.free_s
        end = begin + self.checkpoint_s
        for rank in self.ranks:
            if rank.number > 0:
                rank.slice.activity.record(begin, begin, begin, end)
            rank.main_free_s = end
        self.ranks[0].naps.append((begin + 0.4 * self.checkpoint_s, end))
        self._writes = (begin, end, spec.checkpoint_bytes / self.checkpoint_s)
        self._pauses.append((begin, end))
        self._next_checkpoint_s += self.checkpoint_every_s
        self.free_s = end

    def is_debugged(self, now_s: float) -> bool:
        """Whether somebody stands at a breakpoint."""
        return self._debugged[0] <= now_s < self._debugged[1]

    def is_writing(self, now_s: float) -> bool:
        """Whether a checkpoint is being written."""
        return self._writes is not None and self._writes[0] <= now_s < self._writes[1]

    def checkpoint_begun_s(self, now_s: float) -> float:
        """When the last checkpoint began; ``-inf`` where none has."""
        return self._writes[0] if self._writes is not None and self._writes[0] <= now_s else -inf

    def paused_s(self, begin_s: float, end_s: float) -> float:
        """Evaluation and checkpoints in [begin, end); each interval is asked for once, in order."""
        total = 0.0
        while self._pauses and self._pauses[0][0] < end_s:
            low, high = self._pauses[0]
            total += max(0.0, min(high, end_s) - max(low, begin_s))
            if high > end_s:
                break
            self._pauses.popleft()
        return round(total, 3)

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
        if self.spec.on_cpu:
            return
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

    def lose_rank(self, now_s: float, number: int) -> None:
        """One process is gone; the others wait for it in a collective."""
        self.hang(now_s, culprit=number)
        rank = self.ranks[number]
        rank.is_gone = True
        rank.loader = None
        rank.slice.holders.pop(rank.pid, None)
        self.events.append(Event(kind="process-exit", pid=rank.pid, gpu_uuid=rank.slice.uuid))

    def kill(self, now_s: float, reason: str | None) -> None:
        """All its processes exit; another attempt follows."""
        if self.state == "absent":
            return
        for rank in self.ranks:
            rank.slice.activity.stop(now_s)
            rank.slice.holders.pop(rank.pid, None)
            rank.loader = None
            rank.naps.clear()
            if not rank.is_gone:
                self.events.append(Event(kind="process-exit", pid=rank.pid, gpu_uuid=rank.slice.uuid, text=reason))
        self.state = "absent"
        self.free_s = now_s + self.restart_after_s
        self._next = self._launch
