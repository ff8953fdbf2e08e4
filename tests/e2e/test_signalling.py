"""Signalling a process from the screen: after asking, the very one, and never with --read-only."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from live import Trainer, distinct_gpus, start

from fakenvml import GIB, FakeDriver, Process
from terminal import PtyProgram


def select_process(program: PtyProgram, trainer: Trainer) -> None:
    """Move the focus to the job table and there to this process."""
    program.type("\t")
    program.wait_until(lambda text: "›" in "".join(line[:1] for line in text.splitlines()[5:]), "no focus")
    for _ in range(5):
        program.read_until_quiet()
        if any(line.startswith("›") and f" {trainer.pid} " in line for line in program.text.splitlines()):
            return
        program.type("j")
    raise AssertionError(program.text)


def test_signal_after_asking(tmp_path: Path) -> None:
    """K asks and Enter alone sends nothing; the chosen SIGTERM reaches the selected process and no other."""
    driver = FakeDriver(tmp_path, distinct_gpus(2))
    with Trainer(argv0="first") as first, Trainer(argv0="second") as second, start(driver) as program:
        driver.set_processes(0, [Process(first.pid, 5 * GIB, 40)])
        driver.set_processes(1, [Process(second.pid, 6 * GIB, 60)])
        program.wait_until(lambda text: f" {first.pid} " in text and f" {second.pid} " in text, "no processes")
        select_process(program, second)
        program.type("K")
        program.wait_for(f" pid {second.pid}  user ")
        program.wait_for("Cancel: nothing is sent")
        program.type("\r")
        program.wait_until(lambda text: "nothing is sent" not in text, "the dialog stays")
        assert second.process.poll() is None
        program.type(b"\x1b[20~")  # F9
        program.wait_for("Cancel: nothing is sent")
        program.type(b"\x1b[C")  # right
        program.wait_for("SIGTERM: asks it to end")
        program.type("\r")
        program.wait_for(f"SIGTERM sent to {second.pid}")
        until = time.monotonic() + 10
        while second.process.poll() is None and time.monotonic() < until:
            program.read(0.05)
        assert second.process.returncode == -signal.SIGTERM
        assert first.process.poll() is None


def test_read_only(tmp_path: Path) -> None:
    """With --read-only K says why not, asks nothing, and the footer does not offer it."""
    driver = FakeDriver(tmp_path, distinct_gpus(1))
    with Trainer() as trainer, start(driver, "--read-only") as program:
        driver.set_processes(0, [Process(trainer.pid, 5 * GIB, 40)])
        program.wait_for(f" {trainer.pid} ")
        select_process(program, trainer)
        assert "K signal" not in program.text
        program.type("K")
        program.wait_for("read-only: no process can be signalled")
        assert "SIGTERM" not in program.text
        assert trainer.process.poll() is None
