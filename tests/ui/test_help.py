"""The page of keys."""

from __future__ import annotations

from typing import Any

import pytest
from textual.binding import Binding
from textual.pilot import Pilot

from builders import frame
from gpumon.ui.app import GpumonApp
from gpumon.ui.screens.detail import DetailScreen
from gpumon.ui.screens.help import LEFT, RIGHT, help_rows
from gpumon.ui.screens.job import JobScreen
from gpumon.ui.view import ViewState
from ui.stage import lines, play, text

BOUND = {
    "↑": "up", "↓": "down", "←": "left", "→": "right", "PgUp": "pageup", "PgDn": "pagedown", "Home": "home",
    "End": "end", "+": "plus", "-": "minus", "<": "less_than_sign", ">": "greater_than_sign", "Space": "space",
    "Enter": "enter", "Esc": "escape", "?": "question_mark", "F9": "f9", "Ctrl-L": "ctrl+l", "Ctrl-Z": "ctrl+z",
    "Tab": "tab", ",": "comma", ".": "full_stop",
}  # fmt: skip
"""How the page writes a key, and how Textual calls it."""
UNWRITTEN = {"ctrl+c", "h", "f1", "A", "equals_sign", "shift+tab", "shift+left", "shift+right", *"12345678"}
"""Second names of keys that are on the page."""


def bound() -> set[str]:
    """Every key of the program: the app's, and what the screens of a GPU and of a job add."""
    every = [*GpumonApp.BINDINGS, *DetailScreen.BINDINGS, *JobScreen.BINDINGS]
    names = [one.key if isinstance(one, Binding) else one[0] for one in every]
    return {key for name in names for key in name.split(",")}


def written() -> set[str]:
    """Every key on the page."""
    keys: set[str] = set()
    for _, entries in (*LEFT, *RIGHT):
        for names, _ in entries:
            for name in names.replace("…", " ").replace("↑↓", "↑ ↓").replace("←→", "← →").split():
                keys.add(BOUND.get(name, name))
    return keys


def test_the_page_lists_exactly_the_keys_that_work() -> None:
    """Each key on the page is bound, and each bound key is on the page or a second name of one."""
    assert written() - bound() == set()
    assert bound() - written() - UNWRITTEN == set()


def test_it_fits_eighty_by_twenty_four_with_its_way_out() -> None:
    """One page: title with the way back, all sections, the legend, quit."""
    told = lines(help_rows(ViewState(), 80, 24))
    assert len(told) == 24
    assert max(map(len, told)) <= 80
    assert told[0].endswith("Esc or ? closes ")
    for section in ("MOVE", "TIME", "LOOK", "ACT"):
        assert any(section in line for line in told)
    assert told[-1].startswith(" q quit")
    assert any("█ useful █ waits for data █ throttled █ waits for a GPU" in line for line in told)


def test_without_colour_the_legend_shows_the_shades() -> None:
    """Fills are told apart by shade, in ASCII by letter."""
    assert any(
        "█ useful ▒ waits for data ▓ throttled ░ waits" in line
        for line in lines(help_rows(ViewState(has_color=False), 80, 24))
    )
    assert any(
        "# useful w waits for data T throttled p waits" in line
        for line in lines(help_rows(ViewState(tier="ascii"), 80, 24))
    )


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 24), (80, 24), (200, 60)])
def test_every_line_can_be_reached_at_every_size(size: tuple[int, int]) -> None:
    """Where the page is higher than the screen, j reaches its end; Esc leaves."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        seen: set[str] = set()
        before: list[str] = []
        while text(app) != before:
            before = text(app)
            assert len(before) == size[1]
            seen |= {line.strip() for line in before}
            await pilot.press("j")
        assert any("quit, fro" in line for line in seen)
        assert any("i      sampling" in line or "i        sampling" in line for line in seen)
        await pilot.press("escape")
        assert type(app.screen).__name__ == "Overview"

    play(frame(), story, size=size)
