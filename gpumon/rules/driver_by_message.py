"""Knows what a program's output says of a driver, a build or a container with which CUDA cannot start."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon.model import Event, Evidence, Finding, Host, Subject
from gpumon.rules.cuda_versions import build_for, cuda_of_driver, driver_for, version_of, written
from gpumon.rules.faults import LOOK, Fault, start_fault
from gpumon.rules.reports import number, reports
from gpumon.window import Window


def refusal(window: Window) -> Finding | None:
    """Why CUDA did not start, by its own error, else by what PyTorch was built with."""
    host = window.last.host
    told = [
        (age_s, event, fault)
        for age_s, event in reports(window, "cuda-error")
        if (fault := start_fault(event, host)) is not None
    ]
    if not told:
        return _unavailable(window, host)
    age_s, event, fault = told[0]
    others = {other.cause: other for _, _, other in told if other.cause != fault.cause}
    more = (Evidence(name="another report", value=other.summary) for other in others.values())
    return _finding(fault, (*_evidence(event, host), *more), age_s)


def _evidence(event: Event, host: Host) -> Iterator[Evidence]:
    if event.text:
        yield Evidence(name="reported", value=event.text[:200])
    found = number(event, "driver_cuda_version")
    if found is not None:
        yield Evidence(name="CUDA of the driver", value=f"{found:.1f}")
    if host.driver_version is not None:
        yield Evidence(name="driver", value=host.driver_version)
    shown, own = version_of(host.cuda_version), cuda_of_driver(host.driver_version)
    if shown is not None and own is not None and shown > own:
        yield Evidence(name="CUDA shown by nvidia-smi", value=written(shown), judged_by=f"the driver's: {written(own)}")


def _unavailable(window: Window, host: Host) -> Finding | None:
    """PyTorch has CUDA, finds none, and was built for a newer driver."""
    own = cuda_of_driver(host.driver_version)
    for age_s, event in reports(window, "no-cuda"):
        built = number(event, "cuda_build")
        needed = None if built is None else version_of(f"{built:.1f}")
        if own is None or needed is None or needed[:1] <= own[:1]:
            continue
        build, driver = build_for(own), driver_for(needed)
        fault = Fault(
            "driver-too-old",
            "the driver is too old for this program",
            f"built with CUDA {written(needed)}, the driver runs up to {written(own)}",
            (
                f"update the driver to {driver} or newer",
                *((f"or: {build.command()}",) if build is not None else ()),
                LOOK,
            ),
        )
        return _finding(fault, tuple(_evidence(event, host)), age_s)
    return None


def _finding(fault: Fault, evidence: tuple[Evidence, ...], age_s: float) -> Finding:
    return Finding(
        rule="driver-mismatch",
        severity="critical",
        confidence=fault.confidence,
        subject=Subject(kind="host"),
        summary=fault.summary,
        cause=fault.cause,
        cause_text=fault.text,
        fix_text=fault.fix(),
        evidence=evidence,
        fixes=fault.fixes,
        onset_s=age_s,
        has_happened=True,
    )
