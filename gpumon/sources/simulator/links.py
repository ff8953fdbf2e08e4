"""What connects a simulated card: its PCIe slot and its NVLinks, how fast they are and what went over them."""

from __future__ import annotations

from gpumon.sources.simulator.chips import Chip

PCIE_LANE_BYTES_PER_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
PCIE_EFFICIENCY = 0.82
NVLINK_EFFICIENCY = 0.75


class Links:
    """The state of the links and the bytes since the last reading."""

    __slots__ = (
        "_chip",
        "_exchanges",
        "bridged",
        "copied_bytes",
        "crc_per_s",
        "errors",
        "exchanged_bytes",
        "gen",
        "nvlinks_active",
        "recovery_failures",
        "replays",
        "replays_per_s",
        "width",
    )

    def __init__(self, chip: Chip) -> None:
        """As they should be."""
        self._chip = chip
        self.gen, self.width = chip.pcie_gen, chip.pcie_width
        self.nvlinks_active = chip.nvlinks
        self.bridged = bool(chip.nvlinks)
        """Whether peers talk over NVLink."""
        self.copied_bytes = self.exchanged_bytes = 0.0
        self._exchanges: list[tuple[float, float, float]] = []
        self.replays = self.errors = 0.0
        self.replays_per_s = self.crc_per_s = 0.0
        self.recovery_failures = 0

    def pcie_bytes_per_s(self) -> float:
        """What the slot carries, one way."""
        return PCIE_LANE_BYTES_PER_S[self.gen] * self.width * PCIE_EFFICIENCY

    def peer_bytes_per_s(self) -> float:
        """What it exchanges with the other GPUs; without NVLink through the slot."""
        if self.bridged and self.nvlinks_active:
            return self.nvlinks_active * self._chip.nvlink_bytes_per_s * NVLINK_EFFICIENCY
        return self.pcie_bytes_per_s()

    def exchange(self, begin_s: float, end_s: float, size: float) -> None:
        """Send bytes to the peers between two moments; a step may take longer than an interval."""
        self._exchanges.append((begin_s, end_s, size))

    def carry(self, begin_s: float, end_s: float) -> None:
        """Live through a stretch of time."""
        for begun_s, ends_s, size in self._exchanges:
            within_s = min(ends_s, end_s) - max(begun_s, begin_s)
            self.exchanged_bytes += size * max(0.0, within_s) / (ends_s - begun_s)
        self._exchanges = [one for one in self._exchanges if one[1] > end_s]

    def values(self, seconds: float | None, *, parked_gen: int | None) -> dict[str, object]:
        """The driver's view; ``parked_gen`` is the generation of an idle link where it is lowered."""
        chip = self._chip
        values: dict[str, object] = {
            "pcie_gen": self.gen if parked_gen is None else min(parked_gen, self.gen),
            "pcie_width": self.width,
            "pcie_replays": int(self.replays),
            "nvlinks_active": self.nvlinks_active,
        }
        if chip.nvlinks:
            values["nvlink_crc_errors"] = values["nvlink_errors"] = int(self.errors)
            values["nvlink_recovery_failures"] = self.recovery_failures
        if seconds is None:
            return values
        self.replays += self.replays_per_s * seconds
        self.errors += self.crc_per_s * seconds
        over_slot = 0.0 if self.bridged and self.nvlinks_active else self.exchanged_bytes
        most = PCIE_LANE_BYTES_PER_S[self.gen] * self.width
        values["pcie_rx_bytes_per_s"] = round(min(most, (self.copied_bytes + over_slot) / seconds) + 2e6, -3)
        values["pcie_tx_bytes_per_s"] = round(min(most, (0.02 * self.copied_bytes + over_slot) / seconds) + 1e6, -3)
        if chip.nvlinks and chip.has_gpm:
            linked = (self.exchanged_bytes - over_slot) / seconds
            values["nvlink_rx_bytes_per_s"] = values["nvlink_tx_bytes_per_s"] = round(linked, -3)
        self.copied_bytes = self.exchanged_bytes = 0.0
        return values
