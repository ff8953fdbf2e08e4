"""Knows ``nvidia-smi -q`` as text: whole, any ``-d`` part of it, several in a row, cut off, or pasted somewhere.

Sections are told by their names, not by their indentation: copying loses or adds spaces, and the names suffice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from gpumon.logs.reading import Reading
from gpumon.logs.smi_dump import Card, Counted, Dump
from gpumon.logs.smi_fields import (
    ANYWHERE,
    COUNTER_SECTIONS,
    FIELDS,
    GUESSES,
    MEMORY,
    POWER,
    PROCESS_SECTIONS,
    REASON_SECTIONS,
    TOLD_APART,
    canonical,
)
from gpumon.logs.values import bus_id, moment

_CARD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_BANNER = re.compile(r"={4,30}NVSMI LOG={4,30}")
_HEADING = re.compile(r"[A-Z][A-Za-z0-9 ./-]{2,47}")
_NAME_MAX = 64
_OF_HEAD = frozenset({"timestamp", "driver_version", "cuda_version", "attached_gpus"})
_OF_INSTANCES = frozenset(
    {
        "index",
        "gpu_instance_id",
        "compute_instance_id",
        "mig_uuid",
        "device_attributes",
        "shared",
        "multiprocessor_count",
        "copy_engine_count",
        "encoder_count",
        "decoder_count",
        "ofa_count",
        "jpg_count",
        "jpeg_count",
        "ecc_errors",
        "volatile",
        "sram_uncorrectable",
        "fb_memory_usage",
        "shared_fb_memory_usage",
        "bar1_memory_usage",
        "shared_bar1_memory",
        "shared_bar1_memory_usage",
        "total",
        "reserved",
        "used",
        "free",
    }
)
"""What stands below ``MIG Device``; anything else belongs to the GPU again."""
_BEGINNINGS = (
    frozenset(
        {*MEMORY.split(), *POWER.split(), "gpu_link_info", "ecc_errors", "ecc_mode", "remapped_rows", "max_clocks"}
    )
    | REASON_SECTIONS
    | COUNTER_SECTIONS
) - {"memory_usage"}
"""Headings that nothing else has; the following are words that may stand in any text, so only indented."""
_PLAIN_BEGINNINGS = frozenset({"temperature", "utilization", "clocks", "processes", "fabric"})
_TELLING = (
    {name for section, name in FIELDS if section == ANYWHERE and "_" in name}
    | set(GUESSES)
    | {"gpu_uuid", "bus_id", "minor_number", "hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
    | {"attached_gpus", "virtualization_mode"}
) - {"correctable_error", "uncorrectable_error"}


class _Left(NamedTuple):
    """Where a dump stood when something else came between its lines."""

    dump: Dump
    card: Card | None


class NvidiaSmiQ:
    """Reader of ``nvidia-smi -q``."""

    kind: ClassVar[str] = "nvidia-smi-q"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._counted: dict[str, Counted] = {}
        self._left: _Left | None = None
        self._begin()

    def _begin(self) -> None:
        self._dump = Dump()
        self._card: Card | None = None
        self._instance: Card | None = None
        self._section: str | None = None
        self._group = ""

    def starts(self, line: str) -> bool:
        """A banner, a GPU, a heading or a field that only this format has."""
        text = line.strip()
        if not text or not (text[0].isalpha() or text[0] == "="):
            return False
        if _BANNER.match(text) or _CARD.fullmatch(text):
            return True
        name, cell = _split(text)
        if cell is None:
            return name in _BEGINNINGS or (name in _PLAIN_BEGINNINGS and line[0] in " \t")
        if name == "timestamp":
            return moment(cell) is not None
        return name in _TELLING or name in _BEGINNINGS

    def take(self, line: str) -> bool:
        """Read a line of a dump; what looks like none ends it."""
        text = line.strip()
        if not text:
            return True
        if text[0] == "=":
            is_banner = _BANNER.match(text) is not None
            if is_banner:
                self._over()
            return is_banner
        card = _CARD.fullmatch(text)
        if card is not None:
            self._begin_card(bus_id(card.group(1)))
            return True
        name, cell = _split(text)
        if cell is None:
            return self._take_heading(name, text)
        return bool(name) and self._take_cell(name, cell, is_aligned=text.partition(":")[0][-1:] in {" ", "\t"})

    def end(self) -> None:
        """Give the dump so far; it may go on after other lines."""
        dump, card = self._dump, self._card
        self._begin()
        if not dump.is_empty():
            self._give(dump.reading(self._counted))
            self._left = _Left(dump, card)

    def _over(self) -> None:
        """Another dump begins."""
        self.end()
        self._left = None

    def _begin_card(self, bus: str | None) -> None:
        if any(card.bus == bus for card in self._dump.cards):
            self._over()
        elif self._left is not None and all(card.bus != bus for card in self._left.dump.cards):
            self._resume(self._left.dump)
        self._card, self._instance, self._section, self._group = self._dump.new_card(bus), None, None, ""

    def _resume(self, dump: Dump) -> None:
        """Go on with a dump that has been given; what follows are not its first GPUs."""
        self._left = None
        self._dump.time_s, self._dump.has_zone, self._dump.is_rest = dump.time_s, dump.has_zone, True

    def _take_heading(self, name: str, text: str) -> bool:
        if not _HEADING.fullmatch(text):
            return False
        if name == "mig_device":
            self._instance, self._section = self._here().new_instance(), None
            return True
        self._leave_instance(name)
        if name in {"volatile", "aggregate"}:
            self._group = name
        self._section = f"{self._group}/{name}" if name in TOLD_APART else name
        return True

    def _take_cell(self, name: str, cell: str, *, is_aligned: bool) -> bool:
        if name in _OF_HEAD:
            self._take_head(name, cell)
            return True
        self._leave_instance(name)
        section = self._section
        if name in PROCESS_SECTIONS:
            section = self._section = None
        elif name == "gpu_instance_id" and section in PROCESS_SECTIONS:
            self._instance = None
        is_known = (self._instance or self._here()).put(section, name, cell)
        return is_known or is_aligned

    def _take_head(self, name: str, cell: str) -> None:
        if self._dump.cards or (name == "timestamp" and not self._dump.is_empty()):
            self._over()
        self._left = None
        self._dump.put(name, cell)

    def _here(self) -> Card:
        """The GPU that the lines are about; one without a name where none was named."""
        if self._card is None:
            card = None if self._left is None else self._left.card
            if self._left is not None:
                self._resume(self._left.dump)
            self._card = self._dump.new_card(None if card is None else card.bus)
            if card is not None:
                self._card.uuid, self._card.minor = card.uuid, card.minor
        return self._card

    def _leave_instance(self, name: str) -> None:
        if self._instance is not None and name not in _OF_INSTANCES:
            self._instance, self._section = None, None


def _split(text: str) -> tuple[str, str | None]:
    """Name and cell of a line; the cell is None on a heading. The name is empty where it is none."""
    before, colon, cell = text.partition(":")
    if not colon:
        return canonical(before) if len(before) <= _NAME_MAX else "", None
    if len(before) > _NAME_MAX or (cell and cell[0] not in " \t") or not before[:1].isalpha():
        return "", ""
    return canonical(before), cell.strip()
