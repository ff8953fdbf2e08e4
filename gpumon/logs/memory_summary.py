"""Reads what ``torch.cuda.memory_summary()`` prints, whole or in part, and the two lines that people print instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from gpumon.logs.nccl_text import rank_of
from gpumon.logs.reading import Place, Reading

_TITLE = re.compile(r"PyTorch CUDA memory summary, device ID (\d{1,4})")
_COUNTS = re.compile(r"CUDA OOMs: (\d{1,12}) {0,40}\| {0,40}cudaMalloc retries: (\d{1,12})")
_ROWS = {
    "Allocated memory": "allocated",
    "Active memory": "active",
    "Requested memory": "",
    "GPU reserved memory": "reserved",
    "Non-releasable memory": "inactive_split",
    "Allocations": "",
    "Active allocs": "",
    "GPU reserved segments": "",
    "Non-releasable allocs": "",
    "Oversize allocations": "",
    "Oversize GPU segments": "",
    "Metric": "",
    "from large pool": "",
    "from small pool": "",
}
"""Metric -> the beginning of its fields' names; those without one are known and not needed."""
_RULE = re.compile(r"\|?[-=]{20,200}\|?")
_SIZE = re.compile(r"(?<!\d)(\d{1,15}) ?([KMGTP]?i?B)")
_PRINTED = re.compile(
    r"^\s{0,8}(?:(?:GPU|CUDA|current|torch) ){0,3}(allocated|occupied|reserved|cached)(?: GPU)? memory"
    r"\s{0,4}[:=]\s{0,4}(\d{1,9}(?:\.\d{1,9})?) ?([KMGT]i?B)\b.{0,40}",
    re.IGNORECASE,
)
_PRINTED_LINES = 4
"""The other of the two lines comes within so many."""


class MemorySummary:
    """One event per table, with the allocator's numbers."""

    kind: ClassVar[str] = "torch-log"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._values: dict[str, float] = {}
        self._seen: set[str] = set()
        self._place: Place | None = None
        self._printed = 0
        """How many lines of the printed form may still belong to it; 0 in a table."""

    def starts(self, line: str) -> bool:
        """A title, a row of a known metric with numbers, or one of the printed lines."""
        if "|" in line:
            return _TITLE.search(line) is not None or _COUNTS.search(line) is not None or self._metric(line) is not None
        return "emory" in line and _PRINTED.fullmatch(line) is not None

    def take(self, line: str) -> bool:
        """Rows until something else comes; a second table gives the first."""
        if "|" not in line:
            return self._take_printed(line)
        self._printed = 0
        title = _TITLE.search(line)
        if title is not None:
            self._finish()
            self._place = Place(index=int(title[1]))
            self._note_rank(line)
            return True
        counts = _COUNTS.search(line)
        if counts is not None:
            if "counts" in self._seen:
                self._finish()
            self._seen.add("counts")
            self._values |= {"ooms": float(counts[1]), "alloc_retries": float(counts[2])}
            return True
        metric = self._metric(line)
        if metric is not None:
            self._take_row(metric, line)
            return True
        return _RULE.search(line) is not None

    def end(self) -> None:
        """Give the table."""
        self._finish()

    def _metric(self, line: str) -> str | None:
        """The metric of a row, whose other cells are numbers or the titles of the columns."""
        cells = [cell.strip() for cell in line[line.index("|") :].split("|")]
        if len(cells) < 3 or cells[1] not in _ROWS:
            return None
        is_row = all(not cell or cell[0].isdigit() or cell[:3] in {"Cur", "Pea", "Tot"} for cell in cells[2:])
        return cells[1] if is_row and any(cells[2:]) else None

    def _take_row(self, metric: str, line: str) -> None:
        name = _ROWS[metric]
        if not name:
            return
        if metric in self._seen:
            self._finish()
        self._seen.add(metric)
        self._note_rank(line)
        sizes = _SIZE.findall(line[line.index("|") :])
        if len(sizes) < 2:
            self._leave_out(f"{metric}: no size")
            return
        self._values[f"{name}_bytes"] = _bytes(*sizes[0])
        self._values[f"{name}_peak_bytes"] = _bytes(*sizes[1])

    def _note_rank(self, line: str) -> None:
        rank = rank_of(line)
        if rank is not None:
            self._values["rank"] = float(rank)

    def _take_printed(self, line: str) -> bool:
        match = _PRINTED.fullmatch(line)
        if match is None:
            self._printed -= 1
            return self._printed > 0 and not line.strip()
        name = "reserved" if match[1].lower() in {"reserved", "cached"} else "allocated"
        if f"{name}_bytes" in self._values:
            self._finish()
        self._values[f"{name}_bytes"] = _bytes(match[2], match[3])
        self._printed = _PRINTED_LINES
        return True

    def _finish(self) -> None:
        values, self._values, self._seen = self._values, {}, set()
        place, self._place = self._place, None
        self._printed = 0
        if any(name.endswith("_bytes") for name in values) or "ooms" in values:
            self._give(Reading(events=((place, {"kind": "memory-summary", "values": values}),)))


def _bytes(number: str, unit: str) -> float:
    return round(min(float(number) * 1024.0 ** "BKMGTP".index(unit[0].upper()), 2.0**60))
