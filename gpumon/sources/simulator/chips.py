"""What each simulated GPU model can do: limits, power, cooling, and which signals its driver reports."""

from __future__ import annotations

import msgspec

MIB = 1 << 20
GIB = 1 << 30


class Fan(msgspec.Struct, frozen=True, kw_only=True):
    """A fan curve through one known point, and what air flow does to the heat sink."""

    at_c: float
    at_pct: float
    slope_pct_per_c: float
    least_pct: float = 30.0
    stops_below_c: float = 42.0
    """Zero-rpm mode of consumer cards."""

    def wanted_pct(self, temperature_c: float) -> float:
        """What the curve asks for at this temperature."""
        if temperature_c < self.stops_below_c:
            return 0.0
        wanted = self.at_pct + self.slope_pct_per_c * (temperature_c - self.at_c)
        return min(100.0, max(self.least_pct, wanted))


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU model. Powers are at the boost clock and 65 °C; thermal values are of a healthy card."""

    name: str
    memory_total_bytes: int
    memory_reserved_bytes: int
    limit_w: float
    idle_w: float
    context_w: float
    """With a CUDA context and clocks up, but no kernel."""
    busy_w: float
    spin_share: float = 0.22
    """A kernel that only waits in a collective draws idle + this share of the range."""
    boost_mhz: float
    """What this chip holds under a training load while neither power nor heat limits it."""
    max_mhz: float
    idle_mhz: float
    memory_mhz: float
    memory_max_mhz: float
    die_k_per_w: float
    sink_k_per_w: float
    die_j_per_k: float
    sink_j_per_k: float
    inlet_c: float
    max_c: float
    slowdown_c: float
    shutdown_c: float
    fan: Fan | None = None
    memory_max_c: float | None = None
    pcie_gen: int
    pcie_width: int = 16
    nvlinks: int | None = None
    nvlink_bytes_per_s: float = 20e9
    """Of one link, one way."""
    capability: str = "8.0"
    sm_count: int = 108
    busy_state: str = "P0"
    idle_state: str = "P0"
    idle_pcie_gen: int | None = None
    """Consumer cards lower the link when idle."""
    has_gpm: bool = False
    has_limiter_counters: bool = True
    has_memory_temperature: bool = True
    has_ecc: bool = True
    samples_power_part_time: bool = False
    """25 ms of every 100 ms, as A100 and H100 do; the others average over the whole second."""
    window_s: float = 1 / 6

    @property
    def spin_w(self) -> float:
        """Power of a rank that waits inside a collective."""
        return self.idle_w + self.spin_share * (self.limit_w - self.idle_w)


H100 = Chip(
    name="NVIDIA H100 80GB HBM3",
    memory_total_bytes=81559 * MIB,
    memory_reserved_bytes=551 * MIB,
    limit_w=700,
    idle_w=70,
    context_w=95,
    busy_w=703,
    boost_mhz=1785,
    max_mhz=1980,
    idle_mhz=345,
    memory_mhz=2619,
    memory_max_mhz=2619,
    die_k_per_w=0.018,
    sink_k_per_w=0.0357,
    die_j_per_k=110,
    sink_j_per_k=500,
    inlet_c=32,
    max_c=87,
    slowdown_c=89,
    shutdown_c=92,
    memory_max_c=95,
    spin_share=0.24,
    pcie_gen=5,
    nvlinks=18,
    capability="9.0",
    sm_count=132,
    has_gpm=True,
    samples_power_part_time=True,
)

A100 = Chip(
    name="NVIDIA A100-SXM4-80GB",
    memory_total_bytes=81920 * MIB,
    memory_reserved_bytes=621 * MIB,
    limit_w=400,
    idle_w=58,
    context_w=80,
    busy_w=388,
    boost_mhz=1410,
    max_mhz=1410,
    idle_mhz=210,
    memory_mhz=1593,
    memory_max_mhz=1593,
    die_k_per_w=0.02,
    sink_k_per_w=0.052,
    die_j_per_k=90,
    sink_j_per_k=450,
    inlet_c=28,
    max_c=85,
    slowdown_c=89,
    shutdown_c=92,
    memory_max_c=95,
    pcie_gen=4,
    nvlinks=12,
    samples_power_part_time=True,
)

V100 = Chip(
    name="Tesla V100-SXM3-32GB",
    memory_total_bytes=32768 * MIB,
    memory_reserved_bytes=262 * MIB,
    limit_w=350,
    idle_w=50,
    context_w=66,
    busy_w=350,
    boost_mhz=1410,
    max_mhz=1597,
    idle_mhz=135,
    memory_mhz=958,
    memory_max_mhz=958,
    die_k_per_w=0.025,
    sink_k_per_w=0.0595,
    die_j_per_k=70,
    sink_j_per_k=500,
    inlet_c=26,
    max_c=83,
    slowdown_c=87,
    shutdown_c=90,
    memory_max_c=85,
    pcie_gen=3,
    nvlinks=6,
    capability="7.0",
    sm_count=80,
)

RTX_4090 = Chip(
    name="NVIDIA GeForce RTX 4090",
    memory_total_bytes=24564 * MIB,
    memory_reserved_bytes=381 * MIB,
    limit_w=450,
    idle_w=22,
    context_w=46,
    busy_w=484,
    boost_mhz=2745,
    max_mhz=3105,
    idle_mhz=210,
    memory_mhz=10251,
    memory_max_mhz=10501,
    die_k_per_w=0.035,
    sink_k_per_w=0.061,
    die_j_per_k=50,
    sink_j_per_k=900,
    inlet_c=24,
    max_c=83,
    slowdown_c=90,
    shutdown_c=95,
    fan=Fan(at_c=66, at_pct=61, slope_pct_per_c=1.92),
    pcie_gen=4,
    capability="8.9",
    sm_count=128,
    busy_state="P2",
    idle_state="P8",
    idle_pcie_gen=1,
    has_memory_temperature=False,
    has_ecc=False,
)

RTX_3090 = Chip(
    name="NVIDIA GeForce RTX 3090",
    memory_total_bytes=24576 * MIB,
    memory_reserved_bytes=310 * MIB,
    limit_w=350,
    idle_w=24,
    context_w=52,
    busy_w=372,
    boost_mhz=1860,
    max_mhz=2100,
    idle_mhz=210,
    memory_mhz=9501,
    memory_max_mhz=9751,
    die_k_per_w=0.04,
    sink_k_per_w=0.094,
    die_j_per_k=48,
    sink_j_per_k=800,
    inlet_c=25,
    max_c=83,
    slowdown_c=95,
    shutdown_c=98,
    fan=Fan(at_c=71, at_pct=66, slope_pct_per_c=1.8),
    pcie_gen=4,
    capability="8.6",
    sm_count=82,
    busy_state="P2",
    idle_state="P8",
    idle_pcie_gen=1,
    has_limiter_counters=False,
    has_memory_temperature=False,
    has_ecc=False,
)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The box around the GPUs."""

    name: str
    chip: Chip
    gpus: int
    cores: int
    sockets: int
    memory_bytes: int
    memory_base_bytes: int
    """What the system and other programs hold."""
    chassis: str
    driver: str = "580.95.05"
    nvml: str = "13.580.95.05"
    cuda: str = "13.0"
    desktop_bytes: int = 0
    """GPU memory of the desktop, held by no compute process."""
    disk_bytes_per_s: float = 3.2e9
    network_bytes_per_s: float = 1.1e9


LAB = Machine(
    name="lab7",
    chip=RTX_4090,
    gpus=1,
    cores=16,
    sockets=1,
    memory_bytes=126 * GIB,
    memory_base_bytes=9 * GIB,
    chassis="desktop",
    desktop_bytes=460 * MIB,
)
NODE = Machine(
    name="node07",
    chip=H100,
    gpus=8,
    cores=96,
    sockets=2,
    memory_bytes=1031 * GIB,
    memory_base_bytes=19 * GIB,
    chassis="server",
    disk_bytes_per_s=6.4e9,
)
CLUSTER = Machine(
    name="gpu-a12",
    chip=A100,
    gpus=4,
    cores=64,
    sockets=2,
    memory_bytes=503 * GIB,
    memory_base_bytes=14 * GIB,
    chassis="server",
    cuda="12.9",
)
DGX2 = Machine(
    name="dgx2",
    chip=V100,
    gpus=16,
    cores=96,
    sockets=2,
    memory_bytes=1510 * GIB,
    memory_base_bytes=22 * GIB,
    chassis="server",
    cuda="12.9",
)
ATTIC = Machine(
    name="attic",
    chip=RTX_3090,
    gpus=2,
    cores=24,
    sockets=1,
    memory_bytes=62 * GIB,
    memory_base_bytes=5 * GIB,
    chassis="desktop",
    driver="535.183.01",
    nvml="12.535.183.01",
    cuda="12.2",
)
