"""``nvidia-smi -q`` of several generations of the driver, with values of our own."""

from __future__ import annotations

MODERN = """\

==============NVSMI LOG==============

Timestamp                                              : Tue Jun  9 10:20:30 2026
Driver Version                                         : 590.44.01
CUDA Version                                           : 13.1

Attached GPUs                                          : 1
GPU 00000000:4E:00.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    Product Brand                                      : NVIDIA
    Product Architecture                               : Hopper
    Display Mode                                       : Requested functionality has been deprecated
    Persistence Mode                                   : Enabled
    Addressing Mode                                    : HMM
    MIG Mode
        Current                                        : Disabled
        Pending                                        : Disabled
    Serial Number                                      : 1650000000001
    GPU UUID                                           : GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a01
    Minor Number                                       : 0
    VBIOS Version                                      : 96.00.A5.00.01
    Platform Info
        Chassis Serial Number                          :
        Module Id                                      : 7
    Inforom BBX Object Flush
        Latest Timestamp                               : 2026/06/08 21:24:53.799
        Latest Duration                                : 88355 us
    GPU Virtualization Mode
        Virtualization Mode                            : None
        Host VGPU Mode                                 : N/A
    GPU Recovery Action                                : None
    PCI
        Bus                                            : 0x4E
        Bus Id                                         : 00000000:4E:00.0
        GPU Link Info
            PCIe Generation
                Max                                    : 5
                Current                                : 4
                Device Current                         : 4
                Device Max                             : 5
                Host Max                               : 4
            Link Width
                Max                                    : 16x
                Current                                : 8x
        Bridge Chip
            Type                                       : N/A
        Replays Since Reset                            : 3
        Tx Throughput                                  : 1000 KB/s
        Rx Throughput                                  : 2000 KB/s
        Atomic Caps Outbound                           : FETCHADD_32 FETCHADD_64 SWAP_32
    Fan Speed                                          : N/A
    Performance State                                  : P0
    Clocks Event Reasons
        Idle                                           : Not Active
        Applications Clocks Setting                    : Not Active
        SW Power Cap                                   : Active
        HW Slowdown                                    : Not Active
            HW Thermal Slowdown                        : Not Active
            HW Power Brake Slowdown                    : Not Active
        Sync Boost                                     : Not Active
        SW Thermal Slowdown                            : Active
        Display Clock Setting                          : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                               : 5000000 us
        Sync Boost                                     : 0 us
        SW Thermal Slowdown                            : 2000000 us
        HW Thermal Slowdown                            : 0 us
        HW Power Braking                               : 0 us
    Sparse Operation Mode                              : Disabled
    FB Memory Usage
        Total                                          : 81559 MiB
        Reserved                                       : 500 MiB
        Used                                           : 40000 MiB
        Free                                           : 41059 MiB
    BAR1 Memory Usage
        Total                                          : 131072 MiB
        Used                                           : 7 MiB
        Free                                           : 131065 MiB
    Conf Compute Protected Memory Usage
        Total                                          : 0 MiB
        Used                                           : 0 MiB
        Free                                           : 0 MiB
    Compute Mode                                       : Exclusive_Process
    Utilization
        GPU                                            : 97 %
        Memory                                         : 41 %
        Encoder                                        : 0 %
        Decoder                                        : 0 %
        JPEG                                           : 0 %
        OFA                                            : 0 %
    ECC Mode
        Current                                        : Enabled
        Pending                                        : Disabled
    ECC Errors
        Volatile
            SRAM Correctable                           : 2
            SRAM Uncorrectable Parity                  : 1
            SRAM Uncorrectable SEC-DED                 : 0
            DRAM Correctable                           : 40
            DRAM Uncorrectable                         : 3
        Aggregate
            SRAM Correctable                           : 9
            SRAM Uncorrectable Parity                  : 4
            SRAM Uncorrectable SEC-DED                 : 2
            DRAM Correctable                           : 100
            DRAM Uncorrectable                         : 5
            SRAM Threshold Exceeded                    : No
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                                    : 0
    Retired Pages
        Single Bit ECC                                 : N/A
        Double Bit ECC                                 : N/A
        Pending Page Blacklist                         : N/A
    Remapped Rows
        Correctable Error                              : 1
        Uncorrectable Error                            : 6
        Pending                                        : Yes
        Remapping Failure Occurred                     : No
        Bank Remap Availability Histogram
            Max                                        : 2554 bank(s)
            High                                       : 6 bank(s)
    Temperature
        GPU Current Temp                               : 61 C
        GPU T.Limit Temp                               : 26 C
        GPU Shutdown T.Limit Temp                      : -8 C
        GPU Slowdown T.Limit Temp                      : -2 C
        GPU Max Operating T.Limit Temp                 : 0 C
        GPU Target Temperature                         : N/A
        Memory Current Temp                            : 72 C
        Memory Max Operating T.Limit Temp              : 0 C
    GPU Power Readings
        Average Power Draw                             : 612.40 W
        Instantaneous Power Draw                       : 598.10 W
        Current Power Limit                            : 650.00 W
        Requested Power Limit                          : 650.00 W
        Default Power Limit                            : 700.00 W
        Min Power Limit                                : 200.00 W
        Max Power Limit                                : 700.00 W
    GPU Memory Power Readings
        Average Power Draw                             : 90.10 W
        Instantaneous Power Draw                       : N/A
    Module Power Readings
        Average Power Draw                             : 900.00 W
        Instantaneous Power Draw                       : N/A
        Current Power Limit                            : 1000.00 W
    Power Smoothing                                    : N/A
    EDPp Multiplier                                    : 100.00%
    Clocks
        Graphics                                       : 1700 MHz
        SM                                             : 1695 MHz
        Memory                                         : 2619 MHz
        Video                                          : 1545 MHz
    Applications Clocks
        Graphics                                       : Requested functionality has been deprecated
        Memory                                         : Requested functionality has been deprecated
    Max Clocks
        Graphics                                       : 1980 MHz
        SM                                             : 1980 MHz
        Memory                                         : 2619 MHz
    Max Customer Boost Clocks
        Graphics                                       : 1980 MHz
    Fabric
        State                                          : In Progress
        Status                                         : N/A
        Health
            Bandwidth                                  : N/A
    Processes
        GPU instance ID                                : N/A
        Compute instance ID                            : N/A
        Process ID                                     : 4711
            Type                                       : C
            Name                                       : /opt/conda/bin/python
            Used GPU Memory                            : 39000 MiB
        GPU instance ID                                : N/A
        Compute instance ID                            : N/A
        Process ID                                     : 4712
            Type                                       : C
            Name                                       : [serve: worker@node:Main] -active- (-n x@%h -E) 100%
            Used GPU Memory                            : N/A
    Capabilities
        EGM                                            : disabled
"""

OLD = """\
==============NVSMI LOG==============

Timestamp                           : Mon Mar  4 08:00:00 2019
Driver Version                      : 390.77

Attached GPUs                       : 2
GPU 00000000:05:00.0
    Product Name                    : Tesla V100-SXM2-16GB
    Persistence Mode                : Disabled
    GPU UUID                        : GPU-0a0a0a0a-1111-2222-3333-444444444444
    Minor Number                    : 1
    GPU Virtualization Mode
        Virtualization mode         : Pass-Through
    PCI
        Bus Id                      : 00000000:05:00.0
        GPU Link Info
            PCIe Generation
                Max                 : 3
                Current             : 1
            Link Width
                Max                 : 16x
                Current             : 16x
        Replays since reset         : 0
        Tx Throughput               : 0 KB/s
    Fan Speed                       : 38 %
    Performance State               : P8
    Clocks Throttle Reasons
        Idle                        : Active
        Applications Clocks Setting : Not Active
        SW Power Cap                : Not Active
        HW Slowdown                 : Not Active
            HW Thermal Slowdown     : Not Active
            HW Power Brake Slowdown : Not Active
        Sync Boost                  : Not Active
        SW Thermal Slowdown         : Not Active
    FB Memory Usage
        Total                       : 16160 MiB
        Used                        : 11 MiB
        Free                        : 16149 MiB
    BAR1 Memory Usage
        Total                       : 16384 MiB
        Used                        : 2 MiB
        Free                        : 16382 MiB
    Compute Mode                    : Default
    Utilization
        Gpu                         : 0 %
        Memory                      : 0 %
        Encoder                     : 0 %
        Decoder                     : 0 %
    Ecc Mode
        Current                     : Enabled
        Pending                     : Enabled
    ECC Errors
        Volatile
            Single Bit
                Device Memory       : 4
                Register File       : 1
                Total               : 5
            Double Bit
                Device Memory       : 2
                Total               : 2
        Aggregate
            Single Bit
                Device Memory       : 70
                Total               : 70
            Double Bit
                Device Memory       : 80
                Total               : 80
    Retired Pages
        Single Bit ECC              : 0
        Double Bit ECC              : 1
        Pending                     : No
    Temperature
        GPU Current Temp            : 33 C
        GPU Shutdown Temp           : 90 C
        GPU Slowdown Temp           : 87 C
        GPU Max Operating Temp      : 83 C
        Memory Current Temp         : 30 C
        Memory Max Operating Temp   : 85 C
    Power Readings
        Power Management            : Supported
        Power Draw                  : 41,70 W
        Power Limit                 : 300.00 W
        Default Power Limit         : 300.00 W
        Enforced Power Limit        : 250.00 W
    Clocks
        Graphics                    : 135 MHz
        SM                          : 135 MHz
        Memory                      : 877 MHz
        Video                       : 555 MHz
    Max Clocks
        Graphics                    : 1530 MHz
        SM                          : 1530 MHz
        Memory                      : 877 MHz
    Processes                       : None

GPU 00000000:06:00.0
    Product Name                    : Tesla V100-SXM2-16GB
    GPU UUID                        : GPU-0b0b0b0b-1111-2222-3333-444444444444
    Minor Number                    : 0
    Processes
        Process ID                  : 77
            Type                    : C
            Name                    : python
            Used GPU Memory         : 305 MiB
"""

SPLIT = """\
Timestamp                                 : Tue Jun  9 10:20:30 2026
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        Compute Instance ID               : 0
        Device Attributes
            Shared
                Multiprocessor count      : 42
                Copy Engine count         : 3
        ECC Errors
            Volatile
                SRAM Uncorrectable        : 1
        FB Memory Usage
            Total                         : 20096 MiB
            Reserved                      : 0 MiB
            Used                          : 37 MiB
            Free                          : 20059 MiB
        BAR1 Memory Usage
            Total                         : 32767 MiB
            Used                          : 1 MiB
            Free                          : 32766 MiB
    MIG Device
        Index                             : 1
        GPU Instance ID                   : 2
        Compute Instance ID               : 0
        Shared FB Memory Usage
            Total                         : 20096 MiB
            Used                          : 9000 MiB
    Accounting Mode                       : Disabled
    GPU UUID                              : GPU-22222222-1111-2222-3333-444444444444
    Minor Number                          : 0
    FB Memory Usage
        Total                             : 40960 MiB
        Reserved                          : 600 MiB
        Used                              : 9037 MiB
    Utilization
        Gpu                               : N/A
        Memory                            : N/A
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 0
    Temperature
        GPU Current Temp                  : 41 C
    Processes
        GPU instance ID                   : 2
        Compute instance ID               : 0
        Process ID                        : 900
            Type                          : C
            Name                          : python3
            Used GPU Memory               : 8990 MiB
"""

LOST = """\
Timestamp                                 : Tue Jun  9 10:20:30 2026
Driver Version                            : 535.129.03
Attached GPUs                             : 1
GPU 00000000:65:00.0
    Product Name                          : NVIDIA A100 80GB PCIe
    GPU UUID                              : Unknown Error
    Minor Number                          : 0
    VBIOS Version                         : Unknown Error
    GPU Reset Status
        Reset Required                    : N/A
        Drain and Reset Recommended       : Yes
    PCI
        Replays Since Reset               : 13000
        Tx Throughput                     : -1635107216 KB/s
    Fan Speed                             : Unknown Error
    Performance State                     : Unknown
    Clocks Event Reasons                  : Unknown Error
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 4 MiB
    Utilization
        Gpu                               : N/A
        Memory                            : N/A
    Temperature
        GPU Current Temp                  : Unknown Error
        GPU Shutdown Temp                 : 0 C
        GPU Slowdown Temp                 : 0 C
    GPU Power Readings
        Power Draw                        : N/A
    Clocks
        SM                                : N/A
    Processes                             : None
"""

PASTED = """\
    Clocks Throttle Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
    Temperature
        GPU Current Temp                  : 94 C
"""

SAMPLES: tuple[str, ...] = (MODERN, OLD, SPLIT, LOST, PASTED)
