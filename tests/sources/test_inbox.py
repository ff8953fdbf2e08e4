"""What probes publish, read from files as hostile as they can be, of real processes."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gpumon.model import Gpu, Rank
from gpumon.probe._gpumon_probe import layout
from gpumon.probe._gpumon_probe.ring import start_ticks
from gpumon.sources import GpuUse
from gpumon.sources.inbox.inbox import Inbox
from gpumon.sources.inbox.names import Names
from gpumon.sources.inbox.places import MOST_FILES
from probefile import NOTHING, ProbeFile, S

GPUS = tuple(Gpu(uuid=f"GPU-{letter * 8}", index=index, name="H100") for index, letter in enumerate("abcd"))
MEMORY = {
    "device": 0,
    "allocated": 30,
    "peak": 50,
    "floor": 20,
    "reserved": 60,
    "active": 31,
    "inactive_split": 7,
    "retries": 2,
    "ooms": 1,
}


class Sleeper:
    """A process that does nothing, to be written about."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["sleep", "100"])
        self.pid = self.process.pid

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "gpumon"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    one = Sleeper()
    yield one
    one.end()


@pytest.fixture
def inbox(directory: Path) -> Iterator[Inbox]:
    box = box_at(directory)
    yield box
    box.close()


def box_at(directory: Path, session: str | Path = "/nonexistent") -> Inbox:
    """An inbox for these two places only: in those of this machine other programs may write."""
    inbox = Inbox({"GPUMON_RUNTIME_DIR": str(directory), "XDG_RUNTIME_DIR": str(session)})
    inbox._own = inbox._own[:2]
    return inbox


def read(inbox: Inbox, at: float = 0.0, holders: Mapping[int, GpuUse] | None = None) -> tuple[Rank, ...]:
    return inbox.read(holders or {}, GPUS, time.monotonic() + at)


def only(ranks: tuple[Rank, ...]) -> Rank:
    assert len(ranks) == 1, ranks
    return ranks[0]


# --- numbers -------------------------------------------------------------------------------------


def test_sums_of_slots_become_means_of_the_interval(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Times are means over all steps since the last reading; memory is the newest, its floor the lowest."""
    file = ProbeFile(
        directory, sleeper.pid, rank=3, local_rank=1, world_size=8, framework="pytorch", allocator="native"
    )
    file.write([(1.0, 0.0)] * 5, samples=100.0, ago_s=1.2)
    read(inbox)
    file.write(
        [(0.2, 0.1), (0.4, 0.0)], samples=164.0, forward_ns=S // 10, h2d_ns=S // 100, restart_ns=S // 2, **MEMORY
    )
    newest = MEMORY | {"floor": 25, "allocated": 33}
    file.write([(0.3, 0.2)], samples=196.0, forward_ns=S // 20, pause_ns=S // 4, **newest)
    rank = only(read(inbox))
    assert rank.pid == sleeper.pid
    assert (rank.rank, rank.local_rank, rank.world_size) == (3, 1, 8)
    assert (rank.framework, rank.phase, rank.step, rank.allocator) == ("pytorch", "train", 8, "native")
    assert rank.step_s == pytest.approx(0.3)
    assert rank.data_wait_s == pytest.approx(0.1)
    assert rank.forward_s == pytest.approx(0.05)
    assert rank.h2d_s is None  # one of the two does not know it
    assert rank.samples_per_s == pytest.approx(32 / 0.3)
    assert rank.step_samples_s == pytest.approx((0.2, 0.4, 0.3))
    assert rank.data_wait_samples_s == pytest.approx((0.1, 0.0, 0.2))
    assert (rank.pause_s, rank.loader_start_s) == pytest.approx((0.25, 0.5))
    assert (rank.allocated_bytes, rank.allocated_min_bytes, rank.allocated_peak_bytes) == (33, 20, 50)
    assert (rank.reserved_bytes, rank.active_bytes, rank.inactive_split_bytes) == (60, 31, 7)
    assert (rank.alloc_retries, rank.ooms) == (2, 1)
    assert rank.loss_is_nan is None
    assert rank.waiting_s is None
    assert rank.heartbeat_age_s == pytest.approx(0.0, abs=0.1)


def test_a_short_wait_does_not_grow_until_it_is_read(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """A report that found it waiting for 20 ms says no more 0.4 s later; one after which it fell silent does."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.5, 0.1)], ago_s=3.0)
    now_ns = time.monotonic_ns()
    file.write(inside=layout.WAITING, since_ns=now_ns - int(0.42 * S), ago_s=0.4)
    assert only(read(inbox)).waiting_s == pytest.approx(0.02, abs=0.015)
    time.sleep(1.0)
    assert only(read(inbox)).waiting_s == pytest.approx(1.42, abs=0.3)


def test_an_interval_without_a_step(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """What it has waited for so far, and how long nothing has moved; no means of nothing; memory unknown is None."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.5, 0.1)], ago_s=4.0)
    since_ns = time.monotonic_ns() - 3 * S
    file.write(inside=layout.WAITING, since_ns=since_ns, beat_ns=since_ns, ago_s=0.1)
    read(inbox)
    file.write(inside=layout.WAITING, since_ns=since_ns, beat_ns=since_ns)
    rank = only(read(inbox))
    assert (rank.step, rank.step_s, rank.data_wait_s, rank.samples_per_s) == (1, None, None, None)
    assert (rank.step_samples_s, rank.data_wait_samples_s) == ((), ())
    assert rank.waiting_s == pytest.approx(3.0, abs=0.3)
    assert rank.heartbeat_age_s == pytest.approx(3.0, abs=0.3)
    assert (rank.allocated_bytes, rank.allocated_min_bytes, rank.reserved_bytes, rank.ooms) == (None, None, None, None)


def test_without_a_new_slot_ages_go_on(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """A process whose probe cannot run (stopped, the interpreter held) keeps its numbers while its heartbeat ages."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.5, 0.1)], ago_s=9.0, **MEMORY)
    first = only(read(inbox))
    assert first.heartbeat_age_s == pytest.approx(9.0, abs=0.2)
    time.sleep(0.2)
    second = only(read(inbox))
    assert second.heartbeat_age_s is not None
    assert second.heartbeat_age_s == pytest.approx((first.heartbeat_age_s or 0) + 0.2, abs=0.1)
    assert (second.step_s, second.pause_s, second.allocated_bytes) == (None, None, 30)


def test_before_the_first_step_the_pulse_is_the_beginning(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    file = ProbeFile(directory, sleeper.pid)
    file.write(phase=layout.INIT, ago_s=0.4)
    rank = only(read(inbox))
    assert (rank.phase, rank.step) == ("init", None)
    assert rank.heartbeat_age_s == pytest.approx(0.4, abs=0.1)


def test_jax_that_tells_no_steps_is_not_taken_for_one_that_does_none(
    directory: Path, inbox: Inbox, sleeper: Sleeper
) -> None:
    """It waits for its device now and then; how it gets on is not known, until a step is told."""
    file = ProbeFile(directory, sleeper.pid, framework="jax", allocator="xla")
    file.write(phase=layout.INIT, beat_ns=time.monotonic_ns() - 300 * S, compiles=3, compile_ns=S, **MEMORY)
    rank = only(read(inbox))
    assert (rank.step, rank.step_s, rank.data_wait_s, rank.phase, rank.heartbeat_age_s) == (None,) * 5
    assert (rank.allocated_bytes, rank.compiles, rank.compile_s) == (30, 3, pytest.approx(1.0))
    file.write([(0.1, 0.0)])
    rank = only(read(inbox))
    assert (rank.step, rank.phase, rank.heartbeat_age_s) == (1, "train", pytest.approx(0.0, abs=0.2))


def test_a_wait_that_nobody_sees_is_not_none_at_all(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Within Keras's ``fit`` batches are fetched by compiled code: no wait of 0 is told of."""
    file = ProbeFile(directory, sleeper.pid, framework="keras")
    file.write([(0.1, 0.0)], batches=0)
    rank = only(read(inbox))
    assert (rank.step_s, rank.data_wait_s) == (pytest.approx(0.1), None)
    file.write([(0.1, 0.02)])
    assert only(read(inbox)).data_wait_s == pytest.approx(0.02)
    file.write([(2.0, 0.0)], batches=0)  # it was fetched half a second before
    assert only(read(inbox)).data_wait_s == 0.0


@pytest.mark.parametrize(
    ("flags", "known"),
    [([layout.LOSS_IS_NAN], True), ([layout.LOSS_IS_KNOWN, 0], False), ([0], None), ([layout.LOSS_IS_NAN, 0], True)],
)
def test_loss(directory: Path, inbox: Inbox, sleeper: Sleeper, flags: list[int], known: bool | None) -> None:
    """A loss is told now and then; what the last one was holds until the next."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    read(inbox)
    for flag in flags:
        file.write([(0.1, 0.0)], flags=flag)
    assert only(read(inbox)).loss_is_nan is known


def test_async_allocator_is_named(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    ProbeFile(directory, sleeper.pid, allocator="native").write(flags=layout.ASYNC_ALLOCATOR)
    assert only(read(inbox)).allocator == "cuda-malloc-async"


def test_rank_by_the_launchers_environment(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Where the probe knows no rank, its launcher's names tell; a rank outside its world is none."""
    environment = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}
    file = ProbeFile(directory, sleeper.pid, rank=9, world_size=8, environment=environment)
    file.write()
    rank = only(read(inbox))
    assert (rank.rank, rank.local_rank, rank.world_size) == (5, 1, 8)


def test_the_header_may_change(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Rank, framework and devices become known while it runs; a header in the making is passed over."""
    file = ProbeFile(directory, sleeper.pid)
    file.write()
    assert only(read(inbox)).rank is None
    os.pwrite(file.fd, b"\0" * 100, 200)
    assert only(read(inbox, at=1.1)).rank is None
    file.header(rank=1, world_size=2, framework="jax", devices=[None, "bbbbbbbb"])
    file.write(device=1, allocated=5)
    rank = only(read(inbox, at=2.2))
    assert (rank.rank, rank.framework, rank.gpu_uuid) == (1, "jax", "GPU-bbbbbbbb")


def test_a_damaged_slot_is_skipped(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """One that is being written waits for the next reading; one that stays damaged is passed over."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    read(inbox)
    torn = bytearray(layout.encode_slot(file.write([(0.2, 0.0)]), [(200_000, 0)]))
    torn[60] ^= 1
    file.put(2, bytes(torn))
    assert only(read(inbox)).step == 1
    file.put(2, layout.encode_slot(NOTHING._replace(seq=2, step=2, mono_ns=time.monotonic_ns()), []))
    assert only(read(inbox)).step == 2
    torn = bytearray(layout.encode_slot(file.write([(0.2, 0.0)]), [(200_000, 0)]))
    torn[60] ^= 1
    file.put(3, bytes(torn))
    file.write([(0.4, 0.0)])
    rank = only(read(inbox))
    assert (rank.step, rank.step_s) == (4, pytest.approx(0.4))


def test_a_slot_whose_number_is_damaged_stops_nothing(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Where the next number does not come, the newest slot is looked for."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)], ago_s=5.0)
    read(inbox)
    file.write([(0.2, 0.0)], ago_s=4.5)
    file.put(2, bytes(layout.SLOT_SIZE))
    file.write([(0.3, 0.0)], ago_s=4.0)
    rank = only(read(inbox))
    assert (rank.step, rank.step_s) == (3, pytest.approx(0.3))
    file.write([(0.4, 0.0)])
    assert only(read(inbox)).step_s == pytest.approx(0.4)


IMPOSSIBLE = [
    {"allocated": -2},
    {"reserved": 2**60},
    {"step_ns": 2**60},
    {"step": 2**63},
    {"phase": 5},
    {"samples": float("inf")},
    {"samples": -1.0},
    {"h2d_ns": 2**60},
    {"compile_ns": 2**60},
    {"compiles": 2**63},
    {"beat_ns": 2**63},
    {"since_ns": 2**62},
    {"mono_ns": 1, "wall_ns": 1},
]


@pytest.mark.parametrize("lie", IMPOSSIBLE)
def test_impossible_numbers_are_not_taken(directory: Path, inbox: Inbox, sleeper: Sleeper, lie: dict[str, Any]) -> None:
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)], **MEMORY)
    read(inbox)
    file.write([(0.1, 0.0)], **MEMORY | lie)
    file.write([(0.3, 0.0)], **MEMORY)
    rank = only(read(inbox))
    assert (rank.step, rank.step_s) == (3, pytest.approx(0.3))


# --- the ring ------------------------------------------------------------------------------------


def test_late_monitor_sees_the_last_second(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Whoever starts later, or anew, reads what the last second was like, not the two minutes that are kept."""
    file = ProbeFile(directory, sleeper.pid)
    for number in range(600):
        file.write([(0.5 if number >= 598 else 5.0, 0.1)], samples=10.0 * number, ago_s=(599 - number) * 0.5)
    rank = only(read(inbox))
    assert (rank.step, rank.step_s) == (600, pytest.approx(0.5))
    assert rank.samples_per_s == pytest.approx(20.0)
    other = box_at(directory)
    assert only(read(other)).step == 600
    other.close()


def test_every_slot_is_read_once(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Round and round the ring, however many there are between two readings."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(1.0, 0.0)])
    read(inbox)
    seen = 0
    for count in (1, 2, 3, 7, 200, 255, 1, 90, 3, 4):
        for _ in range(count):
            file.write([(0.01, 0.002)])
        rank = only(read(inbox))
        seen += count
        assert rank.step == seen + 1
        assert len(rank.step_samples_s) == min(count, 90)
        assert rank.step_s == pytest.approx(0.01)


def test_a_reader_that_was_overtaken_goes_on_with_the_newest(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    file = ProbeFile(directory, sleeper.pid)
    file.write([(1.0, 0.0)])
    read(inbox)
    for _ in range(1000):
        file.write([(0.01, 0.0)], ago_s=10.0)
    file.write([(0.3, 0.0)])
    assert only(read(inbox)).step_s == pytest.approx(0.3)


# --- who lives -----------------------------------------------------------------------------------


def test_a_last_word_comes_once(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Who ends by itself says so, and is forgotten; who is killed says nothing."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)], ago_s=1.0)
    assert only(read(inbox)).phase == "train"
    assert inbox.pids == {sleeper.pid}
    file.write(phase=layout.END, ago_s=0.7)
    sleeper.end()
    assert only(read(inbox)).phase == "end"
    assert read(inbox) == ()
    assert inbox.pids == frozenset()
    other = Sleeper()
    killed = ProbeFile(directory, other.pid)
    killed.write([(0.1, 0.0)], ago_s=1.0)
    assert only(read(inbox)).phase == "train"
    other.process.send_signal(signal.SIGKILL)
    time.sleep(0.1)
    assert read(inbox) == ()  # a zombie still
    other.end()


@pytest.mark.parametrize(
    ("written", "code", "text"),
    [
        ({"exit_code": 3, "run_exit_code": 3}, 3, None),
        ({"exit_code": -9, "run_exit_code": -9}, -9, None),
        ({"run_exit_code": 0}, 0, None),
        ({"run_exit_code": 1}, None, "error: its run ended with code 1"),
        ({"exit_code": 2**40}, None, None),
        ({}, None, None),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
def test_exit_codes_under_run(
    directory: Path,
    inbox: Inbox,
    sleeper: Sleeper,
    written: dict[str, int],
    code: int | None,
    text: str | None,
    is_late: bool,
) -> None:
    """Who started the run writes down how it ended and removes the file, before or after the process is missed."""
    file = ProbeFile(directory, sleeper.pid, run="abc")
    file.write([(0.1, 0.0)], ago_s=1.0)
    read(inbox)
    sleeper.end()
    if is_late:
        assert read(inbox) == ()
        assert inbox.drain_events() == ()
    file.header(**written)
    file.path.unlink()
    assert read(inbox, at=0.5) == ()
    events = inbox.drain_events()
    if code is None and text is None:
        assert events == ()
    else:
        assert [(one.kind, one.pid, one.exit_code, one.text) for one in events] == [
            ("process-exit", sleeper.pid, code, text)
        ]
    assert read(inbox, at=9.0) == ()
    assert inbox.drain_events() == ()


def test_an_exception_is_told_of_who_ended_with_it(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Python's exit handlers run after a traceback too: such a last word is no success."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)], ago_s=1.0)
    read(inbox)
    file.write(phase=layout.END, ago_s=0.7)
    file.header(error="OutOfMemoryError\x1b[31m")
    sleeper.end()
    assert only(read(inbox)).phase == "end"
    assert [(one.pid, one.exit_code, one.text) for one in inbox.drain_events()] == [
        (sleeper.pid, None, "ended with OutOfMemoryError·[31m")
    ]


def test_another_process_of_the_same_number(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """A pid that was given out again is known by its start; a file that names another process is not believed."""
    ticks = start_ticks(sleeper.pid)
    assert ticks is not None
    ProbeFile(directory, sleeper.pid, ticks=ticks - 5).write()
    ProbeFile(directory, sleeper.pid, name=f"{sleeper.pid}.{ticks}", ticks=ticks, boot="another").write()
    assert read(inbox) == ()
    (directory / f"{sleeper.pid}.{ticks}").unlink()
    ProbeFile(directory, 1, name=f"{sleeper.pid}.{ticks}").write()
    assert read(inbox, at=5.0) == ()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (directory / f"{sleeper.pid}.{ticks}").unlink()
    ProbeFile(directory, sleeper.pid, boot=boot).write()
    assert only(read(inbox, at=90.0)).pid == sleeper.pid


def test_exec_makes_a_new_file(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """The same process under the same name: the new file counts, from its first slot on."""
    old = ProbeFile(directory, sleeper.pid, framework="pytorch")
    for _ in range(9):
        old.write([(0.1, 0.0)], ago_s=0.5)
    assert only(read(inbox)).step == 9
    old.path.unlink()
    ProbeFile(directory, sleeper.pid, framework="jax").write([(0.2, 0.0)])
    rank = only(read(inbox, at=1.0))
    assert (rank.framework, rank.step) == ("jax", 1)


def test_a_directory_that_goes_away_with_its_session(directory: Path, tmp_path: Path, sleeper: Sleeper) -> None:
    """At logout it vanishes under a job that stays: what is written is read on, and then found in the next place."""
    second = tmp_path / "other" / "gpumon"
    second.mkdir(mode=0o700, parents=True)
    inbox = box_at(directory, second.parent)
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    assert only(read(inbox)).step == 1
    shutil.rmtree(directory)
    new = ProbeFile(second, sleeper.pid)
    new.step, new.seq = file.step, file.seq
    new.write([(0.1, 0.0)])
    assert [rank.step for rank in read(inbox)] == [2]
    inbox.close()


def test_a_file_that_is_being_made_is_read_soon(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    path = directory / f"{sleeper.pid}.{start_ticks(sleeper.pid)}"
    path.touch(mode=0o600)
    assert read(inbox) == ()
    path.unlink()
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    assert only(read(inbox, at=1.5)).step == 1


def test_a_copy_of_a_running_file_changes_nothing(directory: Path, tmp_path: Path, sleeper: Sleeper) -> None:
    second = tmp_path / "other" / "gpumon"
    second.mkdir(mode=0o700, parents=True)
    inbox = box_at(directory, second.parent)
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    read(inbox)
    shutil.copy(file.path, second)
    file.write([(0.1, 0.0)])
    read(inbox, at=5.0)
    file.write([(0.1, 0.0)])
    assert only(read(inbox, at=6.0)).step == 3
    inbox.close()


def test_what_dead_processes_left_is_removed_after_ten_minutes(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Only files of dead processes, and old ones; nothing else in the directory is touched."""
    old = ProbeFile(directory, 2**22 - 5, ticks=77)
    young = ProbeFile(directory, 2**22 - 6, ticks=77)
    running = ProbeFile(directory, sleeper.pid)
    other = directory / "notes"
    other.touch()
    past = time.time() - 700
    for path in (old.path, running.path, other):
        os.utime(path, (past, past))
    assert len(read(inbox)) == 0
    assert sorted(path.name for path in directory.iterdir()) == sorted([young.path.name, running.path.name, "notes"])


# --- what is not believed ------------------------------------------------------------------------


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY)
    yield fd
    os.close(fd)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def bait(directory: Path, outside: Path, sleeper: Sleeper) -> None:
    """Everything that must not be read, opened, followed or waited for."""
    ticks = start_ticks(sleeper.pid)
    whole = ProbeFile(outside, sleeper.pid)
    whole.write([(0.1, 0.0)])
    number = iter(range(100))

    def name() -> Path:
        # Names that pass: this process, by other starts, and the true one for what looks most alike.
        return directory / f"{sleeper.pid}.{1000 + next(number)}"

    os.mkfifo(name())
    name().mkdir()
    name().symlink_to(whole.path)
    name().symlink_to("/dev/zero")
    name().touch()
    with name().open("wb") as sparse:
        sparse.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as server, opened(directory) as fd:
        server.bind(f"/proc/self/fd/{fd}/{name().name}")  # a path of its own may be too long
    for other in ("\x1b]0;owned\x07", "../../x", "1.2.3", "-5.7", "٣.٤", "a" * 200, " ", "0.0", "1." + "9" * 50):
        with contextlib.suppress(OSError):
            (directory / other.replace("/", "_")).touch()
    os.link(whole.path, directory / f"{sleeper.pid}.{ticks}")


def test_baits_are_refused(directory: Path, tmp_path: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """FIFOs, links, devices, sparse files and odd names cost nothing and stop nothing; the good file is read."""
    bait(directory, tmp_path, sleeper)
    good = Sleeper()
    ProbeFile(directory, good.pid, rank=1).write([(0.1, 0.0)])
    began = time.perf_counter()
    assert only(read(inbox)).pid == good.pid
    assert time.perf_counter() - began < 0.5
    assert only(read(inbox, at=70.0)).pid == good.pid
    good.end()


def corrupt(file: ProbeFile, how: str) -> None:
    header = os.pread(file.fd, layout.HEADER_SIZE, 0)
    numbers = list(layout.HEADER.unpack_from(header))
    body = b"{}"
    if how == "version":
        numbers[1] = 2
    elif how == "slots":
        numbers[3] = 2**31
    elif how == "length":
        numbers[5] = 2**63
    elif how == "nested":
        body = b"[" * 4000
    elif how == "deep":
        body = b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}"
    elif how == "garbage":
        body = b"\xff\xfe{"
    elif how == "types":
        body = b'{"pid": "1", "rank": [1]}'
    elif how == "huge":
        body = b'{"pid": 1e999}'
    elif how == "pickle":
        body = b"cos\nsystem\n(S'touch /tmp/owned'\ntR."
    raw = bytearray(layout.encode_header(body))
    if how in {"version", "slots", "length"}:
        layout.HEADER.pack_into(raw, 0, *numbers)
        struct.pack_into("<I", raw, 4092, zlib.crc32(raw[:4092]))
    os.pwrite(file.fd, raw, 0)
    if how == "short":
        os.truncate(file.path, 5000)
    elif how == "long":
        os.truncate(file.path, layout.FILE_SIZE + 1)
    elif how == "open":
        file.path.chmod(0o666)
    elif how == "others":
        os.chown(file.path, 12345, 12345)


@pytest.mark.parametrize(
    "how", "version slots length nested deep garbage types huge pickle short long open others".split()
)
def test_what_is_not_a_probes_file_is_refused(directory: Path, inbox: Inbox, sleeper: Sleeper, how: str) -> None:
    if how == "others" and os.geteuid() != 0:
        pytest.skip("needs root")
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    corrupt(file, how)
    assert read(inbox) == ()


def test_whatever_is_written_is_finite_or_not_taken(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Random numbers of every size in every field, with a checksum that is right: no error, and nothing endless."""
    random = Random(5)
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    read(inbox)
    sizes = dict(zip("QqIHB", (64, 63, 32, 16, 8), strict=True))
    letters = [
        letter for count, letter in re.findall(r"(\d*)([A-Za-z])", layout.SLOT.format) for _ in range(int(count or 1))
    ]
    letters += ["Q"] * (layout.LATER.size // 8)
    taken = 0
    for number in range(3000):
        slot = file.write([(0.01, 0.0)])
        values = slot._asdict()
        for name, letter in zip(layout.Slot._fields[1:], letters[1:], strict=True):
            if random.random() < 0.1:
                if letter == "d":
                    values[name] = random.choice((0.0, -1.0, 1e300, float("inf"), float("nan"), 5e-324))
                else:
                    values[name] = random.getrandbits(random.randint(1, sizes[letter]))
        raw = bytearray(layout.encode_slot(layout.Slot(**values)._replace(pairs=0), []))
        struct.pack_into("<I", raw, 76, values["pairs"])
        layout.TAIL.pack_into(raw, layout.TAIL_AT, zlib.crc32(raw[: layout.TAIL_AT]), slot.seq)
        file.put(slot.seq, bytes(raw))
        if number % 2:
            rank = only(read(inbox))
            msgspec.json.encode(rank)
            numbers = [value for value in msgspec.structs.astuple(rank) if isinstance(value, float)]
            assert all(math.isfinite(value) for value in numbers)
            assert len(rank.step_samples_s) <= 90
            taken += rank.step_s is not None
    assert taken > 50


def test_a_file_that_is_cut_while_it_is_read(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """No signal and no error: nothing new comes, and then it is let go."""
    file = ProbeFile(directory, sleeper.pid)
    file.write([(0.1, 0.0)])
    assert only(read(inbox)).step == 1
    os.truncate(file.path, 4096)
    assert only(read(inbox)).step == 1
    assert read(inbox, at=2.0) == ()


def test_a_directory_that_others_may_use_is_not_read(directory: Path, tmp_path: Path, sleeper: Sleeper) -> None:
    """Nor one of somebody else, nor a link to one."""
    ProbeFile(directory, sleeper.pid).write([(0.1, 0.0)])
    directory.chmod(0o755)
    inbox = box_at(directory)
    assert read(inbox) == ()
    directory.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(directory)
    assert read(box_at(link)) == ()
    assert len(read(box_at(directory))) == 1
    if os.geteuid() == 0:
        os.chown(directory, 12345, 12345)
        assert read(box_at(directory)) == ()


def test_ten_thousand_files(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """A flooded directory costs a moment once; whoever lives is found in it."""
    for number in range(10_000):
        (directory / f"{4_000_000 + number}.{10**15 + number}").touch(mode=0o600)
    ProbeFile(directory, sleeper.pid).write([(0.1, 0.0)])
    began = time.thread_time()
    assert only(read(inbox)).pid == sleeper.pid
    assert time.thread_time() - began < 1.0
    began = time.thread_time()
    for number in range(10):
        assert only(read(inbox, at=0.1 * number)).pid == sleeper.pid
    assert time.thread_time() - began < 0.1


def test_a_living_process_cannot_crowd_out_others(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Names of one process by a thousand wrong starts: no more files than there is room for are looked at."""
    for number in range(2 * MOST_FILES):
        (directory / f"{sleeper.pid}.{number}").touch(mode=0o600)
    ProbeFile(directory, sleeper.pid).write([(0.1, 0.0)])
    assert only(read(inbox)).pid == sleeper.pid


def test_nothing_is_there(tmp_path: Path) -> None:
    """No directory, no work: microseconds a call, and no descriptor; it is found when it comes."""
    place = tmp_path / "later"
    inbox = box_at(place)
    before = descriptors()
    began = time.thread_time()
    for _ in range(100):
        assert read(inbox) == ()
    assert (time.thread_time() - began) / 100 < 0.001
    assert descriptors() == before
    place.mkdir(mode=0o700)
    sleeper = Sleeper()
    ProbeFile(place, sleeper.pid).write([(0.1, 0.0)])
    assert len(read(inbox)) == 1
    inbox.close()
    assert descriptors() == before + 1  # the writer's
    sleeper.end()


# --- which GPU -----------------------------------------------------------------------------------


def use(*uuids: str) -> GpuUse:
    return GpuUse(dict.fromkeys(uuids, 1 << 30), None)


@pytest.mark.parametrize(
    ("body", "device", "held", "expected"),
    [
        ({"devices": ["cccccccc"]}, 0, (), "GPU-cccccccc"),
        ({"devices": ["GPU-cccccccc"]}, 0, ("GPU-aaaaaaaa",), "GPU-cccccccc"),
        ({"devices": ["somewhere"]}, 0, ("GPU-dddddddd",), "GPU-dddddddd"),
        ({}, 0, ("GPU-dddddddd",), "GPU-dddddddd"),
        ({}, -1, ("GPU-dddddddd",), "GPU-dddddddd"),
        ({}, 1, ("GPU-aaaaaaaa", "GPU-bbbbbbbb"), "GPU-bbbbbbbb"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "3,2"}}, 1, (), "GPU-cccccccc"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "GPU-b"}}, 0, (), "GPU-bbbbbbbb"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "GPU-"}}, 0, (), None),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "3,2"}}, 1, ("GPU-aaaaaaaa", "GPU-bbbbbbbb"), None),
        ({"devices": [None] * 9}, 70, (), None),
        ({}, -1, (), None),
    ],
)
def test_gpu_of_a_rank(
    directory: Path,
    inbox: Inbox,
    sleeper: Sleeper,
    body: dict[str, Any],
    device: int,
    held: tuple[str, ...],
    expected: str | None,
) -> None:
    """By its own word where that is one of our GPUs, by the driver's list, by what CUDA lets it see."""
    ProbeFile(directory, sleeper.pid, **body).write([(0.1, 0.0)], **MEMORY | {"device": device})
    assert only(read(inbox, holders={sleeper.pid: use(*held)} if held else {})).gpu_uuid == expected


# --- many, and elsewhere -------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "at_once"), [(16, 16), (24, 12), (52, 13)])
def test_ranks_come_in_order_and_many_of_them_in_turn(directory: Path, inbox: Inbox, count: int, at_once: int) -> None:
    """More than sixteen are read every other second, half at a time, more than 48 every fourth.

    In between the others stand as they were, without their single steps.
    """
    sleepers = [Sleeper() for _ in range(count)]
    files = [ProbeFile(directory, one.pid, rank=count - 1 - number) for number, one in enumerate(sleepers)]
    for file in files:
        file.write([(0.1, 0.0)])
    assert [rank.rank for rank in read(inbox)] == list(range(count))
    fresh, steps = [], 0
    for second in range(1, 9):
        for file in files:
            file.write([(0.1, 0.0)])
        ranks = read(inbox, at=float(second))
        assert len(ranks) == count
        assert all(rank.step_s == pytest.approx(0.1) for rank in ranks)
        fresh.append(sum(bool(rank.step_samples_s) for rank in ranks))
        steps += sum(len(rank.step_samples_s) for rank in ranks)
    assert fresh == [at_once] * 8
    assert steps > 6 * count - count
    for one in sleepers:
        one.end()
    time.sleep(0.7)
    assert read(inbox, at=20.0) == ()


@pytest.mark.parametrize(
    ("driver", "ranks", "expected"),
    [
        ({9_000_001: ("GPU-a",), 9_000_002: ("GPU-b",)}, {71: "GPU-b", 70: "GPU-a"}, {70: ("GPU-a",), 71: ("GPU-b",)}),
        ({9_000_001: ("GPU-a", "GPU-b")}, {70: "GPU-a"}, {70: ("GPU-a", "GPU-b")}),
        ({9_000_001: ("GPU-a",), 9_000_002: ("GPU-a",)}, {70: "GPU-a"}, None),
        ({9_000_001: ("GPU-a",)}, {70: "GPU-a", 71: "GPU-a"}, None),
        ({9_000_001: ("GPU-a",)}, {70: None}, None),
        ({9_000_001: ("GPU-a",), 70: ("GPU-a",)}, {70: "GPU-a"}, None),
    ],
)
def test_the_drivers_pids_inside_a_container(
    tmp_path: Path,
    driver: dict[int, tuple[str, ...]],
    ranks: dict[int, str | None],
    expected: dict[int, tuple[str, ...]] | None,
) -> None:
    """The host's number of a process is replaced by the one here where a rank's GPU leaves no doubt."""
    for pid in ranks:
        (tmp_path / str(pid)).mkdir()
    names = Names(str(tmp_path))
    told = tuple(Rank(pid=pid, gpu_uuid=on) for pid, on in ranks.items())
    uses = {pid: use(*on) for pid, on in driver.items()}
    assert names.of_here(uses, told) is uses  # the first namespace counts as the driver does
    names._is_namespaced = True
    found = names.of_here(uses, told)
    assert found == ({pid: use(*on) for pid, on in expected.items()} if expected is not None else uses)
    assert names.of_here(uses, told) is found


IN_A_CONTAINER = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from probefile import ProbeFile
place = Path(sys.argv[3])
place.mkdir(mode=0o700, exist_ok=True)
ProbeFile(place, os.getpid(), rank=7).write([(0.25, 0.1)])
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def container(place: str, setup: str) -> Iterator[int]:
    """A process with pids and mounts of its own whose probe writes to ``place``; gives its pid here."""
    root = Path(__file__).parents[2]
    code = f"{setup} && exec {sys.executable} -c '{IN_A_CONTAINER}' {root} {root / 'tests'} {place}"
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    with subprocess.Popen(
        ["unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("namespaces are not allowed here")
        yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        process.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_container_without_a_shared_directory(tmp_path: Path) -> None:
    """Its own /tmp and its own pids: found through the root directory of a process on a GPU, under its pid here."""
    inbox = box_at(tmp_path / "none")
    with container("/tmp/gpumon-0", "mount -t tmpfs none /tmp") as child:
        assert read(inbox) == ()
        rank = only(read(inbox, at=10.0, holders={child: use("GPU-aaaaaaaa")}))
        assert (rank.pid, rank.rank, rank.step_s, rank.gpu_uuid) == (child, 7, pytest.approx(0.25), "GPU-aaaaaaaa")
    time.sleep(0.7)
    assert read(inbox, at=20.0) == ()
    inbox.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_container_with_the_directory_mounted(directory: Path, inbox: Inbox) -> None:
    """It writes under the pid that it has inside; the driver's list says which process that is here."""
    with container(str(directory), "true") as child:
        assert [path.name.split(".")[0] for path in directory.iterdir()] == ["1"]
        assert read(inbox) == ()
        rank = only(read(inbox, at=10.0, holders={child: use("GPU-aaaaaaaa")}))
        assert (rank.pid, rank.rank) == (child, 7)
        assert inbox.pids == {child}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_links_in_a_container_lead_nowhere(tmp_path: Path, sleeper: Sleeper) -> None:
    """A link there would be followed with our root: it is not."""
    real = tmp_path / "gpumon"
    real.mkdir(mode=0o700)
    ProbeFile(real, sleeper.pid).write([(0.1, 0.0)])
    inbox = box_at(tmp_path / "none")
    with container("/tmp/elsewhere", f"mount -t tmpfs none /tmp && ln -s {real} /tmp/gpumon-0") as child:
        assert read(inbox, at=10.0, holders={child: use("GPU-aaaaaaaa"), sleeper.pid: use("GPU-aaaaaaaa")}) == ()
    inbox.close()


def test_who_samples_stacks_is_believed_as_such(directory: Path, inbox: Inbox, sleeper: Sleeper) -> None:
    """Two counts and the rank's name; nothing of a step, of memory or of a phase; silent for long, nobody samples."""
    file = ProbeFile(directory, sleeper.pid, sampled=True, environment={"RANK": "1", "WORLD_SIZE": "2"})
    file.write(step=40, samples=13.0)
    told = read(inbox)
    assert told == (Rank(pid=sleeper.pid, rank=1, world_size=2, sampled_stacks=40, sampled_waits=13),)
    assert told[0].is_sampled
    file.write(step=41, samples=99.0)
    assert read(inbox)[0].sampled_waits == 41, "no more waits than looks"
    file.write(step=42, samples=float("nan"))
    assert read(inbox)[0].sampled_waits == 0
    file.write(step=43, samples=5.0, ago_s=16.0)
    assert read(inbox) == ()
    file.write(step=44, samples=6.0)
    assert read(inbox)[0].sampled_stacks == 44
    file.close()
