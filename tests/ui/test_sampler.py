"""The first picture comes before the rules, and the verdict right after it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
from scenes import texts

from builders import ListSource, gpu, snapshot, snapshots
from gpumon.alerts import MuteList
from gpumon.config import Config
from gpumon.model import Snapshot
from gpumon.monitor import Frame, frames
from gpumon.ui import sampler as module
from gpumon.ui.app import GpumonApp
from gpumon.ui.layout import Layout
from gpumon.ui.palette import Palette
from gpumon.ui.sampler import Sampler
from gpumon.ui.view import ViewState

LOST = snapshot(gpus=(gpu(is_lost=True),))
"""Something that is wrong at once."""


class Source(ListSource):
    """A source for the sampler; each snapshot is asked for after the one before it was handed out."""

    interval_s = 1.0

    def __init__(self, series: Iterable[Snapshot], *, is_catching_up: bool = False) -> None:
        super().__init__(series)
        self.is_catching_up = is_catching_up


def started(source: Source) -> tuple[Sampler, list[Frame], threading.Event]:
    """A sampler at work, the frames it hands out, and an event for each of them."""
    sampler = Sampler(lambda: source, Config(), MuteList())
    shown: list[Frame] = []
    news = threading.Event()

    def show(frame: Frame) -> bool:
        shown.append(frame)
        news.set()
        return True

    sampler.attach(show, lambda _: True)
    sampler.start()
    return sampler, shown, news


def test_first_values_come_unjudged_and_the_verdict_follows_the_picture() -> None:
    """The same window twice: the second time after the screen has said that its picture is there."""
    sampler, shown, news = started(Source([LOST]))
    assert news.wait(10.0)
    (first,) = shown
    assert not first.is_judged
    assert not first.alerts
    assert first.headline.state == "starting"
    news.clear()
    assert not news.wait(0.2)
    sampler.pictured.set()
    assert news.wait(10.0)
    assert shown[1].is_judged
    assert shown[1].window is first.window
    assert [alert.finding.rule for alert in shown[1].alerts] == ["gpu-lost"]
    assert shown[1].headline.state == "critical"


def test_before_the_verdict_the_screen_does_not_say_that_all_is_well() -> None:
    """Nor does it say afterwards, with the same numbers, what it said before."""
    drawing = Layout()
    looked, judged = frames(ListSource([snapshot()]), looks_first=True)
    before, after = ("\n".join(texts(drawing.rows(one, ViewState(), 120, 40))) for one in (looked, judged))
    assert "Nothing is judged yet." in before
    assert "No alert" not in before
    assert "HEALTHY" not in before
    assert "No alert in 0 s." in after
    assert "judged" not in after.replace("judged from", "")


def test_no_picture_holds_up_the_verdict_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that takes no bytes: sampling and judging go on after a while."""
    monkeypatch.setattr(module, "PICTURE_S", 0.05)
    _, shown, _ = started(Source([LOST, LOST, LOST]))
    for _ in range(100):
        if len(shown) == 4:
            break
        threading.Event().wait(0.1)
    assert [frame.is_judged for frame in shown] == [False, True, True, True]


def test_what_is_caught_up_with_is_not_looked_at_first() -> None:
    """Of a recording that is read to its end only the end is shown, judged."""

    class Recording(Source):
        def __iter__(self) -> Iterator[Snapshot]:
            yield LOST
            yield LOST
            self.is_catching_up = False
            yield LOST

    _, shown, news = started(Recording([], is_catching_up=True))
    assert news.wait(10.0)
    assert [frame.is_judged for frame in shown] == [True]


def test_nothing_that_the_first_picture_needs_loads_the_rules() -> None:
    """Screen, sampler and live source together: of the rules' folder only what the panels share with them."""
    program = """
import sys
import gpumon.cli, gpumon.ui.run, gpumon.ui.app, gpumon.sources.live, gpumon.sources.host.reader, gpumon.config
from gpumon.monitor import Monitor
Monitor()
print(*sorted(name for name in sys.modules if name.startswith("gpumon.rules.")))
print(*sorted({"tomllib", "tomli", "plotext"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    rules, others = done.stdout.splitlines()
    assert "gpumon.rules.registry" not in rules.split()
    assert len(rules.split()) <= 6
    assert not others


def test_what_is_wrong_at_the_start_does_not_ring_and_keys_wait_for_the_verdict() -> None:
    """`e` typed at once explains the alert that the first values do not show yet; no bell for what was found."""
    looked, judged = frames(ListSource([LOST]), looks_first=True)

    async def run() -> None:
        app = GpumonApp(None, Config(), ViewState(), Palette("dark", 256))
        rung: list[int] = []
        app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
        async with app.run_test(size=(120, 40)) as pilot:
            app.call_later(app.take, looked)
            await pilot.pause()
            assert "STARTING" in _row(app, 1)
            await pilot.press("e")
            assert type(app.screen).__name__ == "Overview"
            app.call_later(app.take, judged)
            await pilot.pause()
            await pilot.pause()
            assert type(app.screen).__name__ == "AlertsScreen"
            assert not rung
            app.call_later(app.take, msgspec.structs.replace(judged))
            await pilot.pause()
            assert not rung

    asyncio.run(run())


def _row(app: Any, y: int) -> str:
    return "".join(text for text, _ in app.screen.board.rows[y])


def test_a_fault_in_drawing_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames come past Textual's messages: what goes wrong with one still ends the screen, and is raised after it."""

    async def run() -> None:
        sampler = Sampler(lambda: Source([LOST]), Config(), MuteList())
        app = GpumonApp(sampler, Config(), ViewState(), Palette("dark", 256))
        monkeypatch.setattr(app, "draw", lambda: 1 / 0)
        async with app.run_test(size=(120, 40)) as pilot:
            sampler.start()
            await pilot.pause()
            for _ in range(1000):
                if app.failure is not None:
                    break
                await asyncio.sleep(0.01)
        assert isinstance(app.failure, ZeroDivisionError)
        assert not app.is_running

    asyncio.run(run())


def test_of_frames_that_come_faster_than_they_are_drawn_the_newest_is_drawn() -> None:
    """Ten frames handed over at once: one picture; a closed screen takes none."""
    handed = list(frames(ListSource(snapshots(10)), rules=()))

    async def run() -> None:
        sampler = Sampler(lambda: Source([]), Config(), MuteList())
        app = GpumonApp(sampler, Config(), ViewState(), Palette("dark", 256))
        async with app.run_test(size=(120, 40)) as pilot:
            show = sampler._show
            assert show is not None
            drawn: list[Frame | None] = []
            app.draw = lambda: drawn.append(app.frame)  # type: ignore[method-assign]
            assert all(show(frame) for frame in handed)
            await pilot.pause()
            assert drawn == [handed[-1]]
        assert not show(handed[0])

    asyncio.run(run())
