"""Real frameworks on the CPU, each in its own environment: what the probe sees of them, against what they count.

    python -m pytest -m torch tests/probe

with ``GPUMON_TRAINING_PYTHONS=/path/to/env/bin/python:/another/bin/python``; without it all are skipped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_files import Report, reports

from gpumon.probe import FOLDER
from gpumon.probe._gpumon_probe import layout

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]
JOBS = Path(__file__).parent / "jobs"
ROOT = Path(FOLDER).parent.parent
Run = Callable[..., tuple[dict[str, Any], list[Report]]]


@pytest.fixture
def run(
    interpreter_with: Callable[[str], str], environment: dict[str, str], runtime: Path, tmp_path: Path
) -> Run:  # fmt: skip
    """Run one of the jobs; what it says on its last line, and what the probe wrote."""

    def ran(framework: str, job: str, *arguments: str, by: tuple[str, ...] = (), **more: str) -> Any:
        more.setdefault("PYTHONPATH", str(FOLDER))
        done = subprocess.run(
            [interpreter_with(framework), *by, str(JOBS / job), *arguments],
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "3", "TORCHINDUCTOR_COMPILE_THREADS": "1", **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), reports(runtime)

    return ran


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--load-ms", "10"),
        ("--load-ms", "40", "--workers", "4"),
        ("--load-ms", "40", "--workers", "4", "--persistent"),
        ("--load-ms", "10", "--iterable"),
        ("--load-ms", "60", "--iterable", "--workers", "4", "--persistent"),
        ("--load-ms", "10", "--amp"),
        ("--load-ms", "10", "--validate", "inside", "--save"),
        ("--load-ms", "10", "--validate", "outside"),
    ],
    ids=" ".join,
)
def test_pytorch(run: Run, options: tuple[str, ...]) -> None:
    """The share of waiting within five points of the script's own clock; a healthy loop has next to none."""
    said, (seen,) = run("torch", "plain.py", *options)
    assert seen.last.step == said["steps"]
    assert {slot.h2d_ns for slot in seen.slots} == {layout.UNKNOWN}
    assert seen.total("steps") == said["steps"] - 1
    assert seen.wait_share == pytest.approx(said["share"], abs=0.05)
    if "--workers" not in options:  # with workers it depends on what else this machine does
        assert (seen.wait_share < 0.35) == (options == ())
    assert seen.last.compiles == layout.UNKNOWN
    assert (seen.total("eval_batches") > 0) == ("--validate" in options)
    assert "torch" in seen.body["modules"]


def test_a_compiled_model(run: Run) -> None:
    said, (seen,) = run("torch", "plain.py", "--compile", "--load-ms", "5")
    assert seen.last.step == said["steps"]
    assert 1 <= seen.last.compiles < 20
    assert sum(slot.compile_ns for slot in seen.slots if slot.compile_ns != layout.UNKNOWN) > 0
    assert seen.wait_share == pytest.approx(said["share"], abs=0.05)


def test_ddp_under_torchrun(run: Run) -> None:
    """Two processes, gloo: torchrun's own says nothing, and the slow rank is known by its forward, not by its step."""
    _, seen = run("torch", "ddp_job.py", by=("-m", "torch.distributed.run", "--nproc_per_node", "2"))
    assert [(each.body["rank"], each.body["world_size"], each.last.step) for each in seen] == [(0, 2, 30), (1, 2, 30)]
    means = [each.total("step_ns") / each.total("steps") / 1e6 for each in seen]
    assert means[0] == pytest.approx(means[1], rel=0.2)
    known = [sum(one.forward_ns for one in each.slots if one.forward_ns != layout.UNKNOWN) / 30e6 for each in seen]
    assert known[1] - known[0] == pytest.approx(20, abs=8)


def test_lightning(run: Run) -> None:
    said, (seen,) = run("lightning", "lightning_job.py")
    assert {slot.h2d_ns for slot in seen.slots} == {layout.UNKNOWN}
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "lightning")
    assert seen.total("eval_batches") >= 30
    assert seen.total("pause_ns") > 0


def test_what_nemo_builds_on(run: Run) -> None:
    """A contract, without NeMo: Lightning's trainer and strategy subclassed, one optimizer that steps several."""
    said, (seen,) = run("lightning", "nemo_job.py")
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "lightning")
    assert (seen.total("batches"), seen.total("eval_batches")) == (2 * said["steps"], 14)
    assert seen.total("pause_ns") > 0
    assert seen.total("wait_ns") > 0


def test_transformers(run: Run) -> None:
    said, (seen,) = run("transformers", "transformers_job.py")
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "transformers")
    assert seen.total("pause_ns") > 0
    assert seen.last.flags & layout.LOSS_IS_KNOWN


def test_accelerate(run: Run) -> None:
    """With accumulation a step is two batches."""
    said, (seen,) = run("accelerate", "accelerate_job.py")
    assert (seen.last.step, seen.total("batches")) == (said["steps"], 60)
    assert 0.3 < seen.wait_share < 0.6


@pytest.mark.parametrize("counted", [False, True])
def test_deepspeed(run: Run, *, counted: bool) -> None:
    """Two ranks of the real engine, which compiles an operator for gloo first: its steps, not its micro batches."""
    more = {"PYTHONPATH": str(ROOT)} if counted else {}
    by = ("-m", "torch.distributed.run", "--nproc_per_node", "2")
    said, seen = run("deepspeed", "deepspeed_job.py", *(["counted"] if counted else []), by=by, **more)
    assert [(each.body["rank"], each.body["world_size"], each.last.step) for each in seen] == [
        (rank, 2, said["steps"]) for rank in (0, 1)
    ]
    assert {(each.body["framework"], each.body["source"]) for each in seen} == {("deepspeed", "engine steps")}
    assert seen[0].wait_share == pytest.approx(said["share"], abs=0.05)
    assert [each.last.samples for each in seen] == [8 * said["steps"]] * 2


@pytest.mark.parametrize(
    ("framework", "job", "copies"),
    [
        ("lightning", "lightning_job.py", 1),
        ("transformers", "transformers_job.py", 4),
        ("accelerate", "accelerate_job.py", 2),
    ],
)
def test_batches_are_copied_where_the_probe_looks(run: Run, framework: str, job: str, copies: int) -> None:
    """With a stand-in for CUDA's events, each pair of which takes 2 ms; on the CPU no copy is told of."""
    _, (seen,) = run(framework, job, "events")
    known = [slot for slot in seen.slots if slot.h2d_ns != layout.UNKNOWN and slot.steps]
    assert known
    mean_ms = sum(slot.h2d_ns for slot in known) / sum(slot.steps for slot in known) / 1e6
    assert mean_ms == pytest.approx(2 * copies, rel=0.25)


@pytest.mark.parametrize(("backend", "at_once"), [("tensorflow", "4"), ("tensorflow", "1"), ("jax", "1")])
def test_keras(run: Run, backend: str, at_once: str) -> None:
    said, (seen,) = run("keras", "keras_job.py", at_once, KERAS_BACKEND=backend)
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "keras")
    assert seen.total("pause_ns") > 0


def test_tensorflow(run: Run) -> None:
    said, (seen,) = run("tensorflow", "tensorflow_job.py")
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "tensorflow")
    assert seen.total("wait_ns") / 1e9 == pytest.approx(said["waited"], rel=0.25)


def test_jax_unchanged(run: Run) -> None:
    """Its steps leave no trace; that it lives and waits for its device does."""
    _, (seen,) = run("jax", "jax_job.py")
    assert (seen.last.step, seen.body["framework"], seen.body["source"]) == (0, "jax", None)
    assert seen.last.beat_ns > 0


def test_jax_with_one_line(run: Run) -> None:
    said, (seen,) = run("jax", "jax_job.py", "line", PYTHONPATH=str(ROOT))
    assert (seen.last.step, seen.body["framework"]) == (said["steps"], "jax")
    assert seen.total("wait_ns") == seen.total("batches") == 0  # a wait of which nothing is known


def test_jax_that_compiles_again_for_each_shape(run: Run) -> None:
    """Every fourth step has a new shape: nine compilations more than where it never changes, and their time."""
    _, (same,) = run("jax", "jax_job.py", "line", PYTHONPATH=str(ROOT))
    same.path.unlink()
    _, (changing,) = run("jax", "jax_job.py", "shapes", PYTHONPATH=str(ROOT))
    assert changing.last.compiles - same.last.compiles >= 9
    spent = [
        sum(slot.compile_ns for slot in each.slots if slot.compile_ns != layout.UNKNOWN) for each in (same, changing)
    ]
    assert spent[1] > spent[0] > 0


@pytest.mark.parametrize("framework", ["lightning", "transformers", "accelerate", "keras"])
def test_callbacks(run: Run, framework: str) -> None:
    """Given to their frameworks they switch the probe on and add what they promise."""
    said, (seen,) = run(framework, "callback_job.py", framework, PYTHONPATH=str(ROOT))
    assert seen.last.step == said["steps"]
    if "samples" in said:
        assert seen.last.samples == said["samples"]
    else:
        assert seen.last.flags & layout.LOSS_IS_KNOWN
        assert bool(seen.last.flags & layout.LOSS_IS_NAN) == said["is_nan"]
