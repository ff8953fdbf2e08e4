"""``nvidia-smi --query-gpu``, ``--query-compute-apps`` and home-made CSV logs, with values of our own."""

from __future__ import annotations

ID_0, ID_1 = "GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01", "GPU-2e1d8b4f-6c2a-4d66-8d2b-7c4a2a3f5b02"

LOOP = f"""\
timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], \
temperature.gpu, power.draw [W], clocks.current.sm [MHz], pstate
2026/03/04 05:06:07.100, 0, {ID_0}, NVIDIA H100 80GB HBM3, 97 %, 41 %, 40000 MiB, 81559 MiB, 61, 612.25 W, 1755 MHz, P0
2026/03/04 05:06:07.104, 1, {ID_1}, NVIDIA H100 80GB HBM3, 95 %, 40 %, 40010 MiB, 81559 MiB, 63, 608.10 W, 1740 MHz, P0
2026/03/04 05:06:08.101, 0, {ID_0}, NVIDIA H100 80GB HBM3, 98 %, 42 %, 40000 MiB, 81559 MiB, 61, 615.00 W, 1755 MHz, P0
2026/03/04 05:06:08.106, 1, {ID_1}, NVIDIA H100 80GB HBM3, [N/A], [Unknown Error], 40010 MiB, 81559 MiB, 63, \
[Not Supported], 1740 MHz, P0
"""

WIDE = """\
timestamp, driver_version, count, name, serial, uuid, pci.bus_id, pcie.link.gen.current, pcie.link.gen.gpucurrent, \
pcie.link.gen.max, pcie.link.gen.gpumax, pcie.link.gen.hostmax, pcie.link.width.current, pcie.link.width.max, index, \
persistence_mode, fan.speed [%], pstate, clocks_event_reasons.supported, clocks_event_reasons.active, \
clocks_event_reasons.gpu_idle, clocks_event_reasons.sw_power_cap, clocks_event_reasons_counters.sw_power_cap [us], \
memory.total [MiB], memory.reserved [MiB], memory.used [MiB], memory.free [MiB], compute_mode, compute_cap, \
utilization.gpu [%], utilization.memory [%], utilization.encoder [%], ecc.mode.current, ecc.mode.pending, \
ecc.errors.corrected.volatile.total, ecc.errors.uncorrected.volatile.total, ecc.errors.uncorrected.aggregate.sram, \
retired_pages.pending, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, \
remapped_rows.failure, temperature.gpu, temperature.gpu.tlimit, temperature.memory, power.management, power.draw [W], \
power.draw.average [W], power.draw.instant [W], power.limit [W], enforced.power.limit [W], power.default_limit [W], \
clocks.current.graphics [MHz], clocks.current.sm [MHz], clocks.current.memory [MHz], clocks.max.graphics [MHz], \
clocks.max.sm [MHz], clocks.max.memory [MHz], mig.mode.current, gpu_recovery_action, fabric.state, platform.slot_number
2026/03/04 05:06:07.100, 590.48.01, 1, NVIDIA H100 80GB HBM3, 1650000000001, GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01, \
00000000:4E:00.0, 4, 4, 4, 5, 4, 8, 16, 0, Enabled, [N/A], P0, 0x00000000000001FF, 0x0000000000000024, Not Active, \
Active, 5000 us, 81559 MiB, 479 MiB, 40000 MiB, 41080 MiB, Exclusive_Process, 9.0, 97 %, 41 %, 0 %, Enabled, Disabled, \
42, 4, 6, [N/A], 1, 2, Yes, No, 61, 26, 71, [Requested functionality has been deprecated], 612.25 W, 612.25 W, \
640.00 W, 700.00 W, 650.00 W, 700.00 W, 1755 MHz, 1740 MHz, 2619 MHz, 1980 MHz, 1980 MHz, 2619 MHz, Disabled, None, \
Completed, 3
"""

OLD = """\
index, name, clocks_throttle_reasons.active, clocks.gr [MHz], clocks.mem [MHz], clocks.max.gr [MHz], fan.speed [%]
0, Tesla K80, 0x0000000000000001, 324 MHz, 324 MHz, 875 MHz, [Not Supported]
1, Tesla K80, 0x0000000000000048, 562 MHz, 2505 MHz, 875 MHz, [Not Supported]
0, Tesla K80, 0x0000000000000000, 875 MHz, 2505 MHz, 875 MHz, [Not Supported]
"""

APPS = f"""\
timestamp, gpu_name, gpu_bus_id, gpu_serial, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
2026/03/04 05:06:07.100, NVIDIA L4, 00000000:4E:00.0, 1650000000001, {ID_0}, 4242, python train.py --api-key s3cret, \
30123 MiB
2026/03/04 05:06:07.100, NVIDIA L4, 00000000:4E:00.0, 1650000000001, {ID_0}, 4243, /opt/tools/other, [N/A]
"""

NO_HEADER = """\
2026/03/04 05:06:07.100, 0 %, 0 %, 4 MiB, 24560 MiB, 31, 12.10 W
2026/03/04 05:06:12.104, 0 %, 0 %, 4 MiB, 24560 MiB, 32, 12.00 W
2026/03/04 05:06:17.109, 93 %, 51 %, 18004 MiB, 6560 MiB, 45, 290.44 W
2026/03/04 05:06:22.113, 95 %, 50 %, 18004 MiB, 6560 MiB, 52, 301.02 W
"""

LOCALIZED = """\
timestamp;index;power.draw [W];utilization.gpu [%];memory.used [MiB]
2026/03/04 05:06:07,100;0;71,50 W;33 %;1024 MiB
2026/03/04 05:06:08,100;0;72,25 W;34 %;1024 MiB
"""

DAMAGED = """\
timestamp, name, utilization.gpu [%], memory.used [MiB]
2026/03/04 05:06:07.100, NVIDIA L4, 33 %, 1024 MiB

2026/03/04 05:06:08.100, NVIDIA L4, 34 %
2026/03/04 05:06:09.100, Quadro RTX 6000, Passive, 35 %, 1024 MiB
timestamp, name, utilization.gpu [%], memory.used [MiB]
2026/03/04 05:06:10.100, "NVIDIA L4", "36 %", 1024 MiB
----------
timestamp, temperature.gpu, name
2026/03/04 05:06:11.100, 44, NVIDIA L4
2026/03/04 05:06:12.1"""

DATED = """\
Wed Mar  4 05:06:07 UTC 2026
index, utilization.gpu [%], memory.used [MiB]
0, 10 %, 1000 MiB
1, 20 %, 2000 MiB
Wed Mar  4 05:06:17 UTC 2026
index, utilization.gpu [%], memory.used [MiB]
0, 11 %, 1000 MiB
1, 21 %, 2000 MiB
"""

OWN = """\
ts,phase,gpu_id,temp_c,power_w,mem_used_mib,mem_total_mib,util_pct
1772600767.5,load,0,41,60.5,1700,24576,0
1772600767.5,load,1,44,25.1,1,24576,0
1772600768.5,train,0,42,161.0,9000,24576,87
1772600768.5,train,1,44,25.0,1,24576,0
"""

COLAB = """\
elapsed_s,gpu_utilization,memory_used,memory_total
0.0,0,0,15360
0.5,37,1121,15360
1.5,40,1121,15360
"""

SAMPLES = (LOOP, WIDE, OLD, APPS, NO_HEADER, LOCALIZED, DAMAGED, DATED, OWN, COLAB)
