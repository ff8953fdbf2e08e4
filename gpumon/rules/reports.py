"""Knows how rules find what programs reported of themselves, in their logs, and whom a report is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.model import Event, Subject
from gpumon.window import Window

TOLD_S = 600.0
"""How long a report stays an alert."""
FATAL = (
    "cuda-oom",
    "cuda-error",
    "bus-error",
    "worker-killed",
    "oom-kill",
    "segfault",
    "ram-exhausted",
    "xid",
    "gpu-lost",
)
"""Reports after which a program mostly ends, and its other ranks wait in vain."""


def reports(window: Window, *kinds: str, seconds: float = TOLD_S) -> list[tuple[float, Event]]:
    """Reports of these kinds with their age, oldest first."""
    return [(age_s, event) for age_s, event in window.aged_events(seconds) if event.kind in kinds]


def number(event: Event, name: str) -> float | None:
    """One of its numbers; None where it does not say."""
    return (event.values or {}).get(name)


def is_flagged(events: Iterable[tuple[float, Event]], name: str) -> bool:
    """Whether any of the reports says so."""
    return any(number(event, name) for _, event in events)


def index_of(window: Window, uuid: str | None) -> int | None:
    """The number of the GPU that a report names, also of one that nothing else is known of."""
    known = next((gpu.index for gpu in window.last.gpus if gpu.uuid == uuid), None)
    if known is not None or uuid is None:
        return known
    name, _, digits = uuid.partition(":")
    return int(digits) if name == "index" and digits.isdecimal() and len(digits) < 9 else None


def subject_of(window: Window, uuids: Sequence[str | None]) -> Subject:
    """The GPU where the reports name one, else the machine."""
    if len(uuids) != 1 or uuids[0] is None:
        return Subject(kind="host")
    return Subject(kind="gpu", gpu=index_of(window, uuids[0]), uuid=uuids[0])


def gpus_named(window: Window, uuids: Sequence[str | None]) -> str:
    """``GPU 3``, ``GPUs 0–7``, ``5 GPUs``, ``a GPU``."""
    return _named("GPU", [index_of(window, uuid) for uuid in uuids])


def ranks_named(ranks: Iterable[float]) -> str:
    """``rank 3``, ``ranks 0–7``, ``ranks 0, 4``, ``5 ranks``."""
    return _named("rank", [int(rank) for rank in sorted(set(ranks))])


def _named(word: str, numbers: Sequence[int | None]) -> str:
    known = sorted(number for number in numbers if number is not None)
    if not known:
        return f"a {word}" if len(numbers) < 2 else f"{len(numbers)} {word}s"
    if len(known) == 1:
        return f"{word} {known[0]}"
    if known == list(range(known[0], known[-1] + 1)):
        return f"{word}s {known[0]}–{known[-1]}"
    return f"{word}s {', '.join(map(str, known))}" if len(known) <= 3 else f"{len(known)} {word}s"


def size(count_bytes: float) -> str:
    """``20 MiB``, ``3.8 GiB``, ``130675 GiB``."""
    if count_bytes < 1024**3:
        return f"{count_bytes / 1024**2:.0f} MiB"
    gib = count_bytes / 1024**3
    return f"{gib:.1f} GiB" if gib < 1000 else f"{gib:.0f} GiB" if gib < 1e6 else "more than 1 PiB"
