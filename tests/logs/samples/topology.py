"""What ``nvidia-smi -L``, ``topo -m`` and ``nvlink`` print, with values of our own."""

from __future__ import annotations

LISTED = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000001)
  MIG 3g.20gb     Device  0: (UUID: MIG-7e57a000-0000-4000-8000-0000000000a1)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000002)
"""

MATRIX = """\
\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tNV4\tPXB\t0-23,48-71\t0\t\tN/A
GPU1\tNV4\t X \tNV4\tSYS\t24-47,72-95\t1\t\tN/A
GPU2\tNV4\tNV4\t X \tSYS\t24-47,72-95\t0-1\t\tN/A
NIC0\tPXB\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

SWITCHED = """\
        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity
GPU0     X      NV18    NV18    0-55    0
GPU1    NV18     X      NV18    0-55    0
GPU2    NV18    NV18     X      N/A     N/A
"""

PCIE_ONLY = """\
\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tPHB\t0-15\tN/A
GPU1\tPHB\t X \t0-15\tN/A
"""

STATUS = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000001)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
\t Link 2: 25 GB/s
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000002)
\t Link 0: 25 GB/s
\t Link 1: 25 GB/s
\t Link 2: 25 GB/s
"""

OLD_STATUS = """\
GPU 3: Tesla V100-SXM2-16GB
\t Link 0: 25.781 GB/s
\t Link 1: 25.781 GB/s
"""

ERRORS = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000001)
\t Link 0: Replay Errors: 4
\t Link 0: Recovery Errors: 1
\t Link 0: CRC Errors: 20

\t Link 1: Replay Errors: 0
\t Link 1: Recovery Errors: 0
\t Link 1: CRC Errors: 2
"""

CAPABILITIES = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-7e57a000-0000-4000-8000-000000000001)
\t Link 0, P2P is supported: true
\t Link 0, Access to system memory supported: true
\t Link 0, SLI is supported: false
"""

NONE = """\
GPU 0: NVIDIA RTX A4000 (UUID: GPU-7e57a000-0000-4000-8000-000000000003)
Device does not have or support Nvlink
GPU 1: Quadro RTX 5000 (UUID: GPU-7e57a000-0000-4000-8000-000000000004) NVML: Unable to retrieve Nvlink information \
as all links are inActive
"""

SAMPLES = (LISTED, MATRIX, SWITCHED, PCIE_ONLY, STATUS + ERRORS, OLD_STATUS, CAPABILITIES, NONE)
