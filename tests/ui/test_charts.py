"""Columns of charts are what the window says of them, however few of them it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders import NOON, ListSource, gpu, snapshot, uuid
from gpumon.model import Snapshot
from gpumon.monitor import Frame, frames
from gpumon.ui.panels.charts import Charts
from gpumon.ui.view import ViewState


def _sampled(count: int, *, first: int = 0) -> Iterator[Snapshot]:
    """A second after second with one long gap, from so many seconds after noon on."""
    for second in range(first, first + count):
        if not 20 <= second - first < 27:
            yield snapshot(
                time_s=NOON + second,
                interval_s=None if second == first else 8.0 if second - first == 27 else 1.0,
                gpus=(gpu(power_w=300.0 + second % 50),),
            )


@pytest.mark.parametrize("seconds", [1, 2, 7, 19, 45, 130])
@pytest.mark.parametrize(
    "view", [ViewState(span_s=60.0), ViewState(), ViewState(span_s=60.0, scroll_blocks=3)], ids=str
)
def test_columns_before_the_first_sample_are_blank_without_being_asked_for(seconds: int, view: ViewState) -> None:
    """Every column of every frame equals the window's own bin, whether asked for at once or one by one."""
    grown = Charts()
    for frame in frames(ListSource(_sampled(seconds)), rules=()):
        for charts in (grown, Charts()):
            charts.begin(frame, view)
            assert charts.values(uuid(0), "power_w", 40) == _bins(frame, charts)


def test_the_first_picture_asks_for_few_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one sample there is one column with a value; the window is not asked for the other 39."""
    (frame,) = frames(ListSource(_sampled(1)), rules=())
    asked: list[int] = []
    bins = type(frame.window).bins

    def counted(*args: object, count: int, **options: object) -> object:
        asked.append(count)
        return bins(*args, count=count, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(type(frame.window), "bins", counted)
    charts = Charts()
    charts.begin(frame, ViewState())
    charts.values(uuid(0), "power_w", 40)
    assert sum(asked) <= 3


def _bins(frame: Frame, charts: Charts) -> list[float | None]:
    grid = charts.grid(40)
    return frame.window.bins(uuid(0), "power_w", end_s=grid.end_s, width_s=grid.width_s, count=grid.shown)
