"""The real screen in a real pseudo-terminal: what terminals do to programs, and what it must survive."""

from __future__ import annotations

import shlex
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal import PtyProgram, default_environment, python

PROGRAM = str(Path(__file__).with_name("screen_program.py"))
READY = "self"
"""In the footer as soon as there is a frame."""
TAKEN = b"\x1b[?2004h"
"""What only Textual sends, and before its first picture."""


def screen(*options: str, **settings: object) -> PtyProgram:
    """The screen over the fake source."""
    return PtyProgram(python("-W", "error", PROGRAM, *options), **settings)  # type: ignore[arg-type]


@pytest.fixture
def running() -> Iterator[PtyProgram]:
    """A screen that shows its first frame and has been taken over by Textual."""
    with screen() as program:
        wait_until_open(program)
        yield program


def wait_until_open(program: PtyProgram) -> None:
    """A frame is shown, and Textual has the terminal."""
    program.wait_for(READY)
    program.wait_until(lambda _: TAKEN in program.output, "never taken over")


def test_opens_shows_values_and_quits(running: PtyProgram) -> None:
    """The first frame shows the source's values; `q` ends with 0 and gives the terminal back as it was."""
    running.wait_for("node07")
    running.type("q")
    assert running.wait_for_exit(3.0) == 0
    assert running.output.endswith(b"\x1b[?1004l")
    assert b"\x1b[?1049l" in running.output
    assert b"\x1b[?25h" in running.output
    assert running.local_flags() & termios.ICANON
    assert running.local_flags() & termios.ECHO


def test_ctrl_c_quits(running: PtyProgram) -> None:
    """Ctrl-C is `q`."""
    running.type(b"\x03")
    assert running.wait_for_exit(3.0) == 0


def test_help_opens_and_escape_closes_it(running: PtyProgram) -> None:
    """A lone Escape is recognised although the input thread sleeps until something is typed."""
    running.type("?")
    running.wait_for("gpumon help")
    running.type(b"\x1b")
    running.wait_for("node07")


def test_quit_from_an_open_screen(running: PtyProgram) -> None:
    """`q` quits from the help page as well."""
    running.type("?")
    running.wait_for("gpumon help")
    running.type("q")
    assert running.wait_for_exit(3.0) == 0


def test_quits_at_once_while_the_driver_hangs() -> None:
    """Neither a sample that never returns nor a source whose close() hangs delays `q`."""
    with screen("stop_after=2", "hang=1") as program:
        wait_until_open(program)
        program.read(0.6)
        program.type("q")
        began = time.monotonic()
        assert program.wait_for_exit(3.0) == 0
        assert time.monotonic() - began < 1.5


def test_age_grows_when_frames_stop() -> None:
    """Without new frames the footer's age counts up; it does not stay at 0."""
    with screen("stop_after=2") as program:
        wait_until_open(program)
        program.wait_until(lambda text: "age 3s" in text or "age 4s" in text, "no growing age", 10.0)


TITLE = b"\x1b[1m gpumon "
"""Sent with every whole picture, and never alone: nothing in it changes."""


def test_start_sends_two_pictures() -> None:
    """The first values before Textual comes, and one picture of its own: its second and third stay unsent."""
    with screen("interval=20", "gpus=8", width=120, height=40) as program:
        wait_until_open(program)
        program.read_until_quiet()
        first, _, second = program.output.partition(TAKEN)
        for sent in (first, second):
            assert sent.count(TITLE) == 1
            assert len(sent) < 12_000


def test_resize_sends_one_picture() -> None:
    """A window that is dragged through twenty sizes gets one picture, of the size at which it rests."""
    with screen("interval=20", "gpus=8", width=120, height=40) as program:
        wait_until_open(program)
        program.read_until_quiet()
        for step in range(20):
            program.resize(100 + 5 * step, 30 + step)
            time.sleep(0.01)
        program.resize(199, 60)
        sent = program.read(1.0)
        assert sent.count(TITLE) == 1
        assert len(sent) < 24_000
        assert program.rows[59].startswith(" ? help")
        assert program.rows[0].rstrip()[-8:-6].isdigit()


def test_resize_there_and_back_repairs_the_picture() -> None:
    """A size that is the old one again after a moment: the cells that the terminal dropped on the way come back."""
    with screen("interval=20", "gpus=8", width=120, height=40) as program:
        wait_until_open(program)
        program.read_until_quiet()
        before = program.text
        program.resize(60, 20)
        program.resize(120, 40)
        assert program.text != before
        program.wait_until(lambda text: text == before, "no repair", 5.0)


def test_redraw_sends_every_cell_again() -> None:
    """Ctrl-L sends the picture although it is the same as the last one."""
    with screen("interval=20") as program:
        wait_until_open(program)
        program.read_until_quiet()
        for _ in range(2):
            program.type(b"\x0c")
            assert program.read(0.6).count(TITLE) == 1


def test_resize_to_tiny_and_back(running: PtyProgram) -> None:
    """20×5 and back to 100×30: the picture fills each size, and the program lives on."""
    running.resize(20, 5)
    running.wait_until(lambda text: text.splitlines()[-1].startswith(" q quit"), "no way out at 20×5")
    running.resize(1, 1)
    running.read(0.5)
    running.resize(100, 30)
    running.wait_for("node07")
    running.wait_until(lambda text: "quit" in text.splitlines()[-1], "no footer in the last row")


def test_size_is_the_terminals_not_the_shells() -> None:
    """COLUMNS and LINES exported by a shell do not override the real size."""
    with screen(environment=default_environment(COLUMNS="40", LINES="10"), width=90, height=20) as program:
        wait_until_open(program)
        program.wait_until(lambda text: "quit" in text.splitlines()[19], "footer not in row 20")


@pytest.mark.parametrize("way", ["key", "signal"])
def test_suspend_and_continue(running: PtyProgram, way: str) -> None:
    """Ctrl-Z and SIGTSTP stop it with the terminal restored; SIGCONT brings the whole picture back."""
    if way == "key":
        running.type(b"\x1a")
    else:
        running.process.send_signal(signal.SIGTSTP)
    until = time.monotonic() + 5.0
    while running.state() != "T":
        running.read(0.02)
        assert time.monotonic() < until
    running.read(0.1)
    assert b"\x1b[?1049l" in running.output
    assert running.local_flags() & termios.ICANON
    running.output = b""
    running._screen.reset()  # what a shell leaves of the picture
    running.process.send_signal(signal.SIGCONT)
    running.wait_for("node07")
    running.wait_for("quit")
    running.type("q")
    assert running.wait_for_exit(3.0) == 0


def test_stop_that_cannot_be_caught(running: PtyProgram) -> None:
    """After SIGSTOP and SIGCONT keys still work, with one input thread only."""
    running.process.send_signal(signal.SIGSTOP)
    running.read(0.2)
    running.process.send_signal(signal.SIGCONT)
    running.read(0.6)
    running.type("?")
    running.wait_for("gpumon help")
    threads = [
        (task / "comm").read_text(encoding="utf-8") for task in Path(f"/proc/{running.process.pid}/task").iterdir()
    ]
    assert len(threads) <= 6, threads
    running.type("q")
    assert running.wait_for_exit(3.0) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_ending_signals_restore_the_terminal(running: PtyProgram, number: signal.Signals) -> None:
    """SIGTERM, SIGHUP and SIGINT leave the alternate screen, show the cursor, restore the modes."""
    running.process.send_signal(number)
    assert running.wait_for_exit(3.0) == 0
    assert b"\x1b[?1049l" in running.output
    assert b"\x1b[?25h" in running.output
    assert running.local_flags() & termios.ICANON


@pytest.mark.parametrize("ignore_hangup", [False, True])
def test_closed_terminal_ends_it(*, ignore_hangup: bool) -> None:
    """A terminal that goes away ends the program at once, also where SIGHUP is ignored and nothing is being drawn."""
    with screen("interval=5", ignore_hangup=ignore_hangup) as program:
        wait_until_open(program)
        program.read(0.5)
        program.hang_up()
        program.wait_for_exit(1.5, is_draining=False)


def test_end_of_input_alone_ends_it() -> None:
    """Under a parent that ignores SIGHUP no signal tells of the closed terminal; it must not spin then."""
    command = ["sh", "-c", shlex.join([*python("-W", "error", PROGRAM), "interval=5"]) + "; exit 7"]
    with PtyProgram(command, ignore_hangup=True) as program:
        wait_until_open(program)
        program.hang_up()
        assert program.wait_for_exit(1.5, is_draining=False) == 7


def test_terminal_that_takes_no_bytes() -> None:
    """A full terminal stops nothing: sampling goes on without spinning, `q` ends it, nothing is waited for."""
    with screen("interval=0.02", "gpus=8", width=160, height=50) as program:
        wait_until_open(program)
        stall(program)
        spent_s = program.cpu_s()
        time.sleep(1.0)
        assert program.cpu_s() - spent_s < 0.6
        program.type("q")
        began = time.monotonic()
        program.wait_for_exit(5.0, is_draining=False)
        assert time.monotonic() - began < 2.0


def test_picture_is_whole_after_a_stall() -> None:
    """When the terminal takes bytes again, the picture is complete, although pictures were dropped meanwhile."""
    with screen("interval=0.02", "gpus=8", width=160, height=50) as program:
        wait_until_open(program)
        stall(program)
        for _ in range(101):  # an odd number: help is open in the end
            program.type("?")
            time.sleep(0.03)
        program.read(0.5)
        program.read_until_quiet()
        assert program.rows[0].startswith(" gpumon help")
        assert "quit, from anywhere" in program.text
        program.type("?")
        first = program.wait_for("node07")
        program.wait_until(lambda text: text != first, "picture stands still")


def stall(program: PtyProgram) -> None:
    """Let output pile up until the kernel holds all that it wants to: redraws of the whole screen, unread."""
    for _ in range(120):
        program.type(b"\x0c")
        time.sleep(0.01)


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_stream_that_is_no_terminal(stream: str, tmp_path: Path) -> None:
    """Any of the three streams elsewhere: one line that names it and `gpumon once`, exit 2."""
    with (tmp_path / "elsewhere").open("w+b") as file, screen(redirect={stream: file.fileno()}) as program:
        assert program.wait_for_exit(10.0) == 2
        file.seek(0)
        said = (file.read() + program.output).decode()
    assert f"gpumon: {stream} is not a terminal; use  gpumon once  or  gpumon once --json" in said
    assert "Traceback" not in said


def test_dumb_terminal_is_refused() -> None:
    """TERM=dumb gets the same answer."""
    with screen(environment=default_environment(TERM="dumb")) as program:
        assert program.wait_for_exit(10.0) == 2
        assert "TERM=dumb" in program.text


def test_failure_of_the_sampler_surfaces() -> None:
    """An exception on the sampler's thread ends the program with its traceback, terminal restored."""
    with screen("fail_after=3", "interval=1") as program:
        assert program.wait_for_exit(10.0) == 1
        assert "the fake source fails as told" in program.text
        assert b"\x1b[?1049l" in program.output


def test_expected_error_of_the_source_is_one_line() -> None:
    """What gpumon raises on purpose is printed as one line after the screen is gone."""
    with screen("error=no driver here") as program:
        assert program.wait_for_exit(10.0) == 2
        assert "gpumon: no driver here" in program.text
        assert "Traceback" not in program.text


def test_asks_for_the_background_and_follows_the_answer() -> None:
    """A light terminal gets the light palette, a dark one the dark; the answer is never taken for keys."""
    light, dark = b"\x1b]11;rgb:ffff/ffff/f0f0\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x07"
    codes = {}
    for name, answer in (("light", light), ("dark", dark)):
        with screen(background=answer) as program:
            wait_until_open(program)
            codes[name] = (b"38;5;241m" in program.output, b"38;5;246m" in program.output)
            assert "gpumon help" not in program.text
    assert codes == {"light": (True, False), "dark": (False, True)}


@pytest.mark.parametrize(("cursor", "is_ascii"), [(b"\x1b[1;3R", True), (b"\x1b[1;2R", False), (None, False)])
def test_wide_ambiguous_characters_mean_ascii(cursor: bytes | None, *, is_ascii: bool) -> None:
    """In an East Asian locale the terminal is asked how wide `·` is; two cells mean ASCII, silence does not."""
    with screen(environment=default_environment(LANG="ja_JP.UTF-8"), cursor=cursor) as program:
        wait_until_open(program)
        asked, _, drawn = program.output.partition(b"\x1b[6n")
        assert b"\xc2\xb7" in asked
        assert drawn.isascii() == is_ascii


def test_late_answer_is_not_taken_for_keys(running: PtyProgram) -> None:
    """An answer to OSC 11 after 100 ms, cut anywhere, presses no key: its hex digits `e`, `a` open nothing."""
    running.type(b"\x1b]11;rgb:aeae/ae")
    running.read(0.3)
    running.type(b"ae/0101\x1b\\")
    running.read(0.5)
    assert "› alerts" not in running.text
    assert "no alert to explain" not in running.text
    assert running.process.poll() is None


def test_keys_typed_before_the_screen_are_kept() -> None:
    """`q` pressed while the program still starts is not lost."""
    with screen(background=b"\x1b]11;rgb:0000/0000/0000\x07q") as program:
        assert program.wait_for_exit(15.0) == 0


@pytest.mark.parametrize("theme", ["auto", "dark"])
@pytest.mark.parametrize("delay_s", [0.0, 0.4])
def test_enter_typed_before_the_screen_opens_it(theme: str, delay_s: float) -> None:
    """`1`, Enter typed while the program starts: GPU 1's detail opens, whether or not the terminal is being asked."""
    with screen(f"theme={theme}") as program:
        program.read(delay_s)
        program.type("1\r")
        program.wait_for("› GPU 1 ·")


@pytest.mark.parametrize(
    ("environment", "has_color", "is_ascii"),
    [
        ({"NO_COLOR": "1"}, False, False),
        ({"LANG": "C"}, True, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, True, True),
        ({"LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, True, True),
        ({"TERM": "linux"}, True, False),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True, False),
        ({"TERM": "screen"}, True, False),
    ],
)
def test_bytes_fit_the_terminal(environment: dict[str, str], *, has_color: bool, is_ascii: bool) -> None:
    """NO_COLOR sends no colour, a locale that is not UTF-8 sends ASCII only, nothing ever sends 24 bits."""
    with screen(environment=default_environment(**environment)) as program:
        wait_until_open(program)
        program.type("?")
        program.wait_for("gpumon help")
        program.type("q")
        program.wait_for_exit(3.0)
        output = program.output
    assert b"38;2;" not in output
    assert b"48;2;" not in output
    assert (b"[38;5;" in output or b"[36m" in output or b"[96m" in output or b";96m" in output) == has_color
    assert output.isascii() == is_ascii
    if environment.get("TERM") in ("linux", "screen"):
        assert b"38;5;" not in output


def test_idle_input_costs_nothing() -> None:
    """Between frames no thread wakes: a screen with a frame every 5 s uses next to no CPU."""
    with screen("interval=5") as program:
        wait_until_open(program)
        program.read(1.0)
        spent_s = program.cpu_s()
        program.read(2.0)
        assert program.cpu_s() - spent_s <= 0.03


def test_import_of_the_check_is_cheap() -> None:
    """The check for a terminal, and the sampler, load neither Textual nor Rich."""
    code = "import sys, gpumon.ui.run; sys.exit('textual' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run(python("-c", code), env=default_environment(), check=False).returncode == 0
