"""Knows ``gpu-misconfigured``: settings of a GPU or a job that cost something, mostly left over, and dead sensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.model import Event, Evidence, Finding, Gpu, Job, Process, Severity, Subject
from gpumon.rules.reports import number, reports
from gpumon.rules.rule import Conclusions, Limits, rule
from gpumon.window import Window

_OF_LATE_S = 300.0
_FEW_S = 20.0
_SETTING = "a setting, perhaps left over"
_ASK_AGAIN = "read it again; if it stays: dmesg | grep -i nvrm, then reset the GPU once nobody uses it"
_OFF = frozenset({"", "0", "false", "no", "off"})


class _Setting(NamedTuple):
    """One thing that is set oddly."""

    name: str
    value: str
    text: str
    fix: str
    command: str | None = None
    severity: Severity = "info"


@rule("gpu-misconfigured", limits=Limits, every_s=10.0, clear_s=10.0, suppressed_by=("gpu-lost", "driver-stuck"))
def gpu_misconfigured(window: Window, _limits: Limits) -> Conclusions:
    """A setting that slows work down or will surprise somebody is on, often left over from an experiment.

    What it sees:
        Persistence mode off on a server, an ECC change that waits for the next reset, a compute mode that keeps others
        out, a job on a GPU that is split by MIG, and debugging switches in a training job's environment:
        CUDA_LAUNCH_BLOCKING, NCCL_P2P_DISABLE, NCCL_IB_DISABLE; in a program's output more loader workers than the
        machine has cores. A sensor that nvidia-smi shows as ERR! while others answer is a warning.

    Why it matters:
        None of it is a fault, so nothing else tells. CUDA_LAUNCH_BLOCKING makes every kernel wait for the one before;
        without peer-to-peer, ranks exchange gradients through the host's memory. Of a fan or a thermometer that cannot
        be read nobody knows whether it works.

    What to do:
        Unset what was only meant for a test. Persistence mode is a matter of nvidia-persistenced, once per boot.

    When it is wrong:
        All of it may be meant: exclusive mode for a scheduler, disabled peer-to-peer around a broken board. So it is
        information only; mute it where it is known. A sensor may fail once, while the driver is busy.
    """
    failed = _failed(window)
    for gpu in window.last.gpus:
        if not gpu.is_lost and gpu.mig_parent_uuid is None:
            found = (*_sensors(window, failed.get(gpu.uuid, ())), *_of_gpu(window, gpu))
            if found:
                yield _finding(Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid), f"GPU {gpu.index}", found)
    processes = {process.pid: process for process in window.last.processes}
    for job in window.jobs:
        owners = [processes[pid] for pid in job.trainers if pid in processes]
        found = tuple(_of_job(job, owners))
        if found:
            yield _finding(Subject(kind="job", job=job.id), job.name[:24], found)
    told = tuple(_of_output(window))
    if told:
        yield _finding(Subject(kind="host"), "the program", told)


def _of_output(window: Window) -> Iterator[_Setting]:
    """More workers than PyTorch itself advises, which is the number of cores that it may use."""
    for _, event in reports(window, "many-workers")[-1:]:
        workers, suggested = number(event, "workers"), number(event, "suggested_workers")
        if workers and suggested and workers > suggested:
            text = f"{workers:.0f} loader workers, {suggested:.0f} cores"
            yield _Setting(
                "loader workers", f"{workers:.0f}", text, f"num_workers={suggested:.0f}, or ask for more cores"
            )


def _failed(window: Window) -> dict[str | None, list[Event]]:
    """What was said of late about sensors that could not be read, by GPU."""
    found: dict[str | None, list[Event]] = {}
    for one in window.events(_OF_LATE_S):
        if one.kind == "sensor-error":
            found.setdefault(one.gpu_uuid, []).append(one)
    return found


def _sensors(window: Window, told: Sequence[Event]) -> Iterator[_Setting]:
    """Sensors that could not be read: twice, unless there are no more than a few readings at all."""
    counts = Counter((one.text or "a sensor").partition(":")[0][:30] for one in told)
    for name, times in counts.items():
        if times > 1 or window.elapsed_s < _FEW_S:
            fix = "see whether the fan turns and its plug is in; watch the temperature" if name == "fan" else _ASK_AGAIN
            yield _Setting(f"{name} sensor", "ERR!", f"its {name} cannot be read (ERR!)", fix, severity="warning")


def _of_gpu(window: Window, gpu: Gpu) -> Iterator[_Setting]:
    if gpu.persistence is False and window.last.host.chassis == "server":
        command = f"sudo nvidia-smi -i {gpu.index} -pm 1"
        yield _Setting("persistence mode", "off", "persistence mode is off", command, command)
    if None not in (gpu.ecc_enabled, gpu.ecc_enabled_pending) and gpu.ecc_enabled != gpu.ecc_enabled_pending:
        state = "on" if gpu.ecc_enabled_pending else "off"
        text = f"ECC goes {state} at the next reset"
        yield _Setting("ECC after the next reset", state, text, "reset it or set it back")
    if gpu.compute_mode in ("prohibited", "exclusive-thread", "exclusive-process"):
        command = f"sudo nvidia-smi -i {gpu.index} -c DEFAULT"
        yield _Setting("compute mode", gpu.compute_mode, f"compute mode is {gpu.compute_mode}", command, command)
    # A list of another tool may name the GPU where the instance is meant.
    if gpu.mig_enabled and window.last.host.sees_host_pids is not None:
        # Where the memory is not told, a list may name the whole GPU for its instances, as pmon does.
        held = (one for one in window.last.processes if one.gpu_memory_bytes.get(gpu.uuid) is not None)
        beside = next(held, None)
        if beside is not None:
            text = f"pid {beside.pid} uses it beside its MIG"
            yield _Setting("MIG", "on", text, "give the job an instance: CUDA_VISIBLE_DEVICES=MIG-…")


def _of_job(job: Job, owners: list[Process]) -> Iterator[_Setting]:
    environment = next((one.environment for one in owners if one.environment is not None), {})
    if _is_on(environment, "CUDA_LAUNCH_BLOCKING"):
        fix = "unset CUDA_LAUNCH_BLOCKING before the next start"
        yield _Setting("CUDA_LAUNCH_BLOCKING", "1", "CUDA_LAUNCH_BLOCKING slows it", fix, "unset CUDA_LAUNCH_BLOCKING")
    for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
        is_needed = len(job.gpu_uuids) > 1 if name == "NCCL_P2P_DISABLE" else _is_spread(job, owners)
        if _is_on(environment, name) and is_needed:
            yield _Setting(name, "1", f"{name} is set", f"unset {name} before the next start", f"unset {name}")


def _is_on(environment: dict[str, str], name: str) -> bool:
    return environment.get(name, "").strip().lower() not in _OFF


def _is_spread(job: Job, owners: list[Process]) -> bool:
    """Over several machines: it has more ranks than trainers here."""
    return any((one.world_size or 1) > len(job.trainers) for one in owners)


def _finding(subject: Subject, who: str, found: tuple[_Setting, ...]) -> Finding:
    first, more = found[0], len(found) - 1
    return Finding(
        rule="gpu-misconfigured",
        severity=first.severity,
        confidence="certain",
        subject=subject,
        summary=f"{who}: {first.text}" + (f", +{more}" if more else ""),
        cause="-".join(first.name.lower().replace("_", "-").split()),
        cause_text=_SETTING if first.severity == "info" else "the sensor or the driver's access to it fails",
        fix_text=first.fix,
        evidence=tuple(Evidence(name=one.name, value=one.value) for one in found),
        fixes=tuple(one.fix for one in found),
        command=next((one.command for one in found if one.command), None),
    )
