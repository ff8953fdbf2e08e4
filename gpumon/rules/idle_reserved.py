"""Knows ``idle-reserved``: a process holds a GPU's memory and leaves the GPU idle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from gpumon import units
from gpumon.model import Abstention, Evidence, Finding, Gpu, Job, Process
from gpumon.rules import use_at_once
from gpumon.rules.picture import power_share_of
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import gpus_of, names, subject_of
from gpumon.signals import VIDEO_PCT, busy_pct, works_on_video
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an idle GPU that is held counts as trouble."""

    held_bytes: int = 1_000_000_000
    """A process that holds at least this much keeps others away,"""
    held_pct: float = 5.0
    """or one that holds this share of the memory."""
    info_s: float = 600.0
    """Idle for this long it is information,"""
    warning_s: float = 1800.0
    """for this long a warning,"""
    strong_s: float = 7200.0
    """and for this long it counts four times as much."""
    notebook_factor: float = 4.0
    """Notebooks may rest this many times longer."""
    busy_cpu_pct: float = 50.0
    """A job that computes this much on the CPU has not started yet or prepares something."""


_USED_PCT = 1.0
_LONGEST_MINUTES = 150
_DEBUGGERS = re.compile(r"\b(i?pdb|debugpy|pydevd|cuda-gdb)\b")


@rule(
    "idle-reserved",
    limits=Limits,
    every_s=30.0,
    clear_s=30.0,
    suppressed_by=("gpu-lost", "driver-stuck", "cpu-training", "collective-hang"),
    at_once=use_at_once.idle_reserved,
)
def idle_reserved(window: Window, limits: Limits) -> Conclusions:
    """A process holds GPU memory and does no work there.

    What it sees:
        The same process holds at least 1 GB (or 5 %) and no kernel ran for 10 minutes (information), 30 minutes
        (warning) or longer. Notebooks may rest four times as long. A single reading of held memory without a kernel is
        information.

    Why it matters:
        Nobody else can use that memory, and mostly nobody else is given the GPU. Utilization is what counts: many
        cards stay in P0 and draw 50 to 150 W as long as a context is open, so power is no proof of work.

    What to do:
        End the process, or restart the notebook's kernel: ``torch.cuda.empty_cache()`` gives back the cache but not
        the context. Release the allocation of the scheduler; let notebooks stop by themselves when idle.

    When it is wrong:
        A server waits for requests; that is its job. A GPU whose video encoder or decoder works is in use. A process
        that computes on the CPU has not started yet, one under a debugger is being looked at, and of a job on several
        GPUs some may rest by design: all stay silent.
    """
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        if job.kind == "serving" or job.phase == "end":
            continue
        gpus = gpus_of(window, job)
        uses = [busy_pct(gpu) for gpu in gpus]
        if None not in uses and any((use or 0.0) > _USED_PCT for use in uses):
            continue  # nearly always, and seen at once
        if any(map(works_on_video, gpus)):
            continue
        if _is_excused(window, job, processes, limits):
            continue
        gpus = [gpu for gpu in gpus if _held_bytes(gpu, job, processes) >= _least(gpu, limits)]
        unknown = [gpu for gpu in gpus if busy_pct(gpu) is None]
        yield from _unknown(job, unknown)
        idle = {gpu.uuid: _idle_s(window, gpu, job) for gpu in gpus if gpu not in unknown}
        mine = _for_notebooks(limits) if job.kind == "notebook" else limits
        # Some GPUs of a job may rest by design; it is idle when all of them are.
        if len(idle) == len(job.gpu_uuids) and min(idle.values()) >= 0.8 * mine.info_s:
            yield _finding(window, job, gpus, min(idle.values()), mine)


def _for_notebooks(limits: Limits) -> Limits:
    factor = limits.notebook_factor
    longer = {name: factor * getattr(limits, name) for name in ("info_s", "warning_s", "strong_s")}
    return msgspec.structs.replace(limits, **longer)


def _unknown(job: Job, gpus: list[Gpu]) -> Iterator[Abstention]:
    if gpus:
        because = "utilization is not reported, as on MIG instances without GPM"
        yield Abstention(rule="idle-reserved", because=because, subject=subject_of(job, gpus))


def _least(gpu: Gpu, limits: Limits) -> float:
    share = limits.held_pct / 100.0 * gpu.memory_total_bytes if gpu.memory_total_bytes else limits.held_bytes
    return max(1.0, min(limits.held_bytes, share))


def _held_bytes(gpu: Gpu, job: Job, processes: Mapping[int, Process]) -> float:
    """What the job holds of a GPU; the GPU's whole use where the driver does not say it by process."""
    held = [processes[pid].gpu_memory_bytes.get(gpu.uuid) for pid in job.trainers if pid in processes]
    known = [amount for amount in held if amount is not None]
    return sum(known) if known else float(gpu.memory_used_bytes or 0)


def _is_excused(window: Window, job: Job, processes: Mapping[int, Process], limits: Limits) -> bool:
    """It is debugged, or busy on the CPU."""
    own = [processes[pid] for pid in job.trainers if pid in processes]
    helpers = [processes[pid] for pids in job.helpers.values() for pid in pids if pid in processes]
    if any(one.state in {"T", "t"} or _DEBUGGERS.search((one.command or "").lower()) for one in own):
        return True
    cpu = sum(window.mean(one, "cpu_pct", 60.0) or one.cpu_pct or 0.0 for one in (*own, *helpers))
    return cpu >= limits.busy_cpu_pct


def _idle_s(window: Window, gpu: Gpu, job: Job) -> float:
    """How long no kernel ran, as far as was seen and not longer than the job lives."""
    if (busy_pct(gpu) or 0.0) > _USED_PCT or (power_share_of(window, gpu, 60.0) or 0.0) >= 0.3:
        return 0.0
    now_s = window.last.time_s
    end_s = (now_s // 60 + 1) * 60
    minutes = _most(window, gpu, "utilization_pct", end_s)
    engines = {"encoder_pct": gpu.encoder_pct, "decoder_pct": gpu.decoder_pct}
    codecs = [_most(window, gpu, field, end_s) for field, now in engines.items() if now is not None]
    began_s, missed = now_s, 0
    for number, (most, *video) in enumerate(reversed([*zip(minutes, *codecs, strict=True)])):
        missed = missed + 1 if most is None else 0
        if missed > 1 or (most or 0.0) > _USED_PCT or any((share or 0.0) >= VIDEO_PCT for share in video):
            break
        if most is not None:
            began_s = end_s - (number + 1) * 60
    seen_s = min(now_s - began_s, window.elapsed_s)
    return max(0.0, min(seen_s, now_s - job.started_s if job.started_s is not None else seen_s))


def _most(window: Window, gpu: Gpu, field: str, end_s: float) -> list[float | None]:
    """Of each minute."""
    return window.bins(gpu, field, end_s=end_s, width_s=60.0, count=_LONGEST_MINUTES, how="max")


def _finding(window: Window, job: Job, gpus: list[Gpu], idle_s: float, limits: Limits) -> Finding:
    held = sum(_held_bytes(gpu, job, {one.pid: one for one in window.last.processes}) for gpu in gpus)
    hours = idle_s / 3600.0 * len(gpus)
    lasted = units.duration(idle_s)
    pids = ", ".join(str(pid) for pid in job.trainers[:4])
    is_notebook = job.kind == "notebook"
    strength = idle_s / limits.info_s
    who = names(gpus, window.last.gpus)
    watts = [window.mean(gpu, "power_w", 60.0) or 0.0 for gpu in gpus]
    return Finding(
        rule="idle-reserved",
        severity="warning" if idle_s >= limits.warning_s else "info",
        confidence="certain",
        subject=subject_of(job, gpus),
        summary=f"{who} {'is' if len(gpus) == 1 else 'are'} held but idle",
        strength=4.0 * strength if idle_s >= limits.strong_s else strength,
        cause="held-idle",
        cause_text=f"{units.gib(held):.1f} GiB held by {job.name[:24]}, pid {pids}, no kernel for {lasted}",
        fix_text="restart the notebook's kernel" if is_notebook else f"end it: kill {pids}",
        evidence=(
            Evidence(
                name="no kernel for",
                value=lasted,
                judged_by=f"≥ {units.duration(limits.info_s)}",
                field="utilization_pct",
            ),
            Evidence(name="memory held", value=round(units.gib(held), 1), unit="GiB", field="memory_used_bytes"),
            Evidence(name="idle so far", value=round(hours, 1), unit="GPU-hours"),
            Evidence(name="power", value=float(round(sum(watts))), unit="W", field="power_w"),
        ),
        fixes=(
            "restart the notebook's kernel: empty_cache() does not give back the context"
            if is_notebook
            else f"if nobody needs it: kill {pids}",
            "release the scheduler's allocation (scancel), or set a limit for idle jobs",
            "load the model when it is needed, not when the notebook starts",
        ),
        onset_s=idle_s,
    )
