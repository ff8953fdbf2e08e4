"""`gpumon run --record FILE`: a trace of what happens meanwhile, whole up to its last line whatever ends it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import pytest
from test_run import Job, done

from fakenvml import FakeDriver
from fakenvml.profiles import h100
from gpumon.commands import replay
from gpumon.commands.recording import Recorder
from gpumon.config import Config
from gpumon.model import Event, Snapshot
from gpumon.trace import Trace
from terminal import PtyProgram

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
FAST = ["--interval", "0.2"]


def read(path: Path) -> list[Snapshot]:
    """All of a trace, in which nothing is damaged."""
    trace = Trace(path)
    snapshots = list(trace)
    assert not trace.unread
    return snapshots


def exits(snapshots: Sequence[Snapshot]) -> list[Event]:
    """Those whose code is known: of others' processes on this machine it is not."""
    events = (event for one in snapshots for event in one.events)
    return [event for event in events if event.kind == "process-exit" and event.exit_code is not None]


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def until(is_so: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)
    assert is_so()


# --- what is in it -------------------------------------------------------------------------------

TRAINING = """
import time, torch
optimizer = torch.optim.SGD()
for _ in range(60):
    time.sleep(0.05)
    optimizer.step()
print("done")
"""


def test_a_run_can_be_diagnosed_and_replayed(
    gpumon_command: list[str], job: Job, program: Path, tmp_path: Path
) -> None:
    """Host, ranks with their steps, the exit code; private, secrets of the command line left out; no driver needed."""
    program.write_text(TRAINING)
    path = tmp_path / "run.jsonl"
    command = [sys.executable, str(program), "--api-key", "hunter2"]
    ran = done([*gpumon_command, *FAST, "--record", str(path), "--summary", "--", *command], job)
    assert (ran.stdout, ran.returncode) == ("done\n", 0)
    assert ran.stderr.count("\n") == 1
    assert "60 optimizer steps" in ran.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"hunter2" not in path.read_bytes()
    header = json.loads(path.read_bytes().partition(b"\n")[0])
    assert header["gpumon_trace"] == 1
    assert str(program) in header["command"]

    snapshots = read(path)
    ((pid, code),) = [(event.pid, event.exit_code) for event in exits(snapshots)]
    assert code == 0
    ranks = [rank for one in snapshots for rank in one.ranks if rank.pid == pid]
    assert {rank.step for rank in ranks if rank.step} & set(range(1, 61))
    assert any(rank.step_s == pytest.approx(0.05, rel=0.5) for rank in ranks)
    assert snapshots[-1].host.cpu_count
    assert all(one.host.driver_age_s is None and not one.gpus for one in snapshots)

    diagnose = [*gpumon_command[:-1], "diagnose", "--json", str(path)]
    found = json.loads(done(diagnose, job).stdout)
    assert (found["samples"], found["source"]["kind"]) == (len(snapshots), "trace")
    assert not [finding for finding in found["findings"] if finding["rule"] == "driver-stuck"]
    source = replay.source_of([path], "start", 3600.0)
    assert list(islice(source, len(snapshots))) == snapshots
    source.close()


def test_gpus_are_in_it_where_there_are_any(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path / "driver", [h100()])
    path = tmp_path / "run.jsonl"
    given = {**environment, **driver.env}
    assert done([*gpumon_command, *FAST, "--record", str(path), "--", "sleep", "1.5"], given).returncode == 0
    assert [gpu.name for gpu in read(path)[-1].gpus] == ["NVIDIA H100 80GB HBM3"]


def test_a_compressed_one_is_complete(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl.gz"
    ran = done([*gpumon_command, *FAST, "--record", str(path), "--", "sh", "-c", "sleep 1; exit 5"], environment)
    assert (ran.returncode, ran.stdout, ran.stderr) == (5, "", "")
    assert subprocess.run(["gzip", "-t", str(path)], check=False).returncode == 0
    assert [event.exit_code for event in exits(read(path))] == [5]


def test_a_command_that_is_killed(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    """However short it was, there is a sample, and how it ended."""
    path = tmp_path / "run.jsonl"
    ran = done([*gpumon_command, "--record", str(path), "--", "sh", "-c", "kill -9 $$"], environment)
    assert ran.returncode == 137
    assert [event.exit_code for event in exits(read(path))] == [-9]


def test_an_exception_is_in_it(gpumon_command: list[str], job: Job, program: Path, tmp_path: Path) -> None:
    """What the last words of the process say, which nobody can read later."""
    program.write_text(TRAINING.replace("range(60)", "range(20)") + "raise ValueError")
    path = tmp_path / "run.jsonl"
    ran = done([*gpumon_command, *FAST, "--record", str(path), "--", sys.executable, str(program)], job)
    assert ran.returncode == 1
    told = [(event.exit_code, event.text) for event in exits(read(path))]
    assert told == [(1, "ended with ValueError")]


# --- what the command notices: nothing -----------------------------------------------------------


def test_sampling_is_nice_and_the_command_is_not(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with subprocess.Popen([*gpumon_command, *FAST, "--record", str(path), "--", "cat"],
                          env=environment, stdin=subprocess.PIPE) as running:  # fmt: skip
        until(lambda: lines_of(path) >= 2)
        nices = {_nice(task) for task in Path(f"/proc/{running.pid}/task").iterdir()}
        child = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()[0]
        assert nices == {0, 10}
        assert _nice(Path(f"/proc/{running.pid}/task/{running.pid}")) == 0
        assert _nice(Path("/proc", child)) == 0
        held = [str(link.readlink()) for link in Path("/proc", child, "fd").iterdir()]
        assert str(path) not in held
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(20) == 0


def _nice(task: Path) -> int:
    return int((task / "stat").read_bytes().rpartition(b")")[2].split()[16])


def test_the_command_is_as_without(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    """Streams, words, ignored signals, broken pipes and signals to gpumon alone, all with a recording beside."""

    def recorded(name: str) -> list[str]:
        return [*gpumon_command, *FAST, "--record", str(tmp_path / name), "--"]

    ran = done([*recorded("1"), "sh", "-c", "cat; echo err >&2"], environment, stdin=None, input="in\n")
    assert (ran.stdout, ran.stderr) == ("in\n", "err\n")
    kept = "[hex(int(l[7:], 16) & ~(3 << 31)) for l in open('/proc/self/status') if l[:6] in ('SigIgn', 'SigBlk')]"
    show = [sys.executable, "-c", f"print({kept})"]
    assert done(["nohup", *recorded("2"), *show], environment).stdout == done(["nohup", *show], environment).stdout
    through = [*recorded("3"), "bash", "-c", "set -o pipefail; yes | head -1"]
    assert done(through, environment).returncode == 141
    script = "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*recorded("4"), "sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGUSR1)
        assert (running.communicate(timeout=20)[0], running.returncode) == ("got\n", 3)
    assert [event.exit_code for event in exits(read(tmp_path / "4"))] == [3]


def test_ctrl_c_ends_the_command_once_and_the_recording_is_whole(
    gpumon_command: list[str], environment: Job, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    script = (
        "import sys, time\nprint(sys.stdin.isatty(), sys.stdout.isatty(), flush=True)\n"
        "for _ in range(2):\n  try: time.sleep(20)\n  except KeyboardInterrupt: print('interrupted', flush=True)\n"
        "sys.exit(4)"
    )
    command = [*gpumon_command, *FAST, "--record", str(path), "--", sys.executable, "-c", script]
    with PtyProgram(command, environment=environment) as terminal:
        terminal.wait_for("True True")
        until(lambda: lines_of(path) >= 3)
        terminal.type("\x03")
        terminal.wait_for("interrupted")
        terminal.read(0.3)
        assert terminal.text.count("interrupted") == 1
        terminal.type("\x03")
        assert terminal.wait_for_exit() == 4
    assert [event.exit_code for event in exits(read(path))] == [4]


def test_a_stopped_job_goes_on_and_its_recording_says_so(
    gpumon_command: list[str], environment: Job, tmp_path: Path
) -> None:
    """Ctrl-Z stops both, `fg` continues both; in between no sample was taken."""
    path = tmp_path / "run.jsonl"
    words = [*gpumon_command, *FAST, "--record", str(path), "--", "sh", "-c", "echo go; sleep 3; echo over"]
    with PtyProgram(["bash", "--norc", "--noprofile", "-i"], environment={**environment, "PS1": "$ "}) as terminal:
        terminal.wait_for("$")
        terminal.type(" ".join(map(shlex.quote, words)) + "\n")
        terminal.wait_for("\ngo")
        until(lambda: lines_of(path) >= 3)
        terminal.type("\x1a")
        terminal.wait_for("Stopped")
        before = lines_of(path)
        time.sleep(1.5)
        assert lines_of(path) == before
        terminal.type("clear; fg\n")
        terminal.wait_for("\nover")
        until(lambda: bool(exits(list(Trace(path)))))
    intervals = [one.interval_s for one in read(path) if one.interval_s is not None]
    assert max(intervals) >= 1.5


# --- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_killed_gpumon_leaves_all_that_was_written(
    gpumon_command: list[str], environment: Job, tmp_path: Path, name: str
) -> None:
    """The command goes on; what is there can be read."""
    path = tmp_path / name
    with subprocess.Popen([*gpumon_command, *FAST, "--record", str(path), "--", "sh", "-c", "read line; echo $line"],
                          env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:  # fmt: skip
        until(lambda: path.exists() and path.stat().st_size > 1500)
        running.kill()
        assert running.wait(20) == -9
        assert running.communicate(b"on\n", timeout=20)[0] == b"on\n"
    trace = Trace(path)
    assert len(list(trace)) >= 2
    assert [unread.because for unread in trace.unread] == ["the compressed file ends early"] * (name[-1] == "z")
    ran = done([*gpumon_command[:-1], "diagnose", str(path)], environment)
    assert ran.returncode == 0, ran.stderr


def test_no_thread_to_be_had_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command goes on without a recording, and one line says so."""
    recorder = Recorder(tmp_path / "run.jsonl", ["train"], Config(), None)

    def refuse() -> None:
        raise RuntimeError

    recorder._thread.start = refuse  # type: ignore[method-assign]
    recorder.start()
    recorder.finish(1, 0, {})
    assert capsys.readouterr().err.endswith("no thread to be had: it ends here, the command goes on\n")
    assert read(tmp_path / "run.jsonl") == []


def test_nothing_is_written_over(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    """Neither a file nor what a link leads to, nor a device; the command does not start."""
    path, link, target = tmp_path / "run.jsonl", tmp_path / "link", tmp_path / "target"
    path.write_text("mine")
    link.symlink_to(target)
    for taken in (path, link, Path("/dev/full"), Path("/dev/stdout")):
        ran = done([*gpumon_command, "--record", str(taken), "--", "echo", "started"], environment)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert ran.stderr == f"gpumon: run: --record: {taken} is there already; name another file, or remove it\n"
    assert path.read_text() == "mine"
    assert not target.exists()


def test_what_cannot_be_written_does_not_start(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    path = tmp_path / "missing" / "run.jsonl"
    ran = done([*gpumon_command, "--record", str(path), "--", "echo", "started"], environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"gpumon: run: --record: {path} cannot be written: No such file or directory\n"
    assert done([*gpumon_command, "--record"], environment).returncode == 2
    wrong = [*gpumon_command, "--record", str(tmp_path / "run"), "--interval", "0", "--", "echo", "started"]
    assert done(wrong, environment).returncode == 2
    assert not (tmp_path / "run").exists()


def test_a_command_that_is_not_there_leaves_no_file(
    gpumon_command: list[str], environment: Job, tmp_path: Path
) -> None:
    ran = done([*gpumon_command, "--record", str(tmp_path / "run"), "--", "no-such-command"], environment)
    assert (ran.returncode, ran.stderr) == (127, "gpumon: run: no-such-command: No such file or directory\n")
    assert not (tmp_path / "run").exists()
    assert done([*gpumon_command, "--record", str(tmp_path / "run"), "--"], environment).returncode == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("name", "most_kib"), [("run.jsonl", 3), ("run.jsonl.gz", 1)])
def test_a_file_that_may_grow_no_more_ends_the_recording_alone(
    gpumon_command: list[str], environment: Job, tmp_path: Path, name: str, most_kib: int
) -> None:
    """One line; the command goes on to its end; what was written is whole."""
    path = tmp_path / name
    limited = ["bash", "-c", f'ulimit -f {most_kib}; exec "$@"', "bash"]
    words = [*limited, *gpumon_command, "--interval", "0.1", "--record", str(path), "--"]
    ran = done([*words, "sh", "-c", "sleep 4; echo over; exit 6"], environment)
    assert (ran.returncode, ran.stdout) == (6, "over\n")
    assert ran.stderr == f"gpumon: run: --record: {path}: File too large: it ends here, the command goes on\n"
    assert len(list(Trace(path))) >= 2
    assert path.stat().st_size <= most_kib * 1024


@needs_root
def test_a_full_disk(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    """A real one, of 16 KiB: full at once nothing starts; full later the command goes on."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size=16k none {small} && exec "$@"', "sh"]
    if subprocess.run([*mount, "true"], check=False).returncode != 0:
        pytest.skip("namespaces are not allowed here")
    words = [*gpumon_command, "--interval", "0.1", "--record", f"{small}/run.jsonl", "--"]
    copied = f"cp {small}/run.jsonl {tmp_path}; echo over"
    ran = done([*mount, *words, "sh", "-c", f"sleep 4; {copied}"], environment)
    assert (ran.returncode, ran.stdout) == (0, "over\n")
    assert ran.stderr == (
        f"gpumon: run: --record: {small}/run.jsonl: No space left on device: it ends here, the command goes on\n"
    )
    assert len(read(tmp_path / "run.jsonl")) >= 5
    full = [*mount, "sh", "-c", f'head -c 20000 /dev/zero > {small}/other 2>/dev/null; exec "$@"', "sh"]
    ran = done([*full, *words, "echo", "started"], environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"gpumon: run: --record: {small}/run.jsonl cannot be written: No space left on device\n"
