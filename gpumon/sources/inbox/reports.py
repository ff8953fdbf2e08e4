"""How a probe's slots become what one interval was like: sums over the steps in it, and what holds at its end."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.model import Rank
from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.layout import Slot
from gpumon.sources.host.identity import Rank as Named
from gpumon.sources.host.identity import rank_of
from gpumon.sources.inbox.ring import Body, Now, Report
from gpumon.text import clean

_S = 1e9
_LONGEST_NAME = 32
_MOST_RANKS = 10_000_000
_LOSS = layout.LOSS_IS_NAN | layout.LOSS_IS_KNOWN
_UNKNOWN = layout.UNKNOWN
_SILENT_S = 15.0
"""Who samples stacks says so twice a second, on a crowded machine less often; then nobody samples any more."""


class Story:
    """What one process tells, interval by interval."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.last: Slot | None = None
        """Its newest slot."""
        self._before: Slot | None = None
        """The one that the interval begins with."""
        self._named = Named()
        self._framework: str | None = None
        self._allocator: str | None = None
        self._loss_is_nan: bool | None = None
        self._began_ns = 0
        self._has_fetched = False
        """Its waits for data are seen: it was seen to get a batch."""
        self._is_sampled = False

    def hear(self, body: Body) -> None:
        """Take in who it says it is."""
        named = rank_of({name: clean(value) for name, value in (body.environment or {}).items()})
        if body.rank is not None and _is_rank(body.rank, body.local_rank, body.world_size):
            named = named._replace(rank=body.rank, local_rank=body.local_rank, world_size=body.world_size)
        self._named = named
        self._framework = clean(body.framework, _LONGEST_NAME) if body.framework else None
        self._allocator = clean(body.allocator, _LONGEST_NAME) if body.allocator else None
        self._is_sampled = body.sampled is True

    def begin(self, slot: Slot) -> None:
        """Take a slot as the one that the first interval begins after."""
        self._before = self.last = slot

    def tell(self, reports: Sequence[Report], now: Now, gpu_uuid: str | None) -> Rank | None:
        """The interval since the last call, which these slots are of; None before the first slot."""
        last = self.last = reports[-1][0] if reports else self.last
        if last is None:
            return None
        self._began_ns = self._began_ns or (reports[0][0] if reports else last).mono_ns
        here_ns = _now_there(last, now)
        if self._is_sampled:
            return self._sampled(last, here_ns, gpu_uuid)
        sums = _sum(reports)
        self._has_fetched = self._has_fetched or sums.batches > 0
        for slot, _, _ in reports:
            if slot.flags & _LOSS:
                # A loss is told now and then: what the last one was holds until the next.
                self._loss_is_nan = bool(slot.flags & layout.LOSS_IS_NAN)
        step_s = sums.step_ns / sums.steps / _S if sums.steps else None
        samples_per_s = None if step_s is None else self._samples_per_s(last, step_s)
        self._before = last
        pairs = _pairs(reports)
        named = self._named
        # A compiled function of JAX leaves no trace of its calls: that none was told of says nothing.
        is_seen = last.step > 0 or self._framework != "jax" or last.phase == layout.END
        return Rank(
            pid=self.pid,
            rank=named.rank,
            local_rank=named.local_rank,
            world_size=named.world_size,
            gpu_uuid=gpu_uuid,
            framework=self._framework,
            phase=layout.PHASES[last.phase] if is_seen else None,  # type: ignore[arg-type]
            step=last.step or None,
            step_s=step_s,
            data_wait_s=sums.mean_s(sums.wait_ns) if self._has_fetched else None,
            h2d_s=sums.mean_s(sums.h2d_ns),
            forward_s=sums.mean_s(sums.forward_ns),
            samples_per_s=samples_per_s,
            step_samples_s=tuple([value * 1e-6 for value in pairs[::2]]),
            data_wait_samples_s=tuple([value * 1e-6 for value in pairs[1::2]]),
            waiting_s=_waiting_s(here_ns, last),
            pause_s=sums.pause_ns / _S if reports else None,
            loader_start_s=sums.restart_ns / _S if reports else None,
            compiles=None if last.compiles == _UNKNOWN else last.compiles,
            compile_s=None if sums.compile_ns is None or not reports else sums.compile_ns / _S,
            loss_is_nan=self._loss_is_nan,
            allocated_bytes=_known(last.allocated),
            allocated_peak_bytes=_known(last.peak),
            allocated_min_bytes=sums.floor,
            reserved_bytes=_known(last.reserved),
            active_bytes=_known(last.active),
            inactive_split_bytes=_known(last.inactive_split),
            alloc_retries=_known(last.retries),
            ooms=_known(last.ooms),
            allocator="cuda-malloc-async" if last.flags & layout.ASYNC_ALLOCATOR else self._allocator,
            heartbeat_age_s=_age_s(here_ns, last.beat_ns or self._began_ns) if is_seen else None,
        )

    def _sampled(self, last: Slot, here_ns: int, gpu_uuid: str | None) -> Rank | None:
        """What stacks tell; None once nobody looks at them any more."""
        waits = int(last.samples) if last.samples == last.samples else 0
        if here_ns - last.mono_ns > _SILENT_S * _S:
            return None
        return Rank(
            pid=self.pid,
            rank=self._named.rank,
            local_rank=self._named.local_rank,
            world_size=self._named.world_size,
            gpu_uuid=gpu_uuid,
            sampled_stacks=last.step,
            sampled_waits=min(waits, last.step),
        )

    def _samples_per_s(self, last: Slot, step_s: float) -> float | None:
        """By the samples of a step: those of an interval begin and end within steps."""
        before = self._before
        if before is None or step_s <= 0.0 or last.step <= before.step:
            return None
        samples = (last.samples - before.samples) / (last.step - before.step)
        return samples / step_s if samples >= 0.0 else None


class _Sums(NamedTuple):
    """Of the slots of one interval."""

    steps: int
    batches: int
    step_ns: int
    wait_ns: int
    forward_ns: int | None
    h2d_ns: int | None
    compile_ns: int | None
    pause_ns: int
    restart_ns: int
    floor: int | None

    def mean_s(self, total_ns: int | None) -> float | None:
        """Of a step."""
        return total_ns / self.steps / _S if self.steps and total_ns is not None else None


def _sum(reports: Sequence[Report]) -> _Sums:
    """A part of a step that one slot does not know is known of none."""
    steps = batches = step_ns = wait_ns = pause_ns = restart_ns = 0
    forward_ns: int | None = 0
    h2d_ns: int | None = 0
    compile_ns: int | None = 0
    floor: int | None = None
    for slot, _, _ in reports:
        pause_ns += slot.pause_ns
        restart_ns += slot.restart_ns
        batches += slot.batches
        compile_ns = None if compile_ns is None or slot.compile_ns == _UNKNOWN else compile_ns + slot.compile_ns
        if slot.floor >= 0 and (floor is None or slot.floor < floor):
            floor = slot.floor
        if slot.steps:
            steps += slot.steps
            step_ns += slot.step_ns
            wait_ns += slot.wait_ns
            forward_ns = None if forward_ns is None or slot.forward_ns == _UNKNOWN else forward_ns + slot.forward_ns
            h2d_ns = None if h2d_ns is None or slot.h2d_ns == _UNKNOWN else h2d_ns + slot.h2d_ns
    return _Sums(steps, batches, step_ns, wait_ns, forward_ns, h2d_ns, compile_ns, pause_ns, restart_ns, floor)


def _is_rank(rank: int, local_rank: int | None, world_size: int | None) -> bool:
    most = _MOST_RANKS if world_size is None else world_size
    return all(number is None or 0 <= number < most <= _MOST_RANKS for number in (rank, local_rank))


def _now_there(slot: Slot, now: Now) -> int:
    """This moment by the clock that the slot was stamped with."""
    if -2 * _S <= now.mono_ns - slot.mono_ns <= 86_400 * _S:
        return max(now.mono_ns, slot.mono_ns)
    return slot.mono_ns + max(0, now.wall_ns - slot.wall_ns)


def _age_s(here_ns: int, then_ns: int) -> float | None:
    return max(0, here_ns - then_ns) / _S if then_ns else None


def _waiting_s(here_ns: int, last: Slot) -> float | None:
    """How long it has waited for its batch: up to when it said so, and until now once it says nothing any more."""
    if last.inside != layout.WAITING or not last.since_ns:
        return None
    is_silent = here_ns - last.mono_ns > 2 * layout.PERIOD_S * _S
    return max(0, (here_ns if is_silent else last.mono_ns) - last.since_ns) / _S


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _pairs(reports: Sequence[Report]) -> Sequence[int]:
    """Step and wait of consecutive steps in turn, in microseconds."""
    found: list[int] = []
    for slot, raw, at in reports:
        if slot.pairs:
            found += struct.unpack_from(f"<{2 * slot.pairs}I", raw, at + layout.PAIRS_AT)
        if slot.pairs < slot.steps:
            break  # what follows is not consecutive
    return found[: 2 * layout.PAIRS_MOST]
