"""`gpumon run`: the command is what it would be without, and the probe is in every Python of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from probe_files import Report, report

from gpumon.probe import FOLDER
from terminal import PtyProgram

Job = dict[str, str]


def done(command: list[str], environment: Job, **options: object) -> subprocess.CompletedProcess[str]:
    given: dict[str, object] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run(command, env=environment, check=False, **{**given, **options})  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("true", 0)])
def test_the_exit_code_is_the_commands(gpumon_command: list[str], environment: Job, script: str, code: int) -> None:
    assert done([*gpumon_command, "--", "sh", "-c", script], environment).returncode == code


def test_streams_are_the_commands_own(gpumon_command: list[str], environment: Job) -> None:
    ran = done([*gpumon_command, "--", "sh", "-c", "cat; echo err >&2"], environment, stdin=None, input="in\n")
    assert (ran.stdout, ran.stderr) == ("in\n", "err\n")


def test_words_after_the_dashes_are_the_commands(gpumon_command: list[str], environment: Job) -> None:
    ran = done([*gpumon_command, "--", "printf", "%s,", "--summary", "--", "-h", "--help"], environment)
    assert ran.stdout == "--summary,--,-h,--help,"


def test_the_dashes_may_be_left_out(gpumon_command: list[str], environment: Job) -> None:
    assert done([*gpumon_command, "printf", "%s,", "--lr", "3"], environment).stdout == "--lr,3,"


def test_a_command_that_is_not_there_is_named(gpumon_command: list[str], environment: Job) -> None:
    ran = done([*gpumon_command, "--", "no-such-command"], environment)
    assert (ran.returncode, ran.stderr) == (127, "gpumon: run: no-such-command: No such file or directory\n")
    assert done([*gpumon_command, "--", "/etc/passwd"], environment).returncode == 126
    assert done([*gpumon_command, "--"], environment).returncode == 2


def test_a_script_without_an_interpreter_line_runs(gpumon_command: list[str], environment: Job, tmp_path: Path) -> None:
    script = tmp_path / "train"
    script.write_text("echo trained $1")
    script.chmod(0o755)
    assert done([*gpumon_command, "--", str(script), "twice"], environment).stdout == "trained twice\n"


def test_only_three_variables_change(gpumon_command: list[str], environment: Job, runtime: Path) -> None:
    printing = [sys.executable, "-I", "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    given = {**environment, "PYTHONPATH": "/somewhere:/else"}
    ran = json.loads(done([*gpumon_command, "--", *printing], given).stdout)
    run_id = ran.pop("GPUMON_RUN")
    assert len(run_id) == 16
    assert ran == {**given, "PYTHONPATH": f"{FOLDER}:/somewhere:/else", "GPUMON_RUNTIME_DIR": str(runtime)}
    # Without one before there is no empty entry, which would mean the working directory.
    assert json.loads(done([*gpumon_command, "--", *printing], environment).stdout)["PYTHONPATH"] == str(FOLDER)


def test_signals_that_it_gets_alone_are_passed_on(gpumon_command: list[str], environment: Job) -> None:
    script = "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*gpumon_command, "--", "sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGUSR1)
        assert (running.communicate(timeout=20)[0], running.returncode) == ("got\n", 3)


def test_a_script_that_signals_its_own_group_gets_it_once(gpumon_command: list[str], environment: Job) -> None:
    script = "trap 'echo got' TERM; kill 0; sleep 0.3; echo on"
    ran = done([*gpumon_command, "--", "sh", "-c", script], environment, start_new_session=True)
    assert (ran.stdout, ran.returncode) == ("got\non\n", 0)


def test_ignored_signals_stay_ignored_and_pipes_break(gpumon_command: list[str], environment: Job) -> None:
    # Signals 32 and 33 are the C library's own.
    kept = "[hex(int(l[7:], 16) & ~(3 << 31)) for l in open('/proc/self/status') if l[:6] in ('SigIgn', 'SigBlk')]"
    show = [sys.executable, "-c", f"print({kept})"]
    bare = done(["nohup", *show], environment).stdout
    assert done(["nohup", *gpumon_command, "--", *show], environment).stdout == bare
    assert done(["bash", "-c", "set -o pipefail; yes | head -1"], environment).returncode == 141
    through = [*gpumon_command, "--", "bash", "-c", "set -o pipefail; yes | head -1"]
    assert done(through, environment).returncode == 141


def test_the_terminal_is_the_commands(gpumon_command: list[str], environment: Job) -> None:
    """Ctrl-C reaches it once, and it decides what that means."""
    script = (
        "import sys, time\nfor _ in range(2):\n  try:\n"
        "    print(sys.stdin.isatty(), sys.stdout.isatty(), flush=True)\n    time.sleep(20)\n"
        "  except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    with PtyProgram([*gpumon_command, "--", sys.executable, "-c", script], environment=environment) as program:
        program.wait_for("True True")
        program.type("\x03")
        program.wait_for("interrupted")
        program.read(0.3)
        assert program.text.count("interrupted") == 1
        program.type("\x03")
        assert program.wait_for_exit() == 0


def test_it_stops_and_goes_on_with_its_command(gpumon_command: list[str], environment: Job) -> None:
    """What a shell with job control sees: a stopped job, which `fg` continues."""
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with PtyProgram(shell, environment={**environment, "PS1": "$ "}) as program:
        program.wait_for("$")
        program.type(" ".join(_quoted([*gpumon_command, "--", "sh", "-c", "echo go; sleep 1; echo over"])) + "\n")
        program.wait_for("\ngo")
        program.type("\x1a")
        program.wait_for("Stopped")
        program.type("clear; fg\n")
        program.wait_for("\nover")


def _quoted(words: list[str]) -> list[str]:
    import shlex

    return [shlex.quote(word) for word in words]


def test_nothing_is_left_behind(gpumon_command: list[str], job: Job, runtime: Path, program: Path) -> None:
    ran = done([*gpumon_command, "--", sys.executable, str(program)], job)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("done\n", "", 0)
    assert not list(runtime.iterdir())


def test_a_summary_is_for_who_asks(gpumon_command: list[str], job: Job, program: Path) -> None:
    ran = done([*gpumon_command, "--summary", "--", sys.executable, str(program)], job)
    assert "8 optimizer steps" in ran.stderr
    assert "-I, -S or -E" in done([*gpumon_command, "--summary", "--", "true"], job).stderr


@pytest.mark.parametrize(
    "start",
    [
        ["{python}", "train.py"],
        ["{python}", "-m", "train"],
        ["sh", "-c", "{python} train.py"],
        ["env", "PYTHONSAFEPATH=1", "{python}", "train.py"],
        ["{python}", "-s", "-B", "-u", "-OO", "train.py"],
    ],
)
def test_every_python_of_the_command_is_watched(
    gpumon_command: list[str], job: Job, runtime: Path, program: Path, start: list[str]
) -> None:
    command = [word.format(python=sys.executable) for word in start]
    with subprocess.Popen([*gpumon_command, "--", "sh", "-c", f'"$@"; cp -p {runtime}/* .', "sh", *command],
                          env=job, cwd=program.parent, stdout=subprocess.PIPE) as running:  # fmt: skip
        running.communicate(timeout=60)
    found = [report(path) for path in program.parent.iterdir() if path.name[0].isdigit()]
    assert [each.last.step for each in found] == [8]
    assert found[0].body["run"]


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_a_python_that_ignores_its_environment_is_not(
    gpumon_command: list[str], job: Job, program: Path, flag: str
) -> None:
    program.write_text(f"import sys; sys.path.insert(0, {job['PYTHONPATH']!r})\n{program.read_text()}")
    ran = done([*gpumon_command, "--summary", "--", sys.executable, flag, str(program)], job)
    assert ran.stdout == "done\n"
    assert "-I, -S or -E" in ran.stderr


def test_the_exit_code_is_told_to_who_still_reads(
    gpumon_command: list[str], job: Job, runtime: Path, program: Path
) -> None:
    program.write_text(program.read_text() + "time.sleep(1)\nraise ValueError")
    with subprocess.Popen([*gpumon_command, "--", sys.executable, str(program)], env=job, stderr=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL) as running:  # fmt: skip
        until = time.monotonic() + 30
        while not any(runtime.iterdir()) and time.monotonic() < until:
            time.sleep(0.01)
        held = os.open(next(runtime.iterdir()), os.O_RDONLY)
        running.wait(timeout=30)
    kept = program.with_name("kept")
    with os.fdopen(held, "rb") as file:
        kept.write_bytes(file.read())
    told: Report = report(kept)
    assert (told.body["exit_code"], told.body["error"], told.last.phase) == (1, "ValueError", 4)
