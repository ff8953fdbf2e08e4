"""The painter and Textual agree on every cell, whatever lies over the board."""

from __future__ import annotations

from pathlib import Path

import pytest

from terminal import PtyProgram, default_environment, python

PROGRAM = str(Path(__file__).with_name("screen_program.py"))
F2, F3, F4 = b"\x1bOQ", b"\x1bOR", b"\x1bOS"


def screen(*options: str, **environment: str) -> PtyProgram:
    """The screen at ten frames a second."""
    command = python("-W", "error", PROGRAM, "interval=0.1", "gpus=8", *options)
    program = PtyProgram(command, width=80, height=24, environment=default_environment(**environment))
    program.wait_for("self")
    return program


def differing_cells(program: PtyProgram) -> list[tuple[int, int]]:
    """Cells that a full repaint by Textual changes while the picture is held; the footer lives on and is left out."""
    program.type(" ")
    program.read(0.2)
    program.read_until_quiet()
    before = program.cells()[:-1]
    program.type(b"\x0c")
    program.read(0.2)
    program.read_until_quiet()
    after = program.cells()[:-1]
    program.type(" ")
    return [
        (y, x)
        for y, (old, new) in enumerate(zip(before, after, strict=True))
        for x, (a, b) in enumerate(zip(old, new, strict=True))
        if a != b
    ]


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "linux"}, {"LANG": "C"}])
@pytest.mark.parametrize("rows", ["", "overlay=1"])
def test_painted_screen_is_textuals_screen(environment: dict[str, str], rows: str) -> None:
    """After many painted frames, a repaint by Textual changes no cell: character, colours, bold, reverse."""
    with screen(*filter(None, [rows]), **environment) as program:
        program.read(1.0)
        assert differing_cells(program) == []


def test_agreement_survives_resizing_suspending_and_screens() -> None:
    """The same after other sizes, another screen on top, and back."""
    with screen() as program:
        for width, height in ((60, 20), (120, 40), (20, 5), (80, 24)):
            program.resize(width, height)
            program.read(0.6)
            assert differing_cells(program) == []
        program.type("?")
        program.wait_for("gpumon help")
        program.read(0.5)
        assert differing_cells(program) == []
        program.type("?")
        program.wait_for("node07")
        program.read(0.4)
        assert differing_cells(program) == []


@pytest.mark.parametrize("cover", [F2, F3])
def test_nothing_is_painted_over_what_covers_the_board(cover: bytes) -> None:
    """Under a toast or a dialog the painter leaves the screen to Textual."""
    with screen("overlay=1") as program:
        program.type(cover)
        program.wait_for("a toast over" if cover == F2 else "a dialog over")
        program.read(1.0)
        assert differing_cells(program) == []


def test_without_its_guard_the_painter_is_caught() -> None:
    """The property bites: a painter that never refuses paints over the toast."""
    with screen("overlay=1", "mutant=1") as program:
        program.type(F2)
        program.read(1.0)  # it is painted over at once, so that nobody sees it whole
        assert differing_cells(program)
        assert "a toast over" in program.text


def test_kill_switch_draws_the_same_screen_without_painting() -> None:
    """GPUMON_PAINT=0: Textual draws, the screen shows the same things and follows the frames."""
    with screen(GPUMON_PAINT="0") as program:
        first = program.wait_for("node07")
        program.wait_until(lambda text: text != first, "nothing moves")
        assert differing_cells(program) == []


def test_painting_sends_fewer_bytes() -> None:
    """What the painter is for: the same frames in at most two thirds of the bytes."""
    sent = {}
    for switch in ("0", "1"):
        with screen(GPUMON_PAINT=switch) as program:
            program.read(0.5)
            sent[switch] = len(program.read(3.0))
    assert sent["1"] < sent["0"] * 2 / 3, sent
