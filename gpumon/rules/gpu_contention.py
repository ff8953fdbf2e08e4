"""Knows ``gpu-contention``: two jobs that have nothing to do with each other share one GPU."""

from __future__ import annotations

from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Cost, Evidence, Finding, Gpu, Job, Process, Severity, Subject
from gpumon.rules import memory, ooms
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import label, leaves
from gpumon.window import Window

GIB = 1024.0**3
_NEARLY = 0.8
_FULL_PCT = 92.0
_DISPLAY = ("xorg", "xwayland", "gnome-shell", "kwin", "plasmashell", "nvidia-cuda-mps")


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a second job on a GPU counts."""

    window_s: float = 60.0
    """The seconds looked at."""
    memory_mib: float = 300.0
    """What each of the two holds at least; monitors and idle contexts hold less."""
    share_pct: float = 10.0
    """Share of the time in which kernels of the other one run."""
    squats_pct: float = 10.0
    """Memory that an idle neighbour blocks, in percent of the GPU's, while it is nearly full."""


class _Pair(NamedTuple):
    """Whose GPU it is, and who else is there."""

    first: Process
    other: Process
    share: float
    """Of the time in which kernels of the other one run; 0 where it only holds memory."""


@rule("gpu-contention", limits=Limits, every_s=5.0, clear_s=60.0, suppressed_by=("gpu-lost", "driver-stuck", "xid"))
def gpu_contention(window: Window, limits: Limits) -> Conclusions:
    """Somebody else computes on this GPU too: both are slowed, and both share its memory.

    What it sees:
        Two processes of different jobs, each with more than 300 MiB on the GPU, and kernels of the second one in at
        least 10 % of a minute by the driver's own account. Another user's, container's or session's process is a
        warning, a second run of the same session information. A neighbour that only holds 10 % of the memory while
        the GPU is nearly full is information as well. A message that memory ran out, in a log, is critical if other
        processes held what was missing.

    Why it matters:
        Two programs on a GPU take turns: each gets a part of it, and the memory of both must fit.

    What to do:
        Talk to the other one, or move: ``CUDA_VISIBLE_DEVICES``. Exclusive-process mode prevents it; MIG or MPS divide
        a GPU on purpose.

    When it is wrong:
        Several runs may share a GPU on purpose, as in a sweep of small models: mute it there. Ranks of one launcher,
        servers side by side, displays and MPS are never reported.
    """
    yield from ooms.told_of(window, "gpu-contention")
    of_gpu = _tenants(window, limits)
    for gpu in leaves(window.last.gpus):
        tenants = of_gpu.get(gpu.uuid, [])
        if gpu.is_lost or len({job.id for job, _ in tenants}) < 2 or all(job.kind == "serving" for job, _ in tenants):
            continue
        yield from _judge(window, gpu, tenants, limits)


def _tenants(window: Window, limits: Limits) -> dict[str, list[tuple[Job, Process]]]:
    """Who holds a part of each GPU that counts, screens aside."""
    processes = {process.pid: process for process in window.last.processes}
    found: dict[str, list[tuple[Job, Process]]] = {}
    for job in window.jobs:
        for pid in job.trainers:
            process = processes.get(pid)
            if process is None or (process.name or "").lower().startswith(_DISPLAY):
                continue
            for uuid, size in process.gpu_memory_bytes.items():
                if size is not None and size >= limits.memory_mib * memory.MIB:
                    found.setdefault(uuid, []).append((job, process))
    return found


def _judge(window: Window, gpu: Gpu, tenants: list[tuple[Job, Process]], limits: Limits) -> Conclusions:
    shares = {one.pid: window.mean(one, "gpu_sm_pct", limits.window_s) for _, one in tenants}
    if all(share is None for share in shares.values()):
        # Not reported, or not yet for half of the window.
        if all(one.gpu_sm_pct is None for _, one in tenants):
            subject = Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid)
            because = "the driver does not tell how much each process computes"
            yield Abstention(rule="gpu-contention", because=because, subject=subject)
        return
    # Whose GPU it is: who trains, then who was there first. The other one is who came later.
    ranked = sorted(tenants, key=lambda pair: (pair[0].kind != "training", pair[1].started_s or 0.0))
    mine, first = ranked[0]
    others = [(job, one) for job, one in ranked[1:] if job.id != mine.id]
    job, other = max(others, key=lambda pair: shares[pair[1].pid] or 0.0)
    share = shares[other.pid] or 0.0
    own = shares[first.pid] or 0.0
    if min(share, own) >= _NEARLY * limits.share_pct:
        yield _finding(window, gpu, _Pair(first, other, share), share / limits.share_pct)
        return
    size = other.gpu_memory_bytes.get(gpu.uuid) or 0
    squats = 100.0 * size / (gpu.memory_total_bytes or size or 1)
    if squats >= limits.squats_pct and (memory.used_pct(gpu) or 0.0) >= _FULL_PCT and job.kind != "serving":
        yield _finding(window, gpu, _Pair(first, other, 0.0), squats / limits.squats_pct)


def _finding(window: Window, gpu: Gpu, pair: _Pair, strength: float) -> Finding:
    first, other, share = pair
    size = (other.gpu_memory_bytes.get(gpu.uuid) or 0) / GIB
    is_strange, word = _are_strangers(first, other)
    severity: Severity = "warning" if share and is_strange else "info"
    name = label(gpu, window.last.gpus)
    whose = f"pid {other.pid} ({other.user})" if other.user else f"pid {other.pid}"
    since = "" if other.started_s is None else f", for {units.duration(window.last.time_s - other.started_s)}"
    told = f"{whose} computes {share:.0f}% of the time" if share else f"{whose} blocks {size:.0f} GiB"
    slower = _slower_pct(window, first, other)
    return Finding(
        rule="gpu-contention",
        severity=severity,
        confidence="likely" if slower is not None and slower >= 10.0 and share else word,
        subject=Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid),
        summary=f"GPU {name} is shared by two jobs" if share else f"GPU {name}: an idle job blocks memory",
        strength=strength,
        cause_text=told,
        fix_text=f"move one: CUDA_VISIBLE_DEVICES; ask {other.user}"
        if is_strange and other.user
        else "move one of them",
        evidence=(
            Evidence(
                name=f"pid {other.pid}",
                value=f"{other.name or 'unknown'}{since}",
            ),
            Evidence(
                name="its kernels run", value=round(share, 1), unit="% of the time", judged_by="this GPU's minute"
            ),
            Evidence(name="its memory", value=round(size, 1), unit="GiB"),
            *(
                (Evidence(name="step time since it is there", value=round(slower, 1), unit="% longer"),)
                if slower is not None
                else ()
            ),
        ),
        cost=None if slower is None or slower <= 0 else Cost(lost_pct=round(100.0 * slower / (100.0 + slower), 1)),
        fixes=(
            f"ask {other.user} about {other.command or other.name or other.pid}"
            if other.user
            else f"ps -fp {other.pid}",
            "run one of them on another GPU: CUDA_VISIBLE_DEVICES=…",
            f"sudo nvidia-smi -i {gpu.index} -c EXCLUSIVE_PROCESS   # one process per GPU from now on",
            "to share on purpose: MIG, or MPS",
        ),
    )


def _are_strangers(first: Process, other: Process) -> tuple[bool, Confidence]:
    """Whether they belong to different people, containers or sessions, and how sure that is."""
    for mine, its in ((first.user, other.user), (first.container, other.container)):
        if mine is not None and its is not None and mine != its:
            return True, "likely"
    if first.session_id is not None and other.session_id is not None:
        return first.session_id != other.session_id, "likely"
    return False, "possible"


def _slower_pct(window: Window, first: Process, other: Process) -> float | None:
    """How much longer the first one's steps take since the other one came, where its probe tells."""
    if other.started_s is None or window.rank_of(first.pid) is None:
        return None
    ago_s = window.last.time_s - other.started_s
    key = f"rank:{first.pid}"
    before = window.mean(key, "step_s", 60.0, ago_s=ago_s) if 0.0 < ago_s < window.elapsed_s - 60.0 else None
    now = window.mean(key, "step_s", 30.0)
    return 100.0 * (now / before - 1.0) if before and now else None
