"""What every place that snapshots come from has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.model import Snapshot

SourceKind = Literal["live", "demo", "replay"]


class GpuUse(NamedTuple):
    """What the driver says about one process that holds a GPU, over all GPUs (keys are uuids)."""

    memory_bytes: dict[str, int | None]
    """None where the driver names the process but not its memory."""
    sm_pct: dict[str, float] | None
    """None where no GPU of the process reports it; a GPU without the process in its last window is 0."""


class Source(Protocol):
    """An endless (live, demo) or finite (replay) run of snapshots."""

    @property
    def kind(self) -> SourceKind:
        """Where the numbers come from; anything but ``live`` is labelled on the screen."""
        ...

    @property
    def name(self) -> str:
        """Host name, scenario or file."""
        ...

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield snapshots at the source's own pace until it ends or is closed."""
        ...

    def close(self) -> None:
        """End the iteration at once, from any thread, without waiting for a driver."""
        ...
