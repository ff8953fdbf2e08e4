"""Knows what a kernel's log says of links: PCIe errors, PCIe links narrower than the card, errors of NVSwitches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpumon import units
from gpumon.model import Confidence, Event, Evidence, Finding, Severity, Subject
from gpumon.rules.logged import Telling, logged, name_of, subject_of, times
from gpumon.window import Window

SHOWN_S = 600.0
_FEW, _SOME = 3, 10
"""Corrected errors that are no accident any more; and of kinds that are harmless on many boards."""
_PORT = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d")
_FIXES = (
    "reseat the card and its riser or cable; a worn riser is the usual cause",
    "BIOS: try one PCIe generation less: slower, but without errors",
    "errors that grow end in a lost GPU (Xid 79): plan a check of slot and power",
)


def pcie_errors(window: Window) -> Iterator[Finding]:
    """What the kernel's AER reported lately, one per GPU or port."""
    by_place: dict[tuple[str | None, str], list[Telling]] = {}
    for one in logged(window, ("pcie-error",), SHOWN_S):
        port = _PORT.search(one.event.text or "")
        key = (one.event.gpu_uuid, "" if one.event.gpu_uuid or port is None else port[0])
        by_place.setdefault(key, []).append(one)
    found = [_errors(window, uuid, port, told) for (uuid, port), told in by_place.items()]
    # Of ports that nobody can name the worst stands for all: they share the machine as their subject.
    nameless = sorted((one for one in found if one.subject.kind == "host"), key=lambda one: -one.strength)
    yield from (one for one in found if one.subject.kind != "host")
    yield from nameless[:1]


def _errors(window: Window, uuid: str | None, port: str, told: Sequence[Telling]) -> Finding:
    events = [one.event for one in told]
    count = sum(times(event) for event in events)
    harmless = sum(times(event) for event in events if _says(event, "is_physical"))
    is_fatal = any(_says(event, "is_fatal") for event in events)
    is_corrected = all(_says(event, "is_corrected") for event in events)
    severity: Severity = "critical" if is_fatal else "warning"
    if is_corrected:
        telling = count if uuid is not None and count >= _SOME else count - harmless
        severity = "warning" if telling >= _FEW else "info"
    confidence: Confidence = "certain" if uuid is not None else "possible"
    gpu = next((gpu for gpu in window.last.gpus if gpu.uuid == uuid), None)
    who = f"the link of {name_of(gpu, uuid, events[0].text)}" if uuid is not None else f"port {port or 'unknown'}"
    kind = "corrected" if is_corrected else "fatal" if is_fatal else "uncorrected"
    number = f"{count} {kind} errors" if count > 1 else f"a {kind} error"
    return Finding(
        rule="pcie-degraded",
        severity=severity,
        confidence=confidence,
        subject=subject_of(gpu, uuid),
        summary=f"PCIe errors on {who}",
        strength=1.0 + count / 1000.0,
        cause="link-errors",
        cause_text=number + ("" if uuid is not None else "; lspci -t shows whether its GPU is behind it"),
        fix_text="reseat card, riser and cable",
        evidence=(
            Evidence(name="errors reported", value=float(count), judged_by=f"< {_FEW} in {SHOWN_S / 60:g} min"),
            Evidence(name="the kernel's line", value=events[0].text),
        ),
        fixes=_FIXES if uuid is not None else (f"lspci -tv: what is behind port {port or 'it'}?", *_FIXES),
        onset_s=told[0].age_s,
        has_happened=True,
    )


def _says(event: Event, name: str) -> bool:
    return bool((event.values or {}).get(name))


def narrow_links(window: Window) -> Iterator[Finding]:
    """GPUs that came up on a small part of their lanes; whether they need more, the log does not say."""
    judged = {gpu.uuid for gpu in window.last.gpus if gpu.pcie_width is not None}
    newest = {one.event.gpu_uuid: one for one in logged(window, ("pcie-link",))}
    for uuid, (age_s, event) in newest.items():
        values = event.values or {}
        gen, width, gen_max, width_max = (int(values.get(name, 0)) for name in ("gen", "width", "gen_max", "width_max"))
        # Half the lanes are usual on boards with two slots; an idle link comes up slow at most, never narrow.
        if uuid in judged or not width or 2 * width > width_max or width * 2**gen * 4 > width_max * 2**gen_max:
            continue
        gpu = next((gpu for gpu in window.last.gpus if gpu.uuid == uuid), None)
        now, best = f"Gen{gen} x{width}", f"Gen{gen_max} x{width_max}"
        yield Finding(
            rule="pcie-degraded",
            severity="info",
            confidence="certain",
            subject=subject_of(gpu, uuid),
            summary=f"{name_of(gpu, uuid, event.text)} came up on {now}",
            cause="fewer-lanes",
            cause_text=f"its card could do {best}; the load is not known",
            fix_text="slot on the CPU with all its lanes; riser; BIOS",
            evidence=(
                Evidence(name="PCIe link", value=now, was=best, judged_by="best of the card"),
                Evidence(name="the kernel's line", value=event.text),
            ),
            fixes=("use a slot wired to the CPU with all its lanes; M.2 drives and risers may take lanes away",),
            onset_s=age_s,
        )


def kernel_line(window: Window, uuid: str) -> tuple[Evidence, ...]:
    """What the kernel said of a GPU's link when it came up."""
    told = [one.event for one in logged(window, ("pcie-link",)) if one.event.gpu_uuid == uuid]
    return tuple(Evidence(name="the kernel's line", value=event.text) for event in told[-1:])


def switch_errors(window: Window) -> Iterator[Finding]:
    """The worst that NVSwitches reported lately."""
    told = logged(window, ("sxid",), SHOWN_S)
    if not told:
        return
    worst = next((one for one in told if _says(one.event, "is_fatal")), told[0])
    is_fatal = _says(worst.event, "is_fatal")
    code = int((worst.event.values or {}).get("code", 0))
    count = sum(times(one.event) for one in told)
    word = "a fatal error" if is_fatal else "an error"
    yield Finding(
        rule="nvlink-down",
        severity="critical" if is_fatal else "info",
        confidence="certain",
        subject=Subject(kind="host"),
        summary=f"an NVSwitch reports {word} (SXid {code})",
        cause=f"sxid-{code}",
        cause_text=f"{count} error{'s' * (count > 1)} of NVSwitches in {units.duration(max(1.0, told[0].age_s))}",
        fix_text="stop the jobs of the node; reset GPUs and switches",
        evidence=(
            Evidence(name="reported", value=float(count)),
            Evidence(name="the kernel's line", value=worst.event.text),
        ),
        fixes=(
            (
                "stop the jobs of the node, restart nvidia-fabricmanager, then nvidia-smi --gpu-reset",
                "if it comes back: reboot; then report the node (nvidia-bug-report.sh)",
            )
            if is_fatal
            else ("keep an eye on it: nvidia-smi nvlink -e",)
        ),
        onset_s=worst.age_s,
        has_happened=True,
    )
