"""Knows how programs say that a GPU's memory ran out, since PyTorch 0.4 and in other frameworks, and what they tell."""

from __future__ import annotations

import re
from typing import NamedTuple

from gpumon.logs import values
from gpumon.logs.reading import Place

PHRASES = (
    "ut of memory",
    "exceed allowed memory",
    "ALLOC_FAILED",
    "OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "OOM when",
    "RESOURCE_EXHAUSTED",
)
"""A line without any of them reports nothing of this kind."""
_SIZE = r"(?<![\d.])(\d{1,20}(?:\.\d{1,6})?) ?(bytes|[KMGTP]i?B)"
"""PyTorch's units are powers of 1024, whether it writes GB or GiB."""

_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern.replace(" ", r"\s{0,3}").replace("SIZE", _SIZE)))
    for name, pattern in (
        ("total_bytes", r"SIZE total capacity"),
        ("allocated_bytes", r"SIZE already allocated"),
        ("free_bytes", r"SIZE free[;)]"),
        ("reserved_unallocated_bytes", r"SIZE cached"),
        ("reserved_bytes", r"SIZE reserved in total"),
        ("total_bytes", r"total capaci?ty of SIZE"),
        ("free_bytes", r"of which SIZE is free"),
        ("process_bytes", r"this process has SIZE memory in use"),
        ("allowed_bytes", r"SIZE allowed;"),
        ("allocated_bytes", r"allocated memory SIZE is allocated by"),
        ("private_pool_bytes", r"with SIZE allocated in private pools"),
        ("reserved_unallocated_bytes", r"and SIZE is reserved by"),
        ("allocated_bytes", r"Currently allocated\s{0,20}: SIZE"),
        ("requested_bytes", r"Requested\s{0,20}: SIZE"),
        ("total_bytes", r"Device limit\s{0,20}: SIZE"),
        ("free_bytes", r"Free \(according to CUDA\) : SIZE"),
        ("allowed_bytes", r"memory fraction\)\s{0,60}: SIZE"),
    )
)
_ASKED = re.compile(r"Tried\s{1,3}to\s{1,3}allocate\s{1,3}" + _SIZE)
_NO_END = re.compile(r"Tried\s{1,3}to\s{1,3}allocate\s{1,3}more\s{1,3}than\s{1,3}1EB")
_OTHERS = re.compile(r"Process\s{1,3}(\d{1,10})\s{1,3}has\s{1,3}" + _SIZE + r"\s{0,3}memory\s{1,3}in\s{1,3}use")
_DEVICE = re.compile(r"(?:\(GPU|\bGPU|on device|on device:)\s{1,3}(\d{1,4})\b")
_HEAD = re.compile(
    r"(?:CUDA|HIP)\s{1,3}out\s{1,3}of\s{1,3}memory\.?\s{1,3}(?=Tried)|Allocation on device \d{1,4} would exceed"
)
_TAIL = (
    "If reserved",
    "try setting",
    "fragmentation",
    "See documentation",
    "ALLOC_CONF",
    "max_split_size_mb",
    "expandable_segments",
    "Memory Management",
    "pytorch.org/docs",
    "environment-variables",
)
_MIDDLE = (
    "total capac",
    "of which",
    "is free",
    "memory in use",
    "non-PyTorch",
    "this process has",
    "allocated memory",
    "by PyTorch",
    "already allocated",
    "in total",
    "unallocated",
    "private pools",
    "Currently allocated",
    "Requested  ",
    "Device limit",
    "according to CUDA",
    "PyTorch limit",
    "MiB",
    "GiB",
)
_WRAPPED_LINE_MAX = 400

_BARE = re.compile(
    r"CUDA error: out of memory|CUDA out of memory\.?\s{0,3}$|cuda runtime error \(2\) ?: out of memory"
    r"|Cuda failure (?:2 )?'out of memory'|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED"
)
_GGML = re.compile(r"allocating (\d{1,9}(?:\.\d{1,3})?) MiB on device (\d{1,3}): cudaMalloc failed: out of memory")
_MALLOC = re.compile(r"cudaMalloc(?:Async|Managed)? failed: (?:out of memory|CUDA_ERROR_OUT)")
_XLA = re.compile(
    r"^RESOURCE_EXHAUSTED: .{0,120}?(?:[Oo]ut of memory|[Ff]ailed to allocate request for)"
    r"(?: while trying to allocate| allocating)? (\d{1,20}(?:\.\d{1,6})?) ?(bytes|[KMGTP]i?B)"
)
_BFC = re.compile(
    r"Allocator \((?:GPU_(\d{1,3})_bfc|\w{1,40})\) ran out of memory trying to allocate (\d{1,20}(?:\.\d{1,6})?) ?"
    r"(bytes|[KMGTP]i?B)"
)
_TENSOR = re.compile(
    r"OOM when allocating tensor with shape ?\[([\d, ]{1,200})\] and type (\w{1,20}).{0,120}?(?:GPU:(\d{1,3}))?"
    r"(?= by allocator|$)"
)
_WIDTHS = {"float": 4, "half": 2, "bfloat16": 2, "double": 8, "int64": 8, "int32": 4, "uint8": 1, "bool": 1, "int8": 1}
_NO_LIMIT = 2.0**60
_CONTEXT_MAX = 0.03
"""What a process holds on a card beyond its pool, as a share of the card, and these bytes."""
_CONTEXT_BYTES = 2.5 * 1024**3


class Oom(NamedTuple):
    """One message about memory that ran out."""

    place: Place | None
    values: dict[str, float]
    """As in the contract: requested_bytes, free_bytes …; what the message does not say is absent."""
    begins_at: int = 0
    """Where in the text the message begins."""


def is_oom(text: str) -> bool:
    """Whether this may be such a message; quick and generous."""
    return any(phrase in text for phrase in PHRASES)


def oom_of(text: str) -> Oom | None:
    """The message in a text; None where there is none, or none with a number."""
    return _of_torch(text) or _of_others(text)


def bare_oom_of(text: str) -> int | None:
    """Where a message without any number begins, as old releases, cuBLAS and NCCL write it; None without one."""
    match = _BARE.search(text)
    return None if match is None else match.start()


def may_go_on(line: str) -> bool:
    """Whether a line reads as if it were the middle of a message that somebody wrapped."""
    return len(line) <= _WRAPPED_LINE_MAX and any(words in line for words in _MIDDLE)


def is_tail(line: str) -> bool:
    """Whether a line is of the advice with which such a message closes."""
    return len(line) <= _WRAPPED_LINE_MAX and any(words in line for words in _TAIL)


def _of_torch(text: str) -> Oom | None:
    head = _HEAD.search(text)
    if head is None:
        return None
    message = text[head.start() : head.start() + 4000]
    found: dict[str, float] = {}
    asked = _ASKED.search(message)
    if asked is not None:
        found["requested_bytes"] = _bytes(asked[1], asked[2])
    elif _NO_END.search(message):
        found["requested_bytes"] = _NO_LIMIT
    for name, pattern in _PARTS:
        match = pattern.search(message)
        if match is not None:
            found[name] = _bytes(match[1], match[2])
    if found.get("allowed_bytes", 0.0) >= _NO_LIMIT:
        del found["allowed_bytes"]  # a fraction that nobody set
    if not found and message.startswith("CUDA"):
        return None
    device = _DEVICE.search(message)
    place = None if device is None else Place(index=int(device[1]))
    _complete(found)
    _neighbours(message, found)
    return Oom(place, found, head.start())


def _complete(found: dict[str, float]) -> None:
    """Both ways to write what is reserved, from either."""
    allocated = found.get("allocated_bytes")
    if allocated is None:
        return
    if "reserved_bytes" in found:
        found.setdefault("reserved_unallocated_bytes", max(0.0, found["reserved_bytes"] - allocated))
    elif "reserved_unallocated_bytes" in found:
        found["reserved_bytes"] = allocated + found["reserved_unallocated_bytes"]


def _neighbours(message: str, found: dict[str, float]) -> None:
    """What the processes hold that it names; one of them is the program itself where it does not know its own number.

    They are no list of all that is on the GPU, and so none that says who is missing there.
    """
    named = {int(pid): _bytes(number, unit) for pid, number, unit in _OTHERS.findall(message)}
    mine = None
    reserved = found.get("reserved_bytes")
    if named and "process_bytes" not in found and reserved is not None:
        # In a container the driver names the host's number, which the program cannot know as its own.
        most = reserved + _CONTEXT_BYTES + _CONTEXT_MAX * found.get("total_bytes", 0.0)
        fitting = {pid: size for pid, size in named.items() if 0.97 * reserved <= size <= most}
        mine = min(fitting, key=lambda pid: fitting[pid], default=None)
        if mine is not None:
            found["process_bytes"] = named[mine]
    others = {pid: size for pid, size in named.items() if pid != mine}
    if others:
        largest = max(others, key=lambda pid: others[pid])
        found["other_processes_bytes"] = sum(others.values())
        found["other_processes"] = float(len(others))
        found["largest_other_pid"] = float(largest)
    elif "process_bytes" in found:
        found["other_processes_bytes"] = 0.0


def _of_others(text: str) -> Oom | None:
    """llama.cpp, JAX and TensorFlow."""
    match = _GGML.search(text)
    if match is not None:
        return Oom(Place(index=int(match[2])), {"requested_bytes": _bytes(match[1], "MiB")}, match.start())
    match = _MALLOC.search(text)
    if match is not None:
        return Oom(None, {}, match.start())
    match = _BFC.search(text)
    if match is not None and "not a failure" not in text:
        place = None if match[1] is None else Place(index=int(match[1]))
        return Oom(place, {"requested_bytes": _bytes(match[2], match[3])}, match.start())
    match = _TENSOR.search(text)
    if match is not None:
        place = None if match[3] is None else Place(index=int(match[3]))
        return Oom(place, _of_shape(match[1], match[2]), match.start())
    start = max(0, text.find("RESOURCE_EXHAUSTED: "))
    match = _XLA.match(text[start : start + 400])
    if match is not None:
        return Oom(None, {"requested_bytes": _bytes(match[1], match[2])}, start)
    return None


def _of_shape(shape: str, kind: str) -> dict[str, float]:
    width = _WIDTHS.get(kind)
    if width is None:
        return {}
    size = float(width)
    for part in shape.split(","):
        size *= values.number(part) or 1.0
    return {"requested_bytes": size} if size < _NO_LIMIT else {"requested_bytes": _NO_LIMIT}


def _bytes(number: str, unit: str) -> float:
    power = "BKMGTP".find(unit[0].upper()) if unit != "bytes" else 0
    return round(min(float(number) * 1024.0**power, _NO_LIMIT))
