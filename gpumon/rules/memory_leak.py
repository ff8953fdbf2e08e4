"""Knows ``memory-leak``: what a process keeps from one step to the next grows with every step."""

from __future__ import annotations

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Severity, Subject
from gpumon.rules import memory
from gpumon.rules.memory import GIB, MIB, Growth, Holding
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window

_OUTSIDE_BLOCK_S = 600.0
_GLANCE_S = 30.0
_OUTSIDE_BLOCKS = 5
_SEGMENTS_BYTES = 60 * MIB


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When growth counts as a leak."""

    grown_mib: float = 256.0
    """Least growth over the stretch looked at."""
    grown_pct: float = 1.0
    """Least growth in percent of the GPU's memory."""


FIXES = (
    "sum losses as numbers: total += loss.item(), not total += loss; the same for metrics and lists of outputs",
    "look for retain_graph=True, hooks and closures that keep tensors, caches that never empty",
    "torch.cuda.memory._record_memory_history(), after 200 steps _dump_snapshot('leak.pickle'); pytorch.org/memory_viz",
    "grows during evaluation only: eval_accumulation_steps=1, and torch.no_grad()",
)


@rule("memory-leak", limits=Limits, every_s=10.0, clear_s=300.0, suppressed_by=("gpu-lost", "driver-stuck"))
def memory_leak(window: Window, limits: Limits) -> Conclusions:
    """What the job keeps in GPU memory from step to step grows all the time: in the end it runs out.

    What it sees:
        With the probe: the least that is allocated between two steps, over a stretch of 400 to 6400 steps cut into
        eight parts. Each part lies above the one before by at least 30 % of the mean rise, and the whole rise is at
        least 256 MiB and 1 % of the GPU's memory. Without the probe the driver shows only what the framework keeps in
        reserve; if that grows in each of four consecutive ten minutes it is possible, and information.

    Why it matters:
        The run ends with an out-of-memory error hours later, far from the line that causes it.

    What to do:
        Look for tensors that are kept with their graph: a loss that is summed without ``.item()``, lists of outputs,
        hooks. A recorded memory history shows the line.

    When it is wrong:
        A cache that is meant to grow, averaged weights that start late or ever longer sequences look alike for a
        while. In the first ten minutes of a process it is information only.
    """
    found: list[tuple[Holding, Growth, Confidence]] = []
    for one in memory.holdings(window):
        if one.job.trained_since_s is None or one.job.kind == "notebook":
            continue
        if one.rank is not None and one.rank.allocated_min_bytes is not None:
            grown = memory.growth_of(window, one.rank, _least_bytes(one, limits))
            if grown is not None:
                found.append((one, grown, "likely"))
        elif memory.is_pool(one.trainer):
            yield Abstention(
                rule="memory-leak",
                because="its framework takes memory as one pool; what is used of it needs the probe",
                subject=Subject(kind="job", job=one.job.id),
            )
        else:
            seen = _from_outside(window, one)
            if seen is not None and seen.bytes >= 0.8 * _least_bytes(one, limits):
                found.append((one, seen, "possible"))
    by_uuid = {one.gpu.uuid: (grown, word) for one, grown, word in found}
    for group in memory.grouped([one for one, _, _ in found]):
        grown, word = max((by_uuid[one.gpu.uuid] for one in group), key=lambda pair: pair[0].bytes)
        yield _finding(window, group, grown, word, limits)


def _least_bytes(one: Holding, limits: Limits) -> float:
    return max(limits.grown_mib * MIB, limits.grown_pct / 100.0 * (one.gpu.memory_total_bytes or 0))


def _from_outside(window: Window, one: Holding) -> Growth | None:
    """What the driver sees, over 40 minutes that began half an hour after the start at the earliest."""
    seconds = _OUTSIDE_BLOCK_S * (_OUTSIDE_BLOCKS - 1)
    trained_s = one.job.trained_since_s
    if trained_s is None or window.last.time_s - trained_s < seconds + 1200.0:
        return None
    later, grown = _most_bytes(window, one.gpu, 0), 0.0
    before = window.mean(one.gpu, "memory_used_bytes", _GLANCE_S, ago_s=_OUTSIDE_BLOCK_S)
    if later is None or (before is not None and later - before < _SEGMENTS_BYTES):
        return None  # nearly always, and seen by one look at the ten minutes before
    for number in range(1, _OUTSIDE_BLOCKS):
        earlier = None if later is None else _most_bytes(window, one.gpu, number)
        if earlier is None or later is None or later - earlier < _SEGMENTS_BYTES:
            return None
        later, grown = earlier, grown + later - earlier
    return Growth(grown, 0, seconds)


def _most_bytes(window: Window, gpu: Gpu, number: int) -> float | None:
    """Most memory in use within ten minutes; number 0 are the last ten."""
    end_s = window.last.time_s - number * _OUTSIDE_BLOCK_S
    return window.bins(gpu, "memory_used_bytes", end_s=end_s, width_s=_OUTSIDE_BLOCK_S, count=1, how="max")[0]


def _finding(window: Window, group: list[Holding], grown: Growth, word: Confidence, limits: Limits) -> Finding:
    first = group[0]
    is_measured = word == "likely"
    severity: Severity = "warning" if is_measured and not first.job.is_first_epoch else "info"
    left_s = seconds_left(first, grown) if is_measured else None
    full = f", full in about {units.duration(left_s)}" if left_s is not None else ""
    per = f"{grown.bytes_per_step / MIB:.1f} MiB a step" if grown.steps else f"{grown.bytes / GIB:.1f} GiB in 40 min"
    return Finding(
        rule="memory-leak",
        severity=severity,
        confidence=word,
        subject=memory.subject_of(group),
        summary=f"{memory.who(group, window)} {'leaks' if len(group) == 1 else 'leak'} memory",
        strength=grown.bytes / _least_bytes(first, limits),
        cause_text=f"+{per}{full}",
        fix_text="sum loss.item(), not loss; keep no outputs",
        evidence=(
            Evidence(
                name="allocated between steps" if is_measured else "reserved by the framework",
                value=round(grown.bytes / GIB, 2),
                unit="GiB more",
                judged_by=f"≥ {limits.grown_mib:g} MiB, in every eighth of {units.duration(grown.seconds)}",
                field="allocated_min_bytes" if is_measured else "memory_used_bytes",
            ),
            *(
                (Evidence(name="growth", value=round(grown.bytes_per_step / MIB, 2), unit="MiB a step"),)
                if grown.steps
                else ()
            ),
        ),
        fixes=FIXES,
        onset_s=grown.seconds,
    )


def seconds_left(one: Holding, grown: Growth) -> float | None:
    """Until the memory is full, if it goes on like this."""
    room = memory.room_bytes(one.gpu, one.rank) if one.rank is not None else None
    return None if room is None or grown.bytes_per_s <= 0 else room / grown.bytes_per_s
