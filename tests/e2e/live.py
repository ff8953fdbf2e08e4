"""The real program on the fake driver, its screen read back as numbers; and real processes for it to show."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fakenvml import GIB, FakeDriver, Profile, h100
from terminal import WAIT_S, PtyProgram, default_environment, python

GPUMON = python("-W", "error", "-m", "gpumon")
TRAINER = Path(__file__).with_name("trainer.py")

SIZES = ((80, 24), (120, 40), (200, 60), (40, 10), (20, 5))


def start(
    driver: FakeDriver | Mapping[str, str],
    *arguments: str,
    width: int = 80,
    height: int = 24,
    prefix: Sequence[str] = (),
    **environment: str,
) -> PtyProgram:
    """``gpumon ARGUMENTS`` in a terminal of its own, on this driver (or with what takes a driver away)."""
    given = driver.env if isinstance(driver, FakeDriver) else driver
    home = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}  # no user's configuration
    return PtyProgram(
        [*prefix, *GPUMON, *arguments],
        width=width,
        height=height,
        environment={**default_environment(**home), **given, **environment},
    )


def settle_on(program: PtyProgram, wanted: Callable[[str], object], seconds: float = WAIT_S) -> None:
    """Wait until ``wanted(screen)`` gives what it says it should; the difference where it never does.

    ``wanted`` returns None when the screen is right, else what is wrong with it.
    """
    until = time.monotonic() + seconds
    while (wrong := wanted(program.text)) is not None:
        assert time.monotonic() < until, f"{wrong}\n{program.text}"
        assert program.process.poll() is None or program.read(0.05), f"ended: {wrong}\n{program.text}"
        program.read(0.05)


# --- what the screen says -------------------------------------------------------------------------


class Shown(NamedTuple):
    """The numbers of one GPU as the screen has them; None where it has no place for one or says ``–``."""

    util: int | None = None
    power: int | None = None
    temperature: int | None = None
    clock: int | None = None
    memory: float | None = None


_ROW = re.compile(r"^[› >][■▲?X! ]([ \d]\d) (.{10}) ( {3}[–-]| {0,2}\d+%) (.*)$")
_CELL = re.compile(r"[›> ][■▲?X! ]([ \d]\d) +(\d+%|–|-) +(?:(\d+)[°d]|–)")
_TOKEN = re.compile(r"(?<![^ ])(\d+(?:\.\d)?|–)(?:/(\d+(?:\.\d)?))?(?= |$)")


def state_words(screen: str) -> dict[int, str]:
    """GPU index -> the word beside it: busy, lost, stale …"""
    return {int(row[1]): row[2].strip() for line in screen.splitlines() if (row := _ROW.match(line))}


def shown_gpus(screen: str) -> dict[int, Shown]:
    """GPU index -> its numbers, in whichever density the overview stands."""
    lines = screen.splitlines()
    if any(line.startswith(" util ") for line in lines):
        return _panels(lines)
    rows = [(number, row) for number, line in enumerate(lines) if (row := _ROW.match(line))]
    if not rows:
        return {
            int(cell[1]): Shown(_number(cell[2]), temperature=_number(cell[3]))
            for line in lines
            for cell in _CELL.finditer(line)
        }
    has_two_lines = any("budget      use" in line for line in lines)
    found = {}
    for number, row in rows:
        tokens = _TOKEN.findall(row[4])
        util = _number(row[3])
        if has_two_lines:
            # The lower half begins with the budget bar and the share that was used.
            lower = next((line for line in lines[number + 1 : number + 3] if line[:20].strip()), lines[number + 1])
            below = _TOKEN.findall(lower[20:])
            values = (_first(tokens, 0), _first(tokens, 1), _first(below, 1), _decimal(below, 0))
        else:
            values = (_first(tokens, 0), _first(tokens, 1), _first(tokens, 2), _decimal(tokens, 3))
        found[int(row[1])] = Shown(util, *values)
    return found


def _panels(lines: list[str]) -> dict[int, Shown]:
    found: dict[int, Shown] = {}
    index = -1
    values: dict[str, str] = {}
    for line in [*lines, "› GPU 99 "]:
        if head := re.match(r"^[›>─ -][■▲?X! ─-]?GPU (\d+) ", line):
            if index >= 0:
                found[index] = Shown(
                    _number(values.get("util")),
                    _number(values.get("power")),
                    _number(values.get("temp")),
                    _number(values.get("SM MHz")),
                    float(values["memory"]) if values.get("memory", "–") != "–" else None,
                )
            index, values = int(head[1]), {}
        elif value := re.match(r"^ (util|power|memory|temp|SM MHz) +(–|[\d.]+)", line):
            values.setdefault(value[1], value[2])
    return found


def _number(text: str | None) -> int | None:
    digits = re.sub(r"\D", "", text or "")
    return int(digits) if digits else None


def _first(tokens: Sequence[tuple[str, str]], at: int) -> int | None:
    return _number(tokens[at][0]) if at < len(tokens) else None


def _decimal(tokens: Sequence[tuple[str, str]], at: int) -> float | None:
    return float(tokens[at][0]) if at < len(tokens) and tokens[at][0] != "–" else None


# --- GPUs that cannot be mistaken for each other --------------------------------------------------


def distinct(index: int, shift: int = 0) -> dict[str, float]:
    """The driver's values for one GPU; no two GPUs and no two shifts share one."""
    return {
        "utilization": 20 + 3 * index + shift,
        "power_w": 300 + 11 * index + 2 * shift,
        "temperature": 40 + 2 * index + shift,
        "clock_sm": 1200 + 30 * index + 7 * shift,
        "memory_used": (10 + index) * GIB + (5 + shift) * GIB // 10,
    }


def as_shown(values: Mapping[str, float]) -> Shown:
    """What the screen must say for them."""
    return Shown(
        int(values["utilization"]),
        int(values["power_w"]),
        int(values["temperature"]),
        int(values["clock_sm"]),
        round(values["memory_used"] / GIB, 1),
    )


def distinct_gpus(count: int) -> list[Profile]:
    """So many H100 with values of their own.

    Without energy counter, whose mean over an interval is right to a watt only while the machine is not overloaded.
    """
    return [h100().but({"energy_base_j": None, **distinct(index)}) for index in range(count)]


def shift_all(driver: FakeDriver, count: int, shift: int) -> dict[int, Shown]:
    """Move every GPU's values; returns what the screen must say from then on."""
    values = {index: distinct(index, shift) for index in range(count)}
    driver.update({f"gpu.{index}.{key}": value for index, of in values.items() for key, value in of.items()})
    return {index: as_shown(of) for index, of in values.items()}


# --- real processes -------------------------------------------------------------------------------


class Trainer:
    """A real Python process with children that are named as PyTorch names its data workers."""

    def __init__(
        self, workers: int = 0, *, arguments: Sequence[str] = (), argv0: str | None = None, comm: bytes | None = None
    ) -> None:
        # A relative name: what fits on the screen must not depend on where this repository lies.
        command = [argv0 or "python", TRAINER.name, f"workers={workers}"]
        if comm is not None:
            command.append(f"comm={comm.hex()}")
        self.process = subprocess.Popen(
            [*command, *arguments],
            executable=sys.executable,
            cwd=TRAINER.parent,
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Trainer:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """Close its stdin, at which it and its children end; kill it should it not."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
