"""What a process is: its role, framework, libraries, launcher's rank and switches, told from its traces in /proc."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpumon import text
from gpumon.model import Role

LAUNCHER_NAMES = frozenset(
    """RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT
    SLURM_JOB_ID SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID
    OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_SIZE PMI_RANK PMI_SIZE
    JOB_COMPLETION_INDEX APPTAINER_NAME SINGULARITY_NAME""".split()
)
SWITCH_NAMES = frozenset(
    """CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING
    NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_SHM_DISABLE NCCL_DEBUG TORCH_DISTRIBUTED_DEBUG TORCH_SHOW_CPP_STACKTRACES
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_HIP_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING
    NVIDIA_TF32_OVERRIDE XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_MEM_FRACTION XLA_CLIENT_MEM_FRACTION
    TF_FORCE_GPU_ALLOW_GROWTH OMP_NUM_THREADS MKL_NUM_THREADS""".split()
)
ENVIRONMENT_NAMES = LAUNCHER_NAMES | SWITCH_NAMES
"""Nothing else of an environment is read: it holds people's keys."""

LIBRARIES: tuple[tuple[bytes, str], ...] = (
    (b"xla_cuda_plugin", "libjax"),
    (b"xla_extension", "libjax"),
    (b"libjax_common", "libjax"),
    (b"libtorch_cuda", "libtorch_cuda"),
    (b"libtorch_cpu", "libtorch_cpu"),
    (b"libtensorflow", "libtensorflow"),
    (b"libpaddle", "libpaddle"),
    (b"/cupy/", "cupy"),
    (b"libllama", "libllama"),
    (b"libggml-cuda", "libggml"),
    (b"libnccl", "libnccl"),
    (b"libcudnn", "libcudnn"),
    (b"libcublas", "libcublas"),
    (b"libnvinfer", "libnvinfer"),
    (b"libmpi.so", "libmpi"),
    (b"libdali", "libdali"),
    (b"/ffcv", "ffcv"),
    (b"/vllm/", "vllm"),
    (b"/sgl_kernel/", "sglang"),
    (b"libtritonserver", "libtritonserver"),
    (b"transformer_engine", "transformer_engine"),
    (b"flash_attn", "flash_attn"),
    (b"/bitsandbytes/", "bitsandbytes"),
    (b"/deepspeed/", "deepspeed"),
    (b"libcuda.so", "libcuda"),
    (b"/compat/libcuda.so", "cuda-compat"),
)
"""What a mapped file's path contains -> the name shown; order decides nothing."""
_CUDA_RUNTIME = re.compile(rb"/libcudart(?:-[0-9a-f]+)?\.so\.(\d+)")
"""Its major number says which driver a program needs; wheels put a hash into the name."""

# JAX first: people who use it often have torch for loading. TensorFlow after torch: tensorboard drags it in.
_FRAMEWORKS = (
    ("libjax", "jax"),
    ("libtorch_cuda", "pytorch"),
    ("libtorch_cpu", "pytorch"),
    ("libtensorflow", "tensorflow"),
    ("libpaddle", "paddle"),
    ("cupy", "cupy"),
    ("libllama", "llama.cpp"),
    ("libggml", "llama.cpp"),
    ("libnvinfer", "tensorrt"),
)
THREADS = (
    "pt_data_pin",
    "pt_nccl_watchdg",
    "pt_nccl_heartbt",
    "pt_elastic",
    "pt_tcpstore",
    "pt_autograd",
    "tf_data_",
    "grain",
)
"""Beginnings of thread names that say what a trainer has running."""

_SERVERS = frozenset(
    """vllm tritonserver ollama sglang text-generation-server text-generation-launcher text-generation-router
    llama-server lmdeploy trtllm-serve infinity_emb""".split()
)
_SERVER_MODULES = (
    "vllm.entrypoints",
    "sglang.launch_server",
    "sglang.srt",
    "lmdeploy.serve",
    "tensorrt_llm.commands.serve",
    "text_generation_server",
    "tritonserver",
)
_SERVER_LIBRARIES = frozenset(("vllm", "sglang", "libtritonserver"))
_NOTEBOOKS = ("ipykernel", "colab_kernel_launcher", "jupyter")
_COMPILERS = frozenset(
    """ptxas cicc nvcc ninja cudafe++ fatbinary nvlink nvdisasm cuobjdump cc1plus cc1 g++ gcc c++ cc clang clang++
    ld ld.lld ld.gold lld as collect2 make cmake""".split()
)
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[td]?|pt_main_thread")
_TRAINS = re.compile(r"train|finetune|fine_tune|grpo|ppo|rlhf", re.IGNORECASE)
_WORKER_CPU_PCT = 10.0
_WORKER_RCHAR_BYTES = 1_000_000


class Rank(NamedTuple):
    """A process's place in its job, as the launcher wrote it down."""

    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    job_id: str | None = None


class Behaviour(NamedTuple):
    """What a helper does, for the loaders that do not name their workers."""

    is_forked: bool
    """Its command line is its parent's: it was forked and runs nothing of its own."""
    cpu_pct: float | None
    rchar_bytes: int | None
    like_siblings: int
    """Children of the same parent with the same command line, itself included."""


def parse_environment(data: bytes | None) -> dict[str, str] | None:
    """Keep the names of the fixed list; None where the environment cannot be read.

    A process that retitles itself overwrites this memory, so anything that is no assignment is passed over.
    """
    if data is None:
        return None
    kept: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        known = name.decode("ascii", "replace")
        if equals and known in ENVIRONMENT_NAMES:
            kept[known] = text.clean(value)
    return kept


def _whole(environment: Mapping[str, str], name: str, *, limit: int = 10_000_000) -> int | None:
    value = environment.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 9 and int(value) < limit else None


def rank_of(environment: Mapping[str, str], *, slurm_job: str | None = None, pod: str | None = None) -> Rank:
    """Read rank and job from the first launcher that left its names; the cgroup's job where it left none."""
    job_id = _job_of(environment) or slurm_job or pod
    if (local_rank := _whole(environment, "LOCAL_RANK")) is not None or "RANK" in environment:
        rank = _whole(environment, "RANK")
        # Lightning starts its ranks with LOCAL_RANK and NODE_RANK alone.
        if rank is None and "RANK" not in environment and environment.get("NODE_RANK", "0") == "0":
            rank = local_rank
        return _checked(Rank(rank, local_rank, _whole(environment, "WORLD_SIZE"), job_id))
    for rank_name, local_name, size_name in (
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "", "PMI_SIZE"),
        ("JOB_COMPLETION_INDEX", "", ""),
    ):
        rank = _whole(environment, rank_name)
        if rank is not None:
            found = Rank(rank, _whole(environment, local_name), _whole(environment, size_name), job_id)
            return _checked(found)
    return Rank(job_id=job_id)


def _checked(found: Rank) -> Rank:
    """A rank outside its world is a leftover of another job: better none."""
    if found.rank is not None and found.world_size is not None and found.rank >= found.world_size:
        return Rank(job_id=found.job_id)
    return found


def _job_of(environment: Mapping[str, str]) -> str | None:
    # torchrun without --rdzv-id calls every job "none".
    if (run := environment.get("TORCHELASTIC_RUN_ID")) and run != "none":
        return run
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return environment.get("SLURM_JOB_ID") or None


def libraries_in(maps: bytes | None) -> tuple[str, ...] | None:
    """Name the libraries of the fixed list that are mapped; None where the map cannot be read (or is empty)."""
    if not maps:
        return None
    runtimes = (f"libcudart.so.{number.decode()}" for number in _CUDA_RUNTIME.findall(maps))
    return tuple(dict.fromkeys((*(name for part, name in LIBRARIES if part in maps), *runtimes)))


def framework_of(libraries: Sequence[str] | None, comm: str) -> str | None:
    """Name the framework by its libraries, or by a thread name that only it gives."""
    if libraries is not None:
        for library, framework in _FRAMEWORKS:
            if library in libraries:
                return framework
    return "pytorch" if comm.startswith("pt_") else None


def _base(path: str) -> str:
    return path.rstrip("/").rsplit("/", 1)[-1]


def is_python(argv: Sequence[str], comm: str) -> bool:
    """Tell whether an interpreter runs here, by its program or by the name PyTorch gives its main thread."""
    program = _base(argv[0]) if argv else ""
    return _PYTHON.fullmatch(program) is not None or _PYTHON.fullmatch(comm) is not None


def program_of(argv: Sequence[str], comm: str) -> tuple[str, str]:
    """Return what runs and how it was named: ``(name, "module"|"script"|"code"|"program")``."""
    if not argv:
        return comm, "program"
    if not is_python(argv, ""):
        return _base(argv[0]), "program"
    arguments = iter(argv[1:])
    for argument in arguments:
        if argument in ("-m", "-c"):
            return next(arguments, ""), "module" if argument == "-m" else "code"
        if argument in ("-X", "-W", "--check-hash-based-pycs"):
            next(arguments, None)
        elif not argument.startswith("-"):
            return _base(argument), "script"
    return _base(argv[0]), "program"


def role_of_holder(
    argv: Sequence[str], comm: str, libraries: Sequence[str] | None, *, framework: str | None, is_ranked: bool
) -> Role:
    """Tell what a process that holds GPU memory is there for."""
    name, kind = program_of(argv, comm)
    titled = (argv[0] if argv else comm).lower()
    if name in _SERVERS or titled.startswith(("vllm::", "sglang::")):
        return "server"
    if kind == "module" and name.startswith(_SERVER_MODULES):
        return "server"
    if name.startswith(_NOTEBOOKS):
        return "notebook"
    trains = is_ranked or any(_TRAINS.search(_base(argument)) for argument in argv[:8])
    # Trainers of the RL kind map a serving library too.
    if libraries is not None and not trains and not _SERVER_LIBRARIES.isdisjoint(libraries):
        return "server"
    if framework is not None or is_python(argv, comm) or trains:
        return "trainer"
    return "other"


def role_of_helper(argv: Sequence[str], comm: str, behaviour: Behaviour) -> Role:
    """Tell what a descendant of a GPU process is there for."""
    if comm.startswith("pt_data_worker"):
        return "dataloader-worker"
    program = _base(argv[0]) if argv else comm
    if comm in _COMPILERS or program in _COMPILERS or program.endswith(("-g++", "-gcc", "-ld")):
        return "compile"
    if any("compile_worker" in argument for argument in argv[:8]):
        return "compile"
    if not is_python(argv, comm) or any("resource_tracker" in argument for argument in argv[:8]):
        return "other"
    is_spawned = any("multiprocessing.spawn import" in argument for argument in argv[:8])
    return "dataloader-worker" if (behaviour.is_forked or is_spawned) and _works(behaviour) else "other"


def _works(behaviour: Behaviour) -> bool:
    """A loader's worker computes, reads, or has siblings; a manager or a logger does none of it."""
    return (
        (behaviour.cpu_pct or 0.0) >= _WORKER_CPU_PCT
        or (behaviour.rchar_bytes or 0) >= _WORKER_RCHAR_BYTES
        or behaviour.like_siblings >= 2
    )


def threads_in(comms: Sequence[str]) -> tuple[str, ...]:
    """Name the known beginnings among a process's thread names, each once."""
    return tuple(name for name in THREADS if any(comm.startswith(name) for comm in comms))
