"""Knows ``nvlink-down``: NVLinks or their fabric that are not there any more, or that make errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Severity, Subject
from gpumon.rules import links_by_log, thermal
from gpumon.rules.limiters import boards
from gpumon.rules.links import Growth, growth
from gpumon.rules.one_reading import AGAIN
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import busy_pct
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When NVLinks count as trouble."""

    crc_per_s: float = 100.0
    """CRC errors per second from which on they matter; NVIDIA's own threshold."""
    crc_window_s: float = 60.0
    """The seconds in which they are counted."""
    errors_window_s: float = 600.0
    """For how long any error is worth a line, and a failed recovery an alert."""


_BASELINE_S = 3600.0
_FIXES = (
    "look for Xid 74 and 144–150 in the kernel log; nvidia-smi nvlink -s and -e show which link",
    "NCCL falls back to PCIe without a word: expect slower steps until it is repaired",
    "pause the job; reset the GPU (nvidia-smi --gpu-reset -i N) once nobody uses it",
    "still down: reseat bridge or baseboard, drain the node, report it",
)


def _at_once(window: Window, limits: Limits) -> Conclusions:
    """The same of one reading, a little less sure: a neighbour's reset takes links down for a moment."""
    for one in _judge(window, limits):
        if isinstance(one, Finding):
            yield msgspec.structs.replace(
                one,
                confidence="likely" if one.confidence == "certain" else "possible",
                fixes=(AGAIN, *one.fixes),
            )


@rule(
    "nvlink-down",
    limits=Limits,
    every_s=5.0,
    hold_s=10.0,
    clear_s=30.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
    at_once=_at_once,
)
def nvlink_down(window: Window, limits: Limits) -> Conclusions:
    """An NVLink that was up is down, its fabric is not ready, or its errors grow.

    What it sees:
        Fewer active NVLinks than earlier in this run, a failed recovery of a link, or an NVSwitch fabric that is not
        ready while no kernel runs are critical. Fewer active links than a GPU of the same model, or 100 CRC errors a
        second, are a warning. Any other growth of the error counts is information. Links that sleep to save power count
        as up. In a kernel's log: errors that NVSwitches report (SXid), fatal ones as critical.

    Why it matters:
        NCCL silently takes PCIe instead, at a tenth of the speed. Without its fabric CUDA does not start at all (error
        802), although nvidia-smi looks fine.

    What to do:
        See which link it is (nvidia-smi nvlink -s, -e), look for Xid 74 or 144 to 150, reset the GPU when nobody uses
        it, reseat the bridge. Fabric: start nvidia-fabricmanager in exactly the driver's version.

    When it is wrong:
        Resetting a neighbour takes its links down for a moment, so it must last for 10 s. Cards without a bridge have
        no active links at any time and are left alone, and so are GPUs in MIG mode, which do not use them. A few
        corrected errors are normal: the link repeats the transfer.
    """
    yield from links_by_log.switch_errors(window)
    yield from _judge(window, limits)


def _judge(window: Window, limits: Limits) -> Conclusions:
    cards = [gpu for gpu in boards(window) if not gpu.mig_enabled]
    waiting = [gpu for gpu in cards if _lacks_fabric(window, gpu)]
    if waiting:
        yield _fabric_finding(waiting, len(cards))
    for gpu in cards:
        if not gpu.nvlinks_total or gpu in waiting:
            continue
        if gpu.nvlinks_active is None:
            because = "the state of the NVLinks is not reported"
            yield Abstention(rule="nvlink-down", because=because, subject=thermal.subject_of(gpu))
            continue
        found = next(_troubles(window, gpu, cards, limits), None)
        if found is not None:
            yield found


def _lacks_fabric(window: Window, gpu: Gpu) -> bool:
    busy = window.mean(gpu, "utilization_pct", 30.0) or busy_pct(gpu)
    # Where kernels run, CUDA has started, and the state means something else (a partition of a virtual machine).
    return gpu.fabric_state in {"not-started", "in-progress"} and not busy


def _troubles(window: Window, gpu: Gpu, cards: Sequence[Gpu], limits: Limits) -> Iterator[Finding]:
    """What is wrong with the links of one GPU, the worst first."""
    index, active, total = gpu.index, int(gpu.nvlinks_active or 0), gpu.nvlinks_total or 0
    best = active
    if active < total:
        seen = [value for value in window.series(gpu, "nvlinks_active", _BASELINE_S) if value is not None]
        best = int(max(seen, default=active))
    shown = Evidence(
        name="active NVLinks",
        value=float(active),
        was=float(best),
        judged_by=f"earlier in this run; of {total}",
        field="nvlinks_active",
    )
    if active < best:
        text, cause = f"{best - active} of {best} NVLinks went down", "link-lost"
        finding = _finding(gpu, ("critical", "certain"), (f"GPU {index} lost {best - active} of {best} NVLinks", text))
        yield _with(finding, cause, shown, began_ago_s(window, gpu, "nvlinks_active", lambda value: value < best))
    failures = _grown(window, gpu, "nvlink_recovery_failures", limits.errors_window_s)
    if failures is not None and failures.grown > 0:
        text = f"{failures.grown:.0f} failed recoveries of a link"
        finding = _finding(gpu, ("critical", "certain"), (f"an NVLink of GPU {index} fails to recover", text))
        yield _with(
            finding, "recovery-failed", _counted("failed recoveries", failures.grown, "nvlink_recovery_failures")
        )
    crc = _grown(window, gpu, "nvlink_crc_errors", limits.crc_window_s)
    if crc is not None and crc.grown >= 0.8 * limits.crc_per_s * limits.crc_window_s:
        per_s = crc.grown / limits.crc_window_s
        text = f"{per_s:.0f} CRC errors per second, {limits.crc_per_s:g} are too many"
        words = (f"an NVLink of GPU {index} makes many errors", text)
        finding = _finding(gpu, ("warning", "certain"), words, per_s / limits.crc_per_s)
        yield _with(finding, "crc-errors", _counted("CRC errors per second", per_s, "nvlink_crc_errors"))
    usual = max((int(other.nvlinks_active or 0) for other in cards if other.name == gpu.name), default=0)
    if 0 < active < usual:
        text = f"{active} active links, GPUs of this model have {usual}"
        finding = _finding(gpu, ("warning", "likely"), (f"GPU {index} has {active} NVLinks, others {usual}", text))
        yield _with(finding, "fewer-than-siblings", shown)
    errors = _grown(window, gpu, "nvlink_errors", limits.errors_window_s)
    if errors is not None and errors.grown > 0:
        text = f"{errors.grown:.0f} errors in {limits.errors_window_s / 60:g} min, repaired by repeating"
        finding = _finding(gpu, ("info", "certain"), (f"NVLinks of GPU {index} made errors and go on", text))
        yield _with(finding, "errors", _counted("NVLink errors", errors.grown, "nvlink_errors"))


def _grown(window: Window, gpu: Gpu, field: str, seconds: float) -> Growth | None:
    """A count that is 0 has not grown."""
    return growth(window, gpu, field, seconds) if getattr(gpu, field) else None


def _counted(name: str, value: float, field: str) -> Evidence:
    return Evidence(name=name, value=float(round(value)), judged_by="0", field=field)


def _finding(gpu: Gpu, words: tuple[Severity, Confidence], texts: tuple[str, str], strength: float = 1.0) -> Finding:
    return Finding(
        rule="nvlink-down",
        severity=words[0],
        confidence=words[1],
        subject=thermal.subject_of(gpu),
        summary=texts[0],
        strength=strength,
        cause_text=texts[1],
        fix_text=f"nvidia-smi nvlink -s -i {gpu.index}; Xid 74? reset, reseat",
        fixes=_FIXES if words[0] != "info" else ("keep an eye on it: nvidia-smi nvlink -e",),
    )


def _with(finding: Finding, cause: str, shown: Evidence, onset_s: float | None = None) -> Finding:
    return msgspec.structs.replace(finding, cause=cause, evidence=(shown,), onset_s=onset_s)


def _fabric_finding(waiting: Sequence[Gpu], cards: int) -> Finding:
    is_stopped = any(gpu.fabric_state == "not-started" for gpu in waiting)
    word = "has not started" if is_stopped else "is still being set up"
    one = len(waiting) == 1
    return Finding(
        rule="nvlink-down",
        severity="critical" if is_stopped else "warning",
        confidence="certain",
        subject=thermal.subject_of(waiting[0]) if one and cards > 1 else Subject(kind="host"),
        summary=f"NVSwitch fabric {word}: no CUDA",
        cause="fabric",
        cause_text=f"fabric state {waiting[0].fabric_state} on {len(waiting)} of {cards} GPUs (CUDA error 802)",
        fix_text="systemctl restart nvidia-fabricmanager",
        evidence=(Evidence(name="fabric state", value=waiting[0].fabric_state, judged_by="completed"),),
        fixes=(
            "systemctl status nvidia-fabricmanager; start it (root)",
            "its version must be exactly the driver's: compare with nvidia-smi",
            "a link or switch fault may keep it from completing: its log, Xid 74 and SXid lines in the kernel log",
        ),
    )
