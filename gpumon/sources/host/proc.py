"""One watched process: its counters turned into rates, and its identity read once and once more."""

from __future__ import annotations

import functools
import os
import pwd
from collections import Counter
from typing import NamedTuple

from gpumon import text
from gpumon.model import Role
from gpumon.sources.host import cgroup, identity
from gpumon.sources.host.identity import Rank
from gpumon.sources.host.procfs import (
    TICKS_PER_S,
    Io,
    ProcFile,
    Sched,
    Stat,
    list_numbers,
    number_after,
    parse_io,
    parse_sched,
    parse_stat,
    parse_status,
    rate,
    read,
    read_link,
)

_ARGUMENTS_BYTES = 1 << 14
_ENVIRON_BYTES = 1 << 18
_MAPS_BYTES = 1 << 23
_THREADS_MAX = 512
_IDENTIFY_AGAIN_S = 10.0
_MAP_AGAIN_S = 30.0
_THREADS_AFTER_FORK_S = 5.0
_THREADS_AGAIN_S = 60.0
_TRY_AGAIN_S = 60.0
"""After a file was refused: a process may change its owner or become dumpable, but seldom does."""


class Identity(NamedTuple):
    """What is read of a process once, and once more when it is a little older: young processes rename themselves."""

    is_own: bool = False
    user: str | None = None
    name: str = ""
    argv: tuple[str, ...] = ()
    """The first words only, for telling the role; what is shown is ``command``."""
    argv_hash: int | None = None
    command: str | None = None
    place: cgroup.Place | None = None
    container: str | None = None
    cpus_allowed: int | None = None
    mount_namespace: str | None = None
    environment: dict[str, str] | None = None
    rank: Rank = Rank()


def _is_past(since: float | None, now: float, seconds: float) -> bool:
    return since is None or now - since >= seconds


@functools.lru_cache(maxsize=256)
def user_name(uid: int) -> str:
    """Return the name of a user, or the number where nobody here has it (a container's)."""
    try:
        return text.clean(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)


def read_stat(proc: str, pid: int) -> Stat | None:
    """Read /proc/PID/stat once; None where there is no such process or it is hidden."""
    return parse_stat(read(f"{proc}/{pid}/stat", 1024))


def is_process(proc: str, pid: int) -> bool:
    """Tell whether a number is a process's and not a thread's: /proc answers to both."""
    return number_after(read(f"{proc}/{pid}/status") or b"", b"\nTgid:") == pid


def identify(proc: str, pid: int, comm: bytes, *, is_holder: bool) -> Identity:
    """Read who a process is; of others' processes neither the command line nor the environment is kept."""
    base = f"{proc}/{pid}"
    status = parse_status(read(f"{base}/status"))
    is_own = status is not None and status.uid == os.geteuid()
    raw = (read(f"{base}/cmdline", _ARGUMENTS_BYTES) or b"").rstrip(b"\0")
    # A process that retitles itself leaves one string with blanks instead of the arguments.
    arguments = raw.split(b"\0") if b"\0" in raw else raw.split()
    place = cgroup.parse_place(read(f"{base}/cgroup"))
    environment = None
    if is_holder and is_own:
        environment = identity.parse_environment(read(f"{base}/environ", _ENVIRON_BYTES))
    rank, container = Rank(), None
    if place is not None:
        rank = identity.rank_of(environment or {}, slurm_job=cgroup.slurm_job(place), pod=cgroup.pod_uid(place))
        container = cgroup.container_id(place)
    elif environment:
        rank = identity.rank_of(environment)
    if container is None and environment:
        container = environment.get("APPTAINER_NAME") or environment.get("SINGULARITY_NAME")
    return Identity(
        is_own=is_own,
        user=None if status is None else user_name(status.uid),
        name=text.clean(comm),
        argv=tuple(text.clean(word) for word in arguments[:16]) if raw else (),
        argv_hash=hash(raw) if raw else None,
        command=text.redact_command(arguments) if raw and is_own else None,
        place=place,
        container=container,
        cpus_allowed=None if status is None else status.cpus_allowed,
        mount_namespace=read_link(f"{base}/ns/mnt"),
        environment=environment,
        rank=rank,
    )


def _thread_names(proc: str, pid: int) -> tuple[str, ...] | None:
    task = f"{proc}/{pid}/task"
    names = [read(f"{task}/{tid}/comm", 64) for tid in list_numbers(task)[:_THREADS_MAX]]
    comms = [name.decode("utf-8", "replace").strip() for name in names if name]
    return identity.threads_in(comms) if comms else None


class Watch:
    """A process under watch. Its start time is its identity; a reading of another start ends the watch."""

    def __init__(self, proc: str, pid: int, stat: Stat, now: float, *, is_holder: bool) -> None:
        self._proc = proc
        self.pid = pid
        self.is_holder = is_holder
        self.is_reparented = False
        self.version = 0
        """Counts what changed besides the counters, so that an unchanged process is not built anew."""
        self.stat = stat
        self.seen_at = now
        self.at = now
        self.keeps_stat = True
        self.keeps_counters = True
        self.identity = Identity()
        self.libraries: tuple[str, ...] | None = None
        self.framework: str | None = None
        self.threads: tuple[str, ...] | None = None
        self.role: Role | None = None
        self.data_filesystem: str | None = None
        self.data_looked_at: float | None = None
        self._identified: tuple[bytes, bool] | None = None
        self._identified_at: float | None = None
        self._identified_times = 0
        self._mapped_at: float | None = None
        self._mapped_times = 0
        self._threads_at: float | None = None
        self._threads_due_at: float | None = None

        self.cpu_pct: float | None = None
        self.main_thread_cpu_pct: float | None = None
        self.main_thread_state: str | None = None
        self.disk_wait_pct: float | None = None
        self.run_delay_pct: float | None = None
        self.read_bytes_per_s: float | None = None
        self.write_bytes_per_s: float | None = None
        self.rchar_bytes_per_s: float | None = None
        self.io: Io | None = None
        self.pss_bytes: int | None = None
        self.private_bytes: int | None = None

        base = f"{proc}/{pid}"
        self._stat_file = ProcFile(f"{base}/stat")
        self._sched_file = ProcFile(f"{base}/schedstat")
        self._io_file = ProcFile(f"{base}/io")
        self._main_file = ProcFile(f"{base}/task/{pid}/stat")
        self._sched: Sched | None = None
        self._main_ticks: int | None = None
        self._io_refused_at: float | None = None
        self._counted_at = now
        self._count(now)

    def is_alive(self) -> bool:
        """Tell whether the process still runs, without counting anything."""
        stat = parse_stat(self._stat_file.read(keeps=self.keeps_stat))
        return stat is not None and stat.started_ticks == self.stat.started_ticks

    def is_first_due(self) -> bool:
        """Tell whether it was read only once, so that no rate is known yet."""
        return self.at == self.seen_at

    def sample(self, now: float, letters: str = "", counters_s: float = 0.0) -> bool:
        """Read the process anew; False when it is gone.

        Args:
            now: Monotonic seconds.
            letters: States of the main thread seen since the last reading.
            counters_s: How old the scheduler's and the I/O counters may get.
        """
        stat = parse_stat(self._stat_file.read(keeps=self.keeps_stat))
        if stat is None or stat.started_ticks != self.stat.started_ticks:
            return False
        seconds = now - self.at
        ticks_per_s = rate(stat.cpu_ticks, self.stat.cpu_ticks, seconds)
        self.cpu_pct = None if ticks_per_s is None else 100 * ticks_per_s / TICKS_PER_S
        self.is_reparented = self.is_reparented or stat.ppid != self.stat.ppid
        self.stat = stat
        self.at = now
        letters += stat.state
        self.main_thread_state = stat.state if len(letters) == 1 else Counter(letters).most_common(1)[0][0]
        self.disk_wait_pct = 100 * letters.count("D") / len(letters)
        if now - self._counted_at >= counters_s * 0.9 or self._is_first_count:
            self._count(now)
        return True

    def _count(self, now: float) -> None:
        self._is_first_count = now == self.seen_at
        seconds, self._counted_at = now - self._counted_at, now
        sched, before = parse_sched(self._sched_file.read(keeps=self.keeps_counters)), self._sched
        self._sched = sched
        if sched is None:
            self._count_main_thread(seconds)
        elif before is not None:
            run = rate(sched.run_ns, before.run_ns, seconds)
            delay = rate(sched.delay_ns, before.delay_ns, seconds)
            self.main_thread_cpu_pct = None if run is None else min(100.0, run / 1e7)
            self.run_delay_pct = None if delay is None else min(100.0, delay / 1e7)
        self._count_io(now, seconds)

    def _count_main_thread(self, seconds: float) -> None:
        """Kernels without scheduler statistics: the same in ticks, without the delay."""
        stat = parse_stat(self._main_file.read(keeps=self.keeps_counters))
        ticks, before = None if stat is None else stat.cpu_ticks, self._main_ticks
        self._main_ticks = ticks
        ticks_per_s = rate(ticks, before, seconds)
        self.main_thread_cpu_pct = None if ticks_per_s is None else min(100.0, 100 * ticks_per_s / TICKS_PER_S)
        self.run_delay_pct = None

    def _count_io(self, now: float, seconds: float) -> None:
        if self._io_refused_at is not None and now - self._io_refused_at < _TRY_AGAIN_S:
            return
        io, before = parse_io(self._io_file.read(keeps=self.keeps_counters)), self.io
        self._io_refused_at = now if io is None else None
        self.io = io
        if io is None or before is None:
            self.read_bytes_per_s = self.write_bytes_per_s = self.rchar_bytes_per_s = None
            return
        self.read_bytes_per_s = rate(io.read_bytes, before.read_bytes, seconds)
        self.write_bytes_per_s = rate(io.write_bytes, before.write_bytes, seconds)
        self.rchar_bytes_per_s = rate(io.rchar_bytes, before.rchar_bytes, seconds)

    def identify(self, now: float) -> bool:
        """Read the identity if it is due, and tell if so: at first, once more, after a rename, after taking a GPU."""
        traits = (self.stat.comm, self.is_holder)
        is_due = self._identified_times < 2 and _is_past(self._identified_at, now, _IDENTIFY_AGAIN_S)
        if traits == self._identified and not is_due:
            return False
        self._identified_times = 1 if traits != self._identified else 2
        self._identified, self._identified_at = traits, now
        self.identity = identify(self._proc, self.pid, self.stat.comm, is_holder=self.is_holder)
        self.version += 1
        return True

    def is_map_due(self, now: float) -> bool:
        """Tell whether a holder's maps are worth their milliseconds: at first, and once more when it is set up."""
        return self.is_holder and self._mapped_times < 2 and _is_past(self._mapped_at, now, _MAP_AGAIN_S)

    def look_inside(self, now: float) -> None:
        """Read the libraries that are mapped and the names of the threads."""
        self._mapped_at = now
        self._mapped_times += 1
        self.libraries = identity.libraries_in(read(f"{self._proc}/{self.pid}/maps", _MAPS_BYTES))
        self.framework = identity.framework_of(self.libraries, self.identity.name)
        self._read_threads(now)

    def note_fork(self, now: float) -> None:
        """A loader that starts its workers starts its pin-memory thread too: the threads are read again soon."""
        if _is_past(self._threads_at, now, _THREADS_AGAIN_S):
            self._threads_due_at = now + _THREADS_AFTER_FORK_S

    def look_at_threads(self, now: float) -> bool:
        """Read the threads if a fork made that due; tell if so."""
        if self._threads_due_at is None or now < self._threads_due_at:
            return False
        self._read_threads(now)
        return True

    def _read_threads(self, now: float) -> None:
        self._threads_at, self._threads_due_at = now, None
        self.threads = _thread_names(self._proc, self.pid)
        self.version += 1

    def note_share(self, pss_bytes: int, private_bytes: int) -> None:
        """Keep what was counted of its memory elsewhere."""
        if (pss_bytes, private_bytes) != (self.pss_bytes, self.private_bytes):
            self.pss_bytes, self.private_bytes = pss_bytes, private_bytes
            self.version += 1

    def keep(self, *, stat: bool, counters: bool) -> None:
        """Say which descriptors may stay open between readings."""
        if self.keeps_stat and not stat:
            self._stat_file.close()
        if self.keeps_counters and not counters:
            self._close_counters()
        self.keeps_stat, self.keeps_counters = stat, counters

    def close(self) -> None:
        """Give all descriptors back."""
        self._stat_file.close()
        self._close_counters()

    def _close_counters(self) -> None:
        for file in (self._sched_file, self._io_file, self._main_file):
            file.close()
