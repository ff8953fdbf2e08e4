"""Asks for how long an alert's rule shall be silent about its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.alerts import Mute, MuteList
from gpumon.model import Alert
from gpumon.ui.panels.line import clip
from gpumon.ui.row import Row
from gpumon.ui.screens.dialog import Dialog

if TYPE_CHECKING:
    from gpumon.monitor import Frame

HOUR = "1 h"
RECOVERED = "until it recovers"
RUN = "this run"
UNMUTE = "unmute"
CANCEL = "cancel"
HOUR_S = 3600.0
FAR_S = 10 * 365 * 86_400.0


class MuteScreen(Dialog):
    """Rule and subject of one alert; critical ones can be muted at most until they recover."""

    title_text: ClassVar[str] = "mute"

    def __init__(self, alert: Alert, mutes: MuteList) -> None:
        """Where it is muted already, the question is whether to end that."""
        if alert.muted_until_s is not None:
            choices: tuple[str, ...] = (UNMUTE, CANCEL)
        elif alert.finding.severity == "critical":
            choices = (HOUR, RECOVERED, CANCEL)
        else:
            choices = (HOUR, RECOVERED, RUN, CANCEL)
        super().__init__(choices)
        self.alert = alert
        self._mutes = mutes

    def body(self, frame: Frame, width: int) -> list[Row]:  # noqa: ARG002 - the alert says it all
        """What falls silent, and what does not."""
        finding = self.alert.finding
        what: Row = ((f" {finding.rule}", "bold"), (f"  {clip(finding.summary, width - len(finding.rule) - 4)}", ""))
        note = "stays in the log with m; rings no bell, never takes the headline"
        return [what, ((f" {note}", "muted"),), ()]

    def answered(self, choice: str) -> None:
        """Tell the fold; the next frame shows it."""
        frame = self.board_app.frame
        finding, subject = self.alert.finding, self.alert.finding.subject.key()
        if choice == CANCEL or frame is None:
            return
        if choice == UNMUTE:
            self._mutes.remove(finding.rule, subject)
            self.board_app.toast(f"{finding.rule} speaks again")
            return
        now_s = frame.window.last.time_s
        until_s = now_s + (HOUR_S if choice == HOUR else FAR_S)
        is_until_recovered = choice == RECOVERED or finding.severity == "critical"
        self._mutes.add(Mute(rule=finding.rule, subject=subject, until_s=until_s, until_recovered=is_until_recovered))
        self.board_app.toast(f"{finding.rule} muted: {choice}")
