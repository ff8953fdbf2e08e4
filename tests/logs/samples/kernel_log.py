"""Kernel logs in the forms that people post, with values of our own."""

from __future__ import annotations

MEMORY_ERROR = """\
[    0.000000] Linux version 6.8.0-45-generic (buildd@host) (x86_64-linux-gnu-gcc-13)
[    5.102334] nvidia: loading out-of-tree module taints kernel.
[    5.102399] nvidia: module verification failed: signature and/or required key missing - tainting kernel
[    5.310021] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024
[ 7301.411910] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing
[ 9000.100000] NVRM: GPU at PCI:0000:4e:00: GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01
[ 9000.100001] NVRM: GPU Board Serial Number: 1650000000001
[ 9000.100010] NVRM: Xid (PCI:0000:4e:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error \
(DBE) has been detected on GPU in the framebuffer at physAddr 0x1200 partition 3, subpartition 0.
[ 9000.110010] NVRM: Xid (PCI:0000:4e:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x1200) marked \
for remapping, reset gpu to activate.
[ 9000.120010] NVRM: Xid (PCI:0000:4e:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No
[ 9000.130010] NVRM: Xid (PCI:0000:4e:00): 94, pid=31001, name=python3, Ch 00000008
[ 9000.130030] NVRM: Xid (PCI:0000:4e:00): 94, pid=31001, name=python3, Ch 00000009
[ 9012.411910] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing
"""

STORM = "".join(
    f"[Mon Jun  3 12:00:0{number // 4} 2024] NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, "
    f"Graphics SM Warp Exception on (GPC {number}, TPC 1, SM 0): Out Of Range Address\n"
    for number in range(12)
) + "".join(
    f"[Mon Jun  3 12:00:03 2024] NVRM: Xid (PCI:0000:3b:00): {code}, pid=777, name=pt_main_thread, Ch {number:08x}\n"
    for code, count in ((43, 1), (45, 40))
    for number in range(count)
)

FALLEN = """\
[  210.308145] NVRM: The NVIDIA GPU 0000:81:00.0
               NVRM: (PCI ID: 10de:20b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
[  210.439662] NVRM: The NVIDIA probe routine failed for 1 device(s).
[  210.439669] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build
"""

NOT_STARTED = """\
Jun  3 11:49:53 node1 kernel: [  885.242168] NVRM: GPU 0000:5e:00.0: RmInitAdapter failed! (0x24:0x72:1568)
Jun  3 11:49:53 node1 kernel: [  885.242457] NVRM: GPU 0000:5e:00.0: rm_init_adapter failed, device minor number 3
Jun  3 11:49:54 node1 systemd[1]: Started session 12 of user ana.
Jun  3 11:50:34 node1 kernel: [  926.232044] NVRM: GPU 0000:5e:00.0: RmInitAdapter failed! (0x24:0x72:1568)
Jun  3 11:50:34 node1 kernel: [  926.232358] NVRM: GPU 0000:5e:00.0: rm_init_adapter failed, device minor number 3
"""

LINK = """\
[    0.812345] pci 0000:40:01.1: PCI bridge to [bus 41]
[    0.812399] pci 0000:40:03.1: PCI bridge to [bus 42-43]
[    0.813001] pci 0000:41:00.0: [10de:2204] type 00 class 0x030000
[    0.813100] pci 0000:41:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at \
0000:40:01.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)
[    0.813200] pci 0000:42:00.0: 31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 link at \
0000:40:03.1 (capable of 63.012 Gb/s with 16.0 GT/s PCIe x4 link)
[ 1000.000316] pcieport 0000:40:01.1: AER: Corrected error received: 0000:40:01.1
[ 1000.000321] pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
[ 1000.000324] pcieport 0000:40:01.1:   device [1022:1483] error status/mask=00001000/00006000
[ 1000.000328] pcieport 0000:40:01.1:    [12] Timeout
[ 1000.100321] pcieport 0000:40:01.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
[ 1000.200321] nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)
[ 1000.300321] pcieport 0000:40:03.1: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
[ 1000.400321] nvme 0000:42:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
"""

HOST = """\
2024-06-03T12:00:00+0200 node1 kernel: NVRM: API mismatch: the client 'python' (pid 4711) has the version 550.90.07, but
                                       NVRM: this kernel module has the version 550.54.14.  Please
                                       NVRM: make sure that this kernel module and all NVIDIA driver
                                       NVRM: components have the same version.
2024-06-03T12:00:01+0200 node1 kernel: python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0
2024-06-03T12:00:01+0200 node1 kernel: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python,pid=4712
2024-06-03T12:00:01+0200 node1 kernel: Memory cgroup out of memory: Killed process 4712 (python) \
total-vm:9kB, anon-rss:8kB
2024-06-03T12:00:02+0200 node1 kernel: pt_main_thread[4713]: segfault at 7f00 ip 00007f10 sp 00007f20 error 4 in \
libnccl.so.2[7f0000+d3d000]
2024-06-03T12:00:03+0200 node1 kernel: INFO: task nvidia-smi:4714 blocked for more than 120 seconds.
2024-06-03T12:00:03+0200 node1 kernel:  os_acquire_mutex+0x1e/0x40 [nvidia]
2024-06-03T12:00:04+0200 node1 kernel: INFO: task python3:4715 blocked for more than 241 seconds.
2024-06-03T12:00:05+0200 node1 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS
2024-06-03T12:00:05+0200 node1 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46
2024-06-03T12:00:05+0200 node1 kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, 0x00100000}
2024-06-03T12:00:06+0200 node1 kernel: nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
"""

UNFIT = """\
[    5.499014] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 23:15:11 UTC 2025
[    5.559842] NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c58)
               NVRM: installed in this system requires use of the NVIDIA open kernel modules.
[    5.559858] NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)
[    5.560313] NVRM: GPU 0000:02:00.0: rm_init_adapter failed, device minor number 0
"""

RELATIVE = """\
[Jun 3 12:00] NVRM: Xid (PCI:0000:3b:00): 31, pid=900, name=python, Ch 00000010
[  +0.000005] usb 1-1: new high-speed USB device number 4 using xhci_hcd
[  +2.500000] NVRM: Xid (PCI:0000:3b:00): 43, pid=900, name=python, Ch 00000010
"""

OLD = """\
Dec 25 11:10:04 saturn kernel: [   19.384758] NVRM: RmInitAdapter failed! (0x27:0x38:1193)
Dec 25 11:10:04 saturn kernel: [   19.384766] NVRM: rm_init_adapter(0) failed
Dec 25 11:11:04 saturn kernel: [   79.384766] NVRM: Xid (0000:03:00): 13, 0001 00000000 000050c0 00000368
"""

SAMPLES = (MEMORY_ERROR, STORM, FALLEN, NOT_STARTED, LINK, HOST, UNFIT, RELATIVE, OLD)
