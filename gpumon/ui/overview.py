"""The screen that is open all day: everything at a glance, drawn by the panels."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.monitor import Frame
from gpumon.ui.board import BoardScreen
from gpumon.ui.row import Row
from gpumon.ui.view import ViewState
from gpumon.units import clock


class Overview(BoardScreen[None]):
    """Bottom of the stack of screens."""

    def rows(self, frame: Frame, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """Title, headline, GPUs, host, jobs, alerts, footer."""
        last = frame.window.last
        rows: list[Row] = [
            ((" gpumon ", "bold"), (f"{frame.info.name} · {len(last.gpus)} GPUs  ", "muted"), (clock(last.time_s, "HH:MM:SS"), "")),
            ((f" {frame.headline.state.upper()} ", "bold reverse useful"), (f" {frame.headline.text}", "bold")),
        ]
        rows += [((f" {gpu.index:3d} ", "bold"), (f"{gpu.utilization_pct or 0:3.0f}% {gpu.power_w} W", "")) for gpu in last.gpus]
        rows = rows[: height - 1] + [()] * max(0, height - 1 - len(rows))
        footer = f"self {view.self_cpu_pct if view.self_cpu_pct is not None else '–'}% · age {view.age_s:.0f}s"
        return [*rows, ((" ? help  q quit  ", "accent"), (footer, "data-text" if view.is_late else "muted"))]

    def rows_without_frame(self, view: ViewState, width: int, height: int) -> Sequence[Row]:
        """Before the driver has answered for the first time."""
        waiting: Row = ((" gpumon ", "bold"), ("asking the driver…", "muted"))
        return [waiting, *([()] * (height - 2)), ((" q", "accent"), (" quit", "muted"))]
