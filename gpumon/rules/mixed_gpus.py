"""Knows ``mixed-gpus``: one job spread over GPUs that are not alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Evidence, Finding, Gpu, Job, Subject
from gpumon.rules.links import has_nvlink, has_slot, pcie_bytes_per_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From when on GPUs of one job count as different."""

    memory_pct: float = 10.0
    """Difference of their memory."""
    power_pct: float = 10.0
    """Difference of their power limits."""
    link_ratio: float = 2.0
    """How many times as much the best PCIe link carries as the worst, where there is no NVLink."""


class _Difference(NamedTuple):
    what: str
    low: str
    high: str
    fix: str

    def text(self) -> str:
        return f"{self.what} {self.low} and {self.high}"


@rule("mixed-gpus", limits=Limits, every_s=10.0, clear_s=10.0, suppressed_by=("gpu-lost", "driver-stuck"))
def mixed_gpus(window: Window, limits: Limits) -> Conclusions:
    """A job trains on GPUs that are not alike, so it runs at the pace of the slowest.

    What it sees:
        GPUs of one job that differ in model, number of multiprocessors, MIG profile, NVLinks, memory (by 10 %), power
        limit (by 10 %) or, without NVLink, in what their PCIe slots can carry (by half).

    Why it matters:
        Training in step waits for the slowest GPU at every step, and runs out of memory on the smallest one first.

    What to do:
        Give the slow card a smaller share of the batch, or leave it out with CUDA_VISIBLE_DEVICES. Order cards with
        CUDA_DEVICE_ORDER=PCI_BUS_ID, or numbers mean different cards to CUDA and nvidia-smi. Equal power limits are
        one command.

    When it is wrong:
        Pipelines and parameter servers may use different cards on purpose; it is information only, in any case.
    """
    for job in window.jobs:
        gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids and not gpu.is_lost]
        if job.kind != "training" or len(gpus) < 2:
            continue
        if all(gpu.name is None and gpu.memory_total_bytes is None for gpu in gpus):
            because = "model and memory of its GPUs are not reported"
            yield Abstention(rule="mixed-gpus", because=because, subject=Subject(kind="job", job=job.id))
            continue
        found = list(_differences(gpus, limits))
        if found:
            yield _finding(job, gpus, found)


def _differences(gpus: Sequence[Gpu], limits: Limits) -> Iterator[_Difference]:
    """What differs, the weightiest first."""
    leave_out = "leave the slow card out, or give it a smaller share of the batch"
    for what, of in (
        ("models", lambda gpu: gpu.name),
        ("MIG profiles", lambda gpu: gpu.mig_profile or "none"),
        ("multiprocessors", lambda gpu: gpu.sm_count),
        ("NVLinks", lambda gpu: None if gpu.nvlinks_active is None else has_nvlink(gpu)),
    ):
        pair = _unlike(gpus, of)
        if pair is not None:
            yield _Difference(what, *pair, leave_out)
    memory = _spread(gpus, lambda gpu: gpu.memory_total_bytes)
    if memory is not None and memory[1] >= (1.0 + limits.memory_pct / 100.0) * memory[0]:
        low, high = (f"{units.gib(value):.0f}" for value in memory)
        yield _Difference("memory", low, f"{high} GiB", "size the batch for the smallest memory")
    power = _spread(gpus, lambda gpu: gpu.power_limit_w)
    if power is not None and power[1] >= (1.0 + limits.power_pct / 100.0) * power[0]:
        fix = f"nvidia-smi -pl {power[0]:.0f} on all of them, or raise the low one (root)"
        yield _Difference("power limits", f"{power[0]:.0f}", f"{power[1]:.0f} W", fix)
    if not any(has_nvlink(gpu) for gpu in gpus) and all(has_slot(gpu) for gpu in gpus):
        link = _spread(gpus, lambda gpu: pcie_bytes_per_s(gpu.pcie_gen_max, gpu.pcie_width_max))
        if link is not None and link[1] >= limits.link_ratio * link[0] * 0.99:
            low, high = (units.rate(value).strip() for value in link)
            yield _Difference("PCIe slots", low, high, "move the card to a slot with all its lanes on the CPU")


def _unlike(gpus: Sequence[Gpu], of: Callable[[Gpu], Hashable]) -> tuple[str, str] | None:
    """The rarest and the most frequent value, where there are several."""
    counts = Counter(value for gpu in gpus if (value := of(gpu)) is not None)
    if len(counts) < 2:
        return None
    ordered = counts.most_common()
    return _short(ordered[-1][0]), _short(ordered[0][0])


def _short(value: Hashable) -> str:
    if isinstance(value, bool):
        return "up" if value else "none"
    return str(value).removeprefix("NVIDIA ").removeprefix("GeForce ")[:26]


def _spread(gpus: Sequence[Gpu], of: Callable[[Gpu], float | None]) -> tuple[float, float] | None:
    known = [value for gpu in gpus if (value := of(gpu)) is not None]
    return (min(known), max(known)) if len(known) == len(gpus) else None


def _finding(job: Job, gpus: Sequence[Gpu], found: Sequence[_Difference]) -> Finding:
    nodes = sorted({gpu.numa_node for gpu in gpus if gpu.numa_node is not None})
    placed = (Evidence(name="NUMA nodes", value=", ".join(map(str, nodes))),) if len(nodes) > 1 else ()
    more = "" if len(found) == 1 else f", and {len(found) - 1} more"
    return Finding(
        rule="mixed-gpus",
        severity="info",
        confidence="certain",
        subject=Subject(kind="job", job=job.id),
        summary=f"{len(gpus)} GPUs of one job are not alike",
        cause=found[0].what.lower().replace(" ", "-"),
        cause_text=f"{found[0].text()[:60]}{more}",
        fix_text=found[0].fix[:70],
        evidence=(*(Evidence(name=one.what, value=one.low, was=one.high) for one in found), *placed),
        fixes=(
            *dict.fromkeys(one.fix for one in found),
            "CUDA_DEVICE_ORDER=PCI_BUS_ID: one numbering for CUDA and nvidia-smi",
        ),
    )
