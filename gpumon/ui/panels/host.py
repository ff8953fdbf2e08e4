"""The machine in two rows: what might starve or stall the GPUs from outside."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Host
from gpumon.monitor import Frame
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.line import fill, section, width_of
from gpumon.ui.row import Piece, Row
from gpumon.window import HOST_KEY

SPARK_RANK = 5
FULL_PCT = 90.0
"""Of RAM or /dev/shm: from here on the number is bold."""


def spark_width(width: int) -> int:
    """Columns of the CPU's chart."""
    return 30 if width >= 160 else 20 if width >= 110 else 10


def host_rows(frame: Frame, charts: Charts, width: int) -> tuple[Row, Row]:
    """The section rule and the line of numbers."""
    host = frame.window.last.host
    size = []
    if host.cpu_count is not None:
        size.append(f"{host.cpu_count} cores")
    if host.socket_count is not None and host.socket_count > 1 and width >= 110:
        size[-1:] = [f"{size[-1]}, {host.socket_count} sockets"] if size else []
    if host.memory_total_bytes is not None:
        size.append(f"{units.gib(host.memory_total_bytes):.0f} GiB")
    return section("HOST", " · ".join(size), _pressure(host), width), _line(host, charts, width)


def _pressure(host: Host) -> str:
    """PSI, two digits each; nothing where the kernel does not keep it."""
    values = (("cpu", host.cpu_pressure_pct), ("io", host.io_pressure_pct), ("mem", host.memory_pressure_pct))
    if all(value is None for _, value in values):
        return ""
    return "pressure " + " ".join(f"{name} {units.number(value).ljust(2)}" for name, value in values).rstrip()


def _line(host: Host, charts: Charts, width: int) -> Row:
    """Fields in their order; those that do not fit are left out, the least telling first."""
    fields = _fields(host, charts, spark_width(width))
    gap = 3 if width >= 110 else 2
    row = _joined(fields, gap)
    while width_of(row) > width - 1 and len(fields) > 1:
        fields.remove(max(fields, key=lambda field: field[0]))
        row = _joined(fields, gap)
    return fill(row, width)


def _joined(fields: list[tuple[int, list[Piece]]], gap: int) -> list[Piece]:
    row: list[Piece] = [(" ", "")]
    for number, (rank, pieces) in enumerate(fields):
        row.append((" " * ((1 if rank == SPARK_RANK else gap) if number else 0), ""))
        row += pieces
    return row


def _fields(host: Host, charts: Charts, spark: int) -> list[tuple[int, list[Piece]]]:
    """Each with its rank: 0 stays longest."""
    (cpu_chart,) = charts.spark(HOST_KEY, "cpu_pct", spark, (0.0, 100.0), "temperature")
    ram = _ram(host)
    shm = _share(host.shm_used_bytes, host.shm_total_bytes)
    swap = "–" if host.swap_used_bytes is None else _swap(host.swap_used_bytes)
    return [
        (0, [("CPU ", "muted"), (_percent(host.cpu_pct, 3), "")]),
        (SPARK_RANK, list(cpu_chart)),
        (1, [("RAM ", "muted"), (ram, ""), (" G", "muted")]),
        (4, [("swap ", "muted"), (swap.ljust(3), "")]),
        (2, [("disk R ", "muted"), (units.rate(host.disk_read_bytes_per_s), ""), ("  W", "muted"),
             (_short_rate(host.disk_write_bytes_per_s), "")]),
        (6, [("net ", "muted"), (units.rate(_network(host)), "")]),
        (3, [("shm ", "muted"), (_percent(shm, 2), "bold" if shm is not None and shm >= FULL_PCT else "")]),
    ]  # fmt: skip


def _percent(value: float | None, digits: int) -> str:
    return units.MISSING.rjust(digits + 1) if value is None else f"{value:{digits}.0f}%"


def _short_rate(bytes_per_s: float | None) -> str:
    """Four cells, for the second rate in a field: `` 141`` M/s, ``1.2G``."""
    if bytes_per_s is None:
        return units.MISSING.rjust(4)
    value, unit = units.rate(bytes_per_s).split()
    return f"{value}G".rjust(4) if unit == "G/s" else value.rjust(4)


def _ram(host: Host) -> str:
    total = host.memory_total_bytes
    if total is None:
        return units.MISSING
    whole = f"{units.gib(total):.0f}"
    if host.memory_available_bytes is None:
        return f"{units.MISSING.rjust(len(whole))}/{whole}"
    return f"{units.gib(total - host.memory_available_bytes):.0f}".rjust(len(whole)) + f"/{whole}"


def _swap(used_bytes: int) -> str:
    used = units.gib(used_bytes)
    return "0" if used < 0.05 else f"{used:.1f}" if used < 9.95 else f"{used:.0f}"


def _share(used: int | None, total: int | None) -> float | None:
    return None if used is None or not total else 100.0 * used / total


def _network(host: Host) -> float | None:
    """Both directions together."""
    known = [rate for rate in (host.net_rx_bytes_per_s, host.net_tx_bytes_per_s) if rate is not None]
    return sum(known) if known else None
