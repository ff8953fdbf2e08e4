"""Knows what a kernel's log says of GPUs that are gone, or that never came, without any reading of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpumon.model import Evidence, Finding
from gpumon.rules.logged import Telling, address, driver_started_s, logged, name_of, stands, subject_of, times
from gpumon.window import Window

FELL_OFF = 79
_CODE = re.compile(r"RmInitAdapter failed! \(([0-9a-fA-Fx:]{3,40})\)")
_LINK_S = 3600.0
_RETURN = "if it comes back: check power cables, riser and heat, then return the card"
GONE = (
    "save what the host still holds: a checkpoint in memory may still be written",
    "dmesg | grep -i nvrm",
    "reboot the node",
    _RETURN,
)
"""What to do about a lost GPU, in order."""
RESEAT = "PCIe errors came before: reseat the card and its riser, try another slot"


def lost(window: Window) -> Iterator[Finding]:
    """GPUs that the log's last word leaves lost: no reading of them is at hand, nor a driver loaded anew."""
    started_s = driver_started_s(window)
    by_gpu: dict[str | None, list[Telling]] = {}
    for one in logged(window, ("gpu-lost", "gpu-init-failed", f"xid-{FELL_OFF}")):
        if stands(one.age_s, started_s):
            by_gpu.setdefault(one.event.gpu_uuid, []).append(one)
    shown = {gpu.uuid for gpu in window.last.gpus}
    for uuid, told in by_gpu.items():
        if uuid not in shown:
            fell = [one for one in told if one.event.kind != "gpu-init-failed"]
            yield _fallen(window, uuid, fell) if fell else _not_started(uuid, told)


def link_errors(window: Window, uuid: str | None) -> list[Telling]:
    """Errors on the PCIe link of a GPU, or on a port that may be its, within the last hour."""
    errors = logged(window, ("pcie-error",), _LINK_S)
    return [one for one in errors if one.event.gpu_uuid in (uuid, None)]


def _fallen(window: Window, uuid: str | None, told: Sequence[Telling]) -> Finding:
    number = next((FELL_OFF for one in told if one.event.kind == "xid"), None)
    text = told[0].event.text
    reason = "fell off the bus" + ("" if number is None else f", Xid {number}")
    link = link_errors(window, uuid)
    return Finding(
        rule="gpu-lost",
        severity="critical",
        confidence="certain",
        subject=subject_of(None, uuid),
        summary=f"{name_of(None, uuid, text)} lost ({reason})",
        cause=f"xid-{FELL_OFF}",
        cause_text="errors on its PCIe link came before" if link else "power, heat, the slot, or the card itself",
        fix_text="save what you can, reboot the node",
        evidence=(
            Evidence(name="address", value=address(uuid, text)),
            *(Evidence(name="the kernel's line", value=one.event.text) for one in (*told[:2], *link[:1])),
        ),
        fixes=(*GONE[:-1], *((RESEAT,) if link else ()), GONE[-1]),
        command="dmesg | grep -i nvrm",
        onset_s=told[0].age_s,
    )


def _not_started(uuid: str | None, told: Sequence[Telling]) -> Finding:
    text, count = told[0].event.text or "", sum(times(one.event) for one in told)
    code = _CODE.search(text)
    often = f", {count} times" if count > 1 else ""
    said = "its probe failed" if code is None else f"RmInitAdapter failed ({code[1]})"
    place = address(uuid, text)
    return Finding(
        rule="gpu-lost",
        severity="critical",
        confidence="certain",
        subject=subject_of(None, uuid),
        summary=f"{name_of(None, uuid, text)}: the driver cannot start it",
        cause="init-failed",
        cause_text=f"{said}{often}: loose, dead, no power",
        fix_text="power the machine off, then on; reseat the card",
        evidence=(
            Evidence(name="address", value=place),
            Evidence(name="attempts that failed", value=float(count)),
            Evidence(name="the kernel's line", value=text),
        ),
        fixes=(
            "the other GPUs may be used meanwhile: it is missing in nvidia-smi",
            "power the machine off and on: a reboot alone may not reset the card",
            f"lspci -vv{'' if place is None else f' -s {place}'}; dmesg | grep -i nvrm",
            "reseat it, other power cable, other slot; once another driver version; then return the card",
        ),
        command="dmesg | grep -i nvrm",
        onset_s=told[0].age_s,
    )
