"""How a process is signalled without ever hitting another: own uid, start time re-checked, bound by a pidfd.

A pid alone names nobody: between the sample and the keystroke the process may have ended and its number may have
been given away. So a ``Target`` is opened first (pidfd, then identity read through ``/proc``) and signalled later.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Literal

from gpumon.errors import GpumonError
from gpumon.model import Process

SignalName = Literal["SIGTERM", "SIGINT", "SIGKILL"]
SIGNALS: tuple[SignalName, ...] = ("SIGTERM", "SIGINT", "SIGKILL")

START_TOLERANCE_S = 2.0
"""The boot time in /proc/stat is whole seconds and moves with the clock's slewing; pids are not reused this fast."""


class SignalRefused(GpumonError):
    """You meet it when a process is gone, is not yours, or is no longer the one you saw."""


class Target:
    """One process, identified and held by a pidfd (where the kernel has them) until it is closed."""

    def __init__(self, process: Process, own_uid: int | None = None, proc: Path = Path("/proc")) -> None:
        """Bind to the process; raises SignalRefused with the reason in words."""
        self.process = process
        self._own_uid = os.geteuid() if own_uid is None else own_uid
        self._proc = proc
        self._pidfd: int | None = None
        if process.pid <= 1:
            raise SignalRefused(f"{process.pid} is not a process of yours")
        if process.started_s is None:
            raise SignalRefused(f"the start of {process.pid} is not known here, so it cannot be told from another")
        self._pidfd = _open_pidfd(process.pid)
        try:
            self._check()
        except SignalRefused:
            self.close()
            raise

    def __enter__(self) -> Target:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Use the target in a ``with`` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the pidfd."""
        self.close()

    def send(self, name: SignalName) -> None:
        """Send the signal to this very process; raises SignalRefused if that is not possible any more."""
        self._check()
        number = signal.Signals[name]
        pid = self.process.pid
        try:
            if self._pidfd is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            raise SignalRefused(f"{pid} has ended") from None
        except PermissionError:
            raise SignalRefused(f"no permission to signal {pid}") from None

    def close(self) -> None:
        """Let go of the process."""
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _check(self) -> None:
        pid = self.process.pid
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
            status = (self._proc / str(pid) / "status").read_bytes()
            boot = (self._proc / "stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            raise SignalRefused(f"{pid} has ended") from None
        except PermissionError:
            raise SignalRefused(f"{pid} belongs to another user") from None
        state, started_s = _identity(stat, boot)
        if started_s is None or abs(started_s - (self.process.started_s or 0.0)) > START_TOLERANCE_S:
            raise SignalRefused(f"{pid} is another process now")
        if state in {"Z", "X"}:
            raise SignalRefused(f"{pid} has ended (zombie)")
        if _uids(status) != {self._own_uid}:
            raise SignalRefused(f"{pid} belongs to {self.process.user or 'another user'}")


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that stays with this process, or None where the kernel has no such thing (before 5.3)."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise SignalRefused(f"{pid} has ended") from None
    except (OSError, AttributeError):
        return None


def _identity(stat: bytes, boot: bytes) -> tuple[str, float | None]:
    """State letter and start (epoch) of a process from ``/proc/PID/stat`` and ``/proc/stat``."""
    fields = stat[stat.rfind(b")") + 2 :].split()
    boot_s = next((float(line.split()[1]) for line in boot.splitlines() if line.startswith(b"btime ")), None)
    if len(fields) < 20 or boot_s is None:
        return "?", None
    return fields[0].decode("ascii", "replace"), boot_s + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _uids(status: bytes) -> set[int]:
    """Real, effective and saved uid of a process; empty when the file does not say."""
    for line in status.splitlines():
        if line.startswith(b"Uid:"):
            return {int(uid) for uid in line.split()[1:4]}
    return set()


def obstacle(source_kind: str, *, read_only: bool) -> str | None:
    """Why nothing at all can be signalled from here, in words; None when it can."""
    if read_only:
        return "signals are off: --read-only"
    if source_kind != "live":
        what = {"demo": "simulated", "replay": "recorded"}.get(source_kind, "remote")
        return f"a {what} process cannot be signalled"
    return None
