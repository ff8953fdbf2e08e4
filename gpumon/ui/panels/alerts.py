"""The newest alerts as a list of single lines: mark, since, whom, which rule, and on what it rests."""

from __future__ import annotations

import msgspec

from gpumon import units
from gpumon.model import Alert, Evidence
from gpumon.monitor import Frame
from gpumon.ui.panels.gpu_heads import mark_of, where
from gpumon.ui.panels.line import cells, clip, fill, left, section
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState, alert_key

RULE_CELLS = 14
"""At least; a longer name that is listed widens the column for all."""
RECOVERED_SHOWN = 3
RECOVERED_S = 3600.0
"""A recovered alert stays on the overview for an hour; in the log for ever."""


class AlertLines(msgspec.Struct, frozen=True):
    """Rows of the list and which alert each one is."""

    rows: tuple[Row, ...]
    keys: tuple[str | None, ...]


def listed(frame: Frame) -> list[Alert]:
    """What the overview shows: firing ones, then at most three that recovered within the hour."""
    now_s = frame.window.last.time_s
    shown = [alert for alert in frame.alerts if alert.is_firing() and alert.suppressed_by is None]
    recovered = [
        alert
        for alert in frame.alerts
        if alert.state == "resolved" and now_s - (alert.cleared_s or alert.since_s) <= RECOVERED_S
    ]
    return shown + recovered[:RECOVERED_SHOWN]


def alert_lines(frame: Frame, view: ViewState, width: int, height: int) -> AlertLines:
    """The section rule and as many alerts as fit."""
    alerts = listed(frame)
    firing = sum(1 for alert in alerts if alert.is_firing())
    rows: list[Row] = [section("ALERTS", f"{firing} firing" if firing else "", "", width)]
    keys: list[str | None] = [None]
    if not alerts:
        rows.append(fill([(clip(f" {_quiet(frame)}", width), "muted")], width))
        keys.append(None)
    room = height - 1
    known = [alert_key(alert) for alert in alerts]
    first = 0
    selected = known.index(view.alert) if view.alert in known else 0
    if len(alerts) > room > 0:
        first = min(max(view.alert_offset, selected - room + 1), selected, len(alerts) - room)
    rule_cells = max([RULE_CELLS, *(len(alert.finding.rule) + 1 for alert in alerts)])
    for alert, key in list(zip(alerts, known, strict=True))[first : first + room]:
        is_selected = view.part == "alerts" and key == known[selected]
        rows.append(_line(alert, frame, width, rule_cells, is_selected=is_selected))
        keys.append(key)
    blank = height - len(rows)
    return AlertLines((*rows[:height], *[fill((), width)] * blank), (*keys[:height], *[None] * blank))


def _quiet(frame: Frame) -> str:
    if not frame.is_judged:
        return "Nothing is judged yet."
    quiet = units.duration(frame.window.span_s)
    abstained = len({abstention.rule for abstention in frame.abstained})
    text = f"No alert in {quiet}."
    return f"{text} Rules that could not judge: {abstained} (a lists why)." if abstained else text


def _line(alert: Alert, frame: Frame, width: int, rule_cells: int, *, is_selected: bool) -> Row:
    now_s = frame.window.last.time_s
    is_firing = alert.is_firing()
    glyph, style = mark_of(alert)
    lasted = units.duration(max(0.0, (now_s if is_firing else alert.cleared_s or now_s) - alert.since_s))
    state = f"{'firing' if is_firing else 'recovered'} {lasted}"
    plain = "" if is_firing else "muted"
    pieces: list[Piece] = [
        ("›" if is_selected else " ", "accent"),
        (glyph, style),
        (" " + units.clock(alert.since_s, "%H:%M"), style),
        ("  " + left(where(alert, frame.window.last.gpus), 8), "bold" if is_selected else plain),
        (left(alert.finding.rule, rule_cells), plain),
        (left(state, 16) + " ", style if is_firing else "muted"),
    ]
    used = sum(cells(text) for text, _ in pieces)
    pieces.append((clip(grounds(alert), max(0, width - used)), plain))
    return fill(pieces, width)


def grounds(alert: Alert) -> str:
    """The evidence in short; the sentence itself where there is none."""
    finding = alert.finding
    told = [_told(evidence) for evidence in finding.evidence if evidence.value is not None]
    return "; ".join(told[:2]) if told and alert.is_firing() else finding.summary


def _told(evidence: Evidence) -> str:
    text = f"{evidence.name} {_amount(evidence.value, evidence.unit)}"
    return text if evidence.was is None else f"{text}, was {_amount(evidence.was, '')}"


def _amount(value: float | str | None, unit: str) -> str:
    amount = f"{value:.0f}" if isinstance(value, float) else str(value)
    return f"{amount}{unit}" if unit.startswith("%") else f"{amount} {unit}".rstrip()
