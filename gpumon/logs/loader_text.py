"""Knows how loader workers die, and how programs say that the machine's or the shared memory ran out."""

from __future__ import annotations

import re
from typing import NamedTuple

NO_MEMORY, TOO_MANY_FILES, NO_SPACE = 12, 24, 28
_WORKER = re.compile(
    r"DataLoader worker \(pid (\d{1,10})\) is killed by signal: ([A-Z][a-z]{2,12}(?: [a-z]{3,12}){0,2})"
)
_LEFT = re.compile(r"DataLoader worker \(pid(?:\(s\))? (\d{1,10})[\d, ]{0,200}\) exited unexpectedly")
_BUS = re.compile(r"Unexpected bus error encountered in worker")
_SHM_FILE = re.compile(
    r"(?:unable to (?:open shared memory object|write to file|resize file|mmap \d{1,18} bytes from file)"
    r" <?/torch_\w{1,60}>?|shared memory segment /dev/shm/nccl-\w{1,40}|failed to extend /dev/shm/nccl-\w{1,40})"
)
_NUMBER = re.compile(r"\((\d{1,3})\)")
_FILES = re.compile(r"received 0 items of ancdata|OSError: \[Errno 24\] Too many open files")
_ADVICE = re.compile(
    r"This DataLoader will create (\d{1,6}) worker processes in total\."
    r" Our suggested max number of worker in current system is (\d{1,6})"
)
_HEAP = re.compile(
    r"(?:\[enforce fail at [^\]]{1,80}\][^D]{0,20})?DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"
    r": you tried to allocate (\d{1,18}) bytes"
)
_ARRAY = re.compile(r"Unable to allocate (\d{1,9}(?:\.\d{1,4})?) ([KMGTP]iB) for an array")
_KILLED = re.compile(
    r"[Dd]etected \d{1,6} oom[-_]kill event|[Ss]ome of (?:your|the step) (?:processes|tasks) (?:may )?have been"
    r" (?:killed by the cgroup out-of-memory handler|OOM Killed)|[Ee]xceeded (?:job|step) memory limit"
)
_SIGNALLED = re.compile(r"Signal 9 \(SIGKILL\) received by PID (\d{1,10})|exitcode\s{0,4}: -9 \(pid: (\d{1,10})\)")
PHRASES = (
    "killed by signal",
    "exited unexpectedly",
    "bus error",
    "/torch_",
    "shm/nccl",
    "ancdata",
    "Errno 24",
    "This DataLoader will create",
    "DefaultCPUAllocator",
    "Unable to allocate",
    "oom_kill",
    "oom-kill",
    "OOM Killed",
    "out-of-memory handler",
    "memory limit",
    "SIGKILL",
    "exitcode",
)
"""A line without any of them reports nothing of this kind."""
_KINDS = {"Bus error": "bus-error", "Killed": "worker-killed", "Segmentation fault": "segfault"}


class Told(NamedTuple):
    """One event."""

    kind: str
    """bus-error, shm-error, worker-killed, worker-exited, segfault, oom-kill, ram-exhausted, many-workers."""
    values: dict[str, float]
    begins_at: int
    pid: int | None = None


def told_of(text: str) -> Told | None:
    """What a line says of workers and the machine's memory; mostly nothing."""
    if not any(phrase in text for phrase in PHRASES):
        return None
    worker = _WORKER.search(text)
    if worker is not None:
        kind = _KINDS.get(worker[2].removesuffix(" It"), "worker-exited")
        return Told(kind, {}, worker.start(), int(worker[1]))
    left = _LEFT.search(text)
    if left is not None:
        return Told("worker-exited", {}, left.start(), int(left[1]))
    shared = _BUS.search(text)
    if shared is not None:
        return Told("bus-error", {}, shared.start())
    return _of_memory(text)


def _of_memory(text: str) -> Told | None:
    shared = _SHM_FILE.search(text)
    if shared is not None:
        number = _NUMBER.search(text[shared.end() : shared.end() + 160])
        return Told("shm-error", {"errno": float(number[1])} if number else {}, shared.start())
    files = _FILES.search(text)
    if files is not None:
        return Told("shm-error", {"errno": float(TOO_MANY_FILES)}, files.start())
    advice = _ADVICE.search(text)
    if advice is not None:
        return Told(
            "many-workers", {"workers": float(advice[1]), "suggested_workers": float(advice[2])}, advice.start()
        )
    heap = _HEAP.search(text)
    if heap is not None:
        return Told("ram-exhausted", {"requested_bytes": float(heap[1])}, heap.start())
    array = _ARRAY.search(text)
    if array is not None:
        size = float(array[1]) * 1024.0 ** "BKMGTP".find(array[2][0])
        return Told("ram-exhausted", {"requested_bytes": size}, array.start())
    killed = _KILLED.search(text)
    if killed is not None:
        return Told("oom-kill", {}, killed.start())
    signalled = _SIGNALLED.search(text)
    if signalled is not None:
        return Told("worker-killed", {"signal": 9.0}, signalled.start(), int(signalled[1] or signalled[2]))
    return None
