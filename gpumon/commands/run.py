"""``gpumon run``: starts a command with the probe switched on, and is otherwise not there.

The command has the same terminal, process group, standard streams and open files; what the terminal sends to the group
reaches it anyway, so only signals that somebody sent to this process alone are passed on.
"""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.commands import endings
from gpumon.errors import UsageError
from gpumon.probe import FOLDER
from gpumon.probe._gpumon_probe import ring

if TYPE_CHECKING:  # it costs time, and most runs record nothing
    from gpumon.commands.recording import Recorder

NOT_FOUND = 127
NOT_EXECUTABLE = 126
BY_KERNEL = 0x80
"""``si_code`` of what the terminal sent to the whole process group."""
GROUP_S = 0.05
"""A sender of this group (timeout, say) may have meant all of it: the command first gets time to end by its own."""
MOST_GENERATIONS = 64
STOPPED_BY_TERMINAL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
UNCATCHABLE = frozenset({signal.SIGKILL, signal.SIGSTOP})
_TAKEN_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them from its start on; the command is to have them as the shell gave them."""
LEAVES = {
    "docker": "give the container -v {folder}:/opt/gpumon:ro -v {runtime}:/run/gpumon -e PYTHONPATH=/opt/gpumon "
    "-e GPUMON_RUNTIME_DIR=/run/gpumon --user $(id -u)",
    "ssh": "put `env {variables}` before the remote command, where {folder} exists there",
    "sudo": "put `env {variables}` after sudo",
}
"""Programs that start theirs without this environment, and what to do about it."""


def run(command: Sequence[str], *, with_summary: bool, make_recorder: Callable[[], Recorder] | None = None) -> int:
    """Run the command to its end and return its exit code; 128 + n where signal n ended it.

    Raises:
        UsageError: there is no command, or nowhere to record it to: then it does not start.
    """
    if not command:
        raise UsageError("run: what? For example: gpumon run -- python train.py")
    run_id = secrets.token_hex(8)
    runtime = ring.safe_directory()
    environment = environment_for(os.environ, run_id, runtime)
    recorder = None if make_recorder is None else make_recorder()
    _hint(command, environment)
    # The child gets the signals as they are now; from here on they wait until they are asked for.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - UNCATCHABLE)
    try:
        child = _start(command, environment, mask)
    except OSError as error:
        if recorder is not None:
            recorder.discard()
        sys.stderr.write(f"gpumon: run: {command[0]}: {error.strerror}\n")
        return NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
    ticks = ring.start_ticks(child)
    if recorder is not None:
        recorder.start()
    code = _accompany(child)
    last_words = endings.settle(runtime, run_id, f"{child}.{ticks}", code, with_summary=with_summary)
    if recorder is not None:
        recorder.finish(child, code, last_words)
    return code if code >= 0 else 128 - code


def environment_for(given: Mapping[str, str], run_id: str, runtime: str | None) -> dict[str, str]:
    """The command's environment: this one, and what switches the probe on."""
    folder = FOLDER
    if os.pathsep in folder:
        raise UsageError(f"run: gpumon lies in {folder}, and a path with {os.pathsep!r} cannot be on PYTHONPATH")
    # An empty entry would put the working directory on Python's path.
    before = [] if not given.get("PYTHONPATH") else given["PYTHONPATH"].split(os.pathsep)
    changed = {"PYTHONPATH": os.pathsep.join([folder, *(place for place in before if place != folder)])}
    changed["GPUMON_RUN"] = run_id
    if runtime is not None:
        changed["GPUMON_RUNTIME_DIR"] = str(Path(runtime).absolute())
    return {**given, **changed}


def _hint(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """One line where the command is known to start its own without this environment."""
    name = {"podman": "docker"}.get(Path(command[0]).name, Path(command[0]).name)
    if name not in LEAVES or (name == "docker" and "run" not in command):
        return
    names = ("PYTHONPATH", "GPUMON_RUN", "GPUMON_RUNTIME_DIR")
    variables = " ".join(f"{each}={shlex.quote(environment[each])}" for each in names if each in environment)
    runtime = environment.get("GPUMON_RUNTIME_DIR", "DIRECTORY")
    advice = LEAVES[name].format(folder=FOLDER, runtime=runtime, variables=variables)
    sys.stderr.write(f"gpumon: {command[0]} does not pass the environment on: to see inside, {advice}\n")


def _start(command: Sequence[str], environment: Mapping[str, str], mask: set[int]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, children would end without a word
    try:
        return os.posix_spawnp(command[0], list(command), environment, setsigmask=mask, setsigdef=_TAKEN_BY_PYTHON)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script without #!: what a shell does with it.
    shell = ["/bin/sh", *command]
    return os.posix_spawnp(shell[0], shell, environment, setsigmask=mask, setsigdef=_TAKEN_BY_PYTHON)


def _accompany(child: int) -> int:
    """Pass signals on until the child is gone; its exit code, or minus n after signal n."""
    awaited = signal.valid_signals() - UNCATCHABLE
    while True:
        code = _reap(child)
        if code is not None:
            return code
        told = signal.sigwaitinfo(awaited)
        if told.si_signo == signal.SIGCHLD or told.si_code == BY_KERNEL or _is_within(told.si_pid, child):
            continue
        try:
            if told.si_pid and os.getpgid(told.si_pid) == os.getpgrp():
                time.sleep(GROUP_S)
            os.kill(child, told.si_signo)
        except ProcessLookupError:
            continue


def _is_within(pid: int, child: int) -> bool:
    """Whether the command sent it itself, to its whole group (`kill 0`): then it has it."""
    for _ in range(MOST_GENERATIONS):
        if pid == child:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return False


def _reap(child: int) -> int | None:
    """What became of our children (of orphans too, where this is a container's first process)."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return 0
        if pid == 0:
            return None
        if pid != child:
            continue
        if os.WIFSTOPPED(status):
            if os.WSTOPSIG(status) in STOPPED_BY_TERMINAL:  # the shell is to see that its job has stopped
                os.kill(os.getpid(), signal.SIGSTOP)
            continue
        return os.waitstatus_to_exitcode(status)
