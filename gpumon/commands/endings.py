"""The end of a ``gpumon run``: the exit code goes to the monitor, the run's files go, and what is asked for is said."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpumon import units
from gpumon.probe._gpumon_probe import layout, ring
from gpumon.text import clean

MOST_FILES = 1024
Body = dict[str, object]
"""Of a file's header."""


@dataclass(frozen=True)
class Told:
    """One process of the run: its file, still open, and the header's body."""

    path: Path
    descriptor: int
    body: Body


def settle(runtime: str | None, run_id: str, name: str, code: int, *, with_summary: bool) -> dict[int, Body]:
    """Tell the exit code to who still reads, and remove the files of those that are gone; the child's is ``name``.

    Returns the last words of these, by pid.
    """
    lines, last = [], {}
    for told in _files(runtime, run_id):
        try:
            if with_summary:
                lines.append(_summary(told))
            if _is_alive(told.path.name):
                continue
            own = {"exit_code": code} if told.path.name == name else {}
            body = {**told.body, **own, "run_exit_code": code}
            last[int(told.path.name.partition(".")[0])] = body
            _write(told, body)
            told.path.unlink()
        except OSError:
            continue
        finally:
            os.close(told.descriptor)
    if with_summary:
        nothing = ["no process of it trained with PyTorch, JAX or TensorFlow, or Python was started with -I, -S or -E"]
        sys.stderr.write("".join(f"gpumon: {line}\n" for line in lines or nothing))
    return last


def _is_alive(name: str) -> bool:
    pid, _, ticks = name.partition(".")
    return str(ring.start_ticks(pid)) == ticks and not _is_zombie(pid)


def _is_zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]
    except OSError:
        return True


def _files(runtime: str | None, run_id: str) -> Iterator[Told]:
    """The files of this run: what is not of the expected form is somebody else's business."""
    if runtime is None:
        return
    try:
        names = sorted(os.listdir(runtime))[:MOST_FILES]  # noqa: PTH208 - names, to be matched first
    except OSError:
        return
    for each in names:
        told = _opened(Path(runtime, each)) if ring.NAME.match(each) else None
        if told is None:
            continue
        if told.body.get("run") == run_id:
            yield told
        else:
            os.close(told.descriptor)


def _opened(path: Path) -> Told | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        body = layout.decode_header(os.pread(descriptor, layout.HEADER_SIZE, 0))
        known = json.loads(body) if body and stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else None
    except (OSError, ValueError, RecursionError):
        known = None
    if not isinstance(known, dict):
        os.close(descriptor)
        return None
    return Told(path, descriptor, known)


def _write(told: Told, body: Body) -> None:
    raw = json.dumps(body, separators=(",", ":")).encode("ascii")
    if len(raw) <= layout.BODY_MOST:
        os.pwrite(told.descriptor, layout.encode_header(raw), 0)


def _summary(told: Told) -> str:
    raw = os.pread(told.descriptor, layout.FILE_SIZE, 0)[layout.HEADER_SIZE :]
    parts = (raw[at : at + layout.SLOT_SIZE] for at in range(0, len(raw), layout.SLOT_SIZE))
    slots = sorted((slot for slot in map(layout.decode_slot, parts) if slot is not None), key=lambda slot: slot.seq)
    rank = told.body.get("rank")
    who = f"rank {rank}" if isinstance(rank, int) else f"pid {told.path.name.partition('.')[0]}"
    if not slots:
        return f"{who}: no step seen"
    unit = told.body.get("source")
    said = f"{who}: {slots[-1].step} {clean(unit) if isinstance(unit, str) else 'steps'}"
    steps, spent = sum(slot.steps for slot in slots), sum(slot.step_ns for slot in slots)
    if not steps or not spent:
        return said
    waited = 100.0 * sum(slot.wait_ns for slot in slots) / spent
    span = units.duration((slots[-1].mono_ns - slots[0].mono_ns) / 1e9)
    return f"{said}; in its last {span} {spent / steps / 1e6:.4g} ms a step, {waited:.0f} % of it waiting for data"
