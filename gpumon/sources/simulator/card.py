"""One simulated card: power from what it does, heat from power, clock from heat, and all that as a ``Gpu``."""

from __future__ import annotations

from math import sqrt
from random import Random

from gpumon.model import Gpu
from gpumon.sources.simulator.activity import Activity
from gpumon.sources.simulator.chips import MIB, Chip
from gpumon.sources.simulator.heat import LEAST_CLOCK, Heat, clock_for, leakage, relative_power

POWER_SHARE = 0.975
"""The power governor regulates to a little below the limit."""
CLOCK_STEP_MHZ = 15.0
PARKED_AFTER_S = 12.0
"""A consumer card with an idle context goes to P8 after this."""


class Slice:
    """A MIG instance, or the whole of a card without MIG."""

    __slots__ = ("activity", "holders", "name", "profile", "share", "tensor", "total_bytes", "uuid")

    def __init__(self, uuid: str, name: str, share: float, total_bytes: int, activity: Activity) -> None:
        """``share`` is its part of the card's multiprocessors."""
        self.uuid, self.name, self.share, self.total_bytes = uuid, name, share, total_bytes
        self.activity = activity
        self.profile: str | None = None
        self.holders: dict[int, int] = {}
        """Pid -> bytes."""
        self.tensor = 0.52
        """How busy the tensor cores are while it computes."""

    def used_bytes(self) -> int:
        """What its processes hold."""
        return sum(self.holders.values())

    def gpm(self, seconds: float) -> dict[str, float]:
        """The real activity that Hopper's GPM unit reports, as a share of ``seconds``."""
        compute = 100.0 * self.activity.compute_s / seconds
        spin = 100.0 * self.activity.spin_s / seconds
        return {
            "graphics_active_pct": round(min(100.0, compute + spin), 1),
            "sm_active_pct": round(0.87 * compute + 0.11 * spin, 1),
            "sm_occupancy_pct": round(0.31 * compute + 0.02 * spin, 1),
            "tensor_active_pct": round(self.tensor * compute, 1),
            "dram_active_pct": round(0.46 * compute + 0.01 * spin, 1),
            "fp32_active_pct": round(0.07 * compute, 1),
            "fp64_active_pct": 0.0,
        }


class Card:
    """A GPU. ``advance`` in steps of about a second, then ``reading`` once per sample."""

    def __init__(self, chip: Chip, index: int, *, inlet_c: float, window_s: float, start_s: float, rng: Random) -> None:
        """Identity comes from name and index alone, so that it survives a change of seed."""
        identity = Random(f"{chip.name}/{index}")  # noqa: S311 - a toy, not a secret
        self.chip = chip
        self.index = index
        self.uuid = _uuid("GPU", identity)
        self.pci_bus_id = f"00000000:{(0x17 + 0x0B * index) % 0xF0:02X}:00.0"
        self.rng = rng
        self.boost_mhz = chip.boost_mhz - CLOCK_STEP_MHZ * (index % 3 == 1) * (chip.boost_mhz < chip.max_mhz)
        self.gain = 1.0 + 0.012 * (identity.random() - 0.5)
        self.heat = Heat(chip, inlet_c + 3.0 * (identity.random() - 0.5) * (index > 0))
        activity = Activity(window_s, rng.random() * window_s, start_s)
        self.slices = [Slice(self.uuid, chip.name, 1.0, chip.memory_total_bytes, activity)]
        self.desktop_bytes = 0
        self.is_lost = False
        self.mhz = self.boost_mhz
        self.power_w = chip.idle_w
        self.energy_j = 0.0
        self.true_energy_j = 0.0
        self.held_by: str | None = None
        self.idle_s = 0.0
        self._wobble = 0.0
        self._power_duty = 0.2
        self._energy_read_j: float | None = None
        self._held_s = {"sw_power_cap": 0.0, "sw_thermal": 0.0}
        self._static = self._facts()

    def split(self, profiles: tuple[tuple[str, int, int], ...], start_s: float) -> None:
        """Turn MIG on: (profile, sevenths of the multiprocessors, bytes) for each instance."""
        identity = Random(f"{self.uuid}/mig")  # noqa: S311 - a toy, not a secret
        self.slices = []
        for profile, sevenths, size in profiles:
            activity = Activity(self.chip.window_s, self.rng.random() * self.chip.window_s, start_s)
            name = f"{self.chip.name} MIG {profile}"
            part = Slice(_uuid("MIG", identity), name, sevenths / 7, size, activity)
            part.profile = profile
            self.slices.append(part)
        self._static = self._facts()

    @property
    def has_mig(self) -> bool:
        """Whether it is split into instances."""
        return self.slices[0].profile is not None

    def settle(self, compute: float, spin: float) -> None:
        """Start as warm as a long run with these shares of time would have made it."""
        chip = self.chip
        resting = chip.context_w if self._has_context() else chip.idle_w
        power = resting + compute * (chip.busy_w - resting) + spin * (chip.spin_w - resting)
        self.power_w = min(power, POWER_SHARE * chip.limit_w)
        self.heat.settle(self.power_w)
        self.energy_j = self.power_w * 86_400 * 3.1

    def advance(self, begin_s: float, end_s: float) -> None:
        """Live through [begin, end)."""
        if self.is_lost:
            return
        seconds = end_s - begin_s
        compute = spin = 0.0
        for part in self.slices:
            activity = part.activity
            activity.consume(begin_s, end_s)
            compute += part.share * activity.last_compute_s
            spin += part.share * activity.last_spin_s
        self._govern(compute / seconds, spin / seconds, seconds)
        self.heat.advance(self.power_w, seconds)
        self.true_energy_j += self.power_w * seconds
        self.energy_j += self._metered_w(compute / seconds, spin / seconds, seconds) * seconds
        self.idle_s = 0.0 if compute + spin else self.idle_s + seconds

    def _has_context(self) -> bool:
        return any(part.holders for part in self.slices)

    def _is_parked(self) -> bool:
        if not self._has_context():
            return self.idle_s > 0
        return self.chip.idle_state != "P0" and self.idle_s > PARKED_AFTER_S

    def _govern(self, compute: float, spin: float, seconds: float) -> None:
        """Find clock and power that obey boost, power limit and temperature limit."""
        chip, heat, rng = self.chip, self.heat, self.rng
        resting = chip.idle_w if self._is_parked() else chip.context_w
        rest = (1.0 - compute - spin) * resting + spin * chip.spin_w
        self._wobble += 0.35 * seconds * (0.028 * (rng.random() - 0.5) - self._wobble)
        full = (chip.busy_w - chip.context_w) * (1.0 + self._wobble) * leakage(heat.die_c) * compute
        rest += compute * chip.context_w
        free_w, clock = rest + full, 1.0
        held_by = None
        cap = POWER_SHARE * chip.limit_w
        if compute > 0.02:
            if free_w > cap:
                clock, held_by = clock_for((cap - rest) / full), "sw_power_cap"
            allowed = heat.allowed_w(chip.max_c - 0.25, seconds)
            if rest + full * relative_power(clock) > allowed:
                clock, held_by = clock_for(max(0.05, (allowed - rest) / full)), "sw_thermal"
        self.mhz = max(clock, LEAST_CLOCK) * self.boost_mhz
        self.power_w = rest + full * relative_power(clock)
        self._hold(held_by, seconds)

    def _hold(self, limiter: str | None, seconds: float) -> None:
        """Count the time a limiter holds, as the driver's ns counters do.

        The thermal loop waits a whole degree before it lets go; the power loop steps down at once and up
        again slowly, so it holds about a fifth of the time.
        """
        self.held_by = limiter
        if limiter == "sw_thermal":
            self._held_s[limiter] += seconds * (0.94 + 0.05 * self.rng.random())
        elif limiter is not None:
            self._power_duty += 0.3 * (0.12 + 0.14 * self.rng.random() - self._power_duty)
            self._held_s[limiter] += seconds * self._power_duty

    def _metered_w(self, compute: float, spin: float, seconds: float) -> float:
        """What the card's own meter makes of the true power.

        A meter that looks 25 ms of every 100 ms misjudges the mix of phases by chance.
        """
        power = self.power_w * self.gain
        if not self.chip.samples_power_part_time:
            return power
        mixed = sqrt(compute * spin) * (self.chip.busy_w - self.chip.spin_w)
        spread = mixed * sqrt(0.75 / (10.0 * seconds))
        return power + spread * 0.8 * (self.rng.random() - 0.5)

    # --- the driver's view -------------------------------------------------------------------------

    def _facts(self) -> dict[str, object]:
        chip = self.chip
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": chip.name,
            "pci_bus_id": self.pci_bus_id,
            "memory_total_bytes": chip.memory_total_bytes,
            "memory_reserved_bytes": chip.memory_reserved_bytes,
            "power_limit_w": float(chip.limit_w),
            "power_default_limit_w": float(chip.limit_w),
            "temperature_slowdown_c": float(chip.slowdown_c),
            "temperature_max_c": float(chip.max_c),
            "temperature_shutdown_c": float(chip.shutdown_c),
            "sm_clock_max_mhz": float(chip.max_mhz),
            "memory_clock_max_mhz": float(chip.memory_max_mhz),
            "pcie_gen_max": chip.pcie_gen,
            "pcie_width": chip.pcie_width,
            "pcie_width_max": chip.pcie_width,
            "nvlinks_active": chip.nvlinks,
            "nvlinks_total": chip.nvlinks,
            "ecc_uncorrected": 0 if chip.has_ecc else None,
            "mig_enabled": self.has_mig if chip.has_gpm or chip.name.startswith("NVIDIA A100") else None,
            "compute_mode": "default",
            "age_s": 0.0,
        }

    def reading(self, now_s: float, seconds: float | None, copied_bytes: float) -> tuple[Gpu, ...]:
        """The card, and its MIG instances after it. ``seconds`` is None on the first sample: no rates yet."""
        if self.is_lost:
            return (
                Gpu(uuid=self.uuid, index=self.index, name=self.chip.name, pci_bus_id=self.pci_bus_id, is_lost=True),
            )
        values = self._values(seconds)
        whole = self.slices[0]
        rings = [part.activity.take_windows(now_s) for part in self.slices]
        if not self.has_mig:
            values["utilization_pct"] = whole.activity.utilization_pct
            values["utilization_samples_pct"] = rings[0]
        if seconds is not None:
            values["pcie_rx_bytes_per_s"] = round(copied_bytes / seconds + 2e6, -3)
            values["pcie_tx_bytes_per_s"] = round(copied_bytes / seconds * 0.02 + 1e6, -3)
            busy = sum(part.share * part.activity.compute_s for part in self.slices) / seconds
            values["memory_utilization_pct"] = None if self.has_mig else float(round(46.0 * busy))
            if self.chip.has_gpm and not self.has_mig:
                values.update(whole.gpm(seconds))
        card = Gpu(**self._static, **values)  # type: ignore[arg-type]
        parts = self._instances(seconds) if self.has_mig else ()
        for part in self.slices:
            part.activity.reset_interval(seconds)
        return (card, *parts)

    def _values(self, seconds: float | None) -> dict[str, object]:
        chip, rng = self.chip, self.rng
        is_parked = self._is_parked()
        clock = chip.idle_mhz if is_parked else self.mhz
        if clock != self.boost_mhz and not is_parked:
            clock = CLOCK_STEP_MHZ * int(clock / CLOCK_STEP_MHZ + rng.random())
        values: dict[str, object] = {
            "memory_used_bytes": sum(part.used_bytes() for part in self.slices) + self.desktop_bytes,
            "power_w": self._mean_power_w(seconds),
            "energy_j": round(self.energy_j, 3),
            "temperature_c": float(int(self.heat.die_c + 0.5 + 0.16 * (rng.random() - 0.5))),
            "sm_clock_mhz": float(clock),
            "memory_clock_mhz": float(405 if is_parked and chip.fan else chip.memory_mhz),
            "performance_state": chip.idle_state if is_parked else chip.busy_state,
            "pcie_gen": chip.idle_pcie_gen if is_parked and chip.idle_pcie_gen else chip.pcie_gen,
            "clocks_event_reasons": self._reasons(is_parked=is_parked),
        }
        if chip.has_memory_temperature:
            values["memory_temperature_c"] = float(int(self.heat.sink_c + 0.021 * self.power_w + 8.5))
        if chip.fan is not None:
            values["fan_pct"] = float(round(self.heat.fan_pct))
        if seconds is not None and chip.has_limiter_counters:
            values["throttled_pct"] = self._throttled(seconds)
        return values

    def _mean_power_w(self, seconds: float | None) -> float:
        before, self._energy_read_j = self._energy_read_j, self.energy_j
        if before is None or seconds is None:
            return round(self.power_w * self.gain, 1)
        return round((self.energy_j - before) / seconds, 1)

    def _reasons(self, *, is_parked: bool) -> tuple[str, ...]:
        if is_parked:
            return ("gpu_idle",)
        if self.held_by == "sw_thermal":
            return ("sw_thermal",)
        if self.held_by == "sw_power_cap" and self.rng.random() < self._power_duty:
            return ("sw_power_cap",)
        return ()

    def _throttled(self, seconds: float) -> dict[str, float]:
        held = self._held_s
        shares = {reason: round(min(100.0, 100.0 * held[reason] / seconds), 1) for reason in held}
        for reason in held:
            held[reason] = 0.0
        return {**shares, "hw_thermal": 0.0, "hw_power_brake": 0.0, "sync_boost": 0.0}

    def _instances(self, seconds: float | None) -> tuple[Gpu, ...]:
        return tuple(
            Gpu(
                uuid=part.uuid,
                index=number,
                name=part.name,
                pci_bus_id=self.pci_bus_id,
                memory_used_bytes=part.used_bytes() + 38 * MIB,
                memory_total_bytes=part.total_bytes,
                mig_parent_uuid=self.uuid,
                mig_profile=part.profile,
                age_s=0.0,
                **(part.gpm(seconds) if seconds is not None and self.chip.has_gpm else {}),  # type: ignore[arg-type]
            )
            for number, part in enumerate(self.slices)
        )


def _uuid(kind: str, identity: Random) -> str:
    digits = f"{identity.getrandbits(128):032x}"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
