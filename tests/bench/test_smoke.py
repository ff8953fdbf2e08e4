"""A few runs, so that the benchmark does not rot, and the figures that it computes from them."""

from __future__ import annotations

import pytest

from gpumon.sources.simulator.chips import Machine
from gpumon.sources.simulator.world import World
from tests.bench.confounders import CONFOUNDERS
from tests.bench.faults import FAULTS
from tests.bench.machines import MACHINES
from tests.bench.plan import Draw
from tests.bench.run import Case, cases, plan_of, watch
from tests.bench.score import headline_is_right, loud, score
from tests.bench.stats import beta_cdf, clopper_pearson, quantile


def _name(machine: Machine) -> str:
    return machine.name


def _fault(name: str, number: int = 0) -> Case:
    return Case(split="dev", kind="fault", name=name, number=number)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),
        (10, 10, 0.6915, 1.0),
        (5, 10, 0.1871, 0.8129),
        (97, 100, 0.9148, 0.9938),
        (1, 3, 0.0084, 0.9057),
    ],
)
def test_intervals_are_exact(hits: int, count: int, low: float, high: float) -> None:
    """Clopper–Pearson intervals have the values of the tables."""
    assert clopper_pearson(hits, count) == pytest.approx((low, high), abs=1e-4)


def test_beta_distribution() -> None:
    """Known values: uniform, a polynomial, and the symmetry of the two parameters."""
    assert beta_cdf(0.3, 1, 1) == pytest.approx(0.3)
    assert beta_cdf(0.5, 2, 3) == pytest.approx(0.6875)
    assert beta_cdf(0.2, 5, 2) == pytest.approx(1 - beta_cdf(0.8, 2, 5))
    assert clopper_pearson(0, 0) == (0.0, 1.0)


def test_quantiles() -> None:
    """The median and the 90 % of a few values; of none there is none."""
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([float(value) for value in range(10)], 0.9) == 9.0
    assert quantile([], 0.5) is None


@pytest.mark.parametrize("case", cases("test", faults=1, healthy=1), ids=lambda case: case.name)
def test_every_kind_of_run_can_be_drawn(case: Case) -> None:
    """Each fault and each confounder makes a plan, and the same one again."""
    plan, _ = plan_of(case)
    again, _ = plan_of(case)
    assert plan.jobs == again.jobs
    assert plan.lasts_s > 0
    assert case.kind == "healthy" or plan.rules or FAULTS[case.name].rules


def test_splits_never_meet() -> None:
    """The same number draws another run in the other split."""
    for name in ("workers-saturated", "sw-thermal"):
        dev, _ = plan_of(_fault(name))
        test, _ = plan_of(Case(split="test", kind="fault", name=name, number=0))
        assert dev.jobs != test.jobs


@pytest.mark.parametrize("name", ["gpu-lost", "xid-program", "power-brake"])
def test_plain_faults_are_named(name: str) -> None:
    """What a counter or an event says outright leads the headline within seconds."""
    outcome = watch(_fault(name))
    assert outcome.label == "faulty"
    assert headline_is_right(outcome)
    assert min(one.begin_s for one in loud(outcome)) - outcome.onset_s <= 15


@pytest.mark.parametrize("machine", sorted({one for split in MACHINES.values() for one in split}, key=_name), ids=_name)
def test_hot_but_not_throttling(machine: Machine) -> None:
    """On every machine the hot confounder is as hot as it says, and no limiter holds the clock."""
    draw = Draw("hot", "dev")
    draw.machine = lambda *_args, **_wanted: machine  # type: ignore[method-assign]
    plan = CONFOUNDERS["hot-but-not-throttling"](draw)
    world = World(machine, plan.jobs, seed=1, start_s=0.0, epoch_s=0.0, window_s=None)
    assert plan.prepare is not None
    plan.prepare(world)
    world.begin()
    world.settle()
    for _ in range(15):
        world.advance(60.0)
        for card in world.cards:
            assert card.heat.die_c < machine.chip.max_c - 1.0
            assert card.governor.take_held(60.0)["sw_thermal"] == 0.0
    assert max(card.heat.die_c for card in world.cards) > machine.chip.max_c - 8.0


def test_a_pace_that_is_asked_for_leaves_the_loader_room() -> None:
    """A healthy job's workers keep up, whatever step it is given."""
    for number in range(20):
        draw = Draw(f"pace {number}", "dev")
        spec = draw.job(draw.machine(), step_s=0.1)
        assert spec.prep_s / spec.workers < spec.step_s / 1.2


def test_score_counts() -> None:
    """A fault that is found counts for its rule, a quiet healthy run for the quiet time."""
    outcomes = [watch(_fault("gpu-lost", 1)), watch(Case(split="dev", kind="healthy", name="nobody", number=0))]
    found = score(outcomes)
    assert (found.rules["gpu-lost"].recall.hits, found.rules["gpu-lost"].precision.hits) == (1, 1)
    assert found.headline.hits == found.headline.count == 1
    assert found.gpu_days > 0
    assert not found.false_alarms


def test_half_of_the_kinds_are_healthy() -> None:
    """Every confounder of the catalogue is drawn."""
    assert len(CONFOUNDERS) >= 30
    assert len(FAULTS) >= 40
