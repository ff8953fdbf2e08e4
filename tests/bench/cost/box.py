"""The machine that is watched: a fake driver with H100s whose values move, and real processes that hold them.

The processes are eight jobs (Slurm's, by their environment) with a rank on every GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from fakenvml import GIB, MIB, FakeDriver, Process, h100, wave

ROOT = Path(__file__).parents[3]
PER_GPU = 8
"""Processes on each GPU, one of each job."""
DAY_S = "86400"


class Box:
    """Some GPUs with eight processes on each; and, on demand, strangers that hold none."""

    def __init__(self, gpus: int = 8, strangers: int = 0) -> None:
        """Everything runs until ``close``."""
        self.directory = Path(tempfile.mkdtemp(prefix="gpumon-bench-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self.driver = FakeDriver(
                self.directory,
                [h100().but(_moving(index)) for index in range(gpus)],
                system={"event_poll_s": 1},  # a real driver sleeps until there is an event
            )
            for gpu in range(gpus):
                held = [_start("train.py", job=number, rank=gpu, ranks=gpus) for number in range(PER_GPU)]
                self._processes += held
                self.driver.set_processes(
                    gpu,
                    [
                        Process(
                            one.pid, wave(3.1 + number, 50, 5 * GIB, 5 * GIB + 64 * MIB), wave(2.7 + number, 50, 5, 12)
                        )
                        for number, one in enumerate(held)
                    ],
                )
            self._processes += [_start("stranger") for _ in range(strangers)]
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Box:  # noqa: PYI034 - Self is not in Python 3.10
        """Use it in a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        self.close()

    def close(self) -> None:
        """End the processes and remove the files."""
        for one in self._processes:
            one.kill()
        for one in self._processes:
            one.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """For a program that is to find this driver, and no user's configuration."""
        return {
            **plain_environment(),
            **self.driver.env,
            "HOME": str(self.directory),
            "XDG_CONFIG_HOME": str(self.directory),
        }

    def calls(self, pid: int) -> int:
        """How often a process has called the driver."""
        return self.driver.counts(pid).total()


def plain_environment() -> Mapping[str, str]:
    """What a user's shell gives."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "TERM": "xterm-256color",
        "LANG": "en_US.UTF-8",
        "PYTHONPATH": str(ROOT),
    }


def _moving(index: int) -> Mapping[str, str | None]:
    """Load that varies as a training run's does; no two GPUs alike."""
    return {
        "memory_used": None,  # what the processes hold
        "utilization": wave(1.3 + 0.1 * index, 50, 91, 99),
        "power_w": wave(4.3 + 0.3 * index, 50, 610 + index, 680),
        "temperature": wave(17 + index, 50, 61 + index, 64 + index),
        "clock_sm": wave(5 + index, 50, 1905, 1980),
    }


def _start(name: str, *, job: int | None = None, rank: int = 0, ranks: int = 1) -> subprocess.Popen[bytes]:
    """A process that sleeps and costs nothing, under another name; as a rank of a job where one is named."""
    environment = dict(os.environ)
    if job is not None:
        environment |= {"SLURM_JOB_ID": str(4200 + job), "RANK": str(rank), "WORLD_SIZE": str(ranks)}
        environment["LOCAL_RANK"] = str(rank)
    return subprocess.Popen([name, DAY_S], executable=shutil.which("sleep"), stdin=subprocess.DEVNULL, env=environment)
