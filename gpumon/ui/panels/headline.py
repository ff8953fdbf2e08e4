"""Rows two and three: healthy or what is wrong, for whom, since when; cause, fix, cost. Never more, never less."""

from __future__ import annotations

import re

from gpumon import units
from gpumon.alerts import Headline
from gpumon.monitor import Frame
from gpumon.ui.glyphs import MARKS, WORDS
from gpumon.ui.panels.gpu_heads import where
from gpumon.ui.panels.line import cells, clip, fill, spread, width_of
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

BADGE_OF = {
    "healthy": "bold reverse useful",
    "warning": "bold reverse data",
    "critical": "bold reverse harm",
    "stale": "bold reverse muted",
}
"""States with a badge; the others are plain words: at most one badge is on the screen."""
INK_OF = {"warning": "bold data-text", "critical": "bold harm", "healthy": "useful-text", "stale": "muted"}

SYMPTOMS: dict[str, tuple[str, str]] = {
    "gpu-lost": ("lost", "lost"),
    "xid": ("driver reports a fault", "Xid"),
    "ecc-remap": ("memory errors", "ECC"),
    "driver-stuck": ("driver is silent", "mute"),
    "ram-pressure": ("RAM is nearly full", "RAM"),
    "shm-full": ("shared memory is full", "shm"),
    "worker-ram-leak": ("workers leak RAM", "leak"),
    "disk-full": ("disk is full", "disk"),
    "hw-thermal": ("at shutdown limit", "hot"),
    "power-brake": ("power brake", "slow"),
    "sw-thermal": ("at temperature limit", "hot"),
    "memory-hot": ("memory is hot", "hot"),
    "power-capped-low": ("power limit is low", "slow"),
    "clocks-locked-low": ("clock is locked low", "slow"),
    "cooling-degraded": ("cooling is weak", "cool"),
    "pcie-degraded": ("PCIe is slow", "PCIe"),
    "nvlink-down": ("NVLink is down", "link"),
    "mixed-gpus": ("unlike GPUs", "mix"),
    "comm-bound": ("link is full", "link"),
    "throughput-drop": ("became slower", "slow"),
    "training-died": ("training died", "died"),
    "collective-hang": ("hangs", "hung"),
    "no-progress-single": ("stands still", "hung"),
    "straggler": ("is slow", "slow"),
    "oom-risk": ("memory runs out", "OOM"),
    "memory-leak": ("leaks memory", "leak"),
    "alloc-retry": ("allocations fail", "OOM"),
    "fragmentation": ("memory fragmented", "frag"),
    "vram-orphaned": ("memory has no owner", "leak"),
    "gpu-contention": ("is shared", "busy"),
    "cpu-training": ("trains on the CPU", "CPU"),
    "data-starved": ("waits for data", "data"),
    "h2d-slow": ("copies slowly", "copy"),
    "host-bound": ("waits for Python", "CPU"),
    "pause-cost": ("pauses often", "wait"),
    "idle-reserved": ("is held idle", "idle"),
}
"""What a rule has found, for narrow screens and for tiny ones; rules that are not here are called by their id."""

_VALUE = re.compile(r" \d[\d.]*\s?%")


def shown(frame: Frame, view: ViewState) -> Headline:
    """The frame's headline, unless no frame has come for a while: then nothing in it is certain any more."""
    if not view.is_stale:
        return frame.headline
    since = units.clock(frame.window.last.time_s)
    return Headline(
        state="stale",
        text=f"no new sample for {units.duration(view.age_s)}; numbers are from {since}",
        cause="unknown yet",
        fix="wait",
        cost="q still quits",
    )


def badge(state: str, *, is_ascii: bool) -> list[Piece]:
    """`` ■ CRITICAL `` as a badge, or as words where the state is no verdict; ``[X CRITICAL]`` in ASCII."""
    label = f"{MARKS[state]} {WORDS[state]}"
    if state not in BADGE_OF:
        return [(f" {label} ", "bold")]
    return [(f"[{label}]" if is_ascii else f" {label} ", BADGE_OF[state]), (" ", "")]


def headline_rows(frame: Frame, view: ViewState, width: int) -> tuple[Row, Row]:
    """Both rows; the second one answers keys for a moment."""
    headline = shown(frame, view)
    first = _first(headline, frame.window.last.time_s, view, width)
    if view.toast is not None:
        return first, fill([(clip(f" {view.toast}", width), "accent")], width)
    return first, second_row(headline, width)


def _first(headline: Headline, now_s: float, view: ViewState, width: int) -> Row:
    start = badge(headline.state, is_ascii=view.tier == "ascii")
    more: list[Piece] = [(f"+{headline.more} · a ", "muted")] if headline.more else []
    since = "" if headline.since_s is None else f" since {units.clock(headline.since_s, '%H:%M')}"
    lasted = "" if headline.since_s is None else f" ({units.duration(max(0.0, now_s - headline.since_s))})"
    sure = f" {headline.confidence}" if headline.confidence is not None else ""
    value = _VALUE.search(headline.text)
    head, tail = (headline.text[: value.start()], headline.text[value.start() :]) if value else (headline.text, "")
    if headline.state not in INK_OF or headline.state == "healthy":
        head, tail = "", headline.text
    for text, certain, others in (
        (tail, sure, more),
        (tail, "", more),
        (tail, "", []),
        ("", "", []),
    ):
        pieces = [*start, (head, "bold"), (f"{text}{since}{lasted}", ""), (certain, "muted")]
        if width_of(pieces) + width_of(others) + (1 if others else 0) <= width:
            return spread(pieces, others, width) if others else fill(pieces, width)
    # Who and since stay: what happened is cut.
    room = width - width_of(start) - width_of([(f"{since}{lasted}", "")])
    if room < 12:
        return fill([*start, (clip(headline.text, width - width_of(start)), "bold")], width)
    text = head or headline.text
    return fill([*start, (clip(text, room), "bold"), (f"{since}{lasted}", "")], width)


def second_row(headline: Headline, width: int) -> Row:
    """Cause, fix and cost, each with its word; shorter forms where they do not fit."""
    cause, fix, cost = headline.cause, headline.fix, headline.cost
    if cause is None and fix is None and cost is None:
        return fill([(clip(f" {headline.detail}", width), "muted")], width)
    forms = (
        (cause, fix, cost),
        (cause, _until(fix, "; "), cost),
        (cause, _until(fix, "; "), _until(cost, ", ")),
        (_until(cause, "; "), _until(fix, "; "), _until(cost, ", ")),
        (_until(_until(cause, "; "), ", "), _until(_until(fix, "; "), ", "), _until(cost, ", ")),
        (None, _until(fix, "; "), _until(cost, ", ")),
        (None, _until(fix, "; "), None),
    )
    pieces: list[Piece] = []
    for cause, fix, cost in forms:
        pieces = _told(cause, fix, cost)
        if width_of(pieces) <= width:
            return fill(pieces, width)
    return fill([(clip("".join(text for text, _ in pieces), width), "")], width)


def _until(text: str | None, end: str) -> str | None:
    return None if text is None else text.partition(end)[0]


def _told(cause: str | None, fix: str | None, cost: str | None) -> list[Piece]:
    pieces: list[Piece] = []
    for label, text in (("cause", cause), ("fix", fix)):
        if text:
            pieces += [("   " if pieces else " ", ""), (f"{label} ", "muted"), (text, "")]
    if cost:
        label, _, text = cost.partition(" ")
        pieces += [("   " if pieces else " ", ""), (f"{label} ", "muted"), (text, "")]
    return pieces


def small_rows(frame: Frame, view: ViewState, width: int, *, is_tiny: bool) -> tuple[Row, Row]:
    """Who, what and how long without a badge: `` ■ GPU 5 at temperature limit, 6 min``."""
    headline = shown(frame, view)
    mark = MARKS[headline.state]
    text = headline.text
    if headline.alert is not None:
        rule = headline.alert.finding.rule
        what = SYMPTOMS.get(rule, (rule, rule))[is_tiny]
        lasted = units.duration(max(0.0, frame.window.last.time_s - headline.alert.since_s))
        tail = f", {lasted}"
        whom = where(headline.alert, frame.window.last.gpus)
        if width < 3 + cells(f"{whom} {what}{tail}"):
            whom = whom.removeprefix("GPU ")
        text = clip(f"{whom} {what}", max(0, width - 3 - len(tail))) + tail
    elif headline.state in WORDS and headline.state != "healthy":
        text = f"{WORDS[headline.state]} {text}"
    ink = INK_OF.get(headline.state, "bold")
    first = fill([(f" {mark} ", ink), (clip(text, width - 3), "bold")], width)
    if view.toast is not None:
        return first, fill([(clip(f" {view.toast}", width), "accent")], width)
    cost, fix = _until(headline.cost, ", "), _until(headline.fix, "; ")
    if is_tiny:
        short = (cost or fix or headline.detail).removeprefix("cost ")
        return first, fill([(clip(f" {short}", width), "")], width)
    if cost is None and fix is None:
        return first, fill([(clip(f" {headline.detail}", width), "muted")], width)
    both = [*_told(None, None, cost), ("  " if cost and fix else "", ""), *_told(None, fix, None)]
    forms = (both, _told(None, fix, None), _told(None, None, cost))
    text = next((text for text in map(_joined, forms) if text and cells(text) <= width), _joined(both))
    return first, fill([(clip(text, width), "")], width)


def _joined(pieces: list[Piece]) -> str:
    return "".join(text for text, _ in pieces)
