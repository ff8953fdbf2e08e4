"""Knows what one list of processes says of GPU memory whose owner is dead, or is not listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from gpumon.model import Confidence, Evidence, Finding, Gpu, Process, Subject
from gpumon.rules.one_reading import seen, shown
from gpumon.rules.reports import index_of
from gpumon.rules.rule import Conclusions
from gpumon.signals import busy_pct, label, leaves
from gpumon.window import Window

GIB = 1024.0**3
_WORKS_PCT = 5.0
_DEFUNCT = "Z"
_OF_LATE_S = 20.0


class Limits(Protocol):
    """From when on memory without an owner counts."""

    @property
    def unowned_gib(self) -> float:
        """Least memory in GiB."""

    @property
    def unowned_pct(self) -> float:
        """The same in percent of the GPU's memory."""


class _Dead(NamedTuple):
    """Processes of one GPU that the driver lists and the machine cannot name."""

    uuid: str
    gpu: Gpu | None
    processes: tuple[Process, ...]

    def held(self) -> float:
        return float(sum(one.gpu_memory_bytes[self.uuid] or 0 for one in self.processes))


def orphans(window: Window, limits: Limits) -> Conclusions:
    """Memory of the dead, and memory of nobody, in the last reading."""
    found = {dead.uuid: dead for dead in _dead(window)}
    for dead in found.values():
        yield _of_the_dead(window, dead)
    told = {event.gpu_uuid for event in window.events(_OF_LATE_S) if event.kind == "memory-unowned"}
    for gpu in leaves(window.last.gpus):
        if gpu.uuid in told and (gpu.memory_used_bytes or 0) >= limits.unowned_gib * GIB:
            yield _without_owner(window, gpu)
    host = window.last.host
    if host.sees_host_pids is False or host.processes_hidden is not None:
        return
    for gpu in leaves(window.last.gpus):
        unowned = _unowned(window, gpu)
        least = max(limits.unowned_gib * GIB, limits.unowned_pct / 100.0 * (gpu.memory_total_bytes or 0))
        if gpu.uuid not in found and unowned >= least:
            yield _of_nobody(window, gpu, unowned)


def _dead(window: Window) -> Iterator[_Dead]:
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    by_gpu: dict[str, list[Process]] = {}
    for process in window.last.processes:
        for uuid, size in process.gpu_memory_bytes.items():
            # One that merely cannot be found, on a GPU that works, is at work in another container.
            works = (busy_pct(gpus[uuid]) or 0.0) >= _WORKS_PCT if uuid in gpus else False
            if size and (process.state == _DEFUNCT or (process.state == "X" and not works)):
                by_gpu.setdefault(uuid, []).append(process)
    for uuid, processes in by_gpu.items():
        yield _Dead(uuid, gpus.get(uuid), tuple(processes))


def _of_the_dead(window: Window, dead: _Dead) -> Finding:
    pids = " ".join(str(one.pid) for one in dead.processes[:6])
    is_defunct = all(one.state == _DEFUNCT for one in dead.processes)
    confidence: Confidence = "likely" if is_defunct else "possible"
    index = index_of(window, dead.uuid)
    who = "a GPU" if index is None else f"GPU {index}"
    first = pids.partition(" ")[0]
    return Finding(
        rule="vram-orphaned",
        severity="warning",
        confidence=confidence,
        subject=Subject(kind="gpu", gpu=index, uuid=dead.uuid),
        summary=f"{who}: dead processes hold {dead.held() / GIB:.1f} GiB",
        cause="dead-process",
        cause_text=f"pid {pids[:24]}: listed without a name, its parent is defunct"
        if is_defunct
        else f"pid {pids[:24]} is not found: dead, or in another container",
        fix_text=f"ps --ppid {first}: end its living children",
        evidence=tuple(
            Evidence(
                name=f"pid {one.pid} holds",
                value=round((one.gpu_memory_bytes[dead.uuid] or 0) / GIB, 1),
                unit="GiB",
                judged_by="nvidia-smi cannot name it",
            )
            for one in dead.processes[:6]
        ),
        fixes=_fixes(pids, first, "N" if index is None else str(index), is_defunct=is_defunct),
        command=f"ps -o pid,ppid,stat,etime,cmd -p {first} --ppid {first}",
    )


def _without_owner(window: Window, gpu: Gpu) -> Finding:
    """A tool that looks up the owner of each process found none."""
    size = (gpu.memory_used_bytes or 0) / GIB
    which = gpu.index
    return seen(
        window,
        "vram-orphaned",
        gpu,
        f"GPU {label(gpu, window.last.gpus)}: {size:.1f} GiB in use, no owner found",
        ("warning", "possible"),
        cause="no-owner",
        cause_text="its process is gone, stuck in the driver, or in another container",
        fix_text=f"sudo fuser -v /dev/nvidia{which} on the host",
        evidence=(
            Evidence(name="in use without an owner", value=round(size, 1), unit="GiB"),
            shown("utilization", busy_pct(gpu), "%", judged_by="above 0: a kernel never ends" if busy_pct(gpu) else ""),
        ),
        fixes=(
            "look from outside the container first: nvidia-smi and ps on the host know its PID",
            "ps -eLo pid,stat,wchan:32,cmd | grep ' D'   # threads that no signal reaches keep the memory",
            "dmesg | grep -i nvrm",
            f"nobody has it: drain the GPU, sudo nvidia-smi --gpu-reset -i {which}; else reboot. kill -9 does not help",
        ),
    )


def _fixes(pids: str, first: str, which: str, *, is_defunct: bool) -> tuple[str, ...]:
    outside = () if is_defunct else (f"look outside the container first: ps -p {pids.replace(' ', ',')} on the host",)
    return (
        *outside,
        f"ps -o pid,ppid,stat,etime,cmd -p {first} --ppid {first}   # Z: defunct; D: waits for a disk, no kill works",
        "end its living children and threads: they keep the memory (loader workers, mostly)",
        f"sudo fuser -v /dev/nvidia{which}",
        f"nobody left: sudo nvidia-smi --gpu-reset -i {which}, with no job on it; else reboot",
    )


def _unowned(window: Window, gpu: Gpu) -> float:
    """What is in use beyond what all processes hold; 0 where one of them does not say."""
    if gpu.is_lost or gpu.memory_is_shared or gpu.mig_enabled:
        return 0.0
    if gpu.memory_used_bytes is None or gpu.memory_total_bytes is None:
        return 0.0
    held = [one.gpu_memory_bytes[gpu.uuid] for one in window.last.processes if gpu.uuid in one.gpu_memory_bytes]
    return 0.0 if None in held else gpu.memory_used_bytes - float(sum(size or 0 for size in held))


def _of_nobody(window: Window, gpu: Gpu, unowned: float) -> Finding:
    size = unowned / GIB
    return seen(
        window,
        "vram-orphaned",
        gpu,
        f"GPU {label(gpu, window.last.gpus)}: {size:.1f} GiB in use and no process listed",
        ("info", "possible"),
        cause="not-listed",
        cause_text="a container hides processes, one just left, or nobody owns it",
        fix_text=f"sudo fuser -v /dev/nvidia{gpu.index} on the host",
        evidence=(
            Evidence(name="in use without an owner", value=round(size, 1), unit="GiB"),
            shown("utilization", busy_pct(gpu), "%"),
            *_listed(window, gpu),
        ),
        fixes=(
            "look from outside the container: nvidia-smi on the host lists all processes",
            f"sudo fuser -v /dev/nvidia{gpu.index}   # who has the device open",
            f"nobody has: sudo nvidia-smi --gpu-reset -i {gpu.index}, with no job on it; else reboot",
        ),
    )


def _listed(window: Window, gpu: Gpu) -> Sequence[Evidence]:
    count = sum(gpu.uuid in one.gpu_memory_bytes for one in window.last.processes)
    return (Evidence(name="processes listed on it", value=float(count)),)
