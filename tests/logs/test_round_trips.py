"""A simulated run, written as other tools would have logged it and read back, leads to the same headline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon import trace
from gpumon.commands.inputs import Input
from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.model import Snapshot
from gpumon.sources.demo import simulate
from tests.logs.writers import (
    dmon,
    kernel_log,
    nvidia_smi_csv,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_xml,
    pmon,
    prometheus_text,
)

Write = Callable[[Sequence[Snapshot]], tuple[str, ...]]
FORMATS: Mapping[str, Write] = {
    "table": lambda run: (nvidia_smi_table.write(run),),
    "q": lambda run: (nvidia_smi_q.write(run),),
    "xml": lambda run: (nvidia_smi_xml.write(run),),
    "csv": lambda run: (nvidia_smi_csv.log(run),),
    "dmon": lambda run: (dmon.log(run),),
    "dmon and pmon": lambda run: (dmon.log(run), pmon.log(run)),
    "prometheus": lambda run: (prometheus_text.log(run),),
}
"""Each may write several files of one machine."""


class Run(NamedTuple):
    """What is simulated; as short and as coarse as still shows the trouble."""

    seconds: float
    interval_s: float
    gpus: int | None = None
    at_s: float = 0.0


RUNS = {
    "healthy": Run(150, 2.0),
    "input-bound": Run(300, 1.0, at_s=200.0),
    "throttled": Run(250, 2.0, gpus=2, at_s=200.0),
    "leaking": Run(735, 3.0, at_s=500.0),  # nearly full at its end
    "fragmented": Run(900, 2.0),
    "hang": Run(600, 2.5, gpus=3),
    "straggler": Run(250, 2.0, gpus=2, at_s=200.0),
    "lost-gpu": Run(600, 3.0, gpus=3),
    "idle": Run(600, 5.0, gpus=2),
    "first-epoch": Run(600, 1.0),
    "cpu-contention": Run(250, 1.0, at_s=200.0),
    "disk-bound": Run(300, 1.0, at_s=200.0),
    "mig": Run(250, 2.0, at_s=200.0),
    "no-gpm": Run(150, 2.0, gpus=1, at_s=200.0),
    "many": Run(120, 2.0, gpus=2),
}

_NO_TOTAL = "dmon names no total memory, so nobody knows that it is nearly full"
_NO_INSTANCES = "no use of a MIG instance"
EXCEPTIONS: Mapping[tuple[str, str], tuple[str | None, str]] = {
    ("throttled", "table"): (None, "a table has neither clocks nor the names of what limits them"),
    ("leaking", "dmon"): (None, _NO_TOTAL),
    ("leaking", "dmon and pmon"): (None, _NO_TOTAL),
    ("fragmented", "dmon"): (None, _NO_TOTAL),
    ("fragmented", "dmon and pmon"): (None, _NO_TOTAL),
    ("lost-gpu", "dmon"): ("collective-hang", "dmon leaves a lost GPU out without a word; the others wait for it"),
    ("lost-gpu", "dmon and pmon"): ("collective-hang", "as dmon alone; with processes it is surer"),
    **{("mig", name): (None, _NO_INSTANCES) for name in FORMATS if name != "prometheus"},
}
"""What a format alone supports, where it cannot carry the evidence, and why."""


@lru_cache(maxsize=len(RUNS))
def simulated(scenario: str) -> tuple[Snapshot, ...]:
    """Without the probe: no log of another tool carries what it tells."""
    run = RUNS[scenario]
    return tuple(
        simulate(scenario, run.seconds, interval_s=run.interval_s, gpus=run.gpus, at_s=run.at_s, seed=1, probe=False)
    )


def read(paths: Sequence[Path]) -> Diagnosis:
    source = Input(paths)
    found = source.told(diagnose(source, kind="mixed"))
    source.close()
    return found


@lru_cache(maxsize=len(RUNS))
def original(scenario: str, folder: Path) -> Diagnosis:
    path = folder / f"{scenario}.jsonl"
    trace.write(path, simulated(scenario))
    return read([path])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trips")


def rules(found: Diagnosis) -> list[str]:
    return [alert.finding.rule for alert in found.alerts]


def headline(found: Diagnosis) -> str | None:
    return next(iter(rules(found)), None)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("scenario", RUNS)
def test_the_headline_is_the_same(scenario: str, name: str, folder: Path) -> None:
    paths = [folder / f"{scenario} {name} {number}.log" for number in range(2)]
    texts = FORMATS[name](simulated(scenario))
    for path, text in zip(paths, texts, strict=False):
        path.write_text(text, encoding="utf-8")
    back, before = read(paths[: len(texts)]), original(scenario, folder)
    expected, _ = EXCEPTIONS.get((scenario, name), (headline(before), "it carries the evidence"))
    assert headline(back) == expected
    loud = {alert.finding.rule for alert in back.alerts if alert.finding.severity != "info"}
    assert loud <= {*rules(before), expected, "collective-hang" if scenario == "lost-gpu" else None}
    assert back.unread == ()
    if headline(back) is not None and (scenario, name) not in EXCEPTIONS:
        mine, theirs = back.alerts[0].finding.subject.gpu, before.alerts[0].finding.subject.gpu
        assert mine in {theirs, None}  # of all GPUs where it does not tell which one


def test_troubles_are_simulated(folder: Path) -> None:
    """The runs without a headline are those that have none."""
    quiet = {"healthy", "idle", "no-gpm", "many"}
    assert {scenario for scenario in RUNS if headline(original(scenario, folder)) is None} == quiet


@pytest.mark.parametrize("form", ["dmesg", "journalctl -o short-iso", "kern.log", "/dev/kmsg"])
def test_a_kernel_log_tells_of_a_lost_gpu(form: str, folder: Path) -> None:
    path = folder / "kernel.log"
    path.write_text(kernel_log.write(simulated("lost-gpu"), form), encoding="utf-8")
    (alert,) = read([path]).alerts
    before = original("lost-gpu", folder).alerts[0]
    assert (alert.finding.rule, alert.finding.severity) == (before.finding.rule, before.finding.severity)


def test_dmon_with_a_kernel_log_names_the_lost_gpu(folder: Path) -> None:
    """Several files of one machine tell more than each: the lost GPU is what its fellows wait for."""
    run, paths = simulated("lost-gpu"), [folder / "gpus.log", folder / "journal.log"]
    paths[0].write_text(dmon.log(run), encoding="utf-8")
    paths[1].write_text(kernel_log.write(run, "journalctl -o short-iso"), encoding="utf-8")
    assert headline(read(paths)) == "gpu-lost"
