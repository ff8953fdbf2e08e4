"""Writes the events of snapshots as a kernel log, in any of the forms in which people keep one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone

from gpumon.model import Event, Snapshot

UPTIME_S = 86_400.0
"""Since boot, at the first snapshot."""
_BEGIN = "nvidia-uvm: Loaded the UVM driver, major device number 510."
_END = "nvme nvme0: 16/0/0 default/read/poll queues"
Form = Callable[[float, float, str], str]
"""Epoch, uptime, message -> line."""


def _date(time_s: float) -> datetime:
    return datetime.fromtimestamp(time_s, tz=timezone.utc)


FORMS: Mapping[str, Form] = {
    "dmesg": lambda _, up, message: f"[{up:12.6f}] {message}",
    "dmesg -T": lambda at, _, message: f"[{_date(at):%a %b %e %H:%M:%S %Y}] {message}",
    "dmesg --time-format iso": lambda at, _, message: f"{_date(at):%Y-%m-%dT%H:%M:%S,%f}+00:00 {message}",
    "dmesg -x": lambda _, up, message: f"kern  :warn  : [{up:12.6f}] {message}",
    "dmesg with callers": lambda _, up, message: f"[{up:12.6f}] [T12345] {message}",
    "/dev/kmsg": lambda _, up, message: f"4,1234,{round(up * 1e6)},-;{message}",
    "journalctl -o short-iso": lambda at, _, message: f"{_date(at):%Y-%m-%dT%H:%M:%S}+0000 node1 kernel: {message}",
    "journalctl -o short-full": lambda at, _, message: f"{_date(at):%a %Y-%m-%d %H:%M:%S} UTC node1 kernel: {message}",
    "journalctl -o short-unix": lambda at, _, message: f"{at:.6f} node1 kernel: {message}",
    "journalctl -o short-monotonic": lambda _, up, message: f"[{up:12.6f}] node1 kernel: {message}",
    "journalctl -o json": lambda at, _, message: json.dumps(
        {"__REALTIME_TIMESTAMP": f"{round(at * 1e6)}", "MESSAGE": message, "SYSLOG_IDENTIFIER": "kernel"}
    ),
    "journalctl": lambda at, _, message: f"{_date(at):%b %d %H:%M:%S} node1 kernel: {message}",
    "journalctl -o short-precise": lambda at, _, message: f"{_date(at):%b %d %H:%M:%S.%f} node1 kernel: {message}",
    "kern.log": lambda at, up, message: f"{_date(at):%b %e %H:%M:%S} node1 kernel: [{up:12.6f}] {message}",
    "syslog with a year": lambda at, _, message: f"{_date(at):%Y %b %d %H:%M:%S} node1 kernel: {message}",
    "syslog, RFC 5424": lambda at, _, message: f"<4>1 {_date(at):%Y-%m-%dT%H:%M:%S.%f}Z node1 kernel - - - {message}",
    "a container's log": lambda at, up, message: json.dumps(
        {"log": f"[{up:12.6f}] {message}\n", "stream": "stdout", "time": f"{_date(at):%Y-%m-%dT%H:%M:%S.%f}Z"}
    ),
    "a pod's log": lambda at, up, message: f"{_date(at):%Y-%m-%dT%H:%M:%S.%f}000Z stdout F [{up:12.6f}] {message}",
    "grep over files": lambda at, _, message: f"/var/log/kern.log.1:{_date(at):%b %e %H:%M:%S} node1 kernel: {message}",
}


def write(snapshots: Iterable[Snapshot], form: str = "dmesg") -> str:
    """A line per event, and one of no interest at the beginning and at the end."""
    shape, rows = FORMS[form], []
    first_s = last_s = None
    buses: dict[str, str] = {}
    for snapshot in snapshots:
        first_s, last_s = snapshot.time_s if first_s is None else first_s, snapshot.time_s
        buses.update({gpu.uuid: _address(gpu.pci_bus_id) for gpu in snapshot.gpus if gpu.pci_bus_id})
        for event in snapshot.events:
            rows += [(event.time_s or snapshot.time_s, message) for message in messages(event, buses)]
    if first_s is None or last_s is None:
        return ""
    rows = [(first_s, _BEGIN), *rows, (last_s, _END)]
    return "".join(f"{shape(time_s, UPTIME_S + time_s - first_s, message)}\n" for time_s, message in rows)


def _address(bus_id: str) -> str:
    """``00000000:3B:00.0`` as the kernel writes it."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def messages(event: Event, buses: Mapping[str, str]) -> Iterator[str]:
    """What the kernel writes when this happens; nothing of what only others know."""
    text, times = event.text or "", int((event.values or {}).get("count", 1.0))
    bus = buses.get(event.gpu_uuid or "", "0000:00:00.0")
    if text.startswith("NVRM") or (event.kind in ("oom-kill", "segfault") and text):
        message = text
    elif event.kind == "xid":
        pid = "'<unknown>', name=<unknown>" if event.pid is None else f"{event.pid}, name=python"
        message = f"NVRM: Xid (PCI:{bus[:-2]}): {event.xid}, pid={pid}, {text or 'Ch 00000008'}"
    elif event.kind == "gpu-lost":
        message = f"NVRM: GPU {bus}: GPU has fallen off the bus."
    elif event.kind == "oom-kill":
        message = f"Out of memory: Killed process {event.pid or 4242} (python) total-vm:123456kB, anon-rss:120000kB"
    else:
        return
    yield from [message] * times
