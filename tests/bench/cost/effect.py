"""Whether a job notices: a loop that keeps every core busy, with gpumon running and stopped in turn."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from multiprocessing.sharedctypes import Synchronized
from statistics import mean, stdev

from tests.bench.cost.box import Box
from tests.bench.cost.contenders import GPUMON, opened
from tests.bench.cost.steady import SETTLE_S

WINDOW_S = 4.0
PAST_S = 600


def _train(steps: Synchronized[int]) -> None:
    """What a training loop on the CPU does, as far as caches and cores are concerned."""
    weights = [0.5] * 4096
    while True:
        total = sum(weight * weight for weight in weights)
        weights = [weight - 1e-9 * total for weight in weights]
        steps.value += 1


def slowdown_pct(box: Box, pairs: int) -> tuple[float, float]:
    """How many percent fewer steps a second with gpumon, and the uncertainty of that (95 %)."""
    workers, counters = [], []
    try:
        for _ in range(os.cpu_count() or 1):
            steps = multiprocessing.Value(ctypes.c_longlong, 0, lock=False)
            counters.append(steps)
            worker = multiprocessing.Process(target=_train, args=(steps,), daemon=True)
            worker.start()
            workers.append(worker)
        with opened(GPUMON, box, past_s=PAST_S) as screen:
            screen.watch(SETTLE_S)

            def rate(*, is_running: bool) -> float:
                os.kill(screen.pid, signal.SIGCONT if is_running else signal.SIGSTOP)
                screen.watch(1.0)
                before, began_s = sum(one.value for one in counters), time.monotonic()
                screen.watch(WINDOW_S)
                return (sum(one.value for one in counters) - before) / (time.monotonic() - began_s)

            losses = []
            for number in range(pairs):
                order = (True, False) if number % 2 else (False, True)
                rates = {is_running: rate(is_running=is_running) for is_running in order}
                losses.append(100 * (1 - rates[True] / rates[False]))
            os.kill(screen.pid, signal.SIGCONT)
        return mean(losses), 1.96 * stdev(losses) / len(losses) ** 0.5
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
