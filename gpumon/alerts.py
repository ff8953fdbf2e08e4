"""Knows how findings become alerts over time: held, raised, cleared, suppressed, muted."""

from __future__ import annotations

from typing import Literal

from gpumon.model import Alert, Confidence, Value

HeadlineState = Literal["healthy", "starting", "training", "warning", "critical", "stale", "empty"]


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
