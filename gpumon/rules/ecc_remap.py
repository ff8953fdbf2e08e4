"""Knows ``ecc-remap``: the GPU's memory makes errors, or the driver wants the GPU reset."""

from __future__ import annotations

from itertools import pairwise

from gpumon.model import Evidence, Finding, Gpu, Severity, Subject
from gpumon.rules.limiters import boards
from gpumon.rules.one_reading import seen
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.xids import RECOVERY, reset_command
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many errors count."""

    window_s: float = 600.0
    """How long a new uncorrectable error stays an alert where the driver asks for nothing."""
    corrected_per_min: float = 10.0
    """Corrected errors a minute worth a line of information."""
    uncorrected_rows: int = 512
    """Remapped rows from which on the card is to be returned."""
    sram_errors: int = 4
    """More lifetime errors than this in the caches hint at a card to be returned."""


def _at_once(window: Window, _limits: Limits) -> Conclusions:
    """Errors since the driver was loaded; when they were and whether they grow is not known."""
    for gpu in boards(window):
        errors = gpu.ecc_uncorrected
        if not errors or gpu.recovery_action or gpu.remap_failed or gpu.remap_pending:
            continue
        many = "an uncorrectable error" if errors == 1 else f"{errors} uncorrectable errors"
        yield seen(
            window,
            "ecc-remap",
            gpu,
            f"GPU {gpu.index}: {many} on record",
            ("info", "certain"),
            cause="uncorrected",
            cause_text="of its memory, since the driver was loaded; when is not known",
            evidence=(Evidence(name="uncorrected errors", value=float(errors)),),
            fixes=("dmesg | grep -i xid: when it was and whom it hit", f"they grow: {reset_command(gpu.index)}"),
        )


@rule(
    "ecc-remap",
    limits=Limits,
    every_s=5.0,
    clear_s=10.0,
    suppressed_by=("gpu-lost",),
    at_once=_at_once,
)
def ecc_remap(window: Window, limits: Limits) -> Conclusions:
    """The GPU's memory made errors that could not be corrected, or the driver asks for a reset.

    What it sees:
        The driver's own words and counters: a recovery action other than none, a failed row remap, uncorrectable
        errors that came while gpumon watched, too many remapped rows. A remap that waits for the next reset, and
        corrected errors above 10 a minute, are information.

    Why it matters:
        An uncorrectable error ends the program that met it. A failed remap means that the spare rows are used up: the
        card will fail again.

    What to do:
        Stop the jobs of this GPU and reset it, then look whether the counters grow again. Return the card when a remap
        failed or errors come back.

    When it is wrong:
        A pending remap does not hurt running work: it only wants a reset before the next job. What the counters held
        before gpumon came is history, not an alert; in a single reading it is information. Cards without ECC count
        nothing.
    """
    for gpu in window.last.gpus:
        if gpu.is_lost or gpu.mig_parent_uuid is not None:
            continue
        found = _worst(window, gpu, limits)
        if found is not None:
            yield found


def _worst(window: Window, gpu: Gpu, limits: Limits) -> Finding | None:
    who, reset = f"GPU {gpu.index}", reset_command(gpu.index)
    stop = f"stop the jobs on {who}, then {reset}"
    give_back = "return the card: nvidia-bug-report.sh for the vendor"
    fixes: tuple[str, ...]
    if gpu.recovery_action:
        wish = RECOVERY.get(gpu.recovery_action, f"recovery action {gpu.recovery_action}")
        is_reset = gpu.recovery_action in (1, 4)
        first = stop if is_reset else f"the driver asks for {wish}: save, stop the jobs of this node, then do so"
        fixes = (first, "dmesg | grep -i nvrm", "if it asks again: report the node")
        command = reset if is_reset else "dmesg | grep -i nvrm"
        return _finding(
            gpu, "critical", f"{who}: driver asks for {wish}", cause="recovery-action", fixes=fixes, command=command
        )
    if gpu.remap_failed:
        fixes = (f"stop using {who}", give_back)
        return _finding(
            gpu,
            "critical",
            f"{who}: a memory row could not be remapped",
            cause="remap-failed",
            fixes=fixes,
            command=None,
        )
    errors, ago_s = _grown(window, gpu, "ecc_uncorrected", limits.window_s)
    if errors:
        fixes = (stop, "if errors come back after the reset: return the card")
        many = "an uncorrectable memory error" if errors == 1 else f"{errors:.0f} uncorrectable memory errors"
        return _finding(gpu, "critical", f"{who}: {many}", cause="uncorrected", fixes=fixes, command=reset, ago_s=ago_s)
    if (gpu.remapped_rows_uncorrected or 0) >= limits.uncorrected_rows:
        fixes = (f"stop using {who}", give_back)
        many = f"{gpu.remapped_rows_uncorrected} memory rows remapped"
        return _finding(gpu, "critical", f"{who}: {many}", cause="remapped-rows", fixes=fixes, command=None)
    if gpu.remap_pending:
        fixes = (f"when its job is done: {reset}",)
        return _finding(
            gpu,
            "info",
            f"{who} wants a reset to replace a memory row",
            cause="remap-pending",
            fixes=fixes,
            command=reset,
        )
    if (gpu.ecc_sram_uncorrected or 0) > limits.sram_errors:
        fixes = (f"watch {who}; errors that grow: {give_back}",)
        return _finding(
            gpu,
            "info",
            f"{who}: {gpu.ecc_sram_uncorrected} cache errors in its life",
            cause="sram",
            fixes=fixes,
            command=None,
        )
    corrected, ago_s = _grown(window, gpu, "ecc_corrected", 60.0)
    if corrected >= limits.corrected_per_min:
        fixes = ("nothing now: they were corrected; watch whether it goes on",)
        many = f"{corrected:.0f} corrected memory errors in a minute"
        return _finding(gpu, "info", f"{who}: {many}", cause="corrected", fixes=fixes, command=None, ago_s=ago_s)
    return None


def _grown(window: Window, gpu: Gpu, field: str, seconds: float) -> tuple[float, float | None]:
    """By how much a counter grew, and how long ago it began to; a smaller value is a restart."""
    if not getattr(gpu, field):
        return 0.0, None
    known = [
        (age, value)
        for age, value in zip(window.ages(seconds), window.series(gpu, field, seconds), strict=True)
        if value is not None
    ]
    steps = [(age, new - old) for (_, old), (age, new) in pairwise(known) if new > old]
    return sum(step for _, step in steps), steps[0][0] if steps else None


def _finding(
    gpu: Gpu,
    severity: Severity,
    summary: str,
    *,
    cause: str,
    fixes: tuple[str, ...],
    command: str | None,
    ago_s: float | None = None,
) -> Finding:
    counts = {
        "uncorrected errors": gpu.ecc_uncorrected,
        "corrected errors": gpu.ecc_corrected,
        "rows remapped after uncorrectable errors": gpu.remapped_rows_uncorrected,
        "recovery action": RECOVERY.get(gpu.recovery_action or 0),
        "remap": "failed" if gpu.remap_failed else "pending" if gpu.remap_pending else None,
    }
    return Finding(
        rule="ecc-remap",
        severity=severity,
        confidence="certain",
        subject=Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid),
        summary=summary,
        cause=cause,
        cause_text="counted by the driver",
        fix_text=fixes[0] if len(fixes[0]) <= 60 else fixes[0].partition(", then ")[0] + ", reset it",
        evidence=tuple(Evidence(name=name, value=value) for name, value in counts.items() if value),
        fixes=fixes,
        command=command,
        onset_s=ago_s,
    )
