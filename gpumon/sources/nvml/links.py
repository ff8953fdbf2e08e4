"""Knows the links of one GPU: PCIe generation, width and errors, NVLinks with their traffic and errors."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pynvml

from gpumon.sources.nvml.calls import Asker, Fields
from gpumon.sources.nvml.counters import Counter

ERRORS_S = 10.0
"""Counts of errors: some GPUs are asked link by link."""

_LINK_COUNT, _LINK_STATE = pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, pynvml.NVML_FI_DEV_NVLINK_GET_STATE
_UP = (pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP)
"""A link that sleeps to save power wakes by itself."""
_REPLAYS = pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER
_CORRECTABLE = pynvml.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS
_CRC_TOTALS = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
)
_OTHER_TOTALS = (
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
_CRC = pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC
_OTHERS = (pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY)
_FAILURES = pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
_TX, _RX = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
_ALL_LINKS = 0xFFFFFFFF
"""As a scope: the sum over every link."""
_KIB = 1024


class Links:
    """The links of one GPU."""

    def __init__(self) -> None:
        self._nvlink_count = 0
        self._states: Fields | None = None
        self._totals = Fields("link errors", [_REPLAYS, _CORRECTABLE, *_CRC_TOTALS, *_OTHER_TOTALS])
        self._by_link: Fields | None = None
        self._traffic = Fields("nvlink traffic", [(_TX, _ALL_LINKS), (_RX, _ALL_LINKS)])
        self._tx, self._rx = Counter(), Counter()
        self._errors_at = 0.0

    def learn(self, asker: Asker) -> dict[str, Any]:
        """What does not change: limits of this device in this system (a card may do more elsewhere), and the count."""
        counted = Fields("nvlink count", [_LINK_COUNT]).read(asker).get(_LINK_COUNT)
        if counted is None:
            counted = self._count_by_asking(asker)
        count = self._nvlink_count = min(int(counted), pynvml.NVML_NVLINK_MAX_LINKS)
        facts: dict[str, Any] = {
            "pcie_gen_max": asker("pcie gen max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
            "pcie_width_max": asker("pcie width max", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        }
        if count:
            facts["nvlinks_total"] = count
            self._states = Fields("nvlink states", _per_link([_LINK_STATE], count))
            self._by_link = Fields("nvlink errors by link", _per_link([_CRC, *_OTHERS, _FAILURES], count))
        return facts

    def read(self, asker: Asker) -> dict[str, Any]:
        """The links now. PCIe slows down while a GPU idles."""
        facts: dict[str, Any] = {
            "pcie_gen": asker("pcie gen", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
            "pcie_width": asker("pcie width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
        }
        if self._states is not None:
            facts["nvlinks_active"] = self._active(asker, self._states)
        if asker.now >= self._errors_at:
            self._errors_at = asker.now + ERRORS_S - 0.5
            facts.update(self._errors(asker))
        return facts

    def traffic(self, asker: Asker) -> dict[str, Any]:
        """NVLink bytes from the driver's counters, for GPUs without GPM."""
        if not self._nvlink_count:
            return {}
        values = self._traffic.read(asker)
        at_s = time.monotonic()
        facts: dict[str, Any] = {}
        for name, counter, field in (
            ("nvlink_tx_bytes_per_s", self._tx, _TX),
            ("nvlink_rx_bytes_per_s", self._rx, _RX),
        ):
            kib_per_s = counter.rate(at_s, values.get(field + (_ALL_LINKS << 16)))
            facts[name] = None if kib_per_s is None else kib_per_s * _KIB
        return facts

    def _active(self, asker: Asker, fields: Fields) -> int | None:
        states = list(fields.read(asker).values())
        if not states:
            answers = (
                asker(f"nvlink state {link}", pynvml.nvmlDeviceGetNvLinkState, link)
                for link in range(self._nvlink_count)
            )
            states = [state for state in answers if state is not None]
        # A link that gives no answer is not a link that is down.
        return sum(state in _UP for state in states) if len(states) == self._nvlink_count else None

    def _errors(self, asker: Asker) -> dict[str, Any]:
        totals = self._totals.read(asker)
        replays = totals.get(_REPLAYS)
        if replays is None:
            replays = asker("pcie replays", pynvml.nvmlDeviceGetPcieReplayCounter)
        errors: dict[str, Any] = {"pcie_replays": replays, "pcie_correctable_errors": totals.get(_CORRECTABLE)}
        if self._by_link is not None:
            links = self._by_link.read(asker)
            crc = _sum(totals.get(field) for field in _CRC_TOTALS)
            others = _sum(totals.get(field) for field in _OTHER_TOTALS)
            if crc is None and others is None:
                crc, others = _sum_of(links, (_CRC,)), _sum_of(links, _OTHERS)
            errors["nvlink_errors"] = _sum((crc, others))
            errors["nvlink_crc_errors"] = crc
            errors["nvlink_recovery_failures"] = _sum_of(links, (_FAILURES,))
        return errors

    def _count_by_asking(self, asker: Asker) -> int:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if asker(f"nvlink state {link}", pynvml.nvmlDeviceGetNvLinkState, link) is None:
                return link
        return int(pynvml.NVML_NVLINK_MAX_LINKS)


def _per_link(field_ids: Iterable[int], count: int) -> list[tuple[int, int]]:
    return [(field_id, link) for field_id in field_ids for link in range(count)]


def _sum(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return int(sum(known)) if known else None


def _sum_of(values: dict[int, float], field_ids: tuple[int, ...]) -> int | None:
    """Of the values of some fields over all links."""
    return _sum(value for key, value in values.items() if key & 0xFFFF in field_ids)
