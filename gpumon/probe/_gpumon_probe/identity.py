"""Who this process is: pid, rank, versions and launcher, as the header of its file says them."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import layout, ring
from .loop import Loop
from .memory import Allocator

FRAMEWORKS = (
    "torch",
    "jax",
    "tensorflow",
    "keras",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "flax",
    "nemo",
)
RANKS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("JOB_COMPLETION_INDEX", "", ""),
)
"""Rank, local rank and world size as the launchers name them; torchrun within one Slurm task comes first."""


class Identity:
    """Makes the body of the header; what cannot change is read once."""

    def __init__(self) -> None:
        self._fixed: dict[str, Any] = {
            "pid": os.getpid(),
            "start": ring.start_ticks(),
            "nspid": _nspid(),
            "boot": _line("/proc/sys/kernel/random/boot_id"),
            "python": ".".join(map(str, sys.version_info[:3])),
        }

    def body(self, loop: Loop, allocator: Allocator) -> bytes:
        """The body as it is now, short enough for the header."""
        rank, local_rank, world_size = ranks()
        known = {
            **self._fixed,
            "argv0": os.path.basename(sys.argv[0])[: layout.VALUE_MOST] if getattr(sys, "argv", None) else None,
            "run": os.environ.get("GPUMON_RUN", "")[: layout.VALUE_MOST] or None,
            "framework": loop.framework or loop.teller.framework or _computing(),
            "source": loop.teller.unit or None,
            "rank": rank,
            "local_rank": local_rank,
            "world_size": world_size,
            "allocator": allocator.name,
            "devices": _devices(allocator),
            "modules": _versions(),
            "environment": _environment(),
        }
        last = getattr(sys, "last_type", None)
        if last is not None:
            known["error"] = str(last.__name__)[: layout.VALUE_MOST]
        while True:
            body = json.dumps(known, separators=(",", ":")).encode("ascii")
            if len(body) <= layout.BODY_MOST:
                return body
            known.pop(next(key for key in ("environment", "modules", "devices", "argv0", "run") if key in known))


def ranks() -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size; the running process group knows better than the environment."""
    rank = local_rank = world_size = None
    for names in RANKS:
        if os.environ.get(names[0]):
            rank, local_rank, world_size = (_number(os.environ.get(name)) for name in names)
            break
    if local_rank is None:
        local_rank = _number(os.environ.get("LOCAL_RANK"))
    group = sys.modules.get("torch.distributed")
    try:
        if group is not None and group.is_available() and group.is_initialized():
            rank, world_size = int(group.get_rank()), int(group.get_world_size())
    except Exception:
        pass
    return rank, local_rank, world_size


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 8 else None


def _computing() -> str | None:
    for name, framework in (("torch", "pytorch"), ("jax", "jax"), ("tensorflow", "tensorflow")):
        if name in sys.modules:
            return framework
    return None


def _versions() -> dict[str, str]:
    found = {}
    for name in FRAMEWORKS:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)[:40]
    return found


def _environment() -> dict[str, str]:
    found = {}
    for name in layout.ENVIRONMENT:
        value = os.environ.get(name)
        if value is not None:
            found[name] = value[: layout.VALUE_MOST]
    return found


def _devices(allocator: Allocator) -> list[str | None]:
    uuids = allocator.uuids
    return [uuids.get(device) or None for device in range(max(uuids) + 1)] if uuids else []


def _nspid() -> list[int]:
    try:
        with open("/proc/self/status", "rb") as file:
            for line in file:
                if line.startswith(b"NSpid:"):
                    return [int(number) for number in line.split()[1:9]]
    except (OSError, ValueError):
        pass
    return []


def _line(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return None
