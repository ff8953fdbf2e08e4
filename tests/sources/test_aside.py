"""What may block: sizes of filesystems and shares of memory come from a thread of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from proctree import FakeProc, python

from gpumon.sources.host import aside
from gpumon.sources.host.aside import Aside, share_of, volumes_of


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_real_process_writes_where_it_works(tmp_path: Path) -> None:
    """The filesystem of its directory and of a file open for writing is there with the sizes that statvfs gives."""
    code = f"import os; os.chdir({str(tmp_path)!r})\nout = open('x.log', 'w')\nprint(1, flush=True)\ninput()"
    with python(code) as child:
        found = volumes_of("/proc", [child.pid])
    space = os.statvfs(tmp_path)
    mine = [volume for volume in found if volume.total_bytes == space.f_blocks * space.f_frsize]
    if not mine:
        pytest.skip("the temporary directory lies in memory here")
    assert mine[0].filesystem
    assert str(tmp_path).startswith(mine[0].path)
    assert mine[0].free_bytes == pytest.approx(space.f_bavail * space.f_frsize, abs=1 << 30)


def test_only_what_is_written_counts(tmp_path: Path) -> None:
    """A file open for reading, memory and deleted files are no place to write to."""
    fake = FakeProc(tmp_path)
    fake.add(7)
    fake.write(
        "7/mounts", "/dev/sda / ext4 rw 0 0\n/dev/sdb /data xfs rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nn /n nfs4 rw 0 0\n"
    )
    fake.link("7/cwd", "/home/ana")
    for number, (path, flags) in enumerate(
        [("/data/in.bin", "0100000"), ("/n/out.pt", "0100001"), ("/dev/shm/x", "0100002"), ("/data/x (deleted)", "02")]
    ):
        fake.link(f"7/fd/{number}", path)
        fake.write(f"7/fdinfo/{number}", f"pos:\t0\nflags:\t{flags}\n")
    for place in ("home/ana", "data", "n"):
        (fake.proc / "7/root" / place).mkdir(parents=True)
    assert sorted(volume.path for volume in volumes_of(str(fake.proc), [7])) == ["/", "/n"]


def test_share_of_memory() -> None:
    """Private and proportional memory are read of a process that exists, and nothing of one that does not."""
    with python("block = bytearray(50_000_000)\nprint(1, flush=True)\ninput()") as child:
        share = share_of("/proc", child.pid)
    assert share is not None
    assert 50_000_000 < share.private_bytes <= share.pss_bytes < 200_000_000
    assert share_of("/proc", child.pid) is None


def test_questions_are_asked_when_due_and_never_waited_for(tmp_path: Path) -> None:
    """Volumes come once in 30 s, shares once a minute and only where asked for; a hanging question blocks nobody."""
    fake = FakeProc(tmp_path)
    fake.add(7)
    fake.write(
        "7/smaps_rollup",
        "0-1 ---p 0 00:00 0 [rollup]\nRss: 9 kB\nPss:  5 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 3 kB\n",
    )
    slow = Aside(str(fake.proc))
    slow.look(0.0, [], [])
    assert slow._thread is None
    slow.look(0.0, [7], [7])
    wait_for(lambda: slow.shares)
    assert slow.shares == {7: aside.Share(5 * 1024, 4 * 1024)}
    slow.shares = {}
    slow.look(aside.SHARES_S - 1, [], [7])
    assert slow._question is None
    (fake.proc / "7/smaps_rollup").unlink()
    os.mkfifo(fake.proc / "7/smaps_rollup")
    slow.look(aside.SHARES_S + 1, [], [7])
    began = time.monotonic()
    for now in range(200, 210):
        slow.look(float(now), [7], [7])
    assert time.monotonic() - began < 0.1
    slow.close()
    # Lets the hanging thread go.
    os.close(os.open(fake.proc / "7/smaps_rollup", os.O_RDWR | os.O_NONBLOCK))
