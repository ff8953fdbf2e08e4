"""A job in a container as Docker makes one, by namespaces: mounts of the probe's folder and directory, its own pids."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.model import Gpu
from gpumon.probe import FOLDER
from gpumon.sources import GpuUse
from gpumon.sources.inbox.inbox import Inbox

STAND_IN = Path(__file__).parent / "standin"
GPUS = (Gpu(uuid="GPU-aaaaaaaa", index=0, name="H100"), Gpu(uuid="GPU-bbbbbbbb", index=1, name="H100"))
TRAIN = """
import sys, time, torch
torch.cuda._initialized = True
at = {"all": {"current": 5 << 30, "peak": 6 << 30}}
torch.cuda.figures = {0: {"allocated_bytes": at, "reserved_bytes": at}}
optimizer = torch.optim.SGD()
print("ready", flush=True)
while True:
    time.sleep(0.02)
    optimizer.step()
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@contextmanager
def container(tmp_path: Path, setup: str, environment: str) -> Iterator[int]:
    """The training process of a container; gives its pid here."""
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    image = f"mount -t tmpfs none /mnt && mkdir -p /mnt/gpumon /mnt/run && {setup}"
    code = f"{image} && exec env {environment} {sys.executable} {program}"
    with subprocess.Popen(
        ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", code], stdout=subprocess.PIPE, cwd="/"
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                pytest.skip("namespaces are not allowed here")
            yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        finally:
            for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
                os.kill(int(child), 9)


def read(inbox: Inbox, pid: int) -> None:
    """Both ways lead to the same: steps, memory, and the GPU by the driver's list of host pids."""
    begun, rank = time.monotonic(), None
    while time.monotonic() - begun < 15.0:
        ranks = inbox.read({pid: GpuUse({"GPU-bbbbbbbb": 8 << 30}, None)}, GPUS, 100.0 + time.monotonic() - begun)
        rank = next((rank for rank in ranks if rank.pid == pid and rank.step_s and rank.reserved_bytes), None)
        if rank is not None:
            break
        time.sleep(0.3)
    assert rank is not None
    assert (rank.pid, rank.gpu_uuid, rank.reserved_bytes, rank.phase) == (pid, "GPU-bbbbbbbb", 5 << 30, "train")
    assert rank.step
    inbox.close()


def inbox_of(path: Path) -> Inbox:
    inbox = Inbox({"GPUMON_RUNTIME_DIR": str(path), "XDG_RUNTIME_DIR": "/nonexistent"})
    inbox._own = inbox._own[:1]
    return inbox


def test_with_the_two_mounts(tmp_path: Path, runtime: Path) -> None:
    """As `-v FOLDER:/…:ro -v DIRECTORY:/… -e PYTHONPATH -e GPUMON_RUNTIME_DIR` make it; it calls itself pid 1."""
    setup = (
        f"mount --bind {FOLDER} /mnt/gpumon && mount -o remount,bind,ro /mnt/gpumon && mount --bind {runtime} /mnt/run"
    )
    with container(tmp_path, setup, f"PYTHONPATH=/mnt/gpumon:{STAND_IN} GPUMON_RUNTIME_DIR=/mnt/run") as pid:
        read(inbox_of(runtime), pid)
        assert [path.name.partition(".")[0] for path in runtime.iterdir()] == ["1"]


def test_with_the_folder_alone(tmp_path: Path, runtime: Path) -> None:
    """Nothing shared to write to: the reader goes through the container's own root."""
    setup = f"mount --bind {FOLDER} /mnt/gpumon && mount -t tmpfs none /run && mkdir -m 700 /run/probes"
    with container(tmp_path, setup, f"PYTHONPATH=/mnt/gpumon:{STAND_IN} GPUMON_RUNTIME_DIR=/run/probes") as pid:
        read(inbox_of(runtime), pid)
        assert not list(runtime.iterdir())
