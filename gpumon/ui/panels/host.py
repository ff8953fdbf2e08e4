"""The machine in two rows: what might starve or stall the GPUs from outside."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Host
from gpumon.monitor import Frame
from gpumon.ui.panels.charts import Charts
from gpumon.ui.panels.line import fill, section, width_of
from gpumon.ui.row import Piece, Row
from gpumon.window import HOST_KEY

FULL_PCT = 90.0
"""Of RAM or /dev/shm: from here on the number is bold."""


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
    spark = 30 if width >= 160 else 20 if width >= 110 else 10
    fields = [(rank, pieces) for rank, pieces in _fields(host, charts, spark) if pieces]
    gap = 3 if width >= 110 else 2
    while fields and _width(fields, gap) > width - 1:
        fields.remove(max(fields, key=lambda field: field[0]))
    row: list[Piece] = [(" ", "")]
    for number, (_, pieces) in enumerate(fields):
        row += [(" " * gap, "")] if number else []
        row += pieces
    return fill(row, width)


def _width(fields: list[tuple[int, list[Piece]]], gap: int) -> int:
    return sum(width_of(pieces) for _, pieces in fields) + gap * (len(fields) - 1) + 1


def _fields(host: Host, charts: Charts, spark: int) -> list[tuple[int, list[Piece]]]:
    """Each with its rank: 0 stays longest."""
    (cpu_chart,) = charts.spark(HOST_KEY, "cpu_pct", spark, (0.0, 100.0), "temperature")
    ram = _ram(host)
    shm = _share(host.shm_used_bytes, host.shm_total_bytes)
    swap = "–" if host.swap_used_bytes is None else _swap(host.swap_used_bytes)
    return [
        (0, [("CPU ", "muted"), (f"{units.number(host.cpu_pct, 3)}%", "")]),
        (5, list(cpu_chart)),
        (1, [("RAM ", "muted"), (ram, ""), (" G", "muted")]),
        (4, [("swap ", "muted"), (swap.ljust(3), "")]),
        (2, [("disk R ", "muted"), (units.rate(host.disk_read_bytes_per_s), ""), ("  W ", "muted"),
             (units.rate(host.disk_write_bytes_per_s), "")]),
        (6, [("net ", "muted"), (units.rate(_network(host)), "")]),
        (3, [("shm ", "muted"), (f"{units.number(shm, 2)}%", "bold" if shm is not None and shm >= FULL_PCT else "")]),
    ]  # fmt: skip


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
