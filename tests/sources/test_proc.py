"""One process, from the text of /proc and from life."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from proctree import FakeProc, python

from gpumon.sources.host import procfs
from gpumon.sources.host.filesystems import kind_at, parse_mounts
from gpumon.sources.host.proc import Watch, identify, read_stat
from gpumon.sources.host.states import StateSampler

BURN = "print(1, flush=True)\nwhile True: pass"
SLEEP = "import time; print(1, flush=True); time.sleep(600)"


def watched(pid: int, now: float, proc: str = "/proc") -> Watch:
    stat = read_stat(proc, pid)
    assert stat is not None
    return Watch(proc, pid, stat, now, is_holder=True)


def over(pid: int, seconds: float) -> Watch:
    """Watch a living process for a while."""
    watch = watched(pid, time.monotonic())
    time.sleep(seconds)
    assert watch.sample(time.monotonic())
    watch.close()
    return watch


@pytest.mark.parametrize("comm", ["python", "a b", ") R 1 (", "x) S 99 99", "()"])
def test_stat_of_any_name(comm: str) -> None:
    """A name with brackets and blanks, which anyone may set, shifts no field."""
    line = f"7 ({comm}) D 3 7 5 0 -1 0 0 0 0 0 40 2 9 9 20 0 4 0 1234 99 10 0 0\n".encode()

    stat = procfs.parse_stat(line)

    assert stat is not None
    assert (stat.comm.decode(), stat.state, stat.ppid, stat.session_id) == (comm, "D", 3, 5)
    assert (stat.cpu_ticks, stat.started_ticks, stat.rss_bytes) == (42, 1234, 10 * procfs.PAGE_BYTES)


@pytest.mark.parametrize("data", [None, b"", b"7 (py", b"7 (python) R 1 2"])
def test_stat_torn(data: bytes | None) -> None:
    """A stat that is empty or cut off is no reading."""
    assert procfs.parse_stat(data) is None


def test_io_and_status_and_schedstat() -> None:
    """The other files give their numbers, or None where the kernel wrote none."""
    io = b"rchar: 10\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 99\n"
    status = b"Name:\tpython\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,8\n"

    assert procfs.parse_io(io) == procfs.Io(read_bytes=5, write_bytes=6, rchar_bytes=10)
    assert procfs.parse_io(b"rchar: 10\n") is None
    assert procfs.parse_status(status) == procfs.Status(uid=1000, cpus_allowed=4)
    assert procfs.parse_status(None) is None
    assert procfs.parse_sched(b"500 20 3\n") == procfs.Sched(500, 20)
    assert procfs.parse_sched(b"0 0 0\n") is None


def test_burning_process() -> None:
    """A process that computes all the time shows about a core, on its main thread, without waiting for a disk."""
    with python(BURN) as child:
        watch = over(child.pid, 1.5)

    assert watch.cpu_pct is not None
    assert watch.main_thread_cpu_pct is not None
    assert watch.run_delay_pct is not None
    # Other work on this machine takes processor time from it; what it does not run it waits for.
    assert 3 < watch.cpu_pct <= 110
    assert watch.main_thread_cpu_pct == pytest.approx(watch.cpu_pct, abs=10)
    assert 70 < watch.main_thread_cpu_pct + watch.run_delay_pct <= 115
    assert (watch.main_thread_state, watch.disk_wait_pct) == ("R", 0.0)


def test_sleeping_process() -> None:
    """A process that sleeps uses nothing and is in state S."""
    with python(SLEEP) as child:
        watch = over(child.pid, 1.0)

    assert watch.cpu_pct is not None
    assert watch.cpu_pct < 5
    assert (watch.main_thread_state, watch.disk_wait_pct) == ("S", 0.0)


def test_two_processes_on_one_core() -> None:
    """Two processes bound to one core each wait for it about half of the time."""
    core = min(os.sched_getaffinity(0))
    with python(BURN) as first, python(BURN) as second:
        for child in (first, second):
            os.sched_setaffinity(child.pid, {core})
        watch = over(first.pid, 1.5)

        assert identify("/proc", first.pid, b"python", is_holder=True).cpus_allowed == 1

    assert watch.run_delay_pct is not None
    assert watch.cpu_pct is not None
    assert watch.run_delay_pct > 25
    assert watch.cpu_pct < 75


def test_busy_thread_beside_the_main_one() -> None:
    """A thread of its own counts for the process and not for the main thread."""
    code = """
    import threading, time
    def burn():
        while True: pass
    threading.Thread(target=burn, daemon=True).start()
    print(1, flush=True)
    time.sleep(600)
    """
    with python(code) as child:
        watch = over(child.pid, 1.2)

    assert watch.cpu_pct is not None
    assert watch.main_thread_cpu_pct is not None
    assert watch.cpu_pct > 3
    assert watch.main_thread_cpu_pct < watch.cpu_pct / 2


def test_reads_and_writes_per_second(tmp_path: Path) -> None:
    """Bytes asked for and bytes written come as rates over the time between two readings."""
    code = """
    import os, sys
    path = sys.argv[1]
    with open(path, "wb") as file: file.write(bytes(8 << 20)); file.flush(); os.fsync(file.fileno())
    print(1, flush=True)
    for line in sys.stdin:
        with open(path, "rb") as file: file.read()
        with open(path, "wb") as file: file.write(bytes(4 << 20)); file.flush(); os.fsync(file.fileno())
        print(2, flush=True)
    """
    with python(code, str(tmp_path / "data")) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        watch = watched(child.pid, 10.0)
        child.stdin.write("go\n")
        child.stdin.flush()
        child.stdout.readline()
        assert watch.sample(12.0)
        watch.close()

    assert watch.rchar_bytes_per_s == pytest.approx((8 << 20) / 2, rel=0.02)
    # A file system in memory writes nothing to storage.
    assert watch.write_bytes_per_s is not None
    assert watch.write_bytes_per_s == 0 or watch.write_bytes_per_s == pytest.approx((4 << 20) / 2, rel=0.1)


def test_rates_need_two_readings(tmp_path: Path) -> None:
    """The first reading has no rates; the second has the exact ones."""
    fake = FakeProc(tmp_path)
    fake.stat(7, cpu_s=10)
    fake.sched(7, run_s=5, delay_s=1)
    fake.io(7, read=0, write=100, rchar=1000)
    watch = watched(7, 100.0, str(fake.proc))

    assert (watch.cpu_pct, watch.run_delay_pct, watch.rchar_bytes_per_s) == (None, None, None)

    fake.stat(7, cpu_s=13, state="D")
    fake.sched(7, run_s=6.5, delay_s=1.4)
    fake.io(7, read=4000, write=100, rchar=9000)

    assert watch.sample(102.0, "DDSR")
    assert watch.cpu_pct == pytest.approx(150)
    assert watch.main_thread_cpu_pct == pytest.approx(75)
    assert watch.run_delay_pct == pytest.approx(20)
    assert (watch.read_bytes_per_s, watch.write_bytes_per_s, watch.rchar_bytes_per_s) == (2000, 0, 4000)
    assert (watch.main_thread_state, watch.disk_wait_pct) == ("D", pytest.approx(60))
    watch.close()


def test_main_thread_without_scheduler_statistics(tmp_path: Path) -> None:
    """A kernel without schedstat still tells the main thread's share; the delay is missing, not zero."""
    fake = FakeProc(tmp_path)
    fake.stat(7, cpu_s=10)
    watch = watched(7, 100.0, str(fake.proc))
    fake.stat(7, cpu_s=11)

    assert watch.sample(102.0)
    assert watch.main_thread_cpu_pct == pytest.approx(50)
    assert watch.run_delay_pct is None
    watch.close()


def test_refused_io_is_missing(tmp_path: Path) -> None:
    """Where /proc/PID/io is refused the rates are missing, and everything else is there."""
    fake = FakeProc(tmp_path)
    fake.stat(7, cpu_s=1)
    (fake.proc / "7/io").mkdir()
    watch = watched(7, 100.0, str(fake.proc))
    fake.stat(7, cpu_s=2)

    assert watch.sample(101.0)
    assert watch.cpu_pct == pytest.approx(100)
    assert (watch.read_bytes_per_s, watch.write_bytes_per_s, watch.rchar_bytes_per_s) == (None, None, None)
    watch.close()


def test_ended_process_on_a_kept_descriptor() -> None:
    """A process that ended between two readings is gone, without an exception."""
    with python(SLEEP) as child:
        watch = watched(child.pid, 1.0)
        assert watch.sample(2.0)
        child.kill()
        child.wait()

        assert not watch.sample(3.0)
        watch.close()


def test_pid_given_to_another_process(tmp_path: Path) -> None:
    """The same pid with another start is another process: the watch ends."""
    fake = FakeProc(tmp_path)
    fake.stat(7, cpu_s=10, start_s=100)
    watch = watched(7, 1.0, str(fake.proc))
    fake.stat(7, cpu_s=500, start_s=900)

    assert not watch.sample(2.0)
    watch.close()


def test_identity_of_an_own_process() -> None:
    """Own processes show a command line without secrets, switches without keys, user and cores."""
    env = {"HF_TOKEN": "hf_abcdefghijklmnopqrst", "OMP_NUM_THREADS": "3", "LOCAL_RANK": "1", "RANK": "1"}
    with python(SLEEP, "--api-key", "s3cr3tvalue", env=env) as child:
        known = identify("/proc", child.pid, b"python\x1b]0;x", is_holder=True)

    assert known.is_own
    assert known.user is not None
    assert known.command is not None
    assert known.command.endswith("--api-key ***")
    assert known.environment == {"OMP_NUM_THREADS": "3", "LOCAL_RANK": "1", "RANK": "1"}
    assert known.name == "python·]0;x"
    assert known.cpus_allowed == len(os.sched_getaffinity(0))
    assert "s3cr3tvalue" not in repr(known.command)


def test_identity_of_anothers_process(tmp_path: Path) -> None:
    """Of another user's process name and user are shown, the command line and environment never."""
    fake = FakeProc(tmp_path)
    fake.add(7, uid=54321, argv=("python", "secret.py"), environment={"RANK": "1"})

    known = identify(str(fake.proc), 7, b"python", is_holder=True)

    assert not known.is_own
    assert (known.user, known.name) == ("54321", "python")
    assert (known.command, known.environment) == (None, None)


def test_states_four_times_a_second() -> None:
    """The sampler's thread collects a sleeper's states, forgets who is not watched, and ends on close."""
    sampler = StateSampler("/proc")
    with python(SLEEP) as child:
        sampler.watch([child.pid, 4_194_999])
        deadline = time.monotonic() + 10
        letters = ""
        # The child may still be on its way to sleep.
        while letters.count("S") < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
            letters += sampler.take(child.pid)
        assert letters.count("S") >= 3
        assert letters.lstrip("R").strip("S") == ""
        assert sampler.take(4_194_999) == ""
        sampler.watch([])
        assert sampler.take(child.pid) == ""
    thread = sampler._thread
    sampler.close()
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive()
    assert sampler._fds == {}


def test_at_most_sixteen_are_sampled(tmp_path: Path) -> None:
    """However many are asked for, sixteen are read."""
    fake = FakeProc(tmp_path)
    for pid in range(100, 130):
        fake.stat(pid, state="D")
    sampler = StateSampler(str(fake.proc))

    sampler.watch(range(100, 130))
    deadline = time.monotonic() + 10
    while not sampler.take(115) and time.monotonic() < deadline:
        time.sleep(0.05)
    taken = [pid for pid in range(100, 130) if pid in sampler._letters]
    sampler.close()

    assert taken == list(range(100, 116))


def test_filesystem_of_a_path() -> None:
    """The longest mount point decides, on whole path elements, and names the family of the file system."""
    mounts = parse_mounts(
        b"/dev/sda / ext4 rw 0 0\nnas:/d /data nfs4 rw 0 0\ntmpfs /data/tmp tmpfs rw 0 0\n"
        b"s3 /mnt/my\\040bucket fuse.s3fs rw 0 0\noverlay /merged overlay rw 0 0\n"
        b"10.0.0.1@tcp:/l /scratch lustre rw 0 0\n"
    )

    paths = ["/data/x", "/database/x", "/data/tmp/x", "/mnt/my bucket/a/b", "/merged/x", "/scratch/x", "/x"]
    assert [kind_at(path, mounts) for path in paths] == ["nfs", "local", "tmpfs", "fuse", "local", "lustre", "local"]
