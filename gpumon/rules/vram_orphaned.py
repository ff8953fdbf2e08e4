"""Knows ``vram-orphaned``: GPU memory that belongs to nobody who could be found."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Evidence, Finding, Gpu, Host, Process, Subject
from gpumon.rules import ooms, orphans_at_once
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import busy_pct, label, leaves
from gpumon.window import Window

GIB = 1024.0**3
_IDLE_PCT = 5.0
_MPS = "nvidia-cuda-mps"


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When memory without an owner counts."""

    unowned_gib: float = 1.0
    """Least memory that no process accounts for."""
    unowned_pct: float = 3.0
    """The same in percent of the GPU's memory; the larger of the two counts."""


@rule(
    "vram-orphaned",
    limits=Limits,
    every_s=5.0,
    hold_s=60.0,
    clear_s=20.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
    at_once=orphans_at_once.orphans,
)
def vram_orphaned(window: Window, limits: Limits) -> Conclusions:
    """GPU memory is held by no process that is alive: it is missing until its holder is found and ended.

    What it sees:
        For a minute the GPU has at least 1 GiB (and 3 %) more in use than all processes on it hold together, or the
        driver lists a process that no longer exists while the GPU is idle. Processes that still hold the GPU's device
        open are named. It is judged only where every process can be seen and tells its memory. A message that memory
        ran out, in a log, counts where more was in use than all processes that it names hold; so does one list of
        processes in which nvidia-smi cannot name the one that holds memory.

    Why it matters:
        The next run does not fit, and nothing in the list of processes says why.

    What to do:
        Mostly loader workers of a killed trainer live on and keep the device open: end them. End trainers with SIGTERM
        or Ctrl-C, not with ``kill -9``. If nobody has the device open, reset the GPU or reboot.

    When it is wrong:
        In a container, under WSL or behind hidepid processes are there and cannot be seen: it says nothing there. An
        MPS server holds the memory of its clients.
    """
    yield from ooms.told_of(window, "vram-orphaned")
    host = window.last.host
    if host.sees_host_pids is False or host.processes_hidden is not None:
        return
    for gpu in leaves(window.last.gpus):
        if gpu.is_lost or gpu.memory_is_shared or gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
            continue
        if gpu.mig_enabled:  # its instances are not shown, and the processes are theirs
            continue
        holders = [one for one in window.last.processes if gpu.uuid in one.gpu_memory_bytes]
        if any(_MPS in f"{one.name or ''} {one.command or ''}" for one in holders):
            continue
        known = [one.gpu_memory_bytes[gpu.uuid] for one in holders]
        if any(size is None for size in known) or _is_listed_elsewhere(window, gpu):
            continue
        dead = [one for one in holders if _is_gone(one, host)] if (busy_pct(gpu) or 0.0) < _IDLE_PCT else []
        held = float(sum(one.gpu_memory_bytes[gpu.uuid] or 0 for one in dead))
        # Before memory v2 the driver's own reserve is part of what is used; it is no more than half a GiB.
        unowned = gpu.memory_used_bytes - float(sum(size or 0 for size in known)) + held
        least = max(limits.unowned_gib * GIB, limits.unowned_pct / 100.0 * gpu.memory_total_bytes)
        if unowned >= 0.8 * least:
            yield _finding(window, gpu, unowned, dead, unowned / least)


def _is_listed_elsewhere(window: Window, gpu: Gpu) -> bool:
    """A list without memory names the whole GPU for processes in its MIG instances, as pmon does."""
    parent = gpu.mig_parent_uuid
    return parent is not None and any(one.gpu_memory_bytes.get(parent, 0) is None for one in window.last.processes)


def _is_gone(process: Process, host: Host) -> bool:
    """The driver lists it and the machine does not know it, or it is dead and not yet taken away."""
    is_unknown = process.started_s is None and process.name is None
    return process.state in {"Z", "X"} or (is_unknown and host.sees_host_pids is True)


def _finding(window: Window, gpu: Gpu, unowned: float, dead: list[Process], strength: float) -> Finding:
    name = label(gpu, window.last.gpus)
    # The workers of a living trainer have its device open, too.
    helpers = {pid for job in window.jobs for pids in job.helpers.values() for pid in pids}
    left = [
        one
        for one in window.last.processes
        if gpu.uuid in (one.open_gpus or ()) and not one.gpu_memory_bytes and one.pid not in helpers
    ]
    orphans = [one for one in left if one.ppid == 1] or left
    pids = " ".join(str(one.pid) for one in orphans[:8])
    if orphans:
        cause, text = "orphaned-workers", f"{len(orphans)} left over, e.g. {orphans[0].name} (pid {orphans[0].pid})"
    elif dead:
        cause, text = "dead-process", f"pid {dead[0].pid} is gone and still listed"
    else:
        cause, text = None, "no process has it open"
    fixes = [f"kill {pids}"] if pids else []
    fixes += [
        f"sudo fuser -v /dev/nvidia{gpu.index}   # who has the device open, whoever it belongs to",
        f"nobody has: sudo nvidia-smi --gpu-reset -i {gpu.index}, with no job on it; else reboot",
        "from now on end trainers with SIGTERM or Ctrl-C, not with kill -9",
    ]
    return Finding(
        rule="vram-orphaned",
        severity="warning",
        confidence="likely" if cause else "possible",
        subject=Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid),
        summary=f"GPU {name}: nobody owns {unowned / GIB:.1f} GiB in use",
        strength=strength,
        cause=cause,
        cause_text=text,
        fix_text=f"kill {pids}" if pids and len(pids) < 40 else f"sudo fuser -v /dev/nvidia{gpu.index}",
        evidence=(
            Evidence(
                name="in use without an owner",
                value=round(unowned / GIB, 2),
                unit="GiB",
                judged_by="used less what all processes hold",
            ),
            *(
                Evidence(
                    name=f"pid {one.pid} has the device open",
                    value=f"{one.name or 'unknown'}, {one.user or 'unknown user'}{_age(one, window)}",
                )
                for one in orphans[:4]
            ),
        ),
        fixes=tuple(fixes),
    )


def _age(process: Process, window: Window) -> str:
    if process.started_s is None:
        return ""
    return f", {units.duration(window.last.time_s - process.started_s)} old"
