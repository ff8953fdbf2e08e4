"""Knows ``comm-bound``: GPUs that wait for a link between them because it is full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Job, Subject
from gpumon.rules.links import has_nvlink, has_slot, pcie_bytes_per_s, uses_nvlink
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job counts as bound by communication."""

    window_s: float = 300.0
    """The seconds looked at."""
    pcie_pct: float = 60.0
    """Of what the PCIe link carries one way: traffic of both ways together from which on it is full."""
    network_pct: float = 80.0
    """Of what network or InfiniBand carries one way."""
    share_pct: float = 30.0
    """Share of the time in which a link must be full."""
    tensor_pct: float = 25.0
    """Tensor activity from which on the GPUs do not wait much."""
    blind_share_pct: float = 65.0
    """Without tensor activity: share of the time for which its mean traffic, both ways, would fill a PCIe link."""


_CARRIES = 0.85
"""Of the nominal rate of a PCIe link: the rest are the headers of its packets."""


class _Full(NamedTuple):
    what: str
    least_pct: float
    """From this share of the time on it is full too often."""
    share_pct: float
    most_bytes_per_s: float
    mean_bytes_per_s: float
    fields: tuple[str, ...]


_FIXES = (
    "synchronise less often: gradient accumulation with no_sync(), larger batch",
    "halve the traffic: gradients in bf16 (DDP hook bf16_compress_hook), larger bucket_cap_mb",
    "a lower ZeRO/FSDP stage moves less, if the memory allows it",
)
_PCIE_FIX = "nvidia-smi topo -m: put ranks on GPUs with NVLink or one switch; NCCL_DEBUG=INFO shows the path"
_NVLINK_FIX = "the NVLinks carry nothing: is NCCL_P2P_DISABLE set? nvidia-smi topo -p2p n shows who reaches whom"
_NET_FIX = "NCCL_DEBUG=INFO: NET/Socket where NET/IB is expected? set NCCL_SOCKET_IFNAME, NCCL_IB_HCA"


@rule(
    "comm-bound",
    limits=Limits,
    every_s=10.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "pcie-degraded", "nvlink-down"),
)
def comm_bound(window: Window, limits: Limits) -> Conclusions:
    """A job of several GPUs fills the link between them and waits for it.

    What it sees:
        GPUs of one training job without NVLink, or with NVLinks that carry nothing, whose PCIe traffic (both ways) is
        at 60 % of the link or more for at least 30 % of 5 min, with little tensor activity; or, for a job with ranks on
        other machines, network or InfiniBand at 80 % of its rate for as long. Where the driver gives no tensor activity
        the GPUs may compute meanwhile, so both ways must carry what would fill them 65 % of the time.

    Why it matters:
        More or faster GPUs do not help a job that waits for its gradients; sending fewer bytes does.

    What to do:
        Accumulate gradients, send them in bf16, use larger buckets, a lower ZeRO stage; place ranks on GPUs that share
        a switch (nvidia-smi topo -m), and see that NCCL uses the network that you paid for.

    When it is wrong:
        Offloading to the CPU (ZeRO-Offload, cpu_offload) and large batches fill PCIe as well, by design. Where the
        driver gives no tensor activity, or only samples of 20 ms of the traffic, the word is possible. It is
        information only. Without tensor activity, links that cannot be filled (through the host's memory) stay silent.
    """
    if not window.covers(limits.window_s):
        return
    for job in window.jobs:
        gpus = [gpu for gpu in window.last.gpus if gpu.uuid in job.gpu_uuids and not gpu.is_lost]
        if job.kind != "training" or job.phase != "train":
            continue
        found = _network(window, job, limits)
        if found is None and _goes_over_pcie(window, gpus, limits):
            if all(gpu.pcie_rx_bytes_per_s is None and gpu.pcie_tx_bytes_per_s is None for gpu in gpus):
                because = "the traffic on the PCIe links is not reported"
                yield Abstention(rule="comm-bound", because=because, subject=Subject(kind="job", job=job.id))
                continue
            found = _pcie(window, gpus, limits)
        if found is not None and found.share_pct >= 0.8 * found.least_pct:
            yield _finding(window, job, gpus, found, limits)


def _goes_over_pcie(window: Window, gpus: Sequence[Gpu], limits: Limits) -> bool:
    if len(gpus) < 2 or not all(map(has_slot, gpus)):
        return False
    return not any(uses_nvlink(window, gpu, limits.window_s) for gpu in gpus)


def _pcie(window: Window, gpus: Sequence[Gpu], limits: Limits) -> _Full | None:
    """The median link of the job; one full link alone is another story."""
    found: list[_Full] = []
    for gpu in gpus:
        most = pcie_bytes_per_s(gpu.pcie_gen_max, gpu.pcie_width_max)
        tensor = window.mean(gpu, "tensor_active_pct", limits.window_s)
        if most is None or (tensor is not None and tensor >= limits.tensor_pct):
            return None
        ways = [window.series(gpu, f"pcie_{way}_bytes_per_s", limits.window_s) for way in ("rx", "tx")]
        both = [None if rx is None and tx is None else (rx or 0.0) + (tx or 0.0) for rx, tx in zip(*ways, strict=True)]
        full = _full(both, most, limits.pcie_pct)
        if full is None:
            return None
        share, mean = full
        least = limits.share_pct
        if tensor is None:
            share, least = min(100.0, 100.0 * mean / (2 * _CARRIES * most)), limits.blind_share_pct
        found.append(_Full("PCIe", least, share, most, mean, ("pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s")))
    return sorted(found, key=lambda one: one.share_pct)[len(found) // 2]


def _network(window: Window, job: Job, limits: Limits) -> _Full | None:
    """The fullest direction of what leads to the job's ranks on other machines."""
    processes = {process.pid: process for process in window.last.processes}
    worlds = [processes[pid].world_size or 1 for pid in job.trainers if pid in processes]
    host = window.last.host
    if max(worlds, default=1) <= len(job.trainers):
        return None
    found: list[_Full] = []
    for what, prefix, most in (
        ("InfiniBand", "rdma", host.rdma_limit_bytes_per_s),
        ("network", "net", host.net_limit_bytes_per_s),
    ):
        for way in ("rx", "tx"):
            field = f"{prefix}_{way}_bytes_per_s"
            full = None if not most else _full(window.series(host, field, limits.window_s), most, limits.network_pct)
            if full is not None and most:
                found.append(_Full(what, limits.share_pct, full[0], most, full[1], (field,)))
    return max(found, key=lambda one: one.share_pct, default=None)


def _full(values: Sequence[float | None], most: float, level_pct: float) -> tuple[float, float] | None:
    """In what share of the samples the level was reached, and their mean."""
    known = [value for value in values if value is not None]
    if not known or len(known) * 2 < len(values):
        return None
    share = 100.0 * sum(100.0 * value >= level_pct * most for value in known) / len(known)
    return share, sum(known) / len(known)


def _finding(window: Window, job: Job, gpus: Sequence[Gpu], full: _Full, limits: Limits) -> Finding:
    level = limits.pcie_pct if full.what == "PCIe" else limits.network_pct
    is_blind = full.what == "PCIe" and full.least_pct != limits.share_pct
    has_tensor = all(gpu.tensor_active_pct is not None for gpu in gpus)
    confidence: Confidence = "likely" if has_tensor or full.what == "InfiniBand" else "possible"
    most, mean = (units.rate(value).strip() for value in (full.most_bytes_per_s, full.mean_bytes_per_s))
    judged_by = f"mean of both ways of {most} each" if is_blind else f"≥ {level:g}% of {most}"
    subject = gpus[0] if full.what == "PCIe" else window.last.host
    shown = full.fields[0]
    return Finding(
        rule="comm-bound",
        severity="info",
        confidence=confidence,
        subject=Subject(kind="job", job=job.id),
        summary=f"the {full.what} link is full, GPUs wait for it",
        strength=full.share_pct / full.least_pct,
        cause="pcie" if full.what == "PCIe" else "network",
        cause_text=f"{full.what} full {full.share_pct:.0f}% of the time, mean {mean} of {most}",
        fix_text="gradient accumulation, bf16 gradients, placement",
        evidence=(
            Evidence(
                name=f"{full.what} full",
                value=float(round(full.share_pct)),
                unit="%",
                judged_by=f"{judged_by} in ≥ {full.least_pct:g}% of {limits.window_s / 60:g} min",
                field=shown,
            ),
            Evidence(name="mean traffic", value=units.rate(window.mean(subject, shown, limits.window_s)).strip()),
        ),
        fixes=_fixes(gpus, full),
    )


def _fixes(gpus: Sequence[Gpu], full: _Full) -> tuple[str, ...]:
    if full.what != "PCIe":
        return (*_FIXES, _NET_FIX)
    return (_NVLINK_FIX, *_FIXES) if any(map(has_nvlink, gpus)) else (*_FIXES, _PCIE_FIX)
