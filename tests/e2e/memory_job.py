"""A loop whose memory the simulator's allocator rules: `memory_job.py LEAK_MIB WASTE_MIB PEAK_SHARE GIB STATE SECONDS`.

The probe in it is the real one; torch and what ``torch.cuda`` says of memory are stand-ins. The file STATE says what a
driver would see of it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

import torch

from gpumon.sources.simulator.allocator import Allocator
from gpumon.sources.simulator.chips import GIB, MIB
from gpumon.sources.simulator.spec import JobSpec

CONTEXT = 500 * MIB
STEP_S = 0.02
leak, waste, peak_share, size = map(float, sys.argv[1:5])
state, until = Path(sys.argv[5]), time.monotonic() + float(sys.argv[6])
spec = JobSpec(
    name="job", user="", command="", pid=0, step_s=STEP_S, prep_s=0.0, batch_bytes=0.0,
    memory_bytes=int(size * GIB), leak_bytes=leak * MIB, waste_bytes=waste * MIB, peak_share=peak_share,
    floor_share=0.5 * peak_share,
)  # fmt: skip
allocator = Allocator(spec, 79 * GIB - CONTEXT)
NAMES = {
    "allocated_bytes": "allocated_bytes",
    "reserved_bytes": "reserved_bytes",
    "active_bytes": "active_bytes",
    "inactive_split_bytes": "inactive_split_bytes",
    "requested_bytes": "allocated_bytes",
}


def figures() -> dict[str, object]:
    said = allocator.statistics(0)
    at = {name: {"all": {"current": said[own], "peak": said[own]}} for name, own in NAMES.items()}
    at["allocated_bytes"]["all"]["peak"] = said["allocated_peak_bytes"]
    return {**at, "num_alloc_retries": said["alloc_retries"], "num_ooms": said["ooms"]}


torch.cuda.figures = {0: figures}
torch.cuda._initialized = True
optimizer = torch.optim.SGD()
random = Random(1)
steps = 0
while time.monotonic() < until:
    stall_s = allocator.step(steps, random, is_ill=True)
    time.sleep(STEP_S + stall_s)
    optimizer.step()
    steps += 1
    if steps % 10 == 1:
        state.write_text(str(int(allocator.reserved_bytes + CONTEXT)))
