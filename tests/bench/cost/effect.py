"""Whether a job notices: a loop that keeps every core busy, with gpumon running and stopped in turn."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from multiprocessing.sharedctypes import Synchronized
from statistics import median, stdev
from typing import NamedTuple

from tests.bench.cost.box import Box
from tests.bench.cost.clock import cpu_s
from tests.bench.cost.contenders import GPUMON, opened
from tests.bench.cost.steady import SETTLE_S

WINDOW_S = 2.0
PAST_S = 600


class _Window(NamedTuple):
    """What happened in two seconds."""

    steps: int
    job_s: float
    """CPU time that the loop got."""
    own_s: float
    """CPU time that gpumon took."""


def _train(steps: Synchronized[int]) -> None:
    """What a training loop on the CPU does, as far as caches and cores are concerned."""
    weights = [0.5] * 4096
    while True:
        total = sum(weight * weight for weight in weights)
        weights = [weight - 1e-9 * total for weight in weights]
        steps.value += 1


def slowdown_pct(box: Box, pairs: int) -> tuple[float, float]:
    """How many percent of its steps the loop loses to gpumon, and the uncertainty of that (95 %).

    Others use this machine too, and take from the loop what they want. So two things are measured that they disturb
    less: steps per second of CPU that the loop got (caches), and the share of the cores that gpumon took.
    """
    workers: list[multiprocessing.Process] = []
    counters: list[Synchronized[int]] = []
    cores = os.cpu_count() or 1
    try:
        for _ in range(cores):
            steps = multiprocessing.Value(ctypes.c_longlong, 0, lock=False)
            counters.append(steps)  # type: ignore[arg-type]
            worker = multiprocessing.Process(target=_train, args=(steps,), daemon=True)
            worker.start()
            workers.append(worker)
        with opened(GPUMON, box, past_s=PAST_S) as screen:
            screen.watch(SETTLE_S)

            def state() -> _Window:
                job_s = sum(cpu_s(worker.pid or 0) for worker in workers)
                return _Window(sum(one.value for one in counters), job_s, cpu_s(screen.pid))

            def window(*, is_running: bool) -> _Window:
                os.kill(screen.pid, signal.SIGCONT if is_running else signal.SIGSTOP)
                screen.watch(0.5)
                before = state()
                screen.watch(WINDOW_S)
                return _Window(*(after - first for after, first in zip(state(), before, strict=True)))

            losses = []
            for number in range(pairs):
                order = (True, False) if number % 2 else (False, True)
                beside, alone = sorted((window(is_running=which) for which in order), key=lambda one: -one.own_s)
                slower = 1 - (beside.steps / beside.job_s) / (alone.steps / alone.job_s)
                losses.append(100 * (slower + beside.own_s / (cores * WINDOW_S)))
            os.kill(screen.pid, signal.SIGCONT)
        return median(losses), 1.96 * 1.25 * stdev(losses) / len(losses) ** 0.5
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
