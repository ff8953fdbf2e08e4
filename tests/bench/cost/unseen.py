"""What a screen costs that nobody sees: in a hidden tmux window, and on a terminal that takes no bytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.cost.box import Box
from tests.bench.cost.clock import cpu_s
from tests.bench.cost.contenders import GPUMON, opened
from tests.bench.cost.screen import COLUMNS, ROWS
from tests.bench.cost.steady import SETTLE_S, measure

PAST_S = 600
FULL_S = 60.0
"""A pty takes some 20 kB before it is full."""


class Unseen(NamedTuple):
    """CPU in percent of a core, and what leaving takes."""

    seen_pct: float
    unseen_pct: float
    quit_s: float | None = None


def stalled(box: Box, seconds: float) -> Unseen:
    """A terminal that is read, then one that is not, and the time that ``q`` takes there."""
    with opened(GPUMON, box, past_s=PAST_S) as screen:
        screen.watch(SETTLE_S)
        seen = measure(screen, box, seconds)
        time.sleep(FULL_S)  # nothing is read: the kernel's buffer fills
        cpu, began_s = cpu_s(screen.pid), time.monotonic()
        time.sleep(seconds)
        unseen_pct = 100 * (cpu_s(screen.pid) - cpu) / (time.monotonic() - began_s)
        screen.type(b"q")
        began_s = time.monotonic()
        screen.process.wait(30)
        return Unseen(seen.cpu_pct, unseen_pct, time.monotonic() - began_s)


def hidden(box: Box, seconds: float) -> Unseen | None:
    """The same window of tmux, shown and then behind another one; None without tmux."""
    if shutil.which("tmux") is None:
        return None
    with _tmux(box) as (run, pid):
        time.sleep(SETTLE_S)
        seen_pct = _cpu_pct(pid, seconds)
        run("new-window", "sleep 1000")
        time.sleep(1.0)
        return Unseen(seen_pct, _cpu_pct(pid, seconds))


def _cpu_pct(pid: int, seconds: float) -> float:
    cpu, began_s = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - cpu) / (time.monotonic() - began_s)


class _Tmux:
    def __init__(self, socket: Path, environment: dict[str, str]) -> None:
        self._command = ["tmux", "-f", "/dev/null", "-S", str(socket)]
        self._environment = environment

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], env=self._environment, check=True, capture_output=True, text=True
        )
        return done.stdout


@contextmanager
def _tmux(box: Box) -> Iterator[tuple[_Tmux, int]]:
    """A server with gpumon in its only window; how to command it, and gpumon's pid."""
    run = _Tmux(box.directory / "tmux", dict(box.environment) | {"SHELL": "/bin/sh"})
    program = "exec " + " ".join(GPUMON.command)
    run("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), program)
    try:
        pid = int(run("list-panes", "-F", "#{pane_pid}"))
        os.kill(pid, 0)
        yield run, pid
    finally:
        subprocess.run(["tmux", "-S", str(box.directory / "tmux"), "kill-server"], check=False)
