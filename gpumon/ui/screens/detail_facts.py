"""What is known about one GPU besides its charts: limits, link, health, and the processes on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.fields import LIMITERS
from gpumon.model import Gpu, Process, Snapshot
from gpumon.signals import workers_of, works_on_video
from gpumon.ui.panels.jobs import is_busy
from gpumon.ui.panels.line import clip
from gpumon.ui.row import Piece, Row
from gpumon.window import Window

_BINS = 500
_PAIRED_FROM_WIDTH = 118


class Fact(NamedTuple):
    """One labelled value."""

    label: str
    text: str
    is_wrong: bool = False


def parent_of(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """The card whose power, heat and clocks a MIG instance shares; any other GPU itself."""
    return next((other for other in gpus if other.uuid == gpu.mig_parent_uuid), gpu)


def throttled_s(window: Window, uuid: str) -> dict[str, float]:
    """Seconds of this run in which each limiter held the clock down."""
    now_s = window.last.time_s
    width = 60.0 * max(1, math.ceil(window.span_s / _BINS / 60.0))
    # Aligned to whole minutes, so that the window remembers the columns that are closed.
    end_s = math.ceil(now_s / width) * width
    count = max(1, math.ceil(window.span_s / width) + 1)
    starts = [end_s - (count - number) * width for number in range(count)]
    known_s = [max(0.0, min(start + width, now_s) - max(start, now_s - window.span_s)) for start in starts]
    seconds: dict[str, float] = {}
    for name in LIMITERS:
        shares = window.bins(uuid, f"throttled_pct.{name}", end_s=end_s, width_s=width, count=count)
        parts = [share / 100.0 * part for share, part in zip(shares, known_s, strict=True) if share is not None]
        if parts:
            seconds[name] = sum(parts)
    return seconds


def limits(gpu: Gpu) -> Fact:
    """Temperatures and power at which the card is held."""
    parts = []
    if gpu.temperature_max_c is not None:
        parts.append(f"limit {gpu.temperature_max_c:.0f} °C")
    if gpu.temperature_slowdown_c is not None:
        parts.append(f"slow-down {gpu.temperature_slowdown_c:.0f} °C")
    if gpu.temperature_shutdown_c is not None:
        parts.append(f"shut-down {gpu.temperature_shutdown_c:.0f} °C")
    if gpu.power_limit_w is not None:
        default = gpu.power_default_limit_w
        is_lowered = default is not None and round(default) != round(gpu.power_limit_w)
        parts.append(f"power {gpu.power_limit_w:.0f} W" + (f" (default {default:.0f})" if is_lowered else ""))
    return Fact("limits", " · ".join(parts) or units.MISSING)


def link(gpu: Gpu) -> Fact:
    """How the card is connected, beside what it could be."""
    parts = []
    if gpu.pcie_gen is not None and gpu.pcie_width is not None:
        text = f"PCIe {gpu.pcie_gen} ×{gpu.pcie_width}"
        best = (gpu.pcie_gen_max, gpu.pcie_width_max)
        if None not in best and best != (gpu.pcie_gen, gpu.pcie_width):
            text += f" of {gpu.pcie_gen_max} ×{gpu.pcie_width_max}"
        parts.append(text)
    if gpu.nvlinks_total:
        active = units.MISSING if gpu.nvlinks_active is None else str(gpu.nvlinks_active)
        parts.append(f"NVLink {active}/{gpu.nvlinks_total}")
    return Fact("link", " · ".join(parts) or units.MISSING)


def throttled(window: Window, gpu: Gpu) -> Fact:
    """How long each harmful limiter held the clock in this run."""
    seconds = throttled_s(window, gpu.uuid)
    if not seconds:
        return Fact("throttled", units.MISSING)
    words = (("sw_thermal", "SW thermal"), ("hw_thermal", "HW thermal"), ("hw_power_brake", "power brake"))
    text = " · ".join(f"{word} {units.duration(seconds.get(name, 0.0))}" for name, word in words)
    return Fact("throttled", f"{text} this run")


def health(window: Window, gpu: Gpu) -> Fact:
    """Memory errors, driver errors, state and fan."""
    xids = [
        event for event in window.events(window.elapsed_s + 1) if event.gpu_uuid == gpu.uuid and event.kind == "xid"
    ]
    ecc = units.MISSING if gpu.ecc_uncorrected is None else str(gpu.ecc_uncorrected)
    xid = "none"
    if xids:
        at = f" at {units.clock(xids[-1].time_s, '%H:%M')}" if xids[-1].time_s is not None else ""
        xid = f"{xids[-1].xid}{at}"
    fan = units.MISSING if gpu.fan_pct is None else f"{gpu.fan_pct:.0f}%"
    text = f"ECC {ecc} · Xid {xid} · {gpu.performance_state or units.MISSING} · fan {fan}"
    if works_on_video(gpu):
        text += f" · encoder {gpu.encoder_pct or 0:.0f}% · decoder {gpu.decoder_pct or 0:.0f}%"
    return Fact("health", text, is_wrong=bool(xids) or bool(gpu.ecc_uncorrected))


def count_for(width: int) -> int:
    """How many rows of facts there are at this width."""
    return 3 if width >= _PAIRED_FROM_WIDTH else 4


def fact_rows(window: Window, gpu: Gpu, card: Gpu, width: int, count: int) -> list[Row]:
    """The facts on ``count`` rows, the most telling first."""
    if count <= 0:
        return []
    if count == 1:
        return [_flowing([limits(card), link(card), health(window, card)], width)]
    facts = [limits(card), link(card), health(window, card), throttled(window, card)]
    pairs = [(facts[0], facts[1]), (facts[3], facts[2])]
    if width < _PAIRED_FROM_WIDTH:
        return [_columns([fact], width) for pair in pairs for fact in pair][:count]
    rows = [_columns(list(pair), width) for pair in pairs]
    host = window.last.host
    more = [
        Fact("identity", gpu.uuid),
        Fact("software", f"driver {host.driver_version or units.MISSING} · CUDA {host.cuda_version or units.MISSING}"),
    ]
    return [*rows, _columns(more, width)][:count]


_LAST_TO_FIT = ("shut-down", "slow-down", "fan")


def _flowing(facts: Sequence[Fact], width: int) -> Row:
    """As many as fit on one row; what is known from elsewhere gives way."""
    parts = [(part, fact.is_wrong) for fact in facts for part in fact.text.split(" · ") if units.MISSING not in part]
    parts.sort(key=lambda part: part[0].startswith(_LAST_TO_FIT))
    pieces: list[Piece] = []
    used = 0
    for text, is_wrong in parts:
        spaced = f"  {text}" if pieces else f" {text}"
        if used + len(spaced) < width:
            pieces.append((spaced, "bold harm" if is_wrong and text.startswith(("Xid", "ECC")) else ""))
            used += len(spaced)
    return tuple(pieces)


def _columns(facts: Sequence[Fact], width: int) -> Row:
    half = 74 if width < 160 else 80
    pieces: list[Piece] = []
    for position, fact in enumerate(facts):
        is_last = position + 1 == len(facts)
        text = _fitting(fact.text, width - 11 - half * position - 1 if is_last else half - 12)
        pieces += [
            (f" {fact.label:<9} ", "muted"),
            (text if is_last else text.ljust(half - 11), "harm" if fact.is_wrong else ""),
        ]
    return tuple(pieces)


def _fitting(text: str, room: int) -> str:
    """Whole parts only: what is not known goes first, then the last ones."""
    parts = text.split(" · ")
    while len(parts) > 1 and len(" · ".join(parts)) > room:
        unknown = [number for number, part in enumerate(parts) if units.MISSING in part]
        parts.pop(unknown[-1] if unknown else -1)
    return clip(" · ".join(parts), max(0, room))


def processes_on(gpu: Gpu, snapshot: Snapshot) -> list[Process]:
    """The processes that hold memory on a GPU, the largest first."""
    found = [process for process in snapshot.processes if gpu.uuid in process.gpu_memory_bytes]
    return sorted(found, key=lambda process: (-(process.gpu_memory_bytes[gpu.uuid] or 0), process.pid))


def process_row(process: Process, gpu: Gpu, window: Window, width: int) -> Row:
    """Who it is, what it takes of the GPU and of the CPU, and its command."""
    rank = "" if process.rank is None else f"rank {process.rank}  "
    sm = None if process.gpu_sm_pct is None else process.gpu_sm_pct.get(gpu.uuid)
    numbers = (
        f"{units.memory(process.gpu_memory_bytes.get(gpu.uuid))} G",
        f"SM {units.value('_pct', sm)}",
        f"CPU {units.value('_pct', process.cpu_pct)}",
    )
    workers = busy_workers(process, window)
    text = f"{rank}{process.pid} {(process.user or units.MISSING)[:10]}  {'  '.join(numbers)}"
    if workers is not None:
        text += f"  workers {workers[0]}/{workers[1]} busy" if width >= 100 else f"  workers {workers[0]}/{workers[1]}"
    if process.started_s is not None and width >= 100:
        text += f"  {units.duration(window.last.time_s - process.started_s)}"
    command = process.command or process.name or f"{units.MISSING} (other user)"
    room = max(0, width - len(text) - 4)
    return ((clip(f" {text}  ", width), ""), (clip(command, room), "muted"))


def busy_workers(process: Process, window: Window) -> tuple[int, int] | None:
    """How many of its dataloader workers are busy, and how many it has; None without any."""
    job = next((job for job in window.jobs if process.pid in job.trainers), None)
    if job is None:
        return None
    workers = workers_of(job, process.pid, {other.pid: other for other in window.last.processes})
    return (sum(map(is_busy, workers)), len(workers)) if workers else None
