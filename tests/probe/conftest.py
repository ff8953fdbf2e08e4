"""A place for the probe's files, and programs that train with a stand-in for torch, or with the real one."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.probe import FOLDER

STAND_IN = Path(__file__).parent / "standin"
TRAINING_PYTHONS = "GPUMON_TRAINING_PYTHONS"
"""Interpreters of environments with frameworks, separated by `:`; tests marked `torch` are skipped without them."""


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    """The directory that a probe writes to."""
    place = tmp_path / "runtime"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def environment(runtime: Path, tmp_path: Path) -> dict[str, str]:
    """A job's environment without the probe."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "GPUMON_RUNTIME_DIR": str(runtime),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


Train = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def train(environment: dict[str, str], tmp_path: Path) -> Train:
    """Run a training program, given as text, with the probe on and a stand-in for torch."""

    def run(
        text: str, *options: str, interpreter: str = sys.executable, stand_in: bool = True, **more: str
    ) -> subprocess.CompletedProcess[str]:
        program = tmp_path / "train.py"
        program.write_text(textwrap.dedent(text))
        path = os.pathsep.join([str(FOLDER), str(STAND_IN)] if stand_in else [str(FOLDER)])
        return subprocess.run(
            [interpreter, *options, str(program)],
            env={**environment, "PYTHONPATH": path, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )

    return run


@pytest.fixture(scope="session")
def interpreter_with() -> Callable[[str], str]:
    """The first of the named interpreters that has this framework."""

    @functools.cache
    def found(framework: str) -> str:
        for interpreter in filter(None, os.environ.get(TRAINING_PYTHONS, "").split(":")):
            look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({framework!r}) is None)"
            if subprocess.run([interpreter, "-c", look], check=False).returncode == 0:
                return interpreter
        pytest.skip(f"{TRAINING_PYTHONS} names no interpreter with {framework}")

    return found


@pytest.fixture(autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Where the given place cannot be used, the probe goes on to the next: take away what a test leaves there."""
    fallback = Path(f"/tmp/gpumon-{os.geteuid()}")
    before = set(fallback.glob("*.*"))
    yield
    for path in set(fallback.glob("*.*")) - before:
        if not Path("/proc", path.name.partition(".")[0]).exists():
            path.unlink(missing_ok=True)


@pytest.fixture
def gpumon_command() -> list[str]:
    """`gpumon`, from anywhere, without a PYTHONPATH of its own."""
    root = str(Path(FOLDER).parent.parent)
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {root!r}); from gpumon.__main__ import main; sys.exit(main())",
        "run",
    ]


TRAINING = """
import time, torch
optimizer = torch.optim.SGD()
for _ in range(8):
    time.sleep(0.01)
    optimizer.step()
print("done")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


@pytest.fixture
def job(environment: dict[str, str]) -> dict[str, str]:
    return {**environment, "PYTHONPATH": str(STAND_IN)}
