"""Asks before a process is signalled, and says why where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon import units
from gpumon.model import Process
from gpumon.signalling import SIGNALS, SignalRefused, Target, obstacle
from gpumon.ui.panels.line import clip
from gpumon.ui.row import Row
from gpumon.ui.screens.dialog import Dialog

if TYPE_CHECKING:
    from gpumon.monitor import Frame

CANCEL = "Cancel"
MEANINGS = {
    CANCEL: "nothing is sent",
    "SIGTERM": "asks it to end; most programs save and leave",
    "SIGINT": "the same as Ctrl-C in its terminal",
    "SIGKILL": "ends it at once; nothing is saved",
}


class SignalScreen(Dialog):
    """One process, held by its pidfd from the moment the question is asked."""

    title_text: ClassVar[str] = "signal a process"

    def __init__(self, process: Process, own_uid: int | None = None) -> None:
        """Cancel is the default; ``own_uid`` is ours unless a test says otherwise."""
        super().__init__((CANCEL,))
        self.process = process
        self._own_uid = own_uid
        self._target: Target | None = None
        self._refusal: str | None = None

    def on_mount(self) -> None:
        """Take hold of the process, or learn why it must be left alone."""
        app = self.board_app
        frame = app.frame
        self._refusal = obstacle("live" if frame is None else frame.info.kind, read_only=app.view.is_read_only)
        if self._refusal is None:
            try:
                self._target = Target(self.process, self._own_uid)
                self.choices = (CANCEL, *SIGNALS)
            except SignalRefused as refusal:
                self._refusal = str(refusal)

    def on_unmount(self) -> None:
        """Let go of the process."""
        if self._target is not None:
            self._target.close()

    def body(self, frame: Frame, width: int) -> list[Row]:
        """Who it is; why not, or what the chosen signal does."""
        process = self.process
        started = units.MISSING
        if process.started_s is not None:
            age = units.duration(frame.window.last.time_s - process.started_s)
            started = f"{units.clock(process.started_s)} ({age} ago)"
        who: Row = (
            (" pid ", "muted"), (str(process.pid), "bold"), ("  user ", "muted"), (process.user or units.MISSING, ""),
            ("  started ", "muted"), (started, ""),
        )  # fmt: skip
        what: Row = ((f" {clip(process.command or process.name or units.MISSING, width - 2)}", ""),)
        if self._refusal is not None:
            why: Row = ((f" not possible: {self._refusal}", "bold"),)
        else:
            chosen = self.choices[self.chosen]
            why = ((f" {chosen}: ", "muted"), (MEANINGS[chosen], "muted"))
        return [who, what, (), why]

    def action_answer(self) -> None:
        """Enter: send while the process is still held, then close and say what happened."""
        choice = self.choices[self.chosen]
        said = None
        for name in SIGNALS:
            if name == choice and self._target is not None:
                try:
                    self._target.send(name)
                    said = f"{name} sent to {self.process.pid} {self.process.name or ''}".rstrip()
                except SignalRefused as refusal:
                    said = f"not sent: {refusal}"
        self.app.pop_screen()
        if said is not None:
            self.board_app.toast(said)
