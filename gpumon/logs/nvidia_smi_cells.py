"""Knows what stands in the cells of the ``nvidia-smi`` table, whatever the driver's generation and the damage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from gpumon.logs.reading import Place, Use
from gpumon.logs.values import bus_id, byte_count, integer, is_missing, number
from gpumon.text import clean, redact_command

CELL_MAX = 400
"""Characters of a cell that are looked at: the widest table has 91 in a row."""
ERROR = "ERR!"

_RULE = re.compile(r"[-=+ ]+")
_TITLES = re.compile(
    r"(?:GPU|Nb\.?) +(?:Name|PID|GI|Fan)\b|Fan +Temp|Bus.Id|Volatile|Memory.Usage|GPU.Util|MIG M\.?$|(?:GI +)?ID +ID\b"
    r"|(?:Usage|GPU Memory|Type|Process name|PID)\b|Shared\b|Vol\b|SM +Unc|CE +ENC|ECC$"
)
_BUS = re.compile(r"(?<![\w:])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f](?!\w)")
_IDENTITY = re.compile(r"(\d{1,3})\.? {1,40}(?=\D)(\S.{0,80})")
_MODE = re.compile(r"(?<![\w/])(On|Off|WDDM|TCC|MCDM|N/A|ERR!)\*?$")
_MEMORY = re.compile(r"(?<![\w.])(\d{1,9} ?Mi?B)\b(?: {0,20}/ {0,20}(\d{1,9} ?Mi?B)\b)?")
_NO_MEMORY = re.compile(
    r"\*{0,3}(?:not supported|n/a(?: {0,20}/ {0,20}n/a)?|err!(?: {0,20}/ {0,20}err!)?|unknown error)\*{0,3}",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"ERR!|\[?N/A\]?|Unknown Error|(?<![\d.,-])-?\d{1,6}(?:[.,]\d{1,3})? ?(?:%|C\b|W\b)|\bP\d{1,2}\b")
_SENSORS = re.compile(
    r"\d ?C\b|\bP\d{1,2}\b|\d ?W\b|(?:ERR!|N/A) {0,20}/|(?:ERR!|N/A) {1,20}(?:ERR!|N/A) {1,20}(?:ERR!|N/A)"
)
_UTILIZATION = re.compile(r"^(\d{1,3} ?%|\[?N/A\]?|ERR!)? {0,40}(Default|E\. ?Process|E\. ?Thread|Prohibited|ERR!|N/A)")
_ECC_PAIR = re.compile(r"^\d{1,12} {1,40}(\d{1,12})")
_SLASH = re.compile(r"(?<!N)/")
_COMPUTE_MODES = {"d": "default", "p": "prohibited", "e.p": "exclusive-process", "e.t": "exclusive-thread"}
_WHOLE = ("%", "C", "W", "MiB", "MB", "N/A", ERROR, ":", "Default", "Process", "Thread", "Prohibited", "abled", "Off")
_SENSOR_NAMES = ("fan", "temperature", "performance state", "power", "power limit")
_SENSOR_OF_UNIT = {"%": 0, "C": 1, "W": 3}
_SENSOR_FIELDS = {"fan": "fan_pct", "temperature": "temperature_c", "power": "power_w", "power limit": "power_limit_w"}

Section = Literal["gpus", "mig", "processes"]


class Row:
    """One GPU of a table, filled cell by cell."""

    def __init__(self, index: int | None, bus: str | None = None) -> None:
        self.index = index
        self.bus = bus
        self.facts: dict[str, Any] = {}
        self.errors: list[str] = []
        """Sensors whose cell says that reading them failed."""
        self.is_wddm = False
        self.seen: set[str] = set()

    def place(self) -> Place:
        """Which GPU it is."""
        return Place(index=self.index, bus=self.bus)

    def is_dead(self) -> bool:
        """The driver gets no answer from it: whatever it was asked failed."""
        failed = set(self.errors)
        return "temperature" in failed and len(failed & {"name", "performance state", "power", "utilization"}) >= 3

    def failed(self, sensor: str) -> None:
        """Note a sensor that could not be read."""
        if sensor not in self.errors:
            self.errors.append(sensor)


def is_rule(cell: str) -> bool:
    """Whether it is only a line between rows."""
    return _RULE.fullmatch(cell) is not None


def is_title(cell: str) -> bool:
    """Whether it names a column."""
    return _TITLES.match(cell) is not None


def without_stump(cell: str) -> str:
    """A cell of which the end is missing, without the word or number that may not be whole."""
    if cell.endswith(_WHOLE):
        return cell
    return cell.rpartition(" ")[0].rstrip()


def bus_in(cell: str) -> str | None:
    """The bus id in a cell."""
    found = _BUS.search(cell)
    return None if found is None else bus_id(found.group())


def identity(cell: str) -> Row | None:
    """The row that begins with this cell: number, name and persistence or driver model."""
    found = _IDENTITY.fullmatch(cell)
    if found is None or _MEMORY.search(cell):
        return None
    row = Row(int(found[1]))
    rest = found[2].rstrip()
    mode = _MODE.search(rest)
    name = rest[: mode.start()].rstrip() if mode else rest
    if name == ERROR or (mode and not name):
        row.failed("name")
    elif name:
        row.facts["name"] = name
    if mode and mode[1] in {"On", "Off"}:
        row.facts["persistence"] = mode[1] == "On"
    row.is_wddm = mode is not None and mode[1] in {"WDDM", "MCDM"}
    return row


def put(row: Row, cell: str) -> bool:
    """Read one of the other cells of a GPU's rows; False where no driver writes such a cell."""
    return any(read(row, cell) for read in _READERS)


def _bus(row: Row, cell: str) -> bool:
    found = bus_in(cell)
    if found is not None:
        row.bus = found
    return found is not None


def _memory(row: Row, cell: str) -> bool:
    found = _MEMORY.search(cell)
    if found is None:
        # A cell with "N/A" alone is the memory's where the sensors were just read and no utilization yet.
        if not _NO_MEMORY.fullmatch(cell) or (len(cell) < 9 and row.seen != {"ecc", "sensors"}):
            return False
        if ERROR in cell.upper():
            row.failed("memory")
    else:
        # These megabytes were always of 1024² bytes, also where older drivers write MB.
        for field, text in zip(("memory_used_bytes", "memory_total_bytes"), found.groups(), strict=True):
            size = None if text is None else byte_count(text.rstrip("MiB "))
            if size is not None:
                row.facts[field] = size
    row.seen.add("memory")
    return True


def _sensors(row: Row, cell: str) -> bool:
    if not _SENSORS.search(cell):
        return False
    slash = _SLASH.search(cell)
    position = 0
    for found in _TOKEN.finditer(cell):
        token = found.group()
        sensor = _SENSOR_OF_UNIT.get(token[-1]) if token[-1] in "%CW" else 2 if token[0] == "P" else position
        if slash is not None and found.start() > slash.start():
            sensor = 4
        if sensor is None or not position <= sensor < len(_SENSOR_NAMES):
            continue
        position = sensor + 1
        if token == ERROR or token.startswith("Unknown"):
            row.failed(_SENSOR_NAMES[sensor])
        else:
            _put_sensor(row, _SENSOR_NAMES[sensor], token)
    row.seen.add("sensors")
    return True


def _put_sensor(row: Row, sensor: str, token: str) -> None:
    if sensor == "performance state":
        if not is_missing(token):
            row.facts["performance_state"] = token
        return
    value = number(token)
    if value is not None:
        row.facts[_SENSOR_FIELDS[sensor]] = value


def _utilization(row: Row, cell: str) -> bool:
    found = _UTILIZATION.fullmatch(cell)
    if found is None or (found[1] is None and found[2] in {"N/A", ERROR}):
        return False
    use, mode = found[1], found[2]
    value = number(use) if use else None
    if use == ERROR:
        row.failed("utilization")
    elif value is not None and value <= 100:
        row.facts["utilization_pct"] = value
    key = mode.lower().replace(" ", "")
    named = _COMPUTE_MODES.get(key[:3] if key.startswith("e.") else key[:1])
    if mode not in {"N/A", ERROR} and named is not None:
        row.facts["compute_mode"] = named
    row.seen.add("utilization")
    return True


def _single(row: Row, cell: str) -> bool:
    """The last column: errors of the memory in the first row, MIG in the third."""
    word = cell.rstrip("*")
    if word in {"Enabled", "Disabled"}:
        row.facts["mig_enabled"] = word == "Enabled"
        row.seen.add("mig")
        return True
    pair = _ECC_PAIR.fullmatch(cell)
    count = integer(pair[1] if pair else cell) if pair or cell.isdigit() else None
    if count is None and word not in {"N/A", "On", "Off", ERROR}:
        return False
    if "ecc" in row.seen or row.seen & {"sensors", "utilization"}:
        return count is None
    row.seen.add("ecc")
    if word in {"On", "Off"} or count is not None:
        row.facts["ecc_enabled"] = word != "Off"
    if count is not None:
        row.facts["ecc_uncorrected"] = count
    if word == ERROR:
        row.failed("ECC")
    return True


_READERS: tuple[Callable[[Row, str], bool], ...] = (_bus, _utilization, _memory, _single, _sensors)


# --- MIG devices ---------------------------------------------------------------------------------

_INSTANCE = re.compile(r"^(\d{1,3}) {1,20}(\d{1,3}) {1,20}(\d{1,3}) {1,20}(\d{1,3})")


class Instance(NamedTuple):
    """One row of the table of MIG devices."""

    gpu: int
    gi: int
    ci: int
    number: int
    used_bytes: int | None = None
    total_bytes: int | None = None
    multiprocessors: int | None = None
    ecc_uncorrected: int | None = None


def instance(cells: list[str]) -> Instance | None:
    """A MIG device from the cells of its first row; None where it is another row."""
    found = _INSTANCE.fullmatch(cells[0]) if cells else None
    if found is None:
        return None
    memory = next((size for size in map(_MEMORY.search, cells[1:]) if size is not None), None)
    counts = next(
        (pair for pair in (re.fullmatch(r"(\d{1,4}) +(\d{1,9}|N/A)", cell) for cell in cells[1:]) if pair), None
    )
    gpu, gi, ci, place = map(int, found.groups())
    return Instance(
        gpu,
        gi,
        ci,
        place,
        byte_count(memory[1].rstrip("MiB ")) if memory else None,
        byte_count(memory[2].rstrip("MiB ")) if memory and memory[2] else None,
        integer(counts[1]) if counts else None,
        integer(counts[2]) if counts else None,
    )


# --- processes -----------------------------------------------------------------------------------

_PROCESS = re.compile(
    r"^(\d{1,3})\.? {1,40}(?:(N/A|\d{1,3}) {1,40}(N/A|\d{1,3}) {1,40})?"
    r"(\d{1,10}) {1,40}(?:(C\+G|M\+C|[CGM]) {1,40})?(\S.*)"
)
_HELD = re.compile(r"(?<!\S)(\d{1,9} ?Mi?B|\[?N/A\]?|\[?Not Supported\]?|ERR!)$")
_NAMELESS = {
    "insufficient permissions": None,
    "[insufficient permissions]": None,
    "n/a": None,
    "unknown": None,
    # The driver knows the process, the machine has nothing left of it to name: dead and not yet taken away.
    "unknown error": "Z",
    "[unknown error]": "Z",
    "[not found]": "X",
    "not found": "X",
}
PID_MAX = 1 << 32
_PATH = re.compile(r"[/\\]")


class Listed(NamedTuple):
    """One row of the table of processes."""

    gpu: int
    gi: int | None
    ci: int | None
    use: Use
    """With the GPU's index only."""
    is_desktop: bool
    """It draws, and the driver does not say what it holds, as of every program with a window under Windows."""


def is_refused(text: str) -> bool:
    """Whether a row says that the processes of a GPU are not told."""
    return re.fullmatch(r"\d{1,3} {1,40}(?:Not Supported|N/A)", text[:80]) is not None


@lru_cache(maxsize=4096)
def process(text: str) -> Listed | None:
    """A row of the list of processes, without its borders; None where it is another row."""
    found = _PROCESS.fullmatch(text.strip()[:CELL_MAX])
    if found is None or int(found[4]) >= PID_MAX:
        return None
    gpu, gi, ci, pid, kind, rest = found.groups()
    held = _HELD.search(rest)
    name = rest[: held.start()].strip() if held else rest.strip()
    facts: dict[str, Any] = {}
    state = _NAMELESS.get(name.lower())
    if name and name.lower() not in _NAMELESS:
        shown = clean(name)
        facts |= {"name": _PATH.split(shown)[-1] or shown, "command": redact_command([shown])}
    if state is not None:
        facts["state"] = state
    if kind == "G":
        facts["role"] = "other"
    size = byte_count(held[1].rstrip("MiB ")) if held and held[1][0].isdigit() else None
    use = Use(int(pid), Place(index=int(gpu)), size, None, facts)
    return Listed(int(gpu), _whole(gi), _whole(ci), use, size is None and kind in {"G", "C+G"})


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


# --- facts ---------------------------------------------------------------------------------------

Told = list[tuple[Place | None, dict[str, Any]]]
"""Events, and which GPU each is about."""


def said_of(row: Row) -> tuple[dict[str, Any], Told]:
    """Facts of a GPU, and what its failing sensors come to."""
    place = row.place()
    if row.is_dead():
        facts = {name: value for name, value in row.facts.items() if name in {"name", "persistence"}}
        which = f"GPU {row.bus if row.index is None else row.index}"
        text = f"nvidia-smi shows ERR! for {which}: {', '.join(dict.fromkeys(row.errors))}"
        return {**facts, "is_lost": True}, [(place, {"kind": "gpu-lost", "text": text})]
    return row.facts, [(place, {"kind": "sensor-error", "text": f"{sensor}: {ERROR}"}) for sensor in row.errors]


def said_of_instance(one: Instance, places: Mapping[int, Place]) -> tuple[Place, dict[str, Any]]:
    """Which MIG instance it is, named by its GPU, and its facts."""
    bus = places[one.gpu].bus if one.gpu in places else None
    facts: dict[str, Any] = {
        "index": one.number,
        "mig_parent_uuid": f"bus:{bus}" if bus else f"index:{one.gpu}",
        "memory_used_bytes": one.used_bytes,
        "memory_total_bytes": one.total_bytes,
        "sm_count": one.multiprocessors,
        "ecc_uncorrected": one.ecc_uncorrected,
    }
    return _instance_place(one.gpu, one.gi, one.ci, places), {
        name: value for name, value in facts.items() if value is not None
    }


def use_of(one: Listed, places: Mapping[int, Place]) -> Use:
    """A process on the GPU or the instance that it runs on."""
    if one.gi is not None and one.ci is not None:
        return one.use._replace(gpu=_instance_place(one.gpu, one.gi, one.ci, places))
    return one.use._replace(gpu=places.get(one.gpu, one.use.gpu))


def _instance_place(gpu: int, gi: int, ci: int, places: Mapping[int, Place]) -> Place:
    bus = places[gpu].bus if gpu in places else None
    return Place(uuid=f"MIG-{bus or gpu}/{gi}/{ci}")
