"""The facts of one instant and what was concluded from them, as frozen values.

Every field with a unit carries it as a suffix (``power_w``, ``memory_used_bytes``); ``units.py``
derives formats and axes from it. ``None`` means "not reported by this GPU, driver or permission";
0 is a measurement. Tuples are read-only and may be held for ever.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Severity = Literal["info", "warning", "critical"]
Confidence = Literal["certain", "likely", "possible"]
SubjectKind = Literal["gpu", "process", "job", "host"]
Role = Literal["trainer", "dataloader-worker", "pin-thread", "compile", "server", "notebook", "other"]
JobKind = Literal["training", "serving", "notebook", "unknown"]
Phase = Literal["start", "train", "pause", "stall", "end"]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every recorded value: keyword-only, immutable, unknown fields skipped on reading."""


class Gpu(Value, frozen=True, kw_only=True):
    """One GPU or MIG instance at one instant. Its identity is ``uuid``, never its position."""

    uuid: str
    index: int
    """NVML's index; on a MIG instance its number under the parent."""
    name: str | None = None
    pci_bus_id: str | None = None
    is_lost: bool = False

    utilization_pct: float | None = None
    """Share of time in which at least one kernel ran (NVML's last window)."""
    utilization_samples_pct: tuple[float, ...] = ()
    """The driver's ring of windows since the previous snapshot, oldest first."""
    memory_utilization_pct: float | None = None
    encoder_pct: float | None = None
    """Share of time in which the video encoder ran; it is no part of the utilization, nor is the decoder."""
    decoder_pct: float | None = None

    memory_used_bytes: int | None = None
    """Without the driver's own reserve where the driver separates it (memory v2)."""
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_is_shared: bool = False
    """The GPU uses the host's memory (GB10, Thor)."""

    power_w: float | None = None
    """Mean over the interval from the energy counter where there is one, else the driver's reading."""
    power_limit_w: float | None = None
    power_default_limit_w: float | None = None
    energy_j: float | None = None
    """Cumulative; may restart with the driver."""
    power_source: str | None = None
    """ac, battery, undersized."""

    temperature_c: float | None = None
    memory_temperature_c: float | None = None
    memory_temperature_max_c: float | None = None
    temperature_slowdown_c: float | None = None
    temperature_max_c: float | None = None
    """The highest temperature at which the driver lets the GPU run at full clocks (GPU max operating)."""
    temperature_shutdown_c: float | None = None
    temperature_margin_c: float | None = None
    fan_pct: float | None = None
    """What was asked of the fan; a blocked one reads the same."""
    fan_target_pct: float | None = None

    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    performance_state: str | None = None
    clocks_event_reasons: tuple[str, ...] | None = None
    """Names: gpu_idle sw_power_cap hw_slowdown sw_thermal hw_thermal hw_power_brake …"""
    throttled_pct: dict[str, float] | None = None
    """Reason -> share of the interval, from the driver's ns counters: sw_power_cap, sw_thermal, hw_thermal,
    hw_power_brake, sync_boost. A reason without a counter is absent."""

    pcie_rx_bytes_per_s: float | None = None
    """Towards the GPU: host-to-device copies."""
    pcie_tx_bytes_per_s: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    """Of this device in this system, not of the card alone."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    nvlinks_active: int | None = None
    """Sleeping links count as active."""
    nvlinks_total: int | None = None
    pcie_replays: int | None = None
    """Cumulative, as are the other counts of errors."""
    pcie_correctable_errors: int | None = None
    nvlink_rx_bytes_per_s: float | None = None
    nvlink_tx_bytes_per_s: float | None = None
    nvlink_errors: int | None = None
    nvlink_crc_errors: int | None = None
    nvlink_recovery_failures: int | None = None
    fabric_state: str | None = None
    """NVSwitch fabric: not-supported, not-started, in-progress, completed."""

    graphics_active_pct: float | None = None
    sm_active_pct: float | None = None
    sm_occupancy_pct: float | None = None
    tensor_active_pct: float | None = None
    dram_active_pct: float | None = None
    fp32_active_pct: float | None = None
    fp64_active_pct: float | None = None

    ecc_enabled: bool | None = None
    ecc_enabled_pending: bool | None = None
    """After the next reset."""
    ecc_uncorrected: int | None = None
    """Since the driver was loaded, as is the corrected count."""
    ecc_corrected: int | None = None
    ecc_sram_uncorrected: int | None = None
    """Of the card's lifetime."""
    remapped_rows_corrected: int | None = None
    remapped_rows_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None
    """NVML's number: 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain+reset, 5 IMEX, 6 bus reset, 7 system reboot."""
    mig_enabled: bool | None = None
    mig_parent_uuid: str | None = None
    mig_profile: str | None = None
    compute_mode: str | None = None
    """default, exclusive, prohibited."""
    persistence: bool | None = None
    compute_capability: str | None = None
    """``"9.0"``."""
    sm_count: int | None = None
    numa_node: int | None = None
    age_s: float | None = None
    """Since these values were read from the driver; 0 or a little when fresh."""


class Process(Value, frozen=True, kw_only=True):
    """A process that holds GPU memory or trains on the CPU, or a descendant of one (loader workers, compilers)."""

    pid: int
    ppid: int | None = None
    session_id: int | None = None
    started_s: float | None = None
    user: str | None = None
    name: str | None = None
    command: str | None = None
    """Cleaned and redacted command line; None where it cannot be read."""
    state: str | None = None
    """One letter as in /proc/PID/stat: R S D T Z …"""

    gpu_memory_bytes: dict[str, int | None] = {}
    """GPU uuid -> bytes; None where the driver does not say (WDDM, some containers)."""
    gpu_sm_pct: dict[str, float] | None = None
    open_gpus: tuple[str, ...] | None = None
    """UUIDs of the GPUs whose device file it holds open."""

    cpu_pct: float | None = None
    """100 = one core, over the interval."""
    main_thread_cpu_pct: float | None = None
    main_thread_state: str | None = None
    """The most frequent state letter of the main thread in the interval."""
    disk_wait_pct: float | None = None
    """Share of samples in state D."""
    run_delay_pct: float | None = None
    """Share of the interval spent runnable but not running (schedstat)."""
    cpu_throttled_pct: float | None = None
    """Share of its cgroup's quota periods that were throttled in the interval."""
    cpu_quota_cores: float | None = None
    cpus_allowed: int | None = None

    memory_rss_bytes: int | None = None
    memory_pss_bytes: int | None = None
    memory_private_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_charged_bytes: int | None = None
    shm_total_bytes: int | None = None
    shm_used_bytes: int | None = None
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    rchar_bytes_per_s: float | None = None

    role: Role | None = None
    framework: str | None = None
    container: str | None = None
    job_id: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    libraries: tuple[str, ...] | None = None
    threads: tuple[str, ...] | None = None
    """Beginnings of known thread names a trainer has running: pt_data_pin, pt_nccl_watchdg, tf_data_ …"""
    environment: dict[str, str] | None = None
    data_filesystem: str | None = None


class Volume(Value, frozen=True, kw_only=True):
    """A filesystem that jobs write to."""

    path: str
    filesystem: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    free_inodes_pct: float | None = None


class Host(Value, frozen=True, kw_only=True):
    """The machine: driver, processor, memory, disks, network."""

    name: str | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    driver_library_version: str | None = None
    """Of the driver's library on disk, which programs that start now will load."""
    cuda_version: str | None = None
    chassis: str | None = None
    """laptop, desktop, server, virtual."""
    sees_host_pids: bool | None = None
    """False inside a PID namespace or behind hidepid: the driver's PIDs mean nothing here."""
    processes_hidden: str | None = None
    """Why processes cannot be looked up by the driver's PIDs, in plain words; None where they can."""
    driver_age_s: float | None = None
    """Since the driver last answered anything at all; grows while a call hangs or NVML is away."""
    driver_error: str | None = None
    """Why NVML is away at the moment (one line); None while it answers."""

    cpu_count: int | None = None
    socket_count: int | None = None
    cpu_pct: float | None = None
    """Of all cores: 100 = every core busy."""
    load_1: float | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_per_s: float | None = None
    cpu_pressure_pct: float | None = None
    io_pressure_pct: float | None = None
    memory_pressure_pct: float | None = None
    shm_total_bytes: int | None = None
    shm_used_bytes: int | None = None
    disk_read_bytes_per_s: float | None = None
    disk_write_bytes_per_s: float | None = None
    disk_busy_pct: float | None = None
    net_rx_bytes_per_s: float | None = None
    net_tx_bytes_per_s: float | None = None
    net_limit_bytes_per_s: float | None = None
    rdma_rx_bytes_per_s: float | None = None
    rdma_tx_bytes_per_s: float | None = None
    rdma_limit_bytes_per_s: float | None = None
    nfs_read_s: float | None = None
    """Mean time of a READ in the interval."""
    volumes: tuple[Volume, ...] = ()
    """Where jobs write."""
    boot_id: str | None = None
    oom_kills: int | None = None
    """Cumulative since boot."""


class Rank(Value, frozen=True, kw_only=True):
    """What the probe inside one training process reports; times are means over the interval."""

    pid: int
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    gpu_uuid: str | None = None
    framework: str | None = None
    phase: Literal["init", "train", "eval", "checkpoint", "end"] | None = None
    step: int | None = None
    """Cumulative count of steps; None before the first, and where nobody tells any."""
    step_s: float | None = None
    """From one step's end to the next, pauses taken out, data wait included."""
    data_wait_s: float | None = None
    """The part of a step spent waiting for the next batch; None where it gets its batches unseen."""
    h2d_s: float | None = None
    """The part of a step in which its device copied the batch; timed there, for a few steps that stand for all."""
    forward_s: float | None = None
    samples_per_s: float | None = None
    step_samples_s: tuple[float, ...] = ()
    """At most 90 consecutive steps of the interval."""
    data_wait_samples_s: tuple[float, ...] = ()
    waiting_s: float | None = None
    """So far, for the batch that it waits for now."""
    pause_s: float | None = None
    """Evaluation and checkpoints in the interval."""
    loader_start_s: float | None = None
    compiles: int | None = None
    """Cumulative count of what torch.compile or JAX compiled; None where neither was asked to."""
    compile_s: float | None = None
    """Spent on that in the interval; within the steps."""
    loss_is_nan: bool | None = None
    allocated_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    allocated_min_bytes: int | None = None
    """The lowest of the interval's steps."""
    reserved_bytes: int | None = None
    active_bytes: int | None = None
    inactive_split_bytes: int | None = None
    alloc_retries: int | None = None
    """Cumulative, as are OOMs."""
    ooms: int | None = None
    allocator: str | None = None
    """native, cuda-malloc-async."""
    heartbeat_age_s: float | None = None
    """Since the last step, eval batch or start of a checkpoint; not since the last report."""
    sampled_stacks: int | None = None
    """No probe: its main thread's stack was looked at from outside, so many times since that began."""
    sampled_waits: int | None = None
    """Times that it waited for data then."""

    @property
    def is_sampled(self) -> bool:
        """Whether all that is known was seen from outside, now and then: a share with an error, and no step."""
        return self.sampled_stacks is not None


class Event(Value, frozen=True, kw_only=True):
    """Something that happened at a moment: xid, gpu-lost, driver-error, process-exit, gap, clock-step."""

    kind: str
    time_s: float | None = None
    gpu_uuid: str | None = None
    pid: int | None = None
    text: str | None = None
    xid: int | None = None
    exit_code: int | None = None
    values: dict[str, float] | None = None
    """``cuda-oom``: requested_bytes, free_bytes …"""


class Snapshot(Value, frozen=True, kw_only=True):
    """One instant, self-contained: rates are over ``interval_s``, so no neighbour is needed."""

    time_s: float
    """UTC epoch."""
    interval_s: float | None = None
    """Monotonic time since the previous snapshot; None on the first."""
    gpus: tuple[Gpu, ...] = ()
    processes: tuple[Process, ...] = ()
    host: Host = Host()
    ranks: tuple[Rank, ...] = ()
    events: tuple[Event, ...] = ()


# --- conclusions -------------------------------------------------------------------------------


class Subject(Value, frozen=True, kw_only=True):
    """Whom a finding is about."""

    kind: SubjectKind
    gpu: int | None = None
    uuid: str | None = None
    pid: int | None = None
    job: str | None = None

    def key(self) -> str:
        """Identity across time: uuid, job id, pid or ``host``."""
        return {"gpu": self.uuid, "job": self.job, "process": str(self.pid)}.get(self.kind) or self.kind


class Evidence(Value, frozen=True, kw_only=True):
    """One number a finding rests on, and what it is judged by."""

    name: str
    value: float | str | None
    unit: str = ""
    was: float | str | None = None
    """The value to compare with (cool clock, earlier mean)."""
    judged_by: str | None = None
    """What it is compared with, in words: ``itself when cool``, ``≥ 10% of 2 min``."""
    field: str | None = None
    """Name of the series behind it, for a sparkline on the alerts screen."""


class Cost(Value, frozen=True, kw_only=True):
    """What the trouble costs: share of throughput lost, and the speed-up that a cure could give at most."""

    lost_pct: float | None = None
    speedup_max: float | None = None


class Finding(Value, frozen=True, kw_only=True):
    """What one rule concludes about one subject from one window."""

    rule: str
    severity: Severity
    confidence: Confidence
    subject: Subject
    summary: str
    """One sentence without the time: ``GPU 0 waits for data 44% of the time``."""
    strength: float = 1.0
    """1.0 = at the fire threshold; rules yield from 0.8 on, so that alerts.py alone keeps hysteresis."""
    cause: str | None = None
    """A stable id, ``workers-saturated``; None when unknown."""
    cause_text: str | None = None
    """The headline's ``cause …``: ``4/4 workers at 99% CPU``."""
    fix_text: str | None = None
    """The headline's ``fix …``, short: ``num_workers 4 → 8``."""
    evidence: tuple[Evidence, ...] = ()
    cost: Cost | None = None
    fixes: tuple[str, ...] = ()
    """Ordered, concrete, computed for this machine; never empty at warning or worse."""
    command: str | None = None
    """What ``y`` copies: the command line of the first fix that has one."""
    onset_s: float | None = None
    """Seconds before the window's end at which the trouble began, where the rule can tell."""
    explained_by: tuple[str, ...] = ()
    """Rules that explain this very finding, besides those that explain whatever its rule finds."""
    has_happened: bool = False
    """An event: it is true without lasting, whatever its rule asks of states."""


class Abstention(Value, frozen=True, kw_only=True):
    """A rule could not judge a subject, and the signal it missed."""

    rule: str
    because: str
    subject: Subject | None = None


AlertState = Literal["pending", "firing", "clearing", "resolved"]


class Alert(Value, frozen=True, kw_only=True):
    """A finding over time."""

    finding: Finding
    """The newest one while firing; the last one once resolved."""
    state: AlertState
    since_s: float
    """Onset (epoch), not the moment of raising."""
    raised_s: float | None = None
    cleared_s: float | None = None
    muted_until_s: float | None = None
    """Set while muted; ``inf`` is not used: "until it recovers" and "this run" are far-future times."""
    suppressed_by: str | None = None
    """Rule whose finding explains this one; a suppressed alert is in the log, never in the headline."""
    times_raised: int = 1
    lost_gpu_s: float | None = None
    """GPU time lost to it so far, where its cost is known: lost share × GPUs of the job × time."""

    def is_firing(self) -> bool:
        """Raised and not yet resolved (clearing still counts)."""
        return self.state in ("firing", "clearing")


class Job(Value, frozen=True, kw_only=True):
    """Processes that train together: ranks with their GPUs and their helpers."""

    id: str
    """Stable while it lives: launcher's or scheduler's id, else ``pid:started``."""
    name: str
    kind: JobKind = "unknown"
    phase: Phase = "start"
    phase_since_s: float | None = None
    trained_since_s: float | None = None
    """When it first left its start (epoch); None until then."""
    user: str | None = None
    gpu_uuids: tuple[str, ...] = ()
    trainers: tuple[int, ...] = ()
    """PIDs that hold GPU memory, in rank order where ranks are known, else by GPU then pid."""
    helpers: dict[int, tuple[int, ...]] = {}
    """Trainer pid -> pids of its descendants (dataloader workers, compile children), by pid."""
    started_s: float | None = None
    is_first_epoch: bool = False
    """In the first 10 minutes of the process: what a warm start would cure is information only."""


class Ending(Value, frozen=True, kw_only=True):
    """A job of which trainers are gone, and what was seen of it before."""

    job: Job
    """As it was last seen whole."""
    ended_s: float
    """When the last of them went (epoch); of a job that is not over, the last so far."""
    elapsed_s: float
    """The same moment in seconds since the first sample."""
    lived_s: float
    """From its processes' start, else from when it was first seen."""
    is_confirmed: bool = True
    """False in the first seconds, when a list of processes may merely have failed."""
    remaining: tuple[int, ...] = ()
    """Trainers that still run; empty where the job is over."""
    exits: dict[int, float] = {}
    """Pid -> seconds before ``ended_s`` at which it was missed, in the order in which they went."""
    ranks: dict[int, int] = {}
    """Pid -> its rank, where known."""
    codes: dict[int, int] = {}
    """Pid -> exit code, for the few whose parent told."""
    said: str | None = None
    """What the source of the event said about the exit."""
    is_finished: bool = False
    """All its probes had reported the end of training."""
    is_abrupt: bool = False
    """Each of its trainers had a probe, and one that is gone never reported the end, as it does unless it is killed."""
    written_bytes: float | None = None
    """By its trainers in the last two minutes; None where that cannot be read."""
    attempt: int = 1
    """Number of runs of this program by this user within half an hour, this one included."""
    short_attempts: int = 0
    """How many with the same command line lived less than five minutes and left nothing behind."""
    is_restarted: bool = False
    """The same program was started again within a minute."""
