"""Knows the one loop: a snapshot goes in, a Frame with everything any consumer sees comes out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import msgspec

from gpumon import units
from gpumon.alerts import AlertFold, Headline, MuteList
from gpumon.budget import BudgetFold
from gpumon.endings import EndingFold
from gpumon.headline import HeadlineFold
from gpumon.history import History, Window
from gpumon.jobs import JobFold
from gpumon.model import Abstention, Alert, Finding, Snapshot, Value
from gpumon.progress import ProgressFold
from gpumon.rules.rule import Rule
from gpumon.sources import Source, SourceKind


class SourceInfo(Value, frozen=True, kw_only=True):
    """Where the snapshots come from."""

    kind: SourceKind
    name: str
    """Host name or scenario."""


class Frame(Value, frozen=True, kw_only=True):
    """Everything any consumer ever sees of one instant."""

    window: Window
    headline: Headline
    info: SourceInfo
    alerts: tuple[Alert, ...] = ()
    """Firing first, in headline order; then resolved ones, newest first."""
    abstained: tuple[Abstention, ...] = ()
    sample_ms: float | None = None
    """CPU time that this frame cost: sampling in this thread, history, rules."""
    is_judged: bool = True
    """False: no rule has looked at it yet."""


FIRST_LOOK = Headline(state="starting", text="first values; judged in a moment")
"""What a frame that is not judged leads with."""


_SPANS = {"window_s", "held_s", "span_s", "least_s"}
"""Limits that say how long a rule looks."""
_SPREAD = 0.618
"""Multiples of the golden ratio fill any rhythm evenly."""


class _Judged:
    """The last conclusions of one rule."""

    def __init__(self, rule: Rule, limits: msgspec.Struct, number: int) -> None:
        self.rule = rule
        # Rules of one rhythm fall on different samples, so that no sample pays for all of them.
        self._first_share = number * _SPREAD % 1.0
        self.limits = limits
        self.due_s = 0.0
        self.findings: tuple[Finding, ...] = ()
        self.abstained: tuple[Abstention, ...] = ()

    def judge(self, window: Window) -> None:
        """Conclude anew where it is time to; in between the last conclusions stand."""
        if window.elapsed_s < self.due_s and not window.last.events:
            return  # an event may be the last thing that is heard
        wait_s = self.rule.every_s * (1.0 if self.due_s else self._first_share)
        self.due_s = window.elapsed_s + wait_s - window.interval_s / 2
        concluded = tuple(self.rule.check(window, self.limits))
        self.findings = tuple(one for one in concluded if isinstance(one, Finding))
        self.abstained = tuple(one for one in concluded if isinstance(one, Abstention))


class Monitor:
    """Every fold of one run, and the order in which they see a snapshot."""

    def __init__(
        self,
        rules: tuple[Rule, ...] | None = None,
        limits: Mapping[str, msgspec.Struct] | None = None,
        muted_rules: frozenset[str] = frozenset(),
        mutes: MuteList | None = None,
    ) -> None:
        self._given = rules
        self._limits = limits or {}
        self._muted_rules = muted_rules
        self._mutes = mutes
        self._history = History()
        self._jobs = JobFold()
        self._endings = EndingFold()
        self._progress = ProgressFold()
        self._budget = BudgetFold()
        self._headline = HeadlineFold()

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        """Loaded by the first judgement, not before."""
        if self._given is not None:
            return self._given
        from gpumon.rules import RULES

        return RULES

    @cached_property
    def _judged(self) -> list[_Judged]:
        return [
            _Judged(rule, self._limits.get(rule.id) or rule.limits(), number)
            for number, rule in enumerate(self._rules)
            if rule.id not in self._muted_rules
        ]

    @cached_property
    def _alerts(self) -> AlertFold:
        return AlertFold(self._rules, self._mutes)

    def load(self) -> None:
        """Import the rules now, not with the first judgement."""
        _ = self._judged

    def take(self, snapshot: Snapshot) -> tuple[Window, tuple[Alert, ...], tuple[Abstention, ...], Headline]:
        """Everything concluded from a snapshot and those before it."""
        window = self.fold(snapshot)
        return window, *self.judge(window)

    def fold(self, snapshot: Snapshot) -> Window:
        """What is known with a snapshot and those before it."""
        jobs = self._jobs.append(snapshot, self._progress.still())
        self._progress.append(snapshot, jobs, self._budget.baselines())
        derived = self._budget.append(snapshot, jobs, self._progress.waiting())
        learned = self._progress.baselines()
        for uuid, known in self._budget.baselines().items():
            learned[uuid] = {**known, **learned.get(uuid, {})}
        endings = self._endings.append(snapshot, jobs)
        return self._history.append(snapshot, jobs, derived, learned, endings)

    def judge(self, window: Window) -> tuple[tuple[Alert, ...], tuple[Abstention, ...], Headline]:
        """What the rules say of the newest window; once for each."""
        for judged in self._judged:
            judged.judge(window)
        abstained = tuple(one for judged in self._judged for one in judged.abstained)
        alerts = self._alerts.append(window, (one for judged in self._judged for one in judged.findings), abstained)
        return alerts, abstained, self._headline.append(window, alerts)

    def conclude(self, window: Window) -> tuple[Finding, ...]:
        """What rules say only now that the run is over.

        Those whose window is longer than the whole run would say of it never more than ``possible``.
        """
        found: list[Finding] = []
        for judged in self._judged:
            if judged.rule.at_end is not None:
                found += (one for one in judged.rule.at_end(window, judged.limits) if isinstance(one, Finding))
            wanted = msgspec.structs.asdict(judged.limits)
            if wanted.get("window_s", 0.0) > window.elapsed_s:
                limits = msgspec.structs.replace(judged.limits, window_s=window.elapsed_s)
                concluded = (one for one in judged.rule.check(window, limits) if isinstance(one, Finding))
                found += (
                    msgspec.structs.replace(one, confidence="possible") if one.confidence == "likely" else one
                    for one in concluded
                    if one.strength >= 1.0
                )
        return tuple(found)

    def waiting_for_more(self, window: Window) -> tuple[Abstention, ...]:
        """Rules that need more than this run is long, and do not judge the last reading by itself."""
        readings = "one reading" if window.elapsed_s <= 0 else f"readings of {units.duration(window.elapsed_s)}"
        return tuple(
            Abstention(rule=judged.rule.id, because=f"needs a series; this is {readings}")
            for judged in self._judged
            if judged.rule.at_once is None and _SPANS & set(judged.limits.__struct_fields__)
        )

    def at_once(self, window: Window, alerts: Iterable[Alert]) -> tuple[Finding, ...]:
        """What rules say of the last reading by itself, where there is no time to see anything last.

        Args:
            window: the end of the run.
            alerts: what is firing; it may explain what is found here.
        """
        found: list[tuple[Rule, Finding]] = []
        for judged in self._judged:
            if judged.rule.at_once is not None:
                concluded = judged.rule.at_once(window, judged.limits)
                found += ((judged.rule, one) for one in concluded if isinstance(one, Finding))
        said = {(one.finding.rule, one.finding.subject.key()) for one in alerts if one.is_firing()}
        said |= {(rule.id, one.subject.key()) for rule, one in found}
        return tuple(
            one for rule, one in found if not any((by, one.subject.key()) in said for by in rule.suppressed_by)
        )


def frames(
    source: Source,
    *,
    rules: tuple[Rule, ...] | None = None,
    limits: Mapping[str, msgspec.Struct] | None = None,
    muted_rules: frozenset[str] = frozenset(),
    mutes: MuteList | None = None,
    looks_first: bool = False,
) -> Iterator[Frame]:
    """Yield one frame per snapshot, until the source ends.

    Args:
        source: where snapshots come from.
        rules: which rules judge them; None for all.
        limits: rule id -> its Limits; rules without an entry use their defaults.
        muted_rules: rules that are not judged at all.
        mutes: silenced while running, rule by subject; may change at any time.
        looks_first: the first snapshot comes twice, before any rule is loaded and once it is judged.
    """
    monitor = Monitor(rules, limits, muted_rules, mutes)
    began_s = time.thread_time()
    for snapshot in source:
        window = monitor.fold(snapshot)
        info = SourceInfo(kind=source.kind, name=_name(source, snapshot))
        if looks_first:
            looks_first = False
            yield Frame(window=window, headline=FIRST_LOOK, info=info, is_judged=False)
            monitor.load()
            began_s = time.thread_time()  # what is done once is not what a frame costs
        alerts, abstained, headline = monitor.judge(window)
        yield Frame(
            window=window,
            headline=headline,
            info=info,
            alerts=alerts,
            abstained=abstained,
            sample_ms=1000.0 * (time.thread_time() - began_s),
        )
        began_s = time.thread_time()


def _name(source: Source, snapshot: Snapshot) -> str:
    """A machine by its own name; a scenario or recording by the source's."""
    return snapshot.host.name or source.name if source.kind == "live" else source.name
