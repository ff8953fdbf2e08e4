"""How the cost grows: with the number of GPUs, and with processes on the machine that have nothing to do with them."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from tests.bench.cost.box import PER_GPU, Box
from tests.bench.cost.contenders import GPUMON
from tests.bench.cost.report import Spread, ratio, spread
from tests.bench.cost.steady import run_once

FEW, MANY = 1, 16
STRANGERS = 5000
PAST_S = 600
_STRANGER_BYTES = 1 << 20
"""A sleeping process takes a fifth of that; the machine is others' too."""


def with_gpus(count: int, seconds: float, tell: Callable[[str], None]) -> tuple[Spread, Spread, Spread]:
    """CPU at 1 and at 16 GPUs (eight processes on each), and the ratio round by round."""
    few, many = [], []
    for number in range(count):
        for gpus, found in ((FEW, few), (MANY, many)):
            with Box(gpus) as box:
                found.append(run_once(GPUMON, box, seconds, PAST_S).cpu_pct)
        tell(f"round {number + 1}: {FEW} GPU {few[-1]:.2f} %, {MANY} GPUs {many[-1]:.2f} %")
    return spread(few), spread(many), ratio(spread(many), spread(few))


def with_strangers(count: int, seconds: float, tell: Callable[[str], None]) -> tuple[int, Spread]:
    """How many other processes there were, and the CPU with them as a multiple of that without."""
    strangers = min(STRANGERS, _affordable())
    without, beside = [], []
    for number in range(count):
        for more, found in ((0, without), (strangers, beside)):
            with Box(strangers=more) as box:
                found.append(run_once(GPUMON, box, seconds, PAST_S).cpu_pct)
        tell(f"round {number + 1}: alone {without[-1]:.2f} %, beside {strangers} processes {beside[-1]:.2f} %")
    return strangers, ratio(spread(beside), spread(without))


def _affordable() -> int:
    """So many processes may be started here."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    most = int(Path("/proc/sys/kernel/pid_max").read_text()) // 4
    if soft != resource.RLIM_INFINITY:
        most = min(most, soft // 2)
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            most = min(most, int(line.split()[1]) * 1024 // 2 // _STRANGER_BYTES)
    return max(0, most - 8 * PER_GPU)
