"""Knows ``gpu-lost``: a GPU that the driver no longer reaches."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpumon.model import Cost, Event, Evidence, Finding, Gpu, Subject
from gpumon.rules import lost_by_log
from gpumon.rules.incidents import xid_of
from gpumon.rules.logged import is_logged, name_of
from gpumon.rules.rule import Conclusions, Limits, rule
from gpumon.rules.xids import known
from gpumon.window import Window

_LOOK_BACK_S = 3600.0


@rule("gpu-lost", limits=Limits, every_s=0.0, clear_s=5.0)
def gpu_lost(window: Window, _limits: Limits) -> Conclusions:
    """The driver no longer reaches this GPU: its job is over, and the GPU returns only after a reset or reboot.

    What it sees:
        NVML answers "GPU is lost" or "reset required" for this GPU, or it vanished from the driver's list. An Xid event
        of this GPU, where one was seen, names the reason. In a kernel's log: a GPU that fell off the bus, or that the
        driver could not initialise (RmInitAdapter failed), until the driver is loaded anew. In what nvidia-smi prints:
        that it cannot open a GPU, that it finds none, or a row of ERR! only.

    Why it matters:
        Everything on the GPU is gone. Other ranks of the job spin in their next collective and look busy for minutes,
        until a watchdog ends them.

    What to do:
        Save what the host still holds, read ``dmesg | grep -i nvrm``, reboot the node. If it happens again: power
        cables, riser, slot, heat; then return the card.

    When it is wrong:
        A GPU that was unbound or handed to a virtual machine on purpose looks the same. A driver that merely does not
        answer is not reported as a lost GPU.
    """
    for gpu in window.last.gpus:
        if gpu.is_lost and gpu.mig_parent_uuid is None:
            yield _finding(window, gpu)
    yield from lost_by_log.lost(window)
    unnamed = [event for event in window.events(_LOOK_BACK_S) if event.kind == "gpu-lost" and event.gpu_uuid is None]
    if unnamed and not is_logged(unnamed[-1]) and not any(gpu.is_lost for gpu in window.last.gpus):
        yield _of_host("a GPU is lost", "which one is not said", unnamed[-1].text)
    if (window.last.host.driver_error or "").startswith("No devices were found"):
        yield _of_host(
            "the driver finds no GPU", "it runs, and each GPU is gone or did not start", window.last.host.driver_error
        )


def _finding(window: Window, gpu: Gpu) -> Finding:
    told = [event for event in window.events(_LOOK_BACK_S) if event.gpu_uuid == gpu.uuid]
    numbers = [number for number in map(xid_of, told) if number is not None]
    telling = (number for number in reversed(numbers) if known(number).severity == "critical")
    number = next(telling, numbers[-1] if numbers else None)
    reason = [] if number is None or known(number).severity != "critical" else [known(number).meaning]
    if number is not None:
        reason.append(f"Xid {number}")
    job = window.job_of(gpu.uuid)
    link = lost_by_log.link_errors(window, gpu.uuid)
    fixes = (*lost_by_log.GONE[:-1], *((lost_by_log.RESEAT,) if link else ()), lost_by_log.GONE[-1])
    return Finding(
        rule="gpu-lost",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="gpu", gpu=gpu.index if _is_numbered(gpu, told) else None, uuid=gpu.uuid),
        summary=_summary(gpu, told, reason),
        cause=None if number is None else f"xid-{number}",
        cause_text="errors on a PCIe link of this machine came before" if link else None,
        fix_text="save what you can, reboot the node",
        evidence=(
            *(
                Evidence(name=event.kind, value=event.text or (f"Xid {event.xid}" if event.xid else None))
                for event in told[-3:]
            ),
            *(Evidence(name="PCIe", value=one.event.text) for one in link[:1]),
        ),
        cost=Cost(lost_pct=100.0) if job is not None else None,
        fixes=fixes,
        command="dmesg | grep -i nvrm",
        onset_s=_lost_ago_s(window, gpu),
    )


def _is_numbered(gpu: Gpu, told: Sequence[Event]) -> bool:
    """Whether its index is known: of a GPU that nvidia-smi only names as one it cannot open, mostly its address is."""
    if not gpu.uuid.startswith("bus:") or gpu.name is not None:
        return True
    number = re.compile(rf"GPU ?{gpu.index}\b")
    return any(number.search(event.text or "") for event in told)


def _summary(gpu: Gpu, told: Sequence[Event], reason: Sequence[str]) -> str:
    is_numbered = _is_numbered(gpu, told)
    name = name_of(gpu if is_numbered else None, gpu.uuid)
    unknown = "the driver no longer reaches it" if is_numbered else "out of reach"
    return f"{name} lost ({', '.join(reason) or unknown})"


def _of_host(summary: str, cause_text: str, text: str | None) -> Finding:
    return Finding(
        rule="gpu-lost",
        severity="critical",
        confidence="likely",
        subject=Subject(kind="host"),
        summary=summary,
        cause="not-named",
        cause_text=cause_text,
        fix_text="dmesg | grep -i nvrm; reboot the node",
        evidence=(Evidence(name="nvidia-smi", value=text),),
        fixes=("lspci -d 10de: shows which cards still answer on the bus", *lost_by_log.GONE),
        command="dmesg | grep -i nvrm",
    )


def _lost_ago_s(window: Window, gpu: Gpu) -> float:
    """Since the last sample that still had values."""
    values = window.series(gpu, "memory_used_bytes", 600.0)
    ages = window.ages(600.0)
    for age, value in zip(reversed(ages), reversed(values), strict=True):
        if value is not None:
            return max(0.0, age - window.interval_s)
    return 0.0
