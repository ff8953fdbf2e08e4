"""Tells what stacks show of a process in the very file that its probe would write, so that every monitor sees it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.layout import Slot
from gpumon.probe._gpumon_probe.memory import NOT_KNOWN
from gpumon.probe._gpumon_probe.ring import Ring, is_safe, start_ticks
from gpumon.sources.inbox.ring import body_of

_NOTHING = Slot(**{
    **dict.fromkeys(Slot._fields, 0),
    **NOT_KNOWN._asdict(),
    "floor": -1,
    "phase": layout.TRAIN,
    "forward_ns": layout.UNKNOWN,
    "h2d_ns": layout.UNKNOWN,
})  # fmt: skip
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Telling:
    """The file of a process that is sampled; gone when that ends."""

    def __init__(self, ring: Ring) -> None:
        """Use ``begin``."""
        self._ring = ring
        self._seq = 0

    @classmethod
    def begin(cls, pid: int, environment: Mapping[bytes, bytes]) -> Telling | None:
        """Make the file; None where there is no place for it. ``environment`` is that of the process."""
        ring = Ring.create(pid)
        if ring is None:
            return None
        try:
            fcntl.flock(ring.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ring.write_header(_body(pid, environment))
        except OSError:
            ring.close()
            os.unlink(ring.path)  # noqa: PTH108 - the probe's own kind of path
            return None
        return cls(ring)

    def tell(self, stacks: int, waits: int, *, is_last: bool = False) -> bool:
        """Write how many stacks were looked at, and how many waited; False where the file is not ours any more."""
        if not self._ring.is_there():
            return False
        self._seq += 1
        slot = _NOTHING._replace(
            seq=self._seq,
            wall_ns=time.time_ns(),
            mono_ns=time.monotonic_ns(),
            step=stacks,
            samples=float(waits),
            phase=layout.END if is_last else layout.TRAIN,
        )
        try:
            self._ring.write_slot(self._seq, layout.encode_slot(slot, []))
        except OSError:
            return False
        return True

    def end(self, stacks: int, waits: int) -> None:
        """Say the last word and take the file away."""
        if self.tell(stacks, waits, is_last=True):
            with contextlib.suppress(OSError):
                os.unlink(self._ring.path)  # noqa: PTH108
        self._ring.close()


def teller_of(pid: int, uid: int, environment: Mapping[str, str]) -> Literal["probe", "sampler"] | None:
    """Who tells of a process already. What a sampler that was killed has left is taken away, where that is allowed."""
    name = f"{pid}.{start_ticks(pid)}"
    for place in layout.directories(environment, uid):
        found = _teller(Path(place, name))
        if found is not None:
            return found
    return None


def _teller(path: Path) -> Literal["probe", "sampler"] | None:
    try:
        descriptor = os.open(path, _FLAGS)
    except FileNotFoundError:
        return None
    except OSError:
        return "probe"
    try:
        body = body_of(os.pread(descriptor, layout.HEADER_SIZE, 0))
        if body is None or not body.sampled:
            return "probe"
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_safe(str(path.parent), os.geteuid()):
            path.unlink()
    except BlockingIOError:
        return "sampler"
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _body(pid: int, environment: Mapping[bytes, bytes]) -> bytes:
    named = {name: environment.get(name.encode(), b"")[: layout.VALUE_MOST] for name in layout.ENVIRONMENT}
    known = {name: value.decode("utf-8", "replace") for name, value in named.items() if value}
    body: dict[str, object] = {"pid": pid, "start": start_ticks(pid), "sampled": True, "environment": known}
    raw = json.dumps(body, separators=(",", ":")).encode("ascii")
    if len(raw) > layout.BODY_MOST:
        raw = json.dumps({**body, "environment": {}}, separators=(",", ":")).encode("ascii")
    return raw
