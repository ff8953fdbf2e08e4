"""Which probe stands on which GPU, remembered while its job lives: one that falls silent for a moment moves nothing."""

from __future__ import annotations

import msgspec

from gpumon.model import Rank
from gpumon.steps import rank_on
from gpumon.window import Window, key_of


class Probe(msgspec.Struct, frozen=True):
    """A probe seen on a GPU."""

    key: str
    """Of its series."""
    rank: Rank | None
    """What it reports now; None where it has fallen silent."""


class Probes:
    """Owned by whoever draws frame after frame."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        """GPU -> the job, and the key of its rank's series."""

    def on(self, window: Window, uuid: str) -> Probe | None:
        """The probe of the process that works on a GPU; None where there was none since its job began."""
        rank, job = rank_on(window, uuid), window.job_of(uuid)
        if rank is not None and job is not None:
            self._known[uuid] = (job.id, key_of(rank))
        known = self._known.get(uuid)
        if known is None or (job is not None and job.id != known[0]):
            self._known.pop(uuid, None)
            return None
        return Probe(known[1], rank)
