"""What a finding rests on as a table: each number with its past, what it was, and what it is judged by."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from gpumon import units
from gpumon.fields import GPU_FIELDS, HOST_FIELDS, PROCESS_FIELDS
from gpumon.model import Alert, Evidence, Gpu
from gpumon.rings import How
from gpumon.signals import temperature_limit_c
from gpumon.ui.panels import scales
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.line import cells, clip, left, right, width_of
from gpumon.ui.row import Piece, Row
from gpumon.ui.screens.band import band_cells
from gpumon.ui.view import process_key
from gpumon.window import HOST_KEY

if TYPE_CHECKING:
    from gpumon.monitor import Frame

NAME, NAME_MOST = 18, 27
"""Cells of the names: as many as the longest needs; on wide screens half as many again."""
NUMBER = 7
_SPARKS = (50, 40, 30, 20)
_ROLES = {
    "temperature_c": "temperature", "memory_temperature_c": "temperature", "sm_clock_mhz": "clock",
    "power_w": "power", "memory_used_bytes": "memory", "budget.data_pct": "data", "budget.throttled_pct": "harm",
}  # fmt: skip
_HOW: dict[str, How] = {"temperature_c": "max", "memory_temperature_c": "max", "memory_used_bytes": "max"}
_JUDGED_LEAST = 18
_WIDE = 100


class _Table(NamedTuple):
    """What every row of the table is made from."""

    frame: Frame
    alert: Alert
    drawn: Charts
    name: int
    """Cells of the names."""
    sparks: int
    """Columns of a spark; 0 where there is no room for them."""
    width: int


def evidence_rows(frame: Frame, alert: Alert, drawn: Charts, width: int) -> list[Row]:
    """One row a number, with a spark where the history knows its series."""
    if not alert.finding.evidence:
        return []
    evidence = alert.finding.evidence
    longest = max((cells(_label(one)) + 1 for one in evidence if not _is_text(one)), default=0)
    name = min(max(NAME, longest), NAME_MOST if width < _WIDE else NAME_MOST * 3 // 2)
    fixed = name + 2 * (NUMBER + 1) + 2 + _JUDGED_LEAST
    sparks = next((count for count in _SPARKS if fixed + count <= width), 0)
    table = _Table(frame, alert, drawn, name, sparks, width)
    head: Row = (
        (left(" evidence", name), "muted"), (left(_span(table), sparks), "muted"), (right("NOW", NUMBER + 1), "muted"),
        (right("WAS", NUMBER + 1), "muted"), ("  JUDGED BY", "muted"),
    )  # fmt: skip
    return [head, *(row for one in evidence for row in (_text(table, one) if _is_text(one) else [_row(table, one)]))]


def _span(table: _Table) -> str:
    """``13:59 – 14:08``: what the sparks cover."""
    if not table.sparks:
        return ""
    grid = table.drawn.grid(table.sparks)
    end_s = min(table.frame.window.last.time_s, grid.end_s)
    return f"{units.clock(grid.end_s - grid.shown * grid.width_s, '%H:%M')} – {units.clock(end_s, '%H:%M')}"


def _label(one: Evidence) -> str:
    return f"  {one.name}" if one.unit in {"", "%"} or one.unit in one.name else f"  {one.name} {_unit(one)}"


def _is_text(one: Evidence) -> bool:
    """It takes more room than a number has."""
    return max(cells(_amount(one.value, one)), cells(_amount(one.was, one))) > NUMBER


def _text(table: _Table, one: Evidence) -> list[Row]:
    """A text in the place of the numbers, on as many rows as it needs; a long name moves its beginning."""
    name = f"  {one.name}"
    start = left(name, table.name) if cells(name) < table.name else f"{name}  "
    was = _amount(one.was, one)
    told = f"{_amount(one.value, one)}, was {was}" if was else _amount(one.value, one)
    lines = textwrap.wrap(
        told, max(10, table.width - table.name - 1), initial_indent="x" * max(0, cells(start) - table.name)
    ) or [""]
    lines[0] = lines[0][max(0, cells(start) - table.name) :]
    rows: list[list[Piece]] = [[(start, ""), (lines[0], "bold")]]
    rows += [[(" " * table.name, ""), (line, "bold")] for line in lines[1:]]
    judged = f"  {one.judged_by}" if one.judged_by else ""
    if judged and width_of(rows[-1]) + cells(judged) < table.width:
        rows[-1].append((judged, "muted"))
    elif judged:
        rows.append([(" " * table.name + clip(judged[2:], max(0, table.width - table.name - 1)), "muted")])
    return [tuple(row) for row in rows]


def _row(table: _Table, one: Evidence) -> Row:
    name, width = clip(_label(one), table.name - 1), table.name
    now, was = _amount(one.value, one), _amount(one.was, one)
    spark = _spark(table, one)
    row: list[Piece] = [(left(name, width), ""), *spark] if spark else [(left(name, width + table.sparks), "")]
    row += [(right(now, NUMBER + 1), "bold"), (right(was, NUMBER + 1), "muted")]
    row.append((f"  {clip(one.judged_by or '', max(0, table.width - width_of(row) - 2))}", "muted"))
    return tuple(row)


def _unit(one: Evidence) -> str:
    return one.unit.replace("% of time", "% time")


def _amount(value: float | str | None, one: Evidence) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if one.unit.startswith("%"):
        return f"{units.minus(f'{value:.0f}')}%"
    if one.unit == "B":
        return units.memory(value)
    text = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"
    return units.minus(text)


def _spark(table: _Table, one: Evidence) -> tuple[Piece, ...]:
    key = None if one.field is None else _series_of(table.frame, table.alert, one.field)
    if not table.sparks or key is None or one.field is None:
        return ()
    drawn, count = table.drawn, table.sparks
    gpu = next((gpu for gpu in table.frame.window.last.gpus if gpu.uuid == key), None)
    how = _HOW.get(one.field, "mean")
    if one.field.startswith("throttled_pct."):
        return band_cells(drawn.values(key, one.field, count), count, drawn.look, "harm")
    limit = temperature_limit_c(gpu) if gpu is not None and one.field == "temperature_c" else None
    scale = _scale(one.field, gpu) or (0.0, max(value or 0.0 for value in drawn.values(key, one.field, count, how)))
    role = _ROLES.get(one.field, "temperature")
    is_clock = one.field == "sm_clock_mhz"
    return drawn.spark(key, one.field, count, scale, role, how=how, limit=limit, is_clock=is_clock)[0]


def _series_of(frame: Frame, alert: Alert, field: str) -> str | None:
    """Key of the series: the alert's process, its GPU (the first of its job's), or the host."""
    subject = alert.finding.subject
    last = frame.window.last
    if field in PROCESS_FIELDS and subject.pid is not None:
        return next((process_key(process) for process in last.processes if process.pid == subject.pid), None)
    if field in GPU_FIELDS or field.startswith(("throttled_pct.", "budget.")):
        job = next((job for job in frame.window.jobs if job.id == subject.job), None)
        return subject.uuid or next(iter(job.gpu_uuids if job else ()), None)
    return HOST_KEY if field in HOST_FIELDS else None


def _scale(field: str, gpu: Gpu | None) -> scales.Scale | None:
    """The fixed ends of a signal's scale; None where it has none."""
    if gpu is not None and field in _SCALES:
        return _SCALES[field](gpu)
    return (0.0, 100.0) if field.endswith("_pct") else None


_SCALES = {
    "temperature_c": scales.temperature_scale,
    "power_w": scales.power_scale,
    "sm_clock_mhz": scales.clock_scale,
    "memory_used_bytes": scales.memory_scale,
}
