"""How watts become degrees and megahertz: two thermal masses, voltage with frequency, and the governor's answer."""

from __future__ import annotations

from math import exp

from gpumon.sources.simulator.chips import Chip

VOLTAGE_FLOOR = 0.61
"""Voltage at clock x (of boost) is 0.61 + 0.39 x of the voltage at boost."""
LEAKAGE_PER_K = 0.0015
LEAST_CLOCK = 0.4


def relative_power(clock: float) -> float:
    """Dynamic power at ``clock`` (1 = boost) against that at boost: f V²."""
    volts = VOLTAGE_FLOOR + (1.0 - VOLTAGE_FLOOR) * clock
    return clock * volts * volts


def clock_for(power: float) -> float:
    """The clock at which dynamic power is ``power`` of that at boost; inverse of ``relative_power``."""
    slope = 1.0 - VOLTAGE_FLOOR
    clock = 1.0
    for _ in range(4):
        volts = VOLTAGE_FLOOR + slope * clock
        clock -= (clock * volts * volts - power) / (volts * volts + 2.0 * slope * clock * volts)
    return min(1.0, max(LEAST_CLOCK, clock))


def leakage(temperature_c: float) -> float:
    """Dynamic power of a warm die against one at 65 °C."""
    return 1.0 + LEAKAGE_PER_K * (temperature_c - 65.0)


class Heat:
    """Die and heat sink. Each step is solved exactly for the die and conserves energy to the last joule."""

    __slots__ = (
        "_chip",
        "air_factor",
        "air_target",
        "die_c",
        "fan_pct",
        "fan_stuck_pct",
        "inlet_c",
        "sink_c",
        "sink_k_per_w",
        "vented_j",
    )

    def __init__(self, chip: Chip, inlet_c: float) -> None:
        """A cold card in air of ``inlet_c``."""
        self._chip = chip
        self.inlet_c = self.die_c = self.sink_c = inlet_c
        self.air_factor = self.air_target = 1.0
        """Thermal resistance of the sink against a healthy card's: 2 = half the air."""
        self.fan_pct = chip.fan.at_pct if chip.fan else 0.0
        self.fan_stuck_pct: float | None = None
        """A curve that no longer follows the temperature."""
        self.sink_k_per_w = chip.sink_k_per_w
        self.vented_j = 0.0

    def settle(self, power_w: float) -> None:
        """Go to where this power would have led after long."""
        chip = self._chip
        self.air_factor = self.air_target
        for _ in range(40):
            self._turn_fan(5.0)
            self.sink_c = self.inlet_c + power_w * self.sink_k_per_w
            self.die_c = self.sink_c + power_w * chip.die_k_per_w
            if self.die_c > chip.max_c:
                self.die_c = chip.max_c
                self.sink_c = self.inlet_c + (chip.max_c - self.inlet_c) * self.sink_k_per_w / (
                    self.sink_k_per_w + chip.die_k_per_w
                )

    def _turn_fan(self, seconds: float) -> None:
        chip, fan = self._chip, self._chip.fan
        self.sink_k_per_w = chip.sink_k_per_w * self.air_factor
        if fan is not None:
            wanted = fan.wanted_pct(self.die_c) if self.fan_stuck_pct is None else self.fan_stuck_pct
            self.fan_pct += (wanted - self.fan_pct) * (1.0 - exp(-seconds / 4.0))
            self.sink_k_per_w *= (fan.at_pct / max(self.fan_pct, 15.0)) ** 0.7

    def allowed_w(self, limit_c: float, seconds: float) -> float:
        """The mean power that brings the die to ``limit_c`` and not beyond within ``seconds``."""
        chip = self._chip
        fade = exp(-seconds / (chip.die_k_per_w * chip.die_j_per_k))
        return (limit_c - self.sink_c - (self.die_c - self.sink_c) * fade) / (chip.die_k_per_w * (1.0 - fade))

    def advance(self, power_w: float, seconds: float) -> None:
        """Let ``power_w`` act for ``seconds``."""
        chip = self._chip
        self.air_factor += (self.air_target - self.air_factor) * (1.0 - exp(-seconds / 12.0))
        self._turn_fan(seconds)
        fade = exp(-seconds / (chip.die_k_per_w * chip.die_j_per_k))
        goal = self.sink_c + power_w * chip.die_k_per_w
        die = goal + (self.die_c - goal) * fade
        into_sink_w = power_w - chip.die_j_per_k * (die - self.die_c) / seconds
        resistance = self.sink_k_per_w
        goal = self.inlet_c + into_sink_w * resistance
        sink = goal + (self.sink_c - goal) * exp(-seconds / (resistance * chip.sink_j_per_k))
        self.vented_j += into_sink_w * seconds - chip.sink_j_per_k * (sink - self.sink_c)
        self.die_c, self.sink_c = die, sink
