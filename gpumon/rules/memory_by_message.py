"""Knows what loader workers and allocators say when the machine's memory, or the shared one, was not enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.model import Confidence, Event, Evidence, Finding, Subject
from gpumon.rules.reports import number, reports, size
from gpumon.window import Window

_NO_MEMORY, _TOO_MANY_FILES = 12, 24
_SHARED = "start the container with --shm-size=16g or --ipc=host (Kubernetes: emptyDir, medium Memory)"
Told = Sequence[tuple[float, Event]]


def shm_told(window: Window) -> Finding | None:
    """Workers that died of a bus error, or could not make a file in shared memory."""
    events = [one for one in reports(window, "bus-error", "shm-error") if number(one[1], "errno") != _NO_MEMORY]
    if not events:
        return None
    files = [one for one in events if number(one[1], "errno") == _TOO_MANY_FILES]
    if len(files) == len(events):
        return _too_many_files(files)
    fewer = _fewer(window)
    died = [event for _, event in events if event.kind == "bus-error"]
    text = "a loader worker died of a bus error" if died else "no room for a batch in /dev/shm"
    return Finding(
        rule="shm-full",
        severity="critical",
        confidence="likely" if died else "certain",
        subject=Subject(kind="host"),
        summary="shared memory (/dev/shm) was full",
        cause="shm-used-up",
        cause_text=f"{text}; a container has 64 MiB by default",
        fix_text=f"--shm-size=16g or --ipc=host; {fewer}",
        evidence=(*_lines(events), *_counted(events)),
        fixes=(
            _SHARED,
            "df -h /dev/shm; ls -lS /dev/shm   # files of dead jobs may be removed, with care",
            f"{fewer}: each worker holds its prefetched batches there",
            'torch.multiprocessing.set_sharing_strategy("file_system"), and watch the number of open files',
        ),
        command="docker run --shm-size=16g",
        onset_s=max(age_s for age_s, _ in events),
        has_happened=True,
    )


def _too_many_files(events: Told) -> Finding:
    """Shared memory by descriptors: each tensor in flight holds an open file."""
    return Finding(
        rule="shm-full",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="host"),
        summary="too many open files between loader workers",
        cause="too-many-files",
        cause_text="every tensor on its way from a worker is an open file",
        fix_text="ulimit -n 65536",
        evidence=(*_lines(events), *_counted(events)),
        fixes=(
            "ulimit -n 65536   # before the start; in a container: --ulimit nofile=65536",
            'torch.multiprocessing.set_sharing_strategy("file_system")',
            "return one tensor per batch from the dataset, not many small ones; keep no batches in a list",
        ),
        command="ulimit -n 65536",
        onset_s=max(age_s for age_s, _ in events),
        has_happened=True,
    )


def ram_told(window: Window) -> Finding | None:
    """Workers that were killed, or an allocation in the machine's memory that failed."""
    killed = reports(window, "worker-killed")
    failed = reports(window, "ram-exhausted")
    failed += [one for one in reports(window, "shm-error") if number(one[1], "errno") == _NO_MEMORY]
    events = killed + failed
    if not events:
        return None
    fewer = _fewer(window)
    asked = max((number(event, "requested_bytes") or 0.0 for _, event in failed), default=0.0)
    pid = next((event.pid for _, event in killed if event.pid is not None), None)
    summary, confidence = _of_ram(pid, is_failed=bool(failed))
    text = (
        f"asked for {size(asked)} of the machine's memory"
        if asked
        else "killed from outside: mostly the kernel, for memory"
    )
    return Finding(
        rule="ram-pressure",
        severity="critical",
        confidence=confidence,
        subject=Subject(kind="host"),
        summary=summary,
        cause="allocation-failed" if failed else "killed",
        cause_text=text,
        fix_text=f"{fewer}; or more memory for the job",
        evidence=(*_lines(events), *_counted(events)),
        fixes=(
            "dmesg | grep -i 'killed process'; cat /sys/fs/cgroup/memory.events   # was it the kernel?",
            f"{fewer}; prefetch_factor 2: memory is workers × prefetch × batch",
            "memory-map the data instead of loading it whole; no Python lists in the dataset (see worker-ram-leak)",
            "more memory for the job: --memory, --mem",
        ),
        command="dmesg | grep -i 'killed process'",
        onset_s=max(age_s for age_s, _ in events),
        has_happened=True,
    )


def _of_ram(pid: int | None, *, is_failed: bool) -> tuple[str, Confidence]:
    if is_failed:
        return "the machine's memory was not enough", "certain"
    return ("a process was killed" if pid is None else f"process {pid} was killed"), "likely"


def _fewer(window: Window) -> str:
    """Fewer workers, by the number that PyTorch itself suggests where it did."""
    for _, event in reports(window, "many-workers"):
        workers, suggested = number(event, "workers"), number(event, "suggested_workers")
        if workers and suggested:
            return f"num_workers {workers:.0f} → {suggested:.0f}"
    return "fewer workers, smaller batches"


def _lines(events: Told) -> Iterator[Evidence]:
    for _, event in events[:2]:
        if event.text:
            yield Evidence(name="reported", value=event.text[:160])


def _counted(events: Told) -> Iterator[Evidence]:
    if len(events) > 1:
        yield Evidence(name="messages", value=float(len(events)))
