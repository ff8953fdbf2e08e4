"""The first picture: there before Textual, the same as Textual's, and gone without a trace whatever happens."""

from __future__ import annotations

import signal
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_terminal import PROGRAM, TAKEN, screen

from terminal import PtyProgram, default_environment, python

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l\x1b[?25h"
HOME = b"\x1b[1;1H"
"""Once in the first picture; Textual's begins and ends with it."""
READY = "age 0s"
"""At the end of the last row."""


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file for which Textual waits."""
    return tmp_path / "go"


@pytest.fixture
def held(go: Path) -> Iterator[PtyProgram]:
    """The first picture, and no Textual yet."""
    with screen(f"hold={go}", "interval=20") as program:
        program.wait_for(READY)
        program.read_until_quiet(0.1)
        yield program


def take_over(program: PtyProgram, go: Path) -> bytes:
    """Let Textual come; what it sends until its picture is complete."""
    go.touch()
    before = len(program.output)
    program.wait_until(lambda _: TAKEN in program.output[before:], "never taken over")
    program.wait_until(lambda _: b"age 0s" in program.output[before:], "no second picture")
    program.read_until_quiet(0.2)
    return program.output[before:]


def test_first_values_are_there_before_textual(held: PtyProgram) -> None:
    """Name, values and footer stand on the alternate screen while Textual cannot even be imported."""
    assert "node07" in held.rows[0]
    assert " 400/700" in held.text
    assert "first values; judged in a moment" in held.text
    assert ENTER in held.output
    assert TAKEN not in held.output
    assert not held.local_flags() & termios.ECHO


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, (80, 24)),
        ({}, (120, 40)),
        ({}, (30, 8)),
        ({"NO_COLOR": "1"}, (120, 40)),
        ({"TERM": "linux"}, (100, 30)),
        ({"LANG": "C"}, (100, 30)),
    ],
)
def test_textual_changes_no_cell(go: Path, settings: dict[str, str], size: tuple[int, int]) -> None:
    """In every moment of the take-over each cell is what it was, wide characters and colours included."""
    environment = default_environment(**settings)
    width, height = size
    with screen(
        f"hold={go}", "unjudged=1", "interval=20", "gpus=4", environment=environment, width=width, height=height
    ) as program:
        program.wait_for(" quit" if width < 80 else READY)
        program.read_until_quiet(0.1)
        shown = program.cells()
        if width >= 80:
            assert ("訓練.py" in program.text.replace("訓 練 ", "訓練")) == ("LANG" not in settings)
        go.touch()
        program.wait_until(lambda _: TAKEN in program.output, "never taken over")
        while program.read(0.01) or program.output.count(HOME) < 3:
            assert program.cells() == shown
        assert program.output.count(ENTER) == 1
        program.type("q")
        assert program.wait_for_exit(5.0) == 0
        assert program.local_flags() & termios.ECHO


def test_light_terminal_gets_light_colours_at_once(go: Path) -> None:
    """The first picture waits for the terminal's answer, and has its theme."""
    with screen(f"hold={go}", background=b"\x1b]11;rgb:ffff/ffff/ffff\x07") as program:
        program.wait_for(READY)
        assert b"38;5;241m" in program.output
        assert b"38;5;246m" not in program.output


def test_demo_says_so_at_once(go: Path) -> None:
    """Nobody takes the first picture of the demo for a machine's."""
    with screen(f"hold={go}", "kind=demo") as program:
        program.wait_for(READY)
        assert " DEMO " in program.rows[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signals_leave_the_terminal_as_it_was(held: PtyProgram, number: signal.Signals) -> None:
    """Before Textual is there, too, they end with 0, on the normal screen, with cursor and echo."""
    held.process.send_signal(number)
    assert held.wait_for_exit(3.0) == 0
    assert_given_back(held)


def test_ctrl_c_does_not_wait_for_textual(held: PtyProgram) -> None:
    """An import from a slow disk can be broken off."""
    held.type(b"\x03")
    assert held.wait_for_exit(3.0) == 0
    assert_given_back(held)


def test_failure_is_told_on_the_normal_screen(held: PtyProgram, go: Path) -> None:
    """What goes wrong between the pictures is printed after the terminal is given back."""
    told_to = go.with_name("told")
    told_to.write_text("fail", encoding="utf-8")
    told_to.rename(go)
    assert held.wait_for_exit(5.0) == 1
    _, _, told = held.output.partition(LEAVE)
    assert b"Textual fails as told" in told
    assert held.local_flags() & termios.ECHO


def assert_given_back(program: PtyProgram) -> None:
    assert program.output.endswith(LEAVE)
    assert program.local_flags() & termios.ICANON
    assert program.local_flags() & termios.ECHO


def test_keys_wait_for_textual(held: PtyProgram, go: Path) -> None:
    """They do not show on the first picture, and do afterwards what they always do."""
    before = held.text
    held.type("1\r")
    held.read(0.3)
    assert held.text == before
    go.touch()
    held.wait_for("› GPU 1 ·")


def test_q_quits_as_soon_as_textual_is_there(held: PtyProgram, go: Path) -> None:
    """And Textual, which has only begun, writes nothing on the normal screen."""
    held.type("q")
    held.read(0.1)
    go.touch()
    assert held.wait_for_exit(5.0) == 0
    assert held.output.endswith(LEAVE + b"\x1b[?1004l")
    assert held.local_flags() & termios.ECHO


def test_ctrl_z_waits_for_textual(held: PtyProgram, go: Path) -> None:
    """It stops with the terminal given back, as later on, and comes back with the whole picture."""
    held.type(b"\x1a")
    held.read(0.3)
    assert held.state() != "T"
    go.touch()
    until = time.monotonic() + 5.0
    while held.state() != "T":
        held.read(0.02)
        assert time.monotonic() < until
    held.read(0.1)
    assert b"\x1b[?1049l" in held.output
    assert held.local_flags() & termios.ECHO
    held._screen.reset()
    held.process.send_signal(signal.SIGCONT)
    held.wait_for("node07")
    held.wait_for(READY)


def test_resize_between_the_pictures(held: PtyProgram, go: Path) -> None:
    """Textual's first picture has the size that the terminal has then."""
    held.resize(110, 35)
    take_over(held, go)
    assert held.rows[34].rstrip().endswith(READY)
    assert held.rows[0].startswith(" gpumon node07")
    assert held.text.count(READY) == 1


def test_slow_driver_does_not_hold_up_the_screen() -> None:
    """Where there are no values soon, Textual comes first, says what it waits for, and shows them when they come."""
    with screen("first_after=3") as program:
        program.wait_for("waiting for the first values")
        assert TAKEN in program.output
        program.wait_for(READY)
        assert program.output.count(ENTER) == 1


def test_terminal_that_takes_no_bytes_is_not_waited_for(go: Path) -> None:
    """After Ctrl-S there are neither questions nor a first picture, which would hold up everything."""
    later = 'sleep 0.3; exec "$@"'
    with PtyProgram(["sh", "-c", later, "-", *python(PROGRAM, f"hold={go}", "interval=20")]) as program:
        program.type(b"\x13")
        program.read(1.5)
        assert program.output == b""
        go.touch()
        program.wait_for(READY)  # Textual lets it go on
        assert program.output.startswith(ENTER)
        assert program.output.count(ENTER) == 1
