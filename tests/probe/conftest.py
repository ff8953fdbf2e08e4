"""A place for the probe's files, and programs that train with a stand-in for torch, or with the real one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.probe import FOLDER

STAND_IN = Path(__file__).parent / "standin"
TORCH_PYTHON = "GPUMON_TORCH_PYTHON"
"""The interpreter of an environment with the frameworks; tests marked `torch` are skipped without it."""


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
def torch_python() -> str:
    """The interpreter that has torch."""
    interpreter = os.environ.get(TORCH_PYTHON)
    if not interpreter:
        pytest.skip(f"{TORCH_PYTHON} names no interpreter with torch")
    return interpreter
