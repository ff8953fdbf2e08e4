"""Knows what a log without processes shows of the end of a GPU's last work: its memory is free again, and stays so."""

from __future__ import annotations

from collections.abc import Iterator

from gpumon import units
from gpumon.model import Evidence, Finding, Gpu
from gpumon.rules.limiters import boards
from gpumon.rules.scope import names
from gpumon.rules.thermal import subject_of
from gpumon.trace import NO_PROCESSES
from gpumon.window import Window

_FREE_BYTES, _FREE_SHARE = 1e9, 0.03
"""Both at most: a screen and the driver take so much."""
_HELD_BYTES, _HELD_SHARE = 1e9, 0.05
"""Both at least is work."""
_FREE_S = 60.0
"""For so long nothing followed."""
_BIN_S, _BINS = 60.0, 1440
_FIELD = "memory_used_bytes"


def ended(window: Window, _limits: object) -> Iterator[Finding]:
    """Of each GPU the last end, if it is free to the end of the log."""
    if window.last.host.processes_hidden != NO_PROCESSES:
        return
    for gpu in boards(window):
        if gpu.is_lost or gpu.memory_is_shared or gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
            continue
        if gpu.memory_used_bytes > min(_FREE_BYTES, _FREE_SHARE * gpu.memory_total_bytes):
            continue
        last = _last_use(window, gpu, max(_HELD_BYTES, _HELD_SHARE * gpu.memory_total_bytes))
        if last is not None and last[0] >= _FREE_S:
            yield _finding(window, gpu, *last)


def _last_use(window: Window, gpu: Gpu, least: float) -> tuple[float, float] | None:
    """How long ago so much was last in use, and how much it was."""
    end_s = (window.last.time_s // _BIN_S + 1) * _BIN_S
    minutes = window.bins(gpu, _FIELD, end_s=end_s, width_s=_BIN_S, count=_BINS, how="max")
    for number, most in enumerate(reversed(minutes)):
        if most is not None and most >= least:
            ago_s = window.last.time_s - (end_s - number * _BIN_S)
            ages = window.ages(ago_s + 2 * _BIN_S)
            values = window.series(gpu, _FIELD, ago_s + 2 * _BIN_S)
            in_use = [age for age, value in zip(ages, values, strict=True) if value is not None and value >= least]
            return min(in_use, default=max(0.0, ago_s)), most
    return None


def _finding(window: Window, gpu: Gpu, ago_s: float, held: float) -> Finding:
    return Finding(
        rule="training-ended",
        severity="info",
        confidence="possible",
        subject=subject_of(gpu),
        summary=f"the work on {names([gpu], window.last.gpus)} ended; its log shows no process",
        cause="memory-freed",
        cause_text=f"its memory is free again and stays so, for {units.duration(ago_s)} to the end of the log",
        fix_text="read the end of the program's own log: finished, ended or failed?",
        evidence=(
            Evidence(name="memory in use before", value=round(units.gib(held), 1), unit="GiB", field=_FIELD),
            Evidence(name="memory in use now", value=round(units.gib(gpu.memory_used_bytes or 0), 1), unit="GiB"),
        ),
        fixes=("read the end of the program's own log: it finished, was ended, or failed",),
        onset_s=ago_s,
    )
