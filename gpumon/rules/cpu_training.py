"""Knows ``cpu-training``: a training process computes on the CPU while a GPU of this machine is free."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon.model import Confidence, Evidence, Finding, Gpu, Process, Subject
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
_LOOK = 'python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"'
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
        two minutes, and has no memory on any GPU, or only a context on one that is idle. A GPU is free.

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
        return _Sign("cpu-only-wheel", "PyTorch without CUDA is installed", "certain", shown, (_LOOK, fix))
    if process.open_gpus == ():
        shown = (Evidence(name="GPU devices open", value=0.0, judged_by="a CUDA context opens one"),)
        return _Sign("no-context", "it has no GPU device open", "likely", shown, (_LOOK,))
    if process.gpu_memory_bytes:
        return _Sign("model-on-cpu", "its GPU holds a context and no model", "possible", (), (_LOOK,))
    return _Sign(None, "it holds no GPU memory", "possible", (), (_LOOK,))


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
        command=_LOOK,
        onset_s=120.0,
    )
