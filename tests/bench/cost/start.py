"""How soon and for how much the first value stands on the screen, and what the verbs without one take."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.bench.cost.box import Box
from tests.bench.cost.contenders import Contender
from tests.bench.cost.report import Spread, spread
from tests.bench.cost.screen import Screen


class Start(NamedTuple):
    """To the first value."""

    wall_s: Spread
    cpu_s: Spread


def screens(contenders: Sequence[Contender], box: Box, count: int) -> dict[str, Start]:
    """Each program opened so often, in turn; the first time, which fills caches, is not counted."""
    found: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in contenders}
    for number in range(count + 1):
        for contender in contenders:
            with Screen(contender.command, box.environment) as screen:
                taken = screen.wait_for(contender.shows)
            if number:
                found[contender.name].append(taken)
    return {name: Start(spread(one[0] for one in all_), spread(one[1] for one in all_)) for name, all_ in found.items()}


def verbs(box: Box, count: int) -> dict[str, Start]:
    """``once`` and ``--version`` from start to end, beside an interpreter that does nothing."""
    commands = {
        "gpumon once": (sys.executable, "-m", "gpumon", "once"),
        "gpumon --version": (sys.executable, "-m", "gpumon", "--version"),
        "python -c pass": (sys.executable, "-c", "pass"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for number in range(count + 1):
        for name, command in commands.items():
            taken = _run(command, box.environment)
            if number:
                found[name].append(taken)
    return {name: Start(spread(one[0] for one in all_), spread(one[1] for one in all_)) for name, all_ in found.items()}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=dict(environment), stdout=subprocess.DEVNULL, check=True)
    wall_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
