"""Knows the output of ``nvidia-smi pmon``: the processes on each GPU, moment by moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading, Use
from gpumon.logs.scrolling import (
    Clock,
    Column,
    OutOfRangeError,
    Row,
    Title,
    cells_of,
    index_of,
    is_of_process,
    may_be_row,
    title_of,
    units_of,
    value_of,
)
from gpumon.text import clean

INTERVAL_S = 1.0
"""Between two rounds where the log gives no times: what pmon does unless ``-d`` asks for another."""

_MIB = 1 << 20
_PID_MAX = 1 << 32
_NAME_MAX = 64
_GAP_S = 1.5
_USES_MAX = 10_000
_SM = Column("sm_pct", float, 0.0, 100.0)
_FB = Column("memory_bytes", lambda value: round(value * _MIB), 0.0, 2.0**30)
_REQUIRED = frozenset({"gpu", "pid", "type", "command"})
_SELECTIONS: Mapping[int, tuple[str, ...]] = {
    len(names): names
    for names in (
        tuple(text.split())
        for text in (
            "gpu pid type sm mem enc dec command",
            "gpu pid type sm mem enc dec fb command",
            "gpu pid type sm mem enc dec jpg ofa command",
            "gpu pid type sm mem enc dec jpg ofa fb ccpm command",
        )
    )
}
"""What pmon prints by itself and with ``-s um``, by the number of columns."""


class PmonReader:
    """The rows of one round over the GPUs are one reading."""

    kind: ClassVar[str] = "pmon"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._clock = Clock()
        self._title: Title | None = None
        self._gpus: list[int] = []
        self._uses: list[Use] = []
        self._last: tuple[int, int] = (-1, -1)
        self._time_s: float | None = None

    def starts(self, line: str) -> bool:
        """A title, or a row: the letters for what a process uses the GPU for tell it from everything else."""
        if may_be_row(line):
            if _selection_of(line, self._title) is not None:
                return True
        elif "pid" in line[:64] and _title(line) is not None:
            return True
        self._clock.hear(line)
        return False

    def take(self, line: str) -> bool:
        """Read a title, the units, or a row."""
        if may_be_row(line):
            return self._take_row(line)
        if not line.strip():
            return True
        title = _title(line)
        if title is not None:
            if title != self._title:
                self._flush()
                self._title = title
            return True
        units = units_of(line)
        if units is not None:
            return "c/g" in units
        return self._title is not None and bool(self._title.prefix) and self._take_row(line)

    def end(self) -> None:
        """Give the last round."""
        self._flush()

    def _take_row(self, line: str) -> bool:
        title = self._title
        if title is None:
            title = _selection_of(line, None)
            if title is None:
                return False
            self._title = title
        before = len(title.prefix.split()) if title.separator is None else 0
        cells = cells_of(line, title.separator, len(title.names) + before)
        row = self._clock.row(cells, title.names, title.names.index("gpu"))
        index = None if row is None else index_of(row.cells[title.names.index("gpu")])
        if row is None or index is None:
            if not is_of_process(cells, title.names.index("gpu")):
                return False
            self._leave_out(f"a damaged row: {len(cells)} cells where the title has {len(title.names)}")
            return True
        kind = row.cells[title.names.index("type")]
        if kind != "-" and not is_of_process(row.cells, title.names.index("gpu")):
            return False
        self._add(index, row, title.names)
        return True

    def _add(self, index: int, row: Row, names: tuple[str, ...]) -> None:
        cells = dict(zip(names, row.cells, strict=True))
        pid, is_process = _pid_of(cells["pid"]), cells["pid"] != "-"
        if is_process and pid is None:
            self._leave_out(f"no process number: {cells['pid'][:20]}")
            return
        try:
            sm = value_of(cells["sm"], _SM) if "sm" in cells else None
            held = value_of(cells["fb"], _FB) if "fb" in cells else None
        except OutOfRangeError as error:
            self._leave_out(f"a damaged row: {error}")
            return
        # A round lists GPUs and their processes in ascending order; what does not ascend is of the next one.
        place = (index, -1 if pid is None else pid)
        now_s, then_s = row.time_s, self._time_s
        is_later = now_s is not None and then_s is not None and abs(now_s - then_s) > _GAP_S
        if place <= self._last or is_later or len(self._uses) >= _USES_MAX:
            self._flush()
        if not self._gpus:
            self._time_s = now_s if now_s is not None else self._clock.said()
        self._last = place
        if index not in self._gpus:
            self._gpus.append(index)
        if pid is not None:
            facts: dict[str, Any] = {}
            name = clean(cells["command"].strip(), _NAME_MAX)
            if name and name != "-":
                facts["name"] = name
            if cells["type"] == "G":
                facts["role"] = "other"  # it draws
            memory_bytes = held if isinstance(held, int) else None
            self._uses.append(Use(pid, Place(index=index), memory_bytes, sm if isinstance(sm, float) else None, facts))

    def _flush(self) -> None:
        if self._gpus:
            self._give(
                Reading(
                    time_s=self._time_s,
                    gpus=tuple((Place(index=index), {}) for index in self._gpus),
                    uses=tuple(self._uses),
                    is_complete_process_list=True,
                    interval_s=INTERVAL_S,
                )
            )
            self._gpus, self._uses, self._last = [], [], (-1, -1)


def _pid_of(cell: str) -> int | None:
    is_number = cell.isascii() and cell.isdigit() and len(cell) <= 10
    return int(cell) if is_number and int(cell) < _PID_MAX else None


def _title(line: str) -> Title | None:
    title = title_of(line)
    return title if title is not None and set(title.names) >= _REQUIRED and title.names[-1] == "command" else None


def _selection_of(line: str, known: Title | None) -> Title | None:
    """The columns of a row without a title: those of before where it fits them, else those that pmon has by itself."""
    separator = "," if "," in line else None
    cells = cells_of(line, separator)
    if known is not None and known.separator == separator and not known.prefix:
        at = known.names.index("gpu")
        fits = len(cells) >= len(known.names) and is_of_process(cells, at) and index_of(cells[at]) is not None
        if fits and _pid_of(cells[at + 1]) is not None:
            return known
    if len(cells) < 4 or not is_of_process(cells, 0) or index_of(cells[0]) is None or _pid_of(cells[1]) is None:
        return None
    count = 3
    while count < len(cells) and (cells[count] == "-" or (cells[count].isascii() and cells[count].isdigit())):
        count += 1
    names = _SELECTIONS.get(count + 1)
    return Title(names, separator) if names is not None and count < len(cells) else None
