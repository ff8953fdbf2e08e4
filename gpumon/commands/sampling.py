"""``gpumon attach --sample PID``: looks at a Python process's stack from outside, now and then, and says what it shows.

py-spy reads the other process's memory without stopping it; the process itself runs no more and no less than before.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from gpumon import text, units
from gpumon.commands import attach
from gpumon.commands.attach import Target
from gpumon.errors import UsageError
from gpumon.rules.measured import share_of
from gpumon.signals import LEAST_STACKS
from gpumon.sources.host.proc import read_stat
from gpumon.sources.inbox.sampled import Telling
from gpumon.sources.stacks import MOST_BYTES, main_thread, place_of, waits_for_data

PAUSE_S = (0.5, 0.75)
"""Between two looks, at random: a loop that goes on by the half second would always be met at the same place."""
_DUMP_S = 5.0
_TRIES = 6
"""At the beginning, until one look succeeds."""
_FAILURES = 40
_PLACES = 1000
_TOLD_BYTES = 1 << 16


class _Dump(NamedTuple):
    """What py-spy said."""

    out: bytes
    errors: str
    is_answer: bool = True
    """False where it never came to look."""


class _Tally:
    """What was seen so far."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.stacks = self.waits = self.unread = self.failures = 0
        self.places: Counter[str] = Counter()

    def look(self, program: str, pid: int) -> str:
        """Look once; what kept from it, empty where nothing did.

        A stack that changes while it is read cannot be: a quarter of the time in a loop of short calls. One that waits
        stands still. So it counts as one that does not wait; left out, it would make waits look more frequent.
        """
        dump = _dump(program, pid)
        stack = main_thread(dump.out, pid)
        self.stacks += dump.is_answer
        if stack is None:
            self.unread += dump.is_answer
            self.failures += 1
            return dump.errors or "py-spy does not show its main thread"
        self.failures = 0
        self.waits += waits_for_data(stack)
        place = place_of(stack)
        if place is not None and (place in self.places or len(self.places) < _PLACES):
            self.places[place] += 1
        return ""

    def is_readable(self) -> bool:
        """Whether most stacks could be read."""
        return self.unread <= self.stacks // 2


def run(pid: int, seconds: float | None) -> int:
    """Sample until the time is over, the process ends or Ctrl-C; returns the exit code.

    Raises:
        UsageError: it cannot be done; names what forbids it, and what to do instead.
    """
    target = attach.target_of(pid)
    teller = attach.told_by(target)
    if teller is not None:
        who = "has a probe already, which measures this" if teller == "probe" else "is sampled already"
        sys.stdout.write(f"gpumon: process {pid} {who}; gpumon shows it\n")
        return 0
    attach.refuse_what_is_not_ours(target, "look into it", "gpumon attach --sample")
    program = attach.py_spy()
    if program is None:
        raise UsageError(
            "attach: --sample takes py-spy, and there is none on the PATH or beside gpumon: pip install py-spy; "
            f"or {attach.start_again()}"
        )
    tally = _Tally()
    _begin(tally, program, target)
    telling = Telling.begin(pid, target.environment)
    if sys.stderr.isatty():
        until = "Ctrl-C ends it" if seconds is None else f"for {units.duration(seconds)}, or until Ctrl-C"
        sys.stderr.write(f"gpumon: sampling process {pid}, {until}; gpumon in another terminal shows it as sampled\n")
    if telling is None:
        sys.stderr.write("gpumon: there is no place to tell other gpumons about it: only this one knows\n")
    why = ""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        why = _sample(tally, program, target, telling, seconds)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        if telling is not None:
            telling.end(tally.stacks, tally.waits)
    sys.stdout.write("".join(f"gpumon: {line}\n" for line in [*([why] if why else []), *_told(tally, pid)]))
    return 0


def _begin(tally: _Tally, program: str, target: Target) -> None:
    """The first look, which shows whether it is allowed at all."""
    for _ in range(_TRIES):
        errors = tally.look(program, target.pid)
        if not errors:
            return
        if not _is_alive(target):
            raise UsageError(f"attach: process {target.pid} ended meanwhile")
        if _is_forbidden(errors):
            break
        time.sleep(PAUSE_S[0])
    raise UsageError(_refusal(target, errors))


def _sample(tally: _Tally, program: str, target: Target, telling: Telling | None, seconds: float | None) -> str:
    """Look again and again; why it ended, where that was not asked for."""
    pid = target.pid
    until = None if seconds is None else tally.began + seconds
    while True:
        if telling is not None and not telling.tell(tally.stacks, tally.waits):
            is_probe = attach.told_by(target) == "probe"
            return f"process {pid} has a probe now" if is_probe else f"the file about process {pid} was taken away"
        pause_s = random.uniform(*PAUSE_S)  # noqa: S311 - no secret
        left_s = pause_s if until is None else min(pause_s, until - time.monotonic())
        time.sleep(max(0.0, left_s))
        if until is not None and time.monotonic() >= until:
            return ""
        if not _is_alive(target):
            return f"process {pid} has ended"
        errors = tally.look(program, pid)
        if tally.failures >= _FAILURES:
            return f"the last {_FAILURES} looks at process {pid} failed: {errors}"


def _dump(program: str, pid: int) -> _Dump:
    """One stack of every thread, without stopping the process."""
    command = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    out, errors = os.memfd_create("stacks", os.MFD_CLOEXEC), os.memfd_create("errors", os.MFD_CLOEXEC)
    try:
        with subprocess.Popen(  # noqa: S603 - the program that the user asked for
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, cwd="/", start_new_session=True
        ) as process:
            # At our own priority: one that waits until the cores are free finds the process waiting, too.
            try:
                process.wait(_DUMP_S)
            except BaseException:
                process.kill()
                raise
        return _Dump(os.pread(out, MOST_BYTES + 1, 0), _reason(os.pread(errors, _TOLD_BYTES, 0)))
    except subprocess.TimeoutExpired:
        return _Dump(b"", f"py-spy does not answer within {_DUMP_S:g} s", is_answer=False)
    except OSError as error:
        return _Dump(b"", f"{program} cannot be started: {error.strerror}", is_answer=False)
    finally:
        os.close(out)
        os.close(errors)


def _reason(errors: bytes) -> str:
    """py-spy's own words, without its backtrace."""
    lines = [line.strip() for line in errors.decode("utf-8", "replace").splitlines()]
    return text.clean(next((line.removeprefix("Error: ") for line in lines if line), ""))


def _is_alive(target: Target) -> bool:
    stat = read_stat("/proc", target.pid)
    return stat is not None and stat.started_ticks == target.started_ticks and stat.state not in {"Z", "X"}


def _is_forbidden(errors: str) -> bool:
    return "permission" in errors.lower() or "not permitted" in errors.lower()


def _refusal(target: Target, errors: str) -> str:
    """What forbids it, as far as that shows, and what to do."""
    pid, otherwise = target.pid, attach.start_again()
    if not _is_forbidden(errors):
        return f"attach: process {pid} cannot be sampled: {errors}; {otherwise}"
    rule = attach.ptrace_rule(pid, by_a_child=True)
    if rule is not None:
        return f"attach: process {pid}: {rule}; or {otherwise}"
    if attach.container_of(os.getpid()) is not None or Path("/.dockerenv").exists():
        return (
            f"attach: this container may not look into processes: start it with --cap-add SYS_PTRACE, or run gpumon "
            f"outside of it; or {otherwise}"
        )
    return f"attach: process {pid} may not be looked into (it is protected); {otherwise}"


def _told(tally: _Tally, pid: int) -> list[str]:
    """The result in words."""
    span = units.duration(time.monotonic() - tally.began)
    if tally.stacks < LEAST_STACKS:
        times = f"{tally.stacks} time{'s' * (tally.stacks != 1)}"
        few = f"too few to say how long it waits for data ({LEAST_STACKS} at least)"
        return [f"process {pid} was sampled {times} in {span}: {few}"]
    if not tally.is_readable():
        unread = f"{tally.unread} of {tally.stacks} stacks changed while they were read"
        return [f"process {pid}: {unread}, which is too many to say how long it waits for data"]
    share = share_of(tally.stacks, tally.waits)
    sampled = f"sampled: {tally.stacks} stacks in {span}, 95% between {share.low_pct:.0f} and {share.high_pct:.0f}%"
    lines = [f"process {pid} waits for data {share.wait_pct:.0f}% of the time ({sampled})"]
    if not tally.waits:
        lines = [f"process {pid} was never seen waiting in a data loader that gpumon knows ({sampled})"]
    place, times_there = tally.places.most_common(1)[0] if tally.places else ("", 0)
    if times_there:
        lines.append(f"its main thread is mostly in {place}: {100 * times_there / tally.stacks:.0f}% of the samples")
    return lines
