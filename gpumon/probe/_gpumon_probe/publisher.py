"""Writes what the loop did to this process's file, twice a second, from a thread of its own.

The thread begins with the first step or batch, not with an import: tools and loader workers that merely import a
framework never publish. After a fork there is none until the child steps itself.
"""

from __future__ import annotations

import atexit
import os
import signal
from _thread import allocate_lock, start_new_thread
from time import monotonic_ns, sleep, time_ns
from typing import NamedTuple

from . import layout
from .copies import STEPS_TIMED
from .identity import Identity
from .loop import Loop, loop
from .memory import NOT_KNOWN, Allocator, Memory
from .ring import Ring

PATIENCE_S, LAST_PATIENCE_S = 0.2, 2.0
"""How long one report waits for another that is being written. At the end it should be over: a thread that still asks a
framework's library when the interpreter goes may take the process with it."""
FAILURES_MOST = 10
"""So many reports in a row that could not be made: the next will not be better either."""
CHECK_EVERY = 20
"""Reports between two looks at whether the file is still there and whether the header changed."""
MOST_MICROSECONDS = 2**32 - 1
NAN = float("nan")
MODE = "GPUMON_PROBE"
"""``off``: nothing is published; ``nothread``: from the step itself, so nothing is told while a step lasts."""


class Publisher:
    """This process's reports."""

    def __init__(self, told: Loop) -> None:
        self.loop = told
        self.allocator = Allocator()
        self.ring: Ring | None = None
        self.identity: Identity | None = None
        self.pid = os.getpid()
        self.lock = allocate_lock()
        self.seq = self.failures = 0
        self.is_over = False
        self.body = b""
        self.news: tuple[object, object] = (None, None)
        self.before = _Sums()
        self.copied = _Copied()
        self.peak = -1
        self.taken = 0

    def open(self) -> None:
        """Make the file; without one nothing is told, and it is tried again later."""
        self.ring = Ring.create()
        self.body = b""
        if self.identity is None:
            self.identity = Identity()

    def report(self, phase: int | None = None, patience_s: float = PATIENCE_S) -> None:
        """Write one slot, and the header where it is new; nothing after the last word."""
        has_given_up = self.failures >= FAILURES_MOST
        if has_given_up or self.pid != os.getpid() or not self.lock.acquire(timeout=patience_s):
            return
        try:
            if not self.is_over:
                self.is_over = phase == layout.END
                self._report(phase)
            self.failures = 0
        except OSError:
            self.remove()
        except Exception:  # this report is lost; the next one may be better
            self.failures += 1
            if self.failures >= FAILURES_MOST:
                self.remove()
        finally:
            self.lock.release()

    def _report(self, phase: int | None) -> None:
        self.seq += 1
        turn = self.seq % CHECK_EVERY
        if self.ring is not None and turn == 0 and not self.ring.is_there():
            self.close()
            self.open()
        elif self.ring is None and turn == 1:
            self.open()
        if self.ring is None:
            self.taken += len(_taken(self.loop))
            return
        slot, pairs = self._slot(phase)
        self.ring.write_slot(self.seq, layout.encode_slot(slot, pairs))
        if (self.loop.teller, self.loop.framework) != self.news or phase is not None or turn in {1, 4}:
            self._write_header(self.ring)

    def _write_header(self, ring: Ring) -> None:
        assert self.identity is not None
        self.news = self.loop.teller, self.loop.framework
        body = self.identity.body(self.loop, self.allocator)
        if body != self.body:
            ring.write_header(body)
            self.body = body

    def _slot(self, phase: int | None) -> tuple[layout.Slot, list[tuple[int, int]]]:
        told, before = self.loop, self.before
        now = monotonic_ns()
        memory = self._memory()
        sums = self.before = _sums(told, now)
        steps = _taken(told)
        self.taken += len(steps)
        is_complete, self.taken = sums.timed <= self.taken, max(self.taken, sums.timed)
        floor, told.floor, told.is_floor_wanted = told.floor, -1, True
        told.has_errands = True
        durations, waits = zip(*steps) if steps else ((0,), (0,))
        most = MOST_MICROSECONDS
        pairs = [(min(step // 1000, most), min(wait // 1000, most)) for step, wait in steps[: layout.PAIRS_MOST]]
        waiting, pausing = told.waiting_since, told.pause_since
        slot = layout.Slot(
            seq=self.seq,
            wall_ns=time_ns(),
            mono_ns=now,
            step=max(told.step, 0),
            steps=len(steps),
            batches=max(sums.batches - before.batches, 0),
            step_ns=sum(durations),
            wait_ns=sum(waits),
            step_max_ns=max(durations),
            wait_max_ns=max(waits),
            phase=told.phase() if phase is None else phase,
            inside=layout.WAITING if waiting else layout.OUTSIDE,
            flags=self._flags(memory, is_complete=is_complete),
            pairs=len(pairs),
            since_ns=waiting,
            restart_ns=sums.restart - before.restart,
            device=memory.device,
            allocated=memory.allocated,
            peak=memory.peak,
            floor=floor,
            reserved=memory.reserved,
            reserved_peak=memory.reserved_peak,
            active=memory.active,
            inactive_split=memory.inactive_split,
            retries=memory.retries,
            ooms=memory.ooms,
            device_alloc=memory.device_alloc,
            device_free=memory.device_free,
            requested=memory.requested,
            samples=told.fetched_samples or NAN if told.samples is None else told.samples,
            pause_ns=max(sums.paused - before.paused, 0),
            skipped=sums.skipped - before.skipped,
            eval_batches=max(sums.eval_batches - before.eval_batches, 0),
            forward_ns=layout.UNKNOWN if sums.forward is None else max(sums.forward - (before.forward or 0), 0),
            h2d_ns=self._copy_ns(len(steps)),
            beat_ns=told.beat,
            background_wait_ns=sums.background - before.background,
            pause_since_ns=pausing,
            compiles=layout.UNKNOWN if sums.compiles is None else sums.compiles,
            compile_ns=layout.UNKNOWN if sums.compile is None else max(sums.compile - (before.compile or 0), 0),
        )
        return slot, pairs

    def _copy_ns(self, steps: int) -> int:
        """Of so many steps, by those that were timed since the last report, or before it."""
        copies, before = self.loop.copies, self.copied
        done, took = copies.steps, copies.ns
        if done > before.steps:
            self.copied = _Copied(done, took, (took - before.ns) / (done - before.steps))
        copies.wanted = max(copies.wanted, STEPS_TIMED)
        return layout.UNKNOWN if self.copied.mean_ns is None else int(steps * self.copied.mean_ns)

    def _memory(self) -> Memory:
        try:
            return self.allocator.read()
        except Exception:  # whatever a framework of another version answers
            return NOT_KNOWN

    def _flags(self, memory: Memory, *, is_complete: bool) -> int:
        flags = 0 if is_complete else layout.STEPS_WERE_DROPPED
        if self.loop.loss_is_nan is not None:
            flags |= layout.LOSS_IS_KNOWN | (layout.LOSS_IS_NAN if self.loop.loss_is_nan else 0)
        if 0 <= memory.peak < self.peak:
            flags |= layout.PEAK_WAS_RESET
        self.peak = memory.peak
        if self.allocator.name == "cuda-malloc-async":
            flags |= layout.ASYNC_ALLOCATOR
        return flags

    def remove(self) -> None:
        """Nothing more is told: no file must stay that says how things once were."""
        ring, self.ring = self.ring, None
        if ring is not None:
            ring.remove()

    def close(self) -> None:
        """Let go of the file, which stays for the monitor."""
        if self.ring is not None:
            self.ring.close()
        self.ring = None


class _Copied(NamedTuple):
    """The copies that were timed until the last report."""

    steps: int = 0
    ns: int = 0
    mean_ns: float | None = None
    """Of a step; None where none was timed."""


class _Sums(NamedTuple):
    """The loop's sums at one moment."""

    timed: int = 0
    batches: int = 0
    eval_batches: int = 0
    background: int = 0
    restart: int = 0
    skipped: int = 0
    forward: int | None = None
    paused: int = 0
    compiles: int | None = None
    compile: int | None = None


def _sums(told: Loop, now: int) -> _Sums:
    compiling = told.compiling
    return _Sums(
        timed=told.timed,
        batches=told.batches,
        eval_batches=told.eval_batches,
        background=told.background,
        restart=told.restart,
        skipped=told.skipped,
        forward=told.forward,
        paused=told.paused_ns(now),
        compiles=None if compiling is None else compiling.count,
        compile=None if compiling is None else compiling.total_ns(now),
    )


def _taken(told: Loop) -> list[tuple[int, int]]:
    """The steps that wait, oldest first; the loop goes on appending."""
    steps = told.steps
    return [steps.popleft() for _ in range(len(steps))]


class _Here:
    """What this process has; a fork empties it."""

    publisher: Publisher | None = None


def start() -> None:
    """Begin to publish, once in a process."""
    loop.is_started = True
    mode = os.environ.get(MODE, "")
    if mode == "off":
        return
    try:
        publisher = _Here.publisher = Publisher(loop)
        loop.read_allocated = publisher.allocator.read_allocated
        atexit.register(_finish)
        if mode == "nothread":
            loop.publish = _publish_in_step
            loop.publish_due = monotonic_ns()
            loop.has_errands = True
        else:
            _start_thread(publisher)
    except Exception:  # no thread to be had, say: the job matters more
        _Here.publisher = None


def _start_thread(publisher: Publisher) -> None:
    """With all signals blocked: they are for the job's own threads."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        start_new_thread(_run, (publisher,))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(publisher: Publisher) -> None:
    try:
        while _Here.publisher is publisher:
            publisher.report()
            sleep(layout.PERIOD_S)
    except BaseException:  # at the interpreter's end anything may be gone
        pass


def _publish_in_step() -> None:
    publisher = _Here.publisher
    if publisher is not None:
        publisher.report()
    loop.publish_due = monotonic_ns() + int(layout.PERIOD_S * 1e9)


def _finish() -> None:
    """The last word of a process that ends by itself."""
    publisher, _Here.publisher = _Here.publisher, None
    if publisher is None or publisher.pid != os.getpid():
        return
    try:
        publisher.report(layout.END, LAST_PATIENCE_S)
        publisher.close()
    except Exception:
        pass


def _forked() -> None:
    """In a child: its own loop, and nothing of the parent's file."""
    publisher, _Here.publisher = _Here.publisher, None
    loop.reset()
    if publisher is not None:
        publisher.close()


loop.start = start
os.register_at_fork(after_in_child=_forked)
