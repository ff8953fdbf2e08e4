"""How a simulated card finds its clock: boost, power limit, temperature limits, locks and brakes."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from gpumon.sources.simulator.chips import Chip
from gpumon.sources.simulator.heat import LEAST_CLOCK, Heat, clock_for, leakage, relative_power

POWER_SHARE = 0.975
"""The power governor regulates to a little below the limit."""
HW_SLOWDOWN = 0.25
"""Beyond the slowdown temperature the hardware divides the clock by itself."""
HW_HYSTERESIS_C = 4.0
BRAKED = 0.5
MEMORY_RISE_C = 5.0
REASONS = ("sw_power_cap", "sw_thermal", "hw_thermal", "hw_power_brake")


class Load(NamedTuple):
    """What a card did in a stretch of time, as shares of it."""

    compute: float
    spin: float
    work: float
    """The computing share, weighed by how much power its kernels draw."""


class Governor:
    """Clock and power of the moment, and for how long each limiter held."""

    __slots__ = (
        "_held_s",
        "_is_cut",
        "_power_duty",
        "_rng",
        "_wobble",
        "always_caps",
        "battery_w",
        "brake_share",
        "chip",
        "heat",
        "held_by",
        "limit_w",
        "locked",
        "memory_k_per_w",
        "mhz",
        "power_w",
        "powered_w",
    )

    def __init__(self, chip: Chip, heat: Heat, boost_mhz: float, rng: Random) -> None:
        """A healthy card at rest."""
        self.chip, self.heat, self.mhz, self._rng = chip, heat, boost_mhz, rng
        self.power_w = chip.idle_w
        self.limit_w = chip.limit_w
        self.powered_w: float | None = None
        """What the platform delivers where that is less than the limit says."""
        self.battery_w: float | None = None
        self.locked: float | None = None
        """A ceiling that somebody set, as a share of boost."""
        self.brake_share = 0.0
        """Of the time, in which the chassis pulls the power brake."""
        self.always_caps = False
        """The power loop counts as holding even where it costs next to nothing."""
        self.memory_k_per_w = 0.012
        """Between the memory and the heat sink."""
        self.held_by: str | None = None
        self._wobble = 0.0
        self._power_duty = 0.2
        self._is_cut = False
        self._held_s = dict.fromkeys(REASONS, 0.0)

    def memory_c(self) -> float:
        """Temperature of the memory chips."""
        return self.heat.sink_c + self.memory_k_per_w * self.power_w + MEMORY_RISE_C

    def advance(self, load: Load, *, boost_mhz: float, resting_w: float, seconds: float) -> None:
        """Find clock and power under a load."""
        compute, spin, work = load
        s = seconds
        chip, heat, rng = self.chip, self.heat, self._rng
        rest = (1.0 - compute - spin) * resting_w + spin * chip.spin_w + compute * chip.context_w
        self._wobble += 0.35 * s * (0.028 * (rng.random() - 0.5) - self._wobble)
        full = (chip.busy_w - chip.context_w) * (1.0 + self._wobble) * leakage(heat.die_c) * work
        clock, held_by = 1.0 if self.locked is None else self.locked, None
        if compute > 0.02:
            cap = POWER_SHARE * min(limit for limit in (self.limit_w, self.powered_w, self.battery_w) if limit)
            if rest + full * relative_power(clock) > cap:
                clock, held_by = min(clock, clock_for((cap - rest) / full)), "sw_power_cap"
            allowed = min(heat.allowed_w(chip.max_c - 0.25, s), self._memory_allows_w())
            if rest + full * relative_power(clock) > allowed:
                clock, held_by = min(clock, clock_for(max(0.05, (allowed - rest) / full))), "sw_thermal"
        clock = max(clock, LEAST_CLOCK)
        self._is_cut = heat.die_c >= chip.slowdown_c - (HW_HYSTERESIS_C if self._is_cut else 0.0)
        if self._is_cut:
            clock, held_by = min(clock, HW_SLOWDOWN), "hw_thermal"
        elif self.brake_share:
            clock *= 1.0 - self.brake_share * (1.0 - BRAKED)
            self._held_s["hw_power_brake"] += self.brake_share * s
        self.mhz = clock * boost_mhz
        self.power_w = rest + full * relative_power(clock)
        self._hold(held_by, s)

    def _memory_allows_w(self) -> float:
        limit = self.chip.memory_max_c
        if limit is None or self.memory_k_per_w <= 0.03:
            return 1e9
        return max(0.0, (limit - 0.5 - MEMORY_RISE_C - self.heat.sink_c) / self.memory_k_per_w)

    def _hold(self, limiter: str | None, seconds: float) -> None:
        """Count the time a limiter holds, as the driver's ns counters do.

        The thermal loop waits a whole degree before it lets go; the power loop steps down at once and up
        again slowly, so it holds about a fifth of the time.
        """
        self.held_by = limiter
        if limiter in {"sw_thermal", "hw_thermal"}:
            self._held_s[limiter] += seconds * (0.94 + 0.05 * self._rng.random())
        elif limiter is not None or self.always_caps:
            is_low = self.limit_w < 0.9 * self.chip.limit_w or self.powered_w is not None
            usual = 0.93 if self.always_caps or is_low else 0.19
            self._power_duty += 0.3 * (usual + 0.14 * (self._rng.random() - 0.5) - self._power_duty)
            self._held_s["sw_power_cap"] += seconds * min(1.0, self._power_duty)

    def reasons(self) -> tuple[str, ...]:
        """The bits that are set at this instant."""
        rng, found = self._rng, []
        is_capping = self.held_by == "sw_power_cap" or (self.always_caps and self.held_by is None)
        if is_capping and rng.random() < self._power_duty:
            found.append("sw_power_cap")
        if self.held_by in {"sw_thermal", "hw_thermal"}:
            found += [self.held_by, *(["hw_slowdown"] if self.held_by == "hw_thermal" else [])]
        if self.brake_share and rng.random() < self.brake_share:
            found += ["hw_power_brake", "hw_slowdown"]
        return tuple(found)

    def take_held(self, seconds: float) -> dict[str, float]:
        """Share of ``seconds`` in which each limiter held, since the last call."""
        held = self._held_s
        shares = {reason: round(min(100.0, 100.0 * held[reason] / seconds), 1) for reason in REASONS}
        self._held_s = dict.fromkeys(REASONS, 0.0)
        return {**shares, "sync_boost": 0.0}
