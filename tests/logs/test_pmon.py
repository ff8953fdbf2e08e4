"""``nvidia-smi pmon``."""

from __future__ import annotations

import pytest

from gpumon.logs.pmon import PmonReader
from gpumon.logs.reading import Place, Reading, Use
from gpumon.model import Gpu, Process, Snapshot
from tests.logs.feeding import feed
from tests.logs.samples.pmon import HEADLESS, OLD_MEMORY, USUAL, WITH_MEMORY
from tests.logs.writers import pmon as writer

MIB = 1024**2
TEN = 1_772_359_200.0
"""2026-03-01 10:00:00, as written."""


def read(text: str) -> list[Reading]:
    readings, left_out, others = feed(PmonReader, text)
    assert (left_out, others) == ([], [])
    return readings


def test_a_round_over_the_gpus_is_one_reading() -> None:
    first, second = read(USUAL)
    assert first.is_complete_process_list
    assert [place for place, _ in first.gpus] == [Place(0), Place(1)]
    assert first.uses == (
        Use(4100, Place(0), None, 93.0, {"name": "python3"}),
        Use(4101, Place(0), None, None, {"name": "Xorg", "role": "other"}),
    )
    assert second.uses[-1] == Use(4200, Place(1), None, 5.0, {"name": "NVIDIA Share.exe"})
    assert (second.time_s, second.interval_s) == (None, 1.0)


def test_memory_and_times() -> None:
    first, second = read(WITH_MEMORY)
    assert (first.time_s, second.time_s) == (TEN, TEN + 2.0)
    assert [(use.pid, use.memory_bytes, use.facts["name"]) for use in first.uses] == [
        (4100, 20480 * MIB, "python3"),
        (4102, 512 * MIB, "my tool"),
    ]
    assert len(second.uses) == 1


def test_old_columns() -> None:
    (reading,) = read(OLD_MEMORY)
    assert reading.uses == (Use(38148, Place(1), 284 * MIB, None, {"name": "train"}),)


def test_rows_without_a_title() -> None:
    assert [one.uses[0].sm_pct for one in read(HEADLESS)] == [93.0, 90.0]


def test_processes_that_come_and_go() -> None:
    rows = [
        "    0        100     C     10      1      -      -      -      -    one",
        "    0        200     C     10      1      -      -      -      -    two",
        "    0        200     C     10      1      -      -      -      -    two",
        "    0        150     C     10      1      -      -      -      -    three",
    ]
    assert [[use.pid for use in one.uses] for one in read("\n".join(rows))] == [[100, 200], [200], [150]]


@pytest.mark.parametrize(
    "line",
    [
        "    0       4100     C",
        "    0          x     C     93     40      -      -      -      -    python3",
        "  300 C",
        "   0   4100   C   python train.py",
        "1 2 C 3",
    ],
)
def test_other_lines_are_not_guessed(line: str) -> None:
    assert feed(PmonReader, line).others == [line]


@pytest.mark.parametrize(
    "row",
    [
        "    0       4100     C     93",
        "    0 99999999999     C     93     40      -      -      -      -    python3",
        "    0       4100     C    930     40      -      -      -      -    python3",
    ],
)
def test_a_damaged_row_is_named_and_the_rest_is_read(row: str) -> None:
    lines = USUAL.rstrip("\n").split("\n")
    fed = feed(PmonReader, "\n".join([*lines[:2], row, *lines[2:]]))
    assert len(fed.readings) == 2
    assert len(fed.left_out) == 1


def test_what_is_written_is_read_back() -> None:
    gpu = Gpu(uuid="GPU-0", index=0)
    process = Process(pid=7, name="python", gpu_memory_bytes={"GPU-0": 4096 * MIB}, gpu_sm_pct={"GPU-0": 88.0})
    snapshots = [Snapshot(time_s=TEN + second, gpus=(gpu,), processes=(process,)) for second in range(3)]
    readings = read(writer.log([*snapshots, Snapshot(time_s=TEN + 3, gpus=(gpu,))]))
    assert [one.uses for one in readings] == [(Use(7, Place(0), 4096 * MIB, 88.0, {"name": "python"}),)] * 3 + [()]
