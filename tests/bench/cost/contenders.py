"""Who is compared: gpumon, the peers in an environment of their own, and the floors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.cost.box import Box
from tests.bench.cost.screen import ROWS, Screen

PEERS = ("nvitop==1.7.2", "gpustat==1.1.1")
HOUR_S = 3600
_PROGRAMS = Path(__file__).with_name("programs")
_VALUE = rb"\d+(?:\x1b\[m)?W?\s*/\s*(?:\x1b\[[\d;]*m)?700"
"""A power reading beside its limit: what no screen shows before the driver has answered."""


class Contender(NamedTuple):
    """A program, and what on its screen is the first real value."""

    name: str
    command: tuple[str, ...]
    shows: bytes


_UTILIZATION = rb"9\d ?%"
"""The same in every density of gpumon's screen."""

GPUMON = Contender("gpumon", (sys.executable, "-m", "gpumon"), _UTILIZATION)
IDLE = Contender("idle Textual app", (sys.executable, str(_PROGRAMS / "idle_app.py")), rb"ready")
BARE = Contender("bare NVML loop", (sys.executable, str(_PROGRAMS / "bare_loop.py")), rb"ready \d+")


def peers() -> list[Contender]:
    """The peers that can be run here; those from the index are installed on first use."""
    found = []
    scripts = _environment()
    if scripts is not None:
        found += [
            Contender("nvitop", (str(scripts / "nvitop"), "--monitor", "full", "--interval", "1"), _VALUE),
            Contender("gpustat", (str(scripts / "gpustat"), "--interval", "1", "--show-power"), _VALUE),
        ]
    nvtop = shutil.which("nvtop")
    if nvtop is not None:
        found.append(Contender("nvtop", (nvtop, "--delay", "10"), rb"\d+ ?W"))
    return found


def _environment() -> Path | None:
    """Where the peers' programs lie; None where they cannot be had."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpumon-bench"
    place = cache / "-".join(
        [*(peer.replace("==", "-") for peer in PEERS), f"py{sys.version_info[0]}{sys.version_info[1]}"]
    )
    scripts = place / "bin"
    if not (place / "complete").exists():
        sys.stderr.write(f"installing {', '.join(PEERS)} into {place}\n")
        venv.create(place, with_pip=True, clear=True)
        done = subprocess.run([scripts / "pip", "install", "-q", *PEERS], check=False)
        if done.returncode:
            sys.stderr.write("the peers cannot be installed here: gpumon is measured alone\n")
            return None
        (place / "complete").touch()
    return scripts


@contextmanager
def opened(contender: Contender, box: Box, *, past_s: int = 0, rows: int = ROWS) -> Iterator[Screen]:
    """The program with its first value on the screen; gpumon with so much of a past."""
    command = contender.command
    marker = box.directory / "past"
    if past_s:
        marker.unlink(missing_ok=True)
        command = (sys.executable, str(_PROGRAMS / "with_past.py"), str(past_s), str(marker), *command[3:])
    with Screen(command, box.environment, rows=rows) as screen:
        screen.wait_for(contender.shows)
        while past_s and not marker.exists():
            screen.watch(0.2)
            screen.forget()
        yield screen
