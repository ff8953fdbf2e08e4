"""Prometheus text of several exporters and generations, with values of our own."""

from __future__ import annotations

DCGM = """\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7",DCGM_FI_DRIVER_VERSION="550.54.15",pod="train-0"} 1755
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-bbbb",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node7",DCGM_FI_DRIVER_VERSION="550.54.15",pod="train-0"} 345
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7",DCGM_FI_DRIVER_VERSION="550.54.15",pod="train-0"} 97
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-bbbb",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node7",DCGM_FI_DRIVER_VERSION="550.54.15",pod="train-0"} 0
# HELP DCGM_FI_DEV_MEMORY_TEMP Memory temperature (in C).
# TYPE DCGM_FI_DEV_MEMORY_TEMP gauge
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 9223372036854775794
DCGM_FI_DEV_MEMORY_TEMP{gpu="1",UUID="GPU-bbbb",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 0
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 612.345000
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-bbbb",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 140737488355328.000000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 455497156
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 20000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 61000
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 559
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 36
DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu="1",UUID="GPU-bbbb",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 0
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 30000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 0.412000
DCGM_FI_PROF_PCIE_RX_BYTES{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node7"} 45987793
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-aaaa",device="nvidia0",Hostname="node7",err_code="31",err_msg="GPU memory page fault"} 31
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-bbbb",device="nvidia1",Hostname="node7",err_code="0",err_msg="No Error"} 0
go_goroutines 12
"""  # noqa: E501 - as wide as it is

DCGM_UNITS = """\
# TYPE DCGM_FI_DEV_GPU_UTIL_RATIO gauge
DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-aaaa",hostname="node7",DCGM_FI_SYSTEM_DRIVER_VERSION="580.65.06"} 0.970000
DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="1",UUID="GPU-bbbb",hostname="node7",DCGM_FI_SYSTEM_DRIVER_VERSION="580.65.06"} 1.000000
DCGM_FI_DEV_FB_USED_BYTES{gpu="0",UUID="GPU-aaaa",hostname="node7"} 63963136000
DCGM_FI_DEV_FB_CAPACITY_BYTES{gpu="0",UUID="GPU-aaaa",hostname="node7"} 85520809984
DCGM_FI_DEV_BOARD_POWER_WATTS{gpu="0",UUID="GPU-aaaa",hostname="node7"} 612.345
DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS{gpu="0",UUID="GPU-aaaa",hostname="node7"} 700
DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{gpu="0",UUID="GPU-aaaa",hostname="node7"} 455497
DCGM_FI_DEV_SM_CLOCK_HERTZ{gpu="0",UUID="GPU-aaaa",hostname="node7"} 1.755e+09
DCGM_FI_DEV_MEMORY_CLOCK_HERTZ{gpu="0",UUID="GPU-aaaa",hostname="node7"} 2.619e+09
DCGM_FI_DEV_GPU_TEMP_CELSIUS{gpu="0",UUID="GPU-aaaa",hostname="node7"} 61
DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND{gpu="0",UUID="GPU-aaaa",hostname="node7"} 30000000000
DCGM_FI_PROF_TENSOR_UTIL_RATIO{gpu="0",UUID="GPU-aaaa",hostname="node7"} 0.412
DCGM_FI_DEV_ROW_REMAP_FAILED{gpu="0",UUID="GPU-aaaa",hostname="node7"} 1
# EOF
"""

DCGM_FIRST = """\
dcgm_gpu_utilization{gpu="0",uuid="GPU-aaaa",device="nvidia0"} 55
dcgm_fb_used{gpu="0",uuid="GPU-aaaa",device="nvidia0"} 1000
dcgm_fb_free{gpu="0",uuid="GPU-aaaa",device="nvidia0"} 15000
"""

MIG = """\
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13",Hostname="node7"} 44
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13",Hostname="node7"} 0
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",Hostname="node7"} 0
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13",Hostname="node7"} 3000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-aaaa",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="1g.5gb",GPU_I_ID="13",Hostname="node7"} 1.020000
"""  # noqa: E501 - as wide as it is

OWN = """\
gpumon_gpu_info{gpu="0",uuid="GPU-aaaa",name="NVIDIA L4",pci_bus_id="00000000:00:04.0",driver="580.65.06"} 1
gpumon_gpu_utilization_ratio{gpu="0",uuid="GPU-aaaa"} 0.5
gpumon_gpu_temperature_celsius{gpu="0",uuid="GPU-aaaa",sensor="gpu"} 60
gpumon_gpu_temperature_celsius{gpu="0",uuid="GPU-aaaa",sensor="memory"} 70
gpumon_gpu_clock_hertz{gpu="0",uuid="GPU-aaaa",domain="sm"} 2.04e9
gpumon_gpu_power_watts{gpu="0",uuid="GPU-aaaa"} 70.5
gpumon_gpu_ecc_errors_total{gpu="0",uuid="GPU-aaaa",kind="corrected"} 3
gpumon_gpu_throttle_seconds_total{gpu="0",uuid="GPU-aaaa",reason="sw_thermal"} 100 1772409600000
gpumon_gpu_utilization_ratio{gpu="0",uuid="GPU-aaaa"} 0.6 1772409610000
gpumon_gpu_pcie_bytes_total{gpu="0",uuid="GPU-aaaa",direction="rx"} 1e9 1772409610000
gpumon_gpu_throttle_seconds_total{gpu="0",uuid="GPU-aaaa",reason="sw_thermal"} 104 1772409610000
gpumon_gpu_utilization_ratio{gpu="0",uuid="GPU-aaaa"} 0.7 1772409620000
gpumon_gpu_pcie_bytes_total{gpu="0",uuid="GPU-aaaa",direction="rx"} 3e9 1772409620000
gpumon_gpu_throttle_seconds_total{gpu="0",uuid="GPU-aaaa",reason="sw_thermal"} 104 1772409620000
"""

NVITOP = r"""# HELP gpu_utilization_Percentage GPU utilization (%).
# TYPE gpu_utilization_Percentage gauge
gpu_utilization_Percentage{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",uuid="GPU-aaaa"} 88.0
gpu_memory_used_MiB{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",uuid="GPU-aaaa"} 2048.0
gpu_pcie_rx_throughput_MiBps{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",uuid="GPU-aaaa"} 10.0
gpu_fan_speed_Percentage{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",uuid="GPU-aaaa"} NaN
process_gpu_memory_MiB{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",pid="77",username="ann",uuid="GPU-aaaa"} 2000.0
process_gpu_sm_utilization_Percentage{devicename="Card \"B\"\\x",hostname="10.1.1.1",index="0",pid="77",username="ann",uuid="GPU-aaaa"} 80.0
host_cpu_percent_Percentage{hostname="10.1.1.1"} 12.5
"""  # noqa: E501 - as wide as it is

SMI = """\
nvidia_smi_gpu_info{uuid="0a0b0c0d-1111-2222-3333-444455556666",name="NVIDIA GeForce RTX 3090",driver_version="550.10",index="1",pci_bus_id="00000000:71:00.0"} 1
nvidia_smi_utilization_gpu_ratio{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 0.31
nvidia_smi_memory_used_bytes{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 7.06740224e+08
nvidia_smi_clocks_current_sm_clock_hz{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 1.695e+09
nvidia_smi_pstate{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 2
nvidia_smi_clocks_event_reasons_sw_power_cap{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 1
nvidia_smi_clocks_event_reasons_hw_slowdown{uuid="0a0b0c0d-1111-2222-3333-444455556666"} 0
nvidia_smi_compute_app_used_memory_bytes{pid="10309",process_name="/opt/bin/train",uuid="0a0b0c0d-1111-2222-3333-444455556666"} 2.9605494784e+10
nvidia_smi_xid_errors_total{uuid="0a0b0c0d-1111-2222-3333-444455556666",xid="79"} 1
nvidia_smi_xid_last_timestamp_seconds{uuid="0a0b0c0d-1111-2222-3333-444455556666",xid="79"} 1.7724095e+09
nvidia_smi_last_collect_success_timestamp_seconds 1.7724096e+09
"""  # noqa: E501 - as wide as it is

OTHERS = """\
nvidia_gpu_duty_cycle{minor_number="3",name="Tesla V100",uuid="GPU-cccc",jobid="17"} 42
nvidia_gpu_power_usage_milliwatts{minor_number="3",name="Tesla V100",uuid="GPU-cccc"} 151000
nvidia_gpu_clock{minor_number="3",name="Tesla V100",uuid="GPU-cccc",type="sm"} 1380
nvidia_gpu_ecc_errors{minor_number="3",uuid="GPU-cccc",counter="volatile",error="uncorrected"} 2
nvidia_gpu_ecc_errors{minor_number="3",uuid="GPU-cccc",counter="aggregate",error="uncorrected"} 9
all_smi_gpu_utilization{gpu="NVIDIA A30", instance="node7", gpu_uuid="GPU-dddd", gpu_index="4"} 25.5
all_smi_gpu_power_consumption_watts{gpu="NVIDIA A30", instance="node7", gpu_uuid="GPU-dddd", gpu_index="4"} 80
hw_gpu_utilization_ratio{hw_id="GPU-eeee",hw_name="NVIDIA T4",hw_gpu_task="general"} 0.75
hw_gpu_memory_usage_bytes{hw_id="GPU-eeee",hw_name="NVIDIA T4"} 1073741824
"""

DUMP = """\
{__name__="DCGM_FI_DEV_GPU_UTIL",gpu="0",UUID="GPU-aaaa"} 10 1772409600000
{__name__="DCGM_FI_DEV_GPU_UTIL",gpu="0",UUID="GPU-aaaa"} 20 1772409615000
{__name__="DCGM_FI_DEV_GPU_UTIL",gpu="0",UUID="GPU-aaaa"} 30 1772409630000
{__name__="DCGM_FI_DEV_GPU_TEMP",gpu="0",UUID="GPU-aaaa"} 51 1772409600000
{__name__="DCGM_FI_DEV_GPU_TEMP",gpu="0",UUID="GPU-aaaa"} 52 1772409615000
{__name__="DCGM_FI_DEV_GPU_TEMP",gpu="0",UUID="GPU-aaaa"} 53 1772409630000
"""

QUOTED = 'DCGM_FI_DEV_XID_ERRORS{err_code="43", err_msg="GPU stopped processing", job="dcgm-exporter"}\n'

SAMPLES = (DCGM, DCGM_UNITS, DCGM_FIRST, MIG, OWN, NVITOP, SMI, OTHERS, DUMP, QUOTED)
