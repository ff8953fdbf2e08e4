"""Which GPU a rank works on: by what it says of itself, by what the driver says of it, by what it may see."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model import Gpu
from gpumon.sources.inbox.ring import Body

_MOST_DEVICES = 64
_FORMS = ("", "GPU-", "MIG-")


def gpu_of(body: Body, device: int, held: Sequence[str], gpus: Sequence[Gpu]) -> str | None:
    """The UUID of the GPU that a process calls ``device``.

    Args:
        body: What its probe says of it.
        device: Its own number of the GPU that holds most of its memory; -1 where it uses none.
        held: UUIDs of the GPUs on which the driver sees it.
        gpus: The GPUs of this machine.
    """
    named = _named(body, device, gpus)
    if named is not None:
        return named
    if len(held) == 1:
        return held[0]
    visible = _visible(body, device, gpus)
    return visible if visible is None or not held or visible in held else None


def _named(body: Body, device: int, gpus: Sequence[Gpu]) -> str | None:
    devices = body.devices or []
    if not 0 <= device < min(len(devices), _MOST_DEVICES):
        return None
    said = devices[device]
    if not said:
        return None
    return next((gpu.uuid for gpu in gpus for form in _FORMS if gpu.uuid == f"{form}{said}"), None)


def _visible(body: Body, device: int, gpus: Sequence[Gpu]) -> str | None:
    """By CUDA_VISIBLE_DEVICES, where CUDA counts as NVML does: in PCI order, or where all GPUs are alike."""
    environment = body.environment or {}
    # A GPU that is split is one that CUDA does not count.
    whole = [gpu for gpu in gpus if gpu.mig_parent_uuid is None]
    entries = [entry.strip() for entry in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if not entries:
        entries = [str(gpu.index) for gpu in whole]
    if not 0 <= device < len(entries):
        return None
    entry = entries[device]
    if not entry.isdecimal():
        found = [gpu.uuid for gpu in gpus if gpu.uuid.startswith(entry)]
        return found[0] if len(found) == 1 else None
    is_same_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in whole}) == 1
    return next((gpu.uuid for gpu in whole if is_same_order and str(gpu.index) == entry), None)
