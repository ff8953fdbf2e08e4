"""Tables of PyTorch's allocator: all versions, abbreviated, cut, of several GPUs; and what people print instead."""

from __future__ import annotations

from pathlib import Path

from gpumon.diagnosis import diagnose
from gpumon.logs.log import Log
from gpumon.logs.memory_summary import MemorySummary
from gpumon.monitor import Monitor
from gpumon.opened import Opened
from gpumon.sources.demo import simulate
from tests import builders
from tests.logs.feeding import feed
from tests.logs.samples import torch_log as samples
from tests.logs.writers import torch_log as writer

GIB = 1024**3
MIB = 1024**2


def tables(text: str) -> list[tuple[int | None, dict[str, float]]]:
    return [
        (None if place is None else place.index, dict(facts["values"]))
        for reading in feed(MemorySummary, text).readings
        for place, facts in reading.events
    ]


def said(tmp_path: Path, text: str) -> list[tuple[str, str, str | None]]:
    path = tmp_path / "table.txt"
    path.write_text(text, encoding="utf-8")
    found = diagnose(Log([Opened(path)]), kind="torch-log")
    return [(one.finding.rule, one.finding.severity, one.finding.cause) for one in found.alerts]


def test_a_table() -> None:
    ((index, found),) = tables(samples.TABLE)
    assert index == 1
    assert found["ooms"] == 1
    assert found["alloc_retries"] == 14
    assert found["allocated_peak_bytes"] == 6 * GIB
    assert found["reserved_bytes"] == 14 * GIB
    assert found["inactive_split_bytes"] == 3 * GIB


def test_several_tables_are_several() -> None:
    assert [index for index, _ in tables(samples.TABLE + samples.TABLE_OLD + samples.TABLE)] == [1, 0, 1]


def test_old_units_are_powers_of_two() -> None:
    ((_, found),) = tables(samples.TABLE_OLD)
    assert found["reserved_bytes"] == 8 * GIB
    assert found["inactive_split_bytes"] == 100 * MIB


def test_a_table_without_its_head() -> None:
    """As people paste it: only the rows."""
    rows = "\n".join(line for line in samples.TABLE.splitlines() if "reserved memory" in line or "---" in line)
    ((index, found),) = tables(rows)
    assert index is None
    assert found == {"reserved_bytes": 14 * GIB, "reserved_peak_bytes": 15 * GIB}


def test_every_rank_prefixes_its_rows() -> None:
    text = "".join(f"[rank2]: {line}\n" for line in samples.TABLE.splitlines())
    ((index, found),) = tables(text)
    assert (index, found["rank"]) == (1, 2.0)


def test_what_follows_a_table_is_not_its() -> None:
    assert feed(MemorySummary, samples.TABLE + "step 3 loss 1.2\n").others[1:] == ["step 3 loss 1.2"]


def test_a_table_of_something_else_is_none() -> None:
    other = "| Allocations | by whom |\n|------|-----|\n| Allocated memory | see below |\n| from large pool | none |\n"
    assert tables(other) == []


def test_a_row_without_sizes_is_left_out() -> None:
    fed = feed(MemorySummary, samples.TABLE.replace("14336 MiB |  15360 MiB", "14336 |  15360"))
    assert fed.left_out == []
    fed = feed(MemorySummary, "| GPU reserved memory   | 1 | 2 | 3 | 4 |\n")
    assert fed.left_out == ["GPU reserved memory: no size"]


def test_two_printed_lines() -> None:
    assert tables(samples.PRINTED) == [(None, {"allocated_bytes": round(3.1 * GIB), "reserved_bytes": 17.25 * GIB})]


def test_what_the_rules_make_of_it(tmp_path: Path) -> None:
    """Out of memory with a fifth in pieces; a healthy table says nothing; the cache of a peak is no leak."""
    assert said(tmp_path, samples.TABLE) == [("fragmentation", "warning", "pieces")]
    assert said(tmp_path, samples.TABLE_OLD) == []
    assert said(tmp_path, samples.PRINTED) == [("fragmentation", "info", "cache-of-a-peak")]


def test_a_written_table_reads_back() -> None:
    gpu = builders.gpu(2)
    rank = builders.rank(gpu_uuid=gpu.uuid, alloc_retries=3, ooms=0)
    text = writer.memory_summary([builders.snapshot(builders.NOON, [gpu], ranks=[rank])])
    ((index, found),) = tables(text)
    assert index == 2
    assert found["alloc_retries"] == 3
    assert found["reserved_bytes"] == rank.reserved_bytes
    assert found["allocated_peak_bytes"] == rank.allocated_peak_bytes
    assert found["inactive_split_bytes"] == rank.inactive_split_bytes


def test_the_fragmented_demo_printed_as_a_table_has_the_same_headline(tmp_path: Path) -> None:
    """What the probe tells of the allocator, on paper."""
    snapshots = tuple(simulate("fragmented", 600))
    monitor = Monitor()
    for snapshot in snapshots:
        _, alerts, _, _ = monitor.take(snapshot)
    first = alerts[0].finding
    assert said(tmp_path, writer.memory_summary(snapshots)) == [(first.rule, first.severity, "pieces")]
