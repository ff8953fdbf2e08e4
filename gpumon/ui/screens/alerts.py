"""The log of alerts, and the selected one in full: evidence, cost, fixes, and what could not be judged."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpumon import units
from gpumon.headline import cost_text
from gpumon.model import Alert
from gpumon.rules import RULES
from gpumon.ui import selection
from gpumon.ui.board import BoardScreen
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.gpu_heads import mark_of, where
from gpumon.ui.panels.headline import headline_rows
from gpumon.ui.panels.line import clip, left, right
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens.chrome import Key, footer_row, rule_row, title_row
from gpumon.ui.screens.evidence import evidence_rows
from gpumon.ui.view import Part, ViewState, alert_key

if TYPE_CHECKING:
    from gpumon.monitor import Frame

KEYS: tuple[Key, ...] = (
    ("↑↓", "alert"), ("Enter", "its GPU"), ("e", "explain"), ("y", "copy fix"), ("m", "mute"), ("+-", "span"),
    ("?", "help"), ("Esc", "back"),
)  # fmt: skip
EXPLAINED_FROM_ROWS = 8
"""With this much room below the diagnosis the rule's documentation is shown at once."""
LOG_SHARE = 3
"""The log takes at most this part of the screen; the diagnosis below it is what the screen is for."""


def counts(frame: Frame) -> str:
    """``1 firing · 1 recovered · 1 muted``."""
    muted = sum(1 for alert in frame.alerts if alert.is_firing() and alert.muted_until_s is not None)
    firing = sum(1 for alert in frame.alerts if alert.is_firing()) - muted
    recovered = sum(1 for alert in frame.alerts if not alert.is_firing())
    named = ((firing, "firing"), (recovered, "recovered"), (muted, "muted"))
    return " · ".join(f"{count} {word}" for count, word in named if count)


def log_rows(frame: Frame, chosen: int, width: int, height: int) -> list[Row]:
    """Column heads and as many alerts as fit, the selected one among them."""
    rule_width = rule_width_for(width)
    head = f"   {'SINCE':<5}  {'LASTED':>6}  {'WHERE':<7}{'RULE':<{rule_width}}WHAT"
    first = max(0, min(chosen - (height - 1) // 2, len(frame.alerts) - (height - 1)))
    rows: list[Row] = [((head, "muted"),)]
    now_s = frame.window.last.time_s
    for number, alert in list(enumerate(frame.alerts))[first : first + height - 1]:
        whom = where(alert, frame.window.last.gpus)
        rows.append(_log_row(alert, whom, now_s, width, is_chosen=number == chosen))
    return rows


def rule_width_for(width: int) -> int:
    """Cells of the column with the rule's name."""
    return 15 if width < 100 else 22


def _log_row(alert: Alert, whom: str, now_s: float, width: int, *, is_chosen: bool) -> Row:
    rule_width = rule_width_for(width)
    glyph, style = mark_of(alert)
    is_loud = alert.is_firing() and alert.muted_until_s is None
    plain = "bold" if is_chosen else "" if is_loud else "muted"
    since = units.clock(alert.since_s, "%H:%M" if now_s - alert.since_s < 72_000 else "%d. %H")
    text = f"{left(since, 6)} {right(lasted(alert, now_s), 6)}  {left(whom, 7)}"
    rule = left(clip(alert.finding.rule, rule_width - 1), rule_width)
    return (
        ("›" if is_chosen else " ", "accent"), (glyph, style), (" ", ""), (text, plain), (rule, plain),
        (clip(what(alert, whom), max(0, width - 20 - rule_width - 5)), plain),
    )  # fmt: skip


def lasted(alert: Alert, now_s: float) -> str:
    """How long it has been firing, or was."""
    end_s = now_s if alert.is_firing() or alert.cleared_s is None else alert.cleared_s
    return units.duration(max(0.0, end_s - alert.since_s))


def what(alert: Alert, whom: str) -> str:
    """The sentence without whom it is about, and what became of it."""
    sentence = alert.finding.summary.removeprefix(f"{whom} ")
    if alert.is_firing() and alert.muted_until_s is not None:
        return f"muted{until(alert)}; {sentence}"
    if not alert.is_firing():
        return f"recovered; {sentence}"
    if alert.suppressed_by is not None:
        return f"explained by {alert.suppressed_by}; {sentence}"
    return sentence


def until(alert: Alert) -> str:
    """`` until 15:05``; nothing for mutes that end with the trouble or the run."""
    end_s = alert.muted_until_s or 0.0
    return f" until {units.clock(end_s, '%H:%M')}" if end_s - alert.since_s < 30 * 86_400 else ""


def diagnosis_rows(frame: Frame, alert: Alert, drawn: Charts, width: int) -> list[Row]:
    """Everything about one alert, from its sentence to what could not be read."""
    finding = alert.finding
    whom = where(alert, frame.window.last.gpus)
    head: list[Piece] = [
        (finding.rule, "bold"),
        (f" {whom} · {finding.severity} · {finding.confidence}", "muted"),
    ]
    rows: list[Row] = [rule_row(head, width, [(f"gpumon explain {finding.rule}", "muted")])]
    sentence = finding.summary if finding.cause_text is None else f"{finding.summary}: {finding.cause_text}"
    rows += _wrapped(" ", sentence, width)
    rows += _wrapped(" ", documentation(finding.rule).partition("\n")[0], width)
    rows += evidence_rows(frame, alert, drawn, width)
    cost = cost_text(alert, frame.window)
    if cost is not None:
        word, _, text = cost.partition(" ")
        rows.append(((f" {word:<8}", "muted"), (text, "")))
    if finding.fixes:
        rows.append(())
    for number, fix in enumerate(finding.fixes, start=1):
        label = " fix " if number == 1 else "     "
        for line, text in enumerate(textwrap.wrap(fix, max(10, width - 10))):
            mark = f"{number:>3} " if line == 0 else "    "
            rows.append(((label if line == 0 else "     ", "muted"), (mark, "accent"), (text, "")))
    return [*rows, *unread_rows(frame, alert, width)]


def unread_rows(frame: Frame, alert: Alert, width: int) -> list[Row]:
    """What this rule could not judge, and for want of which signal."""
    because = dict.fromkeys(
        abstention.because for abstention in frame.abstained if abstention.rule == alert.finding.rule
    )
    if not because:
        return []
    return [(), *_wrapped(" not read  ", "; ".join(because), width, label="muted")]


def abstained_rows(frame: Frame, width: int) -> list[Row]:
    """Rules that could not judge, one a line."""
    seen: dict[tuple[str, str], int] = {}
    for abstention in frame.abstained:
        key = (abstention.rule, abstention.because)
        seen[key] = seen.get(key, 0) + 1
    rows: list[Row] = [rule_row([("rules that could not judge", "bold")], width)] if seen else []
    for (name, because), count in seen.items():
        times = f" ({count} GPUs)" if count > 1 else ""
        rows.append(((f" {name:<16}", ""), (clip(because + times, max(0, width - 18)), "muted")))
    return rows


def documentation(rule_id: str) -> str:
    """The docstring of a rule."""
    return next((rule.doc for rule in RULES if rule.id == rule_id), "This rule has no documentation here.")


def explanation_rows(rule_id: str, width: int) -> list[Row]:
    """The rule's own documentation, as ``gpumon explain`` prints it."""
    rows: list[Row] = [rule_row([(f"gpumon explain {rule_id}", "bold")], width)]
    for paragraph in documentation(rule_id).split("\n\n"):
        lines = paragraph.splitlines()
        if (len(lines) > 1 and set(lines[1]) <= {"-", "="}) or (lines and lines[0].rstrip(":") in HEADINGS):
            rows.append(((f" {lines[0].rstrip(':')}", "bold"),))
            lines = lines[2 if len(lines) > 1 and set(lines[1]) <= {"-", "="} else 1 :]
        if lines:
            rows += _wrapped(" ", " ".join(line.strip() for line in lines), width)
        rows.append(())
    return rows


HEADINGS = frozenset({"What it sees", "Why it matters", "What to do", "When it is wrong"})


def _wrapped(start: str, text: str, width: int, label: str = "") -> list[Row]:
    lines = textwrap.wrap(text, max(10, width - len(start) - 1)) or [""]
    blank = " " * len(start)
    return [((start if number == 0 else blank, label), (line, "")) for number, line in enumerate(lines)]


def empty_rows(frame: Frame, width: int) -> list[Row]:
    """Nothing to complain about, and what could not be judged."""
    judged = len({abstention.rule for abstention in frame.abstained})
    text = f"No alert in {units.duration(frame.window.elapsed_s)}."
    if judged:
        text += f" Rules that could not judge: {judged} (Enter lists why)."
    return [((clip(f" {text}", width), ""),)]


class AlertsScreen(BoardScreen[None]):
    """Log above, diagnosis below; it follows the alert that is selected."""

    PART: ClassVar[Part | None] = "alerts"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("e", "explain", "explain"),
        ("enter", "open", "its GPU"),
        ("pagedown", "scroll(5)", "scroll"),
        ("pageup", "scroll(-5)", "scroll"),
    ]

    def __init__(self) -> None:
        """Opens with the evidence, not with the documentation."""
        super().__init__()
        self._charts = Charts()
        self._is_explaining = False
        self._offset = 0
        self._shown: str | None = None

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """Title, headline, log, diagnosis, keys."""
        self._charts.begin(frame, view)
        top: list[Row] = [title_row(frame, view, ["alerts"], width), *headline_rows(frame, view, width)]
        top = top[: max(1, height - 2)] if height < 8 else top
        chosen = selection.selected(frame, view, "alerts")
        if chosen is None:
            below = self._without_alerts(frame, width)
        else:
            below = self._with_alerts(frame, chosen, width, height - len(top) - 1)
        room = max(0, height - len(top) - 1)
        below += [()] * (room - len(below))
        return [*top, *below[:room], footer_row(frame, view, KEYS, width)]

    def _without_alerts(self, frame: Frame, width: int) -> list[Row]:
        rows = [rule_row([("LOG", "bold")], width), *empty_rows(frame, width)]
        return [*rows, (), *abstained_rows(frame, width)] if self._is_explaining else rows

    def _with_alerts(self, frame: Frame, chosen: int, width: int, room: int) -> list[Row]:
        alert = frame.alerts[chosen]
        if self._shown != alert_key(alert):
            self._shown, self._offset = alert_key(alert), 0
        log_height = min(len(frame.alerts) + 1, max(2, room // LOG_SHARE))
        head: list[Piece] = [("LOG ", "bold"), (counts(frame), "muted")]
        rows = [rule_row(head, width, [("firing first", "muted")]), *log_rows(frame, chosen, width, log_height)]
        if self._is_explaining:
            told = explanation_rows(alert.finding.rule, width)
        else:
            told = diagnosis_rows(frame, alert, self._charts, width)
        left_over = max(0, room - len(rows))
        if not self._is_explaining and left_over - len(told) >= EXPLAINED_FROM_ROWS:
            told += [
                (),
                *explanation_rows(alert.finding.rule, width)[:1],
                *explanation_rows(alert.finding.rule, width)[3:],
            ]
        self._offset = max(0, min(self._offset, len(told) - left_over))
        shown = told[self._offset : self._offset + left_over]
        if len(told) > self._offset + left_over and shown:
            shown[-1] = ((f" … {len(told) - self._offset - left_over + 1} more rows: PgDn", "muted"),)
        return [*rows, *shown]

    def action_scroll(self, rows: int) -> None:
        """Move the diagnosis, where it is longer than the screen."""
        self._offset = max(0, self._offset + rows)
        self.draw()

    def action_explain(self) -> None:
        """E again: the rule's documentation instead of the evidence, and back."""
        self._is_explaining = not self._is_explaining
        self._offset = 0
        self.draw()

    def action_open(self) -> None:
        """Enter: the GPU behind the alert; without an alert, what could not be judged."""
        frame = self.board_app.frame
        at = None if frame is None else selection.selected(frame, self.board_app.view, "alerts")
        if frame is None or at is None:
            self.action_explain()
            return
        uuid = selection.gpu_behind(frame, "alerts", at)
        if uuid is None:
            self.action_explain()
            return
        from gpumon.ui.screens.detail import DetailScreen

        self.board_app.change(gpu=uuid)
        self.app.push_screen(DetailScreen())
