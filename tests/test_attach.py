"""`gpumon attach PID`: into a running Python 3.14, and plain words wherever a rule forbids it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.cli import run
from gpumon.commands import attach
from gpumon.sources.inbox.inbox import Inbox

PYTHON314 = shutil.which("python3.14")
needs_314 = pytest.mark.skipif(PYTHON314 is None, reason="no Python 3.14 here")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
PYTHON = sys.executable
is_old = sys.version_info < attach.LEAST

OPTIMIZER = """
_after = []
def register_optimizer_step_post_hook(hook):
    _after.append(hook)
class Optimizer:
    def step(self):
        for hook in _after:
            hook(self, (), {})
"""
LOOP = """
import sys, time
sys.path.insert(0, sys.argv[1])
from torch.optim.optimizer import Optimizer
optimizer = Optimizer()
print("ready", flush=True)
while True:
    time.sleep(0.02)
    optimizer.step()
"""


@contextmanager
def started(
    command: Sequence[str], environment: dict[str, str] | None = None, *, says_ready: bool = True
) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stdout is not None
        try:
            if says_ready:
                assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def refusal(capsys: pytest.CaptureFixture[str], pid: int | str) -> str:
    """What it says in one line on stderr, with exit code 2."""
    assert run(["attach", str(pid)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpumon: ")
    assert err.count("\n") == 1
    return err


def idle(*options: str, python: str = sys.executable, code: str = "") -> list[str]:
    return [python, *options, "-c", f"import time; {code}print('ready', flush=True); time.sleep(60)"]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the scripts go, so that a test sees what is left of them."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


# --- refusals ------------------------------------------------------------------------------------


def test_no_such_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no process 4194399" in refusal(capsys, 4194399)
    assert "there is no process 0" in refusal(capsys, 0)
    assert "invalid int value: 'train.py'" in refusal(capsys, "train.py")


def test_a_process_that_has_ended(capsys: pytest.CaptureFixture[str]) -> None:
    process = subprocess.Popen(["true"])
    time.sleep(0.2)
    assert f"process {process.pid} has ended" in refusal(capsys, process.pid)
    process.wait()


def test_what_is_no_python_names_its_python_children(capsys: pytest.CaptureFixture[str]) -> None:
    """A launcher's or a shell's number is easily taken for the trainer's."""
    with started(
        ["sh", "-c", f"{sys.executable} -c \"import time; print('ready', flush=True); time.sleep(60)\"; true"]
    ) as shell:
        children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
        said = refusal(capsys, shell.pid)
        assert f"process {shell.pid} is no Python process" in said
        assert f"its Python children: {children[0]}" in said
        os.kill(int(children[0]), 9)


@pytest.mark.skipif(not is_old, reason="this Python can be entered")
def test_older_pythons(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version that runs there, the one it takes, and what to do; sampling needs py-spy."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with started(idle(python=PYTHON)) as process:
        said = refusal(capsys, process.pid)
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        assert f"runs Python {version}, and only 3.14 and later can be entered from outside" in said
        assert "start it with: gpumon run -- python" in said
        sampling = f"or sample it from outside: gpumon attach --sample {process.pid}"
        assert f"{sampling}, which takes py-spy" in said
        (tmp_path / "py-spy").touch(mode=0o755)
        assert refusal(capsys, process.pid).endswith(f"{sampling}\n")


@needs_root
def test_another_users_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Root could, and does not: it would run what that user wrote."""
    sleeper = "import os, time; os.setuid(65534); print('ready', flush=True); time.sleep(60)"
    with started([sys.executable, "-c", sleeper]) as process:
        said = refusal(capsys, process.pid)
        assert "only nobody may switch a probe on in it: sudo -u nobody gpumon attach" in said


@pytest.mark.parametrize(("scope", "capable", "words"), [
    (1, False, "only a parent may enter its children here (kernel.yama.ptrace_scope is 1)"),
    (2, False, "only an administrator may enter processes here (kernel.yama.ptrace_scope is 2)"),
    (3, True, "the kernel lets nobody enter a process"),
    (1, True, None),
    (2, True, None),
    (0, False, None),
])  # fmt: skip
def test_ptrace_scope(monkeypatch: pytest.MonkeyPatch, scope: int, capable: bool, words: str | None) -> None:
    """Each level of the kernel's rule in words, with the command that lifts it."""

    def read(path: str, limit: int = 0) -> bytes:
        if path.endswith("ptrace_scope"):
            return f"{scope}\n".encode()
        return b"Name:\tpython\nCapEff:\t%016x\n" % (1 << 19 if capable else 0)

    monkeypatch.setattr(attach, "read", read)
    reason = attach.ptrace_rule(1)
    assert reason is None if words is None else words in (reason or "")
    if words is not None and scope < 3:
        assert "sudo sysctl kernel.yama.ptrace_scope=0" in (reason or "")


def test_a_child_may_be_entered_under_scope_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "read", lambda path, _=0: b"1\n" if path.endswith("scope") else b"\nCapEff:\t0\n")
    with started(["sleep", "60"], says_ready=False) as process:
        assert attach.ptrace_rule(process.pid) is None
        assert attach.ptrace_rule(os.getppid()) is not None
        assert attach.ptrace_rule(process.pid, by_a_child=True) is not None


def test_a_process_that_has_a_probe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its file says so, whatever its version."""
    from gpumon.probe._gpumon_probe.ring import start_ticks

    with started(idle(), {"GPUMON_RUNTIME_DIR": str(tmp_path)}) as process:
        (tmp_path / f"{process.pid}.{start_ticks(process.pid)}").touch()
        assert run(["attach", str(process.pid)]) == 0
        assert "has a probe already" in capsys.readouterr().out


@needs_root
@needs_314
def test_a_container(capsys: pytest.CaptureFixture[str], temporary: Path) -> None:
    """A process that sees other files is named as such, and nothing is left behind."""
    idling = "import time; print('ready', flush=True); time.sleep(60)"
    code = f'mount -t tmpfs none {temporary} && exec {PYTHON314} -c "{idling}"'
    try:
        with started(["unshare", "-m", "sh", "-c", code]) as process:
            said = refusal(capsys, process.pid)
    except AssertionError:
        pytest.skip("namespaces are not allowed here")
    assert "does not see gpumon's files" in said
    assert "gpumon run" in said
    assert list(temporary.iterdir()) == []


# --- where it can be done ------------------------------------------------------------------------


@needs_314
def test_a_running_loop_is_seen_from_the_next_step_on(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, temporary: Path
) -> None:
    """A loop that was started without anything tells its steps; asked again it says that it does; nothing is left."""
    assert PYTHON314 is not None
    stand_in = tmp_path / "lib" / "torch" / "optim"
    stand_in.mkdir(parents=True)
    (stand_in / "optimizer.py").write_text(OPTIMIZER)
    (stand_in / "__init__.py").touch()
    (stand_in.parent / "__init__.py").touch()
    probes = tmp_path / "probes"
    probes.mkdir(mode=0o700)
    command = [PYTHON314, "-W", "error", "-c", LOOP, str(tmp_path / "lib")]
    with started(command, {"GPUMON_RUNTIME_DIR": str(probes)}) as process:
        assert run(["attach", str(process.pid)]) == 0
        assert f"the probe is on in process {process.pid} (torch)" in capsys.readouterr().out
        assert list(temporary.iterdir()) == []
        inbox = Inbox({"GPUMON_RUNTIME_DIR": str(probes)})
        inbox._own = inbox._own[:1]
        until = time.monotonic() + 10
        ranks = inbox.read({}, (), time.monotonic())
        while not (ranks and (ranks[0].step or 0) > 20) and time.monotonic() < until:
            time.sleep(0.2)
            ranks = inbox.read({}, (), time.monotonic())
        assert [rank.pid for rank in ranks] == [process.pid]
        assert ranks[0].step_s == pytest.approx(0.02, rel=0.5)
        assert run(["attach", str(process.pid)]) == 0
        assert "has a probe already" in capsys.readouterr().out
        inbox.close()
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@needs_314
def test_a_process_that_runs_no_python_code_now(
    capsys: pytest.CaptureFixture[str], temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked, and said to be asked; when it comes back the probe is on and the script is gone."""
    assert PYTHON314 is not None
    monkeypatch.setattr(attach, "ANSWER_S", 0.5)
    code = "import sys; print('ready', flush=True); sys.stdin.readline(); print('_gpumon_probe' in sys.modules)"
    with subprocess.Popen([PYTHON314, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        assert run(["attach", str(process.pid)]) == 0
        assert "was asked and has not answered in 0.5 s" in capsys.readouterr().out
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.stdout.read() == b"True\n"
    assert list(temporary.iterdir()) == []


@needs_314
@pytest.mark.parametrize(
    ("options", "environment"),
    [(["-X", "disable-remote-debug"], {}), ([], {"PYTHON_DISABLE_REMOTE_DEBUG": "1"})],
)
def test_who_does_not_want_to_be_entered(
    capsys: pytest.CaptureFixture[str], options: list[str], environment: dict[str, str]
) -> None:
    assert PYTHON314 is not None
    with started(idle(*options, python=PYTHON314), environment) as process:
        assert "was started so that nobody may enter it" in refusal(capsys, process.pid)
