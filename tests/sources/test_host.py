"""The host and the processes on its GPUs, as one reader sees them over time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from proctree import GIB, by_pid, python, reader_of, use

from gpumon.model import Host, Process
from gpumon.sources import GpuUse
from gpumon.sources.host.pidview import HIDEPID_WORDS, NAMESPACE_WORDS
from gpumon.sources.host.reader import HostReader, once_pid_view, once_processes

TRAINER = """
import ctypes, os, sys, time
def fork(work):
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, 9)
        work()
        os._exit(0)
    return pid
def named(name, work):
    def run():
        ctypes.CDLL(None).prctl(15, name)
        work()
    return run
def burn():
    while True: pass
def sleep():
    time.sleep(600)
"""
CODE_OF_READER = """
import json, os, sys, time
from pathlib import Path
from gpumon.sources import GpuUse
from gpumon.sources.host.reader import HostReader, once_pid_view, once_processes
reader = HostReader(1.0, proc=Path(sys.argv[2]))
pid = int(sys.argv[1])
holders = {pid: GpuUse({"GPU-a": 1}, None)}
reader.read(holders, 0.0)
time.sleep(0.3)
host, processes = reader.read(holders, 1.0)
import msgspec
once = once_processes(holders, Path(sys.argv[2]))
assert [(p.pid, p.user, p.name) for p in once] == [(p.pid, p.user, p.name) for p in processes]
assert once_pid_view(holders, Path(sys.argv[2])) == (host.sees_host_pids, host.processes_hidden)
print(json.dumps({"host": msgspec.to_builtins(host), "processes": msgspec.to_builtins(processes)}))
"""
is_root = os.geteuid() == 0


def wait_for(reader: HostReader, holders: Mapping[int, GpuUse], condition, now: float) -> dict[int, Process]:  # noqa: ANN001
    """Read in steps of one (simulated) second until the condition holds; real processes need a moment of their own."""
    for step in range(40):
        found = by_pid(reader.read(holders, now + step)[1])
        if condition(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"not met: {found}")


# --- processes, real ones -------------------------------------------------------------------------


def test_trainer_with_its_workers() -> None:
    """A holder comes with its descendants: the busy worker and the sleeping one are told apart, each in its role."""
    code = (
        TRAINER
        + """
print(fork(named(b"pt_data_worker", burn)), fork(named(b"pt_data_worker", sleep)), flush=True)
sleep()
"""
    )
    with python("print(1, flush=True)\n" + code) as child, reader_of() as reader:
        assert child.stdout is not None
        busy, asleep = map(int, child.stdout.readline().split())
        time.sleep(0.2)
        reader.read({child.pid: use()}, time.monotonic())
        time.sleep(1.2)
        host, processes = reader.read({child.pid: use()}, time.monotonic())
        expected_user = by_pid(processes)[child.pid].user

    found = by_pid(processes)
    assert set(found) == {child.pid, busy, asleep}
    assert processes[0].pid == child.pid
    assert found[child.pid].role == "trainer"
    assert found[child.pid].gpu_memory_bytes == {"GPU-a": GIB}
    assert found[child.pid].started_s == pytest.approx(time.time(), abs=60)
    assert {found[pid].role for pid in (busy, asleep)} == {"dataloader-worker"}
    assert {found[pid].name for pid in (busy, asleep)} == {"pt_data_worker"}
    assert {found[pid].ppid for pid in (busy, asleep)} == {child.pid}
    assert {found[pid].user for pid in (busy, asleep)} == {expected_user}
    assert found[busy].cpu_pct is not None
    assert found[busy].run_delay_pct is not None
    # What other work on this machine takes from it, it waits for.
    assert found[busy].cpu_pct + found[busy].run_delay_pct > 60
    assert (found[busy].main_thread_state, found[asleep].main_thread_state) == ("R", "S")
    assert found[asleep].cpu_pct is not None
    assert found[asleep].cpu_pct < 5
    assert found[child.pid].main_thread_cpu_pct is not None
    assert found[child.pid].main_thread_cpu_pct < 10
    assert found[child.pid].memory_rss_bytes is not None
    assert found[child.pid].memory_rss_bytes > 1_000_000
    assert host.sees_host_pids is True
    assert host.processes_hidden is None


def test_worker_that_starts_later_and_ends() -> None:
    """A new worker appears within two seconds of reading, a killed one goes, and the trainer stays throughout."""
    code = (
        TRAINER
        + """
print(1, flush=True)
for line in sys.stdin:
    print(fork(named(b"pt_data_worker", sleep)), flush=True)
"""
    )
    with python(code) as child, reader_of() as reader:
        assert child.stdin is not None
        assert child.stdout is not None
        holders = {child.pid: use()}
        for now in range(20):
            assert set(by_pid(reader.read(holders, float(now))[1])) == {child.pid}
        child.stdin.write("go\n")
        child.stdin.flush()
        worker = int(child.stdout.readline())

        seen = [set(by_pid(reader.read(holders, 20.0 + second)[1])) for second in range(3)]
        assert seen[-1] == {child.pid, worker}

        os.kill(worker, signal.SIGKILL)
        # Not waited for by its parent, so it stays as a zombie first: it is still there, and says so.
        found = wait_for(reader, holders, lambda found: found[worker].state == "Z", 23.0)
        assert found[child.pid].role == "trainer"
        child.kill()
        child.wait()
        assert wait_for(reader, holders, lambda found: not found, 70.0) == {}


def test_child_of_another_thread_and_grandchild() -> None:
    """Children that a thread forked, and children of children, belong to the trainer too."""
    code = (
        TRAINER
        + """
import threading
def pair():
    print(os.getpid(), fork(sleep), flush=True)
    sleep()
def start():
    fork(pair)
    sleep()
threading.Thread(target=start, daemon=True).start()
time.sleep(0.5)
sleep()
"""
    )
    with python("print(1, flush=True)\n" + code) as child, reader_of() as reader:
        assert child.stdout is not None
        one, two = map(int, child.stdout.readline().split())

        found = by_pid(reader.read({child.pid: use()}, 1.0)[1])

    assert set(found) == {child.pid, one, two}
    assert (found[one].ppid, found[two].ppid) == (child.pid, one)


def test_compiler_and_stranger() -> None:
    """A compile child is named as such; a process that no GPU process started is not there at all."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as stranger:
        code = TRAINER + 'print(fork(named(b"ptxas", sleep)), flush=True)\nsleep()'
        with python("print(1, flush=True)\n" + code) as child, reader_of() as reader:
            assert child.stdout is not None
            compiler = int(child.stdout.readline())
            found = wait_for(reader, {child.pid: use()}, lambda found: found[compiler].role == "compile", 1.0)

    assert stranger.pid not in found
    assert set(found) == {child.pid, compiler}


def test_holder_that_ended_before_the_first_look() -> None:
    """A pid that is nobody's any more comes with what the driver says and nothing else."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with reader_of() as reader:
        host, processes = reader.read({gone.pid: GpuUse({"GPU-a": None}, {"GPU-a": 5.0})}, 1.0)

    assert processes == (Process(pid=gone.pid, gpu_memory_bytes={"GPU-a": None}, gpu_sm_pct={"GPU-a": 5.0}),)
    assert host.sees_host_pids is True


def test_holder_that_ends_while_watched() -> None:
    """A trainer that ended is left out while the driver's list lags; if the driver insists, its memory is shown."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child, reader_of() as reader:
        holders = {child.pid: use()}
        reader.read(holders, 1.0)
        child.kill()
        child.wait()
        assert reader.read(holders, 2.0)[1] == ()
        assert reader.read(holders, 5.0)[1] == ()
        assert reader.read(holders, 9.0)[1] == (Process(pid=child.pid, gpu_memory_bytes={"GPU-a": GIB}),)
        assert reader.read({}, 10.0)[1] == ()


def test_secrets_and_controls_go_nowhere() -> None:
    """No record contains a key from a command line or environment, nor a terminal control from a name."""
    env = {"WANDB_API_KEY": "envsecretenvsecret", "OMP_NUM_THREADS": "2"}
    code = TRAINER + r'named(b"py\x1b[2J\xff", lambda: print(1, flush=True))()' + "\nsleep()"
    with python(code, "--password", "argvsecret", env=env) as child, reader_of() as reader:
        _, processes = reader.read({child.pid: use()}, 1.0)

    stored = msgspec.json.encode(processes)
    assert b"secretenv" not in stored
    assert b"argvsecret" not in stored
    assert processes[0].name == "py·[2J\N{REPLACEMENT CHARACTER}"
    assert processes[0].environment == {"OMP_NUM_THREADS": "2"}


def test_open_data_file(tmp_path: Path) -> None:
    """The storage of a file that a process reads is known; a file it only writes does not count."""
    (tmp_path / "train.bin").write_bytes(b"x")
    code = """
    import sys, time
    kept = open(sys.argv[1], sys.argv[2])
    print(1, flush=True)
    time.sleep(600)
    """
    with (
        python(code, str(tmp_path / "train.bin"), "rb") as reading,
        python(code, str(tmp_path / "model.bin"), "wb") as writing,
        reader_of() as reader,
    ):
        holders = {reading.pid: use(), writing.pid: use()}
        found = wait_for(reader, holders, lambda found: found[reading.pid].data_filesystem is not None, 1.0)
        for now in range(50, 60):
            found = by_pid(reader.read(holders, float(now))[1])

    assert found[reading.pid].data_filesystem in {"local", "tmpfs"}
    assert found[writing.pid].data_filesystem is None


def test_own_shm() -> None:
    """A process's /dev/shm is the one it sees itself."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child, reader_of() as reader:
        host, processes = reader.read({child.pid: use()}, 1.0)
    space = os.statvfs("/dev/shm")

    assert processes[0].shm_total_bytes == host.shm_total_bytes == space.f_blocks * space.f_frsize


def test_sampled_states_reach_the_record() -> None:
    """States taken four times a second are what the next record's share rests on."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child, reader_of() as reader:
        holders = {child.pid: use()}
        reader.read(holders, 1.0)
        reader.watch_states([child.pid])
        reader.read(holders, 2.0)
        letters = reader._processes._states._letters[child.pid]
        letters.clear()
        letters.extend("DDD")
        reader._processes._states.watch([])
        reader._processes._states._letters[child.pid] = letters

        _, processes = reader.read(holders, 3.0)

    assert processes[0].main_thread_state == "D"
    assert processes[0].disk_wait_pct == pytest.approx(75, abs=16)


def test_close_gives_everything_back() -> None:
    """After close no descriptor and no thread of the reader is left."""
    gc.collect()  # what earlier tests left behind must not close in between
    before = len(list(Path("/proc/self/fd").iterdir()))
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child:
        reader = HostReader(1.0)
        for now in range(4):
            reader.read({child.pid: use()}, float(now))
        reader.watch_states([child.pid])
        reader.read({child.pid: use()}, 5.0)
        thread = reader._processes._states._thread
        reader.close()
        assert thread is not None
        thread.join(5)
        assert not thread.is_alive()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


# --- processes of others, other namespaces --------------------------------------------------------


def read_as(pid: int, *command: str, proc: str = "/proc") -> tuple[Host, tuple[Process, ...]]:
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*command, sys.executable, "-c", CODE_OF_READER, str(pid), proc],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env={"PYTHONPATH": root, "PATH": os.environ["PATH"]},
    )
    if done.returncode and "unshare failed" in done.stderr:
        pytest.skip(done.stderr.strip())
    if done.returncode in {126, 127}:
        pytest.skip(f"another user cannot run this interpreter: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    answer = msgspec.json.decode(done.stdout)
    return msgspec.convert(answer["host"], Host), msgspec.convert(answer["processes"], tuple[Process, ...])


@pytest.mark.skipif(not is_root, reason="needs root to become another user")
def test_process_of_another_user() -> None:
    """Without permission name, user, CPU and state are there, the rest is None, and nothing is raised."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)", "--token", "x") as child:
        host, processes = read_as(child.pid, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")

    process = processes[0]
    assert host.sees_host_pids is True
    assert process.user == "root"
    assert process.name is not None
    assert process.name.startswith("python")
    assert process.cpu_pct is not None
    assert process.state == "S"
    assert process.role == "trainer"
    assert process.command is None
    assert process.environment is None
    assert process.libraries is None
    assert process.read_bytes_per_s is None
    assert process.shm_total_bytes is None
    assert process.data_filesystem is None


@pytest.mark.skipif(not is_root, reason="needs root to make a namespace")
def test_other_pid_namespace() -> None:
    """Inside a PID namespace the driver's pid is nobody here, or worse, a stranger: only its number is shown."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child:
        inside = ("unshare", "--pid", "--fork", "--mount-proc")
        host, processes = read_as(child.pid, *inside)
        # Pid 1 exists in there: it is the reader's own, not the driver's 1.
        _, strangers = read_as(1, *inside)

    assert host.sees_host_pids is False
    assert host.processes_hidden == NAMESPACE_WORDS
    assert processes == (Process(pid=child.pid, gpu_memory_bytes={"GPU-a": 1}),)
    assert strangers == (Process(pid=1, gpu_memory_bytes={"GPU-a": 1}),)


@pytest.mark.skipif(not is_root, reason="needs root to mount")
def test_hidepid() -> None:
    """Behind hidepid the words say that other users' processes are hidden, not that the container is wrong."""
    hidden = (
        "unshare", "--mount", "sh", "-c",
        'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"', "sh",
    )  # fmt: skip
    with python("print(1, flush=True)\nimport time; time.sleep(600)") as child:
        host, processes = read_as(child.pid, *hidden)

    assert host.sees_host_pids is False
    assert host.processes_hidden == HIDEPID_WORDS
    assert processes == (Process(pid=child.pid, gpu_memory_bytes={"GPU-a": 1}),)


def test_once(tmp_path: Path) -> None:
    """For one look without rates: names, users and commands, and pids that are nobody's stay numbers."""
    with python("print(1, flush=True)\nimport time; time.sleep(600)", "--secret", "abc") as child:
        found = once_processes({child.pid: use(), 4_194_999: use()})
        assert once_pid_view([child.pid]).sees_host_pids

    assert found[0].pid == child.pid
    assert found[0].user is not None
    assert found[0].command is not None
    assert found[0].command.endswith("--secret ***")
    assert found[1] == Process(pid=4_194_999, gpu_memory_bytes={"GPU-a": GIB})


def test_nothing_heavy_is_imported() -> None:
    """Neither one look nor a reader needs psutil."""
    code = """
import sys
import gpumon.sources.host.reader as host
host.once_processes({})
host.HostReader(1.0).close()
print("psutil" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "False"
