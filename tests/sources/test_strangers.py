"""Trainers that hold no GPU, found in a /proc that is written down."""

from __future__ import annotations

from pathlib import Path

from proctree import FakeProc, by_pid, reader_of, use

TORCH = "7f00 r-xp 0 0:0 1 /venv/torch/lib/libtorch_cpu.so\n"


def test_a_trainer_without_a_gpu_is_followed_with_its_workers(tmp_path: Path) -> None:
    """Busy for half a minute with PyTorch mapped: a trainer that holds nothing, its worker behind it."""
    fake = FakeProc(tmp_path)
    fake.add(70, argv=("python", "train.py"), maps=TORCH, children=(71,))
    fake.add(71, ppid=70, comm="pt_data_worker", argv=("python", "train.py"), maps=TORCH)
    fake.add(80, argv=("python", "sort.py"), maps="7f00 r-xp 0 0:0 1 /usr/lib/libc.so\n")
    fake.add(81, argv=("python", "idle.py"), maps=TORCH)
    seen = []
    with reader_of(fake.proc, fake.sys) as reader:
        for second in range(70):
            for pid, cores in ((70, 8), (71, 1), (80, 8), (81, 0.01)):
                parent = {71: 70}.get(pid, 1)
                comm = "pt_data_worker" if pid == 71 else "python"
                fake.stat(pid, comm=comm, ppid=parent, cpu_s=cores * second)
            seen.append(reader.read({}, float(second))[1])
    assert seen[10] == ()
    found = by_pid(seen[-1])
    assert set(found) == {70, 71}
    assert (found[70].gpu_memory_bytes, found[70].role, found[70].framework) == ({}, "trainer", "pytorch")
    assert found[71].role == "dataloader-worker"


def test_workers_of_a_gpu_process_are_no_strangers(tmp_path: Path) -> None:
    """Whoever descends from a process on a GPU is followed for that, however busy, and appears once."""
    fake = FakeProc(tmp_path)
    fake.add(7, maps=TORCH, children=(8,))
    fake.add(8, ppid=7, comm="pt_data_worker", maps=TORCH)
    with reader_of(fake.proc, fake.sys) as reader:
        for second in range(70):
            fake.stat(7, cpu_s=2.0 * second)
            fake.stat(8, comm="pt_data_worker", ppid=7, cpu_s=2.0 * second)
            processes = reader.read({7: use()}, float(second))[1]
    assert [process.pid for process in processes] == [7, 8]
    assert processes[0].gpu_memory_bytes


def test_a_trainer_that_finds_its_gpu_is_a_holder(tmp_path: Path) -> None:
    """Once the driver names it, it holds what the driver says; once it rests without a GPU, it is let go."""
    fake = FakeProc(tmp_path)
    fake.add(70, maps=TORCH)
    with reader_of(fake.proc, fake.sys) as reader:
        for second in range(70):
            fake.stat(70, cpu_s=4.0 * second)
            free = reader.read({}, float(second))[1]
        held = reader.read({70: use()}, 70.0)[1]
        for second in range(71, 180):
            rested = reader.read({}, float(second))[1]
    assert [(process.pid, process.gpu_memory_bytes) for process in free] == [(70, {})]
    assert held[0].gpu_memory_bytes
    assert rested == ()


def test_whoever_has_a_probe_trains(tmp_path: Path) -> None:
    """It is followed at once, idle or not, whatever its program looks like, until its probe is gone."""
    fake = FakeProc(tmp_path)
    fake.add(70, argv=("loop",), children=(71,))
    fake.add(71, ppid=70, comm="pt_data_worker")
    fake.add(80, argv=("/opt/bin/tritonserver",))
    with reader_of(fake.proc, fake.sys) as reader:
        assert reader.read({80: use()}, 0.0)[1][0].role == "server"
        reader.know_trainers(frozenset({70, 80}))
        found = by_pid(reader.read({80: use()}, 1.0)[1])
        assert {pid: one.role for pid, one in found.items()} == {
            70: "trainer",
            71: "dataloader-worker",
            80: "trainer",
        }
        assert found[70].gpu_memory_bytes == {}
        reader.know_trainers(frozenset())
        found = by_pid(reader.read({80: use()}, 2.0)[1])
        assert {pid: one.role for pid, one in found.items()} == {80: "trainer"}
