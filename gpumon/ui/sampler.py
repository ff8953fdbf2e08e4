"""The thread on which sampling and judging happen; knows nothing of Textual, so that it starts before it.

A daemon thread of our own, not a Textual worker: workers are joined on exit, and a driver call may hang for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from gpumon.alerts import MuteList
from gpumon.config import Config
from gpumon.monitor import Frame, frames
from gpumon.sources import Source

PICTURE_S = 2.0
"""How long the rules wait for the first picture; a screen that takes longer gets its verdict with it."""


class PacedSource(Source, Protocol):
    """A source whose pace can be changed while it runs."""

    interval_s: float
    is_catching_up: bool
    """The newest snapshot belongs to a past that comes in one burst, faster than it could be drawn."""


class Sampler:
    """Makes frames from a source, holds the newest one, and hands each to the screen once there is one."""

    def __init__(self, make_source: Callable[[], PacedSource], config: Config, mutes: MuteList) -> None:
        """``make_source`` is called on the sampler's thread: it may take as long as the driver needs."""
        self._make_source = make_source
        self._config = config
        self._mutes = mutes
        self._source: PacedSource | None = None
        self._show: Callable[[Frame], bool] | None = None
        self._fail: Callable[[Exception], bool] | None = None
        self._is_stopped = False
        self._has_begun = threading.Event()
        self.pictured = threading.Event()
        """The first values are on the screen: what they did not need, the rules above all, is loaded now."""
        self.latest: Frame | None = None
        self.error: Exception | None = None

    def start(self) -> None:
        """Begin; returns at once."""
        threading.Thread(target=self._run, name="gpumon-sampler", daemon=True).start()

    def wait_for_first(self, seconds: float) -> Frame | None:
        """The first frame if it is there by then; raises what has ended sampling before it."""
        self._has_begun.wait(seconds)
        if self.error is not None:
            raise self.error
        return self.latest

    def attach(self, show: Callable[[Frame], bool], fail: Callable[[Exception], bool]) -> None:
        """Hand frames to a screen from now on; ``show`` answers False once the screen is closed."""
        self._fail = fail
        self._show = show
        if self.error is not None:
            fail(self.error)
        elif self.latest is not None:
            show(self.latest)

    def set_interval(self, interval_s: float) -> None:
        """Sample at another pace from the next sample on."""
        if self._source is not None:
            self._source.interval_s = interval_s

    def stop(self) -> None:
        """End soon, without waiting for it: the driver may hang."""
        self._is_stopped = True
        self.pictured.set()
        source = self._source
        if source is not None:
            threading.Thread(target=source.close, name="gpumon-close", daemon=True).start()

    def _run(self) -> None:
        try:
            self._source = source = self._make_source()
            try:
                self._sample(source)
            finally:
                source.close()
        except Exception as error:  # noqa: BLE001 - raised again on the screen's thread, with its traceback
            self.error = error
            self._has_begun.set()
            if self._fail is not None:
                self._fail(error)

    def _sample(self, source: PacedSource) -> None:
        config = self._config
        for frame in frames(
            source,
            limits=config.rules,
            muted_rules=frozenset(config.mute),
            mutes=self._mutes,
            looks_first=True,
        ):
            if self._is_stopped:
                return
            if source.is_catching_up:
                self._has_begun.set()  # there is a past to go through: no first frame soon
                continue
            self.latest = frame
            self._has_begun.set()
            if self._show is not None and not self._show(frame):
                return
            if not self.pictured.wait(PICTURE_S):
                self.pictured.set()
