"""Reads ``nvidia-smi --query-gpu=… --format=csv``, its lists of processes, and CSV logs of people's own programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from gpumon.logs import csv_columns as of
from gpumon.logs import csv_headerless as headerless
from gpumon.logs import values
from gpumon.logs.csv_columns import Column
from gpumon.logs.csv_home_made import Meaning, meaning, settled
from gpumon.logs.csv_table import Row, Table
from gpumon.logs.csv_ticks import Ticks
from gpumon.logs.reading import Reading

_HEADER_MAX = 16 * 1024
_SEPARATORS = (";", "\t", ", ", ",")
_BETWEEN = re.compile(r"[-=_*#~ ]{3,200}")
"""What loops print between two polls; a line with a date too."""
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}[T ,]{1,2}\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
    r"(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d{1,2}:\d{2}:\d{2}(?: [AP]M)? [A-Z]{2,5} \d{4}"
)
"""Without a zone the second form is nvidia-smi's own, above its table."""
_DATE_MAX = 64
_WORD_MAX = 24
_OF_THE_PAST = frozenset({"max_memory_usage", "mem_utilization"})
"""Columns of ``--query-accounted-apps``: processes that are over."""


class NvidiaSmiCsv:
    """The header says what the columns are; where there is none, the cells do, as far as they are certain."""

    kind: ClassVar[str] = "nvidia-smi-csv"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._leave_out = leave_out
        self._ticks = Ticks(give)
        self._add = self._ticks.add
        self._header = ""
        self._separator = ","
        self._meaning: Meaning | None = None
        """Of a header whose first row has not come yet."""
        self._lone_name: tuple[str, Meaning] | None = None
        self._table: Table | None = None
        self._unheaded: headerless.Unheaded | None = None
        self._refused_width = 0
        """Of rows that were refused with one line."""

    def starts(self, line: str) -> bool:
        """A header, a row of the last table, or a row that tells by itself what it is."""
        pending, self._lone_name = self._lone_name, None
        found = self._read_header(line)
        if found is not None:
            if len(found.columns) > 1 or "[" in line:
                return True
            self._lone_name = line, found  # a list of names, or the header of one column: the next line shows
            return False
        if pending is not None and _is_value(line):
            self._begin(*pending)
            return True
        if _is_date(line):
            self._tell_time(line)
            return False
        if self._is_row(line):
            return True
        return headerless.begins(line)

    def _is_row(self, line: str) -> bool:
        """Whether it is surely a row of the last header's table, after lines of another kind."""
        table = self._table
        if table is not None:
            return table.is_row(line.split(table.separator))
        if self._meaning is None or len(self._meaning.columns) == 1 or len(line) > _HEADER_MAX:
            return False
        table, cells, _ = self._table_of(line, self._meaning)
        return table.is_row(cells)

    def take(self, line: str) -> bool:
        """Read a line; a line of another kind ends the stretch, a damaged row does not."""
        table = self._table
        if table is not None:
            cells = line.split(table.separator)
            if len(cells) == table.width:
                row = table.row(cells)
                if row is not None and row[2]:
                    self._add(row)
                    return True
        return self._take_other(line)

    def end(self) -> None:
        """Give what is pending."""
        if self._unheaded is not None:
            self._decide(self._unheaded)
        self._ticks.end()
        doubts = self._table.doubts() if self._table is not None else []
        if doubts:
            self._leave_out(f"left out: {', '.join(doubts)} (a share of 1 or of 100)")

    def _take_other(self, line: str) -> bool:
        """A line that is no plain row: blank, a header, the first row after one, a damaged row."""
        if not line.strip() or _BETWEEN.fullmatch(line):
            return True
        if _is_date(line):
            self._tell_time(line)
            return True
        found = self._read_header(line)
        if found is not None:
            self._begin(line, found)
            return True
        if self._meaning is not None:
            return self._take_first(line, self._meaning)
        if self._table is not None:
            return self._take_damaged(line, self._table)
        return self._take_unheaded(line)

    # --- headers ---------------------------------------------------------------------------------

    def _read_header(self, line: str) -> Meaning | None:
        """What a header says; None where the line is none."""
        if not line.lstrip("\"'# ")[:1].isalpha() or len(line) > _HEADER_MAX:
            return None
        return meaning(line.rstrip(" ,;\t").split(_separator_of(line)))

    def _begin(self, line: str, found: Meaning) -> None:
        if self._unheaded is not None:
            self._decide(self._unheaded)
        self._refused_width = 0
        if line == self._header and self._table is not None:
            if self._table.clock is None:  # without times, every header begins a moment
                self._ticks.begin(self._table)
            return
        self._ticks.end()
        self._header, self._separator = line, _separator_of(line)
        self._meaning, self._table = found, None

    def _take_first(self, line: str, found: Meaning) -> bool:
        """The first row after a header: it shows how times and sizes are written."""
        if len(found.columns) == 1 and not _is_value(line):
            return False
        table, cells, doubts = self._table_of(line, found)
        if len(cells) != table.width and table.cells(line) is None:
            return self._take_damaged(line, table)  # the next one will be the first
        self._meaning = None
        because = self._refusal(table)
        if because is not None:
            return self._refuse(line, because)
        if doubts:
            self._leave_out(f"left out: {', '.join(doubts)} (what it measures, or its unit, is not in the name)")
        row = table.row(cells) if len(cells) == table.width else None
        if row is None or not (row[2] or table.is_keyed or table.is_row(cells)):
            return self._take_damaged(line, table)
        self._use(table)
        self._add(row)
        return True

    def _table_of(self, line: str, found: Meaning) -> tuple[Table, list[str], tuple[str, ...]]:
        """The table that a header and a first row make, the row's cells, and the names that say too little."""
        width = len(found.columns)
        cells = _split(line, self._separator, width)
        padded = [*cells, *[""] * width][:width]
        found = settled(found, padded)
        return Table(_of_processes(found.columns), self._separator, padded), cells, found.doubts

    def _refusal(self, table: Table) -> str | None:
        names = {of.split_unit(one)[0] for one in self._header.split(self._separator)}
        if not _OF_THE_PAST.isdisjoint(names):
            return "the accounting of processes that are over says nothing of the GPUs' state"
        if table.is_of_uses and not table.has_places:
            return "processes without gpu_uuid or gpu_bus_id: on which GPU they are is not said"
        return None

    def _use(self, table: Table) -> None:
        self._table = table
        self._ticks.begin(table)
        is_plain = not table.host_fields and not table.is_of_uses
        self._add = self._ticks.add if is_plain else self._add_part

    def _refuse(self, line: str, because: str) -> bool:
        self._leave_out(because)
        self._refused_width = len(headerless.cells_of(line))
        return True

    def _tell_time(self, line: str) -> None:
        if self._unheaded is not None:
            self._unheaded.note(line)
        else:
            self._ticks.tell_time(values.moment(line), has_zone=values.has_zone(line))

    # --- rows ------------------------------------------------------------------------------------

    def _add_part(self, row: Row) -> None:
        """A row that tells of the machine too, or of a process."""
        assert self._table is not None
        if self._table.host_fields:
            self._ticks.tell_host(self._table.of_host(row[2]))
        if self._table.is_of_uses:
            self._ticks.add_use(row)
        else:
            self._ticks.add(row)

    def _take_damaged(self, line: str, table: Table) -> bool:
        cells = table.cells(line)
        row = None if cells is None else table.row(cells)
        if row is not None and cells is not None and (row[2] or table.is_keyed or table.is_row(cells)):
            if self._table is None:
                self._use(table)
            self._add(row)
            return True
        cells = line.split(table.separator)
        if table.resembles(cells):
            self._leave_out(f"a row of {len(cells)} cells under a header of {table.width}")
            return True
        return False

    # --- rows without a header -------------------------------------------------------------------

    def _take_unheaded(self, line: str) -> bool:
        if self._refused_width == len(headerless.cells_of(line)):
            return True
        if self._unheaded is None:
            if not headerless.begins(line):
                return False
            self._unheaded = headerless.Unheaded()
        if not self._unheaded.add(line):
            self._decide(self._unheaded)
            return False
        if self._unheaded.is_full:
            self._decide(self._unheaded)
        return True

    def _decide(self, unheaded: headerless.Unheaded) -> None:
        """Say what the columns are, and read the rows that waited for it."""
        self._unheaded = None
        guess = unheaded.guess()
        first = unheaded.first
        self._separator = next((one for one in ("\t", ";", ", ") if one in first), ",")
        table = Table(guess.columns, self._separator, first.split(self._separator))
        doubts = "; ".join(guess.doubts)
        if not table.fields:
            self._refuse(first, f"no header line: {doubts or 'nothing is measured'}; write --format=csv")
            return
        if doubts:
            self._leave_out(f"no header line: {doubts}; left out; write --format=csv")
        self._header = ""
        self._use(table)
        for line in unheaded.lines:
            if _is_date(line):
                self._tell_time(line)
                continue
            row = table.row(line.split(table.separator))
            if row is not None:
                self._add(row)


def _is_date(line: str) -> bool:
    return len(line) <= _DATE_MAX and _DATE.fullmatch(line.strip()) is not None


def _separator_of(line: str) -> str:
    """A header has one kind of separator; nvidia-smi's comma is followed by a space."""
    return next((one for one in _SEPARATORS if one in line), ",")


def _is_value(line: str) -> bool:
    """Whether it can be the only cell of a row."""
    text = line.strip()
    if values.is_missing(text):
        return len(text) <= _WORD_MAX or (text.startswith("[") and text.endswith("]"))
    return headerless.shape(text) is not None


def _split(line: str, separator: str, width: int) -> list[str]:
    """The cells of a first row, whose own separators may differ from the header's."""
    found = (line.split(one) for one in (separator, *_SEPARATORS))
    return next((cells for cells in found if len(cells) == width), line.split(separator))


def _of_processes(columns: Sequence[Column | None]) -> tuple[Column | None, ...]:
    """In a list of processes old drivers call the program just ``name``; without PIDs it is no such list."""
    fields = {column.field for column in columns if column is not None}
    if "use.pid" not in fields:
        return tuple(None if column is not None and column.field.startswith("use.") else column for column in columns)
    if "use.name" in fields:
        return tuple(columns)
    program = of.NVIDIA_SMI["process_name"]
    return tuple(program if column is not None and column.field == "name" else column for column in columns)
