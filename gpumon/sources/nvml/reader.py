"""Knows when the driver is asked: a thread of its own reads and publishes, whatever the driver does to it.

A call into the driver can block for ever. So nobody waits for the reading thread: the newest reading is one attribute,
and when a pass over one GPU hangs, one replacement thread goes on with the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pynvml

from gpumon.errors import NoSourceError
from gpumon.model import Event
from gpumon.sources.nvml.calls import DriverGone
from gpumon.sources.nvml.devices import Selection
from gpumon.sources.nvml.reading import Reading
from gpumon.sources.nvml.session import Session
from gpumon.sources.nvml.start import PROC, explanation
from gpumon.sources.nvml.watch import SILENT_PASSES, WatchedGpu

RETRIES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Between attempts to start NVML again; the last one stays."""
EVENTS_MAX = 4096
"""One broken job can emit thousands of Xids before anyone drains them."""


class _Duty:
    """What one reading thread is doing; watched from outside."""

    __slots__ = ("gpu", "has_answer", "hung_uuid", "since")

    def __init__(self) -> None:
        self.gpu: WatchedGpu | None = None
        """The GPU that is being read at the moment."""
        self.since = 0.0
        self.has_answer = False
        self.hung_uuid: str | None = None
        """Set when the thread was replaced: its GPU is free again when it ends."""


class _Outage:
    """The driver is away."""

    __slots__ = ("_attempts", "because", "is_announced", "retry_at")

    def __init__(self, code: int) -> None:
        self.because = str(explanation(code))
        self.is_announced = False
        self.retry_at = 0.0
        self._attempts = 0

    def wait(self, now: float) -> None:
        """Put the next attempt off, longer each time."""
        self.retry_at = now + RETRIES_S[min(self._attempts, len(RETRIES_S) - 1)]
        self._attempts += 1


class NvmlReader:
    """The GPUs of this machine, read every interval by a daemon thread that owns NVML."""

    def __init__(
        self,
        interval_s: float = 1.0,
        gpus: Sequence[str] | None = None,
        *,
        hang_after_s: float | None = None,
        proc: Path = PROC,
    ) -> None:
        """Nothing is asked yet.

        Args:
            interval_s: between passes; may be assigned later, from any thread.
            gpus: indices, UUIDs or MIG UUIDs to show; None for all.
            hang_after_s: when a pass over one GPU counts as hanging; by default 10 s with persistence mode, else 30 s.
            proc: where the kernel module describes itself.
        """
        self.newest = Reading()
        """Replaced by one assignment after each pass."""
        self.published = threading.Event()
        """Set after each pass, and by ``close``; whoever waits on it clears it."""
        self._interval_s = interval_s
        self._selection = Selection(gpus)
        self._hang_after_s = hang_after_s
        self._proc = proc
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._nudge = threading.Event()
        self._is_closed = False
        self._failure: BaseException | None = None
        self._session: Session | None = None
        self._duty = _Duty()
        self._hung: dict[str, WatchedGpu] = {}
        self._outage: _Outage | None = None
        self._has_tried_restart = False

    @property
    def interval_s(self) -> float:
        """Between passes; a new value counts at once."""
        return self._interval_s

    @interval_s.setter
    def interval_s(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._nudge.set()

    def start(self) -> None:
        """Start the thread; NVML starts on it."""
        self._start_thread()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Wait for the first reading; False when it has not come by then.

        Raises:
            DriverMissing: no driver or no GPU here.
            DriverBroken: a driver that refuses.
            UsageError: a selected GPU that is not here.
        """
        deadline = time.monotonic() + timeout_s
        while not self._is_closed:
            self.published.clear()
            self.raise_failure()
            if self.newest.answered_at is not None:
                return True
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self.published.wait(left_s)
        return False

    def raise_failure(self) -> None:
        """Raise what ended the reading thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def read_once(self) -> Reading:
        """One pass on the caller's thread, without what needs two: for a command that ends right after it.

        Raises what ``wait_until_ready`` raises.
        """
        session = Session(self._selection, self._events, proc=self._proc, reads_once=True)
        began_s = time.thread_time()
        now = time.monotonic()
        try:
            for gpu in session.gpus:
                gpu.read(now)
        except DriverGone as gone:
            raise explanation(gone.code, self._proc) from None
        self._session = session
        self._publish(session, began_s, is_answered=True)
        return self.newest

    def drain_events(self) -> tuple[Event, ...]:
        """Events since the last call, oldest first."""
        events = self._events
        drained: list[Event] = []
        while events:
            drained.append(events.popleft())
        return tuple(drained)

    def refusals(self) -> dict[str, dict[str, int]]:
        """GPU uuid -> call -> NVML's code, for the calls that this driver does not answer."""
        session = self._session
        return {
            gpu.device.uuid: {call: code for call, (_, code) in gpu.reader.asker.refusals.items()}
            for gpu in (session.gpus if session else ())
        }

    def replace_hung_thread(self) -> None:
        """Let a new thread go on with the other GPUs when the reading one hangs. For the consumer, once per tick.

        There is never a second thread on the GPU that hangs; when its call returns, its thread ends and the GPU is
        read again. A replacement that gets no answer at all is not replaced: then the whole driver hangs.
        """
        duty, session = self._duty, self._session
        gpu = duty.gpu
        if gpu is None or session is None or not duty.has_answer or self._is_closed:
            return
        limit_s = gpu.hang_after_s if self._hang_after_s is None else self._hang_after_s
        others = [other for other in session.gpus if other is not gpu and other.device.uuid not in self._hung]
        if time.monotonic() - duty.since < limit_s or not others:
            return
        duty.hung_uuid = gpu.device.uuid
        self._hung[duty.hung_uuid] = gpu
        self._start_thread()

    def close(self) -> None:
        """End; returns at once, wherever the threads are."""
        self._is_closed = True
        if self._session is not None:
            self._session.close()
        self._nudge.set()
        self.published.set()

    # --- the reading thread ----------------------------------------------------------------------

    def _start_thread(self) -> None:
        self._duty = _Duty()
        threading.Thread(target=self._run, args=(self._duty,), name="nvml", daemon=True).start()

    def _run(self, duty: _Duty) -> None:
        try:
            self._read_until_closed(duty)
        except Exception as error:  # noqa: BLE001 - raised again on the consumer's thread, which can tell the user
            if self._is_mine(duty):
                self._failure = error
                self.published.set()
        finally:
            if duty.hung_uuid is not None:
                self._hung.pop(duty.hung_uuid, None)

    def _is_mine(self, duty: _Duty) -> bool:
        """This thread still has the turn: not closed, and not replaced while it hung."""
        return self._duty is duty and not self._is_closed

    def _read_until_closed(self, duty: _Duty) -> None:
        due_at = time.monotonic()
        while self._is_mine(duty):
            began_s = time.thread_time()
            if self._session is None:
                self._session = Session(self._selection, self._events, proc=self._proc)
                # NVML has just answered: if the very first GPU hangs, the others are worth a new thread.
                duty.has_answer = True
            is_answered = False
            try:
                if self._outage is None or self._restart(self._session):
                    is_answered = self._pass(self._session, duty)
            except DriverGone as gone:
                self._outage = _Outage(gone.code)
                self._restart(self._session)
            if self._is_mine(duty):
                self._publish(self._session, began_s, is_answered=is_answered)
                due_at = self._pause(duty, due_at)

    def _pass(self, session: Session, duty: _Duty) -> bool:
        """Read every GPU; tells whether the driver answered anything. Raises DriverGone."""
        is_answered = session.count(time.monotonic())
        is_any_well = False
        for gpu in session.gpus:
            if gpu.device.uuid in self._hung or not self._is_mine(duty):
                continue
            now = time.monotonic()
            duty.since, duty.gpu = now, gpu
            is_any_well = gpu.read(now) or is_any_well
            duty.gpu = None
            duty.has_answer = duty.has_answer or is_any_well
        silent = [gpu for gpu in session.gpus if gpu.silent_passes >= SILENT_PASSES]
        if is_any_well:
            self._has_tried_restart = False
        elif silent and not self._has_tried_restart and self._is_mine(duty):
            # Unknown errors from everything: what a container gives whose devices were taken away.
            self._has_tried_restart = True
            raise DriverGone(pynvml.NVML_ERROR_UNKNOWN)
        for gpu in silent:
            gpu.lose(time.monotonic())
        return is_answered or is_any_well

    def _restart(self, session: Session) -> bool:
        """Start NVML again when it is time; tells whether it runs."""
        outage, now = self._outage, time.monotonic()
        if outage is None:
            return True
        if now < outage.retry_at:
            return False
        outage.wait(now)
        if self._hung or not session.end():
            outage.because = "NVML is away, and a call into the driver still hangs: it cannot be started again."
            return False
        try:
            self._session = Session(self._selection, self._events, proc=self._proc)
        except NoSourceError as error:
            outage.because = str(error)
            if not outage.is_announced:
                outage.is_announced = True
                self._events.append(Event(kind="driver-error", time_s=time.time(), text=outage.because))
            return False
        self._session.adopt(session.gpus)
        if outage.is_announced:
            self._events.append(Event(kind="driver-back", time_s=time.time(), text="NVML answers again"))
        self._outage = None
        return True

    def _publish(self, session: Session, began_s: float, *, is_answered: bool) -> None:
        outage = self._outage
        self.newest = Reading(
            gpus=tuple(reading for gpu in session.gpus for reading in gpu.readings),
            versions=session.versions,
            answered_at=time.monotonic() if is_answered else self.newest.answered_at,
            error=None if outage is None else outage.because,
            cpu_ms=1000 * (time.thread_time() - began_s),
        )
        self.published.set()

    def _pause(self, duty: _Duty, due_at: float) -> float:
        """Wait for the next pass, as long as the interval of that moment says; returns when it was due."""
        while self._is_mine(duty):
            left_s = due_at + self._interval_s - time.monotonic()
            if left_s <= 0:
                break
            self._nudge.wait(left_s)
            self._nudge.clear()
        due_at += self._interval_s
        now = time.monotonic()
        return due_at if now - due_at < self._interval_s else now
