"""How batches come to a rank: workers that prepare them in order, the disk they read from, the cores they share."""

from __future__ import annotations

from collections import deque
from random import Random

LATENCY_S = 0.0002


class Disk:
    """A disk or file server behind the page cache: bytes that miss it queue for its bandwidth."""

    def __init__(self, bytes_per_s: float, hit_share: float, latency_s: float = LATENCY_S) -> None:
        """``hit_share`` of what is read is in memory already."""
        self.bytes_per_s = bytes_per_s
        self.hit_share = hit_share
        self.latency_s = latency_s
        """Of one batch's reads, which go one after another."""
        self.queued_bytes = 0.0
        self._cold_bytes = 0.0
        self._served_bytes = self._written_bytes = 0.0
        self._drained_s: float | None = None

    def read_s(self, now_s: float, size: float) -> float:
        """How long a read issued now takes."""
        missed = size * (1.0 - self.hit_share)
        if self._cold_bytes > 0:
            self._cold_bytes -= size
            missed = size
        if missed <= 0:
            return 0.0
        self.drain(now_s)
        self.queued_bytes += missed
        return self.latency_s + self.queued_bytes / self.bytes_per_s

    def drain(self, now_s: float) -> None:
        """Serve the queue up to ``now_s``."""
        if self._drained_s is None:
            self._drained_s = now_s
        elapsed = now_s - self._drained_s
        if elapsed <= 0:
            return
        served = min(self.queued_bytes, elapsed * self.bytes_per_s)
        self.queued_bytes -= served
        self._served_bytes += served
        self._drained_s = now_s

    def write(self, size: float) -> None:
        """Write behind the readers' back, at the disk's own pace."""
        self._written_bytes += size

    def forget(self, dataset_bytes: float) -> None:
        """A new data set: each byte comes from the disk once, then from memory."""
        self._cold_bytes = dataset_bytes

    def missed_share(self) -> float:
        """How much of what is read now comes from the disk."""
        return 1.0 if self._cold_bytes > 0 else 1.0 - self.hit_share

    def take_traffic(self, seconds: float) -> tuple[float, float, float]:
        """Bytes read and written since the last call and the share of time busy.

        Reads are simulated up to a step ahead; what the disk cannot have done yet is left for the next call.
        """
        read = min(self._served_bytes, self.bytes_per_s * seconds)
        written, self._written_bytes = self._written_bytes, 0.0
        self._served_bytes -= read
        return read, written, min(1.0, (read + written) / (self.bytes_per_s * seconds))


class Usage:
    """What one worker did in an interval, in seconds."""

    __slots__ = ("batches", "reading_s", "running_s", "state")

    def __init__(self) -> None:
        """Nothing yet."""
        self.batches = self.reading_s = self.running_s = 0.0
        self.state = "S"


class Loader:
    """A DataLoader: worker ``j % N`` prepares batch ``j``; batches are delivered in order, N·k of them ahead.

    Without workers whoever asks prepares the batch; its work is then that of "worker" 0. Without prefetching all
    workers begin when they are asked and the last one decides, as environments that step together do.
    """

    def __init__(self, *, workers: int, prefetch: int, prep_s: float, batch_bytes: float, disk: Disk) -> None:
        """``prep_s`` is the processor time of one batch."""
        self.workers = workers
        self.prefetch = prefetch
        self.prep_s = prep_s
        self.batch_bytes = batch_bytes
        self.disk = disk
        self.slowdown = 1.0
        """Runnable threads per core, where more than one: how much longer a worker takes."""
        self.spread = 0.08
        self.is_stuck = False
        self._turn = 0
        self._free = [0.0] * max(1, workers)
        self._ready: deque[float] = deque()
        self._work: list[deque[tuple[float, float, float]]] = [deque() for _ in range(max(1, workers))]

    def start(self, now_s: float, rng: Random) -> None:
        """Spawn the workers and give each its first batches."""
        for worker in range(self.workers):
            self._free[worker] = now_s + rng.random() * self.prep_s / self.workers
        for _ in range(self.workers * self.prefetch):
            self._dispatch(now_s, rng)

    def take(self, now_s: float, rng: Random) -> float:
        """Ask for the next batch; returns when it is there."""
        if not self.workers:
            self._free[0] = now_s
            self._dispatch(now_s, rng)
            return self._ready.popleft()
        if not self.prefetch:
            for _ in range(self.workers):
                self._dispatch(now_s, rng)
            got = max(self._ready)
            self._ready.clear()
            return got
        ready = self._ready.popleft()
        got = max(now_s, ready)
        self._dispatch(got, rng)
        return got

    def _dispatch(self, now_s: float, rng: Random) -> None:
        worker = self._turn
        self._turn = (worker + 1) % len(self._free)
        free = self._free[worker]
        begin = max(now_s, free)
        read = begin + self.disk.read_s(now_s, self.batch_bytes)
        # The sum of two uniform numbers is bell-shaped enough and costs a third of gauss().
        wobble = 1.0 + self.spread * 2.45 * (rng.random() + rng.random() - 1.0)
        end = read + self.prep_s * self.slowdown * wobble
        self._free[worker] = end
        self._ready.append(end)
        self._work[worker].append((begin, read, end))

    def busy_workers(self, now_s: float) -> int:
        """How many workers have a batch in hand."""
        return 0 if self.is_stuck or not self.workers else sum(free > now_s for free in self._free)

    def usage(self, worker: int, begin_s: float, end_s: float) -> Usage:
        """What a worker did in [begin, end); each interval is asked for once, in order."""
        use = Usage()
        work = self._work[worker]
        while work:
            begin, read, end = work[0]
            if begin >= end_s:
                break
            low = max(begin_s, begin)
            high = min(end_s, end)
            if high > low:
                middle = min(max(read, low), high)
                use.reading_s += middle - low
                use.running_s += high - middle
                use.batches += (high - low) / (end - begin)
            if end > end_s:
                use.state = "D" if end_s < read else "R"
                break
            work.popleft()
        return use
