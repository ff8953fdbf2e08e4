"""Redraw ``screenshots/``: the real program on the demo's scenarios, its cells as pictures.

    python tests/make_screenshots.py [NAME …] [--to FOLDER]

Needs Pillow and a monospaced font. The clock is the demo's own, so that the same code gives the same pictures.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "screenshots")]

import msgspec  # noqa: E402
import render  # noqa: E402 - the tests' folders are not a package

from gpumon.config import Config  # noqa: E402
from gpumon.model import Snapshot  # noqa: E402
from gpumon.monitor import Frame, frames  # noqa: E402
from gpumon.rules import RULES  # noqa: E402
from gpumon.sources.demo import simulate  # noqa: E402
from gpumon.ui.app import GpumonApp  # noqa: E402
from gpumon.ui.board import BoardScreen  # noqa: E402
from gpumon.ui.glyphs import Tier  # noqa: E402
from gpumon.ui.palette import Palette, Theme  # noqa: E402
from gpumon.ui.row import Row  # noqa: E402
from gpumon.ui.view import ViewState  # noqa: E402

SECONDS = 631.0
START_S = 1_796_134_111.0 - SECONDS
"""The pictures are taken at 14:08:31 UTC."""


class Shot(NamedTuple):
    """One picture: what is simulated, how large, which keys are typed before it is taken."""

    scenario: str
    size: tuple[int, int]
    keys: tuple[str, ...] = ()
    theme: Theme = "dark"
    tier: Tier = "blocks"


SHOTS: dict[str, Shot] = {
    "throttled-120x40": Shot("throttled", (120, 40)),
    "throttled-120x40-light": Shot("throttled", (120, 40), theme="light"),
    "throttled-200x60": Shot("throttled", (200, 60)),
    "starved-80x24": Shot("input-bound", (80, 24)),
    "many-120x40": Shot("many", (120, 40)),
    "detail-120x40": Shot("throttled", (120, 40), ("5", "enter")),
    "detail-120x40-light": Shot("throttled", (120, 40), ("5", "enter"), theme="light"),
    "detail-80x24": Shot("throttled", (80, 24), ("5", "enter")),
    "detail-80x24-mono": Shot("throttled", (80, 24), ("5", "enter"), theme="mono"),
    "detail-80x24-ascii": Shot("throttled", (80, 24), ("5", "enter"), theme="mono", tier="ascii"),
    "detail-200x60": Shot("throttled", (200, 60), ("5", "enter")),
    "job-120x40": Shot("hang", (120, 40), ("tab", "enter")),
    "job-80x24": Shot("hang", (80, 24), ("tab", "enter")),
    "probed-detail-120x40": Shot("fragmented", (120, 40), ("enter",)),
    "probed-120x40": Shot("fragmented", (120, 40)),
    "alerts-120x40": Shot("throttled", (120, 40), ("a",)),
    "alerts-80x24": Shot("input-bound", (80, 24), ("e",)),
    "help-80x24": Shot("throttled", (80, 24), ("question_mark",)),
}
"""Those in ``screenshots/`` and those that are looked at only, by ``--to``."""
KEPT = (
    "throttled-120x40", "throttled-120x40-light", "starved-80x24", "many-120x40", "detail-120x40", "job-120x40",
    "alerts-120x40", "alerts-80x24", "help-80x24",
)  # fmt: skip


class Trace:
    """A simulated run as a source that never waits."""

    kind = "demo"

    def __init__(self, scenario: str) -> None:
        """Until the moment of the picture."""
        self.name = scenario

    def __iter__(self) -> Iterator[Snapshot]:
        """Every second from the beginning."""
        return simulate(self.name, SECONDS, start_s=START_S)

    def close(self) -> None:
        """Nothing is open."""


def newest(scenario: str) -> Frame:
    """The last frame of a scenario."""
    for frame in frames(Trace(scenario), rules=RULES):
        last = frame
    return msgspec.structs.replace(last, sample_ms=4.0)


async def take(shot: Shot, frame: Frame) -> list[Row]:
    """The rows that the program shows after the keys."""
    palette = Palette(shot.theme)
    view = ViewState(tier=shot.tier, has_color=palette.has_color, self_cpu_pct=0.3)
    app = GpumonApp(None, Config(), view, palette)
    async with app.run_test(size=shot.size) as pilot:
        app.call_later(app.take, frame)
        await pilot.pause()
        for key in shot.keys:
            await pilot.press(key)
        app.change(self_cpu_pct=0.3)
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, BoardScreen)
        return list(screen.board.rows)


def main(arguments: Sequence[str]) -> None:
    """Draw the named pictures, by default those that are kept."""
    os.environ["TZ"] = "UTC"
    time.tzset()
    names = list(arguments)
    folder = ROOT / "screenshots"
    if "--to" in names:
        at = names.index("--to")
        folder = Path(names[at + 1])
        del names[at : at + 2]
        names = names or list(SHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[str, Frame] = {}
    for name in names or KEPT:
        shot = SHOTS[name]
        if shot.scenario not in known:
            known[shot.scenario] = newest(shot.scenario)
        rows = asyncio.run(take(shot, known[shot.scenario]))
        render.write(rows, folder / f"{name}.png", Palette(shot.theme))
        sys.stdout.write(f"{folder / name}.png\n")


if __name__ == "__main__":
    main(sys.argv[1:])
