"""What a process is, told from its command line, maps, environment and control group."""

from __future__ import annotations

import pytest

from gpumon.sources.host import cgroup, identity
from gpumon.sources.host.identity import Behaviour, Rank

CONTAINER = "3f2a91bc04de" + "0123456789abcdef" * 3 + "0123"
IDLE = Behaviour(is_forked=True, cpu_pct=0.0, rchar_bytes=1000, like_siblings=1)


@pytest.mark.parametrize(
    ("argv", "comm", "libraries", "role"),
    [
        (("python", "train.py"), "python", ("libtorch_cuda",), "trainer"),
        (("/usr/bin/python3.11", "-u", "-X", "dev", "main.py"), "pt_main_thread", None, "trainer"),
        (("python3", "/opt/bin/vllm", "serve", "llama"), "vllm", ("libtorch_cuda", "vllm"), "server"),
        (("python", "-m", "vllm.entrypoints.openai.api_server"), "python", None, "server"),
        (("VLLM::EngineCore",), "VLLM::EngineCor", None, "server"),
        (("python", "-m", "sglang.launch_server", "--tp", "2"), "python", None, "server"),
        (("tritonserver", "--model-repository=/m"), "tritonserver", (), "server"),
        (("/usr/local/bin/ollama", "runner"), "ollama", (), "server"),
        (("/usr/bin/text-generation-server", "serve"), "text-generation", None, "server"),
        (("python", "serve_it.py"), "python", ("libtorch_cuda", "vllm"), "server"),
        (("python", "grpo_train.py"), "python", ("libtorch_cuda", "vllm"), "trainer"),
        (("python", "/home/ana/vllm-experiments/fit.py"), "python", ("libtorch_cuda",), "trainer"),
        (("python", "-m", "ipykernel_launcher", "-f", "k.json"), "python", ("libtorch_cuda",), "notebook"),
        (("/usr/lib/xorg/Xorg", ":0"), "Xorg", (), "other"),
        (("./train_gpt2cu",), "train_gpt2cu", ("libcublas",), "trainer"),
        ((), "python3.12", None, "trainer"),
        ((), "gnome-shell", None, "other"),
    ],
)
def test_role_of_a_holder(argv: tuple[str, ...], comm: str, libraries: tuple[str, ...] | None, role: str) -> None:
    """A GPU process is a trainer, a server or a notebook by what runs, not by words in its path."""
    framework = identity.framework_of(libraries, comm)

    found = identity.role_of_holder(argv, comm, libraries, framework=framework, is_ranked=False)

    assert found == role


@pytest.mark.parametrize(
    ("argv", "comm", "behaviour", "role"),
    [
        (("python", "train.py"), "pt_data_worker", IDLE, "dataloader-worker"),
        (("python", "train.py"), "python", IDLE._replace(cpu_pct=60.0), "dataloader-worker"),
        (("python", "train.py"), "python", IDLE._replace(rchar_bytes=5_000_000), "dataloader-worker"),
        (("python", "train.py"), "python", IDLE._replace(like_siblings=4), "dataloader-worker"),
        (("python", "train.py"), "python", IDLE, "other"),
        (("python", "log.py"), "python", IDLE._replace(is_forked=False, cpu_pct=60.0), "other"),
        (
            ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"),
            "python",
            IDLE._replace(is_forked=False, cpu_pct=60.0),
            "dataloader-worker",
        ),
        (
            ("python", "-c", "from multiprocessing.resource_tracker import main;main(5)"),
            "python",
            IDLE._replace(cpu_pct=60.0),
            "other",
        ),
        (("/usr/local/cuda/bin/ptxas", "-arch=sm_90"), "ptxas", IDLE, "compile"),
        (("cicc",), "cicc", IDLE, "compile"),
        (("ninja", "-v"), "ninja", IDLE, "compile"),
        (("x86_64-linux-gnu-g++", "a.cpp"), "x86_64-linux-gn", IDLE, "compile"),
        (("python", "/x/torch/_inductor/compile_worker/__main__.py"), "python", IDLE, "compile"),
        (("ffmpeg", "-i", "x"), "ffmpeg", IDLE, "other"),
    ],
)
def test_role_of_a_helper(argv: tuple[str, ...], comm: str, behaviour: Behaviour, role: str) -> None:
    """A helper is a worker by its name, or by being forked and doing a loader's work."""
    assert identity.role_of_helper(argv, comm, behaviour) == role


@pytest.mark.parametrize(
    ("maps", "framework"),
    [
        (b"/env/lib/libtorch_cuda.so\n/env/libtensorflow_cc.so.2\n", "pytorch"),
        (b"/env/lib/libtorch_cpu.so\n/env/jax_plugins/xla_cuda_plugin.so\n", "jax"),
        (b"/env/libtensorflow_framework.so.2\n", "tensorflow"),
        (b"/usr/lib/libllama.so\n", "llama.cpp"),
        (b"/usr/lib/libc.so.6\n", None),
    ],
)
def test_framework_by_maps(maps: bytes, framework: str | None) -> None:
    """The framework is what is mapped; of several the one that its users do not load by accident."""
    assert identity.framework_of(identity.libraries_in(maps), "python") == framework


def test_framework_without_maps() -> None:
    """Where maps cannot be read, a thread name that only PyTorch gives still tells; else nothing is claimed."""
    assert identity.libraries_in(None) is None
    assert identity.framework_of(None, "pt_main_thread") == "pytorch"
    assert identity.framework_of(None, "python") is None


def test_libraries_each_once() -> None:
    """Each library of the fixed list is named once, others never."""
    maps = (
        b"/a/libtorch_cuda.so\n/a/libtorch_cuda.so\n/a/libnccl.so.2\n/a/libsecret.so\n/a/nvidia/dali/libdali_core.so\n"
    )

    assert identity.libraries_in(maps) == ("libtorch_cuda", "libnccl", "libdali")


def test_environment_is_a_fixed_list() -> None:
    """Only known names are kept, cleaned; keys, tokens and torn memory are passed over."""
    data = (
        b"HF_TOKEN=hf_abcdefghijklmnop\0CUDA_VISIBLE_DEVICES=0,1\0OMP_NUM_THREADS=4\x1b[31m\0"
        b"garbage without sign\0\xff\xfe=1\0RANK=3\0"
    )

    kept = identity.parse_environment(data)

    assert kept == {"CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "4·[31m", "RANK": "3"}
    assert identity.parse_environment(None) is None
    assert identity.parse_environment(b"") == {}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        (
            {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "run7", "SLURM_JOB_ID": "9"},
            Rank(5, 1, 8, "run7"),
        ),
        (
            {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "9",
             "SLURM_PROCID": "1"},
            Rank(0, 0, 2, "9"),
        ),
        ({"LOCAL_RANK": "2", "NODE_RANK": "0", "WORLD_SIZE": "4"}, Rank(2, 2, 4, None)),
        ({"LOCAL_RANK": "2", "NODE_RANK": "1", "WORLD_SIZE": "8"}, Rank(None, 2, 8, None)),
        (
            {"SLURM_PROCID": "3", "SLURM_LOCALID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "123",
             "SLURM_ARRAY_JOB_ID": "120", "SLURM_ARRAY_TASK_ID": "3"},
            Rank(3, 3, 4, "120_3"),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
            Rank(1, 0, 2, None),
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Rank(1, None, 2, None)),
        ({"JOB_COMPLETION_INDEX": "4"}, Rank(4, None, None, None)),
        ({"RANK": "eight", "LOCAL_RANK": "-1", "WORLD_SIZE": "1e9"}, Rank()),
        ({"RANK": "9", "LOCAL_RANK": "0", "WORLD_SIZE": "8"}, Rank()),
        ({}, Rank()),
    ],
)  # fmt: skip
def test_rank_by_launcher(environment: dict[str, str], rank: Rank) -> None:
    """The first launcher that left its names says rank and job; nonsense is no rank."""
    assert identity.rank_of(environment) == rank


def test_job_of_the_control_group() -> None:
    """Without an environment (another user's process) the control group still names the job."""
    assert identity.rank_of({}, slurm_job="77", pod="pod-1") == Rank(job_id="77")
    assert identity.rank_of({}, pod="pod-1") == Rank(job_id="pod-1")


@pytest.mark.parametrize(
    ("content", "container"),
    [
        (f"0::/system.slice/docker-{CONTAINER}.scope\n", "3f2a91bc04de"),
        (f"12:memory:/docker/{CONTAINER}\n3:cpu,cpuacct:/docker/{CONTAINER}\n", "3f2a91bc04de"),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{CONTAINER}.scope\n", "3f2a91bc04de"),
        (f"0::/kubepods/besteffort/pod1/{CONTAINER}\n", "3f2a91bc04de"),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope/container\n", "3f2a91bc04de"),
        (f"0::/kubepods.slice/crio-{CONTAINER}.scope\n", "3f2a91bc04de"),
        (f"0::/docker/{'a' * 64}/docker/{CONTAINER}\n", "3f2a91bc04de"),
        ("0::/lxc.payload.box/init.scope\n", "box"),
        ("0::/user.slice/user-1000.slice/session-2.scope\n", None),
        ("0::/\n", None),
    ],
)
def test_container_by_control_group(content: str, container: str | None) -> None:
    """The innermost container's short id is found in the forms of Docker, containerd, CRI-O, Podman and LXC."""
    place = cgroup.parse_place(content.encode())

    assert place is not None
    assert cgroup.container_id(place) == container


def test_pod_and_slurm_job_by_control_group() -> None:
    """Kubernetes writes the pod's uid, Slurm the job's number into the path, in either version."""
    pod = cgroup.parse_place(
        b"0::/kubepods.slice/kubepods-burstable.slice/"
        b"kubepods-burstable-pod0f8a7c11_22de_4e3b_9a77_5d5f2a6b0c1d.slice/cri-containerd-x.scope\n"
    )
    slurm_2 = cgroup.parse_place(b"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n")
    slurm_1 = cgroup.parse_place(b"4:memory:/slurm/uid_1000/job_4712/step_batch\n")

    assert pod is not None
    assert slurm_2 is not None
    assert slurm_1 is not None
    assert cgroup.pod_uid(pod) == "0f8a7c11-22de-4e3b-9a77-5d5f2a6b0c1d"
    assert cgroup.slurm_job(slurm_2) == "4711"
    assert cgroup.slurm_job(slurm_1) == "4712"
    assert cgroup.slurm_job(pod) is None


def test_threads_by_their_beginnings() -> None:
    """Known thread names are given once each; the pin-memory thread is among them."""
    comms = ["python", "pt_data_pin", "pt_autograd_0", "pt_autograd_1", "cuda-EvtHandlr"]

    assert identity.threads_in(comms) == ("pt_data_pin", "pt_autograd")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/opt/v/nvidia/cuda_runtime/lib/libcudart.so.12", "libcudart.so.12"),
        (b"/opt/v/torch/lib/libcudart-9335f6a2.so.13", "libcudart.so.13"),
        (b"/usr/local/cuda-12.4/lib64/libcudart.so.12.4.127", "libcudart.so.12"),
        (b"/usr/local/cuda-12.4/compat/libcuda.so.550.54.15", "cuda-compat"),
    ],
)
def test_cuda_runtime_by_its_major(path: bytes, expected: str) -> None:
    """The runtime's major is read from wheels and toolkits alike; the compatibility package is known by its folder."""
    assert expected in (identity.libraries_in(b"7f-80 r-xp 0 08:01 1 " + path + b"\n") or ())
