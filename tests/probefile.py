"""A stand-in for the probe: writes the file of a training process from outside it, slot by slot."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.layout import Slot
from gpumon.probe._gpumon_probe.ring import start_ticks

NOTHING = Slot(
    **dict.fromkeys(Slot._fields, 0)
    | dict.fromkeys(
        """device allocated peak floor reserved reserved_peak active inactive_split retries ooms device_alloc
        device_free requested""".split(),
        -1,
    )
    | dict.fromkeys(("forward_ns", "h2d_ns", "compiles", "compile_ns"), layout.UNKNOWN)
    | {"samples": float("nan"), "phase": layout.TRAIN}
)
S = 10**9


class ProbeFile:
    """One process's file; ``write`` adds a slot."""

    def __init__(
        self, directory: Path, pid: int, *, ticks: int | None = None, name: str | None = None, **body: Any
    ) -> None:
        ticks = start_ticks(pid) if ticks is None else ticks
        self.path = directory / (name or f"{pid}.{ticks}")
        self.body = {"pid": pid, "start": ticks, **body}
        self.seq = 0
        self.step = 0
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.posix_fallocate(fd, 0, layout.FILE_SIZE)
        self.fd = fd
        self.header()

    def header(self, **body: Any) -> None:
        self.body |= body
        os.pwrite(self.fd, layout.encode_header(json.dumps(self.body).encode()), 0)

    def write(self, pairs: list[tuple[float, float]] | None = None, **values: Any) -> Slot:
        """A slot with these steps of (seconds, of which waited); ``ago_s`` puts it into the past."""
        pairs = pairs or []
        self.seq += 1
        self.step += len(pairs)
        ago_ns = int(values.pop("ago_s", 0.0) * S)
        waits = [wait for _, wait in pairs]
        steps = [step for step, _ in pairs]
        mono_ns = time.monotonic_ns() - ago_ns
        known = {
            "seq": self.seq,
            "wall_ns": time.time_ns() - ago_ns,
            "mono_ns": mono_ns,
            "step": self.step,
            "steps": len(pairs),
            "batches": len(pairs),
            "step_ns": round(sum(steps) * S),
            "wait_ns": round(sum(waits) * S),
            "step_max_ns": round(max(steps, default=0) * S),
            "wait_max_ns": round(max(waits, default=0) * S),
            "pairs": min(len(pairs), layout.PAIRS_MOST),
        }
        if pairs:
            known["beat_ns"] = mono_ns
        slot = NOTHING._replace(**known | values)
        whole = [(round(step * 1e6), round(wait * 1e6)) for step, wait in pairs]
        self.put(slot.seq, layout.encode_slot(slot, whole))
        return slot

    def put(self, seq: int, raw: bytes) -> None:
        os.pwrite(self.fd, raw, layout.HEADER_SIZE + seq % layout.SLOTS * layout.SLOT_SIZE)

    def close(self) -> None:
        os.close(self.fd)
