"""Knows what else changed when a job became slower: clocks, neighbours, links, storage, the CPU, the loader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.fields import LIMITERS
from gpumon.model import Evidence, Gpu, Job, Process, Rank
from gpumon.signals import THERMAL, label, mean_of, workers_of
from gpumon.window import Known, Window

_AROUND_S = 15.0
_LEVEL_S = 60.0
_MIB_300 = 300 * 1024**2


class Moved(NamedTuple):
    """One thing that changed within 15 s of the moment."""

    cause: str
    text: str
    fix: str
    evidence: tuple[Evidence, ...]


class Moment(NamedTuple):
    """A job, and how long ago it became slower."""

    window: Window
    job: Job
    gpus: Sequence[Gpu]
    ago_s: float

    def levels(self, subject: Known, field: str) -> tuple[float, float] | None:
        """Means of the minute before and of the minute after, 15 s off the moment; None where one is unknown."""
        before = self.window.mean(subject, field, _LEVEL_S, ago_s=self.ago_s + _AROUND_S)
        span_s = min(_LEVEL_S, self.ago_s - _AROUND_S)
        if span_s < _AROUND_S:
            return None
        after = self.window.mean(subject, field, span_s, ago_s=max(0.0, self.ago_s - _AROUND_S - span_s))
        return None if before is None or after is None else (before, after)

    def rise(self, subject: Known, field: str) -> float:
        """How much a level rose; 0 where it is not known."""
        found = self.levels(subject, field)
        return 0.0 if found is None else found[1] - found[0]

    def name(self, gpu: Gpu) -> str:
        """``GPU 3``."""
        return f"GPU {label(gpu, self.window.last.gpus)}"


def moved(moment: Moment, ranks: Sequence[Rank], rise_s: float | None) -> Iterator[Moved]:
    """What changed at that moment, the most telling first; ``rise_s`` is by how much a step became longer."""
    yield from _newcomers(moment)
    yield from _links(moment)
    yield from _clocks(moment)
    yield from _allocator(moment, ranks)
    yield from _processor(moment)
    yield from _storage(moment)
    yield from _loader(moment, ranks, rise_s)


def is_by_heat(moment: Moment) -> bool:
    """Heat or the power brake took the clock: other rules speak of that, or it was only a burst."""
    for gpu in moment.gpus:
        levels = moment.levels(gpu, "sm_clock_mhz")
        has_fallen = levels is not None and levels[1] <= 0.95 * levels[0]
        if has_fallen and any(moment.rise(gpu, f"throttled_pct.{name}") >= 5.0 for name in THERMAL):
            return True
    return False


def _newcomers(moment: Moment) -> Iterator[Moved]:
    """Another process came to one of the job's GPUs."""
    at_s = moment.window.last.time_s - moment.ago_s
    ours = {*moment.job.trainers, *(pid for pids in moment.job.helpers.values() for pid in pids)}
    for process in moment.window.last.processes:
        started = process.started_s
        if process.pid in ours or started is None or not at_s - 45.0 <= started <= at_s + _AROUND_S:
            continue
        for gpu in moment.gpus:
            if (process.gpu_memory_bytes.get(gpu.uuid) or 0) >= _MIB_300:
                who = f"{process.name or 'a process'} (pid {process.pid}, {process.user or 'unknown user'})"
                yield Moved(
                    "new-process",
                    f"{who} came to {moment.name(gpu)}"[:72],
                    f"move pid {process.pid} to another GPU",
                    (Evidence(name="new process", value=who, judged_by="started at that moment"),),
                )


def _links(moment: Moment) -> Iterator[Moved]:
    for gpu in moment.gpus:
        for field, what in (
            ("nvlinks_active", "active NVLinks"),
            ("pcie_width", "PCIe lanes"),
            ("pcie_gen", "PCIe generation"),
        ):
            levels = moment.levels(gpu, field)
            if levels is not None and levels[1] <= levels[0] - 0.9:
                before, after = round(levels[0]), round(levels[1])
                shown = Evidence(name=what, value=float(after), was=float(before), field=field)
                text = f"{what} of {moment.name(gpu)}: {before} → {after}"
                yield Moved("link", text, "look at the link: nvidia-smi -q -d PCIE, nvlink -s", (shown,))


def _clocks(moment: Moment) -> Iterator[Moved]:
    for gpu in moment.gpus:
        levels = moment.levels(gpu, "sm_clock_mhz")
        if levels is None or levels[1] > 0.95 * levels[0]:
            continue
        fallen = 100.0 * (1.0 - levels[1] / levels[0])
        held = max(LIMITERS, key=lambda name: moment.rise(gpu, f"throttled_pct.{name}"))
        by = held.replace("_", " ") if moment.rise(gpu, f"throttled_pct.{held}") >= 5.0 else "no limiter"
        before, after = (float(round(level)) for level in levels)
        shown = Evidence(name="SM clock", value=after, was=before, unit="MHz", judged_by=by, field="sm_clock_mhz")
        text = f"SM clock of {moment.name(gpu)} fell {fallen:.0f}% ({by})"
        yield Moved("clock", text, f"nvidia-smi -q -d CLOCK,PERFORMANCE -i {gpu.index}", (shown,))


def _allocator(moment: Moment, ranks: Sequence[Rank]) -> Iterator[Moved]:
    """A cumulative count that stood still begins to grow: the difference of its level to now says so."""
    for rank in ranks:
        levels = moment.levels(rank, "alloc_retries")
        if levels is not None and rank.alloc_retries is not None and rank.alloc_retries - levels[0] >= 2:
            earlier = moment.window.mean(rank, "alloc_retries", _LEVEL_S, ago_s=moment.ago_s + 2 * _LEVEL_S)
            if earlier is not None and levels[0] - earlier < 1:
                grown = float(round(rank.alloc_retries - levels[0]))
                shown = Evidence(name="allocator retries", value=grown, judged_by="0 before", field="alloc_retries")
                yield Moved(
                    "alloc-retry", f"the allocator flushed its cache {grown:.0f} times", "free memory", (shown,)
                )
                return


def _processor(moment: Moment) -> Iterator[Moved]:
    processes = {process.pid: process for process in moment.window.last.processes}
    trainers = [processes[pid] for pid in moment.job.trainers if pid in processes]
    loaders = [worker for one in trainers for worker in workers_of(moment.job, one.pid, processes)]
    delay = _rise_of(moment, [*trainers, *loaders], "run_delay_pct")
    pressure = moment.rise(moment.window.last.host, "cpu_pressure_pct")
    if delay >= 10.0 or pressure >= 20.0:
        name, value = ("run delay", delay) if delay >= 10.0 else ("CPU pressure", pressure)
        shown = Evidence(name=name, value=float(round(value)), unit="points more")
        text = f"the CPU became scarce: {name} up {value:.0f} points"
        yield Moved("cpu", text, "see who takes the cores: top; nice or move it", (shown,))


def _storage(moment: Moment) -> Iterator[Moved]:
    host = moment.window.last.host
    reads = moment.levels(host, "nfs_read_s")
    if reads is not None and reads[1] >= 2.0 * reads[0] and reads[1] >= 0.005:
        before, after = (round(1000.0 * level, 1) for level in reads)
        shown = Evidence(name="NFS read", value=after, was=before, unit="ms", field="nfs_read_s")
        yield Moved("nfs", f"an NFS read takes {after:g} ms, before {before:g}", "stage data on a local disk", (shown,))
    busy, pressure = moment.rise(host, "disk_busy_pct"), moment.rise(host, "io_pressure_pct")
    if busy >= 30.0 or pressure >= 15.0:
        name, value = ("disk busy", busy) if busy >= 30.0 else ("I/O pressure", pressure)
        shown = Evidence(name=name, value=float(round(value)), unit="points more")
        yield Moved("disk", f"the disk got busy: {name} up {value:.0f} points", "see who uses it: iotop", (shown,))


def _loader(moment: Moment, ranks: Sequence[Rank], rise_s: float | None) -> Iterator[Moved]:
    """The wait for data grew by most of what the steps grew."""
    for rank in ranks:
        levels = moment.levels(rank, "data_wait_s")
        if levels is not None and rise_s is not None and levels[1] - levels[0] >= 0.5 * rise_s > 0:
            before, after = (round(level, 4) for level in levels)
            shown = Evidence(name="wait for data", value=after, was=before, unit="s per step", field="data_wait_s")
            text = f"a step waits {units.step(after)} for data, before {units.step(before)}"
            yield Moved("data-wait", text, "look at the loader: workers, storage, sample sizes", (shown,))
            return
    rises = [moment.rise(gpu, "budget.data_pct") for gpu in moment.gpus]
    if rises and max(rises) >= 10.0:
        shown = Evidence(name="waits for data", value=float(round(max(rises))), unit="points more")
        text = f"GPUs wait for data {max(rises):.0f} points more"
        yield Moved("data-wait", text, "look at the loader: workers, storage, sample sizes", (shown,))


def _rise_of(moment: Moment, processes: Sequence[Process], field: str) -> float:
    rises = [moment.rise(process, field) for process in processes]
    return max(rises[0] if rises else 0.0, mean_of(rises) or 0.0)
