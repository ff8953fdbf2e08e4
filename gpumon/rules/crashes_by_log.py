"""Knows what a kernel's log says of training programs: crashes in libraries, tasks that hang, kills."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpumon.model import Event, Evidence, Finding, Subject
from gpumon.rules.logged import Telling, logged
from gpumon.window import Window

_SHOWN_S = 1800.0
_NAMED = re.compile(
    r"^(?:traps: )?([^\[\]]{1,40})\[\d|\btask (.{1,40}):\d{1,10} blocked"
    r"|Killed process \d{1,10},? .{0,16}\(([^)]{1,40})\)"
)
_LIBRARY = re.compile(r" in ([\w.+-]{1,64})\[")
_TRAINING = re.compile(r"python|pt_|torchrun|ray::|deepspeed|accelerate|jax|nccl", re.IGNORECASE)
_OURS = re.compile(r"lib(?:nccl|cuda|cudart|cudnn|cublas|torch|c10|nvrtc|nvidia|cupti|nvshmem|jax|tensorflow)")


def program_of(event: Event) -> str | None:
    """The program that a kernel's line names."""
    found = _NAMED.search(event.text or "")
    return None if found is None else next(name for name in found.groups() if name is not None)


def is_training(event: Event) -> bool:
    """Whether that program may be a training."""
    return _TRAINING.search(program_of(event) or "") is not None


def crashed(window: Window) -> Iterator[Finding]:
    """Programs of trainings, or libraries of theirs, that the kernel saw crash; one per process."""
    by_pid: dict[int | None, list[Telling]] = {}
    for one in logged(window, ("segfault",), _SHOWN_S):
        library = _LIBRARY.search(one.event.text or "")
        if is_training(one.event) or (library is not None and _OURS.match(library[1])):
            by_pid.setdefault(one.event.pid, []).append(one)
    for pid, told in by_pid.items():
        event = told[0].event
        library = _LIBRARY.search(event.text or "")
        where = "its own code" if library is None else library[1]
        yield Finding(
            rule="training-died",
            severity="critical",
            confidence="likely",
            subject=Subject(kind="process", pid=pid),
            summary=f"{(program_of(event) or 'a program')[:15]} crashed (pid {pid})",
            cause="segfault",
            cause_text=f"segmentation fault in {where}"[:70],
            fix_text="read the end of its log; run it once under faulthandler",
            evidence=(Evidence(name="the kernel's line", value=event.text),),
            fixes=(
                "read the end of its log; an Xid of the same second is the cause rather than this",
                "run it once with python -X faulthandler, and with NCCL_DEBUG=INFO where NCCL crashed",
                "resume it from its last checkpoint",
            ),
            onset_s=told[0].age_s,
            has_happened=True,
        )


def hung_tasks(window: Window) -> Iterator[Finding]:
    """Training programs that hang in the kernel, and not inside the driver; one per process."""
    in_driver = {one.event.pid for one in logged(window, ("driver-blocked",))}
    newest = {one.event.pid: one for one in logged(window, ("task-blocked",), 600.0)}
    for pid, (age_s, event) in newest.items():
        if pid in in_driver or not is_training(event):
            continue
        seconds = (event.values or {}).get("blocked_s", 0.0)
        yield Finding(
            rule="no-progress-single",
            severity="warning",
            confidence="likely",
            subject=Subject(kind="process", pid=pid),
            summary=f"{(program_of(event) or 'a program')[:15]} hangs in the kernel (pid {pid})",
            cause="blocked-task",
            cause_text=f"not moved for {seconds:.0f} s (state D): a disk, a network filesystem or a driver",
            fix_text="see what it waits for: its stack in dmesg",
            evidence=(Evidence(name="the kernel's line", value=event.text),),
            fixes=(
                f"sudo cat /proc/{pid}/stack, or the call trace after this line in dmesg",
                "nfs, lustre or fuse in it: look at that server; blk or nvme: at the disk (dmesg, smartctl)",
                "it cannot be killed while it waits; its GPU memory stays taken",
            ),
            onset_s=age_s + seconds,
        )
