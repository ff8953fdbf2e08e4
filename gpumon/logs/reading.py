"""What a reader of a foreign format hands over, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

Facts = Mapping[str, Any]
"""Field name of a record of the model -> value. What a log does not say is absent."""
NOTHING: Facts = MappingProxyType({})


class Place(msgspec.Struct, frozen=True):
    """Which GPU is meant, as far as the log says; at least one is set."""

    index: int | None = None
    bus: str | None = None
    """As ``values.bus_id`` writes it: ``00000000:3b:00.0``."""
    uuid: str | None = None


class Use(NamedTuple):
    """One process on one GPU."""

    pid: int
    gpu: Place
    memory_bytes: int | None = None
    sm_pct: float | None = None
    facts: Facts = NOTHING
    """Of ``model.Process``."""


class Reading(NamedTuple):
    """What one stretch of a log tells of one moment."""

    time_s: float | None = None
    """Epoch; None where the log does not say."""
    gpus: Sequence[tuple[Place, Facts]] = ()
    """Facts of ``model.Gpu``."""
    uses: Sequence[Use] = ()
    is_complete_process_list: bool = False
    """``uses`` are all processes on the GPUs: who is not among them is gone."""
    host: Facts = NOTHING
    """Of ``model.Host``."""
    events: Sequence[tuple[Place | None, Facts]] = ()
    """Of ``model.Event``."""
    ranks: Sequence[tuple[Place | None, Facts]] = ()
    """Of ``model.Rank``."""
    interval_s: float | None = None
    """Time since the stream's previous reading that the format implies, where it gives no times."""
    has_zone: bool = False
    """``time_s`` is UTC; otherwise the clock as it was written, its zone unknown."""


class Reader(Protocol):
    """Understands one format. One object per file: it may remember earlier stretches (a header, a last line)."""

    kind: ClassVar[str]
    """Name of the format in ``diagnose --format json``."""

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        """``give`` takes finished readings; ``leave_out`` the reason why a part of the current line is not read."""

    def starts(self, line: str) -> bool:
        """Whether this line begins, or resumes, a stretch of the format; asked of every line that nobody claims."""
        ...

    def take(self, line: str) -> bool:
        """Read a line of the stretch, its first one included; False where it is another's: the stretch is over."""
        ...

    def end(self) -> None:
        """The stretch or the file is over: give what is pending."""
        ...
