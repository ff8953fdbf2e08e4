"""``gpumon attach PID``: switches the probe on in a Python process that runs already, or says what forbids it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal, NamedTuple

from gpumon import text
from gpumon.errors import UsageError
from gpumon.probe import FOLDER
from gpumon.sources.host import cgroup
from gpumon.sources.host.proc import read_stat, user_name
from gpumon.sources.host.procfs import number_after, parse_status, pids_in, read, read_link
from gpumon.sources.inbox.sampled import teller_of

LEAST = (3, 14)
"""``sys.remote_exec`` came with it; older interpreters have no way in that is safe."""
ANSWER_S = 10.0
"""A loader's queue wakes the main thread every five seconds."""
_CALL_S = 20.0
_MAPS_BYTES = 1 << 23
_ANSWER_BYTES = 4096
_CAP_SYS_PTRACE = 1 << 19
_PYTHON = re.compile(r"/(?:lib)?python(\d)\.(\d{1,2})[a-z]*(?:\.so[\d.]*)?$")
_EXTENSION = re.compile(r"\.cpython-3(\d{1,2})[a-z]*-[\w-]+\.so$")
_CALL = "import sys; sys.remote_exec(int(sys.argv[1]), sys.argv[2])"
_SCRIPT = """\
def switch_on(folder, place):
    import importlib.util, json, os, sys
    answer = {{}}
    try:
        spec = importlib.util.spec_from_file_location("_gpumon_attached", os.path.join(folder, "__init__.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.load().watch()
        names = ("torch", "jax", "tensorflow", "keras", "lightning", "pytorch_lightning", "transformers", "deepspeed")
        answer["frameworks"] = " ".join(name for name in names if name in sys.modules)
    except BaseException as error:
        answer["error"] = type(error).__name__ + ": " + str(error)[:200]
    try:
        os.unlink(os.path.join(place, "script.py"))
        with open(os.path.join(place, "answer.new"), "x") as file:
            json.dump(answer, file)
        os.rename(os.path.join(place, "answer.new"), os.path.join(place, "answer"))
        if not os.path.exists(os.path.join(place, "waits")):
            os.unlink(os.path.join(place, "answer"))
            os.rmdir(place)
    except OSError:
        pass


switch_on({folder!r}, {place!r})
del switch_on
"""


class Target(NamedTuple):
    """The process, as far as it shows from outside."""

    pid: int
    started_ticks: int
    uid: int
    program: str
    """Its executable, where that may be read."""
    version: tuple[int, int] | None
    """Of its Python; None where it runs none."""
    environment: dict[bytes, bytes]


def run(pid: int) -> int:
    """Switch the probe on; returns the exit code.

    Raises:
        UsageError: it cannot be done; names the rule that forbids it, and what to do instead.
    """
    target = target_of(pid)
    if told_by(target) == "probe":
        sys.stdout.write(f"gpumon: process {pid} has a probe already; gpumon shows what it tells\n")
        return 0
    _refuse(target)
    place = Path(tempfile.mkdtemp(prefix="gpumon-attach-"))
    try:
        _check_reach(target, place)
        _ask(target, place)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    sys.stdout.write(f"gpumon: {_told(target, _await_answer(target, place))}\n")
    return 0


def target_of(pid: int) -> Target:
    """Look at a process.

    Raises:
        UsageError: there is none of this number, or it has ended.
    """
    stat, status = read_stat("/proc", pid), parse_status(read(f"/proc/{pid}/status"))
    if pid <= 0 or stat is None or status is None:
        raise UsageError(f"attach: there is no process {pid}")
    if stat.state in {"Z", "X"}:
        raise UsageError(f"attach: process {pid} has ended")
    program = (read_link(f"/proc/{pid}/exe") or "").removesuffix(" (deleted)")
    maps = read(f"/proc/{pid}/maps", _MAPS_BYTES) or b""
    entries = (read(f"/proc/{pid}/environ", 1 << 18) or b"").split(b"\0")
    environment = {name: value for name, _, value in (entry.partition(b"=") for entry in entries)}
    return Target(pid, stat.started_ticks, status.uid, program, _version(program, maps), environment)


def _version(program: str, maps: bytes) -> tuple[int, int] | None:
    """By the names of what is mapped: the interpreter, its library, the modules built for it."""
    paths = [line[line.find("/") :] for line in maps.decode("utf-8", "replace").splitlines() if "/" in line]
    for path in [program, *dict.fromkeys(paths)]:
        if found := _PYTHON.search(path):
            return int(found[1]), int(found[2])
    built_for = next((found for path in paths if (found := _EXTENSION.search(path))), None)
    return None if built_for is None else (3, int(built_for[1]))


def told_by(target: Target) -> Literal["probe", "sampler"] | None:
    """Who writes about it already."""
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in target.environment.items()}
    return teller_of(target.pid, target.uid, environment)


# --- what forbids it -----------------------------------------------------------------------------


def refuse_what_is_not_ours(target: Target, act: str, command: str) -> None:
    """Raise where no way in may be tried: gpumon itself, another user's process, one without Python.

    Args:
        target: The process.
        act: What only its user may do.
        command: That does it, to be followed by the number.
    """
    pid = target.pid
    if pid == os.getpid():
        raise UsageError(f"attach: process {pid} is gpumon itself")
    if target.uid != os.geteuid():
        user = user_name(target.uid)
        raise UsageError(
            f"attach: process {pid} is {user}'s, and only {user} may {act}: sudo -u {user} {command} {pid}"
        )
    if target.version is None:
        if not target.program:
            raise UsageError(f"attach: process {pid} may not be looked into (it is protected); {start_again()}")
        raise UsageError(f"attach: process {pid} is no Python process ({_name(target)}){_python_children(pid)}")


def _refuse(target: Target) -> None:
    """Raise for the first rule that forbids it, the one nothing can be done about before the others."""
    pid = target.pid
    refuse_what_is_not_ours(target, "switch a probe on in it", "gpumon attach")
    assert target.version is not None
    if target.version < LEAST:
        raise UsageError(
            f"attach: process {pid} runs Python {_dotted(target.version)}, and only {_dotted(LEAST)} and later can be "
            f"entered from outside; {start_again()}{_from_outside(pid)}"
        )
    if target.environment.get(b"PYTHON_DISABLE_REMOTE_DEBUG") or b"disable-remote-debug" in _arguments(pid):
        raise UsageError(
            f"attach: process {pid} was started so that nobody may enter it "
            f"(PYTHON_DISABLE_REMOTE_DEBUG, -X disable-remote-debug); {start_again()}{_from_outside(pid)}"
        )
    reason = ptrace_rule(pid)
    if reason is not None:
        raise UsageError(f"attach: process {pid}: {reason}; or {start_again()}")


def ptrace_rule(pid: int, *, by_a_child: bool = False) -> str | None:
    """What the kernel's rule about entering processes says; None where it allows it.

    ``by_a_child``: a program that we start is to do it, which is no parent of anybody.
    """
    scope = number_after(b"\n" + (read("/proc/sys/kernel/yama/ptrace_scope") or b""), b"\n") or 0
    own = read("/proc/self/status") or b""
    at = own.find(b"\nCapEff:")
    words = own[at + 8 : at + 40].split()
    is_capable = bool(words) and bool(int(words[0], 16) & _CAP_SYS_PTRACE)
    if scope >= 3:
        return "the kernel lets nobody enter a process (kernel.yama.ptrace_scope is 3, until the next boot)"
    if is_capable or scope == 0 or (scope == 1 and not by_a_child and _descends(pid, os.getpid())):
        return None
    who = "a parent may enter its children" if scope == 1 else "an administrator may enter processes"
    return (
        f"only {who} here (kernel.yama.ptrace_scope is {scope}): "
        "sudo sysctl kernel.yama.ptrace_scope=0 allows it until the next boot"
    )


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(64):
        stat = read_stat("/proc", pid)
        if stat is None or pid <= 1:
            return False
        if stat.ppid == ancestor:
            return True
        pid = stat.ppid
    return False


def _check_reach(target: Target, place: Path) -> None:
    """The script and the probe must be the same files for both: a container has its own."""
    for path in (place, Path(FOLDER)):
        try:
            is_same = path.samefile(f"/proc/{target.pid}/root{path.absolute()}")
        except OSError:
            is_same = False
        if not is_same:
            container = container_of(target.pid)
            inside = f"container {container}" if container else "a container or a file system of its own"
            command = f"docker exec {container} gpumon attach PID" if container else "gpumon attach PID, inside"
            raise UsageError(
                f"attach: process {target.pid} runs in {inside} and does not see gpumon's files: "
                f"{command} (with its PID there) where gpumon is installed in it; or {start_again()}"
            )


def container_of(pid: int) -> str | None:
    """The container that it runs in, where that shows."""
    known = cgroup.parse_place(read(f"/proc/{pid}/cgroup"))
    return None if known is None else cgroup.container_id(known)


def start_again() -> str:
    """What always works."""
    return "start it with: gpumon run -- python …"


def _from_outside(pid: int) -> str:
    """What can be seen without entering."""
    needs = "" if py_spy() else ", which takes py-spy (pip install py-spy)"
    return f"; or sample it from outside: gpumon attach --sample {pid}{needs}"


def py_spy() -> str | None:
    """The program, on the PATH or beside the Python that runs this."""
    found = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    return None if found is None else str(Path(found).absolute())


def _python_children(pid: int) -> str:
    """A launcher or a shell: those that train are its children."""
    found = []
    for child in pids_in(read(f"/proc/{pid}/task/{pid}/children")):
        program = read_link(f"/proc/{child}/exe") or ""
        if "python" in program.rsplit("/", 1)[-1]:
            found.append(str(child))
    return f"; its Python children: {', '.join(found[:8])}" if found else ""


def _name(target: Target) -> str:
    return text.clean(target.program.rsplit("/", 1)[-1])


def _arguments(pid: int) -> list[bytes]:
    return (read(f"/proc/{pid}/cmdline") or b"").split(b"\0")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


# --- how it is done ------------------------------------------------------------------------------


def _ask(target: Target, place: Path) -> None:
    """Have it run the script as soon as it runs Python code in its main thread."""
    script = place / "script.py"
    script.write_text(_SCRIPT.format(folder=FOLDER, place=str(place)), encoding="utf-8")
    (place / "waits").touch()
    _call(target, script)


def _await_answer(target: Target, place: Path) -> dict[str, str] | None:
    """What it answers; None where nothing came: then it does later, and cleans up behind itself."""
    told = None
    until = time.monotonic() + ANSWER_S
    try:
        while told is None and time.monotonic() < until and read_stat("/proc", target.pid) is not None:
            time.sleep(0.05)
            told = _read_answer(place / "answer")
    finally:
        (place / "waits").unlink(missing_ok=True)
    told = told or _read_answer(place / "answer")
    is_gone = read_stat("/proc", target.pid) is None
    if told is not None or is_gone:
        shutil.rmtree(place, ignore_errors=True)
    if told is None and is_gone:
        raise UsageError(f"attach: process {target.pid} ended meanwhile")
    return told


def _call(target: Target, script: Path) -> None:
    """With the same interpreter, since only one of the same version knows where to write."""
    command = [*_interpreter(target), "-I", "-S", "-c", _CALL, str(target.pid), str(script)]
    try:
        done = subprocess.run(  # noqa: S603 - the very program that runs there as the same user
            command, capture_output=True, timeout=_CALL_S, check=False, cwd="/", stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"attach: {command[0]} cannot be used to enter process {target.pid}: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        said = text.clean(lines[-1]) if lines else f"exit {done.returncode}"
        raise UsageError(f"attach: process {target.pid} cannot be entered: {said}; {start_again()}")


def _interpreter(target: Target) -> list[str]:
    if _PYTHON.search(target.program) or target.program.endswith(("/python", "/python3")):
        return [target.program if Path(target.program).exists() else f"/proc/{target.pid}/exe"]
    # A program with Python inside.
    if target.version == sys.version_info[:2] and sys.version_info >= LEAST:
        return [sys.executable]
    name = f"python{_dotted(target.version or LEAST)}"
    found = shutil.which(name)
    if found is None:
        raise UsageError(
            f"attach: process {target.pid} has Python built in; entering it takes a {name}, and none is here"
        )
    return [found]


def _read_answer(path: Path) -> dict[str, str] | None:
    """None before there is one."""
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(_ANSWER_BYTES))
    except FileNotFoundError:
        return None
    except ValueError:
        told = {"error": "it answers nonsense"}
    return {text.clean(key): text.clean(str(value)) for key, value in told.items()} if isinstance(told, dict) else {}


def _told(target: Target, answer: dict[str, str] | None) -> str:
    pid = target.pid
    if answer is None:
        return (
            f"process {pid} was asked and has not answered in {ANSWER_S:g} s: its main thread runs no Python code now "
            "(a long call, a wait); the probe is on as soon as it does"
        )
    if "error" in answer:
        raise UsageError(f"attach: the probe does not start in process {pid}: {answer['error']}")
    if not answer.get("frameworks"):
        return f"the probe is on in process {pid}; no framework that it knows is loaded there yet"
    return f"the probe is on in process {pid} ({answer['frameworks']}); it tells from the next step on"
