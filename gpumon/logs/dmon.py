"""Knows the output of ``nvidia-smi dmon``: any selection of columns, of every driver, with or without times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from gpumon.logs.reading import Place, Reading
from gpumon.logs.scrolling import (
    Cells,
    Clock,
    Column,
    Convert,
    OutOfRangeError,
    Row,
    Title,
    cells_of,
    index_of,
    is_of_process,
    may_be_row,
    title_of,
    units_of,
)

INTERVAL_S = 1.0
"""Between two rows of a GPU where the log gives no times: what dmon does unless ``-d`` asks for another."""
NOT_SUPPORTED = (
    "nvidia-smi dmon or pmon said that it is not supported on this GPU, so there is nothing to judge; log with:"
    " nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw,"
    "clocks.sm,pstate --format=csv -l 1"
)
REFUSALS = ("Not supported on the device", "Failed to process command line")

_MIB = float(1 << 20)
_PER_S = {"mb/s": 1e6, "mib/s": _MIB, "gpm:mib/s": _MIB, "kb/s": 1e3, "gb/s": 1e9}
_RAGGED = 3
"""Characters by which one row may be longer than another."""
_GAP_S = 1.5
"""Rows of one moment are written one after the other, perhaps over the turn of a second."""


def _same(value: float) -> float:
    return value


def _times(factor: float) -> Convert:
    return lambda value: value * factor


def _mebibytes(value: float) -> int:
    return round(value * _MIB)


def _above_zero(value: float) -> float | None:
    """Sensors that are not there read 0."""
    return value or None


def _pct(field: str) -> Column:
    return Column(field, _same, 0.0, 100.0)


def _count(field: str) -> Column:
    return Column(field, round, 0.0, 2.0**53)


COLUMNS: Mapping[str, Column] = {
    "pwr": Column("power_w", _above_zero, 0.0, 5000.0),
    "temp": Column("temperature_c", _above_zero, 0.0, 200.0),
    "gtemp": Column("temperature_c", _above_zero, 0.0, 200.0),
    "mtemp": Column("memory_temperature_c", _above_zero, 0.0, 200.0),
    "sm": _pct("utilization_pct"),
    "mem": _pct("memory_utilization_pct"),
    "enc": _pct("encoder_pct"),
    "dec": _pct("decoder_pct"),
    "mclk": Column("memory_clock_mhz", _same, 0.0, 50_000.0),
    "pclk": Column("sm_clock_mhz", _same, 0.0, 10_000.0),
    "fb": Column("memory_used_bytes", _mebibytes, 0.0, 2.0**30),
    "sbecc": _count("ecc_corrected"),
    "dbecc": _count("ecc_uncorrected"),
    "pci": _count("pcie_replays"),
    "rxpci": Column("pcie_rx_bytes_per_s", _times(1e6), 0.0, 1e6),
    "txpci": Column("pcie_tx_bytes_per_s", _times(1e6), 0.0, 1e6),
    "pviol": _pct("sw_power_cap"),
    "tviol": _pct("sw_thermal"),
    "gract": _pct("graphics_active_pct"),
    "smutil": _pct("sm_active_pct"),
    "smocc": _pct("sm_occupancy_pct"),
    "mmaact": _pct("tensor_active_pct"),
    "dram": _pct("dram_active_pct"),
    "fp32": _pct("fp32_active_pct"),
    "fp64": _pct("fp64_active_pct"),
    "pcirx": Column("pcie_rx_bytes_per_s", _times(_MIB), 0.0, 1e6),
    "pcitx": Column("pcie_tx_bytes_per_s", _times(_MIB), 0.0, 1e6),
    "nvlrx": Column("nvlink_rx_bytes_per_s", _times(_MIB), 0.0, 1e8),
    "nvltx": Column("nvlink_tx_bytes_per_s", _times(_MIB), 0.0, 1e8),
}
_UNREAD = frozenset("gpu date time jpg ofa bar1 ccpm".split())
"""Columns that are known and of which the model has no field."""
_VIOLATIONS = frozenset({"pviol", "tviol"})
"""Shares of the interval by reason; drivers tell of heat only whether there was any."""

_DEFAULTS: Mapping[int, tuple[str, ...]] = {
    len(names): names
    for names in (
        tuple(text.split())
        for text in (
            "gpu pwr temp sm mem enc dec mclk pclk",
            "gpu pwr gtemp mtemp sm mem enc dec mclk pclk",
            "gpu pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk",
        )
    )
}
"""What dmon prints when nothing is selected, by the number of columns: from three generations of drivers."""
_PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "pwr": (1.0, 2000.0),
    "temp": (10.0, 125.0),
    "gtemp": (10.0, 125.0),
    "mtemp": (10.0, 125.0),
    "mclk": (100.0, 20_000.0),
    "pclk": (50.0, 4000.0),
}
_DEFAULT_UNITS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("idx", "w", "c", *(("c",) if "mtemp" in names else ()), *("%",) * sum(map(_pct_like, names)), "mhz", "mhz"): names
    for names in _DEFAULTS.values()
    for _pct_like in (lambda name: name in {"sm", "mem", "enc", "dec", "jpg", "ofa"},)
}


class _Layout(NamedTuple):
    """Where the columns of the present title stand."""

    title: Title
    gpu_at: int
    cells: tuple[Cells, ...]
    shares: tuple[Cells, ...]

    @classmethod
    def of(cls, title: Title, units: tuple[str, ...] | None = None) -> _Layout:
        """The layout under a title, with the units of the line that follows it where there is one."""
        cells: dict[str, Cells] = {}
        shares: list[Cells] = []
        known = units if units is not None and len(units) == len(title.names) else None
        for position, name in enumerate(title.names):
            column = COLUMNS.get(name)
            if column is None:
                continue
            unit = None if known is None else known[position]
            if name in _VIOLATIONS:
                is_flag = unit == "bool" or (unit is None and name == "tviol")
                shares.append(Cells(position, column._replace(convert=_times(100.0), most=1.0) if is_flag else column))
                continue
            factor = _PER_S.get(unit or "")
            if factor is not None and column.field.endswith("_per_s"):
                column = column._replace(convert=_times(factor))
            cells.setdefault(column.field, Cells(position, column))
        return cls(title, title.names.index("gpu"), tuple(cells.values()), tuple(shares))


class DmonReader:
    """Rows of all GPUs that were written at one moment are one reading."""

    kind: ClassVar[str] = "dmon"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._clock = Clock()
        self._layout: _Layout | None = None
        self._gpus: dict[int, dict[str, Any]] = {}
        self._time_s: float | None = None
        self._has_refused = False
        self._row = ""
        """The newest row: those that follow are written like it."""

    def starts(self, line: str) -> bool:
        """A title, a row under the title of before, or a row that can be nothing else."""
        if may_be_row(line):
            if (self._layout is not None and self._is_row(line, self._layout)) or _default_of(line) is not None:
                return True
        elif _title(line) is not None or _units(line) is not None or line.lstrip().startswith(REFUSALS[0]):
            return True
        self._clock.hear(line)
        return False

    def take(self, line: str) -> bool:
        """Read a title, the units, or a row."""
        if may_be_row(line):
            return self._take_row(line)
        if not line.strip():
            return True
        units = units_of(line)
        title = _title(line)
        if title is not None:
            if self._layout is None or self._layout.title != title:
                self._flush()
                self._layout = _Layout.of(title)
        elif units is not None:
            return self._take_units(units, "," if "," in line else None)
        elif line.lstrip().startswith(REFUSALS):
            if not self._has_refused:
                self._leave_out(NOT_SUPPORTED)
            self._has_refused = True
        else:
            return self._layout is not None and bool(self._layout.title.prefix) and self._take_row(line)
        return True

    def end(self) -> None:
        """Give the last moment."""
        self._flush()

    def _take_units(self, units: tuple[str, ...], separator: str | None) -> bool:
        layout = self._layout
        title = layout.title if layout is not None else Title(_DEFAULT_UNITS.get(units, ()), separator)
        if len(units) != len(title.names) or "c/g" in units:
            return False
        self._layout = _Layout.of(title, units)
        return True

    def _is_row(self, line: str, layout: _Layout) -> bool:
        """Whether a line that follows others' lines is written as the rows before it were."""
        (indent, length), (indent_before, length_before) = _shape_of(line), _shape_of(self._row)
        if abs(indent - indent_before) > 1 or abs(length - length_before) > _RAGGED:
            return False
        cells = cells_of(line, layout.title.separator)
        if len(cells) != len(layout.title.names) or index_of(cells[layout.gpu_at]) is None:
            return False
        if is_of_process(cells, layout.gpu_at):
            return False
        try:
            return any(one.read(cells) is not None for one in (*layout.cells, *layout.shares))
        except OutOfRangeError:
            return False

    def _take_row(self, line: str) -> bool:
        layout = self._layout
        if layout is None:
            names = _default_of(line)
            if names is None:
                return False
            layout = self._layout = _Layout.of(Title(names, "," if "," in line else None))
        cells = cells_of(line, layout.title.separator)
        if is_of_process(cells, layout.gpu_at):
            return False
        row = self._clock.row(cells, layout.title.names, layout.gpu_at)
        index = None if row is None else index_of(row.cells[layout.gpu_at])
        if row is None or index is None:
            if sum(cell.isdigit() or cell == "-" for cell in cells) * 2 < len(cells):
                return False
            self._leave_out(f"a damaged row: {len(cells)} cells where the title has {len(layout.title.names)}")
            return True
        self._row = line
        self._add(index, row, layout)
        return True

    def _add(self, index: int, row: Row, layout: _Layout) -> None:
        facts: dict[str, Any] = {}
        try:
            for one in layout.cells:
                value = one.read(row.cells)
                if value is not None:
                    facts[one.field] = value
            if layout.shares:
                shares = {one.field: one.read(row.cells) for one in layout.shares}
                known = {reason: share for reason, share in shares.items() if share is not None}
                if known:
                    facts["throttled_pct"] = known
        except OutOfRangeError as error:
            self._leave_out(f"a damaged row: {error}")
            return
        now_s, then_s = row.time_s, self._time_s
        if index in self._gpus or (now_s is not None and then_s is not None and abs(now_s - then_s) > _GAP_S):
            self._flush()
        if not self._gpus:
            self._time_s = row.time_s if row.time_s is not None else self._clock.said()
        self._gpus[index] = facts

    def _flush(self) -> None:
        if self._gpus:
            gpus = tuple((Place(index=index), facts) for index, facts in self._gpus.items())
            self._give(Reading(time_s=self._time_s, gpus=gpus, interval_s=INTERVAL_S))
            self._gpus = {}


def _shape_of(line: str) -> tuple[int, int]:
    """Its indent and its length: the columns have fixed widths."""
    return len(line) - len(line.lstrip(" \t")), len(line.rstrip(" \t"))


def _title(line: str) -> Title | None:
    """A title of dmon: of what it can print, at least one column."""
    if "#" not in line[:48] and line[:1] not in "gGdDtT":
        return None
    title = title_of(line)
    if title is None or "pid" in title.names:
        return None
    known = sum(name in COLUMNS for name in title.names)
    is_certain = known >= (1 if "#" in line[:48] else 3)
    return (
        title if is_certain and known + sum(name in _UNREAD for name in title.names) >= len(title.names) / 2 else None
    )


def _units(line: str) -> tuple[str, ...] | None:
    units = units_of(line) if "#" in line[:4] else None
    return units if units in _DEFAULT_UNITS else None


def _default_of(line: str) -> tuple[str, ...] | None:
    """The default columns, where a row without a title can hold nothing else."""
    separator = "," if "," in line else None
    if separator is None and line[:1] not in " \t":
        return None
    cells = cells_of(line, separator)
    before: tuple[str, ...] = ()
    if separator is None and len(cells) > 2 and len(cells[0]) == 8 and cells[0].isdigit() and cells[1].count(":") == 2:
        before = ("date", "time")
    elif separator is None and cells[0].count(":") == 2:
        before = ("time",)
    names = _DEFAULTS.get(len(cells) - len(before))
    if names is None:
        return None
    told = 0
    for name, cell in zip(names, cells[len(before) :], strict=True):
        if cell == "-":
            continue
        if not cell.isdigit() or not cell.isascii() or len(cell) > 5:
            return None
        least, most = _PLAUSIBLE.get(name, (0.0, 31.0 if name == "gpu" else 100.0))
        if not least <= int(cell) <= most:
            return None
        told += 1
    return (*before, *names) if told >= 5 else None
