"""Traces: what is written reads back, any field may be missing, and a broken part never loses the rest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpumon import trace
from gpumon.errors import UsageError
from gpumon.model import Snapshot
from gpumon.sources.demo import simulate

HEADER = '{"gpumon_trace": 1}'


def written(tmp_path: Path, *lines: Any, header: str = HEADER) -> Path:
    """A trace of these lines; anything but a string is written as JSON."""
    path = tmp_path / "trace.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join([header, *texts]) + "\n", encoding="utf-8", errors="surrogatepass")
    return path


def read(path: Path) -> tuple[list[Snapshot], list[trace.Unread]]:
    """Everything in the file."""
    opened = trace.Trace(path)
    snapshots = list(opened)
    opened.close()
    return snapshots, opened.unread


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_trace_reads_back_as_it_was_written(tmp_path: Path, name: str) -> None:
    """Writing and reading are inverse, compressed or not."""
    snapshots = list(simulate("throttled", 20)) + list(simulate("mig", 5, start_s=1_796_126_500))[1:]
    trace.write(tmp_path / name, snapshots, host="node07")
    opened = trace.Trace(tmp_path / name)
    assert list(opened) == snapshots
    assert opened.header["host"] == "node07"
    assert not opened.unread


def test_null_and_absent_are_the_same(tmp_path: Path) -> None:
    """Every field may be null; an unknown one is ignored."""
    full = {
        "time_s": 100.0,
        "interval_s": None,
        "gpus": [{"index": 0, "uuid": "GPU-a", "power_w": None, "utilization_samples_pct": None, "new_field": 3}],
        "processes": None,
        "host": None,
        "ranks": None,
        "events": None,
        "new": {"a": 1},
    }
    snapshots, unread = read(written(tmp_path, full, {"time_s": 101.0, "gpus": [{"index": 0, "uuid": "GPU-a"}]}))
    assert snapshots[0].gpus == snapshots[1].gpus
    assert not unread


def test_a_process_whose_memory_is_not_named_still_holds_the_gpu(tmp_path: Path) -> None:
    """A null in the map of GPU memory is information and stays."""
    row = {"time_s": 1.0, "interval_s": None, "processes": [{"pid": 7, "gpu_memory_bytes": {"GPU-a": None}}]}
    snapshots, _ = read(written(tmp_path, row))
    assert snapshots[0].processes[0].gpu_memory_bytes == {"GPU-a": None}


def test_a_gpu_without_uuid_is_known_by_bus_then_index(tmp_path: Path) -> None:
    """The identity falls back to bus id, then index; neither is passed off as a UUID."""
    row = {"time_s": 1.0, "gpus": [{"index": 3, "pci_bus_id": "0000:01:00.0"}, {"index": 4}, {"uuid": None}]}
    snapshots, _ = read(written(tmp_path, row))
    assert [gpu.uuid for gpu in snapshots[0].gpus] == ["bus:0000:01:00.0", "index:4", "index:2"]
    assert [trace.public_uuid(gpu.uuid) for gpu in snapshots[0].gpus] == [None, None, None]


@pytest.mark.parametrize(
    ("broken", "because"),
    [
        ("{not json", "not JSON"),
        ('{"time_s": NaN}', "without time_s"),
        ('{"time_s": 1e999}', "without time_s"),
        ("[" * 100_000, "not JSON"),
        ('{"time_s": 3.0, "gpus": [', "not JSON"),
        ("[1, 2]", "not a snapshot"),
        ('{"gpus": []}', "without time_s"),
        ('{"time_s": "noon"}', "without time_s"),
        ('{"time_s": true}', "without time_s"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_is_read(tmp_path: Path, broken: str, because: str) -> None:
    """A line that is no snapshot is left out with its number and the reason."""
    snapshots, unread = read(written(tmp_path, {"time_s": 1.0}, broken, {"time_s": 2.0, "interval_s": 1.0}))
    assert [snapshot.time_s for snapshot in snapshots] == [1.0, 2.0]
    assert [part.line for part in unread] == [3]
    assert because in unread[0].because


def test_a_broken_record_does_not_lose_its_snapshot(tmp_path: Path) -> None:
    """One GPU with a field of the wrong type is left out; its neighbours, processes and host stay."""
    row = {
        "time_s": 1.0,
        "gpus": [{"index": 0, "uuid": "GPU-a", "power_w": "lots"}, {"index": 1, "uuid": "GPU-b", "power_w": 5}],
        "processes": [{"pid": 7}, {"pid": "x"}, 3],
        "host": {"name": "n"},
    }
    snapshots, unread = read(written(tmp_path, row))
    assert [gpu.uuid for gpu in snapshots[0].gpus] == ["GPU-b"]
    assert [process.pid for process in snapshots[0].processes] == [7]
    assert snapshots[0].host.name == "n"
    assert [part.because.split(":")[0] for part in unread] == ["gpu", "process", "process"]


def test_missing_and_negative_intervals_follow_the_wall_clock(tmp_path: Path) -> None:
    """Without an interval the clock's difference serves; where the clock went back, the usual interval does."""
    rows = [{"time_s": time_s} for time_s in (100.0, 102.0, 104.0, 50.0, 52.0)] + [{"time_s": 54.0, "interval_s": -1}]
    snapshots, _ = read(written(tmp_path, *rows))
    assert [snapshot.interval_s for snapshot in snapshots] == [None, 2.0, 2.0, 2.0, 2.0, 2.0]


def test_strings_are_cleaned(tmp_path: Path) -> None:
    """Terminal controls in any string, keys of maps included, do not survive reading."""
    row = {
        "time_s": 1.0,
        "host": {"name": "\x1b]0;PWN\x07"},
        "processes": [{"pid": 1, "command": "a\x1b[2Jb\u202e", "environment": {"\x9bA": "\udc9b"}}],
    }
    snapshots, unread = read(written(tmp_path, json.dumps(row)))
    shown = repr(snapshots)
    assert not unread
    assert not any(character in shown for character in ("\\x1b", "\\x9b", "\\u202e", "\\udc9b", "\\x07"))


def test_a_compressed_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    """The snapshots before the cut are read and the cut is named."""
    whole = gzip.compress(b"\n".join([HEADER.encode(), *(b'{"time_s": %d}' % i for i in range(20_000))]))
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[: len(whole) // 2])
    snapshots, unread = read(path)
    assert 100 < len(snapshots) < 20_000
    assert "ends early" in unread[-1].because


def test_what_is_no_number_is_missing(tmp_path: Path) -> None:
    """NaN and infinity are read as not reported."""
    line = '{"time_s": 1.0, "gpus": [{"index": 0, "uuid": "a", "power_w": NaN, "temperature_c": 1e999, "fan_pct": 4}]}'
    snapshots, unread = read(written(tmp_path, line))
    gpu = snapshots[0].gpus[0]
    assert (gpu.power_w, gpu.temperature_c, gpu.fan_pct) == (None, None, 4.0)
    assert not unread


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not recognised; expected a gpumon trace"),
        (b"hello\n", "not recognised; expected a gpumon trace"),
        (b"[]\n", "not recognised; expected a gpumon trace"),
        (b'{"gpumon_trace": 99}\n', "trace version 99 is not known"),
        (b"\x1f\x8bgarbage", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    """The refusal names the file and what was expected."""
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.log: ") as raised:
        trace.Trace(path)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is named."""
    with pytest.raises(UsageError, match=r"nothing\.jsonl: cannot be read: No such file"):
        trace.Trace(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_trace_that_grows_can_be_read_at_any_time(tmp_path: Path, name: str) -> None:
    """Before it is complete, too; complete, it is what was appended."""
    snapshots = list(simulate("throttled", 5))
    writer = trace.Writer(tmp_path / name)
    for count, snapshot in enumerate(snapshots, 1):
        writer.append(snapshot)
        assert read(tmp_path / name)[0] == snapshots[:count]
    writer.close()
    assert read(tmp_path / name) == (snapshots, [])


def test_a_trace_that_grows_writes_over_nothing_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    trace.Writer(path).close()
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="is there already"):
        trace.Writer(path)
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        trace.Writer(tmp_path / "missing" / "run.jsonl")
    other = trace.Writer(tmp_path / "other")
    other.discard()
    assert not (tmp_path / "other").exists()
