"""Reads ``nvidia-smi -L``, ``topo -m`` and ``nvlink -s``, ``-e``, ``-c``: which GPUs there are, how they are linked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading
from gpumon.text import clean

_GPU = re.compile(
    r"^[ \t]{0,8}GPU (\d{1,3}): (\S[^:|]{0,80}?)(?: \(UUID: (GPU-[0-9A-Za-z-]{8,60})\))?"
    r"(?: {1,4}((?:NVML|Device|Nvlink|Unable)\b.{0,120}))?[ \t]{0,8}"
)
_INSTANCE = re.compile(r"^[ \t]{0,12}MIG \S{1,20} {1,12}Device {1,6}\d{1,3}: \(UUID: MIG-")
_LINK = re.compile(r"^[ \t]{0,16}Link (\d{1,3})(?::|,) {0,4}(\S.{0,120})")
_SPEED = re.compile(r"^\d{1,4}(?:\.\d{1,4})? ?GB/s")
_ERRORS = re.compile(
    r"^(Replay|Recovery|CRC(?: \w{1,8})?|ECC(?: \w{1,8})?) Errors?: {0,4}(\d{1,19})(?!\d)", re.IGNORECASE
)
_SAYS = (
    "Device does not have or support Nvlink",
    "Nvlink queries are not supported",
    "NVML: Unable to retrieve N",
    "Unable to retrieve N",
)
_HEAD = re.compile(
    r"^[ \t]{0,40}GPU\d{1,3}[ \t].{0,4000}\b(?:CPU Affinity|NIC\d|mlx\d)"
    r"|^[ \t]{1,40}GPU0(?:[ \t]{1,12}GPU\d{1,3}){1,64}[ \t]{0,12}"
)
_PEER = r"(?:X|NV\d{1,2}|SYS|NODE|PHB|PXB|PIX|PSB|SOC|OK|NS|CNS|GNS|TNS|DR|U)"
_ROW = re.compile(
    rf"^[ \t]{{0,40}}(GPU|NIC|mlx\d_|mlx)(\d{{1,3}})((?:[ \t]{{1,40}}{_PEER}(?=[ \t]|$)){{1,200}})(.{{0,2000}})"
)
_LEGEND = re.compile(
    r"^[ \t]{0,8}(?:Legend:?|NIC Legend:?|NIC\d{1,3}: \S.{0,40}"
    r"|(?:X|SYS|NODE|PHB|PXB|PIX|PSB|SOC|NV#|OK|NS|CNS|GNS|TNS|DR|U) {1,8}= .{0,200})[ \t]{0,8}"
)
_AFFINITY = re.compile(r"^[ \t]{1,40}(?:\d[\d,-]{0,1500}|N/A)[ \t]{1,40}(\d{1,3}|N/A|\d[\d,-]{1,40})(?=[ \t]|$)")
_WAYS = frozenset({"SYS", "NODE", "PHB", "PXB", "PIX", "PSB", "SOC"})
_LINKS_OF_ONE = 18
"""More NVLinks than this no GPU has: then the matrix shows the same links towards each peer, through a switch."""
_BLANKS_MAX = 2


class Topology:
    """One reading per command; what carries nothing for us (capabilities, NICs, legends) is passed over."""

    kind: ClassVar[str] = "nvidia-smi-topology"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._gpus: dict[int, dict[str, Any]] = {}
        self._uuids: dict[int, str] = {}
        self._states: dict[int, dict[int, bool]] = {}
        self._errors: dict[int, dict[str, dict[int, int]]] = {}
        self._without: set[int] = set()
        """GPUs that reach all others over PCIe."""
        self._current: int | None = None
        self._heading: str | None = None
        self._blanks = 0

    def starts(self, line: str) -> bool:
        """A GPU with its UUID, a link, or the matrix."""
        if "GPU" in line:
            gpu = _GPU.fullmatch(line)
            if gpu is not None and gpu[3] is None:
                self._heading = line  # older drivers leave the UUID away; whether it is theirs the next line tells
            return (gpu is not None and gpu[3] is not None) or _is_matrix(line)
        return "Link " in line and _is_link(line)

    def take(self, line: str) -> bool:
        """A line of any of them; False for all others."""
        if not line or line.isspace():
            self._blanks += 1
            return self._blanks <= _BLANKS_MAX
        self._blanks = 0
        heading, self._heading = self._heading, None
        if heading is not None and _LINK.match(line):
            self._take_gpu(heading)
        return self._take_link(line) or self._take_gpu(line) or self._take_row(line) or _is_passed_over(line)

    def end(self) -> None:
        """Give what the command said."""
        if len(self._gpus) > 1:
            for index in self._without:
                self._gpus[index].setdefault("nvlinks_active", 0)
        for index, states in self._states.items():
            self._gpus.setdefault(index, {}).update(
                nvlinks_active=sum(states.values()), nvlinks_total=max(len(states), max(states) + 1)
            )
        for index, counts in self._errors.items():
            self._gpus.setdefault(index, {}).update(_counted(counts))
        gpus = [(Place(index=index, uuid=self._uuids.get(index)), facts) for index, facts in self._gpus.items()]
        self._gpus, self._uuids, self._states, self._errors = {}, {}, {}, {}
        self._without, self._blanks = set(), 0
        if any(facts for _, facts in gpus):
            self._give(Reading(gpus=gpus))

    def _take_gpu(self, line: str) -> bool:
        match = _GPU.fullmatch(line)
        if match is None:
            return False
        index = self._current = int(match[1])
        if index in self._gpus and (index in self._states or index in self._errors):
            self.end()  # the next command
            self._current = index
        facts = self._gpus.setdefault(index, {})
        facts["name"] = clean(match[2])
        uuid = match[3]
        if uuid is not None and set(uuid[4:]) - set("0-xX"):  # not masked
            self._uuids[index] = uuid
        if match[4] is not None:
            self._say(match[4])
        return True

    def _take_link(self, line: str) -> bool:
        if self._say(line.strip()):
            return True
        match = _LINK.fullmatch(line.rstrip())
        if match is None:
            return False
        link, text = int(match[1]), match[2]
        index = self._current or 0
        if _SPEED.match(text) or text.lower().startswith(("active", "sleep")):
            self._states.setdefault(index, {})[link] = True
        elif "inactive" in text.lower()[:12] or text.lower().startswith(("disabled", "down")):
            self._states.setdefault(index, {})[link] = False
        errors = _ERRORS.match(text)
        if errors is not None:
            self._errors.setdefault(index, {}).setdefault(errors[1].lower(), {})[link] = int(errors[2])
        return True

    def _say(self, text: str) -> bool:
        """What stands instead of a GPU's links."""
        if not text.startswith(_SAYS):
            return False
        if "all links are inactive" in text.lower() and self._current is not None:
            self._gpus.setdefault(self._current, {})["nvlinks_active"] = 0
        return True

    def _take_row(self, line: str) -> bool:
        if _HEAD.match(line):
            return True
        match = _ROW.fullmatch(line)
        if match is None:
            return False
        if match[1] != "GPU":
            return True
        facts = self._gpus.setdefault(int(match[2]), {})
        peers = match[3].split()
        links = [int(peer[2:]) for peer in peers if peer.startswith("NV")]
        if links:
            facts["nvlinks_active"] = sum(links) if sum(links) <= _LINKS_OF_ONE else max(links)
        elif not _WAYS.isdisjoint(peers):
            self._without.add(int(match[2]))
        rest = _AFFINITY.match(match[4])
        if rest is not None and rest[1].isdigit():
            facts["numa_node"] = int(rest[1])
        return True


def _is_matrix(line: str) -> bool:
    row = _ROW.fullmatch(line)
    return _HEAD.match(line) is not None or (row is not None and "X" in row[3].split())


def _is_link(line: str) -> bool:
    match = _LINK.fullmatch(line.rstrip())
    return match is not None and (
        _SPEED.match(match[2]) is not None or "<inactive>" in match[2] or _ERRORS.match(match[2]) is not None
    )


def _is_passed_over(line: str) -> bool:
    return _LEGEND.fullmatch(line) is not None or _INSTANCE.match(line) is not None


def _counted(counts: dict[str, dict[int, int]]) -> dict[str, int]:
    """The sums over the links, as the driver itself gives them for a GPU."""
    sums = {name: sum(by_link.values()) for name, by_link in counts.items()}
    facts = {"nvlink_errors": sum(sums.values())}
    crc = [count for name, count in sums.items() if name.startswith("crc")]
    return {**facts, "nvlink_crc_errors": sum(crc)} if crc else facts
