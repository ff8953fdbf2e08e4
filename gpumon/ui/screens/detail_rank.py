"""What the probe on a GPU adds to its screen: step and wait, the rhythm of stalls, and memory as three lines."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon import units
from gpumon.steps import Pace, detailed, used_bytes
from gpumon.ui.panels import rank_charts
from gpumon.ui.panels.line import width_of
from gpumon.ui.panels.probes import Probe
from gpumon.ui.panels.rank_charts import Strip, Told
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens import detail_charts
from gpumon.ui.screens.detail_charts import GUTTER, Canvas, Cells

FEWEST, MOST_PACE, MOST_MEMORY = 3, 5, 6
"""Rows from which memory is three lines; the most that step and wait, and memory, are given."""
_OVERHANG = 1.2


def told_of(canvas: Canvas, probe: Probe) -> Told:
    """What there is to tell of a probe; silent ones have a past only."""
    pace = Pace() if probe.rank is None else detailed(canvas.window, probe.rank)
    return Told(canvas.charts, canvas.columns, probe.key, probe.rank, pace, canvas.gpu, canvas.at)


def pace_rows(told: Told, rows: int) -> list[Cells]:
    """Step and wait, from four rows on twice as high."""
    height = max(1, rows // 2)
    return [
        *_cells(rank_charts.step_strip(told, height)),
        *(_cells(rank_charts.wait_strip(told, height)) if rows > 1 else ()),
    ]


def memory_rows(canvas: Canvas, told: Told, rows: int) -> list[Cells]:
    """Device, reserved, allocated; fewer than three rows show the device alone."""
    if rows < FEWEST:
        return detail_charts.memory_rows(canvas, rows)
    device, *held = rank_charts.memory_strips(told, rows // FEWEST)
    strips = [device._replace(value=detail_charts.memory_text(canvas)), *held]
    return [row for strip in strips for row in _cells(strip)]


def _cells(strip: Strip) -> list[Cells]:
    return [
        Cells((strip.name, "muted") if y == 0 else ("", ""), cells, (strip.value, strip.style) if y == 0 else ("", ""))
        for y, cells in enumerate(strip.chart)
    ]


def note_row(told: Told, width: int) -> Row:
    """``every 4th step stalls · p50 0.235 s p95 1.13 s · 2.33 steps/s · reserved 2.1× alloc``: as much as fits."""
    pieces: list[Piece] = [(" " * GUTTER, "")]
    for text, style in _notes(told):
        more: list[Piece] = [(" · " if len(pieces) > 1 else "", "muted"), (text, style)]
        if width_of([*pieces, *more]) < width:
            pieces += more
    return tuple(pieces)


def _notes(told: Told) -> Sequence[Piece]:
    pace, rank = told.pace, told.rank
    if rank is None:
        return [("the probe has fallen silent", "muted")]
    if pace.is_sampled:
        sampled = pace.sampled
        text = "too few samples yet" if sampled is None else (
            f"{sampled.stacks} stacks sampled · wait between {sampled.low_pct:.0f} and {sampled.high_pct:.0f}%"
        )  # fmt: skip
        return [(text, "muted")]
    notes: list[Piece] = []
    if pace.every is not None:
        notes.append((f"every {units.ordinal(pace.every)} step stalls", "data-text"))
    if pace.p50_s is not None and pace.p95_s is not None:
        notes.append((f"p50 {units.step(pace.p50_s)} p95 {units.step(pace.p95_s)}", "muted"))
    if pace.steps_per_s is not None:
        notes.append((f"{rank_charts.three_digits(pace.steps_per_s)} steps/s", "muted"))
    used, reserved = used_bytes(rank), rank.reserved_bytes
    if used and reserved is not None and reserved >= _OVERHANG * used:
        notes.append((f"reserved {reserved / used:.1f}× alloc", ""))
    if pace.samples_per_s is not None:
        notes.append((f"{rank_charts.three_digits(pace.samples_per_s)} samples/s", "muted"))
    if rank.waiting_s is not None and rank.waiting_s >= 1.0:
        notes.insert(0, (f"waits for a batch for {units.duration(rank.waiting_s)}", "bold data-text"))
    if pace.step_s is None:
        silent = "" if rank.heartbeat_age_s is None else f" for {units.duration(rank.heartbeat_age_s)}"
        if rank.step is None and rank.framework == "jax":
            notes.append(("steps not seen: gpumon.integrations.jax", "muted"))
        else:
            notes.append((f"no step{silent}" if rank.step else "no step yet", ""))
    return notes
