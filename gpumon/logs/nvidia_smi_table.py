"""Reads the table that plain ``nvidia-smi`` prints, once or in a loop, and the lines it prints instead of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpumon.logs import nvidia_smi_cells as cells
from gpumon.logs.driver_messages import Message, message
from gpumon.logs.reading import Place, Reading
from gpumon.logs.values import has_zone, moment

_VERSIONS = re.compile(r"NVIDIA-SMI +(?:\d\.(?=\d{3}\.))?(\d[\d.]{2,15})(?=.{0,60}Driver Version: *(\d[\d.]{2,15}))?")
_CUDA = re.compile(r"CUDA Version: *(\d{1,2}\.\d{1,2})")
_BEGINS = re.compile(
    r"NVIDIA-SMI {1,60}\d[\d.]{2,15}.{1,60}Driver Version"
    r"|\| {0,60}(?:GPU {1,60}Name\b.{1,60}\||Fan {1,60}Temp {1,60}Perf\b|MIG devices: .{0,80}\|"
    r"|(?:Compute p|P)rocesses: .{0,80}\||GPU {1,60}(?:GI {1,60}CI {1,60})?PID {1,60}(?:Type {1,60})?Process name\b"
    r"|\d{1,3}\.? {1,60}\S[^|]{0,80}\| {0,60}[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f] "
    r"|(?:\d{1,3} ?%|N/A|ERR!) {1,60}(?:\d{1,3} ?C|ERR!|N/A) {1,60}(?:P\d{1,2}|N/A|ERR!) [^|]{1,60}\|"
    r"|\d{1,3} {1,60}(?:(?:N/A|\d{1,3}) {1,60}(?:N/A|\d{1,3}) {1,60})?\d{1,10} {1,60}"
    r"(?:C\+G|M\+C|[CG]) {1,60}\S.{0,200} (?:\d{1,9}MiB|N/A) {0,60}\|)"
)
_CLOCK = re.compile(r"\d{1,2}:\d{2}")
_DATED = re.compile(r"[^A-Za-z0-9]{0,20}(?:(?:time(?:stamp)?|date) {0,2}[:=] {0,4})?(.{0,60})", re.IGNORECASE)
_WATCHED = re.compile(r"Every (\d{1,5}[.,]\d{1,2})s: .{0,40}nvidia-smi\b")
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d{2}:\d{2}:\d{2} (?:[A-Z]{3,5} )?\d{4}")
_BORDERS = frozenset("|+")
_ONLY_RULE = re.compile(r"[-=_*#~+ ]{3,}")
_DIGITS = re.compile(r"\d+")
_PREFIX_MAX = 60
"""What other programs write in front of a line: a time, a container's name, a rank."""
_ROW_MAX, _HEAD_MAX = 16_384, 1000
"""Characters that are read of a line, as whole tables may stand on one; and by which it is recognised."""
_NEAR_LINES = 4
"""A date stands at most so many lines above its table."""
_USED_BYTES = 512 * 1024**2
_BUSY_PCT = 10.0
_WSL = re.compile(r"\d{3}\.\d{2}")

HIDDEN_WSL = "the log is of WSL 2, where the driver names no processes"
HIDDEN_WDDM = "the log is of Windows (WDDM), where the driver does not say which process uses how much memory"
HIDDEN_PART = "the list of processes is not whole in this log"
HIDDEN_CONTAINER = "the log lists no process on a GPU that computes: it was probably written in a container"


class _Table:
    """What one table says."""

    def __init__(self) -> None:
        self.rows: list[cells.Row] = []
        self.lost: dict[Place, None] = {}
        self.instances: list[cells.Instance] = []
        self.listed: list[cells.Listed] = []
        self.host: dict[str, Any] = {}
        self.events: list[tuple[Place | None, dict[str, Any]]] = []
        self.section: cells.Section = "gpus"
        self.is_closed = False
        """The list of processes has its end."""
        self.is_damaged = False
        """A row of the list of processes could not be read."""
        self.says_none = False

    def is_empty(self) -> bool:
        return not (self.rows or self.lost or self.instances or self.listed or self.host or self.events)

    def has_table(self) -> bool:
        return bool(self.rows or self.instances or self.listed or self.section != "gpus")


class NvidiaSmiTable:
    """Tables of all generations of the driver, as far as copying and pasting left them whole."""

    kind: ClassVar[str] = "nvidia-smi-table"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._table = _Table()
        self._open_row: str | None = None
        self._is_in_row = False
        self._prefix = ""
        self._time_s: float | None = None
        self._has_zone = False
        self._time_age = 0
        self._interval_s: float | None = None
        self._lists_processes = False
        self._was_away = False

    def starts(self, line: str) -> bool:
        """A line of a table that nothing else looks like, or one of the messages."""
        if ("|" in line or "NVIDIA-SMI" in line) and _BEGINS.search(line[:_HEAD_MAX]):
            self._prefix = _pattern(_split(line)[0])
            return True
        if message(line) is not None:
            return True
        if not self._note_time(line):
            self._time_age += 1
        return False

    def take(self, line: str) -> bool:
        """Read a line of the table, or one between two tables of a loop."""
        row, self._open_row = self._open_row, None
        if row is None and not self._prefix and line[:1] in _BORDERS and line[-1:] in _BORDERS and len(line) < _ROW_MAX:
            self._is_in_row = line[0] == "|"
            return self._row(line)
        is_rest = self._is_rest(line)
        if row is not None:
            self._row(row + line if is_rest else row)
            if is_rest:
                return True
        if is_rest:  # it was wrapped just behind a border
            return self._row(f"|{line}")
        self._is_in_row = False
        if not line or line.isspace() or _pattern(line) == self._prefix:
            return True
        prefix, row = _split(line[:_ROW_MAX])
        if row and (_pattern(prefix) == self._prefix or not prefix.strip() or _BEGINS.search(row[:_HEAD_MAX])):
            self._is_in_row = row[0] != "+"
            if row.rstrip().endswith(("|", "+")) or row[0] == "+":
                return self._row(row)
            self._open_row = row
            return True
        said = message(line)
        if said is not None:
            self._message(said)
            return True
        if _VERSIONS.match(line.strip()):
            return self._cell(line.strip()[: cells.CELL_MAX])
        if self._note_time(line):
            return True
        return bool(_ONLY_RULE.fullmatch(line.strip()[:200]))

    def _is_rest(self, line: str) -> bool:
        """Whether it is the end of a row that was wrapped."""
        if not self._is_in_row or not _continues(line):
            return False
        return not self._prefix or _pattern(_split(line)[0]) != self._prefix

    def end(self) -> None:
        """Give the table that is pending."""
        if self._open_row is not None:
            row, self._open_row = self._open_row, None
            self._row(row)
        self._is_in_row = False
        self._finish()

    # --- lines -----------------------------------------------------------------------------------

    def _note_time(self, line: str) -> bool:
        """Whether a line is only a time: that of the table which follows."""
        watched = _WATCHED.match(line)
        if watched is not None:
            self._interval_s = float(watched[1].replace(",", "."))
        if not _CLOCK.search(line[:120]) or len(line) > 160:
            return watched is not None
        text = line.strip()
        if watched is not None or len(text) > 60:
            found = _DATE.search(text)
            text = found.group() if found and watched is not None else ""
        else:
            dated = _DATED.match(text)
            text = dated[1] if dated is not None else ""
        time_s = moment(text) if text else None
        if time_s is None:
            return watched is not None
        if self._table.has_table():
            self._finish()
        self._time_s, self._has_zone, self._time_age = time_s, has_zone(text), 0
        return True

    def _message(self, said: Message) -> None:
        if self._table.has_table() or (said.lost is not None and said.lost in self._table.lost):
            self._finish()
        table = self._table
        table.host.update(said.host)
        if "driver_error" in said.host:
            self._was_away = True
        if said.lost is not None:
            table.lost[said.lost] = None
        if said.event is not None:
            table.events.append((said.lost, said.event))

    # --- rows ------------------------------------------------------------------------------------

    def _row(self, row: str) -> bool:
        """Read a row; False where it is of something else."""
        inside = row.strip("| \t")
        if not inside or (inside[0] in "+-=" and cells.is_rule(inside.replace("|", "-"))):
            if inside and "=" not in inside and self._table.section == "processes":
                self._close_list()
            return True
        if self._table.section == "processes" and self._process(inside):
            self._table.is_damaged = self._table.is_damaged or not row.rstrip().endswith("|")
            return True
        parts = [part.strip()[: cells.CELL_MAX] for part in row.split("|")]
        if parts[-1]:
            parts[-1] = cells.without_stump(parts[-1])
        parts = [part for part in parts if part and not cells.is_rule(part)]
        if self._table.section == "mig" and self._instance(parts):
            return True
        if self._table.section != "gpus" and len(parts) > 1 and any(cells.bus_in(part) for part in parts):
            self._finish()  # the next table, without its head
        known = [self._cell(part) for part in parts]
        if self._table.section == "processes" and not all(known):
            self._table.is_damaged = True
            self._leave_out("a row of the list of processes that cannot be read")
            return True
        if not all(known) and any(known):
            self._leave_out("a cell that is none of the nvidia-smi table")
        return any(known)

    def _close_list(self) -> None:
        """The line below the processes ends their list; there is one above their title as well."""
        table = self._table
        table.is_closed = table.is_closed or bool(table.listed) or table.says_none

    def _cell(self, cell: str) -> bool:
        """Read a cell wherever it stands; False where it is none of the table's."""
        versions = _VERSIONS.search(cell)
        if versions is not None:
            self._versions(versions, _CUDA.search(cell))
            return True
        if cell.startswith(("Processes:", "Compute processes:")):
            self._table.section = "processes"
            return True
        if cell.startswith("MIG devices:"):
            self._table.section = "mig"
            return True
        table = self._table
        if cells.is_title(cell):
            if cell.startswith("GPU") and "PID" in cell:
                table.section = "processes"
            return True
        if cell.startswith(("No running processes", "No running compute")):
            table.says_none = True
            return True
        if table.section == "processes":
            return self._process(cell)
        if cell.startswith("No MIG devices"):
            return True
        return self._gpu_cell(cell)

    def _gpu_cell(self, cell: str) -> bool:
        rows = self._table.rows
        row = cells.identity(cell)
        if row is not None:
            if any(row.index == other.index for other in rows):
                self._finish()
            self._table.rows.append(row)
            return True
        bus = cells.bus_in(cell)
        if not rows or (bus is not None and rows[-1].bus not in {None, bus}):
            # The beginning of its row is missing: its number is its place in the table.
            fresh = cells.Row(None if bus is not None else len(rows))
            if not cells.put(fresh, cell) or (bus is None and not fresh.seen - {"ecc", "mig"}):
                return False
            rows.append(fresh)
            return True
        if "GPU is lost" in cell:
            rows[-1].errors += ["temperature", "name", "power", "utilization"]
            return True
        return cells.put(rows[-1], cell)

    def _versions(self, versions: re.Match[str], cuda: re.Match[str] | None) -> None:
        if self._table.has_table() or not {"driver_version", "driver_error"}.isdisjoint(self._table.host):
            self._finish()
        library, driver = (None if text is None else text.rstrip(".") for text in versions.groups())
        host = self._table.host
        if self._was_away and "driver_error" not in host:
            host["driver_error"] = None  # it answers again
            self._was_away = False
        if driver is not None:
            host["driver_version"] = driver
        if cuda is not None:
            host["cuda_version"] = cuda[1]
        if library is not None and driver is not None and library != driver:
            # Under WSL 2 the tool is Linux's and the driver Windows': their versions never agree.
            if _WSL.fullmatch(driver) and library.count(".") == 2:
                host["processes_hidden"] = HIDDEN_WSL
            host["driver_library_version"] = library

    def _instance(self, parts: list[str]) -> bool:
        found = cells.instance(parts)
        if found is not None:
            self._table.instances.append(found)
        # The second row of each is of the memory that the PCIe bus sees.
        return found is not None or (len(parts) == 1 and "MiB" in parts[0])

    def _process(self, text: str) -> bool:
        found = cells.process(text)
        if found is not None:
            self._table.listed.append(found)
            return True
        is_refused = cells.is_refused(text)
        self._table.is_damaged = self._table.is_damaged or is_refused
        return is_refused

    # --- what is given ---------------------------------------------------------------------------

    def _finish(self) -> None:
        """Give what is known of one moment, and begin the next."""
        table, self._table = self._table, _Table()
        if table.is_empty():
            return
        time_s = self._time_s if self._time_age <= _NEAR_LINES else None
        self._time_s = None
        places = {row.index: row.place() for row in table.rows if row.index is not None}
        gpus: list[tuple[Place, dict[str, Any]]] = []
        events = table.events
        for row in table.rows:
            facts, told = cells.said_of(row)
            gpus.append((row.place(), facts))
            events += told
        gpus += [cells.said_of_instance(one, places) for one in table.instances]
        gpus += [(place, {"is_lost": True}) for place in table.lost]
        uses = [cells.use_of(one, places) for one in table.listed if not one.is_desktop]
        self._lists_processes = self._lists_processes or any(use.memory_bytes is not None for use in uses)
        is_whole = table.is_closed and not table.is_damaged
        hidden = table.host.get("processes_hidden") or self._hidden(table)
        if hidden is None and uses and not is_whole:
            hidden = HIDDEN_PART
        if hidden is not None:
            table.host["processes_hidden"] = hidden
        self._give(
            Reading(
                time_s=time_s,
                gpus=gpus,
                uses=uses,
                is_complete_process_list=is_whole and hidden is None,
                host=table.host,
                events=events,
                interval_s=self._interval_s,
                has_zone=self._has_zone and time_s is not None,
            )
        )

    def _hidden(self, table: _Table) -> str | None:
        """Why an empty list of processes does not mean that there are none."""
        if any(row.is_wddm for row in table.rows):
            return HIDDEN_WDDM
        if not table.says_none or self._lists_processes:
            return None
        for row in table.rows:
            busy = row.facts.get("utilization_pct", 0.0) >= _BUSY_PCT
            if busy and row.facts.get("memory_used_bytes", 0) >= _USED_BYTES:
                return HIDDEN_CONTAINER
        return None


def _split(line: str) -> tuple[str, str]:
    """What another program wrote in front, and the row of the table; no row where there is none."""
    begins = min((at for at in (line.find("|"), line.find("+-"), line.find("+=")) if at >= 0), default=-1)
    if begins < 0 or begins > _PREFIX_MAX:
        return "", ""
    return line[:begins], line[begins:]


def _pattern(prefix: str) -> str:
    """Times and ranks in front of lines differ in their digits."""
    return _DIGITS.sub("0", prefix).strip()


def _continues(line: str) -> bool:
    """Whether it is the rest of a row that was wrapped."""
    text = line.strip()
    return text.endswith("|") and text[0] not in "|+" and len(text) < 100
