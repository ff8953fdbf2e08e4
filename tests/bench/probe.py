"""What the probe costs a training loop: its hooks alone, one report, and a real loop with and without it.

    GPUMON_TRAINING_PYTHONS=/env/with/torch/bin/python nice -n 3 python -m tests.bench.probe [--pairs N]

The hooks alone are timed with the stand-in for torch, the loop with the real one, in one process: blocks of steps with
the hooks and without, in the order A B B A, the first steps after each change discarded, thread CPU time, the interval
by bootstrap over pairs of blocks. No class is changed in between, which would make the interpreter specialise anew: the
loop without hooks fetches from a subclass that has none. The machine's load is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "gpumon" / "probe"
STAND_IN = HERE.parent / "probe" / "standin"

HOOKS = """
import json, statistics, sys, time
import torch
import torch.utils.data
from _gpumon_probe import publisher
from _gpumon_probe.loop import loop
loop.start = lambda: None
optimizer = torch.optim.SGD()
loader = torch.utils.data.DataLoader(range(10**9))
batches = iter(loader)
clock = time.thread_time_ns
def per_call(call, count=20_000):
    begin = clock()
    for _ in range(count):
        call()
    return (clock() - begin) / count
class Bare:
    def __next__(self):
        return next(self.batches)
bare = Bare()
bare.batches = iter(range(10**9))
bare_step = type("Bare", (), {"step": lambda self: [None for hook in ()]})().step
step, fetch, bare_fetch = optimizer.step, lambda: next(batches), lambda: Bare.__next__(bare)
found = {"step": [], "fetch": [], "report of no step": [], "report of 50 steps": []}
for _ in range(30):
    found["step"].append(per_call(step) - per_call(bare_step))
    found["fetch"].append(per_call(fetch) - per_call(bare_fetch))
loop.steps.clear()
reporter = publisher.Publisher(loop)
reporter.report()
for count, name in ((0, "report of no step"), (50, "report of 50 steps")):
    for _ in range(400):
        for _ in range(count):
            optimizer.step()
        begin = clock()
        reporter.report()
        found[name].append(clock() - begin)
print(json.dumps({name: [min(each), statistics.median(each)] for name, each in found.items()}))
"""

LOOP = """
import json, os, random, statistics, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import torch.optim.optimizer as optimizers
from torch.utils.data import dataloader
from _gpumon_probe.loop import loop
torch.set_num_threads(1)
PAIRS, STEPS, WARM = int(sys.argv[1]), 25, 8
class Rows(Dataset):
    def __len__(self): return 8 * (STEPS + WARM) * (4 * PAIRS + 4)
    def __getitem__(self, index): return torch.ones(64)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
hooks = optimizers._global_optimizer_post_hooks
kept = dict(hooks)
class Bare(dataloader._SingleProcessDataLoaderIter):
    __next__ = dataloader._BaseDataLoaderIter.__next__.__wrapped__
loader = DataLoader(Rows(), batch_size=8)
hooked, bare = iter(loader), Bare(loader)
def block(is_on):
    hooks.clear()
    if is_on: hooks.update(kept)
    batches = hooked if is_on else bare
    for index in range(WARM + STEPS):
        if index == WARM: begin = time.thread_time_ns()
        batch = next(batches)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return (time.thread_time_ns() - begin) / STEPS
block(True), block(False)
differences, without = [], []
for _ in range(PAIRS):
    on, off = block(True), block(False)
    off2, on2 = block(False), block(True)
    differences += [on - off, on2 - off2]
    without += [off, off2]
def middle(values):
    values = sorted(values); cut = len(values) // 10
    return statistics.fmean(values[cut:len(values) - cut])
random.seed(0)
again = sorted(middle(random.choices(differences, k=len(differences))) for _ in range(2000))
print(json.dumps({"step_us": statistics.median(without) / 1000, "mean_us": middle(differences) / 1000,
    "low_us": again[50] / 1000, "high_us": again[-51] / 1000, "pairs": len(differences), "load": os.getloadavg(),
    "seen": loop.step}))
"""


def _run(interpreter: str, text: str, path: list[Path], *arguments: str) -> dict[str, object]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "OMP_NUM_THREADS": "1",
        "GPUMON_RUNTIME_DIR": os.environ.get("GPUMON_RUNTIME_DIR", f"/tmp/gpumon-bench-{os.geteuid()}"),
    }
    command = [interpreter, "-c", text, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--pairs", type=int, default=150, help="A B B A blocks of the real loop")
    pairs = options.parse_args().pairs
    for name, (least, median) in _run(sys.executable, HOOKS, [FOLDER, STAND_IN]).items():  # type: ignore[misc]
        print(f"{name:20s} {least / 1000:7.2f} µs least, {median / 1000:7.2f} µs median")
    interpreter = os.environ.get("GPUMON_TRAINING_PYTHONS", "").partition(":")[0]
    if not interpreter:
        print("real loop            not measured: GPUMON_TRAINING_PYTHONS names no interpreter with torch")
        return
    found = _run(interpreter, LOOP, [FOLDER], str(pairs))
    share = 100 * float(found["mean_us"]) / float(found["step_us"])  # type: ignore[arg-type]
    print(
        f"real loop            {found['mean_us']:+.2f} µs a step of {found['step_us']:.0f} µs ({share:+.2f} %), "
        f"95 % between {found['low_us']:+.2f} and {found['high_us']:+.2f} µs, {found['pairs']} pairs, load "
        + " ".join(f"{each:.1f}" for each in found["load"])  # type: ignore[attr-defined]
    )
    print(f"0.5 % of a step      from {float(found['high_us']) / 5:.1f} ms on, by the upper end")  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
