"""Knows what one reading says about how GPUs are used: busy at little power, or held and at rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpumon import units
from gpumon.model import Evidence, Finding, Gpu, Job, Process, Subject
from gpumon.rules.limiters import boards, together
from gpumon.rules.one_reading import clock, has, seen, shown
from gpumon.rules.rule import Conclusions
from gpumon.rules.scope import gpus_of, names
from gpumon.signals import THERMAL, busy_pct, power_share, works_on_video
from gpumon.window import Window

FIXES_OF_HANGS = (
    "next run: TORCH_NCCL_DUMP_ON_TIMEOUT=1 TORCH_NCCL_DESYNC_DEBUG=1 TORCH_FR_BUFFER_SIZE=2000; read the dump",
    "look for branches that depend on the rank, a barrier on rank 0 alone, uneven batches (drop_last=True, join())",
    "dmesg | grep -iE 'xid|out of memory'; is /dev/shm full?",
    "hangs at the first collective: NCCL_DEBUG=INFO; try NCCL_P2P_DISABLE=1, check NCCL_SOCKET_IFNAME",
    "end all ranks and go on from the last checkpoint",
)
_AWAKE = frozenset({"P0", "P1", "P2"})
_LAPTOP = re.compile(r"Laptop|Max-Q|Mobile|MX\d{3}")
_SCREEN = re.compile(
    r"\b(xorg|xwayland|gnome|kwin|plasmashell|mutter|cinnamon|chrom\w*|firefox|dwm|explorer|steam)\b|desktop|browser",
    re.IGNORECASE,
)
"""Programs that draw: what they hold is no reservation."""
_BUSY_PCT, _REST_PCT = 95.0, 1.0
_SPINS_PCT, _COLD_C = 98.0, 45.0
_LITTLE_POWER, _WORKS_POWER = 0.35, 0.3
"""Shares of the way from idle to the limit."""
_LITTLE_MEMORY_PCT, _NO_MEMORY_PCT = 25.0, 5.0
_HIGH_CLOCK = 0.8
_HELD_BYTES, _HELD_SHARE = 1e9, 0.05


def low_power_high_util(window: Window, _limits: object) -> Conclusions:
    """Always busy, at a high clock and little power; on all busy GPUs of several it may be a collective."""
    if window.last.host.chassis == "laptop":
        return
    busy = [gpu for gpu in boards(window) if (busy_pct(gpu) or 0.0) >= _BUSY_PCT]
    light = [gpu for gpu in busy if _is_light(gpu)]
    if len(light) > 1 and len(light) == len(busy):
        yield msgspec.structs.replace(_at_little_power(window, light), subject=Subject(kind="host"), severity="warning")
        return
    for gpu in light:
        yield _at_little_power(window, [gpu])


def collective_hang(window: Window, _limits: object) -> Conclusions:
    """All busy GPUs of several are cold and draw next to nothing: they wait for each other, now at least."""
    if window.elapsed_s > 0 or window.last.host.chassis == "laptop":
        return  # what moves between two readings speaks against it
    busy = [gpu for gpu in boards(window) if (busy_pct(gpu) or 0.0) >= _SPINS_PCT]
    if len(busy) < 2 or not all(_is_light(gpu) and (gpu.temperature_c or 100.0) <= _COLD_C for gpu in busy):
        return
    found = _at_little_power(window, busy)
    hottest = max(gpu.temperature_c or 0.0 for gpu in busy)
    yield msgspec.structs.replace(
        found,
        rule="collective-hang",
        severity="warning",
        subject=Subject(kind="host"),
        summary=f"{names(busy, window.last.gpus)} busy, cold, at idle power: a hang?",
        cause="spins",
        cause_text=f"{found.cause_text}; at most {hottest:.0f} °C".replace(", or small kernels", ""),
        fixes=(
            "gpumon diagnose --for 2m: if nothing moves it is a hang, or one rank that the others wait for",
            *found.fixes[2:3],
            *FIXES_OF_HANGS,
        ),
    )


def _is_light(gpu: Gpu) -> bool:
    """Little power for all that is known of its clock and its memory; without GPM, which would say more."""
    share, default = power_share(gpu, None), gpu.power_default_limit_w
    if gpu.sm_active_pct is not None or _LAPTOP.search(gpu.name or ""):
        return False
    if share is None:  # its limit is not told: a card at work reads memory and is warm
        reads = gpu.memory_utilization_pct
        return reads is not None and reads < _NO_MEMORY_PCT and (gpu.temperature_c or 100.0) <= _COLD_C
    if share >= _LITTLE_POWER:
        return False
    if default is not None and gpu.power_limit_w is not None and gpu.power_limit_w > 1.02 * default:
        return False
    if gpu.memory_is_shared or any(has(gpu, name) for name in THERMAL):
        return False
    if gpu.sm_clock_mhz is not None and gpu.sm_clock_max_mhz:
        return gpu.sm_clock_mhz >= _HIGH_CLOCK * gpu.sm_clock_max_mhz
    if gpu.performance_state is None:
        return gpu.memory_utilization_pct is not None and gpu.memory_utilization_pct < _LITTLE_MEMORY_PCT
    return gpu.performance_state in _AWAKE and (gpu.memory_utilization_pct or 0.0) < _LITTLE_MEMORY_PCT


def _at_little_power(window: Window, gpus: Sequence[Gpu]) -> Finding:
    first = gpus[0]
    watts = [gpu.power_w or 0.0 for gpu in gpus]
    limit = "" if first.power_limit_w is None else f" of {first.power_limit_w:.0f}"
    range_w = f"{min(watts):.0f}" + (f"–{max(watts):.0f}" if len(gpus) > 1 else "")
    return seen(
        window,
        "low-power-high-util",
        first,
        f"{names(gpus, window.last.gpus)} busy, but at little power",
        ("info", "possible"),
        cause="collective-or-small-kernels",
        cause_text=f"{range_w}{limit} W: waiting in a collective, or small kernels",
        fix_text="read it again over two minutes",
        evidence=(
            shown("busy", busy_pct(first), "%", judged_by=f"≥ {_BUSY_PCT:g}%"),
            shown("power", first.power_w, "W", limit=first.power_limit_w, judged_by="its limit"),
            clock(first),
            shown("temperature", first.temperature_c, "°C"),
            shown("memory use", first.memory_utilization_pct, "% of time"),
        ),
        fixes=(
            "gpumon diagnose --for 2m: ranks that never move and draw the same hang in a collective",
            "the rank whose use differs is the one that is late: py-spy dump --pid PID",
            "where it is no collective: a larger batch, torch.compile(model)",
        ),
    )


def idle_reserved(window: Window, _limits: object) -> Conclusions:
    """Memory is held and nothing runs in this very moment: so it is between two batches, too."""
    processes = {process.pid: process for process in window.last.processes}
    found: dict[str, Finding] = {}
    for job in window.jobs:
        gpus = gpus_of(window, job)
        if job.kind == "serving" or job.phase == "end" or not all(map(_rests, gpus)) or _draws(job, processes):
            continue
        for gpu in gpus:
            held = _held_bytes(gpu, job, processes)
            if held is not None and held >= min(_HELD_BYTES, _HELD_SHARE * (gpu.memory_total_bytes or 1e12)):
                found.setdefault(gpu.uuid, _held(window, job, gpu, held))
    yield from together(list(found.values()), len(window.last.gpus), "are held, and idle in this reading")


def _rests(gpu: Gpu) -> bool:
    """No kernel runs, and it draws no more than an open context costs."""
    use, share = busy_pct(gpu), power_share(gpu, None)
    works = share is not None and share >= _WORKS_POWER
    return use is not None and use <= _REST_PCT and not works and not works_on_video(gpu)


def _draws(job: Job, processes: Mapping[int, Process]) -> bool:
    own = (processes[pid] for pid in job.trainers if pid in processes)
    return any(_SCREEN.search(f"{one.name or ''} {(one.command or '')[:200]}") for one in own)


def _held_bytes(gpu: Gpu, job: Job, processes: Mapping[int, Process]) -> float | None:
    """What the job holds; None where the driver names its processes but not what they hold (Windows)."""
    held = list(_amounts(gpu, job, processes))
    if not held:
        return float(gpu.memory_used_bytes or 0)
    return None if None in held else float(sum(amount or 0 for amount in held))


def _amounts(gpu: Gpu, job: Job, processes: Mapping[int, Process]) -> Iterator[int | None]:
    for pid in job.trainers:
        if pid in processes and gpu.uuid in processes[pid].gpu_memory_bytes:
            yield processes[pid].gpu_memory_bytes[gpu.uuid]


def _held(window: Window, job: Job, gpu: Gpu, held: float) -> Finding:
    pids = " ".join(str(pid) for pid in job.trainers[:4])
    return seen(
        window,
        "idle-reserved",
        gpu,
        f"GPU {gpu.index} is held, and idle in this reading",
        ("info", "possible"),
        cause="held-idle",
        cause_text=f"{units.gib(held):.1f} GiB held, no kernel: left over, between batches, or CPU work",
        fix_text="read it again while the job runs",
        evidence=(
            shown("utilization", busy_pct(gpu), "%"),
            Evidence(name="performance state", value=gpu.performance_state),
            Evidence(name="memory held", value=round(units.gib(held), 1), unit="GiB"),
            shown("power", gpu.power_w, "W", limit=gpu.power_limit_w, judged_by="its limit"),
        ),
        fixes=(
            "a job that should use it may compute on the CPU: print(torch.cuda.is_available(), model.device)",
            f"if nobody needs it: kill {pids}" if pids else "if nobody needs it, end its process",
        ),
    )
