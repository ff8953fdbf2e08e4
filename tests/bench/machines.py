"""The machines that runs take place on; some are only ever met in the test split."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpumon.sources.simulator.chips import (
    ATTIC,
    CLUSTER,
    DGX2,
    GIB,
    H100,
    LAB,
    MIB,
    NODE,
    RTX_4090,
    Chip,
    Fan,
    Machine,
)

Split = Literal["dev", "test"]

RTX_5090 = msgspec.structs.replace(
    RTX_4090,
    name="NVIDIA GeForce RTX 5090",
    memory_total_bytes=32607 * MIB,
    limit_w=575,
    idle_w=30,
    context_w=62,
    busy_w=600,
    boost_mhz=2610,
    max_mhz=3090,
    memory_mhz=14001,
    memory_max_mhz=14001,
    sink_k_per_w=0.046,
    die_k_per_w=0.028,
    fan=Fan(at_c=66, at_pct=58, slope_pct_per_c=2.0),
    max_c=85,
    pcie_gen=5,
    busy_state="P1",
    has_gpm=True,
    capability="12.0",
    sm_count=170,
)
L40S = Chip(
    name="NVIDIA L40S",
    memory_total_bytes=46068 * MIB,
    memory_reserved_bytes=610 * MIB,
    limit_w=350,
    idle_w=34,
    context_w=82,
    busy_w=362,
    boost_mhz=2340,
    max_mhz=2520,
    idle_mhz=210,
    memory_mhz=9001,
    memory_max_mhz=9001,
    die_k_per_w=0.03,
    sink_k_per_w=0.088,
    die_j_per_k=60,
    sink_j_per_k=520,
    inlet_c=27,
    max_c=83,
    slowdown_c=93,
    shutdown_c=98,
    pcie_gen=4,
    idle_state="P8",
    has_memory_temperature=False,
    capability="8.9",
    sm_count=142,
)
H200 = msgspec.structs.replace(
    H100,
    name="NVIDIA H200",
    memory_total_bytes=143771 * MIB,
    boost_mhz=1830,
    busy_w=715,
    sink_k_per_w=0.034,
)
MOBILE = Chip(
    name="NVIDIA GeForce RTX 4070 Laptop GPU",
    memory_total_bytes=8188 * MIB,
    memory_reserved_bytes=270 * MIB,
    limit_w=100,
    idle_w=4,
    context_w=14,
    busy_w=112,
    boost_mhz=2175,
    max_mhz=3105,
    idle_mhz=210,
    memory_mhz=8001,
    memory_max_mhz=8001,
    die_k_per_w=0.12,
    sink_k_per_w=0.36,
    die_j_per_k=18,
    sink_j_per_k=180,
    inlet_c=28,
    max_c=87,
    slowdown_c=97,
    shutdown_c=102,
    pcie_gen=4,
    pcie_width=8,
    busy_state="P0",
    idle_state="P8",
    idle_pcie_gen=1,
    has_memory_temperature=False,
    has_ecc=False,
    capability="8.9",
    sm_count=36,
)

SOLO = msgspec.structs.replace(NODE, name="solo", gpus=1, cores=26, sockets=1, memory_bytes=230 * GIB)
BOX = msgspec.structs.replace(LAB, name="box", chip=RTX_5090, gpus=2, cores=32, memory_bytes=188 * GIB)
RACK = msgspec.structs.replace(CLUSTER, name="rack", chip=L40S, gpus=4, cores=48, memory_bytes=502 * GIB)
BIG = msgspec.structs.replace(NODE, name="big", chip=H200, memory_bytes=2015 * GIB, cores=112)
LAPTOP = msgspec.structs.replace(
    LAB, name="laptop", chip=MOBILE, cores=16, memory_bytes=31 * GIB, memory_base_bytes=6 * GIB, chassis="laptop"
)

MACHINES: dict[Split, tuple[Machine, ...]] = {
    "dev": (LAB, NODE, CLUSTER, SOLO, BOX, DGX2),
    "test": (LAB, NODE, CLUSTER, SOLO, BOX, RACK, BIG, ATTIC),
}
