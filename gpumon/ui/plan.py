"""How many rows each section of the overview gets: by size and number of GPUs alone, so that nothing moves."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from gpumon.ui.panels import cells, panel

Density = Literal["panel", "R2", "R1", "cells", "tiny"]

TITLE, HEADLINE, AXIS, HOST, FOOTER = 1, 2, 1, 2, 1
LEAST_JOBS = 3
FULL_JOBS = 10
ALERTS = 3
MOST_ALERTS = 8
MOST_LINES = 4
"""Of a GPU in R2."""
STEADY: dict[Density, int] = {"panel": 10, "R2": 12, "R1": 8}
"""Rows that a density needs besides its GPUs; R1 does without host and axis before it gives way to cells."""


class Plan(NamedTuple):
    """How many rows each section has; adds up to the screen's height or less."""

    density: Density
    title: int
    headline: int
    heads: int
    gpus: int
    axis: int
    host: int
    jobs: int
    alerts: int
    blank: int
    lines: int
    """Rows of one GPU."""


@lru_cache(maxsize=16)
def plan(count: int, width: int, height: int, wanted: str | None = None) -> Plan:
    """Choose the richest density that fits without scrolling, and share out the rows."""
    density = _density(count, width, height, wanted)
    if density in ("cells", "tiny"):
        return _plan_cells(density, count, width, height)
    lines = {"panel": panel.LINES, "R2": 2, "R1": 1}[density]
    heads = {"panel": 0, "R2": 2, "R1": 1}[density]
    axis = 0 if density == "panel" else AXIS
    spare = height - TITLE - HEADLINE - heads - count * lines - axis - HOST - FOOTER
    rows = Plan(density, TITLE, HEADLINE, heads, count * lines, axis, HOST, 0, 0, 0, lines)
    if spare < LEAST_JOBS:
        return _shrunk(rows, height)
    listed = count + 4 if density == "panel" else max(LEAST_JOBS, min(count + 3, FULL_JOBS))
    if spare < listed + ALERTS + 1 + (density == "panel"):
        return rows._replace(jobs=spare)
    if density == "panel":
        # Few cards have few jobs: taller charts tell more than an empty table.
        shown_jobs, shown_alerts = count + 4, ALERTS + 1
        left = spare - shown_jobs - shown_alerts - 1
        each = panel.heights(panel.LINES + max(0, left) // count).total
        left -= count * (each - panel.LINES)
        rows = rows._replace(gpus=count * each, lines=each)
    else:
        wanted_jobs = max(count + 3, FULL_JOBS)
        if density == "R2":
            # A job has as many ranks as there are GPUs: what is left then makes the charts taller.
            left = spare - wanted_jobs - (ALERTS + 1) - 1
            more = min(MOST_LINES - lines, max(0, left) // max(1, count))
            rows = rows._replace(gpus=count * (lines + more), lines=lines + more)
            spare -= count * more
        shown_jobs = min(spare - ALERTS - 1, wanted_jobs)
        shown_alerts = min(MOST_ALERTS, spare - shown_jobs - 1)
        left = spare - shown_jobs - shown_alerts - 1
    return rows._replace(jobs=shown_jobs + left, alerts=shown_alerts, blank=1)


def _density(count: int, width: int, height: int, wanted: str | None) -> Density:
    if width < 40 or height < 10:
        return "tiny"
    if wanted in ("panel", "R2", "R1", "cells") and width >= {"panel": 70, "R2": 80, "R1": 60, "cells": 0}[wanted]:
        return wanted  # type: ignore[return-value]
    if width >= 70 and count > 0 and count * panel.LINES + STEADY["panel"] <= height:
        return "panel"
    if width >= 80 and count * 2 + STEADY["R2"] <= height:
        return "R2"
    if width >= 60 and count + STEADY["R1"] <= height:
        return "R1"
    return "cells"


def _shrunk(rows: Plan, height: int) -> Plan:
    """What goes first: job ranks, second head row, host, axis, headline row 2, title; then the GPUs scroll."""
    jobs = LEAST_JOBS
    needed = rows.title + rows.headline + rows.heads + rows.gpus + rows.axis + rows.host + jobs + FOOTER
    for smaller in (
        rows._replace(heads=min(rows.heads, 1)),
        rows._replace(heads=min(rows.heads, 1), host=0),
        rows._replace(heads=min(rows.heads, 1), host=0, axis=0),
    ):
        if needed <= height:
            break
        saved = sum(rows[3:7]) - sum(smaller[3:7])
        if not smaller.axis and needed - saved > height:
            break  # it scrolls all the same: then with the axis, which tells how much is hidden
        needed -= saved
        rows = smaller
    if needed <= height:
        return rows._replace(jobs=jobs + height - needed)
    room = height - (needed - rows.gpus)
    if room < rows.lines:
        room += jobs
        jobs = 0
    visible = max(1, room // rows.lines)
    left = max(0, room - visible * rows.lines)
    return rows._replace(gpus=visible * rows.lines, jobs=jobs + left if jobs else 0, blank=0 if jobs else left)


def _plan_cells(density: Density, count: int, width: int, height: int) -> Plan:
    if density == "tiny":
        headline_rows = 2 if height >= 4 else 1
        return Plan(density, 0, headline_rows, 0, max(0, height - headline_rows - FOOTER), 0, 0, 0, 0, 0, 1)
    gpu_rows_ = -(-max(1, count) // max(1, width // cells.CELL))
    room = height - TITLE - HEADLINE - FOOTER
    gpus = min(gpu_rows_, room)
    left = room - gpus
    axis = min(1, left)  # the time budget of all GPUs
    is_wide = width >= 70 and left >= 1 + HOST + LEAST_JOBS
    host_rows = HOST if is_wide else min(1, max(0, left - axis))
    return Plan(density, TITLE, HEADLINE, 0, gpus, axis, host_rows, left - axis - host_rows, 0, 0, 1)
