"""Knows which call answers which field of one GPU, how often to ask it, and what to ask where it does not exist."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import pynvml
from msgspec.structs import replace

from gpumon.model import Gpu
from gpumon.reasons import reason_names
from gpumon.sources.nvml import place as nvml_place
from gpumon.sources.nvml.calls import Asker, Fields, Question
from gpumon.sources.nvml.counters import Counter
from gpumon.sources.nvml.devices import Device
from gpumon.sources.nvml.gpm import Activity, is_supported
from gpumon.sources.nvml.health import Health, capability, modes
from gpumon.sources.nvml.links import Links
from gpumon.sources.nvml.memory import memory, memory_question
from gpumon.sources.nvml.processes import Processes, holders_of
from gpumon.sources.nvml.reading import GpuReading, Holder
from gpumon.sources.nvml.ring import UtilizationRing
from gpumon.sources.nvml.throttle import Throttle

LISTS_S = 2.0
"""Process lists; of all GPUs in the same pass, so that between two of them the table of processes rests."""
CROWDED, CROWDED_LISTS_S = 4, 4.0
"""With more processes than these on a GPU: a list takes longer, and what it says is used no sooner."""
SLOW_S = 5.0
"""Links, ECC, fans, limits, performance state, memory clock, margin."""
RARE_S = 10.0
"""Lists of graphics processes, modes; PCIe throughput by the call that blocks 20 ms."""
VIDEO_S = 30.0
"""Encoder and decoder, which matter only to rules that look at minutes."""
POWER_WINDOW_S = 0.9
"""Energy counters move in steps of up to 100 ms: at short intervals the mean reaches further back."""
EARLY_S = 0.2
"""A pass that comes so much too early still counts as the one that is due: after a start in which the first GPUs were
asked well before the last ones, the lists of all are asked for in one pass again."""

PERSISTENT_HANG_S, HANG_S = 10.0, 30.0
"""A pass over one GPU that takes longer hangs. Without persistence mode healthy calls can take seconds."""

_HOTTEST_C = 200
_MOST_W = 20_000
_COMPUTE_MODES = {0: "default", 1: "exclusive-thread", 2: "prohibited", 3: "exclusive-process"}
_ENERGY, _MEMORY_TEMPERATURE = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, pynvml.NVML_FI_DEV_MEMORY_TEMP
_POWER_AVERAGE, _POWER_INSTANT = pynvml.NVML_FI_DEV_POWER_AVERAGE, pynvml.NVML_FI_DEV_POWER_INSTANT
_PCIE_TX, _PCIE_RX = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES
_THRESHOLDS = {
    "temperature_slowdown_c": pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN,
    "temperature_max_c": pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX,
    "temperature_shutdown_c": pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN,
    "memory_temperature_max_c": pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX,
}


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t, without the Python code that pynvml runs on each access."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Turn:
    """When something slow is due again.

    Each GPU has its own phase: the slow calls of all of them in one pass would make that pass late.
    """

    __slots__ = ("_due_at", "_phase_s", "_waits", "every_s")

    def __init__(self, every_s: float, phase_s: float = 0.0, *, waits: bool = False) -> None:
        """``waits``: not in the first pass, which somebody is waiting for."""
        self.every_s = every_s
        """May be assigned; counts from the next time on."""
        self._phase_s, self._waits = phase_s, waits
        self._due_at = 0.0

    def has_come(self, now: float) -> bool:
        """True once per period, and on the first call."""
        if now < self._due_at - EARLY_S:
            return False
        if self._waits:
            self._waits = False
            self._due_at = now + EARLY_S + self._phase_s
            return False
        self._due_at = now + self.every_s + (0.0 if self._due_at else self._phase_s)
        return True


class GpuReader:
    """Reads one GPU; lives as long as its handle. Its methods raise GpuLost and DriverGone."""

    def __init__(self, device: Device, driver_version: str | None, *, reads_once: bool = False) -> None:
        """``reads_once`` leaves out what needs two readings."""
        self.asker = Asker(device.handle)
        self.has_instances = False
        """Set while MIG instances list the processes."""
        self.hang_after_s = HANG_S
        self._reads_once = reads_once
        self._known = Gpu(**device.facts())
        """What was learned at any time before this pass."""
        self._is_known = False
        self._activity: Activity | None = None
        self._fan_count: int | None = None
        self._links = Links()
        self._processes = Processes()
        self._holders: tuple[Holder, ...] = ()
        self._ring = UtilizationRing()
        self._throttle = Throttle(driver_version)
        self._energy = Counter(POWER_WINDOW_S)
        self._pcie_tx, self._pcie_rx = Counter(), Counter()
        wanted = [_ENERGY, _MEMORY_TEMPERATURE]
        if not reads_once:
            wanted += [_PCIE_TX, _PCIE_RX, *self._throttle.field_ids.values()]
        self._fields = Fields("fields", wanted)
        self._utilization = Question("nvmlDeviceGetUtilizationRates", _Utilization())
        self._memory = memory_question()
        self._temperature = Question("nvmlDeviceGetTemperature", ctypes.c_uint(), pynvml.NVML_TEMPERATURE_GPU)
        self._sm_clock = Question("nvmlDeviceGetClockInfo", ctypes.c_uint(), pynvml.NVML_CLOCK_SM)
        self._reasons = Question("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong())
        self._power_fields = Fields("power fields", [_POWER_INSTANT, _POWER_AVERAGE])
        self._health = Health()
        phase = device.index % 5
        self._lists_turn = Turn(LISTS_S)
        self._slow_turn, self._modes_turn = Turn(SLOW_S, phase), Turn(RARE_S, phase + 1)
        self._drawn_turn, self._video_turn = Turn(RARE_S, phase), Turn(VIDEO_S, phase)
        self._throughput_turn = Turn(RARE_S, phase, waits=True)

    def read(self, now: float) -> GpuReading:
        """One pass over the GPU."""
        asker = self.asker
        asker.begin(now)
        facts: dict[str, Any] = {}
        if not self._is_known:
            facts.update(self._learn())
            self._is_known = True
        fast = self._fast()
        if not self.has_instances and self._lists_turn.has_come(now):
            self._list_processes(fast, with_graphics=self._drawn_turn.has_come(now))
        if self._slow_turn.has_come(now):
            facts.update(self._slow(has_link=not fast.get("memory_is_shared")))
        if self._modes_turn.has_come(now):
            facts.update(self._modes())
        if self._video_turn.has_come(now):
            facts.update(self._video())
        if not self._reads_once and "pcie_rx_bytes_per_s" not in fast and self._throughput_turn.has_come(now):
            facts.update(self._throughput_by_blocking())
        if facts:
            self._known = replace(self._known, **facts)
        return GpuReading(replace(self._known, **fast), time.monotonic(), self._holders)

    def free(self) -> None:
        """Give back what the driver lent; only while it answers."""
        if self._activity is not None:
            self._activity.free()

    def _learn(self) -> dict[str, Any]:
        asker = self.asker
        if asker("persistence", pynvml.nvmlDeviceGetPersistenceMode) == pynvml.NVML_FEATURE_ENABLED:
            self.hang_after_s = PERSISTENT_HANG_S
        if not self._reads_once and is_supported(asker):
            self._activity = Activity()
        default_mw = asker("power default limit", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        facts = {
            "sm_clock_max_mhz": asker("sm clock max", pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            "memory_clock_max_mhz": asker("memory clock max", pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_MEM),
            "power_default_limit_w": default_mw / 1000 if default_mw else None,
            "compute_capability": capability(asker),
            **self._links.learn(asker),
            **nvml_place.learn(asker, self._known.pci_bus_id),
        }
        for field, threshold in _THRESHOLDS.items():
            degrees = asker(field, pynvml.nvmlDeviceGetTemperatureThreshold, threshold)
            facts[field] = _degrees(degrees)
        return facts

    def _fast(self) -> dict[str, Any]:
        asker = self.asker
        rates = asker.vital("utilization", self._utilization)
        fast = memory(asker, self._memory)
        if rates is not None:
            fast["utilization_pct"] = _percent(rates.gpu)
            fast["memory_utilization_pct"] = _percent(rates.memory)
        if not self._reads_once:
            fast["utilization_samples_pct"] = self._ring.read(asker)
        fields = self._fields.read(asker)
        at_s = time.monotonic()
        answer = asker.vital("temperature", self._temperature)
        degrees = None if answer is None else answer.value
        if degrees is None:
            degrees = asker.vital("temperature v", pynvml.nvmlDeviceGetTemperatureV, pynvml.NVML_TEMPERATURE_GPU)
        if degrees is not None and degrees < _HOTTEST_C:
            fast["temperature_c"] = degrees
        fast["memory_temperature_c"] = _degrees(fields.get(_MEMORY_TEMPERATURE))
        answer = asker.vital("sm clock", self._sm_clock)
        fast["sm_clock_mhz"] = None if answer is None else answer.value
        answer = asker("event reasons", self._reasons)
        mask = None if answer is None else answer.value
        if mask is None:
            mask = asker("throttle reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        reasons = None if mask is None else reason_names(mask)
        fast["clocks_event_reasons"] = reasons
        if not self._reads_once:
            fast["throttled_pct"] = self._throttle.read(asker, fields, at_s, reasons)
        self._power(fast, fields, at_s)
        self._traffic(fast, fields, at_s)
        return fast

    def _power(self, fast: dict[str, Any], fields: dict[int, float], at_s: float) -> None:
        """The mean from the energy counter; before it has one, or where there is none, the driver's reading."""
        asker = self.asker
        energy_mj = fields.get(_ENERGY)
        if energy_mj is None:
            energy_mj = asker("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption)
        mean_mw = self._energy.rate(at_s, energy_mj)
        if energy_mj is not None:
            fast["energy_j"] = energy_mj / 1000
        if mean_mw is not None and 0 < mean_mw / 1000 < _MOST_W:
            fast["power_w"] = mean_mw / 1000
            return
        # The fields cost milliseconds where the old call costs none; on new GPUs it is a mean over a second.
        usage_mw = None if self._reads_once else asker("power", pynvml.nvmlDeviceGetPowerUsage)
        if not usage_mw:
            readings = self._power_fields.read(asker)
            usage_mw = readings.get(_POWER_INSTANT) or readings.get(_POWER_AVERAGE)
        if not usage_mw and self._reads_once:
            usage_mw = asker("power", pynvml.nvmlDeviceGetPowerUsage)
        if usage_mw is not None and usage_mw / 1000 < _MOST_W:
            fast["power_w"] = usage_mw / 1000

    def _traffic(self, fast: dict[str, Any], fields: dict[int, float], at_s: float) -> None:
        """PCIe and activity from GPM, else PCIe from the byte counters. TX is from the GPU."""
        if self._activity is not None:
            fast.update(self._activity.read(self.asker))
            if "pcie_rx_bytes_per_s" in fast:
                self._fields.spare(_PCIE_TX, _PCIE_RX)
                return
        for field, counter, field_id in (
            ("pcie_tx_bytes_per_s", self._pcie_tx, _PCIE_TX),
            ("pcie_rx_bytes_per_s", self._pcie_rx, _PCIE_RX),
        ):
            # A counter of 32 bits wraps several times a second on a busy link; from this value on it has more.
            count = fields.get(field_id, 0)
            if count >= 2**32:
                fast[field] = counter.rate(at_s, count)

    def _list_processes(self, fast: dict[str, Any], *, with_graphics: bool) -> None:
        total = None if fast.get("memory_is_shared") else fast.get("memory_total_bytes")
        processes = self._processes.read(self.asker, with_graphics=with_graphics, memory_total_bytes=total)
        if processes is None:
            self._holders = ()
            return
        shares = self._processes.shares(self.asker, processes, fast.get("utilization_pct"))
        self._holders = holders_of(processes, shares)
        self._lists_turn.every_s = CROWDED_LISTS_S if len(self._holders) > CROWDED else LISTS_S

    def _slow(self, *, has_link: bool) -> dict[str, Any]:
        asker = self.asker
        limit_mw = asker("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
        state = asker("performance state", pynvml.nvmlDeviceGetPerformanceState)
        facts = {
            "power_limit_w": limit_mw / 1000 if limit_mw else None,
            **self._health.read(asker),
            **self._fans(),
            "performance_state": None if state is None or state > 15 else f"P{state}",
            "memory_clock_mhz": asker("memory clock", pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            # Some GPUs answer 0 or less whatever the temperature.
            "temperature_margin_c": _degrees(asker("margin", pynvml.nvmlDeviceGetMarginTemperature)),
        }
        if has_link:
            facts.update(self._links.read(asker))
            if not self._reads_once and self._activity is None:
                facts.update(self._links.traffic(asker))
        else:  # GB10 and its like answer Gen1 x1 for a link that they do not have
            facts.update(pcie_gen=None, pcie_gen_max=None, pcie_width=None, pcie_width_max=None)
        return facts

    def _modes(self) -> dict[str, Any]:
        asker = self.asker
        compute = asker("compute mode", pynvml.nvmlDeviceGetComputeMode)
        mig = asker("mig mode", pynvml.nvmlDeviceGetMigMode)
        return {
            "compute_mode": None if compute is None else _COMPUTE_MODES.get(compute),
            "mig_enabled": None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
            **modes(asker),
            **nvml_place.look(asker),
        }

    def _video(self) -> dict[str, Any]:
        return {
            "encoder_pct": _engine(self.asker("encoder", pynvml.nvmlDeviceGetEncoderUtilization)),
            "decoder_pct": _engine(self.asker("decoder", pynvml.nvmlDeviceGetDecoderUtilization)),
        }

    def _fans(self) -> dict[str, Any]:
        asker = self.asker
        if self._fan_count is None:
            self._fan_count = asker("fan count", pynvml.nvmlDeviceGetNumFans)
        count = self._fan_count
        fans = range(min(count or 0, 8))
        speeds = [asker(f"fan {fan}", pynvml.nvmlDeviceGetFanSpeed_v2, fan) for fan in fans]
        targets = [asker(f"fan target {fan}", pynvml.nvmlDeviceGetTargetFanSpeed, fan) for fan in fans]
        if count is None:
            speeds = [asker("fan", pynvml.nvmlDeviceGetFanSpeed)]
        return {"fan_pct": _fastest(speeds), "fan_target_pct": _fastest(targets)}

    def _throughput_by_blocking(self) -> dict[str, Any]:
        """Each call measures for 20 ms, and blocks so long."""
        facts = {}
        for field, direction in (
            ("pcie_tx_bytes_per_s", pynvml.NVML_PCIE_UTIL_TX_BYTES),
            ("pcie_rx_bytes_per_s", pynvml.NVML_PCIE_UTIL_RX_BYTES),
        ):
            kib_per_s = self.asker(field, pynvml.nvmlDeviceGetPcieThroughput, direction)
            facts[field] = None if kib_per_s is None else kib_per_s * 1024.0
        return facts


def _fastest(speeds: list[int | None]) -> int | None:
    return max((speed for speed in speeds if speed is not None and speed < 1000), default=None)


def _percent(value: int) -> float | None:
    return float(value) if 0 <= value <= 100 else None


def _engine(answer: Sequence[int] | None) -> float | None:
    """Of the share and how often it is taken."""
    return None if answer is None else _percent(answer[0])


def _degrees(value: float | None) -> float | None:
    """A sensor that is missing answers 0, or a number no GPU survives."""
    return value if value is not None and 0 < value < _HOTTEST_C else None
