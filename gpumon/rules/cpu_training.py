"""Knows ``cpu-training``: a training process computes on the CPU while a GPU of this machine is free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.model import Confidence, Event, Evidence, Finding, Gpu, Process, Subject
from gpumon.rules.cuda_versions import Version, build_for, cuda_of_driver, version_of
from gpumon.rules.faults import LOOK, start_fault
from gpumon.rules.reports import is_flagged, number, reports
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import label, leaves
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When computing on the CPU counts as trouble."""

    window_s: float = 120.0
    """The seconds looked at."""
    cpu_pct: float = 300.0
    """The process uses this much (100 = one core),"""
    cores_pct: float = 50.0
    """or this share of the cores it may use, where that is less."""
    context_bytes: int = 700_000_000
    """A process that holds no more than this on a GPU holds a context and no model."""
    idle_below_pct: float = 3.0
    """A GPU that is busy for less than this is not used."""


class _Sign(NamedTuple):
    """What says that the GPU cannot be used, or is not."""

    cause: str | None
    text: str
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    fixes: tuple[str, ...]


_OTHER_WORK = re.compile(
    r"prepar|preproc|tokeni|index|dataset|convert|ingest|pytest|unittest|faiss|chroma|milvus|qdrant|sklearn|xgboost|"
    r"lightgbm|ray::|raylet|dask|spark|serve|--?(device|accelerator)[ =.]?cpu|device=.?cpu"
)
_SHORT: dict[str | None, str] = {"cpu-only-wheel": "a wheel with CUDA", "gpus-hidden": "unset CUDA_VISIBLE_DEVICES"}
_ELSE = (
    "move model and batch: .to('cuda'); Lightning: accelerator='gpu'; JAX: pip install \"jax[cuda12]\"",
    "gpumon doctor checks driver, CUDA and the training interpreter",
)


@rule(
    "cpu-training",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
)
def cpu_training(window: Window, limits: Limits) -> Conclusions:
    """A training process computes on the CPU although a GPU is free.

    What it sees:
        A Python process with PyTorch, JAX or TensorFlow uses at least three cores (or half of those it may use) for
        two minutes, and has no memory on any GPU, or only a context on one that is idle. A GPU is free. In a program's
        output: a framework that has no CUDA, or a banner that names the CPU ("torch 1.7.1 CPU").

    Why it matters:
        A GPU is ten to a hundred times as fast. The usual reasons are silent: a wheel without CUDA, an empty
        CUDA_VISIBLE_DEVICES, a driver that does not load, a model that was never moved.

    What to do:
        Ask the interpreter that trains: ``python -c "import torch; print(torch.version.cuda,
        torch.cuda.is_available())"``. Then install the wheel with CUDA, or move model and batches.

    When it is wrong:
        Preparing data, building an index, tests or a service may use a framework on the CPU on purpose; where the
        command tells, it stays silent, as for ``--device cpu``. Workers of a job that holds a GPU are never meant.
    """
    yield from _told(window)
    if not window.last.gpus or window.elapsed_s < limits.window_s - 1.5 * window.interval_s:
        return
    processes = {process.pid: process for process in window.last.processes}
    free = _free(window, limits)
    for process in window.last.processes:
        if not _may_train(process, processes, window.last.time_s, limits):
            continue
        if process.gpu_memory_bytes and not _only_context(window, process, limits):
            continue
        cores = _need_pct(process, window, limits)
        share = window.share(process, "cpu_pct", limits.window_s, at_least=0.8 * cores)
        used = window.mean(process, "cpu_pct", limits.window_s)
        unused = [gpu for gpu in free if gpu.uuid not in process.gpu_memory_bytes]
        if share is None or share < 80.0 or used is None or used < 0.8 * cores:
            continue
        if unused or process.gpu_memory_bytes:
            yield _finding(window, process, used, cores, unused)


def _told(window: Window) -> Conclusions:
    """What a framework says of itself: a build without CUDA, or one that does not find or use the GPU."""
    events = reports(window, "no-cuda")
    if not events:
        return
    sign = _told_sign(window, events)
    yield Finding(
        rule="cpu-training",
        severity="warning",
        confidence=sign.confidence,
        subject=Subject(kind="host"),
        summary="the program computes on the CPU",
        cause=sign.cause,
        cause_text=sign.text[:73],
        fix_text=_SHORT.get(sign.cause, sign.fixes[0].partition("   #")[0][:70]),
        evidence=tuple(Evidence(name="reported", value=one.text[:160]) for _, one in events[:3] if one.text),
        fixes=sign.fixes,
        command=LOOK,
        onset_s=max(age_s for age_s, _ in events),
        has_happened=True,
    )


def _told_sign(window: Window, events: Sequence[tuple[float, Event]]) -> _Sign:
    host = window.last.host
    fault = next((found for _, one in reports(window, "cuda-error") if (found := start_fault(one, host))), None)
    if is_flagged(events, "is_cpu_build"):
        build = build_for(_cuda_known(window))
        wheel = build.with_driver() if build is not None else "update the driver first: current builds need a newer one"
        return _Sign("cpu-only-wheel", "its build has no CUDA: it cannot use the GPU", "certain", (), (wheel, LOOK))
    if is_flagged(events, "is_gpu_unused"):
        fixes = ("Lightning: Trainer(accelerator='gpu', devices=1)", *_ELSE)
        return _Sign("gpu-not-used", "it sees a GPU and does not use it", "certain", (), fixes)
    if fault is not None:
        return _Sign(fault.cause, f"it falls back: {fault.summary}", "certain", (), (*fault.fixes, LOOK))
    look = "nvidia-smi; echo $CUDA_VISIBLE_DEVICES   # does the driver answer, is a GPU visible?"
    return _Sign("no-cuda", "it finds no GPU: driver, container or visibility", "likely", (), (look, LOOK, *_ELSE))


def _cuda_known(window: Window) -> Version | None:
    """The newest CUDA that the driver runs, as far as anything tells."""
    host = window.last.host
    for _, event in reports(window, "cuda-error"):
        found = number(event, "driver_cuda_version")
        if found is not None:
            return version_of(f"{found:.1f}")
    return version_of(host.cuda_version) or cuda_of_driver(host.driver_version)


def _may_train(process: Process, processes: Mapping[int, Process], now_s: float, limits: Limits) -> bool:
    if process.role not in {"trainer", "notebook"} or process.framework is None:
        return False
    if process.started_s is not None and now_s - process.started_s < limits.window_s:
        return False
    above = processes.get(process.ppid) if process.ppid is not None else None
    if above is not None and (above.gpu_memory_bytes or above.role in {"trainer", "notebook"}):
        return False
    return _OTHER_WORK.search(f"{process.name or ''} {process.command or ''}".lower()) is None


def _need_pct(process: Process, window: Window, limits: Limits) -> float:
    cores: float = process.cpus_allowed or window.last.host.cpu_count or 1
    if process.cpu_quota_cores is not None:
        cores = min(cores, process.cpu_quota_cores)
    return min(limits.cpu_pct, limits.cores_pct * cores)


def _free(window: Window, limits: Limits) -> list[Gpu]:
    """GPUs that nobody works on."""
    found = []
    for gpu in leaves(window.last.gpus):
        use = window.mean(gpu, "utilization_pct", limits.window_s)
        job = window.job_of(gpu.uuid)
        if not gpu.is_lost and job is None and use is not None and use < limits.idle_below_pct:
            found.append(gpu)
    return found


def _only_context(window: Window, process: Process, limits: Limits) -> bool:
    """What it holds is too little for a model, and its GPUs do nothing."""
    uses = (window.mean(uuid, "utilization_pct", limits.window_s) for uuid in process.gpu_memory_bytes)
    held = process.gpu_memory_bytes.values()
    is_little = all(amount is not None and amount <= limits.context_bytes for amount in held)
    return is_little and all(use is not None and use < limits.idle_below_pct for use in uses)


def _sign(process: Process) -> _Sign:
    hidden = (process.environment or {}).get("CUDA_VISIBLE_DEVICES")
    libraries = process.libraries or ()
    if hidden is not None and hidden.strip() in {"", "-1"}:
        shown = (Evidence(name="CUDA_VISIBLE_DEVICES", value=f'"{hidden}"', judged_by="hides every GPU"),)
        fix = "unset CUDA_VISIBLE_DEVICES before it starts"
        return _Sign("gpus-hidden", f'CUDA_VISIBLE_DEVICES="{hidden}" hides every GPU', "certain", shown, (fix,))
    if "libtorch_cpu" in libraries and "libtorch_cuda" not in libraries:
        shown = (Evidence(name="libtorch_cuda", value="not loaded", judged_by="libtorch_cpu is"),)
        fix = "install the wheel with CUDA: pip install torch --index-url https://download.pytorch.org/whl/cu128"
        return _Sign("cpu-only-wheel", "PyTorch without CUDA is installed", "certain", shown, (LOOK, fix))
    if process.open_gpus == ():
        shown = (Evidence(name="GPU devices open", value=0.0, judged_by="a CUDA context opens one"),)
        return _Sign("no-context", "it has no GPU device open", "likely", shown, (LOOK,))
    if process.gpu_memory_bytes:
        return _Sign("model-on-cpu", "its GPU holds a context and no model", "possible", (), (LOOK,))
    return _Sign(None, "it holds no GPU memory", "possible", (), (LOOK,))


def _finding(window: Window, process: Process, used: float, need: float, free: Sequence[Gpu]) -> Finding:
    sign = _sign(process)
    gpus = ", ".join(label(gpu, window.last.gpus) for gpu in free[:4])
    shown = f"GPU {gpus}" if len(free) == 1 else f"GPUs {gpus}"
    return Finding(
        rule="cpu-training",
        severity="warning",
        confidence=sign.confidence,
        subject=Subject(kind="process", pid=process.pid),
        summary=f"pid {process.pid} trains on the CPU" + (f"; {shown} free" if free else ""),
        strength=used / need,
        cause=sign.cause,
        cause_text=sign.text,
        fix_text="a wheel with CUDA"
        if sign.cause == "cpu-only-wheel"
        else sign.fixes[0]
        if sign.cause == "gpus-hidden"
        else "move model and batches to the GPU",
        evidence=(
            Evidence(name="CPU", value=float(round(used)), unit="%", judged_by=f"≥ {need:.0f}%", field="cpu_pct"),
            *sign.evidence,
            Evidence(name="framework", value=process.framework),
        ),
        fixes=(*sign.fixes, *_ELSE),
        command=LOOK,
        onset_s=120.0,
    )
