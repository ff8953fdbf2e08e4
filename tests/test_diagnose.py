"""``gpumon diagnose``: the same findings as on the screen, as text, as JSON and as an exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gpumon import cli, trace
from gpumon.commands.diagnose import seconds_of
from gpumon.errors import UsageError
from gpumon.logs.log import EXPECTED
from gpumon.model import Snapshot
from gpumon.sources.demo import simulate

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command line; gives exit code, stdout and stderr."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GPUMON_CONFIG", raising=False)

    def go(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return go


def recorded(tmp_path: Path, snapshots: Iterable[Snapshot], name: str = "run.jsonl.gz") -> Path:
    """A trace file."""
    trace.write(tmp_path / name, snapshots)
    return tmp_path / name


def found(run: Run, *arguments: object) -> dict[str, Any]:
    """The JSON of a diagnosis."""
    _, out, err = run("diagnose", *arguments, "--json")
    assert not err
    result: dict[str, Any] = json.loads(out)
    return result


def test_a_throttled_run(run: Run, tmp_path: Path) -> None:
    """The finding has every part that scripts rely on, and the exit code says that something is wrong."""
    path = recorded(tmp_path, simulate("throttled", 600))
    code, _, _ = run("diagnose", path)
    report = found(run, path)
    first = report["findings"][0]
    assert code == 1
    assert (report["schema"], report["source"]) == (1, {"kind": "trace", "name": "run.jsonl.gz"})
    assert (report["start"], report["duration_s"], report["samples"]) == ("2026-12-01T12:00:00Z", 600.0, 601)
    assert [gpu["index"] for gpu in report["gpus"]] == list(range(8))
    assert (first["rule"], first["severity"], first["confidence"]) == ("sw-thermal", "critical", "certain")
    assert first["subject"]["kind"] == "gpu"
    assert first["subject"]["gpu"] == 5
    assert first["subject"]["uuid"] == report["gpus"][5]["uuid"]
    assert "2026-12-01T12:03:40Z" <= first["since"] <= "2026-12-01T12:05:00Z"
    assert first["until"] is None
    assert first["cost"]["lost_pct"] == pytest.approx(33, abs=3)
    assert {"name", "value", "unit"} <= set(first["evidence"][0])
    assert any("nvidia-smi -i 5 -pl" in fix for fix in first["fixes"])
    assert not [one for one in report["findings"][1:] if one["severity"] != "info"]


def test_a_healthy_run(run: Run, tmp_path: Path) -> None:
    """Nothing of warning or worse: exit code 0, and the text says so."""
    path = recorded(tmp_path, simulate("healthy", 600))
    code, out, _ = run("diagnose", path)
    assert code == 0
    assert "● HEALTHY" in out


def test_a_starved_run_names_its_cause(run: Run, tmp_path: Path) -> None:
    """The cause is a stable word, the fix is computed, and the text shows both."""
    path = recorded(tmp_path, simulate("input-bound", 600))
    first = found(run, path)["findings"][0]
    _, out, _ = run("diagnose", path)
    assert (first["rule"], first["cause"], first["confidence"]) == ("data-starved", "workers-saturated", "likely")
    assert "num_workers=8" in first["fixes"][0]
    assert "WARNING  GPU 0 waits for data" in out
    assert "num_workers=8" in out


def test_a_finding_that_ended_stays_with_its_end(run: Run, tmp_path: Path) -> None:
    """Trouble that is over is still told, with ``until``, and still counts."""
    snapshots = list(simulate("input-bound", 600))
    calm = [
        snapshot
        for snapshot in simulate("healthy", 400, start_s=snapshots[-1].time_s + 1)
        if snapshot.interval_s is not None
    ]
    code, _, _ = run("diagnose", path := recorded(tmp_path, [*snapshots, *calm]))
    ended = [one for one in found(run, path)["findings"] if one["rule"] == "data-starved"]
    assert code == 1
    assert len(ended) == 1
    assert ended[0]["since"] < ended[0]["until"]


def test_a_short_run_is_at_most_possible(run: Run, tmp_path: Path) -> None:
    """From 20 s on inferences are made, as ``possible``; below that they are not."""
    snapshots = list(simulate("input-bound", 30, at_s=400))
    first = found(run, recorded(tmp_path, snapshots))["findings"]
    assert [(one["rule"], one["confidence"]) for one in first] == [("data-starved", "possible")]
    assert found(run, recorded(tmp_path, snapshots[:15], "short.jsonl"))["findings"] == []


@pytest.mark.parametrize("scenario", ["healthy", "many", "no-gpm", "idle"])
@pytest.mark.parametrize("seconds", [25, 60])
def test_a_short_healthy_run_stays_healthy(run: Run, tmp_path: Path, scenario: str, seconds: int) -> None:
    """Rules with a longer window than the run, judged on what there is, find nothing where nothing is wrong."""
    path = recorded(tmp_path, simulate(scenario, seconds, at_s=300))
    assert run("diagnose", path)[0] == 0
    assert [one for one in found(run, path)["findings"] if one["severity"] != "info"] == []


def test_several_files_are_one_machine(run: Run, tmp_path: Path) -> None:
    """Parts of a run are merged by time, whatever their order on the command line."""
    snapshots = list(simulate("throttled", 600))
    first = recorded(tmp_path, snapshots[:300], "1.jsonl")
    second = recorded(tmp_path, snapshots[300:], "2.jsonl")
    report = found(run, second, first)
    assert report["samples"] == 601
    assert report["findings"][0]["rule"] == "sw-thermal"


def test_gaps_and_clock_steps_inside_a_trace(run: Run, tmp_path: Path) -> None:
    """Lost minutes and a clock that jumps change neither the diagnosis nor raise one."""
    healthy = list(simulate("healthy", 900))
    gapped = healthy[:300] + healthy[500:]
    assert found(run, recorded(tmp_path, gapped))["findings"] == []
    starved = list(simulate("input-bound", 600))
    rules = [one["rule"] for one in found(run, recorded(tmp_path, starved[::7]))["findings"]]
    assert rules == ["data-starved"]


def test_what_could_not_be_read_is_listed(run: Run, tmp_path: Path) -> None:
    """Broken lines are named in ``unread`` and in the text, and the rest is judged."""
    path = recorded(tmp_path, simulate("healthy", 60), "broken.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[10] = "garbage"
    path.write_text("\n".join(lines), encoding="utf-8")
    assert found(run, path)["unread"][0]["line"] == 11
    assert "not read    line 11" in run("diagnose", path)[1]


@pytest.mark.parametrize("content", ["", "nonsense\n", '{"gpumon_trace": 1}\n', '{"gpumon_trace": 1}\n{}\n'])
def test_unreadable_input_is_one_line_and_exit_2(run: Run, tmp_path: Path, content: str) -> None:
    """A file without a single snapshot is a usage error that names it."""
    path = tmp_path / "bad.jsonl"
    path.write_text(content, encoding="utf-8")
    code, out, err = run("diagnose", path)
    assert (code, out) == (2, "")
    assert err.startswith("gpumon: bad.jsonl: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("2m", 120), ("1h", 3600), ("45", 45), ("1.5 min", 90)])
def test_times(text: str, seconds: float) -> None:
    """Times are written with or without a unit."""
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", "99999h", "3 days", "1e9"])
def test_times_that_are_none(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(UsageError, match="write 30s, 2m or 1h"):
        seconds_of(text)


def test_for_is_for_watching(run: Run, tmp_path: Path) -> None:
    """--for together with a file is refused."""
    code, _, err = run("diagnose", recorded(tmp_path, simulate("healthy", 5)), "--for", "30s")
    assert code == 2
    assert "--for: watches live" in err


def test_times_since_boot(run: Run, tmp_path: Path) -> None:
    """A log that counts from the boot has no dates to show."""
    path = tmp_path / "dmesg.txt"
    path.write_text(
        "[171130.100000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
        "[171731.100000] nvme nvme0: 16/0/0 default/read/poll queues\n"
    )
    _, out, _ = run("diagnose", path)
    assert "times count from the boot: the input has no dates" in out
    assert "lost (fell off the bus, Xid 79) 47h32m after boot certain" in out
    assert found(run, path)["source"]["time_zone"] == "since-boot"
    path.write_text("2026-06-03T12:00:00+00:00 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen\n")
    assert "time_zone" not in found(run, path)["source"]


def test_what_is_expected_is_two_lines_of_text_at_most() -> None:
    assert len(EXPECTED) <= 210
