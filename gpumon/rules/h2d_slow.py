"""Knows ``h2d-slow``: copies from the host to the GPU take a good part of each step."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Confidence, Cost, Evidence, Finding, Gpu, Job, Process, Severity
from gpumon.rules.intake import is_pinned
from gpumon.rules.measured import Steps, steps_of
from gpumon.rules.pageable_copies import ARRIVES_BYTES_PER_S, FIXES
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.scope import gpus_of, groups_of, names, subject_of, trained_for
from gpumon.signals import trainer_of, workers_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When copies to the GPU count as trouble."""

    window_s: float = 60.0
    """The seconds looked at; with slow steps as many as twenty of them take."""
    copy_pct: float = 10.0
    """Share of the steps' time spent copying, as the probe timed it on the GPU."""
    critical_copy_pct: float = 20.0
    """From this share on it is critical."""
    arrives_bytes_per_s: float = ARRIVES_BYTES_PER_S
    """Without the probe: traffic to the GPU of a loader that does not pin its memory."""
    active_below_pct: float = 70.0
    """Without the probe: the multiprocessors are active for less than this share."""
    busy_below_pct: float = 80.0
    """Without GPM: the GPU is busy for less than this share; while it is, some multiprocessors still idle."""


class _Active(NamedTuple):
    """What share of the time the GPU was active, and below which it waits."""

    pct: float
    below_pct: float


class _Copies(NamedTuple):
    """What one GPU's copies look like."""

    gpu: Gpu
    steps: Steps | None
    """What the probe timed; None where it shows from outside only."""
    arrives_bytes_per_s: float | None
    active: _Active | None
    pinned: bool | None
    strength: float


_OFFLOADS = re.compile(r"off.?load|zero.?infinity")


@rule(
    "h2d-slow",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "data-starved", "pcie-degraded"),
)
def h2d_slow(window: Window, limits: Limits) -> Conclusions:
    """Copying batches to the GPU takes a good part of every step.

    What it sees:
        With the probe, copies that it timed on the GPU take at least 10 % of the steps' time over 20 steps or more
        (20 % is critical). From outside: workers but no pin-memory thread, at least 1 GB/s to the GPU for a minute,
        and multiprocessors active less than 70 % of it (without GPM: the GPU busy less than 80 %).

    Why it matters:
        From ordinary (pageable) memory the driver copies twice, and the main thread waits meanwhile. From pinned
        memory the same copy is about twice as fast and can run while the GPU computes.

    What to do:
        ``DataLoader(pin_memory=True)`` and ``.to(device, non_blocking=True)``; send uint8 and convert on the GPU.

    When it is wrong:
        Parameters or optimizer states that are offloaded to the host's memory make such traffic by design: where the
        command says so it stays silent. A link slower than it should be has a rule of its own. Where the GPU shares
        the host's memory there is nothing to copy.
    """
    processes = {process.pid: process for process in window.last.processes}
    for job in trained_for(window, limits.window_s, kinds=("training", "notebook", "unknown")):
        gpus = gpus_of(window, job)
        slow = {gpu.uuid: one for gpu in gpus if (one := _look(window, job, gpu, processes, limits)) is not None}
        for group in groups_of([one.gpu for one in slow.values()], gpus):
            yield _finding(window, job, [slow[gpu.uuid] for gpu in group], limits)


def _look(window: Window, job: Job, gpu: Gpu, processes: Mapping[int, Process], limits: Limits) -> _Copies | None:
    trainer = trainer_of(job, gpu.uuid, processes)
    if trainer is None or gpu.memory_is_shared or _OFFLOADS.search((trainer.command or "").lower()):
        return None
    arrives = window.mean(gpu, "pcie_rx_bytes_per_s", limits.window_s)
    rank = window.rank_of(trainer.pid)
    steps = steps_of(window, rank, limits.window_s) if rank is not None else None
    pinned = is_pinned((trainer,))
    if steps is not None and steps.copy_pct is not None:
        strength = steps.copy_pct / limits.copy_pct
        return _Copies(gpu, steps, arrives, None, pinned, strength) if strength >= 0.8 else None
    if arrives is None or pinned is not False or not workers_of(job, trainer.pid, processes):
        return None
    active, below_pct = window.mean(gpu, "sm_active_pct", limits.window_s), limits.active_below_pct
    if active is None:
        active, below_pct = window.mean(gpu, "utilization_pct", limits.window_s), limits.busy_below_pct
    if active is None or active < 5.0:
        return None
    strength = min(arrives / limits.arrives_bytes_per_s, below_pct / active)
    return _Copies(gpu, None, arrives, _Active(active, below_pct), pinned, strength) if strength >= 0.8 else None


def _finding(window: Window, job: Job, group: Sequence[_Copies], limits: Limits) -> Finding:
    gpus = [one.gpu for one in group]
    first = group[0]
    timed = [one.steps.copy_pct for one in group if one.steps is not None and one.steps.copy_pct is not None]
    share = sum(timed) / len(timed) if timed else None
    severity: Severity = "critical" if share is not None and share >= limits.critical_copy_pct else "warning"
    confidence: Confidence = "possible" if share is None else "likely"
    arrives = None if first.arrives_bytes_per_s is None else units.rate(first.arrives_bytes_per_s).strip()
    is_unpinned = first.pinned is False
    how = "no pin-memory thread" if is_unpinned else "pinned already: large batches" if first.pinned else "copies"
    who = names(gpus, window.last.gpus)
    says = f"wait{'s' * (len(gpus) == 1)} for copies from the host"
    if share is not None:
        says = f"wait{'s' * (len(gpus) == 1)} for copies {share:.0f}% of the time"
    return Finding(
        rule="h2d-slow",
        severity=severity,
        confidence=confidence,
        subject=subject_of(job, gpus),
        summary=f"{who} {says}",
        strength=min(one.strength for one in group),
        cause="pageable-copies" if is_unpinned else None,
        cause_text=how + ("" if arrives is None else f", {arrives} to the GPU"),
        fix_text=("send uint8, convert on the GPU" if first.pinned else "pin_memory=True, non_blocking=True"),
        evidence=_evidence(first, share, arrives, limits),
        cost=None if share is None else Cost(lost_pct=float(round(share)), speedup_max=round(100 / (100 - share), 1)),
        fixes=(*FIXES[1:], FIXES[0]) if first.pinned else FIXES,
        onset_s=limits.window_s,
    )


def _evidence(first: _Copies, share: float | None, arrives: str | None, limits: Limits) -> tuple[Evidence, ...]:
    found: list[Evidence] = []
    if share is not None and first.steps is not None:
        judged_by = f"≥ {limits.copy_pct:g}% of {first.steps.steps} steps"
        found.append(Evidence(name="copies", value=float(round(share)), unit="% of step time", judged_by=judged_by))
    if first.pinned is not None:
        running = "running" if first.pinned else "none"
        found.append(Evidence(name="pin-memory thread", value=running, judged_by="pt_data_pin"))
    if arrives is not None:
        least = f"≥ {units.rate(limits.arrives_bytes_per_s).strip()}" if share is None else None
        found.append(Evidence(name="to the GPU", value=arrives, judged_by=least, field="pcie_rx_bytes_per_s"))
    if first.active is not None:
        pct, below_pct = first.active
        found.append(Evidence(name="active", value=float(round(pct)), unit="%", judged_by=f"< {below_pct:g}%"))
    return tuple(found)
