"""What each key does, on frames of the demo, without a thread or a terminal."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.config import Config
from gpumon.monitor import Frame, frames
from gpumon.sources.demo import DemoSource
from gpumon.ui import selection
from gpumon.ui.app import GpumonApp
from gpumon.ui.palette import Palette
from gpumon.ui.view import ViewState

Story = Callable[[GpumonApp, Pilot[Any]], Awaitable[None]]


@pytest.fixture(scope="module")
def throttled() -> list[Frame]:
    """The last frames of ten minutes with eight GPUs, one of which throttles."""
    source = DemoSource("throttled", now=lambda: 1_796_126_400.0)
    backlog = 1 + 480 // 2 + 120
    return list(itertools.islice(frames(source), backlog - 3, backlog))


def play(given: list[Frame], story: Story, config: Config | None = None, view: ViewState | None = None) -> None:
    """Run the story on an app that shows the first of the frames."""

    async def run() -> None:
        app = GpumonApp(None, config or Config(), view or ViewState(), Palette("dark", 256))
        async with app.run_test(size=(120, 40)) as pilot:
            app.call_later(app.take, given[0])
            await pilot.pause()
            await story(app, pilot)

    asyncio.run(run())


def top(app: GpumonApp) -> str:
    """Which screen is on top."""
    return type(app.screen).__name__


def test_keys_before_the_first_frame_wait_for_it(throttled: list[Frame]) -> None:
    """`3`, Enter while the driver has not answered yet: GPU 3's detail opens with the first frame; `?` at once."""

    async def run() -> None:
        app = GpumonApp(None, Config(), ViewState(), Palette("dark", 256))
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press("3", "enter", "question_mark")
            assert top(app) == "HelpScreen"
            await pilot.press("escape")
            app.call_later(app.take, throttled[0])
            await pilot.pause()
            await pilot.pause()
            assert top(app) == "DetailScreen"
            assert app.view.gpu == throttled[0].window.last.gpus[3].uuid

    asyncio.run(run())


@pytest.mark.parametrize(
    ("keys", "screens"),
    [
        (["question_mark", "question_mark"], ["HelpScreen", "Overview"]),
        (["h", "escape"], ["HelpScreen", "Overview"]),
        (["f1", "escape", "escape"], ["HelpScreen", "Overview", "Overview"]),
        (["a", "a"], ["AlertsScreen", "Overview"]),
        (["A", "escape"], ["AlertsScreen", "Overview"]),
        (["enter", "escape"], ["DetailScreen", "Overview"]),
        (["enter", "n", "a", "escape"], ["DetailScreen", "DetailScreen", "AlertsScreen", "DetailScreen"]),
        (["tab", "enter", "escape"], ["Overview", "JobScreen", "Overview"]),
        (
            ["tab", "enter", "enter", "escape", "a", "escape"],
            ["Overview", "JobScreen", "DetailScreen", "JobScreen", "AlertsScreen", "JobScreen"],
        ),
    ],
)
def test_screens_open_and_close(throttled: list[Frame], keys: list[str], screens: list[str]) -> None:
    """The key that opens a screen closes it; Escape goes one back and does nothing on a bare overview."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        seen = []
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
            seen.append(top(app))
        assert seen == screens

    play(throttled, story)


@pytest.mark.parametrize(
    ("keys", "index"),
    [
        (["down"], 1),
        (["j", "j", "k"], 1),
        (["up"], 0),
        (["end"], 7),
        (["end", "pageup"], 0),
        (["5"], 5),
        (["5", "n"], 6),
        (["5", "p"], 4),
        (["9"], 0),
        (["end", "home"], 0),
    ],
)
def test_moving_selects_a_gpu(throttled: list[Frame], keys: list[str], index: int) -> None:
    """Selection follows the key, stops at both ends, and is kept by UUID."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        assert selection.selected(throttled[0], app.view, "gpus") == index
        app.call_later(app.take, throttled[1])
        await pilot.pause()
        assert selection.selected(throttled[1], app.view, "gpus") == index

    play(throttled, story)


def test_tab_moves_the_focus_to_jobs(throttled: list[Frame]) -> None:
    """Tab goes to the next part that has rows; up and down move there."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "down", "down")
        assert app.view.part == "jobs"
        assert app.view.process == selection.processes(throttled[0])[2]
        await pilot.press("shift+tab")
        assert app.view.part == "gpus"

    play(throttled, story)


@pytest.mark.parametrize(
    ("keys", "span_s"),
    [(["plus"], 1200), (["equals_sign"], 1200), (["minus"], 300), (["minus"] * 9, 60), (["plus"] * 20, 360_000)],
)
def test_span(throttled: list[Frame], keys: list[str], span_s: float) -> None:
    """+ = lengthen and - shortens the span along the ladder, to its ends."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)
        assert app.view.span_s == span_s

    play(throttled, story)


def test_scrolling_back_and_to_now(throttled: list[Frame]) -> None:
    """< goes back by blocks, > forward and never past now; End and Escape return to now."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("less_than_sign", "less_than_sign", "greater_than_sign")
        assert app.view.scroll_blocks == 1
        await pilot.press("end")
        assert app.view.scroll_blocks == 0
        await pilot.press("greater_than_sign")
        assert app.view.scroll_blocks == 0
        await pilot.press("less_than_sign", "escape")
        assert app.view.scroll_blocks == 0

    play(throttled, story)


def test_pause_holds_the_picture(throttled: list[Frame]) -> None:
    """Space holds the shown frame while newer ones come; Space again shows the newest."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        assert app.view.paused_at_s == throttled[0].window.last.time_s
        app.call_later(app.take, throttled[1])
        await pilot.pause()
        assert app.frame is not None
        assert app.frame.window is throttled[0].window
        await pilot.press("space")
        assert app.frame is throttled[1]
        assert app.view.paused_at_s is None

    play(throttled, story)


def test_interval_cycles_and_says_so(throttled: list[Frame]) -> None:
    """I goes through 0.5 1 2 5 s and answers with a toast."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        seen = []
        for _ in range(4):
            await pilot.press("i")
            seen.append((app.view.interval_s, app.view.toast))
        assert seen == [(2.0, "interval 2 s"), (5.0, "interval 5 s"), (0.5, "interval 0.5 s"), (1.0, "interval 1 s")]

    play(throttled, story)


def test_read_only_never_offers_a_signal(throttled: list[Frame]) -> None:
    """K and F9 open the dialog, with --read-only they say why not."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("K", "f9"):
            await pilot.press(key)
            assert top(app) == "Overview"
            assert app.view.toast == "read-only: no process can be signalled"

    async def other(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("K")
        await pilot.pause()
        assert top(app) == "SignalScreen"
        await pilot.press("escape")
        await pilot.pause()
        assert top(app) == "Overview"

    play(throttled, story, view=ViewState(is_read_only=True))
    play(throttled, other)


def test_fix_is_shown_where_it_may_not_be_copied(throttled: list[Frame]) -> None:
    """Y shows the fix's command on a line of its own; with `clipboard = true` the terminal gets it."""
    command = throttled[0].alerts[0].finding.command
    assert command is not None
    assert re.fullmatch(r"nvidia-smi -i \d+ -pl \d+", command)

    async def shown(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("y")
        assert app.view.toast == command

    async def copied(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("y")
        assert app.view.toast == "fix copied"
        assert app.clipboard == command

    play(throttled, shown)
    play(throttled, copied, config=Config(clipboard=True))


def test_muting_asks_for_how_long(throttled: list[Frame]) -> None:
    """M on the overview is about the headline's alert; the answer reaches the fold's list."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("m")
        await pilot.pause()
        assert top(app) == "MuteScreen"
        await pilot.press("enter")
        await pilot.pause()
        assert [mute.rule for mute in app.mutes.mutes] == [throttled[0].alerts[0].finding.rule]
        assert top(app) == "Overview"

    play(throttled, story)


def test_why_shows_the_headlines_alert(throttled: list[Frame]) -> None:
    """E opens the diagnosis of the headline's alert; Enter there opens its GPU."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("e")
        await pilot.pause()
        assert top(app) == "AlertsScreen"
        await pilot.press("enter")
        await pilot.pause()
        assert top(app) == "DetailScreen"
        assert app.view.gpu == throttled[0].alerts[0].finding.subject.uuid

    play(throttled, story)


@pytest.mark.parametrize(("config", "rings"), [(Config(), 1), (Config(bell=False), 0)])
def test_bell_rings_once_for_a_new_critical_alert(config: Config, rings: int) -> None:
    """One ring when the alert fires, none for its updates, none for what the first frame brought, none when off."""
    source = DemoSource("throttled", now=lambda: 1_796_126_400.0)
    before, *after = turn_critical(frames(source))

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        rung = []
        app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
        for frame in after:
            app.call_later(app.take, frame)
            await pilot.pause()
        assert len(rung) == rings

    play([before], story, config=config)
    play([after[0]], lambda app, pilot: story_without_ring(app, pilot, after[1:]))


async def story_without_ring(app: GpumonApp, pilot: Pilot[Any], later: list[Frame]) -> None:
    """What was there already when the program opened does not ring."""
    rung = []
    app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
    for frame in later:
        app.call_later(app.take, frame)
        await pilot.pause()
    assert not rung


def turn_critical(told: Iterator[Frame]) -> list[Frame]:
    """The last frame before the first critical alert, and three from there on."""
    before = next(told)
    for frame in told:
        if frame.headline.state == "critical":
            return [before, frame, next(told), next(told)]
        before = frame
    raise AssertionError("never critical")


def test_new_critical_takes_the_headline_of_a_paused_picture() -> None:
    """Paused, the picture stays and the headline does not lie about now."""
    source = DemoSource("throttled", now=lambda: 1_796_126_400.0)
    before, critical, *_ = turn_critical(frames(source))

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        app.call_later(app.take, critical)
        await pilot.pause()
        assert app.frame is not None
        assert app.frame.window is before.window
        assert app.frame.headline is critical.headline

    play([before], story)


def test_quit_from_every_screen(throttled: list[Frame]) -> None:
    """Q ends the program, whatever is on top, a dialog too."""
    for keys in ([], ["question_mark"], ["a"], ["enter"], ["K"], ["tab", "enter"]):

        async def story(app: GpumonApp, pilot: Pilot[Any], keys: list[str] = keys) -> None:
            await pilot.press(*keys)
            await pilot.pause()
            await pilot.press("q")
            await pilot.pause()
            assert not app.is_running or app._exit

        play(throttled, story)


def test_nothing_breaks_before_the_first_frame() -> None:
    """Every key may be pressed while the driver has not answered yet."""

    async def run() -> None:
        app = GpumonApp(None, Config(), ViewState(), Palette("dark", 256))
        async with app.run_test(size=(80, 24)) as pilot:
            keys = "up j pagedown home end tab 3 enter plus minus less_than_sign space i n o m y K e right left".split()
            await pilot.press(*keys)
            await pilot.pause()
            assert top(app) == "Overview"
            assert app.frame is None

    asyncio.run(run())
