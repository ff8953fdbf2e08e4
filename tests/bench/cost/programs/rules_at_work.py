"""What the rules cost on eight GPUs after an hour, at the pace of the live screen: JSON on stdout.

``rules_at_work SECONDS``: a snapshot a second, first judged as usual, then as often with all rules due at once.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from statistics import mean, median

import msgspec

from gpumon.model import Snapshot, Volume
from gpumon.monitor import Monitor, _Judged
from gpumon.sources.demo import simulate
from gpumon.window import Window

HOUR_S = 3600
VOLUME = Volume(path="/data", total_bytes=10**13, free_bytes=5 * 10**12, free_inodes_pct=90.0)
SCENARIO = "throttled"
"""Eight H100 in one job, with something to find."""


class _Clock:
    """CPU time of every judgement since it was last asked."""

    def __init__(self) -> None:
        self.spent_ms: dict[str, float] = {}
        judge = _Judged.judge

        def timed(judged: _Judged, window: Window) -> None:
            began_s = time.thread_time()
            judge(judged, window)
            spent_ms = 1000 * (time.thread_time() - began_s)
            self.spent_ms[judged.rule.id] = self.spent_ms.get(judged.rule.id, 0.0) + spent_ms

        _Judged.judge = timed  # type: ignore[method-assign]

    def take(self) -> dict[str, float]:
        """Rule -> milliseconds."""
        spent_ms, self.spent_ms = self.spent_ms, {}
        return spent_ms


def measure(seconds: int) -> dict[str, object]:
    """Milliseconds a second as usual, of a frame judged in full, and the dearest rules of such a frame."""
    monitor, clock = Monitor(), _Clock()
    snapshots = map(_with_disk, simulate(SCENARIO, HOUR_S + 2 * seconds))
    for _ in range(HOUR_S):
        monitor.take(next(snapshots))
    clock.take()
    gc.collect()
    gc.freeze()  # as the live screen does, which collects as seldom
    gc.set_threshold(5000, 20, 50)
    usual = list(_live(monitor, clock, snapshots, seconds, is_full=False))
    full = list(_live(monitor, clock, snapshots, seconds, is_full=True))
    of_rule = {rule: median(one[rule] for one in full) for rule in full[0]}
    return {
        "usual_ms": mean(sum(one.values()) for one in usual),
        "full_ms": median(sum(one.values()) for one in full),
        "dearest_ms": dict(sorted(of_rule.items(), key=lambda item: -item[1])[:8]),
    }


def _with_disk(snapshot: Snapshot) -> Snapshot:
    """What the demo leaves out and every real machine has: a filesystem, and processes that could write to it."""
    return msgspec.structs.replace(
        snapshot,
        host=msgspec.structs.replace(snapshot.host, volumes=(VOLUME,)),
        processes=tuple(msgspec.structs.replace(one, write_bytes_per_s=0.0) for one in snapshot.processes),
    )


def _live(
    monitor: Monitor, clock: _Clock, snapshots: Iterator[Snapshot], seconds: int, *, is_full: bool
) -> Iterator[dict[str, float]]:
    for _ in range(seconds):
        snapshot = next(snapshots)
        time.sleep(1)  # what was in the caches is gone, as in the real program
        for judged in monitor._judged if is_full else ():
            judged.due_s = 0.0
        monitor.take(snapshot)
        yield clock.take()


if __name__ == "__main__":
    json.dump(measure(int(sys.argv[1])), sys.stdout)
