"""Knows what a link can carry, and how much a count of errors grew."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import NamedTuple

from gpumon.model import Gpu
from gpumon.window import Window

_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9, 7: 15.125e9}
"""One way, after the line code."""
_NVLINK_BYTES_PER_S = 25e9
"""One NVLink one way, from Volta to Hopper."""
_UNUSED_BYTES_PER_S = 20e6
"""Less than this over all NVLinks of a GPU is no exchange of gradients."""
_REPLAYS_PER_LANE = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Per minute: NVIDIA's DCGM derives them from the bit error rate that PCIe allows."""
_NO_SLOT = re.compile(r"GB10\b|GH200|GB[23]00|Thor|Orin|Xavier|Tegra")
"""Behind a chip-to-chip link or on the same chip: the PCIe link they report is a placeholder."""


def has_slot(gpu: Gpu) -> bool:
    """Whether the PCIe link that it reports is one."""
    return not gpu.memory_is_shared and not _NO_SLOT.search(gpu.name or "")


def pcie_bytes_per_s(gen: float | None, width: float | None) -> float | None:
    """What a PCIe link carries each way."""
    lane = _LANE_BYTES_PER_S.get(int(gen)) if gen else None
    return lane * width if lane is not None and width else None


def traffic_bytes_per_s(window: Window, gpu: Gpu, seconds: float, *, link: str = "pcie") -> float | None:
    """Traffic both ways over PCIe or NVLink; None where neither is reported."""
    ways = [window.mean(gpu, f"{link}_{way}_bytes_per_s", seconds) for way in ("rx", "tx")]
    known = [way for way in ways if way is not None]
    return sum(known) if known else None


def link_share_pct(window: Window, gpu: Gpu, seconds: float) -> float | None:
    """How full its fuller link is: traffic of both ways, of what it carries one way; None where unknown."""
    pcie = pcie_bytes_per_s(gpu.pcie_gen_max, gpu.pcie_width_max) if has_slot(gpu) else None
    shares = []
    for link, most in (("pcie", pcie), ("nvlink", _NVLINK_BYTES_PER_S * (gpu.nvlinks_active or 0))):
        carried = traffic_bytes_per_s(window, gpu, seconds, link=link)
        if most and carried is not None:
            shares.append(100.0 * carried / most)
    return max(shares, default=None)


def uses_nvlink(window: Window, gpu: Gpu, seconds: float) -> bool:
    """It has NVLinks, and they carry something or do not say."""
    carried = traffic_bytes_per_s(window, gpu, seconds, link="nvlink")
    return has_nvlink(gpu) and (carried is None or carried >= _UNUSED_BYTES_PER_S)


def replay_budget(gen: float | None, width: float | None) -> int:
    """Replays per minute that a healthy link may need."""
    return math.ceil((width or 16) * _REPLAYS_PER_LANE.get(int(gen or 0), 3.84))


class Growth(NamedTuple):
    """How much a cumulative count grew, and in how many steps."""

    grown: float
    steps: int


def growth(window: Window, gpu: Gpu, field: str, seconds: float) -> Growth | None:
    """Growth over the last ``seconds``; a count that falls was restarted. None where it is not reported."""
    extent = window.extent(gpu, field, seconds)
    if extent is None:
        return None
    if extent[0] == extent[1]:
        return Growth(grown=0.0, steps=0)  # nearly always, and seen fast
    known = [value for value in window.series(gpu, field, seconds) if value is not None]
    rises = [after - before for before, after in pairwise(known) if after > before]
    return Growth(grown=sum(rises), steps=len(rises))


def has_nvlink(gpu: Gpu) -> bool:
    """It has NVLinks to a peer that are up."""
    return bool(gpu.nvlinks_active)
