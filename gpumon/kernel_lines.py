"""Knows what the kernel and NVIDIA's modules write about GPUs, their links and killed processes, line by line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gpumon import text

Bus = tuple[int, int, int]
"""Domain, bus and device of a PCI address."""

_BUS = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.\d)?")
_ADDRESS = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"
_XID = re.compile(r"\bXid \((?:PCI:)?([0-9a-fA-F:.]{5,20})\): (\d{1,5})\b(?:, pid='?(\d{1,10})\b)?")
_SXID = re.compile(r"\bSXid \(PCI:[0-9a-fA-F:.]{5,20}\): (\d{1,6}), ([A-Za-z-]{5,16})\b")
_NAMED_GPU = re.compile(rf"(?:The NVIDIA GPU|GPU at(?: PCI:)?|NVRM: GPU|PCI:)\s{{0,4}}{_ADDRESS}")
_UUID = re.compile(rf"GPU at (?:PCI:)?{_ADDRESS}(?:\.\d)?: (GPU-[0-9a-f-]{{8,40}})")
_LOADING = re.compile(r"NVRM: loading NVIDIA UNIX .{0,60}?Kernel Module {1,4}(?:for \S{1,20} {1,4})?(\d[\d.]{2,20}\d)")
_VERSION = re.compile(r"\bversion '?(\d[\d.]{2,20}\d)")
_HOT = re.compile(r"over-?temperature|overheat|thermal (?:shutdown|slowdown)", re.IGNORECASE)
_PROBED = re.compile(rf"nvidia(?:: probe of)? {_ADDRESS}\.\d(?:: probe with driver nvidia)? failed with error")
_KILLED = re.compile(r"Killed process (\d{1,10}),? (?:UID \d{1,10}, )?\(")
_FAULT = re.compile(r"(?:traps: )?[^\[\]]{1,40}\[(\d{1,10})\](?:: segfault at | general protection| trap )")
_BLOCKED = re.compile(r"task .{1,40}:(\d{1,10}) blocked for more than (\d{1,9}) seconds")
_FRAME = re.compile(r"\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8} \[nvidia")
_PCIE_ERROR = re.compile(
    rf"(\S{{1,32}}) {_ADDRESS}(\.\d): (?:AER: )?PCIe Bus Error: severity=(\w{{1,16}})(?: \(([\w-]{{1,12}})\))?"
    r", type=([\w ]{1,24})"
)
_PCIE_LINK = re.compile(
    rf"{_ADDRESS}\.0: [\d.]{{1,12}} Gb/s available PCIe bandwidth, limited by ([\d.]{{1,6}}) GT/s PCIe x(\d{{1,2}})"
    r" link at \S{5,20} \(capable of [\d.]{1,12} Gb/s with ([\d.]{1,6}) GT/s PCIe x(\d{1,2}) link\)"
)
_CARD = re.compile(rf"pci {_ADDRESS}\.0: \[10de:[0-9a-f]{{4}}\] .{{0,40}}class 0x030[02]")
_BRIDGE = re.compile(rf"pci {_ADDRESS}(\.\d): PCI bridge to \[bus ([0-9a-fA-F]{{2}})(?:-([0-9a-fA-F]{{2}}))?\]")
_GENERATION = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
_UNFIT = ("requires use of the NVIDIA open", "is not supported by", "does not include the required GPU")
_NOT_LOADED = (
    "could not insert 'nvidia",
    "Module nvidia not found",
    "nvidia: version magic",
    "nvidia: disagrees about version of symbol",
    "probe routine was not called for",
)


class Message(NamedTuple):
    """One line worth knowing."""

    kind: str
    """As in ``Event``: xid, gpu-lost, oom-kill, segfault, sxid, pcie-error …"""
    text: str
    bus: Bus | None = None
    xid: int | None = None
    pid: int | None = None
    values: Mapping[str, float] | None = None


def bus_of(address: str | None) -> Bus | None:
    """Domain, bus and device of a PCI address, in however many digits."""
    found = _BUS.search(address or "")
    return None if found is None else (int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16))


class Messages:
    """Reads one message after the other; remembers what a message of several lines is about, and who is who."""

    def __init__(self) -> None:
        self.uuids: dict[Bus, str] = {}
        """GPUs whose UUID the driver has told."""
        self._cards: set[Bus] = set()
        """GPUs whose class or driver some line has told."""
        self._behind: dict[str, tuple[int, int, int]] = {}
        """Port -> domain, first and last bus behind it."""
        self._named: Bus | None = None
        self._client: str | None = None
        self._is_explained = False
        """Since the driver was loaded it has said why it could not use a GPU."""
        self._unfit: set[Bus | None] = set()
        self._failed: Bus | None = None
        self._blocked: Message | None = None

    def read(self, message: str) -> Message | None:
        """What one line of a message says, if anything."""
        if "Xid (" in message:
            return self._xid(message)
        if "NVRM" in message:
            return self._nvrm(message)
        if "PCI" in message or "[10de:" in message:
            return self._pci(message)
        if "Killed process" in message:
            killed = _KILLED.search(message)
            return None if killed is None else Message("oom-kill", _shown(message), pid=int(killed[1]))
        if "blocked for more than" in message or self._blocked is not None:
            return self._task(message)
        fault = _FAULT.match(message)
        if fault is not None:
            return Message("segfault", _shown(message), pid=int(fault[1]))
        if any(words in message for words in _NOT_LOADED):
            return Message("driver-error", _shown(message))
        probed = _PROBED.search(message)
        return None if probed is None or self._is_explained else self._not_started(message, self._card(probed[1]))

    def _card(self, address: str) -> Bus | None:
        bus = bus_of(address)
        if bus is not None:
            self._cards.add(bus)
        return bus

    def _xid(self, message: str) -> Message | None:
        found = _XID.search(message)
        if found is not None:
            pid = None if found[3] is None else int(found[3])
            return Message("xid", _shown(message), self._card(found[1]), int(found[2]), pid)
        found = _SXID.search(message)
        if found is None or found[2] == "Severity":
            return None
        values = {"code": float(found[1]), "is_fatal": float(found[2].lower() != "non-fatal")}
        return Message("sxid", _shown(message), values=values)

    # --- the driver ------------------------------------------------------------------------------

    def _nvrm(self, message: str) -> Message | None:
        self._blocked = None
        named = _NAMED_GPU.search(message)
        if named is not None:
            self._named = self._card(named[1])
            told = _UUID.search(message)
            if told is not None and self._named is not None and not set(told[2]) <= set("GPU-0"):
                self.uuids[self._named] = told[2]
        if "fallen off the bus" in message:
            self._is_explained = True
            return Message("gpu-lost", _shown(message), self._named)
        if any(words in message for words in _UNFIT):
            self._is_explained = True
            self._unfit.add(self._named)
            return Message("driver-error", _shown(message), self._named)
        if "RmInitAdapter failed" in message or "rm_init_adapter" in message:
            return self._not_started(message, None if named is None else self._named)
        if "probe routine failed for" in message:
            return None if self._is_explained else Message("gpu-init-failed", _shown(message))
        if "API mismatch" in message or self._client is not None:
            return self._mismatch(message)
        if any(words in message for words in _NOT_LOADED):
            return Message("driver-error", _shown(message))
        if _LOADING.search(message) is not None:
            self._is_explained, self._named, self._failed = False, None, None
            self._unfit.clear()
            return Message("driver-start", _shown(message))
        if _HOT.search(message) is not None:
            return Message("gpu-hot", _shown(message), self._named)
        return None

    def _not_started(self, message: str, bus: Bus | None) -> Message | None:
        """The driver gave up on a GPU: in two lines, of which the first counts; a reason given before counts more."""
        is_second = "rm_init_adapter" in message and self._failed == bus and self._is_explained
        if is_second or bus in self._unfit or (bus is None and self._unfit):
            return None
        self._is_explained, self._failed = True, bus
        return Message("gpu-init-failed", _shown(message), bus)

    def _mismatch(self, message: str) -> Message | None:
        """``the client has the version A, but this kernel module has the version B``, on one line or two."""
        versions = _VERSION.findall(message)
        if "API mismatch" in message:
            self._client = versions[0] if versions else None
            versions = versions[1:]
        if self._client is None or not versions or "kernel module" not in message:
            return None
        client, self._client = self._client, None
        return Message(
            "driver-error", f"API mismatch: the client has version {client}, the kernel module {versions[0]}"
        )

    # --- links -----------------------------------------------------------------------------------

    def _pci(self, message: str) -> Message | None:
        if "PCIe Bus Error" in message:
            return self._pcie_error(message)
        link = _PCIE_LINK.search(message)
        if link is not None:
            bus, gen, gen_max = bus_of(link[1]), _GENERATION.get(link[2]), _GENERATION.get(link[4])
            if bus not in self._cards or gen is None or gen_max is None:
                return None
            numbers = {"gen": gen, "width": int(link[3]), "gen_max": gen_max, "width_max": int(link[5])}
            return Message("pcie-link", _shown(message), bus, values={name: float(n) for name, n in numbers.items()})
        card, bridge = _CARD.search(message), _BRIDGE.search(message)
        if card is not None:
            self._card(card[1])
        if bridge is not None:
            domain, first = int(bridge[1].partition(":")[0], 16), int(bridge[3], 16)
            self._behind[bridge[1] + bridge[2]] = (domain, first, int(bridge[4] or bridge[3], 16))
        return None

    def _pcie_error(self, message: str) -> Message | None:
        """Of a GPU, or of a port that may lead to one; errors of other devices are nobody's business here."""
        found = _PCIE_ERROR.search(message)
        if found is None:
            return None
        driver, address, function, severity, is_fatal, layer = found.groups()
        bus = bus_of(address)
        if driver == "pcieport":
            reach = self._behind.get(address + function)
            cards = [] if reach is None else [card for card in self._cards if _is_behind(card, reach)]
            if reach is not None and not cards:
                return None
            bus = cards[0] if len(cards) == 1 else None
        elif driver == "nvidia":
            self._card(address)
        elif bus not in self._cards:
            return None
        is_corrected = severity.startswith("Correct")
        values = {
            "is_corrected": float(is_corrected),
            "is_fatal": float(is_fatal == "Fatal"),
            "is_physical": float(layer.startswith("Physical")),
        }
        return Message("pcie-error", _shown(message), bus, values=values)

    # --- processes -------------------------------------------------------------------------------

    def _task(self, message: str) -> Message | None:
        """A task that hangs in the kernel, and where its stack says so, in NVIDIA's module."""
        found = _BLOCKED.search(message)
        if found is not None:
            values = {"blocked_s": float(found[2])}
            self._blocked = Message("task-blocked", _shown(message), pid=int(found[1]), values=values)
            return self._blocked
        if self._blocked is None or _FRAME.search(message) is None:
            return None
        blocked, self._blocked = self._blocked, None
        return blocked._replace(kind="driver-blocked")


def _is_behind(card: Bus, reach: tuple[int, int, int]) -> bool:
    domain, first, last = reach
    return card[0] == domain and first <= card[1] <= last


def _shown(message: str) -> str:
    return text.clean(message.strip())
