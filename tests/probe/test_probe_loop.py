"""What the probe counts in a loop of its stand-in for torch: steps, waits, pauses, memory, who tells."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from probe_files import Report, report, reports

from gpumon.probe import FOLDER
from gpumon.probe._gpumon_probe import layout

Told = Callable[..., Report]
Train = Callable[..., subprocess.CompletedProcess[str]]

BEGIN = """
import time, torch
from torch.utils.data import DataLoader

class Slow:
    def __init__(self, count, seconds):
        self.count, self.seconds = count, seconds
    def __iter__(self):
        for index in range(self.count):
            time.sleep(self.seconds)
            yield index

optimizer = torch.optim.SGD()
"""


@pytest.fixture
def told(train: Train, runtime: Path) -> Told:
    """Run a program to its end; the one report that it leaves."""

    def run(text: str, **more: str) -> Report:
        done = train(BEGIN + text, **more)
        assert (done.returncode, done.stderr) == (0, ""), done
        (only,) = reports(runtime)
        return only

    return run


def test_steps_and_waits(told: Told) -> None:
    """20 steps of which half is waiting: the first has no beginning, so 19 have a duration."""
    seen = told("""
for _ in range(2):
    for _batch in DataLoader(Slow(10, 0.01), batch_size=4):
        time.sleep(0.01)
        optimizer.step()
""")
    assert (seen.last.step, seen.total("steps"), seen.total("batches"), len(seen.pairs)) == (20, 19, 20, 19)
    assert seen.wait_share == pytest.approx(0.5, abs=0.15)
    assert (seen.last.phase, seen.last.inside, seen.last.samples) == (layout.END, layout.OUTSIDE, 80)
    assert (seen.body["framework"], seen.body["source"]) == ("pytorch", "optimizer steps")
    assert seen.last.allocated == seen.last.floor == -1
    assert seen.last.beat_ns <= seen.last.mono_ns


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_evaluation_is_a_pause(told: Told, where: str) -> None:
    """Whether its loop stands inside `no_grad` or `no_grad` inside its loop: no step of 100 ms, no wait."""
    loops = {
        "inside": "    with torch.no_grad():\n        for _batch in held_out: time.sleep(0.1)\n",
        "outside": "    for _batch in held_out:\n        with torch.no_grad(): time.sleep(0.1)\n",
    }
    seen = told(f"""
loader, held_out = DataLoader(Slow(10, 0.0)), DataLoader(Slow(5, 0.02))
for _ in range(3):
    for _batch in loader:
        time.sleep(0.005)
        optimizer.step()
{loops[where]}
""")
    assert (seen.last.step, seen.total("eval_batches"), seen.total("batches")) == (30, 15, 30)
    assert 1.8 <= seen.total("pause_ns") / 1e9 < 4.0
    assert max(step for step, _ in seen.pairs) < 400_000
    assert seen.wait_share < 0.3


def test_two_loaders_of_one_loop_are_both_trained_on(told: Told) -> None:
    seen = told("""
for _ in range(2):
    for _both in zip(DataLoader(Slow(10, 0.002)), DataLoader(Slow(10, 0.002))):
        optimizer.step()
""")
    assert (seen.last.step, seen.total("eval_batches")) == (20, 0)
    assert seen.total("pause_ns") < 1_000_000


def test_data_that_is_new_is_not_taken_for_evaluation_once_it_trains(told: Told) -> None:
    seen = told("""
kept = []
for _ in range(4):
    kept.append(Slow(5, 0.01))
    for _batch in DataLoader(kept[-1]):
        optimizer.step()
""")
    assert seen.last.step == 20
    assert seen.wait_share > 0.8
    assert seen.total("pause_ns") == 0


def test_a_checkpoint_is_a_pause(told: Told) -> None:
    seen = told("""
for index in range(10):
    time.sleep(0.005)
    optimizer.step()
    if index == 5:
        torch.save({}, "file", seconds=0.7)
""")
    assert max(step for step, _ in seen.pairs) < 500_000
    assert 0.69 <= seen.total("pause_ns") / 1e9 < 1.2
    assert layout.CHECKPOINT in {slot.phase for slot in seen.slots}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("both = [torch.optim.SGD(), torch.optim.SGD()]\nfor _ in range(50): [one.step() for one in both]", 50),
        ("many = [torch.optim.SGD() for _ in range(20)]\nfor _ in range(30): [one.step() for one in many]", 30),
        ("a, b = torch.optim.SGD(), torch.optim.SGD()\nfor _ in range(9): a.step()\nfor _ in range(30): b.step()", 31),
    ],
    ids=["two optimizers", "one for each parameter", "another after the first"],
)
def test_one_optimizer_leads(told: Told, text: str, steps: int) -> None:
    assert told(text).last.step == steps


def test_batches_count_where_nobody_tells_steps(told: Told) -> None:
    seen = told("for _batch in DataLoader(Slow(40, 0.002)): time.sleep(0.002)")
    assert (seen.last.step, seen.body["source"]) == (40, "batches")


def test_a_program_tells_its_steps_itself(told: Told) -> None:
    """From its first word on nobody else counts, and the step that both told counts once."""
    seen = told("""
import _gpumon_probe.api as gpumon
for index in range(10):
    optimizer.step()
    gpumon.step(samples=8, loss=float("nan") if index == 9 else 1.0)
    with gpumon.phase("eval"):
        time.sleep(0.1)
""")
    assert (seen.last.step, seen.last.samples, seen.body["source"]) == (10, 80, "steps")
    assert seen.last.flags & (layout.LOSS_IS_NAN | layout.LOSS_IS_KNOWN) == layout.LOSS_IS_NAN | layout.LOSS_IS_KNOWN
    assert max(step for step, _ in seen.pairs) < 90_000


def test_steps_that_were_skipped(told: Told) -> None:
    seen = told("""
scaler = torch.amp.GradScaler()
for index in range(20):
    scaler.step(optimizer, is_overflow=index % 5 == 4)
    scaler.update()
""")
    assert (seen.last.step, seen.total("skipped")) == (16, 4)


def test_a_ranks_own_forward(told: Told) -> None:
    """From the batch's arrival to the end of the model's forward: what other ranks do is not in it."""
    seen = told("""
model = torch.nn.parallel.DistributedDataParallel(lambda batch: time.sleep(0.01))
for batch in DataLoader(Slow(10, 0.005)):
    model(batch)
    time.sleep(0.01)
    optimizer.step()
""")
    known = [slot.forward_ns for slot in seen.slots if slot.forward_ns != layout.UNKNOWN]
    assert sum(known) / 10 / 1e6 == pytest.approx(10, abs=6)


def test_deepspeeds_engine(told: Told) -> None:
    """By a stand-in with the engine's counters: inner steps do not count, nor do those it skips for an overflow."""
    seen = told(f"""
import sys; sys.path.append({str(Path(FOLDER).parent.parent)!r})
from deepspeed.runtime.engine import DeepSpeedEngine
from gpumon.integrations.deepspeed import counted
engine = counted(DeepSpeedEngine([torch.optim.SGD() for _ in range(3)], accumulation=2))
for index in range(40):
    engine.is_overflow = index in (20, 21)
    engine.step()
""")
    assert (seen.last.step, seen.total("skipped"), seen.last.samples) == (20, 1, 160)
    assert (seen.body["framework"], seen.body["source"]) == ("deepspeed", "engine steps")


CUDA = """
torch.cuda._initialized = True
at = lambda current, peak=0: {"all": {"current": current, "peak": peak}}
GB = 10**9
state = {"allocated": 10 * GB}
def figures():
    return {"allocated_bytes": at(state["allocated"], 40 * GB), "reserved_bytes": at(50 * GB, 50 * GB),
            "active_bytes": at(42 * GB), "inactive_split_bytes": at(7 * GB), "requested_bytes": at(9 * GB),
            "num_alloc_retries": 3, "num_ooms": 1, "num_device_alloc": 11, "num_device_free": 2}
empty = {**{name: at(0) for name in figures() if name.endswith("bytes")}, "num_alloc_retries": 0, "num_ooms": 0}
torch.cuda.figures = {0: empty, 1: figures}
"""


def test_the_allocators_figures(told: Told) -> None:
    """Of the fullest device; the floor is read at fixed points of the loop, never in between.

    The memory functions are a stand-in's: no GPU is needed, and none of those that would make a context is called.
    """
    seen = told(
        CUDA
        + """
until = time.monotonic() + 1.8
while time.monotonic() < until:
    state["allocated"] = 40 * GB
    time.sleep(0.02)
    state["allocated"] = 10 * GB
    optimizer.step()
    state["allocated"] = 30 * GB
    time.sleep(0.005)
"""
    )
    last = seen.slots[-2]
    assert (last.device, last.reserved, last.peak, last.retries, last.ooms) == (1, 50 * 10**9, 40 * 10**9, 3, 1)
    assert (last.active, last.inactive_split, last.requested) == (42 * 10**9, 7 * 10**9, 9 * 10**9)
    assert {slot.floor for slot in seen.slots[2:-1]} == {10**10}
    assert seen.body["devices"] == [None, "GPU-11111111-2222-3333-4444-555555555555"]
    assert seen.body["allocator"] == "native"


def test_cuda_that_is_not_running_is_not_asked(told: Told) -> None:
    seen = told("""
for _ in range(3):
    optimizer.step()
    time.sleep(0.3)
assert torch.cuda.calls == []
""")
    assert seen.last.reserved == -1


def test_ranks_are_told_by_the_environment(told: Told) -> None:
    seen = told("optimizer.step()", RANK="3", LOCAL_RANK="1", WORLD_SIZE="8", SECRET_TOKEN="x", SLURM_PROCID="0")
    assert [seen.body[key] for key in ("rank", "local_rank", "world_size")] == [3, 1, 8]
    assert "SECRET_TOKEN" not in seen.body["environment"]


def test_a_file_is_a_report_of_the_moment(train: Train, runtime: Path) -> None:
    """While it waits for a batch, the reports say since when."""
    done = train(
        BEGIN
        + """
import os
for index, _batch in enumerate(DataLoader(Slow(2, 0.9))):
    optimizer.step()
"""
    )
    assert done.returncode == 0
    (seen,) = (report(path) for path in sorted(runtime.iterdir()))
    waiting = [slot for slot in seen.slots if slot.inside == layout.WAITING]
    assert waiting
    assert all(0 < slot.since_ns <= slot.mono_ns for slot in waiting)


COPIES = (
    CUDA
    + """
from accelerate.data_loader import DataLoaderShard
state["host"] = 0.0
def train(batches, work, pause=0.0):
    asked = time.monotonic()
    for _batch in DataLoaderShard(batches):
        state["host"] += time.monotonic() - asked
        torch.cuda.compute(work)
        time.sleep(pause)
        optimizer.step()
        asked = time.monotonic()
"""
)


def copy_share(seen: Report) -> float:
    """Of the steps of which it is known."""
    known = [slot for slot in seen.slots if slot.h2d_ns != layout.UNKNOWN]
    assert sum(slot.steps for slot in known) > 20
    return sum(slot.h2d_ns for slot in known) / sum(slot.step_ns for slot in known)


def test_copies_are_timed_on_the_device(told: Told, tmp_path: Path) -> None:
    """The host is blocked for most of a step, for it waits for the kernels that were queued: that is no copying.

    Accelerate and the device are stand-ins; copies take 6 ms beside 40 ms of kernels.
    """
    said = tmp_path / "said"
    share = f"open({str(said)!r}, 'w').write(str(state['host'] / (time.monotonic() - begun)))"
    seen = told(f"{COPIES}\nbegun = time.monotonic()\ntrain([0.006] * 60, 0.04)\n{share}")
    assert copy_share(seen) == pytest.approx(6 / 46, abs=0.06)
    assert float(said.read_text()) > 0.7


def test_copies_that_take_most_of_a_step(told: Told) -> None:
    seen = told(f"{COPIES}\ntrain([0.02] * 60, 0.005)")
    assert copy_share(seen) == pytest.approx(20 / 25, abs=0.12)


def test_few_copies_are_timed_and_the_events_used_again(told: Told) -> None:
    """However many steps there are: four of each half second; a capture of a graph is no place for an event."""
    seen = told(f"""{COPIES}
train([0.0] * 2000, 0.0, 0.001)
assert 2 <= torch.cuda.Event.made <= 20, torch.cuda.Event.made
torch.cuda._Stream.is_capturing = True
made = torch.cuda.Event.made
torch.cuda.Event.record = None
train([0.0] * 300, 0.0, 0.001)
assert torch.cuda.Event.made == made
""")
    assert seen.last.step == 2300


def test_without_cuda_no_copy_is_told_of(told: Told) -> None:
    seen = told(f"{COPIES}\ntorch.cuda._initialized = False\ntrain([0.001] * 60, 0.001)")
    assert {slot.h2d_ns for slot in seen.slots} == {layout.UNKNOWN}


def test_a_device_that_fails_ends_the_timing_and_nothing_else(told: Told) -> None:
    seen = told(f"""{COPIES}
def fails(*_):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
train([0.001] * 30, 0.001)
torch.cuda.Event.query = fails
train([0.001] * 600, 0.001)
""")
    assert seen.last.step == 630


def test_compilations_are_counted(told: Told) -> None:
    """By what torch.compile's and JAX's own callbacks tell; stand-ins call them as the real ones do."""
    seen = told("""
import sys, types
from _gpumon_probe import finder
class Handler:
    def __init__(self): self.start, self.end = [], []
    def register_start_callback(self, call): self.start.append(call)
    def register_end_callback(self, call): self.end.append(call)
dynamo = types.SimpleNamespace(callback_handler=Handler())
finder.hook("torch._dynamo.callback", dynamo)
heard = []
finder.hook("jax._src.monitoring", types.SimpleNamespace(register_event_duration_secs_listener=heard.append))
def compile():
    dynamo.callback_handler.start[0](None)
    time.sleep(0.05)
    dynamo.callback_handler.end[0](None)
for index in range(40):
    if index % 4 == 0:
        compile()
    time.sleep(0.01)
    optimizer.step()
heard[0]("/jax/core/compile/jaxpr_trace_duration", 9.0, fun_name="f")
heard[0]("/jax/core/compile/backend_compile_duration", 2.0, fun_name="f")
""")
    assert seen.last.compiles == 11
    assert seen.total("compile_ns") / 1e9 == pytest.approx(2.5, abs=0.3)
    assert seen.total("step_ns") - seen.total("steps") * 10e6 > 9 * 50e6  # their time is the step's that needs them


def test_what_never_compiles_says_nothing_of_it(told: Told) -> None:
    seen = told("for _ in range(5): optimizer.step()")
    assert (seen.last.compiles, seen.last.compile_ns) == (layout.UNKNOWN, layout.UNKNOWN)
