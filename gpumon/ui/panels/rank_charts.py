"""What a probe told over time as strips of a chart: step, wait, rate, and device, reserved and allocated memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Gpu, Rank
from gpumon.rings import How
from gpumon.steps import Pace, sampled_shares, used_bytes, wait_shares
from gpumon.ui.panels.chart import Chart, sparkline
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.ranks import LOUD_PCT, SAMPLED, step

_LADDER = (1.0, 2.0, 5.0, 10.0)
_SEEN_S = 0.001
"""Shorter waits are none."""
_APART = 1.2
"""From here on what is reserved is told as a multiple of what is used."""


NOT_SEEN = "not seen"
"""Beside a wait that the framework hides from its probe: it may be any."""


class Strip(NamedTuple):
    """One signal over time with what stands beside it."""

    name: str
    value: str
    chart: Chart
    notes: tuple[str, ...] = ()
    """What is told beside it; the first one that fits."""
    style: str = ""
    """Of the value."""


class Told(NamedTuple):
    """Whose probe it is, and what is asked of its past."""

    charts: Charts
    columns: int
    key: str
    """Of its series."""
    rank: Rank | None
    """What it reports now; None where it has fallen silent."""
    pace: Pace
    gpu: Gpu | None
    at: int | None = None
    """The column under a cross-hair."""

    def series(self, field: str, how: How = "mean") -> list[float | None]:
        """The columns that are shown."""
        return self.charts.values(self.key, field, self.columns, how)

    def value(self, values: Sequence[float | None], now: float | None) -> float | None:
        """That of the column under the cross-hair; without one that of now."""
        if self.at is None:
            return now
        return values[self.at] if self.at < len(values) else None


def ladder(value: float) -> float:
    """The next of 1, 2, 5, 10 … above a value: a scale that seldom changes."""
    if value <= 0.0:
        return 1.0
    size = 1.0
    while size > value:
        size /= 10.0
    while size * 10.0 <= value:
        size *= 10.0
    return next(size * factor for factor in _LADDER if size * factor >= value)


def step_strip(told: Told, height: int = 1) -> Strip:
    """How long a step takes."""
    values = told.series("step_s")
    scale = (0.0, ladder(max((value for value in values if value is not None), default=0.0)))
    chart = told.charts.spark(told.key, "step_s", told.columns, scale, "clock", height=height)
    pace = told.pace
    notes: tuple[str, ...] = ()
    if pace.p50_s is not None and pace.p95_s is not None:
        p95 = f"p95 {units.step(pace.p95_s)}"
        notes = (f"p50 {units.step(pace.p50_s).removesuffix(' s')} {p95}", p95)
    now = SAMPLED if pace.is_sampled else step(told.value(values, pace.step_s))
    return Strip("step", now, chart, notes)


def wait_strip(told: Told, height: int = 1) -> Strip:
    """Which part of a step it waits for its data."""
    shares = _shares(told)
    charts, count = told.charts, told.columns
    chart = charts.keep(
        ("waits", told.key, count, height),
        charts.stamp(count),
        lambda: solid(sparkline(shares, (0.0, 100.0), count, height, role="data", look=charts.look)),
    )
    pace = told.pace
    share = told.value(shares, pace.wait_pct)
    notes: tuple[str, ...] = ()
    if pace.step_s is not None and pace.wait_pct is None:
        notes = (NOT_SEEN,)
    if pace.wait_p95_s is not None and pace.wait_p95_s >= _SEEN_S:
        notes = (f"p95 {units.step(pace.wait_p95_s)}",)
    if pace.every is not None:
        often = f"every {units.ordinal(pace.every)}"
        notes = (f"{often} step stalls", often)
    if pace.sampled is not None:
        notes = (f"{SAMPLED} {pace.sampled.low_pct:.0f}–{pace.sampled.high_pct:.0f}%", SAMPLED)
    style = "bold data-text" if share is not None and share >= LOUD_PCT else ""
    return Strip("wait", units.value("_pct", share), chart, notes, style)


def _shares(told: Told) -> list[float | None]:
    if told.pace.is_sampled:
        return sampled_shares(told.series("sampled_stacks", "max"), told.series("sampled_waits", "max"))
    return wait_shares(told.series("step_s"), told.series("data_wait_s"))


def rate_strip(told: Told, height: int = 1) -> Strip:
    """Samples a second where the probe knows them, else nothing but the steps that the other strip has."""
    values = told.series("samples_per_s")
    scale = (0.0, ladder(max((value for value in values if value is not None), default=0.0)))
    chart = told.charts.spark(told.key, "samples_per_s", told.columns, scale, "useful", height=height)
    per_s = told.pace.steps_per_s
    note = f"{units.MISSING if per_s is None else three_digits(per_s)} steps/s"
    value = told.value(values, told.pace.samples_per_s)
    return Strip("rate", f"{units.MISSING if value is None else three_digits(value)} smp/s", solid(chart), (note,))


def memory_strips(told: Told, height: int = 1) -> list[Strip]:
    """Device, reserved, allocated: the same scale, one under the other."""
    return [device_strip(told, height), *held_strips(told, height)]


def device_strip(told: Told, height: int = 1) -> Strip:
    """What is taken of the GPU's memory by everybody."""
    gpu, charts = told.gpu, told.charts
    uuid = "" if gpu is None else gpu.uuid
    values = charts.values(uuid, "memory_used_bytes", told.columns, "max")
    chart = charts.spark(
        uuid, "memory_used_bytes", told.columns, _scale(told), "temperature", how="max", height=height
    )  # fmt: skip
    total = None if gpu is None else gpu.memory_total_bytes
    used = told.value(values, None if gpu is None else gpu.memory_used_bytes)
    notes = () if total is None else (f"of {units.memory(total)} G",)
    return Strip("device", f"{units.memory(used)} G", chart, notes)


def held_strips(told: Told, height: int = 1) -> list[Strip]:
    """What the framework reserved, and the most that its steps use of it."""
    charts, count, rank, scale = told.charts, told.columns, told.rank, _scale(told)
    reserved = None if rank is None else rank.reserved_bytes
    used = None if rank is None else used_bytes(rank)
    field = "allocated_bytes" if rank is not None and rank.allocated_peak_bytes is None else "allocated_peak_bytes"
    floor = None if rank is None else rank.allocated_min_bytes
    return [
        Strip(
            "reserv",
            f"{units.memory(told.value(told.series('reserved_bytes', 'max'), reserved))} G",
            charts.spark(told.key, "reserved_bytes", count, scale, "memory", how="max", height=height),
            _overhang(used, reserved),
        ),
        Strip(
            "alloc",
            f"{units.memory(told.value(told.series(field, 'max'), used))} G",
            solid(charts.spark(told.key, field, count, scale, "allocated", how="max", height=height)),
            () if floor is None else (f"floor {units.memory(floor)} G", f"floor {units.memory(floor)}"),
        ),
    ]


def _overhang(used: int | None, reserved: int | None) -> tuple[str, ...]:
    """``2.1× alloc`` where much more is held than used, else how much that is."""
    if not used or reserved is None:
        return ()
    if reserved >= _APART * used:
        return (f"{reserved / used:.1f}× alloc",)
    return (f"+{units.memory(max(0, reserved - used))} unused",)


def _scale(told: Told) -> tuple[float, float]:
    total = None if told.gpu is None else told.gpu.memory_total_bytes
    if total:
        return (0.0, float(total))
    values = told.series("reserved_bytes", "max")
    return (0.0, ladder(max((value for value in values if value is not None), default=1.0)))


def solid(chart: Chart) -> Chart:
    """A chart in one hue from top to bottom: not every role has a dim one."""
    return tuple(tuple((text, style.removesuffix("-dim")) for text, style in row) for row in chart)


def three_digits(value: float) -> str:
    """``0.43``, ``2.33``, ``24.1``, ``207``."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
