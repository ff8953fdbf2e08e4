"""One run: a plan is simulated, a monitor watches, and what it said is kept beside what was true."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpumon.alerts import RANK
from gpumon.model import Alert, Severity, Snapshot
from gpumon.monitor import Monitor
from gpumon.sources.simulator.world import World
from tests.bench import views
from tests.bench.confounders import CONFOUNDERS
from tests.bench.faults import FAULTS
from tests.bench.machines import Split
from tests.bench.plan import Draw, Eye, Plan

EPOCH_S = 1_796_126_400.0
NEVER_S = 1e9
Label = Literal["faulty", "healthy", "between"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A run by name; the same case is the same run."""

    split: Split
    kind: Literal["fault", "healthy"]
    name: str
    number: int
    interval_s: float | None = None
    """None: as drawn."""
    window_s: float | None = None
    dropped: float = 0.0
    probe: bool | None = None
    gpm: bool = True
    stretch: float = 1.0
    """How much longer than drawn a healthy run lasts."""


class Episode(msgspec.Struct):
    """One alert from raising to its end, while nothing explained it away."""

    rule: str
    subject: str
    severity: Severity
    cause: str | None
    begin_s: float
    end_s: float
    confidence: str = ""
    summary: str = ""


class Shown(msgspec.Struct):
    """A headline and how long it stood since the onset."""

    rule: str | None
    cause: str | None
    seconds: float
    severity: str = ""
    summary: str = ""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of a run."""

    case: Case
    label: Label
    rules: tuple[str, ...] = ()
    """Right headlines."""
    also: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    is_info: bool = False
    begun_s: float = NEVER_S
    """When it was injected."""
    onset_s: float = NEVER_S
    """When it began to cost something."""
    end_s: float = NEVER_S
    """Of the fault."""
    truth: float | None = None
    level: str | None = None
    machine: str = ""
    gpus: int = 0
    interval_s: float = 1.0
    seconds: float = 0.0
    episodes: list[Episode] = []
    headlines: list[Shown] = []
    """Since the onset, the longest first."""
    abstained: dict[str, str] = {}


def cases(split: Split, *, faults: int, healthy: int, first: int = 0, stretch: float = 1.0) -> list[Case]:
    """So many runs of every fault (times its weight) and of every confounder, numbered from ``first`` on."""
    found = [
        Case(split=split, kind="fault", name=name, number=number)
        for name, one in FAULTS.items()
        for number in range(first, first + max(1, round(faults * one.weight)))
    ]
    found += [
        Case(split=split, kind="healthy", name=name, number=number, stretch=stretch)
        for name in CONFOUNDERS
        for number in range(first, first + healthy)
    ]
    return found


class _Watch:
    """Takes down what the monitor says."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.shown: dict[tuple[str | None, str | None], Shown] = {}
        self._open: dict[tuple[str, str], Episode] = {}

    def alerts(self, alerts: tuple[Alert, ...], now_s: float) -> None:
        current = set()
        for alert in alerts:
            finding = alert.finding
            if not alert.is_firing() or alert.suppressed_by is not None:
                continue
            key = (finding.rule, finding.subject.key())
            current.add(key)
            episode = self._open.get(key)
            if episode is None:
                episode = Episode(finding.rule, key[1], finding.severity, finding.cause, now_s, now_s)
                self._open[key] = episode
                self.episodes.append(episode)
            episode.end_s, episode.cause, episode.summary = now_s, finding.cause, finding.summary
            episode.confidence = finding.confidence
            if RANK[finding.severity] > RANK[episode.severity]:
                episode.severity = finding.severity
        self._open = {key: episode for key, episode in self._open.items() if key in current}

    def headline(self, alert: Alert | None, seconds: float, *, state: str) -> None:
        finding = alert.finding if alert is not None else None
        rule = finding.rule if finding is not None else "driver-stuck" if state == "stale" else None
        key = (rule, finding.cause if finding is not None else None)
        shown = self.shown.setdefault(key, Shown(key[0], key[1], 0.0, state))
        shown.seconds += seconds
        shown.summary = finding.summary if finding is not None else ""


def plan_of(case: Case) -> tuple[Plan, Draw]:
    """Draw the run of a case."""
    draw = Draw(f"{case.split}/{case.kind}/{case.name}/{case.number}", case.split)
    make = FAULTS[case.name].make if case.kind == "fault" else CONFOUNDERS[case.name]
    plan = make(draw)
    rng = draw.rng
    drawn = rng.choice((1.0, 1.0, 1.0, 0.5, 2.0))
    plan.interval_s = case.interval_s or plan.interval_s or drawn
    probe = rng.random() < 0.5
    if case.probe is not None:
        plan.probe = case.probe
    elif plan.probe is None:
        plan.probe = probe
    before = 0.0 if plan.is_static else rng.uniform(180.0, 420.0)
    if plan.before_s is None:
        plan.before_s = before
    if case.kind == "healthy":
        plan.before_s, plan.lasts_s = plan.lasts_s * 0.5, plan.lasts_s * (case.stretch - 0.5)
    if case.dropped:
        plan.sees = [*plan.sees, views.with_dropped(case.dropped)]
    if not case.gpm:
        plan.sees = [*plan.sees, views.without_gpm]
    return plan, draw


def watch(case: Case) -> Outcome:
    """Simulate a case and judge it with the rules as they are."""
    plan, _ = plan_of(case)
    watched, outcome = _Watch(), _blank(case, plan)
    monitor = Monitor()
    last: Snapshot | None = None
    for at_s, snapshot in _snapshots(case, plan, outcome):
        _, alerts, abstained, headline = monitor.take(snapshot)
        watched.alerts(alerts, at_s)
        if outcome.onset_s <= at_s <= outcome.end_s:
            watched.headline(headline.alert, snapshot.interval_s or 0.0, state=headline.state)
        for one in abstained:
            outcome.abstained.setdefault(one.rule, one.because)
        last = snapshot
    assert last is not None
    outcome.episodes = watched.episodes
    outcome.headlines = sorted(watched.shown.values(), key=lambda one: -one.seconds)
    return outcome


def _blank(case: Case, plan: Plan) -> Outcome:
    fault = FAULTS.get(case.name) if case.kind == "fault" else None
    return Outcome(
        case=case,
        label="healthy",
        rules=plan.rules or (fault.rules if fault else ()),
        also=(*(fault.also if fault else ()), *(fault.rules if fault else ()), *plan.also),
        causes=plan.causes or (fault.causes if fault else ()),
        is_info=plan.is_info if plan.is_info is not None else fault.is_info if fault else False,
        level=plan.level,
        machine=plan.machine.name,
        gpus=plan.machine.gpus,
        interval_s=plan.interval_s or 1.0,
    )


def _snapshots(case: Case, plan: Plan, outcome: Outcome) -> Iterator[tuple[float, Snapshot]]:
    """Seconds since the beginning and what is seen then; the outcome learns onset, end and label on the way."""
    interval = plan.interval_s or 1.0
    world = _world(case, plan)
    eye = Eye(f"eye {case.split}/{case.kind}/{case.name}/{case.number}")
    onset, until = plan.before_s or 0.0, (plan.before_s or 0.0) + plan.lasts_s
    total = until + plan.after_s
    is_fault = case.kind == "fault"
    truths: list[tuple[float, float]] = []
    is_on = is_off = False
    jitter = eye.rng
    at_s, passed = 0.0, None
    while True:
        if not is_on and at_s >= onset:
            is_on = True
            if plan.turn is not None:
                plan.turn(world)
            if is_fault:
                outcome.begun_s = at_s
            if is_fault and not plan.is_slow:
                outcome.onset_s, outcome.end_s = at_s, until
            eye.is_on, eye.onset_s = True, at_s
        if is_on and not is_off and at_s >= until:
            is_off = True
            if plan.undo is not None:
                plan.undo(world)
        snapshot = views.seen(world.snapshot(passed), plan.sees, eye)
        if is_on and not is_off and plan.truth is not None and is_fault:
            truth = plan.truth(world)
            truths.append((at_s, truth))
            if plan.is_slow and outcome.onset_s == NEVER_S and truth >= plan.healthy_to:
                outcome.onset_s, outcome.end_s = at_s, until
        if snapshot is not None:
            outcome.seconds = at_s
            yield at_s, snapshot
        if at_s >= total:
            break
        # A reader is late by a few milliseconds.
        passed = round(interval * (1.0 + 0.02 * jitter.random()), 4)
        world.advance(passed)
        if is_on and plan.tick is not None and not is_off:
            plan.tick(world)
        at_s += passed
    if is_fault:
        outcome.label, outcome.truth = _label(plan, truths, until)


def _world(case: Case, plan: Plan) -> World:
    world = World(
        plan.machine,
        plan.jobs,
        seed=sum(map(ord, case.name)) * 1000 + case.number + (case.split == "test") * 500_000,
        start_s=0.0,
        epoch_s=EPOCH_S,
        window_s=case.window_s,
        is_probed=bool(plan.probe),
    )
    if plan.prepare is not None:
        plan.prepare(world)
    world.begin()
    world.settle()
    world.advance(8.0)
    world.snapshot(None)
    return world


def _label(plan: Plan, truths: list[tuple[float, float]], until_s: float) -> tuple[Label, float | None]:
    """What it really was: by the mean of what was lost, of slow troubles over their worst two minutes."""
    if plan.truth is None:
        return "faulty", None
    mean = _worst(truths, 120.0) if plan.is_slow else sum(value for _, value in truths) / len(truths)
    if mean <= plan.healthy_to:
        return "healthy", mean
    if mean < plan.faulty_from:
        return "between", mean
    if plan.is_slow:
        reached = next(at_s for at_s, value in truths if value >= plan.faulty_from)
        return ("faulty" if until_s - reached >= 120.0 else "between"), mean
    return "faulty", mean


def _worst(truths: list[tuple[float, float]], seconds: float) -> float:
    """The highest mean over so many seconds: a checkpoint at the end cools a card as well."""
    first, total, worst = 0, 0.0, 0.0
    for last, (at_s, value) in enumerate(truths):
        total += value
        while at_s - truths[first][0] > seconds:
            total -= truths[first][1]
            first += 1
        if first or at_s - truths[0][0] >= 0.9 * seconds:
            worst = max(worst, total / (last - first + 1))
    return worst
