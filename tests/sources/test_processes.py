"""The processes on the GPUs, from a /proc that is written down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from proctree import BOOT_S, GIB, FakeProc, by_pid, reader_of, use


def test_pid_reuse(tmp_path: Path) -> None:
    """A pid given to another process starts afresh: no rate across the two, another start time."""
    fake = FakeProc(tmp_path)
    fake.add(7, start_s=100)
    fake.stat(7, cpu_s=5000, start_s=100)
    with reader_of(fake.proc, fake.sys) as reader:
        before = reader.read({7: use()}, 1.0)[1][0]
        fake.add(7, comm="Xorg", argv=("/usr/bin/Xorg",), start_s=400)
        reader.read({7: use()}, 2.0)
        after = reader.read({7: use()}, 3.0)[1][0]

    assert (before.started_s, before.role) == (BOOT_S + 100, "trainer")
    assert (after.started_s, after.role, after.cpu_pct) == (BOOT_S + 400, "other", None)


def test_without_lists_of_children(tmp_path: Path) -> None:
    """Where the kernel lists no children they are found by their parents, and strangers are left out."""
    fake = FakeProc(tmp_path)
    fake.add(7, children=None)
    fake.add(8, ppid=7, comm="pt_data_worker", children=None)
    fake.add(9, ppid=8, comm="sh", argv=("sh",), children=None)
    fake.add(10, ppid=1, children=None)
    with reader_of(fake.proc, fake.sys) as reader:
        assert set(by_pid(reader.read({7: use()}, 1.0)[1])) == {7, 8, 9}
        fake.add(11, ppid=7, comm="pt_data_worker", children=None)
        seen = [set(by_pid(reader.read({7: use()}, 2.0 + second)[1])) for second in range(8)]

    assert seen[0] == {7, 8, 9}
    assert seen[-1] == {7, 8, 9, 11}


def test_orphan_is_let_go(tmp_path: Path) -> None:
    """A worker whose parent changed to init belongs to no GPU process any more."""
    fake = FakeProc(tmp_path)
    fake.add(7, children=(8,))
    fake.add(8, ppid=7, comm="pt_data_worker")
    with reader_of(fake.proc, fake.sys) as reader:
        assert set(by_pid(reader.read({7: use()}, 1.0)[1])) == {7, 8}
        fake.children(7)
        fake.stat(8, ppid=1, comm="pt_data_worker")
        assert set(by_pid(reader.read({7: use()}, 2.0)[1])) == {7}


def test_ranks_and_helpers_of_two_trainers(tmp_path: Path) -> None:
    """Every helper stands behind its own trainer; a trainer that started rank 1 itself is rank 0."""
    fake = FakeProc(tmp_path)
    lightning = {"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}
    fake.add(20, children=(21, 30), environment={}, uid=os.geteuid())
    fake.add(21, ppid=20, comm="pt_data_worker")
    fake.add(30, ppid=20, children=(31,), environment=lightning, uid=os.geteuid())
    fake.add(31, ppid=30, comm="pt_data_worker")
    with reader_of(fake.proc, fake.sys) as reader:
        processes = reader.read({30: use("GPU-b"), 20: use("GPU-a")}, 1.0)[1]

    assert [process.pid for process in processes] == [20, 21, 30, 31]
    assert [(process.rank, process.local_rank, process.world_size) for process in processes] == [
        (0, 0, 2), (None, None, None), (1, 1, 2), (None, None, None),
    ]  # fmt: skip


def test_process_that_renames_itself(tmp_path: Path) -> None:
    """A forked child that becomes a worker is read again at once, one that gets a new program likewise."""
    fake = FakeProc(tmp_path)
    fake.add(7, children=(8,))
    fake.add(8, ppid=7, argv=("python", "log.py"))
    with reader_of(fake.proc, fake.sys) as reader:
        assert by_pid(reader.read({7: use()}, 1.0)[1])[8].role == "other"
        fake.add(8, ppid=7, comm="ptxas", argv=("ptxas", "x.ptx"))
        after = by_pid(reader.read({7: use()}, 2.0)[1])[8]

    assert (after.name, after.role) == ("ptxas", "compile")


def test_maps_environment_and_threads_of_a_trainer(tmp_path: Path) -> None:
    """Libraries come from the maps, the pin-memory thread from the threads, ranks from the environment."""
    fake = FakeProc(tmp_path)
    maps = "7f 00 r-xp 0 08:01 1 /env/torch/lib/libtorch_cuda.so\n7f 00 r-xp 0 08:01 1 /env/libnccl.so.2\n"
    environment = {"RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "llama", "SECRET": "x"}
    fake.add(7, maps=maps, environment=environment, uid=os.geteuid())
    fake.write("7/task/8/comm", "pt_data_pin\n")
    with reader_of(fake.proc, fake.sys) as reader:
        process = reader.read({7: use()}, 1.0)[1][0]

    assert (process.framework, process.libraries) == ("pytorch", ("libtorch_cuda", "libnccl"))
    assert process.threads == ("pt_data_pin",)
    assert (process.rank, process.local_rank, process.world_size, process.job_id) == (2, 0, 4, "llama")
    assert process.environment is not None
    assert "SECRET" not in process.environment


def test_limits_of_version_2(tmp_path: Path) -> None:
    """The tightest level above a process gives quota, throttled share and memory limit, without the page cache."""
    fake = FakeProc(tmp_path)
    group = "sys/fs/cgroup/kubepods/pod1/box"
    fake.add(7, cgroup="0::/kubepods/pod1/box\n")

    def write(name: str, content: str) -> None:
        fake.write(f"../{name}", content)

    write(f"{group}/cpu.max", "max 100000\n")
    write("sys/fs/cgroup/kubepods/pod1/cpu.max", "250000 100000\n")
    write("sys/fs/cgroup/kubepods/pod1/cpu.stat", "usage_usec 1\nnr_periods 100\nnr_throttled 10\n")
    write(f"{group}/memory.max", f"{8 * GIB}\n")
    write("sys/fs/cgroup/kubepods/pod1/memory.max", "max\n")
    write(f"{group}/memory.stat", f"anon {3 * GIB}\nfile {4 * GIB}\nkernel 1\nshmem {GIB}\n")
    with reader_of(fake.proc, fake.sys) as reader:
        first = reader.read({7: use()}, 0.0)[1][0]
        write("sys/fs/cgroup/kubepods/pod1/cpu.stat", "usage_usec 2\nnr_periods 150\nnr_throttled 30\n")
        second = reader.read({7: use()}, 5.0)[1][0]

    assert (first.cpu_quota_cores, first.cpu_throttled_pct) == (2.5, None)
    assert (first.memory_limit_bytes, first.memory_charged_bytes) == (8 * GIB, 4 * GIB)
    assert second.cpu_throttled_pct == pytest.approx(40)


def test_limits_of_version_1(tmp_path: Path) -> None:
    """Version 1 gives the same from its own files; its huge number means no limit."""
    fake = FakeProc(tmp_path)
    fake.add(7, cgroup="4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n")
    fake.add(8, cgroup="4:memory:/\n3:cpu,cpuacct:/\n0::/\n")
    for name, content in {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "400000\n",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/job/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "memory/job/memory.limit_in_bytes": f"{2 * GIB}\n",
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/job/memory.stat": f"rss 1\nshmem 1\ntotal_cache 5\ntotal_rss {GIB}\ntotal_shmem 4096\n",
    }.items():
        fake.write(f"../sys/fs/cgroup/{name}", content)
    with reader_of(fake.proc, fake.sys) as reader:
        reader.read({7: use(), 8: use()}, 0.0)
        limited, free = reader.read({7: use(), 8: use()}, 5.0)[1]

    assert (limited.cpu_quota_cores, limited.cpu_throttled_pct) == (4, 0)
    assert (limited.memory_limit_bytes, limited.memory_charged_bytes) == (2 * GIB, GIB + 4096)
    assert (free.cpu_quota_cores, free.memory_limit_bytes, free.memory_charged_bytes) == (None, None, None)


def test_data_on_a_network_file_system(tmp_path: Path) -> None:
    """A worker's open file on NFS makes it the trainer's data file system; logs and libraries do not count."""
    fake = FakeProc(tmp_path)
    fake.add(7, children=(8,))
    fake.add(8, ppid=7, comm="pt_data_worker")
    for pid in (7, 8):
        fake.write(f"{pid}/mounts", "/dev/sda / ext4 rw 0 0\nnas:/d /data nfs4 rw 0 0\n")
    fake.link("7/fd/3", "/data/env/lib/libx.so")
    fake.link("8/fd/4", "/data/imagenet/0001.tar")
    fake.write("8/fdinfo/4", "pos:\t0\nflags:\t0100000\n")
    fake.link("8/fd/5", "/data/run.txt")
    fake.write("8/fdinfo/5", "pos:\t0\nflags:\t0100001\n")
    with reader_of(fake.proc, fake.sys) as reader:
        for now in range(4):
            processes = reader.read({7: use()}, float(now))[1]

    assert [process.data_filesystem for process in processes] == ["nfs", "nfs"]


def test_many_gpus_are_read_every_two_seconds(tmp_path: Path) -> None:
    """With more than four GPUs values are two seconds old at most, with few they are new at every reading."""
    fake = FakeProc(tmp_path)
    for pid in range(10, 18):
        fake.add(pid)
    for count, expected in ((8, [None, 100, 100, 100]), (2, [None, 100, 0, 100])):
        holders = {10 + n: use(f"GPU-{n}") for n in range(count)}
        seen = []
        with reader_of(fake.proc, fake.sys) as reader:
            fake.stat(10, cpu_s=0)
            for now, cpu_s in enumerate((0, 1, 1, 2)):
                fake.stat(10, cpu_s=cpu_s)
                seen.append(by_pid(reader.read(holders, float(now))[1])[10].cpu_pct)
        if count == 8:
            # The second reading comes at once; then half of a core over two seconds.
            expected = [None, 100, 100, 50]
        assert seen == expected


@pytest.mark.parametrize(
    "garbage", [b"", b"\0", b"x" * 5000, b"-1 " * 60, b"7 (a) R " + b"z " * 40, b"\xff\xfe\n:\n" * 30]
)
def test_garbage_raises_nothing(tmp_path: Path, garbage: bytes) -> None:
    """Whatever stands in the files of /proc and /sys (a sandbox's imitation), a reading comes without an exception."""
    fake = FakeProc(tmp_path)
    fake.add(7)
    names = "schedstat status cmdline cgroup environ maps mounts io task/7/children task/7/comm fdinfo/3 smaps_rollup"
    for name in names.split():
        fake.write(f"7/{name}", garbage)
    fake.link("7/fd/3", "/data/x")
    for name in "meminfo loadavg diskstats self/net/dev vmstat pressure/cpu cpuinfo self/mounts".split():
        fake.write(name, garbage)
    for name in "fs/cgroup/cpu.max fs/cgroup/cpu.stat fs/cgroup/memory.max devices/system/cpu/online".split():
        fake.write(f"../sys/{name}", garbage)
    with reader_of(fake.proc, fake.sys) as reader:
        for now in range(3):
            _, processes = reader.read({7: use()}, float(now))
        assert [process.pid for process in processes] == [7]
        fake.write("7/stat", garbage)
        fake.write("stat", garbage)
        reader.read({7: use()}, 9.0)


def test_ended_holders_are_told_once(tmp_path: Path) -> None:
    """A GPU process that is gone is told whether its /proc entry or the driver's list loses it first; no helper is."""
    fake = FakeProc(tmp_path)
    fake.add(7, children=[9])
    fake.add(8)
    fake.add(9, ppid=7)
    with reader_of(fake.proc, fake.sys) as reader:
        reader.read({7: use(), 8: use()}, 0.0)
        assert not reader.drain_events()
        (fake.proc / "9/stat").write_bytes(b"")
        (fake.proc / "8/stat").write_bytes(b"")
        reader.read({7: use()}, 1.0)
        assert [(event.kind, event.pid, event.exit_code) for event in reader.drain_events()] == [
            ("process-exit", 8, None)
        ]
        (fake.proc / "7/stat").write_bytes(b"")
        reader.read({7: use()}, 3.0)
        assert [event.pid for event in reader.drain_events()] == [7]
        assert not reader.drain_events()


def test_holder_that_lets_go_of_its_gpu_has_not_ended(tmp_path: Path) -> None:
    """A process that leaves the driver's list and lives on is no process that ended."""
    fake = FakeProc(tmp_path)
    fake.add(7)
    with reader_of(fake.proc, fake.sys) as reader:
        reader.read({7: use()}, 0.0)
        reader.read({}, 1.0)
        assert not reader.drain_events()


def test_kills_in_the_control_group_are_told(tmp_path: Path) -> None:
    """The kills that the group counted before are history; one more is an event that names a process of the job."""
    fake = FakeProc(tmp_path)
    fake.add(7, cgroup="0::/job\n")
    fake.write("../sys/fs/cgroup/job/memory.max", "1000000\n")
    events = "low 0\nhigh 0\nmax 9\noom 1\noom_kill {}\noom_group_kill 0\n"
    fake.write("../sys/fs/cgroup/job/memory.events", events.format(2))
    with reader_of(fake.proc, fake.sys) as reader:
        reader.read({7: use()}, 0.0)
        assert not reader.drain_events()
        fake.write("../sys/fs/cgroup/job/memory.events", events.format(3))
        reader.read({7: use()}, 10.0)
        (event,) = reader.drain_events()
    assert (event.kind, event.values) == ("oom-kill", {"count": 1.0, "beside_pid": 7.0})


def test_large_machines_are_read_every_two_seconds(tmp_path: Path) -> None:
    """With more than four GPUs the table rests in between; who comes or goes is seen at once."""
    fake = FakeProc(tmp_path)
    holders = {pid: use(f"GPU-{pid}") for pid in range(10, 16)}
    for pid in (*holders, 16):
        fake.add(pid)
    with reader_of(fake.proc, fake.sys) as reader:
        reader.read(holders, 1.0)
        first = reader.read(holders, 2.0)[1]
        again = reader.read(holders, 3.0)[1]
        due = reader.read(holders, 4.0)[1]
        more = reader.read({**holders, 16: use("GPU-16")}, 5.0)[1]
    assert again is first
    assert due is not first
    assert [process.pid for process in more] == [*holders, 16]


def test_many_processes_are_read_every_five_seconds(tmp_path: Path) -> None:
    """Beyond 48 the table rests for five seconds; who comes is seen at once all the same."""
    fake = FakeProc(tmp_path)
    holders = {pid: use("GPU-a") for pid in range(10, 59)}
    for pid in (*holders, 99):
        fake.add(pid)
    with reader_of(fake.proc, fake.sys) as reader:
        answers = [reader.read(holders, float(now))[1] for now in range(1, 14)]
        more = reader.read({**holders, 99: use("GPU-a")}, 14.0)[1]
    new = [now for now in range(2, 14) if answers[now - 1] is not answers[now - 2]]
    assert new == [2, 7, 12]
    assert [process.pid for process in more] == [*holders, 99]
