"""Knows the output of ``dcgmi dmon``, which names DCGM's fields by five letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading
from gpumon.logs.scrolling import Cells, Clock, Column, OutOfRangeError, index_of

INTERVAL_S = 1.0
"""Between two rows of a GPU, which have no times: what dcgmi does unless ``-d`` asks for another."""

_MIB = 1 << 20


def _same(value: float) -> float:
    return value


def _percent(value: float) -> float:
    return min(100.0, 100.0 * value)


def _above_zero(value: float) -> float | None:
    return value or None


def _mebibytes(value: float) -> int:
    return round(value * _MIB)


_COUNT = 2.0**53
COLUMNS: Mapping[str, Column] = {
    "GPUTL": Column("utilization_pct", _same, 0.0, 100.0),
    "MCUTL": Column("memory_utilization_pct", _same, 0.0, 100.0),
    "ECUTL": Column("encoder_pct", _same, 0.0, 100.0),
    "DCUTL": Column("decoder_pct", _same, 0.0, 100.0),
    "POWER": Column("power_w", _above_zero, 0.0, 5000.0),
    "TOTEC": Column("energy_j", lambda value: value / 1e3, 0.0, _COUNT),
    "TMPTR": Column("temperature_c", _above_zero, 0.0, 200.0),
    "MMTMP": Column("memory_temperature_c", _above_zero, 0.0, 200.0),
    "SMCLK": Column("sm_clock_mhz", _same, 0.0, 10_000.0),
    "MMCLK": Column("memory_clock_mhz", _same, 0.0, 50_000.0),
    "PSTAT": Column("performance_state", lambda value: f"P{value:.0f}", 0.0, 15.0),
    "FANSP": Column("fan_pct", _same, 0.0, 200.0),
    "FBUSD": Column("memory_used_bytes", _mebibytes, 0.0, 2.0**30),
    "FBTTL": Column("memory_total_bytes", _mebibytes, 0.0, 2.0**30),
    "FBRSV": Column("memory_reserved_bytes", _mebibytes, 0.0, 2.0**30),
    "ESVTL": Column("ecc_corrected", round, 0.0, _COUNT),
    "EDVTL": Column("ecc_uncorrected", round, 0.0, _COUNT),
    "GRACT": Column("graphics_active_pct", _percent, 0.0, 8.0),
    "SMACT": Column("sm_active_pct", _percent, 0.0, 8.0),
    "SMOCC": Column("sm_occupancy_pct", _percent, 0.0, 8.0),
    "TENSO": Column("tensor_active_pct", _percent, 0.0, 8.0),
    "DRAMA": Column("dram_active_pct", _percent, 0.0, 8.0),
    "FP64A": Column("fp64_active_pct", _percent, 0.0, 8.0),
    "FP32A": Column("fp32_active_pct", _percent, 0.0, 8.0),
    "PCITX": Column("pcie_tx_bytes_per_s", _same, 0.0, 1e12),
    "PCIRX": Column("pcie_rx_bytes_per_s", _same, 0.0, 1e12),
    "NVLTX": Column("nvlink_tx_bytes_per_s", _same, 0.0, 1e13),
    "NVLRX": Column("nvlink_rx_bytes_per_s", _same, 0.0, 1e13),
}
_ENTITIES = frozenset({"GPU", "GPU-I", "GPU-CI", "GPU/GI", "Switch", "CPU", "Link"})
_NAMES_MAX = 64


class DcgmiDmonReader:
    """Rows of all GPUs that follow each other are one reading; rows of MIG instances do not say whose they are."""

    kind: ClassVar[str] = "dcgmi-dmon"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._clock = Clock()
        self._names: list[str] = []
        self._cells: list[Cells] = []
        self._gpus: dict[int, dict[str, Any]] = {}
        self._time_s: float | None = None

    def starts(self, line: str) -> bool:
        """The title, or a row under the title of before."""
        words = line.split()
        if _title_of(line) is not None or (len(words) == len(self._names) + 2 > 2 and words[0] == "GPU"):
            return True
        self._clock.hear(line)
        return False

    def take(self, line: str) -> bool:
        """Read a title, its second line, or a row."""
        words = line.split()
        if not words or words[0] in {"ID", "Id"}:
            return True
        names = _title_of(line)
        if names is not None:
            if names != self._names:
                self._flush()
                self._names = names
                columns = ((at, COLUMNS.get(name)) for at, name in enumerate(names, 2))
                self._cells = [Cells(at, column) for at, column in columns if column is not None]
            return True
        if words[0] not in _ENTITIES or len(words) < 2:
            return False
        index = index_of(words[1])
        if words[0] == "GPU" and index is not None:
            if len(words) != len(self._names) + 2:
                self._leave_out(f"a damaged row: {len(words) - 2} values where the title has {len(self._names)}")
            else:
                self._add(index, words)
        return True

    def end(self) -> None:
        """Give the last moment."""
        self._flush()

    def _add(self, index: int, words: list[str]) -> None:
        try:
            facts = {one.field: value for one in self._cells if (value := one.read(words)) is not None}
        except OutOfRangeError as error:
            self._leave_out(f"a damaged row: {error}")
            return
        if index in self._gpus:
            self._flush()
        if not self._gpus:
            self._time_s = self._clock.said()
        self._gpus[index] = facts

    def _flush(self) -> None:
        if self._gpus:
            gpus = tuple((Place(index=index), facts) for index, facts in self._gpus.items())
            self._give(Reading(time_s=self._time_s, gpus=gpus, interval_s=INTERVAL_S))
            self._gpus = {}


def _title_of(line: str) -> list[str] | None:
    if not line.lstrip().startswith(("#Entity", "# Entity")):
        return None
    names = line.lstrip("# \t").split()[1 : _NAMES_MAX + 1]
    return names if any(name in COLUMNS for name in names) else None
