"""What a probe has written, read back without any of the monitor's caution."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumon.probe._gpumon_probe import layout


@dataclass(frozen=True)
class Report:
    """One process's file."""

    path: Path
    body: dict[str, Any]
    slots: Sequence[layout.Slot]
    pairs: Sequence[tuple[int, int]]

    @property
    def last(self) -> layout.Slot:
        return self.slots[-1]

    @property
    def wait_share(self) -> float:
        return sum(slot.wait_ns for slot in self.slots) / sum(slot.step_ns for slot in self.slots)

    def total(self, field: str) -> int:
        return sum(getattr(slot, field) for slot in self.slots)


def report(path: Path) -> Report:
    raw = path.read_bytes()
    assert len(raw) == layout.FILE_SIZE
    body = layout.decode_header(raw[: layout.HEADER_SIZE])
    assert body is not None
    slots = []
    for at in range(layout.HEADER_SIZE, len(raw), layout.SLOT_SIZE):
        slot = layout.decode_slot(raw[at : at + layout.SLOT_SIZE])
        if slot is not None:
            slots.append((slot, layout.decode_pairs(raw[at : at + layout.SLOT_SIZE])))
    slots.sort()
    return Report(path, json.loads(body), [slot for slot, _ in slots], [p for _, pairs in slots for p in pairs])


def reports(directory: Path) -> list[Report]:
    return [report(path) for path in sorted(directory.iterdir())]
