"""What can be selected in each part of a frame, in the order of the screen, and where a key moves to."""

from __future__ import annotations

from typing import Any

from gpumon.model import Process, Subject
from gpumon.monitor import Frame
from gpumon.ui.view import PARTS, Part, ViewState, alert_key, process_key


def gpus(frame: Frame) -> list[str]:
    """UUIDs as sampled: GPUs in index order, MIG instances under their parent."""
    return [gpu.uuid for gpu in frame.window.last.gpus]


def processes(frame: Frame) -> list[str]:
    """Keys of the processes that hold GPU memory, job by job."""
    known = {process.pid: process for process in frame.window.last.processes}
    pids = [pid for job in frame.window.jobs for pid in job.trainers if pid in known]
    return [process_key(known[pid]) for pid in pids]


def alerts(frame: Frame) -> list[str]:
    """Keys of the alerts, firing ones first."""
    return [alert_key(alert) for alert in frame.alerts]


def keys(frame: Frame, part: Part) -> list[str]:
    """Everything that can be selected in a part."""
    return {"gpus": gpus, "jobs": processes, "alerts": alerts}[part](frame)


FIELD: dict[Part, str] = {"gpus": "gpu", "jobs": "process", "alerts": "alert"}


def selected(frame: Frame, view: ViewState, part: Part) -> int | None:
    """Index of the selected one; the first where none was chosen; None in an empty part."""
    known = keys(frame, part)
    key = {"gpus": view.gpu, "jobs": view.process, "alerts": view.alert}[part]
    if key in known:
        return known.index(key)
    return 0 if known else None


def move(frame: Frame, view: ViewState, part: Part, by: int) -> dict[str, Any]:
    """The change of view that selects the row ``by`` rows further, stopping at both ends."""
    at = selected(frame, view, part)
    if at is None:
        return {}
    known = keys(frame, part)
    return {FIELD[part]: known[min(len(known) - 1, max(0, at + by))]}


def neighbour(before: Frame, after: Frame, view: ViewState, part: Part) -> dict[str, Any]:
    """Keep the focus when what it was on is gone: the one that took its place gets it."""
    key = {"gpus": view.gpu, "jobs": view.process, "alerts": view.alert}[part]
    if key is None or key in keys(after, part):
        return {}
    old, new = keys(before, part), keys(after, part)
    if not new:
        return {FIELD[part]: None}
    at = old.index(key) if key in old else 0
    return {FIELD[part]: new[min(at, len(new) - 1)]}


def next_part(frame: Frame, view: ViewState, by: int) -> Part:
    """The next part that has anything to select; the same one where no other has."""
    at = PARTS.index(view.part)
    for step in range(1, len(PARTS)):
        part = PARTS[(at + by * step) % len(PARTS)]
        if keys(frame, part):
            return part
    return view.part


def process(frame: Frame, view: ViewState, part: Part) -> Process | None:
    """The selected process; where GPUs have the focus, the first on the selected GPU."""
    at = selected(frame, view, part)
    if at is None or part == "alerts":
        return None
    if part == "jobs":
        key = processes(frame)[at]
        return next((one for one in frame.window.last.processes if process_key(one) == key), None)
    uuid = gpus(frame)[at]
    return next((one for one in frame.window.last.processes if uuid in one.gpu_memory_bytes), None)


def gpu_behind(frame: Frame, part: Part, at: int) -> str | None:
    """UUID of the GPU that a row is about; None for a row about no GPU."""
    if part == "gpus":
        return gpus(frame)[at]
    if part == "alerts":
        return _gpu_of(frame, frame.alerts[at].finding.subject)
    key = processes(frame)[at]
    for one in frame.window.last.processes:
        if process_key(one) == key:
            return next(iter(one.gpu_memory_bytes), None)
    return None


def _gpu_of(frame: Frame, subject: Subject) -> str | None:
    if subject.uuid is not None:
        return subject.uuid
    for one in frame.window.last.processes:
        if subject.pid == one.pid:
            return next(iter(one.gpu_memory_bytes), None)
    for job in frame.window.jobs:
        if subject.job == job.id:
            return next(iter(job.gpu_uuids), None)
    return None
