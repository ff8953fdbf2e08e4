"""Knows what CUDA's errors mean for somebody whose program has stopped with one: whose fault it is, and what to do."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model import Confidence, Event, Host
from gpumon.rules.cuda_versions import build_for, cuda_of_driver, driver_for, version_of, written
from gpumon.rules.reports import number

LOOK = 'python -c "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.is_available())"'


class Fault(NamedTuple):
    """An error in plain words."""

    cause: str
    summary: str
    text: str
    fixes: tuple[str, ...]
    confidence: Confidence = "certain"
    short: str | None = None
    """The first of the fixes in few words, where it is long."""

    def fix(self) -> str:
        """For the headline."""
        return (self.short or self.fixes[0].partition("   #")[0])[:70]


_BLOCKING = "CUDA_LAUNCH_BLOCKING=1 python …   # the traceback then shows the line at fault"
_PROGRAM: dict[int, Fault] = {
    101: Fault(
        "invalid-device",
        "a GPU was asked for that is not there",
        "its number is above those the program sees",
        ("echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L   # cuda:N counts from 0 within what is visible", LOOK),
    ),
    214: Fault(
        "ecc-error",
        "the GPU met a memory error (ECC)",
        "uncorrectable: the hardware, not the program",
        (
            "nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg | grep -i xid   # which GPU?",
            "end what runs on it, then: sudo nvidia-smi --gpu-reset -i N; return the card if it comes again",
        ),
    ),
    700: Fault(
        "illegal-address",
        "a kernel read or wrote outside its memory",
        "a bug in the program or in an extension; the GPU is healthy",
        (
            _BLOCKING,
            "compute-sanitizer python …   # names kernel and address",
            "only with one extension (flash-attn, a custom kernel)? rebuild it for this PyTorch and GPU",
            "dmesg | grep -i xid   # 13 or 31 belong to it; on one GPU only, with different programs: the card",
        ),
        "likely",
    ),
    702: Fault(
        "launch-timeout",
        "a kernel ran too long beside a display",
        "the display's watchdog ends kernels after some seconds",
        ("compute on a GPU without a display, or make the kernel's work smaller",),
    ),
    710: Fault(
        "device-assert",
        "a kernel's check failed (device-side assert)",
        "mostly an index out of range: a label, a token or a position",
        (
            _BLOCKING,
            "run one batch on the CPU: it names the index",
            "labels must be in 0 … classes − 1 (or ignore_index), token ids below the embedding's size",
            "the process is lost after it: restart, do not catch it",
        ),
        "likely",
    ),
    715: Fault(
        "illegal-instruction", "a kernel met an illegal instruction", "a broken build, or the GPU", (_BLOCKING,)
    ),
    716: Fault("misaligned-address", "a kernel read a misaligned address", "a bug in a kernel", (_BLOCKING,), "likely"),
    719: Fault(
        "launch-failure",
        "a kernel failed without a reason",
        "an error in a kernel, memory at its end, or the GPU",
        (_BLOCKING, "dmesg | grep -i xid   # what the driver says of it", "compute-sanitizer python …"),
        "possible",
    ),
}


def program_fault(event: Event) -> Fault | None:
    """What the error says of a program that otherwise can use the GPU; None for what keeps it from starting."""
    return _PROGRAM.get(int(number(event, "code") or 0))


def start_fault(event: Event, host: Host) -> Fault | None:
    """Why a program cannot use the GPU at all: driver, library, build or visibility."""
    code = int(number(event, "code") or 0)
    if code == 35:
        return _too_old(event, host)
    if code in (209, 222):
        return _no_code(event, host) if code == 209 else _PTX
    if code == 802:
        return _fabric(host)
    return _START.get(code)


_PTX = Fault(
    "ptx-too-new",
    "the driver cannot compile this program's code",
    "it was made by a newer CUDA than the driver's; mostly Triton or an extension",
    ("update the driver to the CUDA of the build, or install a build for the driver's CUDA", LOOK),
)
_START: dict[int, Fault] = {
    34: Fault(
        "no-driver",
        "no NVIDIA driver for this program",
        "not loaded, or not passed into the container",
        (
            "nvidia-smi   # on the machine itself; it fails: sudo modprobe nvidia, or install the driver",
            "in a container: docker run --gpus all …, with nvidia-container-toolkit on the machine",
        ),
    ),
    100: Fault(
        "no-device",
        "CUDA sees no GPU",
        "hidden by CUDA_VISIBLE_DEVICES, or not passed into the container",
        (
            'echo "$CUDA_VISIBLE_DEVICES"   # empty, -1 or an unknown name hides them: unset CUDA_VISIBLE_DEVICES',
            "in a container: docker run --gpus all …; under Slurm: --gres=gpu:1; Kubernetes: nvidia.com/gpu: 1",
            "nvidia-smi -L   # is it there at all?",
        ),
        "likely",
    ),
    803: Fault(
        "two-drivers",
        "libcuda and the kernel driver do not match",
        "a stale or copied libcuda.so is found first",
        (
            "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH   # take out compat folders and copies of libcuda.so",
            "after an update of the driver: reboot, and start containers anew",
            "cat /proc/driver/nvidia/version   # the version that libcuda must have",
        ),
    ),
    804: Fault(
        "compat-library",
        "the image's CUDA is too new for this driver",
        "its compat library works on data-centre GPUs only, not on this one",
        (
            "update the driver on the machine, not in the image: then the image's own libcuda is not needed",
            "or take an image for the CUDA that nvidia-smi shows on the machine, outside of the container",
            "or drop the compat library: LD_LIBRARY_PATH without /usr/local/cuda/compat",
        ),
    ),
    999: Fault(
        "cuda-unknown",
        "CUDA cannot start (unknown error)",
        "mostly nvidia-uvm is not loaded, or stuck since a suspend",
        (
            "sudo modprobe nvidia-uvm; ls -l /dev/nvidia-uvm   # missing: nvidia-modprobe -u -c=0",
            "after a suspend: sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm; else reboot",
            "in a container: is /dev/nvidia-uvm passed in? Do not change CUDA_VISIBLE_DEVICES after the start",
        ),
        "possible",
    ),
}


def _fabric(host: Host) -> Fault:
    branch = (host.driver_version or "").partition(".")[0]
    package = f"nvidia-fabricmanager-{branch}" if branch.isdecimal() else "nvidia-fabricmanager-NNN (NNN: the driver's)"
    return Fault(
        "fabric-manager",
        "CUDA waits for the fabric manager (802)",
        "it is missing, stopped, or of another version than the driver",
        (
            "sudo systemctl enable --now nvidia-fabricmanager; systemctl status nvidia-fabricmanager",
            f"not installed: sudo apt-get install {package}   # exactly the driver's version",
            "nvidia-smi -q | grep -A2 Fabric   # State: Completed when it is done",
        ),
        "likely",
    )


def _too_old(event: Event, host: Host) -> Fault:
    found = number(event, "driver_cuda_version")
    cuda = None if found is None else version_of(f"{found:.1f}")
    cuda = cuda or cuda_of_driver(host.driver_version)
    is_ancient = cuda is not None and cuda < (11,)
    build = None if cuda is None or is_ancient else build_for(cuda)
    major = 13 if cuda is not None and cuda >= (12,) else 12
    told = "its CUDA is older than the program's" if cuda is None else f"it runs programs up to CUDA {written(cuda)}"
    ways = [f"update the driver: {driver_for((major,))} or newer runs CUDA {major}"]
    if build is not None:
        ways.append(f"or a build for the driver as it is: {build.command()}")
    elif is_ancient:
        ways.append("no current build runs on it: PyTorch 1.x had builds for CUDA 9 and 10")
    ways.append("until then it computes on the CPU, mostly without a word")
    return Fault("driver-too-old", "the driver is too old for this program", told, tuple(ways))


def _no_code(event: Event, host: Host) -> Fault:
    arch, newest, oldest = (number(event, name) for name in ("gpu_arch", "newest_arch", "oldest_arch"))
    cuda = version_of(host.cuda_version) or cuda_of_driver(host.driver_version)
    build = build_for(cuda, None if arch is None else int(arch))
    text = "it was built for other GPUs"
    if arch is not None:
        text = f"the GPU is sm_{arch:.0f}"
        if newest is not None and arch > newest:
            text += f", the build ends at sm_{newest:.0f}: too old"
        elif oldest is not None and arch < oldest:
            text += f", the build begins at sm_{oldest:.0f}: too new"
    return Fault(
        "no-kernel-image",
        "this build has no code for the GPU",
        text,
        (
            *((build.with_driver(),) if build is not None else ()),
            *(("no current build has it: PyTorch 2.7 with cu126 and older do",) if build is None else ()),
            "an extension may be at fault: rebuild it with TORCH_CUDA_ARCH_LIST for this GPU",
            'python -c "import torch; print(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())"',
        ),
        short=None if build is None else f"install PyTorch's build {build.name}",
    )
