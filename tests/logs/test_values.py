"""Numbers, sizes, bus ids and times as logs write them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.logs import values

MIB = 1024**2


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("97 %", 97.0),
        (" 97", 97.0),
        ("71.50 W", 71.5),
        ("71,50 W", 71.5),
        ("71,5", 71.5),
        ("1 234", 1234.0),
        ("16,384 MiB", 16384.0),
        ("1,234,567", 1234567.0),
        ("1.5e3", 1500.0),
        ("50C", 50.0),
        ("450W / 500W", 450.0),
        ("-3", -3.0),
        ("0", 0.0),
        ("[N/A]", None),
        ("N/A", None),
        ("[Not Supported]", None),
        ("[Unknown Error]", None),
        ("ERR!", None),
        ("-", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("9" * 5000, None),
        ("9223372036854775794", None),
        ("18446744073709551615", None),
        ("2147483632", None),
        ("140737488355328", None),
        ("Requested functionality has been deprecated", None),
    ],
)
def test_numbers(cell: str, wanted: float | None) -> None:
    """A number with whatever unit; words and blanks for "no value" are unknown, never 0."""
    assert values.number(cell) == wanted


@pytest.mark.parametrize(
    ("cell", "unit", "wanted"),
    [
        ("16384 MiB", "MiB", 16384 * MIB),
        ("16384MiB", "MiB", 16384 * MIB),
        ("16384", "MiB", 16384 * MIB),
        ("23.69 GiB", "MiB", round(23.69 * 1024 * MIB)),
        ("512 KiB", "MiB", 512 * 1024),
        ("1024 bytes", "MiB", 1024),
        ("1024", "B", 1024),
        ("2 GB", "MiB", 2048 * MIB),
        ("[N/A]", "MiB", None),
        ("-1 MiB", "MiB", None),
    ],
)
def test_sizes(cell: str, unit: str, wanted: int | None) -> None:
    """Binary units whatever they are called, as the driver and PyTorch mean them."""
    assert values.byte_count(cell, unit) == wanted


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("00000000:3B:00.0", "00000000:3b:00.0"),
        ("0000:3b:00.0", "00000000:3b:00.0"),
        ("PCI:0000:3b:00", "00000000:3b:00.0"),
        ("3b:00.0", "00000000:3b:00.0"),
        ("GPU0000:0A:00.0", "00000000:0a:00.0"),
        ("GPU 00000000:3B:00.0", "00000000:3b:00.0"),
        ("3E3F8E05:00:00.0", "3e3f8e05:00:00.0"),
        ("0009:01:00.0", "00000009:01:00.0"),
        ("N/A", None),
        ("12:34:56 and more", None),
        ("", None),
    ],
)
def test_bus_ids(cell: str, wanted: str | None) -> None:
    """One form for all, with the domain whole: on some clouds only the domain differs."""
    assert values.bus_id(cell) == wanted


def utc(*parts: int, microsecond: int = 0) -> float:
    return datetime(*parts, microsecond=microsecond, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "wanted", "has_zone"),
    [
        ("2025/06/21 12:34:56.789", utc(2025, 6, 21, 12, 34, 56, microsecond=789000), False),
        ("2025-06-21T12:34:56Z", utc(2025, 6, 21, 12, 34, 56), True),
        ("2025-06-21T12:34:56+02:00", utc(2025, 6, 21, 10, 34, 56), True),
        ("2025-06-21 12:34:56,500", utc(2025, 6, 21, 12, 34, 56, microsecond=500000), False),
        ("Mon Jun  3 12:00:00 2024", utc(2024, 6, 3, 12), False),
        ("Fri Jun 21 12:34:56 CEST 2025", utc(2025, 6, 21, 12, 34, 56), False),
        ("Fri Jun 21 12:34:56 UTC 2025", utc(2025, 6, 21, 12, 34, 56), True),
        ("Fri 21 Jun 2025 12:34:56 PM CEST", utc(2025, 6, 21, 12, 34, 56), False),
        ("Sat Jun 21 12:04:56 AM 2025", utc(2025, 6, 21, 0, 4, 56), False),
        ("2025/13/41 12:34:56", None, False),
        ("0000-00-00 00:00:00", None, False),
        ("no time at all", None, False),
    ],
)
def test_times(text: str, wanted: float | None, has_zone: bool) -> None:
    """The forms that the tools print; without a zone they are taken as they stand."""
    assert values.moment(text) == (None if wanted is None else pytest.approx(wanted))
    assert not has_zone or values.has_zone(text)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)))  # noqa: DTZ001 - strategies want naive bounds
def test_every_moment_survives_writing(moment: datetime) -> None:
    """nvidia-smi's form keeps milliseconds."""
    text = moment.strftime("%Y/%m/%d %H:%M:%S.") + f"{moment.microsecond // 1000:03d}"
    read = values.moment(text)
    assert read is not None
    written = moment.replace(tzinfo=timezone.utc)
    assert abs(read - written.timestamp()) < timedelta(milliseconds=1.01).total_seconds()


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    """Whatever stands in a cell, the answer is a value or None."""
    for read in (values.number, values.integer, values.byte_count, values.bus_id, values.moment, values.is_missing):
        read(text)


@pytest.mark.parametrize("text", ["a" * 100_000, "aaaa!" * 20_000, " " * 100_000, "1" * 100_000, "1,1" * 30_000])
def test_long_cells_take_no_time(text: str) -> None:
    """No pattern takes more than linear time."""
    began_s = time.process_time()
    for read in (values.number, values.byte_count, values.bus_id, values.moment, values.is_missing):
        read(text)
    assert time.process_time() - began_s < 0.05
