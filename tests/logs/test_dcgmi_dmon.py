"""``dcgmi dmon``."""

from __future__ import annotations

import pytest

from gpumon.logs.dcgmi_dmon import COLUMNS, DcgmiDmonReader
from gpumon.logs.reading import Place
from gpumon.model import Gpu
from tests.logs.feeding import feed
from tests.logs.samples.dcgmi_dmon import USUAL

MIB = 1024**2


def test_rows_that_follow_each_other_are_one_reading() -> None:
    fed = feed(DcgmiDmonReader, USUAL)
    assert (fed.left_out, fed.others) == ([], [])
    first, second = fed.readings
    assert dict(first.gpus)[Place(0)] == {
        "utilization_pct": 97.0,
        "memory_utilization_pct": 55.0,
        "power_w": 612.345,
        "energy_j": 455497.156,
        "temperature_c": 61.0,
        "memory_used_bytes": 61000 * MIB,
        "sm_active_pct": 91.2,
        "tensor_active_pct": pytest.approx(41.2),
        "pcie_rx_bytes_per_s": 45987793.0,
    }
    assert "sm_active_pct" not in dict(first.gpus)[Place(1)]
    assert (second.time_s, second.interval_s) == (None, 1.0)


def test_a_damaged_row_is_named_and_the_rest_is_read() -> None:
    lines = USUAL.split("\n")
    lines[3] = lines[3].replace("0            75.100", "75.100")
    fed = feed(DcgmiDmonReader, "\n".join(lines))
    assert [len(one.gpus) for one in fed.readings] == [1, 2]
    assert len(fed.left_out) == 1


def test_other_lines_do_not_begin_it() -> None:
    lines = ["#Entity name", "GPU 0: NVIDIA H100 (UUID: GPU-aaaa)", "GPU 0 97 55"]
    assert feed(DcgmiDmonReader, "\n".join(lines)).others == lines


def test_every_column_is_a_field_of_the_model() -> None:
    assert {column.field for column in COLUMNS.values()} <= set(Gpu.__struct_fields__)
