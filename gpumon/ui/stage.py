"""How frames reach the screen: drawn when they come, aged when they do not, rung for when they alarm."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from textual.app import ComposeResult
from textual.message import Message

from gpumon.alerts import MuteList
from gpumon.config import Config
from gpumon.monitor import Frame
from gpumon.ui import selection
from gpumon.ui.board import BoardApp, BoardScreen, Brush
from gpumon.ui.opening import Opening
from gpumon.ui.overview import Overview
from gpumon.ui.painter import Painter
from gpumon.ui.palette import Palette
from gpumon.ui.sampler import Sampler
from gpumon.ui.terminal import Terminal, add_signal_handlers
from gpumon.ui.view import Part, ViewState, alert_key

TOAST_S = 3.0
NOTICE_S = 12.0
"""How long the screen says why it shows the demo."""
CPU_WINDOW_S = 5.0


class SamplingFailed(Message):
    """Sampling has ended by an exception."""

    def __init__(self, error: Exception) -> None:
        """The exception as raised on the sampler's thread."""
        super().__init__()
        self.error = error


class CpuMeter:
    """Our own CPU time over the last five seconds."""

    def __init__(self) -> None:
        """Starts counting now: start-up is not what running costs."""
        self._at_s = time.monotonic()
        self._spent_s = time.process_time()
        self.cpu_pct: float | None = None

    def read(self) -> float | None:
        """Percent of one core, renewed every five seconds; None before that."""
        now_s = time.monotonic()
        elapsed_s = now_s - self._at_s
        if elapsed_s >= CPU_WINDOW_S:
            spent_s = time.process_time()
            self.cpu_pct = 100.0 * (spent_s - self._spent_s) / elapsed_s
            self._at_s, self._spent_s = now_s, spent_s
        return self.cpu_pct


class Stage(BoardApp):
    """Holds the newest frame and the view; every screen is drawn from these two."""

    CSS_PATH = Path(__file__).with_name("gpumon.tcss")
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False

    def __init__(
        self,
        sampler: Sampler | None,
        config: Config,
        view: ViewState,
        palette: Palette,
        *,
        mutes: MuteList | None = None,
        opening: Opening | None = None,
        notice: str | None = None,
        can_paint: bool = True,
    ) -> None:
        """Without a sampler the app is a renderer: set ``frame`` and call ``draw``."""
        with _no_color_is_ours():
            super().__init__(driver_class=Terminal, ansi_color=True)
        self.sampler = sampler
        self.config = config
        self.mutes = mutes or MuteList()
        self.opening = opening or Opening()
        self.early: list[str] = []
        """Actions of keys that came before there was anything to act on."""
        self.terminal: Terminal | None = None
        self.failure: Exception | None = None
        """What ended sampling; raised again once the terminal is restored."""
        self._can_paint = can_paint
        self._notice = notice
        self.brush = Brush(palette, is_ascii=view.tier == "ascii")
        self.view = view
        self._newest: Frame | None = None
        self._due: Frame | None = None
        """What the sampler has handed over last."""
        self._rung: frozenset[str] | None = None
        self._meter = CpuMeter()
        self._arrived_s = 0.0
        self._age_timer: asyncio.TimerHandle | None = None
        self._toast_timer: asyncio.TimerHandle | None = None

    # --- life ---

    def compose(self) -> ComposeResult:
        """Nothing: each screen brings its board."""
        return ()

    def get_default_screen(self) -> Overview:
        """The overview is the bottom of the stack."""
        return Overview()

    def on_load(self) -> None:
        """Look after the ways of ending that are not keys."""
        if not self.is_headless:
            add_signal_handlers(asyncio.get_running_loop(), self)

    def on_mount(self) -> None:
        """Take what the sampler has already and everything that it makes from now on."""
        if self.terminal is not None and self._can_paint:
            self.brush = msgspec.structs.replace(self.brush, painter=Painter(self.terminal, self.brush.palette))
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        if self._notice is not None:
            self.toast(self._notice, NOTICE_S)
        if self.sampler is not None:
            self._event_loop = asyncio.get_running_loop()
            self.sampler.attach(self._hand_over, lambda error: self.post_message(SamplingFailed(error)))

    def on_unmount(self) -> None:
        """No timer outlives the loop."""
        for timer in (self._age_timer, self._toast_timer):
            if timer is not None:
                timer.cancel()

    def on_sampling_failed(self, message: SamplingFailed) -> None:
        """End; ``run_app`` raises the error where the command line can answer it."""
        self.failure = message.error
        self.exit()

    # --- frames and drawing ---

    def _hand_over(self, frame: Frame) -> bool:
        """Called by the sampler's thread; False once the screen is closed.

        Straight to the event loop: a message and the idle event behind it take 0.3 ms, a sixth of what drawing takes.
        """
        self._due = frame
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._event_loop.call_soon_threadsafe(self._take_due, frame)
            return self.is_running
        return False

    def _take_due(self, frame: Frame) -> None:
        """Only the newest frame is worth drawing; rules and history have seen them all."""
        if frame is not self._due or not self.is_running:
            return
        try:
            self.take(frame)
        except Exception as error:  # noqa: BLE001 - the event loop would write it on the screen and go on
            self.failure = error
            self.exit()

    def take(self, frame: Frame) -> None:
        """Show the frame, unless the picture is paused; ring for what is new."""
        before = self.frame
        was_judged = self._newest is not None and self._newest.is_judged
        self._newest = frame
        self._arrived_s = time.monotonic()
        if frame.info.kind != "replay":  # a recording's last picture stands for as long as it is looked at
            self._watch_age()
        if frame.is_judged:
            self._ring(frame)
        changes: dict[str, Any] = {}
        if self.view.age_s:
            changes["age_s"] = 0.0
        if self.view.started_s is None:
            changes["started_s"] = frame.window.last.time_s
        self_cpu_pct = self._meter.read()
        if self_cpu_pct != self.view.self_cpu_pct:
            changes["self_cpu_pct"] = self_cpu_pct
        if self.view.paused_at_s is None:
            self.frame = frame
            if before is not None:
                changes |= selection.neighbour(before, frame, self.view, self._part())
        elif frame.headline.state == "critical" and self.frame is not None:
            self.frame = _with_headline(self.frame, frame)
        if changes:
            self._set(**changes)
        self.draw()
        if self.sampler is not None and not self.sampler.pictured.is_set():
            self.call_after_refresh(self.sampler.pictured.set)
        if frame.is_judged and not was_judged:
            for action in self.early:
                self.call_later(self.run_action, action)
            self.call_after_refresh(self._settle)

    def _settle(self) -> None:
        """After the first verdict: what start-up made lives for ever, and what it cost is not what running costs."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(5000, 20, 50)
        gc.enable()
        self._meter = CpuMeter()

    def draw(self) -> None:
        """Bring the top screen up to date; a terminal that takes no bytes is left alone until it does."""
        if self.terminal is not None and self.terminal.is_stalled:
            return
        screen = self.screen
        if isinstance(screen, BoardScreen):
            screen.draw()

    def redraw(self) -> None:
        """Send every cell again, as soon as the terminal takes bytes."""
        if self.terminal is not None and self.terminal.is_stalled:
            self.terminal.owes_redraw = True
            return
        if self.terminal is not None:
            self.terminal.forget()
        self.draw()
        self.screen.refresh()

    def _set(self, **changes: Any) -> None:  # noqa: ANN401 - fields of ViewState
        self.view = msgspec.structs.replace(self.view, **changes)

    def change(self, **changes: Any) -> None:  # noqa: ANN401 - fields of ViewState
        """Another view of the same frame."""
        self._set(**changes)
        self.draw()

    def toast(self, text: str, seconds: float = TOAST_S) -> None:
        """Answer a key in the headline's second row."""
        if self._toast_timer is not None:
            self._toast_timer.cancel()
        self._toast_timer = asyncio.get_running_loop().call_later(seconds, lambda: self.change(toast=None))
        self.change(toast=text)

    def _watch_age(self) -> None:
        """Wake only when the next frame is late: an age that is shown as 0 needs no clock."""
        if self._age_timer is not None:
            self._age_timer.cancel()
        late_s = max(2.0, 2.0 * self.view.interval_s)
        self._age_timer = asyncio.get_running_loop().call_later(late_s, self._grow_old)

    def _grow_old(self) -> None:
        self._age_timer = asyncio.get_running_loop().call_later(1.0, self._grow_old)
        self.change(age_s=float(int(time.monotonic() - self._arrived_s)))

    def _ring(self, frame: Frame) -> None:
        """Ring once for each alert that has become critical since the program started; those it found do not count."""
        critical = frozenset(
            alert_key(alert)
            for alert in frame.alerts
            if alert.finding.severity == "critical"
            and alert.is_firing()
            and alert.muted_until_s is None
            and alert.suppressed_by is None
        )
        known, self._rung = self._rung, (self._rung or frozenset()) | critical
        if known is not None and critical - known and self.config.bell:
            self.bell()

    def _part(self) -> Part:
        """The part that up and down move in."""
        screen = self.screen
        return screen.PART or self.view.part if isinstance(screen, BoardScreen) else self.view.part


@contextlib.contextmanager
def _no_color_is_ours() -> Iterator[None]:
    """Rows have no colour where NO_COLOR is set; Textual would add a filter, which keeps the painter from painting."""
    value = os.environ.pop("NO_COLOR", None)
    yield
    if value is not None:
        os.environ["NO_COLOR"] = value


def _with_headline(held: Frame, newest: Frame) -> Frame:
    """The paused picture under the headline of now: a new critical alert is never hidden."""
    return Frame(
        window=held.window,
        headline=newest.headline,
        info=held.info,
        alerts=held.alerts,
        abstained=held.abstained,
        sample_ms=held.sample_ms,
    )
