"""The screen that is open all day: everything at a glance, drawn by the panels."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.monitor import Frame
from gpumon.ui.board import BoardScreen
from gpumon.ui.layout import Layout
from gpumon.ui.row import Row
from gpumon.ui.view import ViewState


class Overview(BoardScreen[None]):
    """Bottom of the stack of screens."""

    def __init__(self) -> None:
        """The layout remembers what it has drawn, so that an unchanged row is the same object."""
        super().__init__()
        self.overview = Layout()

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """Title, headline, GPUs, host, jobs, alerts, footer."""
        return self.overview.rows(frame, view, width, height)

    def rows_without_frame(self, view: ViewState, width: int, height: int) -> Sequence[Row]:  # noqa: ARG002
        """Before there are values: a driver is asked, a recording or a simulation read up to where it is to begin."""
        waiting: Row = ((" gpumon ", "bold"), ("waiting for the first values…", "muted"))
        return [waiting, *([()] * (height - 2)), ((" q", "accent"), (" quit", "muted"))]
