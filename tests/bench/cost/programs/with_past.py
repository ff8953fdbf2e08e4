"""gpumon's live screen after hours: `with_past SECONDS MARKER` gives it a past, touches MARKER, and goes on live.

Only the source is another: a second after second of varied copies of the first snapshot, then the live ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpumon.__main__ import main
from gpumon.model import Gpu, Snapshot
from gpumon.sources.live import LiveSource


def _varied(gpu: Gpu, second: int) -> Gpu:
    swing = (second * 7 + gpu.index * 3) % 13
    return msgspec.structs.replace(
        gpu,
        utilization_pct=86.0 + swing,
        utilization_samples_pct=(86.0 + swing,) * 6,
        power_w=600.0 + 5 * swing,
        temperature_c=60.0 + swing // 3,
        sm_clock_mhz=1905.0 + 5 * swing,
        age_s=0.5,
    )


def _past(first: Snapshot, seconds: int) -> Iterator[Snapshot]:
    for second in range(seconds):
        yield msgspec.structs.replace(
            first,
            time_s=first.time_s - seconds + second,
            interval_s=1.0 if second else None,
            gpus=tuple(_varied(gpu, second) for gpu in first.gpus),
            events=(),
        )


def give_past(seconds: int, marker: Path) -> None:
    """Let every live source begin so long ago."""
    live = LiveSource.__iter__

    def with_past(self: LiveSource) -> Iterator[Snapshot]:
        snapshots = live(self)
        first = next(snapshots)
        self.is_catching_up = True  # folded, not drawn
        yield from _past(first, seconds)
        self.is_catching_up = False
        marker.touch()
        yield msgspec.structs.replace(first, interval_s=1.0)
        yield from snapshots

    LiveSource.__iter__ = with_past  # type: ignore[method-assign]


if __name__ == "__main__":
    give_past(int(sys.argv[1]), Path(sys.argv[2]))
    del sys.argv[1:3]
    sys.exit(main())
