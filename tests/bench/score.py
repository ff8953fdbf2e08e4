"""Runs in, figures out: precision and recall by rule, headlines, causes, false alarms, delays, flaps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from gpumon.alerts import RANK
from tests.bench.faults import FAULTS
from tests.bench.run import NEVER_S, Episode, Outcome
from tests.bench.stats import clopper_pearson, quantile

EARLY_S = 3.0
LATE_S = 5.0
GONE_S = 15.0


class Share(msgspec.Struct):
    """So many of so many."""

    hits: int = 0
    count: int = 0

    def add(self, *, is_hit: bool) -> None:
        self.hits += is_hit
        self.count += 1

    def text(self) -> str:
        if not self.count:
            return "    –                "
        low, high = clopper_pearson(self.hits, self.count)
        return f"{self.hits / self.count:5.2f} {self.hits:>4}/{self.count:<4} [{low:.2f} {high:.2f}]"


class RuleScore(msgspec.Struct):
    """How one rule did."""

    precision: Share = msgspec.field(default_factory=Share)
    recall: Share = msgspec.field(default_factory=Share)
    delays_s: list[float] = msgspec.field(default_factory=list)
    flaps: list[int] = msgspec.field(default_factory=list)


class Score(msgspec.Struct):
    """How all of them did."""

    rules: dict[str, RuleScore] = msgspec.field(default_factory=dict)
    headline: Share = msgspec.field(default_factory=Share)
    cause: Share = msgspec.field(default_factory=Share)
    confusion: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    causes_confused: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    false_alarms: dict[str, Counter[str]] = msgspec.field(default_factory=dict)
    """Severity -> (rule in confounder) -> count, on healthy runs."""
    gpu_days: float = 0.0
    gpu_days_fast: float = 0.0
    """Of them sampled at least every two seconds."""
    healthy_runs: int = 0
    abstained: Counter[str] = msgspec.field(default_factory=Counter)
    late: Counter[str] = msgspec.field(default_factory=Counter)


def loud(outcome: Outcome, *, info: bool = False) -> list[Episode]:
    """What was raised at warning or worse (or at all)."""
    return [one for one in outcome.episodes if info or RANK[one.severity]]


def during(outcome: Outcome, episodes: Iterable[Episode]) -> list[Episode]:
    """Those that overlap the fault."""
    return [one for one in episodes if one.end_s >= outcome.onset_s and one.begin_s <= outcome.end_s + LATE_S]


def is_right(outcome: Outcome, episode: Episode) -> bool:
    """Whether this alert is about what was wrong in this run."""
    if outcome.case.kind == "healthy":
        return episode.rule in outcome.also
    if outcome.label == "healthy" and episode.rule in outcome.rules:
        return False
    if episode.rule not in outcome.rules and episode.rule not in outcome.also:
        return False
    return outcome.begun_s - EARLY_S <= episode.begin_s <= outcome.end_s + GONE_S


def shown(outcome: Outcome) -> str:
    """The headline that stood longest after the onset, or nothing where it never was one."""
    seconds: Counter[str] = Counter()
    for one in outcome.headlines:
        if one.rule and one.severity in {"warning", "critical", "stale"}:
            seconds[one.rule] += round(one.seconds)
    return seconds.most_common(1)[0][0] if seconds else "(silent)"


def headline_is_right(outcome: Outcome) -> bool:
    """A rule that takes the headline leads; one that informs is there, and nothing wrong leads."""
    head = shown(outcome)
    if not outcome.is_info:
        return head in outcome.rules
    has_said = any(one.rule in outcome.rules for one in during(outcome, outcome.episodes))
    return has_said and head in {"(silent)", *outcome.rules, *outcome.also}


def score(outcomes: Iterable[Outcome]) -> Score:
    """Judge every run."""
    found = Score()
    rules: dict[str, RuleScore] = defaultdict(RuleScore)
    alarms: dict[str, Counter[str]] = defaultdict(Counter)
    for one in outcomes:
        _count_precision(one, rules)
        if one.case.kind == "healthy":
            days = one.gpus * one.seconds / 86_400.0
            found.gpu_days += days
            found.gpu_days_fast += days if one.interval_s <= 2.0 else 0.0
            found.healthy_runs += 1
            for episode in one.episodes:
                alarms[episode.severity][f"{episode.rule} in {one.case.name}"] += 1
        elif one.label == "faulty":
            _count_recall(one, rules)
            _count_headline(one, found)
        found.abstained.update(one.abstained.keys())
    found.rules, found.false_alarms = dict(rules), dict(alarms)
    return found


def _count_precision(outcome: Outcome, rules: dict[str, RuleScore]) -> None:
    informs = {rule for one in FAULTS.values() if one.is_info for rule in one.rules}
    for rule, subject in {(one.rule, one.subject) for one in outcome.episodes}:
        mine = [one for one in outcome.episodes if (one.rule, one.subject) == (rule, subject)]
        counted = [one for one in mine if RANK[one.severity] or rule in informs]
        if counted:
            rules[rule].precision.add(is_hit=all(is_right(outcome, one) for one in counted))


def _count_recall(outcome: Outcome, rules: dict[str, RuleScore]) -> None:
    rule = outcome.rules[0]
    if outcome.is_info and not FAULTS[outcome.case.name].is_info:
        rule = next((one.rule for one in outcome.episodes if one.rule in outcome.rules), rule)
    mine = [one for one in during(outcome, loud(outcome, info=outcome.is_info)) if one.rule == rule]
    rules[rule].recall.add(is_hit=bool(mine))
    if not mine:
        return
    first = min(one.begin_s for one in mine)
    if outcome.onset_s < NEVER_S:
        rules[rule].delays_s.append(max(0.0, first - outcome.onset_s))
    subjects = Counter(one.subject for one in mine)
    rules[rule].flaps.append(max(subjects.values()))


def _count_headline(outcome: Outcome, found: Score) -> None:
    is_hit = headline_is_right(outcome)
    found.headline.add(is_hit=is_hit)
    head = shown(outcome)
    if not is_hit:
        found.confusion[outcome.case.name, head] += 1
    if outcome.causes and head == outcome.rules[0] == "data-starved":
        leading = next(one for one in outcome.headlines if one.rule == "data-starved")
        is_hit = leading.cause in outcome.causes
        found.cause.add(is_hit=is_hit)
        if not is_hit:
            found.causes_confused[outcome.case.name, str(leading.cause)] += 1


def delays(rule: RuleScore) -> str:
    """Median and 90 % of the time to detect."""
    middle, most = quantile(rule.delays_s, 0.5), quantile(rule.delays_s, 0.9)
    return "" if middle is None or most is None else f"{middle:5.0f} {most:5.0f}"
