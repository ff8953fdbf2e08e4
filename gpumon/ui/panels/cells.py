"""A cell per GPU for screens too small for rows: mark, index, utilization, temperature."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon import units
from gpumon.model import Host
from gpumon.monitor import Frame
from gpumon.ui.panels import chart
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.gpu_rows import Subject, utilization
from gpumon.ui.panels.line import clip, fill, right
from gpumon.ui.row import Piece, Row

CELL = 13
"""`` ■ 5  99% 87°``."""
BUDGET_COLUMNS = 20
BAR = 12


def cell_rows(subjects: Sequence[Subject], width: int) -> list[Row]:
    """Three cells on 40 columns, more on wider screens."""
    per_row = max(1, width // CELL)
    found = []
    for first in range(0, len(subjects), per_row):
        pieces: list[Piece] = []
        for subject in subjects[first : first + per_row]:
            pieces += _cell(subject)
        found.append(fill(pieces, width))
    return found


def _cell(subject: Subject) -> list[Piece]:
    gpu, state = subject.gpu, subject.state
    index = f".{gpu.index}" if gpu.mig_parent_uuid is not None else str(gpu.index)
    temperature = "" if gpu.mig_parent_uuid is not None else units.number(subject.values.temperature_c)
    style = "muted" if subject.is_muted else ""
    return [
        ("›" if subject.is_selected else " ", "accent"),
        (state.mark, state.mark_style),
        (right(index, 2), "bold" if subject.is_selected else ""),
        (" " + utilization(gpu) + " ", style),
        (right(temperature, 2), "bold harm" if state.is_hot else style),
        ("°" if temperature.strip() else " ", style),
    ]


def tiny_rows(subjects: Sequence[Subject], width: int, height: int) -> list[Row]:
    """Only index and mark; what does not fit is counted in the last cell."""
    size = 2 if all(subject.gpu.index < 10 for subject in subjects) else 3
    per_row = max(1, width // size)
    room = per_row * height
    shown = list(subjects)
    left_out = 0
    if len(shown) > room:
        # What is wrong must be on the screen: the others make way.
        loud = [subject for subject in shown if subject.state.mark != " "]
        quiet = [subject for subject in shown if subject.state.mark == " "]
        reserved = -(-4 // size)
        kept = (loud + quiet)[: max(1, room - reserved)]
        left_out = len(shown) - len(kept)
        shown = sorted(kept, key=subjects.index)
    found = []
    for first in range(0, len(shown), per_row):
        pieces: list[Piece] = []
        for subject in shown[first : first + per_row]:
            pieces.append((subject.state.mark, subject.state.mark_style))
            pieces.append((right(str(subject.gpu.index), size - 1), "bold" if subject.is_selected else ""))
        if left_out and first + per_row >= len(shown):
            pieces.append((f" +{left_out}", "muted"))
        found.append(fill(pieces, width))
    return found[:height]


def budget_row(shares: Sequence[chart.Shares], charts: Charts, width: int) -> Row:
    """The time budget of all GPUs together: ``77% useful, 20% throttled``."""
    if not shares:
        return fill([(" no time budget yet", "muted")], width)
    mean = chart.Shares(*(sum(amounts) / len(shares) for amounts in zip(*shares, strict=True)))
    parts = mean.rounded()
    kind, loss = mean.worst()
    text = f"{parts['useful']}% useful"
    if loss >= chart.VISIBLE_LOSS_PCT:
        text += f", {parts[kind]}% {kind}"
    if width < 30:
        return fill([(clip(f" {parts['useful']}% useful", width), "")], width)
    return fill([(" ", ""), *chart.budget_bar(mean, BAR, charts.look), (" " + clip(text, width - BAR - 2), "")], width)


def host_row(host: Host, width: int) -> Row:
    """CPU and RAM."""
    pieces: list[Piece] = [(" CPU ", "muted"), (units.MISSING if host.cpu_pct is None else f"{host.cpu_pct:.0f}%", "")]
    if host.memory_total_bytes is not None and host.memory_available_bytes is not None:
        used = units.gib(host.memory_total_bytes - host.memory_available_bytes)
        pieces += [("  RAM ", "muted"), (f"{used:.0f}/{units.gib(host.memory_total_bytes):.0f} G", "")]
    return fill(pieces, width)


def job_row(frame: Frame, width: int) -> Row:
    """The jobs by name."""
    names = [job.name for job in frame.window.jobs]
    return fill([(clip(" " + (", ".join(names) if names else "no job on these GPUs"), width), "muted")], width)


def small_title(frame: Frame, width: int) -> Row:
    """Machine, number of GPUs and the time."""
    last = frame.window.last
    count = sum(1 for gpu in last.gpus if gpu.mig_parent_uuid is None)
    now = units.clock(last.time_s)
    name = frame.info.name if frame.info.kind != "live" else last.host.name or frame.info.name
    demo = "" if frame.info.kind == "live" else f"{frame.info.kind.upper()} "
    text = clip(f"{demo}{name} · {count} GPU{'s' if count != 1 else ''}", max(0, width - 8 - len(now) - 2))
    start = fill([(" gpumon ", "bold"), (text, "muted")], width - len(now))
    return (*start, (now, ""))
