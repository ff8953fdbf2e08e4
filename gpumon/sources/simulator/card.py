"""One simulated card: power from what it does, heat from power, clock from heat, and all that as a ``Gpu``."""

from __future__ import annotations

from math import sqrt
from random import Random

from gpumon.model import Gpu
from gpumon.sources.simulator.activity import Activity
from gpumon.sources.simulator.chips import MIB, Chip
from gpumon.sources.simulator.governor import POWER_SHARE, Governor, Load
from gpumon.sources.simulator.heat import Heat
from gpumon.sources.simulator.links import Links
from gpumon.sources.simulator.spec import Mix

CLOCK_STEP_MHZ = 15.0
PARKED_AFTER_S = 12.0
"""A consumer card with an idle context goes to P8 after this."""


class Slice:
    """A MIG instance, or the whole of a card without MIG."""

    __slots__ = ("activity", "holders", "mix", "name", "profile", "share", "total_bytes", "uuid")

    def __init__(self, uuid: str, name: str, share: float, total_bytes: int, activity: Activity) -> None:
        """``share`` is its part of the card's multiprocessors."""
        self.uuid, self.name, self.share, self.total_bytes = uuid, name, share, total_bytes
        self.activity = activity
        self.profile: str | None = None
        self.holders: dict[int, int] = {}
        """Pid -> bytes."""
        self.mix = Mix()
        """What its kernels keep busy."""

    def used_bytes(self) -> int:
        """What its processes hold."""
        return sum(self.holders.values())

    def gpm(self, seconds: float) -> dict[str, float]:
        """The real activity that Hopper's GPM unit reports, as a share of ``seconds``."""
        compute = 100.0 * self.activity.compute_s / seconds
        spin = 100.0 * self.activity.spin_s / seconds
        mix = self.mix
        return {
            "graphics_active_pct": round(min(100.0, compute + spin), 1),
            "sm_active_pct": round(mix.sm * compute + 0.11 * spin, 1),
            "sm_occupancy_pct": round(mix.occupancy * compute + 0.02 * spin, 1),
            "tensor_active_pct": round(mix.tensor * compute, 1),
            "dram_active_pct": round(mix.dram * compute + 0.01 * spin, 1),
            "fp32_active_pct": round(mix.fp32 * compute, 1),
            "fp64_active_pct": round(mix.fp64 * compute, 1),
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
        self.governor = Governor(chip, self.heat, self.boost_mhz, rng)
        self.links = Links(chip)
        activity = Activity(window_s, rng.random() * window_s, start_s)
        self.slices = [Slice(self.uuid, chip.name, 1.0, chip.memory_total_bytes, activity)]
        self.desktop_bytes = 0
        self.orphaned_bytes = 0
        """Held by nobody who is there."""
        self.said: dict[str, object] = {}
        """What else the driver says: error counts, flags; a fault may change it."""
        self.is_lost = False
        self.energy_j = 0.0
        self.true_energy_j = 0.0
        self.idle_s = 0.0
        self._energy_read_j: float | None = None
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

    @property
    def mhz(self) -> float:
        """The SM clock while it works."""
        return self.governor.mhz

    @property
    def power_w(self) -> float:
        """What it really draws."""
        return self.governor.power_w

    def settle(self, compute: float, spin: float) -> None:
        """Start as warm as a long run with these shares of time would have made it."""
        chip, governor = self.chip, self.governor
        resting = chip.context_w if self._has_context() else chip.idle_w
        work = compute * self.slices[0].mix.power()
        power = resting + work * (chip.busy_w - resting) + spin * (chip.spin_w - resting)
        governor.power_w = min(power, POWER_SHARE * governor.limit_w)
        self.heat.settle(governor.power_w)
        self.energy_j = governor.power_w * 86_400 * 3.1

    def advance(self, begin_s: float, end_s: float) -> None:
        """Live through [begin, end)."""
        if self.is_lost:
            return
        seconds = end_s - begin_s
        compute = spin = work = 0.0
        for part in self.slices:
            activity = part.activity
            activity.consume(begin_s, end_s)
            compute += part.share * activity.last_compute_s
            work += part.share * activity.last_compute_s * part.mix.power()
            spin += part.share * activity.last_spin_s
        self.links.carry(begin_s, end_s)
        compute, spin, work = compute / seconds, spin / seconds, work / seconds
        resting = self.chip.idle_w if self._is_parked() else self.chip.context_w
        load = Load(compute, spin, work)
        self.governor.advance(load, boost_mhz=self.boost_mhz, resting_w=resting, seconds=seconds)
        self.heat.advance(self.power_w, seconds)
        self.true_energy_j += self.power_w * seconds
        self.energy_j += self._metered_w(compute, spin, seconds) * seconds
        self.idle_s = 0.0 if compute + spin else self.idle_s + seconds

    def _has_context(self) -> bool:
        return any(part.holders for part in self.slices)

    def _is_parked(self) -> bool:
        if not self._has_context():
            return self.idle_s > 0
        return self.chip.idle_state != "P0" and self.idle_s > PARKED_AFTER_S

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
        has_remapping = chip.has_ecc and chip.capability >= "8.0"
        self.said = {
            "ecc_enabled": True if chip.has_ecc else None,
            "ecc_uncorrected": 0 if chip.has_ecc else None,
            "ecc_corrected": 0 if chip.has_ecc else None,
            "remapped_rows_corrected": 0 if has_remapping else None,
            "remapped_rows_uncorrected": 0 if has_remapping else None,
            "remap_pending": False if has_remapping else None,
            "remap_failed": False if has_remapping else None,
            "compute_mode": "default",
            "persistence": bool(chip.has_ecc),
        }
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": chip.name,
            "pci_bus_id": self.pci_bus_id,
            "memory_total_bytes": chip.memory_total_bytes,
            "memory_reserved_bytes": chip.memory_reserved_bytes,
            "power_default_limit_w": float(chip.limit_w),
            "temperature_slowdown_c": float(chip.slowdown_c),
            "temperature_max_c": float(chip.max_c),
            "temperature_shutdown_c": float(chip.shutdown_c),
            "memory_temperature_max_c": chip.memory_max_c,
            "sm_clock_max_mhz": float(chip.max_mhz),
            "memory_clock_max_mhz": float(chip.memory_max_mhz),
            "pcie_gen_max": chip.pcie_gen,
            "pcie_width_max": chip.pcie_width,
            "nvlinks_total": chip.nvlinks,
            "compute_capability": chip.capability,
            "sm_count": chip.sm_count,
            "mig_enabled": self.has_mig if chip.has_gpm or chip.name.startswith("NVIDIA A100") else None,
            "age_s": 0.0,
        }

    def reading(self, now_s: float, seconds: float | None) -> tuple[Gpu, ...]:
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
            busy = sum(part.share * part.mix.dram * part.activity.compute_s for part in self.slices) / seconds
            values["memory_utilization_pct"] = None if self.has_mig else float(round(min(100.0, 100.0 * busy)))
            if self.chip.has_gpm and not self.has_mig:
                values.update(whole.gpm(seconds))
        card = Gpu(**{**self._static, **values, **self.said})  # type: ignore[arg-type]
        parts = self._instances(seconds) if self.has_mig else ()
        for part in self.slices:
            part.activity.reset_interval(seconds)
        return (card, *parts)

    def _values(self, seconds: float | None) -> dict[str, object]:
        chip, rng, governor = self.chip, self.rng, self.governor
        is_parked = self._is_parked()
        clock = chip.idle_mhz if is_parked else governor.mhz
        if clock != self.boost_mhz and not is_parked:
            clock = CLOCK_STEP_MHZ * int(clock / CLOCK_STEP_MHZ + rng.random() * (governor.locked is None))
        held = sum(part.used_bytes() for part in self.slices)
        values: dict[str, object] = {
            "memory_used_bytes": held + self.desktop_bytes + self.orphaned_bytes,
            "power_w": self._mean_power_w(seconds),
            "power_limit_w": float(governor.limit_w),
            "energy_j": round(self.energy_j, 3),
            "temperature_c": float(int(self.heat.die_c + 0.5 + 0.16 * (rng.random() - 0.5))),
            "sm_clock_mhz": float(clock),
            "memory_clock_mhz": float(405 if is_parked and chip.fan else chip.memory_mhz),
            "performance_state": chip.idle_state if is_parked else chip.busy_state,
            "clocks_event_reasons": ("gpu_idle",) if is_parked else governor.reasons(),
            **self.links.values(seconds, parked_gen=chip.idle_pcie_gen if is_parked else None),
        }
        if chip.has_memory_temperature:
            values["memory_temperature_c"] = float(int(governor.memory_c()))
        if chip.fan is not None:
            values["fan_pct"] = float(round(self.heat.fan_pct))
        if seconds is not None and chip.has_limiter_counters:
            values["throttled_pct"] = governor.take_held(seconds)
        return values

    def _mean_power_w(self, seconds: float | None) -> float:
        before, self._energy_read_j = self._energy_read_j, self.energy_j
        if before is None or seconds is None:
            return round(self.power_w * self.gain, 1)
        return round((self.energy_j - before) / seconds, 1)

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
