"""Which of the driver's pids is which rank, where the driver counts outside of our pid namespace (in a container)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.model import Rank
from gpumon.sources import GpuUse
from gpumon.sources.host.pidview import is_namespaced
from gpumon.sources.host.procfs import exists


class Names:
    """Gives processes of the driver's list their pid here, as far as the GPU that a rank names leaves one choice."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._is_namespaced = is_namespaced(proc)
        self._uses: Mapping[int, GpuUse] = {}
        self._places: tuple[tuple[int, str], ...] = ()
        self._found: Mapping[int, GpuUse] = {}

    def of_here(self, uses: Mapping[int, GpuUse], ranks: Sequence[Rank]) -> Mapping[int, GpuUse]:
        """What the driver says, by pids of this /proc where they are known; put together anew only after a change."""
        if not (self._is_namespaced and ranks and uses):
            return uses
        places = tuple((rank.pid, rank.gpu_uuid) for rank in ranks if rank.gpu_uuid and rank.pid not in uses)
        if uses is not self._uses or places != self._places:
            self._uses, self._places = uses, places
            names = self._names(uses, places)
            self._found = {names.get(pid, pid): use for pid, use in uses.items()} if names else uses
        return self._found

    def _names(self, uses: Mapping[int, GpuUse], places: Sequence[tuple[int, str]]) -> dict[int, int]:
        names: dict[int, int] = {}
        for uuid in dict.fromkeys(uuid for _, uuid in places):
            here = [pid for pid, on in places if on == uuid]
            outside = [pid for pid, use in uses.items() if uuid in use.memory_bytes]
            unknown = [pid for pid in outside if not exists(f"{self._proc}/{pid}")]
            if len(here) == len(unknown) == 1:
                names[unknown[0]] = here[0]
        return names if len(set(names.values())) == len(names) else {}
