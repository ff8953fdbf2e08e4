"""What somebody trains and how: every number that a simulated job is made of."""

from __future__ import annotations

from math import inf

import msgspec

from gpumon.model import Role
from gpumon.sources.simulator.chips import GIB


class Mix(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels keep busy while they run, as shares of the whole."""

    sm: float = 0.87
    occupancy: float = 0.31
    tensor: float = 0.52
    dram: float = 0.46
    fp32: float = 0.07
    fp64: float = 0.0

    def power(self) -> float:
        """Dynamic power against that of the mix above: clocks and caches, multiprocessors, math pipes, memory."""
        pipes = max(self.tensor / 0.52, (self.fp32 - 0.07) / 0.5, self.fp64 / 0.5)
        return 0.1 + 0.3 * self.sm / 0.87 + 0.32 * pipes + 0.28 * self.dram / 0.46


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody trains, and how."""

    name: str
    user: str
    command: str
    pid: int
    gpus: tuple[int, ...] | None = None
    """None: all of the machine's."""
    instance: int = 0
    """Which MIG instance of its card."""
    step_s: float
    """Compute time of a step at the boost clock."""
    jitter: float = 0.012
    rank_jitter: float = 0.004
    gap_share: float = 0.012
    """Of a step: the device waits for the host (logging, a synchronizing ``item()``)."""
    comm_share: float = 0.012
    memory_bound: float = 0.02
    """Of a step: does not get slower when the SM clock falls."""
    launch_share: float = 0.55
    """Of a step: the main thread's own work. It runs one step ahead of the device."""
    syncs: bool = False
    """The loop reads the loss every step: the main thread spins until the device is done."""
    batch: int = 64
    """Samples in a step of one rank."""
    accumulates: int = 1
    """Every so many steps the optimizer steps and the ranks exchange gradients."""
    bubble_share: float = 0.0
    """Pipeline stages: of a step, the time in which a stage waits for the others."""
    rollout_s: float = 0.0
    """Reinforcement learning: the environments' time before each step; nothing is prepared ahead."""
    comm_bytes: float | None = None
    """Exchanged in a step, half of it behind the backward pass; None: ``comm_share`` and what fits into it."""
    workers: int = 8
    """0: the main thread loads by itself."""
    prefetch: int = 2
    prep_s: float
    batch_bytes: float
    dataset_bytes: float | None = None
    """None: read before, what memory holds of it is known to the disk; else the first epoch comes from the disk."""
    copied_bytes: float = 38e6
    is_pinned: bool = True
    """Else each copy to the device is staged by the main thread, and nothing overlaps it."""
    cpus: int | None = None
    """Cores that its processes may use; None: all."""
    quota_cores: float | None = None
    memory_limit_bytes: int | None = None
    shm_total_bytes: int | None = None
    """Of its container's own /dev/shm."""
    memory_bytes: int
    """Reserved by the framework on rank 0."""
    memory_step_bytes: int = 0
    floor_share: float = 0.58
    """Of the reserved memory: what is allocated between two steps (weights, optimizer)."""
    peak_share: float = 0.95
    """Of the reserved memory: what is allocated at most within a step."""
    leak_bytes: float = 0.0
    waste_bytes: float = 0.0
    """Per step: memory that fragmentation makes unusable."""
    trainer_rss_bytes: int = 9 * GIB
    worker_rss_bytes: int = 2 * GIB
    age_s: float = 7440.0
    """How long it has run when the story begins; negative: it starts that much later."""
    load_s: float = 38.0
    lasts_s: float = inf
    """How long it trains before it ends and another one starts."""
    restart_after_s: float = 30.0
    checkpoint_every_s: float = 1800.0
    checkpoint_s: float = 9.0
    checkpoint_bytes: float = 2.6e9
    eval_every_s: float = 2700.0
    eval_s: float = 24.0
    epoch_s: float = inf
    """At the end of each epoch the workers are started anew."""
    respawn_s: float = 3.0
    debug_every_s: float = inf
    debug_s: float = 40.0
    """Somebody stands at a breakpoint."""
    compiles: bool = False
    """While it loads, compile children work."""
    libraries: tuple[str, ...] | None = None
    environment: dict[str, str] = {}
    on_cpu: bool = False
    """The model never got to the device."""
    framework: str = "torch"
    container: str | None = None
    job_id: str | None = None
    data_filesystem: str = "ext4"
    mix: Mix = Mix()
    role: Role = "trainer"
    is_idle: bool = False
    """Holds its memory and does nothing."""
