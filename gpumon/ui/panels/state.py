"""Which word, mark and colour a GPU's row wears: culprits shout, victims are grey."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpumon.model import Alert, Gpu, Job
from gpumon.monitor import Frame
from gpumon.signals import stale_after_s
from gpumon.ui.glyphs import MARKS
from gpumon.ui.panels.chart import Shares
from gpumon.ui.view import ViewState
from gpumon.window import Window

RECENT_S = 10.0
"""Over which the word is judged while no alert names the GPU."""
TOLD_LOSS_PCT = 15.0
IDLE_PCT = 3.0

WORD_OF_RULE = {
    "data-starved": "waits data",
    "sw-thermal": "throttled",
    "hw-thermal": "throttled",
    "power-brake": "throttled",
    "gpu-lost": "lost",
    "collective-hang": "stalled",
}
"""Rules that are a state of the GPU; others leave the word of what it does."""
STYLE_OF_WORD = {"waits data": "bold data-text", "throttled": "bold harm", "lost": "bold harm", "stalled": "bold harm"}
STYLE_OF_SEVERITY = {"critical": "bold harm", "warning": "bold data-text", "info": "muted"}
WORD_OF_PHASE = {"start": "starting", "pause": "paused", "stall": "stalled", "end": "idle"}
_BUDGET = ("budget.useful_pct", "budget.data_pct", "budget.throttled_pct", "budget.peer_pct")


class GpuState(msgspec.Struct, frozen=True):
    """What stands left of a GPU's charts."""

    word: str
    style: str
    mark: str = " "
    mark_style: str = ""
    is_hot: bool = False
    """A thermal alert names this GPU: its temperature and clock are the wrong numbers."""


def recent(window: Window, gpu: Gpu, seconds: float = RECENT_S) -> Shares | None:
    """The time budget of the last seconds; None where nothing is known."""
    means = [window.mean(gpu, field, min(seconds, max(window.elapsed_s, 1.0))) for field in _BUDGET]
    if means[0] is None:
        return None
    return Shares(*(mean or 0.0 for mean in means))


def alert_of(frame: Frame, gpu: Gpu) -> Alert | None:
    """The first firing alert about this GPU, or about its job where it names no GPU."""
    job = frame.window.job_of(gpu.uuid)
    for alert in frame.alerts:
        if not alert.is_firing() or alert.suppressed_by is not None or alert.muted_until_s is not None:
            continue
        subject = alert.finding.subject
        if subject.uuid == gpu.uuid or (subject.uuid is None and _is_about(subject.pid, subject.job, job)):
            return alert
    return None


def _is_about(pid: int | None, job_id: str | None, job: Job | None) -> bool:
    return job is not None and (job.id == job_id or (pid is not None and pid in job.trainers and job_id is None))


def is_stale(gpu: Gpu, interval_s: float) -> bool:
    """Its values are too old to be called current."""
    return gpu.age_s is not None and gpu.age_s >= stale_after_s(interval_s)


def oldest_age_s(frame: Frame, view: ViewState) -> float:
    """Age of the oldest numbers that are shown as current: each GPU's, the driver's, the whole frame's."""
    last = frame.window.last
    ages_s = [gpu.age_s for gpu in last.gpus if gpu.age_s is not None and not gpu.is_lost]
    return view.age_s + max(last.host.driver_age_s or 0.0, *ages_s, 0.0)


def states(frame: Frame, shares: Mapping[str, Shares | None], *, is_stale_frame: bool) -> dict[str, GpuState]:
    """The state of every GPU of a frame."""
    gpus = frame.window.last.gpus
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    return {gpu.uuid: _state(frame, gpu, shares, by_uuid, is_stale_frame=is_stale_frame) for gpu in gpus}


def _state(
    frame: Frame, gpu: Gpu, shares: Mapping[str, Shares | None], by_uuid: Mapping[str, Gpu], *, is_stale_frame: bool
) -> GpuState:
    alert = alert_of(frame, gpu)
    mark, mark_style = " ", ""
    if alert is not None and alert.finding.severity != "info":
        mark, mark_style = MARKS[alert.finding.severity], STYLE_OF_SEVERITY[alert.finding.severity]
    if gpu.is_lost:
        return GpuState("lost", "bold harm", MARKS["critical"], "bold harm")
    if is_stale_frame or is_stale(gpu, frame.window.interval_s):
        return GpuState("stale", "muted", mark, "muted")
    if alert is not None and alert.finding.rule in WORD_OF_RULE and alert.finding.severity != "info":
        word = WORD_OF_RULE[alert.finding.rule]
        is_sure = alert.finding.confidence != "possible"
        style = STYLE_OF_WORD[word] if is_sure else "muted"
        return GpuState(word, style, mark, mark_style if is_sure else "muted", word == "throttled")
    word, style = _doing(frame, gpu, shares, by_uuid)
    return GpuState(word, style, mark, mark_style)


def _doing(frame: Frame, gpu: Gpu, shares: Mapping[str, Shares | None], by_uuid: Mapping[str, Gpu]) -> tuple[str, str]:
    """What it does while no alert says so."""
    job = frame.window.job_of(gpu.uuid)
    culprit = _culprit_of(frame, job)
    if culprit is not None and culprit != gpu.uuid and culprit in by_uuid:
        return f"waits on {by_uuid[culprit].index}", "muted"
    if job is not None and job.kind == "training" and job.phase in WORD_OF_PHASE:
        return WORD_OF_PHASE[job.phase], "muted"
    part = shares.get(gpu.uuid)
    if part is not None:
        kind, loss = part.worst()
        if loss >= TOLD_LOSS_PCT:
            if kind == "peer":
                return _waits_on(gpu, job, shares, by_uuid), "muted"
            return {"data": "waits data", "throttled": "throttled"}[kind], "muted"
        if part.useful < IDLE_PCT:
            return "idle", "muted"
        return "busy", ""
    if gpu.utilization_pct is None:
        return ("–", "muted") if job is None else ("busy", "")
    return ("idle", "muted") if gpu.utilization_pct < IDLE_PCT else ("busy", "")


def _culprit_of(frame: Frame, job: Job | None) -> str | None:
    """The GPU that keeps its whole job, where an alert about the job names it."""
    for alert in frame.alerts:
        subject = alert.finding.subject
        is_led = alert.is_firing() and alert.suppressed_by is None and subject.uuid is not None
        if is_led and job is not None and subject.kind == "job" and subject.job == job.id:
            return subject.uuid
    return None


def _waits_on(gpu: Gpu, job: Job | None, shares: Mapping[str, Shares | None], by_uuid: Mapping[str, Gpu]) -> str:
    """``waits on 5``: the rank of its job that loses most itself."""
    slowest: tuple[float, Gpu] | None = None
    for uuid in job.gpu_uuids if job is not None else ():
        peer = by_uuid.get(uuid)
        if peer is None or uuid == gpu.uuid:
            continue
        part = shares.get(uuid)
        own = 1000.0 if peer.is_lost else (part.data + part.throttled if part is not None else 0.0)
        if own >= VISIBLE_OWN_PCT and (slowest is None or own > slowest[0]):
            slowest = (own, peer)
    return "waits peer" if slowest is None else f"waits on {slowest[1].index}"


VISIBLE_OWN_PCT = 3.0
"""A peer that loses less itself is not what the others wait for."""
