"""The real program beside processes whose probes write: started late, started again, and with liars among them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live import GPUMON, Trainer

from fakenvml import GIB, FakeDriver, Process, h100
from probefile import ProbeFile
from terminal import default_environment

PERIOD_S = 0.2


@contextmanager
def writing(files: list[ProbeFile], **values: Any) -> Iterator[None]:
    """Have these files written to meanwhile, as probes do."""
    is_begun, is_over = threading.Event(), threading.Event()

    def write() -> None:
        while True:
            for file in files:
                file.write([(0.1, 0.025)] * 2, **values)
            is_begun.set()
            if is_over.wait(PERIOD_S):
                return

    thread = threading.Thread(target=write)
    thread.start()
    is_begun.wait()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def run(driver: FakeDriver, probes: Path, *arguments: str) -> dict[str, Any]:
    environment = {**default_environment(HOME="/nonexistent", XDG_CONFIG_HOME="/nonexistent"), **driver.env}
    environment["GPUMON_RUNTIME_DIR"] = str(probes)
    done = subprocess.run([*GPUMON, *arguments], env=environment, capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    assert done.returncode in {0, 1}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_ranks_of_running_processes(tmp_path: Path) -> None:
    """Any gpumon that starts while they run sees both ranks, each on its GPU, and nothing that only looks like one."""
    driver = FakeDriver(tmp_path / "driver", [h100(), h100()])
    probes = tmp_path / "probes"
    probes.mkdir(mode=0o700)
    with Trainer() as first, Trainer() as second:
        for number, trainer in enumerate((first, second)):
            driver.set_processes(number, [Process(trainer.pid, 30 * GIB, 90)])
        files = [
            ProbeFile(probes, trainer.pid, rank=number, world_size=2, framework="pytorch", allocator="native")
            for number, trainer in enumerate((second, first))
        ]
        os.mkfifo(probes / f"{first.pid}.1")
        (probes / f"{second.pid}.2").symlink_to("/dev/zero")
        ProbeFile(probes, 1, ticks=5)
        with writing(files, device=0, allocated=20 * GIB, reserved=28 * GIB, floor=20 * GIB):
            for _ in range(2):
                snapshot = run(driver, probes, "once", "--json")
                ranks = [rank for rank in snapshot["ranks"] if rank["pid"] in {first.pid, second.pid}]
                assert [rank["pid"] for rank in ranks] == [second.pid, first.pid]
                uuids = [gpu["uuid"] for gpu in snapshot["gpus"]]
                assert [rank["gpu_uuid"] for rank in ranks] == uuids[::-1]
                assert all(abs(rank["heartbeat_age_s"]) < 2.0 for rank in ranks)
                assert {rank["reserved_bytes"] for rank in ranks} == {28 * GIB}
            found = run(driver, probes, "diagnose", "--for", "2s", "--json")
            assert found["samples"] >= 2
        names = {path.name for path in probes.iterdir()}
        assert {file.path.name for file in files} <= names
