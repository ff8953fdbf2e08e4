"""Knows how findings become alerts over time: held, raised, cleared, suppressed, muted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from gpumon.model import Abstention, Alert, AlertState, Confidence, Finding, Severity, Subject, Value
from gpumon.signals import stale_after_s
from gpumon.window import Window

HeadlineState = Literal["healthy", "starting", "training", "warning", "critical", "stale", "empty"]


RANK: Mapping[Severity, int] = {"info": 0, "warning": 1, "critical": 2}

_CLEARS_BELOW = 0.8
_AGAIN_S = 900.0
_LOG_KEPT = 200
_LINGERS_S = 180.0
"""As long as the longest window of a rule whose alert another one explains."""


class Headline(Value, frozen=True, kw_only=True):
    """What the two rows under the title say."""

    state: HeadlineState
    text: str
    """The sentence after the badge, without ``since …`` where ``since_s`` is set."""
    alert: Alert | None = None
    since_s: float | None = None
    """Onset (epoch), to be shown as ``since 14:02 (6 min)`` after the text."""
    confidence: Confidence | None = None
    cause: str | None = None
    """To be shown after the word ``cause``."""
    fix: str | None = None
    """To be shown after the word ``fix``."""
    cost: str | None = None
    """With its own word: ``cost job −33%, 15 GPU-min``, ``gain ≤ 1.8×``, ``q still quits``."""
    more: int = 0
    """Other firing alerts of equal rank: ``+1 · a``."""
    detail: str = ""
    """Second row when there is no alert: ``no alert in 2h14m   energy 0.97 kWh``."""


class Mute(Value, frozen=True, kw_only=True):
    """A rule silenced for one subject."""

    rule: str
    subject: str
    """``Subject.key()``."""
    until_s: float
    """Epoch."""
    until_recovered: bool = False
    """Ends when the alert resolves, whatever ``until_s`` says."""


class MuteList:
    """The mutes of this run: the screen adds, the fold reads; each change is one assignment."""

    def __init__(self) -> None:
        self.mutes: tuple[Mute, ...] = ()

    def add(self, mute: Mute) -> None:
        """Silence a rule for a subject, replacing an earlier mute of the same pair."""
        self.remove(mute.rule, mute.subject)
        self.mutes = (*self.mutes, mute)

    def remove(self, rule: str, subject: str) -> None:
        """Let a rule speak again about a subject."""
        self.mutes = tuple(mute for mute in self.mutes if (mute.rule, mute.subject) != (rule, subject))


class Timed(Protocol):
    """What a rule says about keeping its findings over time."""

    @property
    def id(self) -> str:
        """Name of the rule."""

    @property
    def hold_s(self) -> float:
        """How long it must hold before it is raised."""

    @property
    def clear_s(self) -> float:
        """How long it must be gone before it ends."""

    @property
    def suppressed_by(self) -> tuple[str, ...]:
        """Rules that explain it."""


Key = tuple[str, str]


class _Pending:
    """A condition that is true and not yet raised."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.held_s = 0.0


class _Track:
    """One alert's life; moments in monotonic seconds since the first sample."""

    def __init__(self, finding: Finding, since_s: float, raised_s: float) -> None:
        self.finding = finding
        self.state: AlertState = "firing"
        self.since_s = since_s
        self.raised_s = raised_s
        self.quiet_since_s: float | None = None
        self.quiet_s = 0.0
        self.times_raised = 1
        self.lost_gpu_s: float | None = None
        self.muted_until_s: float | None = None
        self.suppressed_by: str | None = None

    def is_live(self) -> bool:
        return self.state != "resolved"

    def count_loss(self, seconds: float, gpus: int) -> None:
        """Add what the trouble cost in the last seconds, where that is known."""
        lost = self.finding.cost.lost_pct if self.finding.cost else None
        if lost is not None:
            self.lost_gpu_s = (self.lost_gpu_s or 0.0) + seconds * lost / 100.0 * gpus

    def alert(self, window: Window) -> Alert:
        """The value that leaves the fold."""
        return Alert(
            finding=self.finding,
            state=self.state,
            since_s=window.time_of(self.since_s),
            raised_s=window.time_of(self.raised_s),
            cleared_s=None if self.is_live() or self.quiet_since_s is None else window.time_of(self.quiet_since_s),
            muted_until_s=self.muted_until_s,
            suppressed_by=self.suppressed_by,
            times_raised=self.times_raised,
            lost_gpu_s=self.lost_gpu_s,
        )


class AlertFold:
    """Findings of each sample in, alerts out: pending, firing, clearing, resolved."""

    def __init__(self, rules: Iterable[Timed], mutes: MuteList | None = None) -> None:
        self._rules = {rule.id: rule for rule in rules}
        self._mutes = mutes or MuteList()
        self._pending: dict[Key, _Pending] = {}
        self._tracks: dict[Key, _Track] = {}
        self._log: list[_Track] = []
        self._spent: set[Mute] = set()

    def append(
        self, window: Window, findings: Iterable[Finding], abstained: Iterable[Abstention] = ()
    ) -> tuple[Alert, ...]:
        """Move every alert on by one sample. Firing ones come first, in headline order, then the log."""
        current = {(finding.rule, finding.subject.key()): finding for finding in findings}
        for key, finding in current.items():
            self._meet(key, finding, window)
        silent = {(one.rule, one.subject.key() if one.subject else None) for one in abstained}
        for key in [key for key in self._pending if current.get(key, _NOTHING).strength < _CLEARS_BELOW]:
            if not self._is_frozen(key, None, silent, window):
                del self._pending[key]
        for key, track in self._tracks.items():
            is_true = key in current and current[key].strength >= _CLEARS_BELOW
            if track.is_live() and not is_true and not self._is_frozen(key, track.finding.subject, silent, window):
                self._miss(track, window)
        self._suppress(window)
        self._mute(window)
        return self._sorted(window)

    def _meet(self, key: Key, finding: Finding, window: Window) -> None:
        """The rule sees it now, at whatever strength."""
        track = self._tracks.get(key)
        if track is not None and track.is_live():
            if finding.strength >= _CLEARS_BELOW:
                # What is only held by the lower threshold does not become worse by it.
                is_held = finding.strength < 1.0 and RANK[finding.severity] > RANK[track.finding.severity]
                severity = track.finding.severity if is_held else finding.severity
                track.finding = msgspec.structs.replace(finding, severity=severity)
                track.state, track.quiet_s, track.quiet_since_s = "firing", 0.0, None
                track.count_loss(window.passed_s, _gpus_losing(finding.subject, window))
            return
        if finding.strength < 1.0:
            return
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = _Pending(window.elapsed_s - (finding.onset_s or 0.0))
        else:
            pending.held_s += window.passed_s
        if finding.has_happened or pending.held_s >= self._rules[finding.rule].hold_s:
            del self._pending[key]
            self._raise(key, finding, pending.since_s, window)

    def _raise(self, key: Key, finding: Finding, since_s: float, window: Window) -> None:
        track = self._tracks.get(key)
        if track is not None and window.elapsed_s - (track.quiet_since_s or 0.0) <= _AGAIN_S:
            # The same trouble again: one entry that goes on, not a second one.
            track.finding, track.state = finding, "firing"
            track.quiet_s, track.quiet_since_s = 0.0, None
            track.times_raised += 1
        else:
            if track is not None:
                self._log = [*self._log[1 - _LOG_KEPT :], track]
            track = self._tracks[key] = _Track(finding, since_s, window.elapsed_s)
        track.count_loss(window.elapsed_s - since_s, _gpus_losing(finding.subject, window))

    def _miss(self, track: _Track, window: Window) -> None:
        """The rule could judge and does not see it."""
        if track.state == "firing":
            track.state, track.quiet_since_s = "clearing", window.elapsed_s
        track.quiet_s += window.passed_s
        if track.quiet_s >= self._rules[track.finding.rule].clear_s:
            track.state = "resolved"
            self._spent.update(mute for mute in self._mutes.mutes if mute.until_recovered and _silences(mute, track))

    def _is_frozen(
        self, key: Key, subject: Subject | None, silent: set[tuple[str, str | None]], window: Window
    ) -> bool:
        """Without a sample the clock of an alert stands still, and while its job pauses (evaluation, checkpoint)."""
        if (key[0], key[1]) in silent or (key[0], None) in silent:
            return True
        job = next((job for job in window.jobs if key[1] == job.id or key[1] in job.gpu_uuids), None)
        if job is not None and job.phase == "pause":
            return True
        uuids = _uuids(subject, window) if subject else {key[1]}
        limit = stale_after_s(window.interval_s)
        return any(
            gpu.uuid in uuids and not gpu.is_lost and gpu.age_s is not None and gpu.age_s >= limit
            for gpu in window.last.gpus
        )

    def _suppress(self, window: Window) -> None:
        for track in self._tracks.values():
            if track.is_live():
                mine = _uuids(track.finding.subject, window)
                track.suppressed_by = next(
                    (
                        other.finding.rule
                        for other in self._tracks.values()
                        if self._explains(other, track, window) and mine & _uuids(other.finding.subject, window)
                    ),
                    None,
                )

    def _explains(self, cause: _Track, track: _Track, window: Window) -> bool:
        finding, rule = track.finding, cause.finding.rule
        if rule not in self._rules[finding.rule].suppressed_by and rule not in finding.explained_by:
            return False
        if cause.finding.severity == "info" and finding.severity != "info":
            return False  # a mere information is no answer to a warning
        if cause.is_live():
            return True
        # A symptom that outlives its cause for a moment is no trouble of its own.
        is_just_over = cause.quiet_since_s is not None and window.elapsed_s - cause.quiet_since_s <= _LINGERS_S
        return is_just_over and track.suppressed_by == rule

    def _mute(self, window: Window) -> None:
        mutes = [mute for mute in self._mutes.mutes if mute not in self._spent and mute.until_s > window.last.time_s]
        for track in self._tracks.values():
            if track.is_live():
                track.muted_until_s = max((mute.until_s for mute in mutes if _silences(mute, track)), default=None)

    def _sorted(self, window: Window) -> tuple[Alert, ...]:
        live = [track.alert(window) for track in self._tracks.values() if track.is_live()]
        over = [track.alert(window) for track in (*self._log, *self._tracks.values()) if not track.is_live()]
        live.sort(key=lambda alert: (not may_lead(alert), -RANK[alert.finding.severity], alert.since_s))
        over.sort(key=lambda alert: -(alert.cleared_s or 0.0))
        return (*live, *over)


_NOTHING = Finding(
    rule="", severity="info", confidence="possible", subject=Subject(kind="host"), summary="", strength=0
)


def may_lead(alert: Alert) -> bool:
    """Whether an alert may take the headline: firing, not explained by another, not muted."""
    return alert.is_firing() and alert.suppressed_by is None and alert.muted_until_s is None


def _silences(mute: Mute, track: _Track) -> bool:
    return mute.rule == track.finding.rule and mute.subject == track.finding.subject.key()


def _uuids(subject: Subject, window: Window) -> set[str]:
    """The GPUs that a subject is about."""
    if subject.kind == "gpu":
        return {subject.uuid} if subject.uuid else set()
    if subject.kind == "job":
        jobs = (*window.jobs, *(ending.job for ending in window.ended_jobs))
        return {uuid for job in jobs if job.id == subject.job for uuid in job.gpu_uuids}
    if subject.kind == "process":
        return {uuid for one in window.last.processes if one.pid == subject.pid for uuid in one.gpu_memory_bytes}
    return {gpu.uuid for gpu in window.last.gpus}


def _gpus_losing(subject: Subject, window: Window) -> int:
    """How many GPUs are slowed: a whole job waits for its slowest GPU."""
    if subject.kind == "gpu" and subject.uuid is not None:
        job = window.job_of(subject.uuid)
        return len(job.gpu_uuids) if job else 1
    return max(1, len(_uuids(subject, window))) if subject.kind == "job" else 1
