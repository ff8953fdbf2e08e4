"""Reads what ``gpustat`` prints, once or in a loop: one line per GPU, below the machine's name and the time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading, Use
from gpumon.logs.values import byte_count, moment
from gpumon.text import clean

_ROW = re.compile(r"^[ \t]{0,8}\[(\d{1,3})\] (\S[^|]{0,80})\|([^|]{1,80})\|([^|]{1,40})(?:\|(.{0,2000}))?$")
_HEAD = re.compile(
    r"^[ \t]{0,8}(\S{1,80})[ \t]{1,60}([A-Z][a-z]{2} [A-Z][a-z]{2} {1,2}\d{1,2} \d{2}:\d{2}:\d{2} \d{4})"
    r"(?:[ \t]{1,20}(\d{3}\.\d{1,3}(?:\.\d{1,3})?))?[ \t]{0,60}$"
)
_HEAT = re.compile(r"(\d{1,3}) ?['°´ ]{0,2}C\b")
_SHARE = re.compile(r"(?<![\d:])(\d{1,3}) ?%")
_POWER = re.compile(r"(\d{1,5}) {0,4}/ {0,4}(\d{1,5}) ?W\b")
_MEMORY = re.compile(r"(\d{1,8}) {0,4}/ {0,4}(\d{1,8}) ?M")
_PROCESS = re.compile(r"(?<!\S)([^\s:()/|]{1,64}):([^\s()|]{1,120})/(\d{1,10})\((\d{1,8}|\?)M\)")
_NOBODY = "(null)"
_PID_MAX = 1 << 32
_FORGETFUL = "535.54"
"""The driver's lists had another layout for a while: tools of that time lost all but the first process."""
HIDDEN_USERS = "the log names users, not their processes"
HIDDEN_FORGOTTEN = "with this driver (535.54) gpustat lists the first process of a GPU only"


class Gpustat:
    """A GPU's use and memory, and who holds it; processes where it was asked for their PIDs."""

    kind: ClassVar[str] = "gpustat"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._time_s: float | None = None
        self._host: dict[str, Any] = {}
        self._gpus: list[tuple[Place, dict[str, Any]]] = []
        self._uses: list[Use] = []
        self._events: list[tuple[Place | None, dict[str, Any]]] = []

    def starts(self, line: str) -> bool:
        """A GPU's line; the head above it is remembered."""
        if line.lstrip()[:1] == "[":
            row = _ROW.match(line)
            return row is not None and _HEAT.search(row[3]) is not None and _MEMORY.search(row[4]) is not None
        self._note_head(line)
        return False

    def take(self, line: str) -> bool:
        """A line of the list; a head begins the next one."""
        if not line or line.isspace():
            return True
        row = _ROW.match(line)
        if row is None or _MEMORY.search(row[4]) is None:
            return self._note_head(line)
        index = int(row[1])
        if any(place.index == index for place, _ in self._gpus):
            self._finish()
        place = Place(index=index)
        self._gpus.append((place, {"name": clean(row[2].strip()), **_sensors(row[3]), **_memory(row[4])}))
        self._owners(place, row[5] or "")
        return True

    def end(self) -> None:
        """Give what is pending."""
        self._finish()

    def _note_head(self, line: str) -> bool:
        head = _HEAD.match(line)
        if head is None:
            return False
        self._finish()
        self._time_s = moment(head[2])
        self._host = {"name": clean(head[1])} | ({"driver_version": head[3]} if head[3] else {})
        return True

    def _owners(self, place: Place, text: str) -> None:
        for user, name, pid, held in _PROCESS.findall(text):
            if 0 < int(pid) < _PID_MAX:
                facts = {"user": clean(user), "name": clean(name)}
                self._uses.append(Use(int(pid), place, None if held == "?" else byte_count(held), facts=facts))
        if text.strip() and len(_PROCESS.findall(text)) < len(text.split()):
            self._host.setdefault("processes_hidden", HIDDEN_USERS)
        if text.strip() == _NOBODY:
            said = f"gpustat finds no owner of what is in use on GPU {place.index}"
            self._events.append((place, {"kind": "memory-unowned", "text": said}))

    def _finish(self) -> None:
        gpus, uses, events = self._gpus, self._uses, self._events
        self._gpus, self._uses, self._events = [], [], []
        if gpus:
            host = self._host
            if str(host.get("driver_version")).startswith(_FORGETFUL):
                host = {**host, "processes_hidden": HIDDEN_FORGOTTEN}
            self._give(Reading(time_s=self._time_s, gpus=gpus, uses=uses, host=host, events=events))
        self._time_s, self._host = None, {name: said for name, said in self._host.items() if name != "processes_hidden"}


def _sensors(cell: str) -> dict[str, Any]:
    """Temperature, use, and where asked for the fan before it and the power behind."""
    facts: dict[str, Any] = {}
    heat, power = _HEAT.search(cell), _POWER.search(cell)
    shares = [float(share) for share in _SHARE.findall(cell.partition("E:")[0])]
    if heat is not None:
        facts["temperature_c"] = float(heat[1])
    if shares and shares[-1] <= 100:
        facts["utilization_pct"] = shares[-1]
    if len(shares) == 2:
        facts["fan_pct"] = shares[0]
    if power is not None:
        facts |= {"power_w": float(power[1]), "power_limit_w": float(power[2])}
    return facts


def _memory(cell: str) -> dict[str, Any]:
    found = _MEMORY.search(cell)
    sizes = (None, None) if found is None else (byte_count(found[1]), byte_count(found[2]))
    pairs = zip(("memory_used_bytes", "memory_total_bytes"), sizes, strict=True)
    return {name: size for name, size in pairs if size is not None}
