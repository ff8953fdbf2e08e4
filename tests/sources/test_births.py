"""Who was started of late is asked for his parent, so that nobody else has to be."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from proctree import python

from gpumon.sources.host import following as followed
from gpumon.sources.host.births import Births
from gpumon.sources.host.following import Following
from gpumon.sources.host.tree import Tree

MANY = 1 << 20
"""More than a test machine starts meanwhile."""
PARENT = """
import ctypes, os, sys, threading, time
def child():
    pid = os.fork()
    if pid == 0:
        threading.Thread(target=time.sleep, args=(600,)).start()
        print(os.getpid(), threading.enumerate()[-1].native_id, flush=True)
        time.sleep(600)
    time.sleep(600)
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=child).start()
time.sleep(600)
"""


def loadavg(proc: Path, newest: object, own: int) -> Births:
    """What is said in a /proc that calls us so."""
    proc.mkdir(exist_ok=True)
    (proc / "self").unlink(missing_ok=True)
    (proc / "self").symlink_to(str(own))
    (proc / "loadavg").write_text(f"0.10 0.20 0.30 1/234 {newest}\n")
    return Births(str(proc))


def test_whoever_is_started_is_among_the_numbers() -> None:
    """Each call tells those since the last one; the first one cannot."""
    births = Births("/proc")
    assert births.numbers(MANY) is None
    with subprocess.Popen(["true"]) as one, subprocess.Popen(["true"]) as other:
        numbers = births.numbers(MANY)
    assert numbers is not None
    assert {one.pid, other.pid} <= set(numbers)
    later = births.numbers(MANY)
    assert later is not None
    assert one.pid not in later
    births.close()


@pytest.mark.parametrize(
    ("newest", "told"),
    [(1005, range(1000, 1006)), (1000, range(1000, 1001)), (1011, None), (7, None), (0, None), ("x", None)],
)
def test_what_cannot_be_told_is_not_guessed(tmp_path: Path, newest: object, told: range | None) -> None:
    """Too many, numbers that begin anew, a sandbox without them."""
    births = loadavg(tmp_path / "proc", 1000, os.getpid())
    assert births.numbers(10) is None
    (tmp_path / "proc" / "loadavg").write_text(f"0.10 0.20 0.30 1/234 {newest}\n")
    assert births.numbers(10) == told


def test_another_namespaces_proc_tells_nothing(tmp_path: Path) -> None:
    """The kernel answers with a number of the reader's namespace, which means nothing there."""
    births = loadavg(tmp_path / "proc", 1000, os.getpid() + 1)
    assert births.numbers(10) is None
    assert births.numbers(10) is None


def test_a_threads_child_is_found_without_asking_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken up at the next look; its own thread, of which /proc speaks alike, is not taken for a process."""
    monkeypatch.setattr(followed, "_BIRTHS_MAX", MANY)
    monkeypatch.setattr(followed, "_BIRTHS_LEAST", MANY)
    with python(PARENT) as parent:
        following = Following("/proc", is_namespaced=False)
        following.follow({parent.pid}, 0.0)
        assert list(following.watches) == [parent.pid]
        monkeypatch.setattr(Tree, "children", lambda *_, **__: iter(()))
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("go\n")
        parent.stdin.flush()
        child, thread = map(int, parent.stdout.readline().split())
        assert thread != child
        following.follow({parent.pid}, 2.0)
        assert list(following.watches) == [parent.pid, child]
        following.close()


def test_while_the_newborn_are_not_known_all_are_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within ten seconds everybody's threads are asked; while they are known, within two minutes."""
    asked: list[int] = []
    monkeypatch.setattr(Tree, "children", lambda _, pid, **__: asked.append(pid) or iter(()))
    holders = [subprocess.Popen(["sleep", "600"]) for _ in range(20)]
    pids = {one.pid for one in holders}
    try:
        for is_known in (True, False):
            proc = tmp_path / str(is_known)
            loadavg(proc, 1000 if is_known else 0, os.getpid())
            for pid in pids:
                (proc / str(pid)).symlink_to(f"/proc/{pid}")
            following = Following(str(proc), is_namespaced=False)
            for now in range(0, 80, 2):
                following.follow(pids, float(now))
            asked.clear()
            for now in range(80, 90, 2):
                following.follow(pids, float(now))
            assert (set(asked) == pids) is not is_known
            for now in range(90, 210, 2):
                following.follow(pids, float(now))
            assert set(asked) == pids
            following.close()
    finally:
        for one in holders:
            one.kill()
            one.wait()
