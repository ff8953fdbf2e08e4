"""A process whose stack is sampled from outside: its wait is shown with the word and the error, its steps are not."""

from __future__ import annotations

from scenes import texts

from builders import NOON, frame, gpu, job, process, snapshot, uuid
from gpumon.model import Rank
from gpumon.monitor import Frame
from gpumon.ui.layout import layout
from gpumon.ui.panels.charts import Charts
from gpumon.ui.screens.detail import Page as DetailPage
from gpumon.ui.screens.job_page import Page as JobPage
from gpumon.ui.screens.job_ranks import Sort
from gpumon.ui.view import ViewState


def sampled(seconds: int = 60) -> Frame:
    """Two looks a second, three of ten of which wait."""
    series = [
        snapshot(
            NOON + second,
            gpus=[gpu(0, utilization_pct=70.0)],
            processes=[process(4242, (0,))],
            ranks=(Rank(pid=4242, sampled_stacks=2 * second, sampled_waits=second * 6 // 10),),
            interval_s=1.0 if second else None,
        )
        for second in range(seconds)
    ]
    return frame(series, jobs=[job(trainers=(4242,), gpu_uuids=(uuid(0),), trained_since_s=NOON - 100)])


def line_of(rows: list[str], start: str) -> str:
    return next(line for line in rows if line.strip(" ›■▲").startswith(start))


def test_the_panel_of_a_gpu_says_so() -> None:
    rows = texts(layout(sampled(), ViewState(), 80, 24))
    assert line_of(rows, "step")[:17] == " step     sampled"
    assert line_of(rows, "wait")[:17] == " wait        30 %"
    assert line_of(rows, "budget").startswith(" budget  estimate ")
    tall = texts(layout(sampled(), ViewState(), 120, 40))
    assert tall[tall.index(line_of(tall, "wait")) + 1].strip().startswith("sampled")


def test_the_job_table_says_so() -> None:
    rows = texts(layout(sampled(), ViewState(), 120, 40))
    assert any("sampled   30%" in row for row in rows)
    assert any("sampled: data wait 30%" in row for row in texts(layout(sampled(), ViewState(), 80, 24)))


def test_the_page_of_a_job_says_so() -> None:
    shown = sampled()
    rows = texts(JobPage(shown, ViewState(), shown.window.jobs[0], Charts(), 120, sort=Sort()).rows(40))
    assert any(" sampled   30%" in row for row in rows)


def test_the_page_of_a_gpu_tells_the_error() -> None:
    assert any("118 stacks sampled · wait between 22 and 38%" in row for row in page_of_gpu(sampled()))
    assert any("too few samples yet" in row for row in page_of_gpu(sampled(5)))


def page_of_gpu(shown: Frame) -> list[str]:
    chosen = shown.window.last.gpus[0]
    return texts(DetailPage(shown, ViewState(gpu=chosen.uuid), chosen, Charts(), 120).rows(40))
