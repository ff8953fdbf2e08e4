"""Knows what a kernel's log says of a driver that does not fit, load or answer, or finds a GPU too hot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpumon.model import Evidence, Finding, Severity, Subject
from gpumon.rules.logged import Telling, driver_started_s, logged, name_of, stands, subject_of, times
from gpumon.window import Window

_MISMATCH = re.compile(r"API mismatch: the client has version (\S{3,24}), the kernel module (\S{3,24})")
_SHOWN_S = 600.0
_SMI = "cat /proc/driver/nvidia/version"


class _Words(NamedTuple):
    """What is wrong, and what to do about it."""

    summary: str
    cause: str
    text: str
    fix: str
    fixes: tuple[str, ...]


def refusals(window: Window) -> Iterator[Finding]:
    """Why the driver, as far as the log's last word goes, does not serve a program, a GPU or anybody."""
    started_s = driver_started_s(window)
    told = [one for one in logged(window, ("driver-error",)) if stands(one.age_s, started_s)]
    by_gpu: dict[str | None, list[Telling]] = {}
    for one in told:
        by_gpu.setdefault(one.event.gpu_uuid, []).append(one)
    for uuid, mine in by_gpu.items():
        last = mine[-1].event
        words = _words(name_of(None, uuid, last.text), last.text or "")
        # Where GPUs are shown, the driver works, and one program alone is turned away.
        severity: Severity = "warning" if words.cause == "library-version" and window.last.gpus else "critical"
        yield Finding(
            rule="driver-mismatch",
            severity=severity,
            confidence="certain",
            subject=subject_of(None, uuid),
            summary=words.summary,
            cause=words.cause,
            cause_text=words.text,
            fix_text=words.fix,
            evidence=(
                Evidence(name="reported", value=float(sum(times(one.event) for one in mine))),
                Evidence(name="the kernel's line", value=last.text),
            ),
            fixes=words.fixes,
            command=_SMI if words.cause == "library-version" else None,
            onset_s=mine[0].age_s,
            has_happened=True,
        )


def _words(who: str, text: str) -> _Words:
    mismatch = _MISMATCH.search(text)
    if mismatch is not None:
        return _Words(
            "the driver refuses programs of another version",
            "library-version",
            f"driver {mismatch[2]} is loaded, the program's library is {mismatch[1]}",
            "let jobs end, then reboot",
            (
                "let running jobs end, then reboot",
                "or: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
                "a container or flatpak that brings its own library: update it, or the host's driver",
                "hold the driver's packages: sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
            ),
        )
    if "requires use of the NVIDIA open" in text:
        return _unfit(f"{who} needs the open kernel modules", "install the driver's -open flavour, reboot")
    if "by open" in text or "required GPU" in text:
        return _unfit(f"{who} is too old for open modules", "install the driver without -open, reboot")
    if "is not supported by" in text:
        return _unfit(f"{who}: this driver does not know it", "install a driver branch that lists this card, reboot")
    if "probe routine was not called" in text:
        return _Words(
            "another driver holds the GPU",
            "module-not-loaded",
            "nouveau, vfio-pci or another driver took the device first",
            "lspci -nnk -d 10de: shows which",
            ("lspci -nnk -d 10de:", "blacklist nouveau, or take the GPU back from vfio-pci; then reboot"),
        )
    return _Words(
        "the NVIDIA kernel module did not load",
        "module-not-loaded",
        "built for another kernel, not signed, or not there",
        "build it for this kernel: sudo dkms autoinstall",
        (
            "sudo dkms autoinstall && sudo modprobe nvidia; it needs the headers of the running kernel (uname -r)",
            "Key was rejected by service: sign the module, or switch Secure Boot off",
            "else install the driver again, then reboot",
        ),
    )


def _unfit(summary: str, fix: str) -> _Words:
    return _Words(summary, "wrong-modules", "the modules that are loaded do not serve this card", fix, (fix, _SMI))


def hot_gpus(window: Window) -> Iterator[Finding]:
    """GPUs that the driver called too hot lately."""
    newest = {one.event.gpu_uuid: one for one in logged(window, ("gpu-hot",), _SHOWN_S)}
    for uuid, (age_s, event) in newest.items():
        gpu = next((gpu for gpu in window.last.gpus if gpu.uuid == uuid), None)
        who = name_of(gpu, uuid, event.text)
        yield Finding(
            rule="hw-thermal",
            severity="critical",
            confidence="likely",
            subject=subject_of(gpu, uuid),
            summary=f"{who} is too hot, says the driver",
            cause="overheating",
            cause_text="the driver's line in the kernel's log",
            fix_text="stop its jobs; airflow, dust, fan, pump",
            evidence=(Evidence(name="the kernel's line", value=event.text),),
            fixes=(
                "stop or pause its jobs now",
                "look at airflow, dust, fan, blanked slots, paste and the pump of a water cooler",
                "watch it while it cools down: nvidia-smi -q -d TEMPERATURE -l 5",
            ),
            onset_s=age_s,
            has_happened=True,
        )


def hung_calls(window: Window) -> Iterator[Finding]:
    """Tasks that the kernel found hanging inside NVIDIA's modules."""
    told = logged(window, ("driver-blocked",), _SHOWN_S)
    if not told:
        return
    event = told[-1].event
    seconds = int((event.values or {}).get("blocked_s", 0))
    yield Finding(
        rule="driver-stuck",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="host"),
        summary="a program hangs inside the driver",
        cause="blocked-task",
        cause_text=f"pid {event.pid} has waited {seconds} s in the kernel; it cannot be killed",
        fix_text="look for Xid lines; save, then reboot",
        evidence=(
            Evidence(name="tasks that hang", value=float(len({one.event.pid for one in told}))),
            Evidence(name="the kernel's line", value=event.text),
        ),
        fixes=("dmesg | grep -i nvrm", "start no nvidia-smi: it will hang too", "save, then reboot the node"),
        command="dmesg | grep -i nvrm",
        onset_s=told[0].age_s + seconds,
    )
