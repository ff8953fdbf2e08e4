"""Who is left over on a GPU: found only when memory has no owner, named, and never a service."""

from __future__ import annotations

from pathlib import Path

import pytest
from proctree import GIB, FakeProc

from gpumon.model import Gpu, Process
from gpumon.sources.host import leftovers
from gpumon.sources.host.leftovers import Leftovers

GPU = Gpu(uuid="GPU-a", index=0, pci_bus_id="00000000:3B:00.0", memory_used_bytes=10 * GIB, memory_total_bytes=80 * GIB)
OTHER = Gpu(
    uuid="GPU-b", index=1, pci_bus_id="00000000:5E:00.0", memory_used_bytes=10 * GIB, memory_total_bytes=80 * GIB
)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer over four processes than a reading would."""
    monkeypatch.setattr(leftovers, "SLICE_S", 60.0)


@pytest.fixture
def tree(tmp_path: Path) -> FakeProc:
    """A machine whose GPU 0 is /dev/nvidia1, with a worker, a service and a stranger."""
    tree = FakeProc(tmp_path)
    tree.write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t X\nDevice Minor: \t 1\nGPU Excluded:\t No\n")
    tree.write("driver/nvidia/gpus/0000:5e:00.0/information", "Model: \t X\nDevice Minor: \t 0\n")
    for pid, comm in ((31, "pt_data_worker"), (32, "nvidia-persiste"), (33, "bash"), (34, "python")):
        tree.add(pid, comm=comm, argv=("python", "train.py", "--token", "abc"))
    for pid, device in ((31, "nvidia1"), (32, "nvidia1"), (33, "null"), (34, "nvidia0")):
        tree.link(f"{pid}/fd/5", f"/dev/{device}")
        tree.link(f"{pid}/fd/6", "/dev/nvidiactl")
    return tree


def test_who_has_the_device_open_is_named(tree: FakeProc) -> None:
    """By the device's own number, without services, with name, parent and start."""
    (found,) = Leftovers(str(tree.proc)).look([GPU], (), 100.0)
    assert (found.pid, found.ppid, found.name, found.role) == (31, 1, "pt_data_worker", "dataloader-worker")
    assert found.open_gpus == ("GPU-a",)
    assert found.gpu_memory_bytes == {}
    assert found.started_s is not None


def test_nothing_is_looked_at_while_memory_has_owners(tree: FakeProc) -> None:
    """A holder that accounts for what is in use, or one whose memory is not told: no look at any process."""
    owner = Process(pid=9, gpu_memory_bytes={"GPU-a": 10 * GIB})
    unknown = Process(pid=9, gpu_memory_bytes={"GPU-a": None})
    assert Leftovers(str(tree.proc)).look([GPU], (owner,), 100.0) == ()
    assert Leftovers(str(tree.proc)).look([GPU], (unknown,), 100.0) == ()


def test_only_the_gpu_that_is_short_counts(tree: FakeProc) -> None:
    """Whoever has another GPU open is no suspect."""
    owner = Process(pid=9, gpu_memory_bytes={"GPU-a": 10 * GIB})
    (found,) = Leftovers(str(tree.proc)).look([GPU, OTHER], (owner,), 100.0)
    assert (found.pid, found.open_gpus) == (34, ("GPU-b",))


def test_a_look_is_kept_for_ten_seconds(tree: FakeProc) -> None:
    """Newcomers are found by the next look; what is gone by then is forgotten."""
    look = Leftovers(str(tree.proc))
    assert [one.pid for one in look.look([GPU], (), 100.0)] == [31]
    tree.add(35)
    tree.link("35/fd/3", "/dev/nvidia1")
    assert [one.pid for one in look.look([GPU], (), 105.0)] == [31]
    assert [one.pid for one in look.look([GPU], (), 110.0)] == [31, 35]
    (tree.proc / "31/fd/5").unlink()
    assert [one.pid for one in look.look([GPU], (), 120.0)] == [35]


def test_a_large_machine_is_looked_through_in_slices(tree: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading spends a moment on it, whatever runs here, and the answer comes when all were looked at."""
    monkeypatch.setattr(leftovers, "SLICE_S", 0.0)
    look = Leftovers(str(tree.proc))
    answers = [[one.pid for one in look.look([GPU], (), 100.0 + at)] for at in range(8)]
    assert answers[0] == []
    assert answers[-1] == [31]


def test_known_processes_are_not_given_twice(tree: FakeProc) -> None:
    """A process that the snapshot has already is left out."""
    assert Leftovers(str(tree.proc)).look([GPU], (Process(pid=31),), 100.0) == ()
