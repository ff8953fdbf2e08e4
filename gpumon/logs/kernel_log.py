"""Reads the kernel's log in any of its forms: Xids, lost GPUs, PCIe errors, kills and crashes as events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from gpumon.kernel_lines import Bus, Message, Messages
from gpumon.logs.kernel_stamps import Clock, Head, facts_of, split
from gpumon.logs.reading import Place, Reading

QUIET_S = 605.0
"""So long after the last event everything that is only shown for a while is over."""
_BATCH_S, _GAP_S = 10.0, 2.0
"""Lines of one burst: a storm of thousands is one reading."""
_EVENTS_MAX = 256
"""Different ones in a burst; further ones are counted as their likes."""
_SEEN_MAX = 100_000
_AGAIN_S = 1.0

_MESSAGE_MAX = 2048
_WANTED = (
    "NVRM",
    "Xid (",
    "nvidia: ",
    "nvidia failed with",
    "'nvidia",
    "Module nvidia",
    "[nvidia",
    "PCIe Bus Error",
    "PCIe bandwidth",
    "PCI bridge to [",
    "[10de:",
    "Killed process",
    "segfault at",
    "traps: ",
    "blocked for more than",
)
"""What a line has in it that tells anything."""
_MARKS = (
    "NVRM: ",
    "Xid (",
    "PCIe ",
    "AER: ",
    "Killed process",
    "segfault at",
    "blocked for",
    "could not insert 'nvidia",
)
_STARTS = re.compile(
    r"NVRM: |\bS?Xid \((?:PCI:)?[0-9a-fA-F]{4}|PCIe Bus Error: severity|Gb/s available PCIe bandwidth"
    r"|Killed process \d{1,10},? |\]: segfault at [0-9a-f]{1,16} ip|blocked for more than \d{1,9} seconds"
    r"|AER: (?:Multiple )?(?:Corrected|Correctable|Uncorrected|Uncorrectable) |could not insert 'nvidia"
)
_KERNEL = re.compile(
    r"\[ {0,12}(\d{1,9}\.\d{6})[\] ]|\d{1,3},\d{1,12},\d{1,18},[^;]{1,40};|kern {0,3}:\w{3,6} {0,3}: "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:,\d{6}[+-]|[\d.]{0,10}Z std(?:out|err) [FP] \[ {0,12}\d{1,9}\.\d{6}\] )"
)
_TAG = re.compile(r"[^{\"]{0,120}? kernel(?:\[[^\]]{0,10}\]: |: | - - - )")
_DATED = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] "
    r"(?:Linux version \d|Command line: |nvidia|\[drm\]|pci|ACPI|audit: |usb \d|systemd\[1\]: )"
)
"""What kernels write when they start; a date in brackets alone may be anybody's."""
_GOES_ON = re.compile(
    r"\[ {0,12}\+\d{1,9}\.\d{6}\]|\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|[JFMASOND][a-z]{2}) |<\d{1,3}>|-- "
)
"""Further lines that are the kernel's within its log."""

_DAEMON = re.compile(
    r"(?:[JFMASOND][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,+Z-]{8,22}) [\w.-]{1,64}"
    r" [\w./@()-]{1,64}(?:\[\d{1,10}\])?: "
)
_OTHERS = ("CUDA", "cuda", "NCCL", "nccl", "orch", "rror", "orker", "emory", "OOM", "SIGKILL", "NVIDIA-SMI", "NVML")


def _is_kernels(line: str) -> bool:
    """A line of the kernel, whatever it says."""
    if _KERNEL.match(line) is not None or (line.startswith("[") and _DATED.match(line) is not None):
        return True
    return " kernel" in line[:140] and _TAG.match(line) is not None


class _Counted:
    """An event and how many lines have told it."""

    def __init__(self, said: Message, time_s: float | None) -> None:
        self.said = said
        self.time_s = time_s
        self.count = 1


class _Key(NamedTuple):
    kind: str
    bus: Bus | None
    xid: int | None
    pid: int | None
    text: str


class KernelLog:
    """One reading per burst of lines, and one when a burst is long over."""

    kind: ClassVar[str] = "kernel-log"

    def __init__(
        self, give: Callable[[Reading], None], leave_out: Callable[[str], None], clock: Clock | None = None
    ) -> None:
        self._give = give
        self._leave_out = leave_out
        self._clock = clock or Clock()
        self._messages = Messages()
        self._burst: dict[_Key, _Counted] = {}
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._given_s: float | None = None
        self._has_begun = False
        self._unread = ""
        """The last line that told nothing."""
        self._seen: set[int] = set()
        self._latest = -1.0
        self._is_back = False
        """The log tells again of times that it has told of before."""

    def starts(self, line: str) -> bool:
        """Whether this is a line of the kernel."""
        return _is_kernels(line) or (any(mark in line for mark in _MARKS) and _STARTS.search(line) is not None)

    def take(self, line: str) -> bool:
        """Read a line; False where it is somebody else's."""
        if any(mark in line for mark in _WANTED):
            self._begin(line)
            self._read(line)
            self._unread = ""
            return True
        if not line or line.isspace():
            return self._has_begun
        if not _is_kernels(line) and _GOES_ON.match(line) is None:
            # A daemon's line in the same syslog does not end it, unless another format may want to read it.
            return _DAEMON.match(line) is not None and not any(mark in line for mark in _OTHERS)
        self._begin(line)
        since_boot = _KERNEL.match(line)
        if since_boot is not None and since_boot[1] is not None:
            self._clock.note_uptime(float(since_boot[1]))
        elif "+" in line[:16]:
            self._clock.pass_by(split(line).delta_s or 0.0)
        self._unread = line
        return True

    def end(self) -> None:
        """Give what is pending, and the moment of the last line."""
        self._flush()
        head = split(self._unread)
        self._unread = ""
        if head.delta_s is None and head != Head(""):
            time_s = self._clock.moment_of(head)
            self._pass(time_s)
            if time_s is not None and self._given_s is not None and time_s > self._given_s + _BATCH_S:
                self._tell(time_s)

    def _begin(self, line: str) -> None:
        """The log begins when its first line does."""
        if not self._has_begun:
            self._has_begun = True
            head = split(line)
            self._tell(None if head.delta_s is not None else self._clock.moment_of(head))

    def _read(self, line: str) -> None:
        head = split(line)
        if head.delta_s is not None:
            self._clock.pass_by(head.delta_s)
        time_s = self._clock.moment_of(head)
        for part in head.message.split("\n"):
            said = self._messages.read(part[:_MESSAGE_MAX])
            if said is None:
                if "Xid (" in part and "SXid" not in part:
                    self._leave_out("an Xid line without a number")
                continue
            if not self._is_repeated(head.uptime_s, time_s, part):
                self._add(said, time_s)

    def _is_repeated(self, uptime_s: float | None, time_s: float | None, message: str) -> bool:
        """Told before, further up: bug reports hold the same log several times."""
        stamp = time_s if uptime_s is None else uptime_s
        if stamp is None:
            return False
        key = hash((stamp, message))
        if stamp < self._latest - _AGAIN_S:
            self._is_back = True
        elif stamp > self._latest:
            self._is_back, self._latest = False, stamp
        # To the microsecond no two lines are the same; of those of one second, many may be.
        if key in self._seen and (self._is_back or uptime_s is not None):
            return True
        if len(self._seen) < _SEEN_MAX:
            self._seen.add(key)
        return False

    def _add(self, said: Message, time_s: float | None) -> None:
        if self._burst and not self._is_of_burst(time_s):
            self._flush()
        if not self._burst:
            self._pass(time_s)
            self._first_s = time_s
        self._last_s = time_s if time_s is not None else self._last_s
        is_telling = said.kind != "xid" or (said.xid or 0) >= 144
        key = _Key(said.kind, said.bus, said.xid, said.pid, said.text if is_telling else "")
        if len(self._burst) >= _EVENTS_MAX and key not in self._burst:
            likes = (known for known in self._burst if known[:3] == key[:3])
            key = next(likes, key)
        counted = self._burst.get(key)
        if counted is None:
            self._burst[key] = _Counted(said, time_s)
        else:
            counted.count += 1

    def _is_of_burst(self, time_s: float | None) -> bool:
        first_s, last_s = self._first_s, self._last_s
        if time_s is None or first_s is None or last_s is None:
            return True
        return last_s - _AGAIN_S <= time_s <= min(last_s + _GAP_S, first_s + _BATCH_S)

    def _pass(self, time_s: float | None) -> None:
        """Say that nothing went on happening, where it is long until the next."""
        if time_s is not None and self._given_s is not None and time_s > self._given_s + QUIET_S:
            self._tell(self._given_s + QUIET_S)

    def _flush(self) -> None:
        if self._burst:
            events = tuple(self._event(counted) for counted in self._burst.values())
            self._burst.clear()
            self._tell(self._last_s, events)
            self._first_s = self._last_s = None

    def _event(self, counted: _Counted) -> tuple[Place | None, Mapping[str, Any]]:
        said = counted.said
        facts: dict[str, Any] = {"kind": said.kind, "text": said.text, "values": facts_of(said.values, counted.count)}
        facts |= {name: value for name in ("xid", "pid") if (value := getattr(said, name)) is not None}
        if counted.time_s is not None:
            facts["time_s"] = counted.time_s
        if said.bus is None:
            return None, facts
        domain, bus, device = said.bus
        return Place(bus=f"{domain:08x}:{bus:02x}:{device:02x}.0", uuid=self._messages.uuids.get(said.bus)), facts

    def _tell(self, time_s: float | None, events: tuple[tuple[Place | None, Mapping[str, Any]], ...] = ()) -> None:
        self._give(Reading(time_s=time_s, events=events, has_zone=self._clock.has_zone))
        self._given_s = time_s if time_s is not None else self._given_s
