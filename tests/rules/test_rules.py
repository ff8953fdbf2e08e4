"""Every rule fires, stays silent and abstains as its fixture says, and documents itself."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gpumon.diagnosis import SHORTEST_S, at_the_end
from gpumon.model import Abstention, Alert
from gpumon.monitor import Monitor
from gpumon.rules import RULES
from gpumon.rules.data_starved import CAUSES
from gpumon.rules.rule import Rule
from tests import builders
from tests.rules import fixture

ADDRESS = re.compile(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.0")
HEADINGS = ("What it sees:", "Why it matters:", "What to do:", "When it is wrong:")
CAUSE_IDS = tuple(check.__name__.replace("_", "-") for check in CAUSES)
NAMES = (*(rule.id for rule in RULES), *CAUSE_IDS)
CASES = [
    pytest.param(name, kind, case, id=f"{name}-{kind}-{number}")
    for name in NAMES
    for number, (kind, case) in enumerate(fixture.cases(name))
]


def judged(case: dict[str, Any]) -> tuple[tuple[Alert, ...], tuple[Abstention, ...]]:
    """What the whole engine says at the end of a case."""
    monitor = Monitor()
    alerts: tuple[Alert, ...] = ()
    abstained: tuple[Abstention, ...] = ()
    for taken in fixture.snapshots(case):
        window, alerts, abstained, _ = monitor.take(taken)
    if window.elapsed_s < SHORTEST_S:
        alerts = (*alerts, *at_the_end(monitor, window, alerts))
    return alerts, abstained


@pytest.mark.parametrize(("name", "kind", "case"), CASES)
def test_fixture(name: str, kind: str, case: dict[str, Any]) -> None:
    """What the fixture's ``says`` says."""
    rule = "data-starved" if name in CAUSE_IDS else name
    alerts, abstained = judged(case)
    mine = [alert for alert in alerts if alert.finding.rule == rule]
    expected = case.get("expect", {})
    if kind == "fires":
        check_alert(mine, name if name in CAUSE_IDS else None, expected)
    else:
        assert not [alert for alert in mine if alert.finding.cause == name or name not in CAUSE_IDS], case["says"]
    if kind == "missing" and "abstains" in expected:
        because = [one.because for one in abstained if one.rule == rule]
        assert any(expected["abstains"] in text for text in because), because


def check_alert(mine: list[Alert], cause: str | None, expected: dict[str, Any]) -> None:
    assert len(mine) == 1, mine
    alert = mine[0]
    found = alert.finding
    assert alert.is_firing()
    assert cause is None or found.cause == cause
    for name in ("severity", "confidence", "cause", "summary", "cause_text", "fix_text", "command"):
        if name in expected:
            assert getattr(found, name) == expected[name]
    if "gpu" in expected:
        assert found.subject.gpu == expected["gpu"]
    if "lost_pct" in expected:
        assert found.cost is not None
        assert found.cost.lost_pct == pytest.approx(expected["lost_pct"], abs=2)
    if "since_s" in expected:
        assert alert.since_s - builders.NOON == pytest.approx(expected["since_s"], abs=5)
    if "explained_by" in expected:
        assert (alert.suppressed_by or "nothing") == expected["explained_by"]
    if "evidence" in expected:
        assert set(expected["evidence"]) <= {one.name for one in found.evidence}
    if "no_evidence" in expected:
        assert not set(expected["no_evidence"]) & {one.name for one in found.evidence}
    if "raised_by_s" in expected:
        assert alert.raised_s is not None
        assert alert.raised_s - builders.NOON <= expected["raised_by_s"]
    if found.severity != "info":
        assert found.fixes
    # A GPU that has no number is called by its address, which may cost the end of the line.
    summary = ADDRESS.sub("12", found.summary)
    assert len(f" ▲ CRITICAL  {summary} since 14:02 (6 min)") <= 80
    assert len(f" cause {found.cause_text}") <= 80


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_holds_the_three_cases(name: str) -> None:
    """Every rule and every cause shows when it fires, when it stays silent, and what missing data does."""
    kinds = {kind for kind, _ in fixture.cases(name)}
    assert kinds == set(fixture.KINDS)
    assert all(case.get("says") for _, case in fixture.cases(name))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_documents_itself(rule: Rule) -> None:
    """The docstring has a first line and the four headings in order."""
    places = [rule.doc.find(heading) for heading in HEADINGS]
    assert -1 not in places
    assert places == sorted(places)
    assert rule.doc.splitlines()[0].endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_limits_are_strict(rule: Rule) -> None:
    """An unknown limit or one of the wrong type is refused; none is needed."""
    rule.limits()
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"bellow_pct": 1.0}, rule.limits)
    for field in msgspec.structs.fields(rule.limits):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({field.name: "60"}, rule.limits)


def test_every_fixture_belongs_to_a_rule_or_a_cause() -> None:
    """No fixture is left behind when a rule is renamed."""
    assert {path.stem for path in fixture.FOLDER.glob("*.toml")} == set(NAMES)


def test_suppressing_rules_exist() -> None:
    """A rule is only ever explained by rules that there are."""
    known = {rule.id for rule in RULES}
    assert all(set(rule.suppressed_by) <= known for rule in RULES)


@pytest.mark.parametrize(("period", "fires"), [(3, False), (1, True)])
def test_single_readings_count_from_half_of_them_on(period: int, fires: bool) -> None:
    """Without counters a third of the readings with the limiter's bit proves nothing; all of them do."""
    monitor = Monitor()
    alerts: tuple[Alert, ...] = ()
    for number in range(300):
        is_hot = number > 100 and number % period == 0
        reasons = ("sw_thermal",) if is_hot else ()
        clock = 1755.0 if number <= 100 else 1600.0
        gpu = builders.gpu(throttled_pct=None, clocks_event_reasons=reasons, sm_clock_mhz=clock, temperature_c=87.0)
        taken = builders.snapshot(builders.NOON + number, [gpu], interval_s=1.0 if number else None)
        alerts = monitor.take(taken)[1]
    assert bool(alerts) == fires


def test_first_reading_of_many_is_no_single_reading() -> None:
    """The brake's bit in the first line of a long log alone is a change of state."""
    monitor = Monitor()
    for number in range(60):
        reasons = () if number else ("hw_slowdown", "hw_power_brake")
        gpu = builders.gpu(throttled_pct=None, clocks_event_reasons=reasons)
        taken = builders.snapshot(builders.NOON + number, [gpu], interval_s=1.0 if number else None)
        assert not monitor.take(taken)[1]
