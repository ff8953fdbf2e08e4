"""What a whole run comes to: every finding of a source from its first to its last snapshot, as one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import msgspec

from gpumon import __version__
from gpumon.alerts import RANK
from gpumon.model import Abstention, Alert, Finding, Gpu, Value
from gpumon.monitor import Monitor
from gpumon.sources import Source
from gpumon.trace import Unread, public_uuid
from gpumon.window import Window

SCHEMA = 1
SHORTEST_S = 20.0
"""A run shorter than this shows counters and single readings only; from here on inferences are ``possible``."""


class Diagnosis(Value, frozen=True, kw_only=True):
    """The findings of one run, and what could not be judged or read."""

    kind: str
    """Where the snapshots came from: live, trace, recording …"""
    name: str
    start_s: float | None
    duration_s: float
    samples: int
    gpus: tuple[Gpu, ...]
    """Each GPU as it was last seen."""
    alerts: tuple[Alert, ...]
    """The one to act on first comes first; what another one explains is left out."""
    abstained: tuple[Abstention, ...]
    unread: tuple[Unread, ...] = ()
    has_times: bool = True
    """False where the input does not say when anything was: moments count from its beginning."""
    time_zone: str | None = None
    """``unknown``: the times name none and are kept as they stand; ``since-boot``: they are no dates."""
    assumed_interval_s: float | None = None
    """The time between two readings, where the input does not give it."""
    judged_every_s: float | None = None
    """How much time one judged sample stands for, where the input has more of them."""

    def is_healthy(self) -> bool:
        """No finding of warning or worse, from beginning to end."""
        return all(alert.finding.severity == "info" for alert in self.alerts)


def diagnose(
    source: Source,
    *,
    kind: str,
    limits: Mapping[str, msgspec.Struct] | None = None,
    muted_rules: frozenset[str] = frozenset(),
) -> Diagnosis:
    """Judge a source to its end; Ctrl-C ends it early, with what was seen until then."""
    monitor = Monitor(limits=limits, muted_rules=muted_rules)
    gpus: dict[str, Gpu] = {}
    window: Window | None = None
    alerts: tuple[Alert, ...] = ()
    abstained: dict[tuple[str, str], Abstention] = {}
    start_s: float | None = None
    samples = 0
    try:
        for snapshot in source:
            window, alerts, silent, _ = monitor.take(snapshot)
            samples += 1
            start_s = snapshot.time_s if start_s is None else start_s
            gpus.update((gpu.uuid, gpu) for gpu in snapshot.gpus)
            abstained = _latest(silent)
    except KeyboardInterrupt:
        source.close()
    if window is not None and window.elapsed_s < SHORTEST_S and gpus:
        said = {*(alert.finding.rule for alert in alerts), *(rule for rule, _ in abstained)}
        abstained.update(_latest(one for one in monitor.waiting_for_more(window) if one.rule not in said))
    short = at_the_end(monitor, window, alerts) if window is not None else ()
    shown = [alert for alert in (*alerts, *short) if alert.suppressed_by is None]
    if short:
        shown.sort(key=lambda alert: (not alert.is_firing(), -RANK[alert.finding.severity]))
    return Diagnosis(
        kind=kind,
        name=source.name,
        start_s=start_s,
        duration_s=window.elapsed_s if window is not None else 0.0,
        samples=samples,
        gpus=tuple(sorted(gpus.values(), key=_place)),
        alerts=tuple(shown),
        abstained=tuple(abstained.values()),
    )


def _place(gpu: Gpu) -> tuple[int, str]:
    return (gpu.index, gpu.uuid)


def _latest(abstained: Iterable[Abstention]) -> dict[tuple[str, str], Abstention]:
    """One entry a rule and reason, whatever the number of GPUs it is true of."""
    return {(one.rule, one.because): one for one in abstained}


def at_the_end(monitor: Monitor, window: Window, alerts: tuple[Alert, ...]) -> tuple[Alert, ...]:
    """What rules with a longer window than the run can say of it: with the least of confidence, or of one reading."""
    is_short = window.elapsed_s < SHORTEST_S
    found = monitor.at_once(window, alerts) if is_short else monitor.conclude(window)
    known = {(alert.finding.rule, alert.finding.subject.key()) for alert in alerts}
    return tuple(
        Alert(
            finding=finding,
            state="firing",
            since_s=window.last.time_s - (finding.onset_s or 0.0),
            raised_s=window.last.time_s,
        )
        for finding in found
        if (finding.rule, finding.subject.key()) not in known
    )


# --- as JSON -------------------------------------------------------------------------------------


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis in the shape that scripts rely on (schema 1)."""
    return {
        "schema": SCHEMA,
        "gpumon": __version__,
        "source": _source(diagnosis),
        "start": _moment(diagnosis.start_s, diagnosis),
        "duration_s": round(diagnosis.duration_s, 3),
        "samples": diagnosis.samples,
        "gpus": [
            {"index": gpu.index, "uuid": public_uuid(gpu.uuid), "name": gpu.name}
            for gpu in diagnosis.gpus
            if gpu.mig_parent_uuid is None
        ],
        "findings": [_finding(alert, diagnosis) for alert in diagnosis.alerts],
        "abstained": [{"rule": one.rule, "because": one.because} for one in diagnosis.abstained],
        "unread": [{"line": one.line, "because": one.because} for one in diagnosis.unread],
    }


def _source(diagnosis: Diagnosis) -> dict[str, Any]:
    told = {
        "time_zone": diagnosis.time_zone,
        "assumed_interval_s": diagnosis.assumed_interval_s,
        "judged_every_s": diagnosis.judged_every_s,
    }
    known = {name: value for name, value in told.items() if value is not None}
    return {"kind": diagnosis.kind, "name": diagnosis.name, **known}


def _finding(alert: Alert, diagnosis: Diagnosis) -> dict[str, Any]:
    finding: Finding = alert.finding
    subject = finding.subject
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "subject": {
            "kind": subject.kind,
            "gpu": subject.gpu,
            "uuid": public_uuid(subject.uuid),
            "pid": subject.pid,
            "job": subject.job,
        },
        "since": _moment(alert.since_s, diagnosis),
        "until": _moment(alert.cleared_s, diagnosis),
        "summary": finding.summary,
        "cause": finding.cause,
        "evidence": [
            {"name": one.name, "value": one.value, "unit": one.unit, "was": one.was, "judged_by": one.judged_by}
            for one in finding.evidence
        ],
        "cost": None if finding.cost is None else msgspec.to_builtins(finding.cost),
        "fixes": list(finding.fixes),
    }


def _moment(time_s: float | None, diagnosis: Diagnosis) -> str | None:
    """ISO 8601 in UTC, whole seconds; None where the input has no times."""
    if time_s is None or not diagnosis.has_times:
        return None
    return datetime.fromtimestamp(round(time_s), tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
