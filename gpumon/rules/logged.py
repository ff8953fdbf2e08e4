"""Knows what a log tells afterwards: which GPU by its address, how long ago, and until when it stands."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import NamedTuple

from gpumon.kernel_lines import bus_of
from gpumon.model import Event, Gpu, Subject
from gpumon.rules.heard import DAY_S, Sorted
from gpumon.window import Window

EPOCH_S = 1e9
"""Times below are seconds since boot, of a log that gives no dates."""
_START_S = 60.0
"""A driver that starts tells of its GPUs before it says that it starts."""


class Telling(NamedTuple):
    """An event and how long ago it was."""

    age_s: float
    event: Event


def is_logged(event: Event) -> bool:
    """Told by a log that is read afterwards: it is what the log is about, however long ago it was."""
    return bool((event.values or {}).get("logged"))


def delay_s(window: Window, age_s: float, event: Event) -> float:
    """How long after it happened it came to our knowledge."""
    if event.time_s is None or event.time_s < EPOCH_S <= window.last.time_s:
        return 0.0
    return window.last.time_s - age_s - event.time_s


def times(event: Event) -> int:
    """How many equal lines it stands for."""
    return int((event.values or {}).get("count", 1.0))


def logged(window: Window, kinds: Collection[str], seconds: float = DAY_S) -> list[Telling]:
    """Events of some kinds that a log has told and that were heard lately, oldest first, with their true age.

    Xid events are asked for by their number: ``xid-79``.
    """
    told, now_s = _BY_KIND.of(window), window.elapsed_s
    found = [one for kind in kinds for one in told.get(kind, ()) if now_s - one[0] < seconds]
    if len(kinds) > 1:
        found.sort(key=itemgetter(0))
    return [Telling(_true_age_s(window, now_s - then_s, event), event) for then_s, event in found]


def _true_age_s(window: Window, age_s: float, event: Event) -> float:
    return max(0.0, age_s + delay_s(window, age_s, event))


def _kind_of(_: Window, heard_at_s: float, event: Event) -> tuple[str, tuple[float, Event]] | None:
    if not is_logged(event):
        return None
    return f"xid-{event.xid}" if event.kind == "xid" else event.kind, (heard_at_s, event)


_BY_KIND = Sorted(_kind_of)


def driver_started_s(window: Window) -> float | None:
    """How long ago a log told last that the driver was loaded anew: what was wrong before is over."""
    return min((one.age_s for one in logged(window, ("driver-start",))), default=None)


def stands(age_s: float, started_s: float | None) -> bool:
    """Whether something is of the driver that is loaded now."""
    return started_s is None or age_s <= started_s + _START_S


def address(uuid: str | None, text: str | None = None) -> str | None:
    """``0000:3b:00.0`` of a GPU that is known by its address or named so in a line."""
    if uuid is None:
        return None
    bus = bus_of(uuid if uuid.startswith("bus:") else text)
    return None if bus is None else f"{bus[0]:04x}:{bus[1]:02x}:{bus[2]:02x}.0"


def name_of(gpu: Gpu | None, uuid: str | None, text: str | None = None) -> str:
    """``GPU 3``; without an index ``GPU 3b:00.0``, with the domain where it is not 0."""
    if gpu is not None:
        return f"GPU {gpu.index}"
    place = address(uuid, text)
    return "a GPU" if place is None else f"GPU {place.removeprefix('0000:')}"


def subject_of(gpu: Gpu | None, uuid: str | None) -> Subject:
    """A GPU also where only its address is known; the machine where nothing is."""
    if gpu is not None:
        return Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid)
    return Subject(kind="host") if uuid is None else Subject(kind="gpu", uuid=uuid)
