"""What PyTorch, CUDA, NCCL and loaders print, in every generation's words, with values of our own."""

from __future__ import annotations

_ADVICE_OLD = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation. "
    " See documentation"
    " for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
_ADVICE = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid"
    " fragmentation.  See documentation for Memory Management "
    " (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)

OOM_CACHED = (
    "RuntimeError: CUDA out of memory. Tried to allocate 24.00 MiB (GPU 2; 10.92 GiB total capacity; 9.75 GiB already"
    " allocated; 12.56 MiB free; 410.50 MiB cached; 0 bytes inactive)\n"
)
OOM_RESERVED = (
    "Traceback (most recent call last):\n"
    '  File "train.py", line 88, in <module>\n'
    "    loss.backward()\n"
    "RuntimeError: CUDA out of memory. Tried to allocate 700.00 MiB (GPU 1; 14.76 GiB total capacity; 8.00 GiB already"
    " allocated; 610.00 MiB free; 11.90 GiB reserved in total by PyTorch)\n"
)
OOM_ADVICE = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 22.20 GiB total"
    " capacity; 19.80"
    " GiB already allocated; 901.12 MiB free; 20.60 GiB reserved in total by PyTorch)" + _ADVICE_OLD + "\n"
)
OOM_FULL = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 384.00 MiB. GPU 3 has a total capacity of"
    " 39.39 GiB of which 260.00 MiB is free. Including non-PyTorch memory, this process has 39.13 GiB memory in use."
    " Of the allocated memory 37.60 GiB is allocated by PyTorch, with 120.00 MiB allocated in private pools (e.g., CUDA"
    " Graphs), and 610.00 MiB is reserved by PyTorch but unallocated." + _ADVICE + "\n"
)
OOM_NEIGHBOUR = (
    "❌ fold 2 failed: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacty of 15.70 GiB of which"
    " 24.00 MiB is free. Process 90210 has 9.40 GiB memory in use. Process 90311 has 1.10 GiB memory in use. Including"
    " non-PyTorch memory, this process has 5.17 GiB memory in use. Of the allocated memory 4.60 GiB is allocated by"
    " PyTorch, and 88.20 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try"
    " setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and"
    " PYTORCH_CUDA_ALLOC_CONF\n"
)
OOM_IN_CONTAINER = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 640.00 MiB. GPU 0 has a total capacity of 23.57 GiB"
    " of which 402.00 MiB is free. Process 771023 has 23.16 GiB memory in use. Of the allocated memory 21.90 GiB is"
    " allocated by PyTorch, and 811.00 MiB is reserved by PyTorch but unallocated." + _ADVICE + "\n"
)
OOM_PIECES = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.60 GiB. GPU 0 has a total capacity of 31.36 GiB of"
    " which 1.10 GiB is free. Including non-PyTorch memory, this process has 30.25 GiB memory in use. Of the allocated"
    " memory 21.40 GiB is allocated by PyTorch, and 8.20 GiB is reserved by PyTorch but unallocated." + _ADVICE + "\n"
)
OOM_LIMIT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 MiB. GPU 0 has a total"
    " capacity of 47.40 GiB of"
    " which 7.90 GiB is free. Including non-PyTorch memory, this process has 39.40 GiB memory in use."
    " 38.90 GiB allowed;"
    " Of the allocated memory 38.50 GiB is allocated by PyTorch, and 201.00 MiB is reserved by PyTorch but unallocated."
    + _ADVICE
    + "\n"
)
OOM_ABSURD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 81234.56 GiB (GPU 0; 23.69 GiB total capacity;"
    " 3.10 GiB already"
    " allocated; 19.20 GiB free; 3.40 GiB reserved in total by PyTorch)" + _ADVICE_OLD + "\n"
)
OOM_WITHHELD = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total"
    " capacity of 8.00 GiB"
    " of which 5.10 GiB is free. Of the allocated memory 1.90 GiB is allocated by PyTorch, and 40.00 MiB is reserved by"
    " PyTorch but unallocated." + _ADVICE + "\n"
)
OOM_NOBODY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 220.00 MiB. GPU 0 has a total"
    " capacity of 23.55 GiB of"
    " which 101.00 MiB is free. Including non-PyTorch memory, this process has 6.20 GiB memory in use. Of the allocated"
    " memory 5.40 GiB is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated." + _ADVICE + "\n"
)
OOM_WRAPPED = """\
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB.
GPU 0 has a total capacity of 31.36 GiB of which 471.69 MiB is free.
Including non-PyTorch memory, this process has 30.63 GiB memory in use.
Of the allocated memory 29.03 GiB is allocated by PyTorch, and 800.00 MiB
is reserved by PyTorch but unallocated. If reserved but unallocated memory is
large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid
fragmentation.
step 12 loss 0.3
"""
OOM_CUT_AT_80 = """\
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU
 0; 23.69 GiB total capacity; 20.11 GiB already allocated; 1.02 GiB free; 20.50 G
iB reserved in total by PyTorch) If reserved memory is >> allocated memory try se
tting max_split_size_mb to avoid fragmentation.
"""
OOM_ASYNC = """\
torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)
Currently allocated     : 7.20 GiB
Requested               : 1.25 GiB
Device limit            : 8.00 GiB
Free (according to CUDA): 0 bytes
PyTorch limit (set by user-supplied memory fraction)
                        : 17179869184.00 GiB
"""
OOM_BARE = "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported\n"
OOM_OTHERS = """\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6144.50 MiB on device 1: cudaMalloc failed: out of memory
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.
2024-05-02 10:11:12.131415: W tensorflow/core/common_runtime/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of \
memory trying to allocate 3.20GiB (rounded to 3435973888)requested by op model/dense/MatMul
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[64,512,512,4] \
and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
2024-05-02 10:11:13.000000: W tensorflow/core/common_runtime/bfc_allocator.cc:243] Allocator (GPU_0_bfc) ran out of \
memory trying to allocate 1.25GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean \
that there could be performance gains if more memory were available.
"""

NCCL_BEHIND = """\
[rank1]:[E801 03:04:10.851 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=412, OpType=ALLREDUCE, NumelIn=524288, NumelOut=524288, Timeout(ms)=600000) ran for 600021 \
milliseconds \
before timing out.
[rank2]:[E801 03:04:10.852112463 ProcessGroupNCCL.cpp:683] [Rank 2] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=412, OpType=ALLREDUCE, NumelIn=524288, NumelOut=524288, Timeout(ms)=600000) ran for 600094 \
milliseconds \
before timing out.
[rank1]:[E801 03:04:11.063313477 ProcessGroupNCCL.cpp:2241] [PG ID 0 PG GUID 0(default_pg) Rank 1]  failure \
detected by \
watchdog at work sequence id: 412 PG status: last enqueued work: 413, last completed work: 411
[rank0]:[E801 03:04:11.562692551 ProcessGroupNCCL.cpp:1858] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a \
dump signal \
due to a collective timeout from  rank 1 and we will try our best to dump the debug info. Last enqueued NCCL \
work: 411, \
last completed NCCL work: 411.This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used
[rank1]:[E801 03:04:11.600000000 ProcessGroupNCCL.cpp:681] [Rank 1] Some NCCL operations have failed or timed \
out. Due to \
the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.
[rank1]:[E801 03:04:11.600000001 ProcessGroupNCCL.cpp:695] [Rank 1] To avoid data inconsistency, we are taking \
the entire \
process down.
"""
NCCL_OLD = """\
[E ProcessGroupNCCL.cpp:821] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(OpType=BROADCAST, \
TensorShape=[1], Timeout(ms)=1800000) ran for 1804311 milliseconds before timing out.
[E ProcessGroupNCCL.cpp:414] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA \
kernels, subsequent GPU operations might run on corrupted/incomplete data. To avoid this inconsistency, we are taking \
the entire process down.
"""
NCCL_START = (
    "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 6/8 clients joined.\n"
    "RuntimeError: Timed out initializing process group in store based barrier on rank 3, for key:"
    " store_based_barrier_key:1 (world_size=8, worker_count=6, timeout=0:30:00)\n"
)
NCCL_STUCK = (
    "[rank0]:[F801 01:02:03.456 ProcessGroupNCCL.cpp:1368] [PG 0 (default_pg) Rank 0] ProcessGroupNCCL's watchdog got"
    " stuck for 480 seconds without making progress in monitoring enqueued collectives. This typically indicates a\n"
)
NCCL_ERRORS = """\
node1:3111:3500 [2] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<41288>
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, remote \
process exited or there was a network error, NCCL version 2.19.3
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
"""
NCCL_DESYNC = "\t - [0, 3] finished collective #17, but didn't join collective #18 (count from 1)\n"

CUDA_OLD_DRIVER = (
    "/opt/env/lib/python3.10/site-packages/torch/cuda/__init__.py:107: UserWarning: CUDA initialization: The NVIDIA"
    " driver on your system is too old (found version 11040). Please update your GPU driver by"
    " downloading and installing"
    " a new version from the URL: http://www.nvidia.com/Download/index.aspx\n"
)
CUDA_NEW_GPU = """\
/opt/env/lib/python3.11/site-packages/torch/cuda/__init__.py:235: UserWarning:
NVIDIA GeForce RTX 5070 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.
If you want to use the NVIDIA GeForce RTX 5070 GPU with PyTorch, please check the instructions
RuntimeError: CUDA error: no kernel image is available for execution on the device
"""
CUDA_FABRIC = (
    "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda"
    " functions before"
    " calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized (Triggered"
    " internally at ../c10/cuda/CUDAFunctions.cpp:108.)\n"
)
CUDA_ASSERT = (
    "../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0], thread: [3,0,0] Assertion"
    " `srcIndex < srcSelectDimSize` failed.\n"
    "[rank2]: RuntimeError: CUDA error: device-side assert triggered\n"
    "[rank2]: CUDA kernel errors might be asynchronously reported at some other API call\n"
)
CUDA_OTHERS = """\
RuntimeError: CUDA error: an illegal memory access was encountered
RuntimeError: No CUDA GPUs are available
RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable \
CUDA_VISIBLE_DEVICES after program start. Setting the available devices to be zero.
THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=50 error=35 : CUDA driver version is insufficient for \
CUDA runtime version
jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure
"""
NO_CUDA = """\
AssertionError: Torch not compiled with CUDA enabled
Ultralytics 8.2.1 🚀 Python-3.11.9 torch-2.3.0+cpu CPU (Some Processor)
GPU available: True (cuda), used: False
WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed. \
Falling back to cpu.
2.4.1+cpu None False
"""
COLLECT_ENV = """\
Collecting environment information...
PyTorch version: 2.3.1+cu121
Is debug build: False
CUDA used to build PyTorch: 12.1
ROCM used to build PyTorch: N/A

OS: Ubuntu 22.04.4 LTS (x86_64)
Python version: 3.10.12 (main, Mar 22 2024, 16:50:05) [GCC 11.4.0] (64-bit runtime)
Is CUDA available: False
CUDA runtime version: 12.1.105
GPU models and configuration:
GPU 0: NVIDIA A10G
GPU 1: NVIDIA A10G

Nvidia driver version: 470.182.03
cuDNN version: Could not collect
"""

LOADER_BUS = """\
/opt/env/lib/python3.10/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will create 16 \
worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than what this \
DataLoader is going to create.
ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).
RuntimeError: DataLoader worker (pid 321) is killed by signal: Bus error. It is possible that dataloader's workers are \
out of shared memory. Please try to raise your shared memory limit.
"""
LOADER_OTHERS = """\
RuntimeError: unable to open shared memory object </torch_5121_3301233> in read-write mode: Too many open files (24)
RuntimeError: unable to write to file </torch_5122_3301234_0>: No space left on device (28)
RuntimeError: received 0 items of ancdata
RuntimeError: DataLoader worker (pid 501) is killed by signal: Killed.
RuntimeError: DataLoader worker (pid 502) is killed by signal: Segmentation fault.
RuntimeError: DataLoader worker (pid(s) 503, 504) exited unexpectedly
RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to \
allocate 137438953472 bytes. Error code 12 (Cannot allocate memory)
numpy.core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) and \
data type
slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks have been OOM Killed.
  exitcode  : -9 (pid: 4711)
"""

TABLE = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 1                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 1            |        cudaMalloc retries: 14        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |   5120 MiB |   6144 MiB |    911 GiB |    906 GiB |
|       from large pool |   5100 MiB |   6124 MiB |    900 GiB |    895 GiB |
|       from small pool |     20 MiB |     20 MiB |     11 GiB |     11 GiB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  14336 MiB |  15360 MiB |  40960 MiB |  26624 MiB |
|---------------------------------------------------------------------------|
| Non-releasable memory |   3072 MiB |   4096 MiB |    100 GiB |     97 GiB |
|---------------------------------------------------------------------------|
| Allocations           |     545    |     545    |     662    |     117    |
|===========================================================================|
"""
TABLE_OLD = """\
|===========================================================================|
|                  PyTorch CUDA memory summary, device ID 0                 |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 0            |        cudaMalloc retries: 0         |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      |    7104 MB |    8200 MB |  123456 MB |  116352 MB |
|---------------------------------------------------------------------------|
| GPU reserved memory   |    8192 MB |    9216 MB |   10240 MB |    2048 MB |
|---------------------------------------------------------------------------|
| Non-releasable memory |  102400 KB |    1000 MB |    9000 MB |    8900 MB |
"""
PRINTED = "allocated memory: 3.10 GB\n\nreserved memory: 17.25 GB\n"

PROSE = """\
# RuntimeError: CUDA out of memory. Tried to allocate 472.00 MiB. GPU 0 has a total capacity of 23.70 GiB of \
which 0 is free
        "CUDA out of memory. Tried to allocate ", format_size(alloc_size), ". GPU ", device,
    if "CUDA out of memory" in str(error):
If you see `CUDA error: device-side assert triggered`, look at your labels. The dreaded CUDA error: out of memory is
another one, as is the message that Torch not compiled with CUDA enabled gives.
| CUDA error: out of memory | use a smaller batch |
    raise RuntimeError("CUDA error: an illegal memory access was encountered")
pip install torch==2.3.0+cpu
The message Watchdog caught collective operation timeout names the operation; with ncclSystemError look at the network.
if you see NCCL error: unhandled system error, set NCCL_DEBUG=INFO
  - `Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=X)` is a real one
The watchdog of NCCL caught nothing. Our worker is killed by signal handling code. Out of memory errors are rare.
loss: nan
 epoch 3 step 400 loss 0.41 max memory 21 GiB cuda:0
"""

SAMPLES: tuple[str, ...] = (
    OOM_CACHED + OOM_RESERVED + OOM_ADVICE,
    OOM_FULL + OOM_NEIGHBOUR + OOM_IN_CONTAINER,
    OOM_PIECES + OOM_LIMIT + OOM_ABSURD + OOM_WITHHELD + OOM_NOBODY,
    OOM_WRAPPED,
    OOM_CUT_AT_80,
    OOM_ASYNC,
    OOM_BARE + OOM_OTHERS,
    NCCL_BEHIND,
    NCCL_OLD + NCCL_START + NCCL_STUCK + NCCL_ERRORS + NCCL_DESYNC,
    CUDA_OLD_DRIVER + CUDA_FABRIC + CUDA_ASSERT + CUDA_OTHERS,
    CUDA_NEW_GPU,
    NO_CUDA,
    COLLECT_ENV,
    LOADER_BUS + LOADER_OTHERS,
    TABLE + TABLE_OLD,
    PRINTED,
    PROSE,
)
