"""Writes snapshots as ``nvidia-smi dmon -s pucvmet -o DT`` prints them, without the columns that nobody asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from gpumon.model import Gpu, Snapshot

_MIB = 1024**2
_COLUMNS = (
    ("pwr", "W"),
    ("gtemp", "C"),
    ("mtemp", "C"),
    ("sm", "%"),
    ("mem", "%"),
    ("enc", "%"),
    ("dec", "%"),
    ("mclk", "MHz"),
    ("pclk", "MHz"),
    ("pviol", "%"),
    ("tviol", "%"),
    ("fb", "MB"),
    ("sbecc", "errs"),
    ("dbecc", "errs"),
    ("pci", "errs"),
    ("rxpci", "MB/s"),
    ("txpci", "MB/s"),
)
_REPEATED = 10


def log(snapshots: Iterable[Snapshot]) -> str:
    """All rows, with the title again and again."""
    return "".join(_lines(snapshots))


def _lines(snapshots: Iterable[Snapshot]) -> Iterator[str]:
    title = "#Date        Time         gpu" + "".join(f"{name:>7}" for name, _ in _COLUMNS)
    units = "#YYYYMMDD    HH:MM:SS     Idx" + "".join(f"{unit:>7}" for _, unit in _COLUMNS)
    for number, snapshot in enumerate(snapshots):
        if number % _REPEATED == 0:
            yield f"{title} \n{units} \n"
        when = datetime.fromtimestamp(snapshot.time_s, tz=timezone.utc)
        for gpu in snapshot.gpus:
            if gpu.mig_parent_uuid is None and not gpu.is_lost:
                cells = "".join(f"{cell:>7}" for cell in _cells(gpu))
                yield f" {when:%Y%m%d}    {when:%H:%M:%S}     {gpu.index:>3}{cells} \n"


def _cells(gpu: Gpu) -> Iterator[str]:
    throttled = gpu.throttled_pct or {}
    for value, unit in (
        (gpu.power_w, 1.0),
        (gpu.temperature_c, 1.0),
        (gpu.memory_temperature_c, 1.0),
        (gpu.utilization_pct, 1.0),
        (gpu.memory_utilization_pct, 1.0),
        (gpu.encoder_pct, 1.0),
        (gpu.decoder_pct, 1.0),
        (gpu.memory_clock_mhz, 1.0),
        (gpu.sm_clock_mhz, 1.0),
        (throttled.get("sw_power_cap"), 1.0),
        (throttled.get("sw_thermal"), 1.0),
        (gpu.memory_used_bytes, _MIB),
        (gpu.ecc_corrected, 1.0),
        (gpu.ecc_uncorrected, 1.0),
        (gpu.pcie_replays, 1.0),
        (gpu.pcie_rx_bytes_per_s, 1e6),
        (gpu.pcie_tx_bytes_per_s, 1e6),
    ):
        yield "-" if value is None else f"{value / unit:.0f}"
