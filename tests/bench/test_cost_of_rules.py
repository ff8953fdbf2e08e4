"""What all rules cost on one frame: ``pytest tests/bench/test_cost_of_rules.py --benchmark-enable``."""

from __future__ import annotations

import sys
from functools import cache
from random import Random
from types import FrameType

import msgspec
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from gpumon.model import Abstention, Finding
from gpumon.monitor import Monitor
from gpumon.rules import RULES
from gpumon.rules.rule import Rule
from gpumon.sources.simulator.chips import NODE
from gpumon.sources.simulator.world import World
from gpumon.window import Window
from tests.bench.jobs import pick_job

SECONDS = 400
WORKERS = 7
_FIRST_CALLS = 60
"""So few calls are no trend."""


@cache
def _frame(gpus: int, *, is_starved: bool) -> Window:
    """A job on so many GPUs, eight processes on each, probed, seen for some minutes at 1 Hz."""
    machine = msgspec.structs.replace(NODE, gpus=gpus)
    job = pick_job(Random(3), "dev", machine, workers=WORKERS, age_s=5000.0)
    if is_starved:
        job = msgspec.structs.replace(job, prep_s=1.6 * WORKERS * job.step_s)
    world = World(machine, (job,), seed=1, start_s=0.0, epoch_s=1.8e9, window_s=None, is_probed=True)
    world.begin()
    world.settle()
    monitor, passed_s = Monitor(), None
    for _ in range(SECONDS):
        window, *_ = monitor.take(world.snapshot(passed_s))
        passed_s = 1.0
        world.advance(passed_s)
    return window


def _anew(window: Window) -> Window:
    """The same instant with nothing remembered of it."""
    return Window(window._store, window._row, window.last, window.jobs, window.ended_jobs)


def _judge(window: Window) -> list[Finding | Abstention]:
    return [one for rule in RULES for one in rule.check(window, rule.limits())]


@pytest.mark.parametrize("is_starved", [False, True], ids=["healthy", "starved"])
def test_all_rules_at_once(benchmark: BenchmarkFixture, is_starved: bool) -> None:
    """Every rule on 8 GPUs with 64 processes: at most 3 ms are promised, and in fact they take turns."""
    window = _frame(8, is_starved=is_starved)
    assert len(window.last.processes) == 64
    found = benchmark.pedantic(_judge, setup=lambda: ((_anew(window),), {}), rounds=100, warmup_rounds=5)
    assert is_starved == any(one.rule == "data-starved" for one in found)


@pytest.mark.parametrize("is_starved", [False, True], ids=["healthy", "starved"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_cost_is_linear_in_gpus(rule: Rule, *, is_starved: bool) -> None:
    """Four more GPUs need at most about twice the further calls that two more need."""
    few, some, many = (_calls(rule, _frame(gpus, is_starved=is_starved)) for gpus in (2, 4, 8))
    assert many - some < 1.3 * 2 * max(some - few, _FIRST_CALLS)
    assert many < 2.2 * max(some, _FIRST_CALLS)


def _calls(rule: Rule, window: Window) -> int:
    window, count = _anew(window), 0

    def notice(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(notice)
    try:
        list(rule.check(window, rule.limits()))
    finally:
        sys.setprofile(before)
    return count
