"""A /proc and /sys made of plain files, and real processes to look at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpumon.model import Process
from gpumon.sources import GpuUse
from gpumon.sources.host.procfs import TICKS_PER_S
from gpumon.sources.host.reader import HostReader

BOOT_S = 1_700_000_000
GIB = 1 << 30


def use(*uuids: str) -> GpuUse:
    return GpuUse(dict.fromkeys(uuids or ("GPU-a",), GIB), None)


def by_pid(processes: Sequence[Process]) -> dict[int, Process]:
    return {process.pid: process for process in processes}


class FakeProc:
    """Files as the kernel writes them; each call rewrites one process."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        self.sys.mkdir(parents=True)
        self.write("stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nbtime {BOOT_S}\n")

    def write(self, name: str, content: str | bytes) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # In place: a kept descriptor must see the new content, as in /proc.
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def link(self, name: str, target: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def stat(self, pid: int, *, comm: str = "python", state: str = "S", ppid: int = 1, cpu_s: float = 0.0,
             start_s: float = 100.0) -> None:  # fmt: skip
        ticks, start = round(cpu_s * TICKS_PER_S), round(start_s * TICKS_PER_S)
        fields = f"{state} {ppid} {pid} {pid} 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 {start} 1000000 256 0"
        self.write(f"{pid}/stat", f"{pid} ({comm}) {fields}\n")
        self.write(f"{pid}/task/{pid}/stat", f"{pid} ({comm}) {fields}\n")
        self.write(f"{pid}/task/{pid}/comm", f"{comm}\n")

    def add(
        self,
        pid: int,
        *,
        comm: str = "python",
        ppid: int = 1,
        argv: Sequence[str] = ("python", "train.py"),
        uid: int = 0,
        start_s: float = 100.0,
        cgroup: str = "0::/\n",
        children: Sequence[int] | None = (),
        environment: Mapping[str, str] | None = None,
        maps: str | None = None,
    ) -> None:
        self.stat(pid, comm=comm, ppid=ppid, start_s=start_s)
        self.write(f"{pid}/status", f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCpus_allowed_list:\t0-3\n")
        self.write(f"{pid}/cmdline", "".join(f"{word}\0" for word in argv))
        self.write(f"{pid}/cgroup", cgroup)
        if children is not None:
            self.children(pid, *children)
        if environment is not None:
            self.write(f"{pid}/environ", "".join(f"{name}={value}\0" for name, value in environment.items()))
        if maps is not None:
            self.write(f"{pid}/maps", maps)

    def children(self, pid: int, *pids: int) -> None:
        self.write(f"{pid}/task/{pid}/children", "".join(f"{child} " for child in pids))

    def sched(self, pid: int, *, run_s: float, delay_s: float) -> None:
        self.write(f"{pid}/schedstat", f"{round(run_s * 1e9)} {round(delay_s * 1e9)} 7\n")

    def io(self, pid: int, *, read: int, write: int, rchar: int) -> None:
        self.write(
            f"{pid}/io",
            f"rchar: {rchar}\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: {read}\nwrite_bytes: {write}\n"
            "cancelled_write_bytes: 0\n",
        )


@contextlib.contextmanager
def python(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run Python code that prints a line when it is ready; ended at the latest with the block."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline(), "the child ended before it was ready"
        yield child
    finally:
        # What it forked is in its group, and would keep the pipe open.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


@contextlib.contextmanager
def reader_of(
    proc: Path = Path("/proc"), sys_path: Path = Path("/sys"), interval_s: float = 1.0
) -> Iterator[HostReader]:
    reader = HostReader(interval_s, proc, sys_path)
    try:
        yield reader
    finally:
        reader.close()
