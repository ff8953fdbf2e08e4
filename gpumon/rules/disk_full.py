"""Knows ``disk-full``: the filesystem that a job writes to has no room for its next checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gpumon import units
from gpumon.model import Confidence, Evidence, Finding, Severity, Subject, Volume
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.trend import keeps_on, points_of, slope
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much room there must be."""

    checkpoints: float = 2.0
    """Room for fewer checkpoints than this, of the size of the largest one seen, is critical."""
    free_gib: float = 5.0
    """Without a checkpoint seen: less room than this is a warning, if it is a small share as well."""
    free_pct: float = 5.0
    """That share."""
    critical_free_gib: float = 1.0
    """Less room than this is critical."""
    free_inodes_pct: float = 5.0
    """Entries left for new files."""
    forecast_min: float = 30.0
    """Room that shrinks all the time and will be gone in so many minutes is a warning."""


class _Lack(NamedTuple):
    """One way in which there is too little."""

    strength: float
    severity: Severity
    confidence: Confidence
    text: str


_SEEN_S = 3600.0
_WRITES_SEEN = 1100
"""Samples of each process: about as many as the history keeps."""
_FORECAST_S = 600.0
_BURST_BYTES = 200e6
_BURST_S = 600.0
_FAST_BYTES_PER_S = 50e6
"""A checkpoint is written at least so fast."""
_PAUSE_S = 65.0


@rule("disk-full", limits=Limits, every_s=10.0, clear_s=30.0)
def disk_full(window: Window, limits: Limits) -> Conclusions:
    """The disk that a job writes to is full, or has no room for the next checkpoints.

    What it sees:
        Free room of the filesystems on which jobs work or have files open for writing: less than twice the largest
        checkpoint that was seen to be written there, less than 1 GiB, or falling so that it is gone in half an hour;
        and fewer than 5 % of its entries for files left.

    Why it matters:
        A checkpoint that does not fit ends the run with "No space left on device", at the worst moment, and often
        leaves the last good one overwritten.

    What to do:
        Delete old checkpoints and logs, keep only the last few (save_total_limit), or write elsewhere. For entries:
        many small files belong into archives.

    When it is wrong:
        What counts is the room for ordinary users; root may have some more. A job that deletes the old checkpoint
        before it writes the new one needs room for one.
    """
    volumes = window.last.host.volumes
    for volume in volumes:
        found = _worst(window, volume, volumes, limits)
        if found is not None:
            yield found
            return


def _worst(window: Window, volume: Volume, volumes: Sequence[Volume], limits: Limits) -> Finding | None:
    free, total = volume.free_bytes, volume.total_bytes
    lacks = []
    size = None
    if free is not None:
        size = max(_largest_burst(window, volume), _written(window) if len(volumes) == 1 else 0.0)
        fits = free / size if size else None
        if fits is not None and fits < limits.checkpoints / 0.8:
            text = f"room for {fits:.1f} checkpoints of {units.gib(size):.1f} GiB"
            lacks.append(_Lack(limits.checkpoints / max(0.01, fits), "critical", "certain", text))
        lacks += _plain(free, total, limits)
        left_min = _left_min(window, volume, free)
        if left_min is not None and left_min < limits.forecast_min / 0.8:
            text = f"falls steadily: full in {left_min:.0f} min"
            lacks.append(_Lack(limits.forecast_min / max(0.1, left_min), "warning", "likely", text))
    inodes = volume.free_inodes_pct
    if inodes is not None and inodes < limits.free_inodes_pct / 0.8:
        text = f"{inodes:.0f}% of its entries for files left"
        lacks.append(_Lack(limits.free_inodes_pct / max(0.1, inodes), "warning", "certain", text))
    if not lacks:
        return None
    return _finding(volume, max(lacks, key=lambda one: (one.severity == "critical", one.strength)), size)


def _plain(free: float, total: int | None, limits: Limits) -> list[_Lack]:
    """Too little whatever is written."""
    gib = units.gib(free)
    text = f"{gib:.1f} GiB left"
    if gib < limits.critical_free_gib / 0.8 and (total is None or total > 4 * limits.critical_free_gib * 2**30):
        severity: Severity = "critical" if gib < limits.critical_free_gib else "warning"
        return [_Lack(limits.critical_free_gib / max(0.01, gib), severity, "certain", text)]
    if gib < limits.free_gib / 0.8 and total and 100.0 * free / total < limits.free_pct:
        return [_Lack(limits.free_gib / gib, "warning", "certain", text)]
    return []


def _finding(volume: Volume, lack: _Lack, size: float | None) -> Finding:
    place = volume.path if len(volume.path) <= 24 else f"…{volume.path[-23:]}"
    free_gib = None if volume.free_bytes is None else round(units.gib(volume.free_bytes), 1)
    return Finding(
        rule="disk-full",
        severity=lack.severity,
        confidence=lack.confidence,
        subject=Subject(kind="host"),
        summary=f"{place} is nearly full",
        strength=lack.strength,
        cause="entries" if "entries" in lack.text else "room",
        cause_text=lack.text,
        fix_text="delete old checkpoints, or write elsewhere",
        evidence=(
            Evidence(name="free room", value=free_gib, unit="GiB", judged_by=lack.text),
            Evidence(name="largest checkpoint", value=round(units.gib(size), 1) if size else None, unit="GiB"),
            Evidence(name="entries left", value=volume.free_inodes_pct, unit="%"),
        ),
        fixes=(
            f"du -xh --max-depth=2 {volume.path} | sort -h | tail",
            "keep only the last checkpoints (save_total_limit=2)",
            "write to another volume from now on",
        ),
        command=f"du -xh --max-depth=2 {volume.path} | sort -h | tail",
    )


def _largest_burst(window: Window, volume: Volume) -> float:
    """The most that the free room fell in one go within the last hour."""
    if not _has_moved(window, volume, _SEEN_S):
        return 0.0
    values = window.series(volume, "free_bytes", _SEEN_S)
    known = [(age, value) for age, value in zip(window.ages(_SEEN_S), values, strict=True) if value is not None]
    falls = [(age, before - value) for (_, before), (age, value) in pairwise(known) if value != before]
    largest = fallen = began_s = last_s = 0.0
    for age, fall in (*falls, (-2 * _PAUSE_S, 0.0)):
        if fallen and (fall <= 0.0 or last_s - age > _PAUSE_S):
            # It is over. What went on for longer is no checkpoint but a stream, and one that goes on has no size yet.
            is_whole = began_s - last_s <= _BURST_S and last_s - max(age, 0.0) > (0.0 if fall < 0.0 else _PAUSE_S)
            largest = max(largest, fallen if is_whole else 0.0)
            fallen = 0.0
        if fall > 0.0:
            began_s, last_s, fallen = (age if not fallen else began_s), age, fallen + fall
    return largest if largest >= _BURST_BYTES else 0.0


def _has_moved(window: Window, volume: Volume, seconds: float) -> bool:
    """Whether its free room is at one time as much greater as a checkpoint is: nearly always not, and seen at once."""
    extent = window.extent(volume, "free_bytes", seconds)
    return extent is not None and extent[1] - extent[0] >= _BURST_BYTES


def _written(window: Window) -> float:
    """The most that a job wrote in one go, as far back as its processes are remembered."""
    seconds = min(_SEEN_S, _WRITES_SEEN * window.interval_s)
    largest = 0.0
    for job in window.jobs:
        mine = {*job.trainers, *(pid for pids in job.helpers.values() for pid in pids)}
        writers = [one for one in window.last.processes if one.pid in mine and one.write_bytes_per_s is not None]
        extents = [window.extent(process, "write_bytes_per_s", seconds) for process in writers]
        if sum(most for _, most in filter(None, extents)) < _FAST_BYTES_PER_S:
            continue
        rates = [window.series(process, "write_bytes_per_s", seconds) for process in writers]
        burst = 0.0
        for written, cover in zip(zip(*rates, strict=True), window.covered(seconds), strict=True):
            rate = sum(filter(None, written))
            burst = burst + rate * cover if rate >= _FAST_BYTES_PER_S else 0.0
            largest = max(largest, burst)
    return largest if largest >= _BURST_BYTES else 0.0


def _left_min(window: Window, volume: Volume, free: float) -> float | None:
    """Minutes until it is full, where it has filled in every part of ten minutes."""
    if not window.covers(_FORECAST_S) or not _has_moved(window, volume, _FORECAST_S):
        return None
    points = points_of(window, volume, "free_bytes", _FORECAST_S)
    if not points or points[0][1] - points[-1][1] < _BURST_BYTES:
        return None
    per_s = slope(points)
    if per_s is None or per_s >= 0 or not keeps_on(points, _FORECAST_S, blocks=5, rises=False):
        return None
    return free / -per_s / 60.0
