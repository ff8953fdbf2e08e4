"""The panel of a GPU whose process carries a probe, and the word estimate where none does."""

from __future__ import annotations

import pytest
from scenes import texts

from builders import NOON, frame, job, rank, snapshots, uuid
from gpumon.monitor import Frame
from gpumon.ui.layout import Layout, layout
from gpumon.ui.panels import panel
from gpumon.ui.panels.probes import Probe, Probes
from gpumon.ui.view import ViewState
from ui.stage import demo, probed


def told(shown: Frame, width: int = 80, height: int = 24, drawn: Layout | None = None) -> list[str]:
    """The overview as text."""
    rows = layout(shown, ViewState(), width, height) if drawn is None else drawn.rows(shown, ViewState(), width, height)
    return texts(rows)


def line_of(rows: list[str], start: str) -> str:
    """The row that begins with a label."""
    return next(line for line in rows if line.strip().startswith(start))


@pytest.mark.parametrize("rows", range(14, 60))
def test_with_a_probe_a_panel_is_as_high_as_without(rows: int) -> None:
    """Whatever there is room for: below it nothing moves when a probe appears."""
    size = panel.heights(rows)
    assert panel.probed_heights(size).total == size.total


def test_memory_is_three_charts_and_steps_two() -> None:
    """At 80 by 24 each signal has its row; the budget is measured."""
    rows = told(probed("input-bound"))
    starts = ["util", "", "power", "device", "reserv", "alloc", "step", "wait", "temp", "SM MHz", "events", "10 min"]
    assert [line.strip().startswith(start) for line, start in zip(rows[4:], starts, strict=False)] == [True] * 12
    assert line_of(rows, "device")[:17] == " device 19.8/24 G"
    assert line_of(rows, "alloc")[:17] == " alloc     17.9 G"
    assert line_of(rows, "step")[:17] == " step     0.429 s"
    assert line_of(rows, "wait")[:17] == " wait        59 %"
    assert line_of(rows, "budget").startswith(" budget  measured ")
    assert line_of(told(demo("input-bound")), "budget").startswith(" budget  estimate ")


def test_a_taller_panel_has_the_rhythm_beside_the_waits() -> None:
    """What single steps tell stands in the second row of their charts."""
    rows = told(probed("input-bound"), 120, 40)
    assert rows[rows.index(line_of(rows, "step")) + 1].strip().startswith("p95 1.1")
    assert rows[rows.index(line_of(rows, "wait")) + 1].strip().startswith("every 4th")


def test_rows_of_many_gpus_say_estimate_only_without_a_probe() -> None:
    """Measured waits need no word."""
    assert any("estimate" in line for line in told(demo("straggler"), 120, 40))
    assert not any("estimate" in line for line in told(probed("straggler"), 120, 40))


def test_a_probe_is_remembered_while_its_job_lives() -> None:
    """One that falls silent keeps its place with dashes; another job without one gets the usual panel."""
    probes = Probes()
    mine, other = job(), job(id="other:2")
    first = frame(snapshots(5, ranks=[rank()]), jobs=[mine]).window
    silent = frame(snapshots(5), jobs=[mine]).window
    assert probes.on(silent, uuid(0)) is None
    assert probes.on(first, uuid(0)) == Probe("rank:4242", first.last.ranks[0])
    assert probes.on(silent, uuid(0)) == Probe("rank:4242", None)
    assert probes.on(frame(snapshots(5)).window, uuid(0)) == Probe("rank:4242", None)
    assert probes.on(frame(snapshots(5), jobs=[other]).window, uuid(0)) is None
    assert probes.on(silent, uuid(0)) is None
    drawn = Layout()
    before = told(frame(snapshots(60, ranks=[rank()]), jobs=[mine]), drawn=drawn)
    series = [*snapshots(60, ranks=[rank()]), *snapshots(5, start_s=NOON + 60)]
    after = told(frame(series, jobs=[mine]), drawn=drawn)
    assert line_of(after, "step").split()[1] == "–"
    assert [line[:7] for line in after[4:18]] == [line[:7] for line in before[4:18]]
