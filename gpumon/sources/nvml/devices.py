"""Knows which GPUs and MIG instances there are, and which of them were asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from gpumon.errors import UsageError
from gpumon.sources.nvml.calls import Asker, DriverGone, GpuLost
from gpumon.text import clean


class Device(msgspec.Struct, frozen=True):
    """A GPU or MIG instance as it was found: what stays true while it is lost."""

    handle: object
    """None for a GPU that was already lost when it was looked for."""
    uuid: str
    index: int
    name: str | None = None
    pci_bus_id: str | None = None
    mig_parent_uuid: str | None = None
    mig_profile: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def facts(self) -> dict[str, Any]:
        """Its identity, as fields of the record."""
        return {
            "uuid": self.uuid,
            "index": self.index,
            "name": self.name,
            "pci_bus_id": self.pci_bus_id,
            "mig_parent_uuid": self.mig_parent_uuid,
            "mig_profile": self.mig_profile,
        }


def find_gpus(proc: Path) -> list[Device]:
    """Every GPU that we may see, in NVML's order; lost ones too. Raises DriverGone."""
    gpus = [gpu for gpu in map(find_gpu, range(count_gpus())) if gpu is not None]
    return _with_bus_ids(gpus, proc)


def count_gpus() -> int:
    """How many GPUs the driver has. Raises DriverGone."""
    try:
        count: int = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        raise DriverGone(error.value) from None
    return count


def find_gpu(index: int) -> Device | None:
    """The GPU at NVML's index; None where its use is not permitted (another container's)."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        return Device(None, f"index:{index}", index)
    return _identify(handle, index)


def find_again(device: Device) -> Device | None:
    """A GPU that was lost, with a new handle; None while the driver does not give one."""
    if device.handle is None and device.name is None:
        found = find_gpu(device.index)
        return found if found is not None and found.handle is not None else None
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(device.uuid)
    except pynvml.NVMLError:
        return None
    return Device(handle, device.uuid, device.index, device.name, device.pci_bus_id)


def find_instances(parent: Device) -> list[Device]:
    """The MIG instances of a GPU, by their number there. Raises GpuLost and DriverGone."""
    asker = Asker(parent.handle)
    mode = asker("mig mode", pynvml.nvmlDeviceGetMigMode)
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return []
    instances = []
    for number in range(asker("mig count", pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        handle = asker(f"mig {number}", pynvml.nvmlDeviceGetMigDeviceHandleByIndex, number)
        instance = None if handle is None else _identify_instance(parent, handle, number)
        if instance is not None:
            instances.append(instance)
    return instances


def _identify(handle: object, index: int) -> Device:
    asker = Asker(handle)
    try:
        uuid = asker.text("uuid", pynvml.nvmlDeviceGetUUID)
        name = asker.text("name", pynvml.nvmlDeviceGetName)
        pci = asker("pci", pynvml.nvmlDeviceGetPciInfo)
    except GpuLost:
        return Device(None, f"index:{index}", index)
    if uuid is None and pci is None:  # unknown errors from everything
        return Device(None, f"index:{index}", index)
    bus_id = None if pci is None else clean(pci.busId)
    return Device(handle, uuid or f"GPU-{bus_id}", index, name, bus_id)


def _identify_instance(parent: Device, handle: object, number: int) -> Device | None:
    asker = Asker(handle)
    uuid = asker.text("uuid", pynvml.nvmlDeviceGetUUID)
    if uuid is None:
        return None
    name = asker.text("name", pynvml.nvmlDeviceGetName)
    _, is_named, profile = (name or "").rpartition(" MIG ")
    if not is_named:
        profile = _profile(asker)
        name = f"{parent.name or 'GPU'} MIG {profile}".rstrip()
    return Device(
        handle,
        uuid,
        number,
        name,
        parent.pci_bus_id,
        mig_parent_uuid=parent.uuid,
        mig_profile=profile or None,
        gpu_instance=asker("gpu instance", pynvml.nvmlDeviceGetGpuInstanceId),
        compute_instance=asker("compute instance", pynvml.nvmlDeviceGetComputeInstanceId),
    )


def _profile(asker: Asker) -> str:
    """``3g.20gb`` from the instance's size, as NVIDIA names it."""
    attributes = asker("attributes", pynvml.nvmlDeviceGetAttributes)
    if attributes is None:
        return ""
    slices, compute = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    part = "" if compute == slices else f"{compute}c."
    return f"{part}{slices}g.{(attributes.memorySizeMB + 1023) // 1024}gb"


def _with_bus_ids(gpus: list[Device], proc: Path) -> list[Device]:
    """Give lost GPUs their bus addresses, where the kernel module lists exactly those that NVML does not."""
    lost = [gpu for gpu in gpus if gpu.handle is None]
    if not lost:
        return gpus
    try:
        listed = sorted(entry.name for entry in (proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return gpus
    known = {_canonical_bus_id(gpu.pci_bus_id) for gpu in gpus if gpu.pci_bus_id}
    missing = [bus_id for bus_id in listed if _canonical_bus_id(bus_id) not in known]
    if len(missing) != len(lost):
        return gpus
    bus_ids = dict(zip((gpu.index for gpu in lost), missing, strict=True))
    return [
        gpu if gpu.handle is not None else Device(None, gpu.uuid, gpu.index, pci_bus_id=clean(bus_ids[gpu.index]))
        for gpu in gpus
    ]


def _canonical_bus_id(bus_id: str) -> tuple[int, str] | str:
    """NVML writes 8 digits of PCI domain, the kernel 4; on some clouds all 8 matter."""
    domain, _, rest = bus_id.lower().partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return bus_id


class Selection:
    """Which GPUs and instances to show. A GPU brings its instances; an instance alone comes without its GPU."""

    def __init__(self, wanted: Sequence[str] | None) -> None:
        """``wanted``: indices, UUIDs, MIG UUIDs or unambiguous beginnings of them; None for all."""
        self._wanted = None if wanted is None else [name.strip() for name in wanted if name.strip()]
        self._uuids: set[str] | None = None
        self._parents: set[str | None] = set()

    def resolve(self, gpus: Sequence[Device], instances_of: Callable[[Device], list[Device]]) -> None:
        """Look the wanted names up, once. Raises UsageError for one that is not here."""
        if self._wanted is None or self._uuids is not None:
            return
        names: dict[str, str] = {}
        parents: dict[str, str | None] = {}
        for gpu in gpus:
            names[str(gpu.index)] = names[gpu.uuid] = gpu.uuid
            try:
                instances = instances_of(gpu) if gpu.handle is not None else []
            except GpuLost:
                continue
            for instance in instances:
                names[instance.uuid] = instance.uuid
                parents[instance.uuid] = gpu.uuid
                # The form of drivers before 470, still found in scripts and CUDA_VISIBLE_DEVICES.
                names[f"MIG-{gpu.uuid}/{instance.gpu_instance}/{instance.compute_instance}"] = instance.uuid
        self._uuids = {_match(name, names) for name in self._wanted}
        self._parents = {parents.get(uuid) for uuid in self._uuids}

    def concerns(self, gpu: Device) -> bool:
        """The GPU or one of its instances is shown."""
        return self.has_gpu(gpu) or gpu.uuid in self._parents

    def has_gpu(self, gpu: Device) -> bool:
        """The GPU itself is shown."""
        return self._uuids is None or gpu.uuid in self._uuids

    def has_instance(self, instance: Device) -> bool:
        """The instance is shown."""
        return self._uuids is None or instance.uuid in self._uuids or instance.mig_parent_uuid in self._uuids


def _match(name: str, names: dict[str, str]) -> str:
    if name in names:
        return names[name]
    if not name.isdigit():
        begun = {uuid for known, uuid in names.items() if known.lower().startswith(name.lower())}
        if len(begun) == 1:
            return begun.pop()
        if begun:
            raise UsageError(f"--gpus {clean(name)}: begins the names of {len(begun)} GPUs here; write more of it")
    import difflib

    close = difflib.get_close_matches(name, list(names), n=1)
    indices = [known for known in names if known.isdigit()]
    known = f"GPUs here are {indices[0]} to {indices[-1]}" if len(indices) > 1 else "the only GPU here is 0"
    hint = f"did you mean {close[0]}?" if close and not name.isdigit() else f"{known}."
    raise UsageError(f"--gpus {clean(name)}: no such GPU; {hint}")
