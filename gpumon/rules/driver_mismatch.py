"""Knows ``driver-mismatch``: driver, its library and a job's CUDA do not fit together."""

from __future__ import annotations

import re
from functools import lru_cache

from gpumon.model import Evidence, Finding, Host, Process, Severity, Subject
from gpumon.rules import driver_by_log, driver_by_message, driver_by_table
from gpumon.rules.rule import Conclusions, Limits, rule
from gpumon.window import Window

_RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
_NVML = re.compile(r"\d{1,2}\.(\d{3,}[\d.]*)")
_REFUSALS = ("do not match", "version mismatch", "kernel driver is not loaded")
_WORKS_PCT = 5.0


@rule("driver-mismatch", limits=Limits, every_s=5.0, clear_s=10.0)
def driver_mismatch(window: Window, _limits: Limits) -> Conclusions:
    """The driver's parts have different versions, or a job brings a CUDA that is newer than the driver.

    What it sees:
        The driver's library on disk has another version than the kernel module that is loaded, or NVML says so when
        it is started again; or a job has mapped a CUDA runtime whose major version is above the driver's. In a kernel's
        log: programs that were refused (API mismatch), modules that did not load or do not serve this card. In what
        nvidia-smi prints: that it cannot reach the driver, other versions of itself and the driver, and a CUDA that
        the driver did not bring, where the card refuses it. In a program's output: CUDA's errors at its start (driver
        too old, no code for this GPU, 802, 803, 804, no device), and PyTorch that has CUDA and finds none.

    Why it matters:
        A package update under a loaded driver leaves running jobs alone, and every new one fails. A program with a
        newer CUDA major finds no GPU: it stops, or trains on the CPU without a word.

    What to do:
        Reboot, or reload the kernel modules when no job runs; hold the driver's packages back from automatic updates.
        Install a build of the framework for the driver's CUDA version, or a newer driver.

    When it is wrong:
        A newer minor version of CUDA is allowed and not reported, nor are containers with NVIDIA's compatibility
        libraries, or programs that are seen to compute.
    """
    host = window.last.host
    found = driver_by_message.refusal(window) or _driver(window)
    if found is not None:
        yield found
    yield from driver_by_log.refusals(window)
    major = _major(host.cuda_version)
    if major is None:
        return
    jobs = {pid: job.id for job in window.jobs for pid in job.trainers}
    for process in window.last.processes:
        newest = _newest_runtime(process.libraries or ())
        if newest > major and "cuda-compat" not in (process.libraries or ()) and not _works(window, process):
            yield _job(process, newest, host, jobs.get(process.pid))


def _driver(window: Window) -> Finding | None:
    host = window.last.host
    driver = host.driver_version
    inner = _NVML.fullmatch(host.nvml_version or "")
    if any(words in (host.driver_error or "").lower() for words in _REFUSALS):
        return _finding("critical", "the driver refuses to start for new programs", _refusal(host), host)
    refused = driver_by_table.refused(host)
    if refused is not None:
        return refused
    if driver_by_table.is_wsl(host):
        return driver_by_table.garbled(host)
    for library in (host.driver_library_version, inner[1] if inner else None):
        if driver is not None and library is not None and not _agree(driver, library):
            unreadable = driver_by_table.unreadable_memory(window, driver, library)
            cause = f"driver {driver} is loaded, its library is {library}"
            return unreadable or _finding("warning", "the driver was updated under running jobs", cause, host)
    return driver_by_table.newer_cuda(window)


def _refusal(host: Host) -> str | None:
    """Which versions they are, where both are known."""
    driver, library = host.driver_version, host.driver_library_version
    if driver is not None and library is not None and not _agree(driver, library):
        return f"driver {driver} is loaded, its library is {library}"
    return _first_words((host.driver_error or "").removeprefix("Failed to initialize NVML: ")) or None


def _finding(severity: Severity, summary: str, cause: str | None, host: Host) -> Finding:
    return Finding(
        rule="driver-mismatch",
        severity=severity,
        confidence="certain",
        subject=Subject(kind="host"),
        summary=summary,
        cause="library-version",
        cause_text=cause,
        fix_text="let jobs end, then reboot; new ones fail until then",
        evidence=(
            Evidence(name="kernel module", value=host.driver_version),
            Evidence(name="library", value=host.driver_library_version or host.nvml_version),
        ),
        fixes=(
            "running jobs go on: let them end, start none",
            "then reboot, or: sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && sudo modprobe nvidia",
            "hold the driver's packages: sudo apt-mark hold 'nvidia-*' 'libnvidia-*'",
        ),
        command="cat /proc/driver/nvidia/version",
    )


def _job(process: Process, newest: int, host: Host, job: str | None) -> Finding:
    name = (process.name or "program")[:16]
    return Finding(
        rule="driver-mismatch",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="job", job=job) if job else Subject(kind="process", pid=process.pid),
        summary=f"{name} ({process.pid}) needs a newer driver",
        cause="cuda-major",
        cause_text=f"its CUDA is {newest}, the driver's is {host.cuda_version}",
        fix_text=f"install its build for CUDA {_major(host.cuda_version)}",
        evidence=(
            Evidence(name="CUDA runtime of the program", value=f"{newest}.x"),
            Evidence(name="CUDA of the driver", value=host.cuda_version, judged_by="at least the program's major"),
        ),
        fixes=(
            f"install the framework's build for CUDA {_major(host.cuda_version)}",
            f"or a driver for CUDA {newest}; on data-centre GPUs the package cuda-compat-{newest}-0 may do",
        ),
    )


@lru_cache(maxsize=1024)
def _newest_runtime(libraries: tuple[str, ...]) -> int:
    """The newest CUDA among what a process has mapped, 0 without one; the processes of a job have mapped the same."""
    return max((int(number) for number in _RUNTIME.findall(" ".join(libraries))), default=0)


def _works(window: Window, process: Process) -> bool:
    """It holds memory of a GPU that computes: whatever the numbers say, it runs."""
    for uuid, size in process.gpu_memory_bytes.items():
        busy_pct = window.mean(uuid, "utilization_pct", 60.0)
        if size != 0 and (busy_pct is None or busy_pct >= _WORKS_PCT):
            return True
    return False


def _first_words(error: str | None) -> str | None:
    return None if error is None else error.partition(": ")[0][:70]


def _major(version: str | None) -> int | None:
    number = (version or "").partition(".")[0]
    return int(number) if number.isdigit() else None


def _agree(one: str, other: str) -> bool:
    """As far as both go: ``580.95`` is ``580.95.05``."""
    return all(a == b for a, b in zip(one.split("."), other.split("."), strict=False))
