"""Knows CUDA's errors by their words in every library's wording, and how a framework says that it has no CUDA."""

from __future__ import annotations

import re
from typing import NamedTuple

INSUFFICIENT_DRIVER, NO_DEVICE, NO_KERNEL, BAD_PTX = 35, 100, 209, 222
NOT_READY, DRIVER_MISMATCH, COMPAT, UNKNOWN = 802, 803, 804, 999
NO_DRIVER = 34
"""CUDA's own number for a stub library; here: no driver at all."""

_WORDS: tuple[tuple[int, str], ...] = (
    (35, "CUDA driver version is insufficient for CUDA runtime version"),
    (35, "The NVIDIA driver on your system is too old"),
    (34, "Found no NVIDIA driver on your system"),
    (46, "all CUDA-capable devices are busy or unavailable"),
    (100, "no CUDA-capable device is detected"),
    (100, "No CUDA GPUs are available"),
    (101, "invalid device ordinal"),
    (209, "no kernel image is available for execution on the device"),
    (209, "is not compatible with the current PyTorch installation"),
    (214, "uncorrectable ECC error encountered"),
    (222, "the provided PTX was compiled with an unsupported toolchain"),
    (700, "an illegal memory access was encountered"),
    (702, "the launch timed out and was terminated"),
    (710, "device-side assert triggered"),
    (715, "an illegal instruction was encountered"),
    (716, "misaligned address"),
    (719, "unspecified launch failure"),
    (802, "system not yet initialized"),
    (803, "system has unsupported display driver / cuda driver combination"),
    (804, "forward compatibility was attempted on non supported HW"),
    (999, "CUDA unknown error"),
    (999, "CUDA error: unknown error"),
)
_NAMES = {
    "CUDA_ERROR_NO_DEVICE": 100,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": 222,
    "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_TIMEOUT": 702,
    "CUDA_ERROR_ASSERT": 710,
    "CUDA_ERROR_MISALIGNED_ADDRESS": 716,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_SYSTEM_NOT_READY": 802,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": 804,
    "CUBLAS_STATUS_EXECUTION_FAILED": 719,
    "CUDNN_STATUS_EXECUTION_FAILED": 719,
}
PHRASES = (
    *(words for _, words in _WORDS),
    "CUDA_ERROR_",
    "_STATUS_",
    "not compiled with CUDA",
    "jaxlib is not installed",
    "falling back to CPU",
    "GPU will not be used",
    "registering GPU devices",
    "CUDA is not available",
    "is_available() is False",
    "GPU available: ",
    " CPU",
    " False",
)
"""A line without any of them reports nothing of this kind."""
_LOOSE = frozenset({"invalid device ordinal", "misaligned address", "system not yet initialized"})
"""Words that other programs use as well: they count after CUDA's name or its number only."""
_NAMED = re.compile(r"\b(?:CUDA_ERROR|CUBLAS_STATUS|CUDNN_STATUS)_[A-Z_]{3,40}\b")
_INTRODUCED = re.compile(r"(?:CUDA|Cuda|cuda|CUDART|HIP)[\w ]{0,24}[:'(]|[Ee]rror \(?\d{1,3}\)?:|\(\d{3}\)", re.ASCII)
_FOUND_VERSION = re.compile(r"found version (\d{4,5})")
_CAPABILITY = re.compile(r"CUDA capability sm_(\d{2,3})")
_SUPPORTED = re.compile(r"supports CUDA capabilities ((?:(?:sm|compute)_\d{2,3}a?[ ,.]{0,2}){1,40})")
_ARCH = re.compile(r"_(\d{2,3})")

_NO_CUDA: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("wheel", re.compile(r"Torch not compiled with CUDA enabled")),
    ("wheel", re.compile(r"An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed")),
    ("device", re.compile(r"No GPU/TPU found, falling back to CPU")),
    ("device", re.compile(r"Could not find cuda drivers on your machine, GPU will not be used")),
    ("device", re.compile(r"Cannot dlopen some GPU libraries\..{0,400}?Skipping registering GPU devices")),
    ("device", re.compile(r"[Uu]ser provided device_type of 'cuda', but CUDA is not available")),
    ("device", re.compile(r"object on a CUDA device but torch\.cuda\.is_available\(\) is False")),
    ("device", re.compile(r"GPU available: False, used: False")),
    ("unused", re.compile(r"GPU available: True(?: \(cuda\))?, used: False")),
)
_BANNER = re.compile(r"\btorch[- ](\d\S{2,40}) CPU\b")
_BANNER_MAX = 120
_LOOK = re.compile(r"^(\d{1,2}\.\d{1,2}\.\d{1,2}\S{0,40}) (None|\d{1,2}\.\d{1,2}) (True|False)\s{0,4}")


class Fault(NamedTuple):
    """An error that CUDA reported, or that a framework has no CUDA."""

    kind: str
    """Of the event: cuda-error, no-cuda."""
    values: dict[str, float]
    begins_at: int
    length: int
    is_open: bool = False
    """Its next line may tell more."""


def error_of(text: str) -> Fault | None:
    """CUDA's number for what a text reports; None where it reports no error of CUDA."""
    if "CUDA" not in text and "Cuda" not in text and "cuda" not in text and "rror" not in text and "CUB" not in text:
        return None
    for code, words in _WORDS:
        start = text.find(words)
        if start < 0 or (words in _LOOSE and not _INTRODUCED.search(text[max(0, start - 60) : start])):
            continue
        found = {"code": float(code)}
        return Fault("cuda-error", found | _details(text), start, len(words), code == NO_KERNEL)
    for named in _NAMED.finditer(text):
        code = _NAMES.get(named.group(), 0)
        if code:
            return Fault("cuda-error", {"code": float(code)}, named.start(), len(named.group()))
    return None


def no_cuda_of(text: str) -> Fault | None:
    """A framework without CUDA, or one that computes on the CPU although it has it."""
    for name, pattern in _NO_CUDA:
        match = pattern.search(text)
        if match is not None:
            return Fault("no-cuda", {_FLAGS[name]: 1.0}, match.start(), len(match.group()))
    match = _BANNER.search(text) if " CPU" in text else None
    if match is not None:
        start = text.find("Ultralytics") if "Ultralytics" in text else text.find("YOLO")
        if 0 <= start < match.start() < start + _BANNER_MAX:
            flag = _FLAGS["wheel"] if match[1].endswith("+cpu") else _FLAGS["device"]
            return Fault("no-cuda", {flag: 1.0}, start, match.end() - start)
    match = _LOOK.fullmatch(text.strip())
    if match is not None and match[3] == "False":
        flag = _FLAGS["wheel"] if match[2] == "None" else _FLAGS["device"]
        return Fault("no-cuda", {flag: 1.0}, 0, len(match.group()))
    return None


_FLAGS = {"wheel": "is_cpu_build", "device": "is_on_cpu", "unused": "is_gpu_unused"}


def _details(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    version = _FOUND_VERSION.search(text)
    if version is not None:
        number = int(version[1])
        found["driver_cuda_version"] = float(f"{number // 1000}.{number % 1000 // 10}")
    capability = _CAPABILITY.search(text)
    if capability is not None:
        found["gpu_arch"] = float(capability[1])
    supported = _SUPPORTED.search(text)
    if supported is not None:
        archs = [int(arch) for arch in _ARCH.findall(supported[1])]
        if archs:
            found |= {"oldest_arch": float(min(archs)), "newest_arch": float(max(archs))}
    return found
