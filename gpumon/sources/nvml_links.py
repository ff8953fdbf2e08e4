"""Knows the links of one GPU: PCIe generation and width, NVLinks."""

from __future__ import annotations

from typing import Any

import pynvml

from gpumon.sources.nvml_calls import Asker, Fields

_LINK_COUNT, _LINK_STATE = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, pynvml.NVML_FI_DEV_NVLINK_GET_STATE
_UP = (pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP)
"""A link that sleeps to save power wakes by itself."""


class Links:
    """The links of one GPU."""

    def __init__(self) -> None:
        self._nvlink_count = 0
        self._states: Fields | None = None

    def learn(self, asker: Asker) -> dict[str, Any]:
        """What does not change: limits of this device in this system (a card may do more elsewhere), and the count."""
        counted = Fields("nvlink count", [_LINK_COUNT]).read(asker).get(_LINK_COUNT)
        if counted is None:
            counted = self._count_by_asking(asker)
        self._nvlink_count = min(int(counted), pynvml.NVML_NVLINK_MAX_LINKS)
        facts: dict[str, Any] = {
            "pcie_gen_max": asker("pcie gen max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            "pcie_width_max": asker("pcie width max", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        }
        if self._nvlink_count:
            facts["nvlinks_total"] = self._nvlink_count
            self._states = Fields("nvlink states", [(_LINK_STATE, link) for link in range(self._nvlink_count)])
        return facts

    def read(self, asker: Asker) -> dict[str, Any]:
        """The links now. PCIe slows down while a GPU idles."""
        facts: dict[str, Any] = {
            "pcie_gen": asker("pcie gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
            "pcie_width": asker("pcie width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        }
        if self._states is not None:
            states = list(self._states.read(asker).values())
            if not states:
                answers = (
                    asker(f"nvlink state {link}", pynvml.nvmlDeviceGetNvLinkState, link)
                    for link in range(self._nvlink_count)
                )
                states = [state for state in answers if state is not None]
            facts["nvlinks_active"] = sum(state in _UP for state in states) if states else None
        return facts

    def _count_by_asking(self, asker: Asker) -> int:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if asker(f"nvlink state {link}", pynvml.nvmlDeviceGetNvLinkState, link) is None:
                return link
        return int(pynvml.NVML_NVLINK_MAX_LINKS)
