"""The screen shows the right numbers for every GPU, at every size, also after a resize."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from live import SIZES, Shown, Trainer, as_shown, distinct, distinct_gpus, settle_on, shift_all, shown_gpus, start

from fakenvml import GIB, FakeDriver, Process, h100
from terminal import PtyProgram


class Running(NamedTuple):
    """A program on so many GPUs, all of them held by one real process."""

    program: PtyProgram
    driver: FakeDriver
    trainer: Trainer
    count: int


@pytest.mark.parametrize("count", [1, 8, 16])
def test_every_gpu_at_every_size(tmp_path: Path, count: int) -> None:
    """The whole program on so many GPUs: numbers, layout, selection and the job's row are right at every size."""
    driver = FakeDriver(tmp_path, distinct_gpus(count))
    with Trainer(workers=3) as trainer:
        for gpu in range(count):
            driver.set_processes(gpu, [Process(trainer.pid, (5 + gpu) * GIB, 30 + gpu)])
        with start(driver) as program:
            running = Running(program, driver, trainer, count)
            check_process_on_its_gpus(running)
            check_numbers_at_every_size(running)
            check_selection_and_detail(running)
            program.type("q")
            assert program.wait_for_exit() == 0


def wrong_numbers(expected: dict[int, Shown], places: tuple[str, ...]) -> Callable[[str], str | None]:
    """A check for ``settle_on``: every GPU is there, once, with these values."""

    def check(screen: str) -> str | None:
        found = shown_gpus(screen)
        wanted = {index: [getattr(shown, place) for place in places] for index, shown in expected.items()}
        seen = {index: [getattr(shown, place) for place in places] for index, shown in found.items()}
        return None if seen == wanted else f"shown {seen}\nexpected {wanted}"

    return check


def assert_whole(program: PtyProgram, width: int, height: int) -> None:
    """Every row is as wide as the screen and at its place: title (or headline) first, keys last, nothing twice."""
    rows = program.rows
    assert len(rows) == height
    assert all(len(row) == width for row in rows), "a row of another width"
    assert re.match(r" gpumon " if height >= 10 else r" [●■▲?] ", rows[0]), program.text
    assert "q quit" in rows[-1], program.text
    assert sum("q quit" in row for row in rows) == 1, program.text
    assert sum(row.startswith(" gpumon ") for row in rows) == (height >= 10), program.text


def check_numbers_at_every_size(running: Running) -> None:
    """Through all sizes and back while values change, each picture has every GPU's current numbers."""
    program, driver, _, count = running
    for shift, (width, height) in enumerate((*SIZES, (80, 24))):
        if (width, height) == (20, 5) and count > 8:
            continue  # not even one cell for each
        program.resize(width, height)
        expected = shift_all(driver, count, shift)
        if height == 5:
            # A cell is the index alone; the mark that it also holds is blank while nothing is wrong.
            cells = "".join(f" {index}" for index in range(count))
            settle_on(program, lambda text, cells=cells: None if text.splitlines()[2] == cells else "wrong cells")
        elif height == 10:
            settle_on(program, wrong_numbers(expected, ("util", "temperature")))
        else:
            if width == 120 and count == 16:  # the only table that shows memory in whole GiB
                expected = {index: gpu._replace(memory=float(round(gpu.memory))) for index, gpu in expected.items()}
            settle_on(program, wrong_numbers(expected, ("util", "power", "temperature", "clock", "memory")))
        assert_whole(program, width, height)


def check_selection_and_detail(running: Running) -> None:
    """`j` down to the last GPU, Enter opens that very GPU with its own numbers, Esc comes back."""
    program, driver, _, count = running
    expected = shift_all(driver, count, 9)[count - 1]
    program.type("j" * (count - 1))
    program.type("\r")
    program.wait_for(f"› GPU {count - 1} ")
    for text in (f"{expected.temperature} °C", f"{expected.clock} MHz", f"{expected.power}/700"):
        program.wait_for(text)
    program.type(b"\x1b")
    program.wait_until(lambda text: f"› GPU {count - 1} ·" not in text, "detail does not close")
    settle_on(
        program, wrong_numbers({index: as_shown(distinct(index, 9)) for index in range(count)}, ("util", "memory"))
    )


def check_process_on_its_gpus(running: Running) -> None:
    """The job's row: pid, GPUs, memory on all of them, mean SM share, workers, command."""
    program, _, trainer, count = running
    held = sum(5 + gpu for gpu in range(count))
    gpus = "0" if count == 1 else f"0–{count - 1}"
    mean_sm = 30 + (count - 1) / 2
    program.wait_for("0/3")
    row = next(line for line in program.text.splitlines() if f" {trainer.pid} " in line)
    fields = row.split()
    assert fields[:1] + fields[2:5] == [str(trainer.pid), gpus, f"{held:.1f}G", f"{mean_sm:.0f}"], row
    assert row.split("0/3")[1].split(maxsplit=2)[2].startswith("python trainer.py"), row


def test_power_from_the_energy_counter(tmp_path: Path) -> None:
    """Where there is an energy counter the power shown is its mean over the interval: of a square wave, the middle."""
    driver = FakeDriver(tmp_path, [h100().but(power_w="wave(0.4, 50, 200, 600)")])
    with start(driver) as program:
        program.wait_for("of 700 W")
        seen: list[int] = []
        for _ in range(3):
            before = program.text
            program.wait_until(lambda text, before=before: text != before, "stands still")
            power = shown_gpus(program.text)[0].power
            assert power is not None
            seen.append(power)
        assert all(330 <= power <= 470 for power in seen[1:]), seen


def test_slow_terminal_is_not_sent_the_same_picture_for_ever(tmp_path: Path) -> None:
    """A picture larger than the terminal takes at once is not sent again and again for as long as it is slow."""
    driver = FakeDriver(tmp_path, distinct_gpus(16))
    with start(driver, width=200, height=60) as program:
        program.wait_for("15 busy")
        program.read_until_quiet()
        program.resize(199, 60)
        # Slower than it is sent: the program must wait for us, not we for it.
        # One picture is 20 kB.
        sent = 0
        until = time.monotonic() + 3.0
        while sent < 100_000 and time.monotonic() < until:
            sent += len(program.read(0.0))
            time.sleep(0.01)
        assert 15_000 < sent < 100_000
