"""Training processes with the real probe, watched by the real program on the fake driver, all through: what it finds.

    GPUMON_TRAINING_PYTHONS=/env/with/torch/bin/python python -m pytest -m torch tests/e2e/test_training.py

Two loops run on the real torch; where memory is the matter, a stand-in says what the simulator's allocator does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from live import GPUMON

from fakenvml import GIB, MIB, FakeDriver, Process, h100
from gpumon.probe import FOLDER
from terminal import default_environment

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]
HERE = Path(__file__).parent
WARM_UP_S = 10
"""The first hundred steps are over when the program is started."""
WATCHED_S = 145
"""A young job is judged after a minute of steady steps; its death from two minutes of life on."""
KILLED_AT_S = 132
MEMORY = {
    "leak": ("4", "0", "0.95", "36"),
    "no leak": ("0", "0", "0.95", "36"),
    "pieces": ("0", "33", "0.5", "54"),
    "one piece": ("0", "0", "0.95", "62"),
}
"""MiB leaked and torn a step, peak within a step, GiB reserved."""
LOADERS = {"starved": ("25", "25"), "fed": ("0", "30"), "killed": ("0", "30")}
"""Milliseconds for each batch and each step."""
USE_PCT = {"starved": 50}
GPUS = [*MEMORY, *LOADERS]
MATTERS = {"memory-leak", "oom-risk", "fragmentation", "alloc-retry", "data-starved", "training-died"}


class Told(NamedTuple):
    """What the program said at the end."""

    rules: dict[str, dict[str, dict[str, Any]]]
    """Of each of ``GPUS``: rule and finding."""
    text: str


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Run everything at once, for as long as the slowest needs."""
    interpreter = os.environ.get("GPUMON_TRAINING_PYTHONS", "").partition(":")[0]
    if not interpreter:
        pytest.skip("GPUMON_TRAINING_PYTHONS names no interpreter with torch")
    place = tmp_path_factory.mktemp("training")
    driver = FakeDriver(place / "driver", [h100() for _ in GPUS])
    probes = place / "probes"
    probes.mkdir(mode=0o700)
    base = {**default_environment(HOME="/nonexistent"), "GPUMON_RUNTIME_DIR": str(probes), "OMP_NUM_THREADS": "1"}
    stand_in = f"{FOLDER}:{HERE.parent / 'probe' / 'standin'}:{HERE.parents[1]}"
    running = {
        name: _start([sys.executable, "memory_job.py", *given, str(place / name), "300"], base, stand_in)
        for name, given in MEMORY.items()
    }
    running |= {
        name: _start([interpreter, "loader_job.py", *given, "300"], base, str(FOLDER))
        for name, given in LOADERS.items()
    }
    is_over = threading.Event()
    following = threading.Thread(target=_follow, args=(driver, place, running, is_over))
    following.start()
    try:
        time.sleep(WARM_UP_S)
        done = subprocess.run(
            [*GPUMON, "diagnose", "--for", f"{WATCHED_S}s", "--json"],
            env={**base, **driver.env, "XDG_CONFIG_HOME": "/nonexistent"},
            capture_output=True,
            timeout=WATCHED_S + 60,
            check=False,
        )
    finally:
        is_over.set()
        following.join()
        for process in running.values():
            process.kill()
            process.wait()
    assert done.stderr == b""
    return _sorted(done.stdout.decode(), {process.pid: name for name, process in running.items()})


def _start(command: list[str], environment: dict[str, str], path: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=HERE, env={**environment, "PYTHONPATH": path}, start_new_session=True)


def _follow(
    driver: FakeDriver, place: Path, running: dict[str, subprocess.Popen[bytes]], is_over: threading.Event
) -> None:
    """The driver says what the processes hold; one of them is killed on the way."""
    begun = time.monotonic()
    while not is_over.wait(0.5):
        if time.monotonic() - begun > KILLED_AT_S and running["killed"].poll() is None:
            running["killed"].send_signal(signal.SIGKILL)
            running["killed"].wait()
        for number, name in enumerate(GPUS):
            state = place / name
            text = state.read_text() if state.exists() else ""
            used = int(text) if text else 8 * GIB
            is_there = running[name].poll() is None
            driver.set_processes(number, [Process(running[name].pid, used, 90)] if is_there else [])
            driver.update({
                f"gpu.{number}.memory_used": used + 600 * MIB if is_there else 600 * MIB,
                f"gpu.{number}.utilization": USE_PCT.get(name, 97) if is_there else 0,
            })  # fmt: skip


def _sorted(text: str, names: dict[int, str]) -> Told:
    said = json.loads(text)
    rules: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in GPUS}
    for finding in said["findings"]:
        subject = finding["subject"]
        number = subject.get("gpu")
        name = GPUS[number] if number is not None else names.get(subject.get("pid"))
        for each in [name] if name is not None else _of_job(subject, names):
            rules[each][finding["rule"]] = finding
    return Told(rules, text)


def _of_job(subject: dict[str, Any], names: dict[int, str]) -> list[str]:
    return [name for pid, name in names.items() if str(pid) in str(subject.get("job"))]


def test_a_leak_and_when_memory_is_full(told: Told) -> None:
    """4 MiB a step, 50 steps a second: full in minutes."""
    found = told.rules["leak"]
    assert found["oom-risk"]["severity"] == "critical"
    assert found["oom-risk"]["cause"] == "memory-leak"
    assert {one["name"]: one["value"] for one in found["memory-leak"]["evidence"]}["growth"] == pytest.approx(
        4, rel=0.2
    )


def test_memory_in_pieces(told: Told) -> None:
    found = told.rules["pieces"]
    assert found["fragmentation"]["severity"] == "warning"
    assert (found["alloc-retry"]["cause"], found["alloc-retry"]["confidence"]) == ("fragmentation", "certain")


def test_a_starved_loop(told: Told) -> None:
    """Real torch, half of each step in ``__getitem__``."""
    evidence = {one["name"]: one["value"] for one in told.rules["starved"]["data-starved"]["evidence"]}
    assert evidence["waits for data"] == pytest.approx(50, abs=5)


def test_a_process_that_was_killed(told: Told) -> None:
    assert "training-died" in told.rules["killed"]


@pytest.mark.parametrize("twin", ["no leak", "one piece", "fed"])
def test_the_healthy_twins(told: Told, twin: str) -> None:
    assert not MATTERS & set(told.rules[twin]), told.rules[twin]


def test_nothing_is_said_of_the_wrong_one(told: Told) -> None:
    expected = {"leak": {"memory-leak", "oom-risk"}, "pieces": {"fragmentation", "alloc-retry", "oom-risk"},
                "starved": {"data-starved"}, "killed": {"training-died"}}  # fmt: skip
    for name, rules in expected.items():
        assert MATTERS & set(told.rules[name]) <= rules, (name, told.rules[name])
