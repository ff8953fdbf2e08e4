"""What must not grow dear unnoticed, counted instead of timed: driver calls, bytes, imports, rows, memory.

``python -m tests.bench`` measures the time.
"""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Callable

import pytest

import builders
from builders import ListSource
from fakenvml import GIB, FakeDriver, Process, h100
from gpumon.history import History
from gpumon.monitor import frames
from gpumon.rings import Ring
from gpumon.rules import RULES
from gpumon.sources.demo import simulate
from gpumon.sources.nvml.devices import Selection
from gpumon.sources.nvml.session import Session
from gpumon.ui.board import changed_spans, fit
from gpumon.ui.layout import Layout
from gpumon.ui.painter import Painter
from gpumon.ui.palette import Palette
from gpumon.ui.view import ViewState
from terminal import default_environment, python

NVITOP_CALLS_PER_S = 125
"""What nvitop 1.7.2 asks of the same driver with 8 GPUs and 64 processes."""
NVITOP_BYTES_PER_S = 750
"""What it sends to a terminal of 120×40 in the same run."""


def test_driver_calls(fake_driver: Callable[..., FakeDriver]) -> None:
    """A minute of eight GPUs: fewer calls than nvitop makes, and lists of processes every two seconds only."""
    driver = fake_driver([h100()] * 8)
    for gpu in range(8):
        driver.set_processes(gpu, [Process(1000 + 10 * gpu + number, GIB, 10) for number in range(8)])
    driver.load_in_process()
    session = Session(Selection(None), deque())
    try:
        began_s = time.monotonic()
        before = driver.counts()
        for second in range(1, 61):
            for gpu in session.gpus:
                gpu.read(began_s + second)
        made = driver.counts() - before
    finally:
        session.end()
    assert 50 < made.total() / 60 < NVITOP_CALLS_PER_S
    lists = sum(count for name, count in made.items() if "RunningProcesses" in name)
    assert lists <= 8 * (30 + 6 + 2)  # computing every 2 s, drawing every 10 s


def test_bytes_of_a_steady_screen() -> None:
    """Charts that scroll, numbers that change: no more bytes a second than nvitop sends."""
    sent: list[str] = []

    class Output:
        has_sync = False
        is_stalled = False

        def write(self, data: str) -> None:
            sent.append(data)

    class EverywherePainter(Painter):
        def may_paint(self, board: object) -> bool:
            return True

    painter = EverywherePainter(Output(), Palette("dark", 256))
    layout, view = Layout(), ViewState()
    shown: list[tuple[tuple[str, str], ...]] = []
    source = ListSource(simulate("throttled", 130.0, at_s=300.0), name="throttled")
    for number, frame in enumerate(frames(source, rules=RULES)):
        rows = [fit(row, 120) for row in layout.rows(frame, view, 120, 40)]
        spans = [
            span
            for y, (old, new) in enumerate(zip(shown, rows, strict=False))
            if old is not new
            for span in changed_spans(y, old, new)
        ]
        if number >= 70 and spans:
            painter.paint(None, rows, spans)  # type: ignore[arg-type]
        shown = rows
    assert 50 < sum(map(len, sent)) / 60 < NVITOP_BYTES_PER_S


def test_rows_that_have_not_changed_are_the_same_objects() -> None:
    """Nothing but the clock moves: all rows but the title's and those of charts that go on are handed out again."""
    layout, view = Layout(), ViewState(span_s=3600.0)
    gpus = [builders.gpu(index, utilization_pct=97.0) for index in range(8)]
    source = ListSource([builders.snapshot(builders.NOON + second, gpus=gpus) for second in range(90)])
    new = []
    before: list[object] = []
    for frame in frames(source, rules=()):
        rows = layout.rows(frame, view, 120, 40)
        new.append(sum(one is not other for one, other in zip(rows, before, strict=False)))
        before = list(rows)
    assert len(before) == 40
    # The title's clock, and the headline's duration while it is told in seconds.
    steady = new[65:]
    assert sorted(steady)[len(steady) // 2] <= 2
    assert sum(steady) / len(steady) < 6


@pytest.mark.parametrize(
    ("verb", "unwanted"),
    [
        ("--version", {"argparse", "msgspec", "pynvml", "gpumon.cli"}),
        ("once", {"asyncio", "logging", "textual", "psutil", "gpumon.rules", "gpumon.history", "gpumon.sources.live"}),
    ],
)
def test_imports(fake_driver: Callable[..., FakeDriver], verb: str, unwanted: set[str]) -> None:
    """Verbs without a screen are over before what they do not need would be loaded."""
    code = (
        "import sys; from gpumon.__main__ import main; "
        f"sys.argv = ['gpumon', {verb!r}]; main(); "
        f"print(sorted({unwanted!r} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**default_environment(), **fake_driver([h100()]).env}
    done = subprocess.run(python("-c", code), env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_a_young_history_is_small() -> None:
    """Memory is taken as the history fills, not for a day in advance; and none for what never changes."""
    ring = Ring(40, 3600, first=10_000)
    for row in range(10_000, 10_200):
        ring.write(row, [float(row)] * 15 + [1.0] * 25)
    assert [len(column) for column in ring._columns.values()] == [256] * 15


def test_a_table_that_has_not_changed_is_kept() -> None:
    """The very same table again, and then another: their series are those of processes that were read each time."""
    history = History()
    tables = [tuple(builders.process(pid, cpu_pct=pct) for pid in (1, 2)) for pct in (40.0, 70.0)]
    for second in range(10):
        window = history.append(builders.snapshot(builders.NOON + second, processes=tables[second // 6]))
    assert window.series(tables[0][1], "cpu_pct", 60) == [40.0] * 6 + [70.0] * 4
