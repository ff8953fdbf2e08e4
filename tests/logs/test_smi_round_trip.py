"""Snapshots written as ``nvidia-smi -q`` or ``-q -x`` and read back are the same, as far as that format tells."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from gpumon.logs.assembly import Assembly
from gpumon.logs.nvidia_smi_q import NvidiaSmiQ
from gpumon.logs.nvidia_smi_xml import NvidiaSmiXml
from gpumon.logs.reading import Reader
from gpumon.model import Snapshot
from tests import builders
from tests.logs.feeding import feed
from tests.logs.writers import nvidia_smi_q, nvidia_smi_xml

MIB = 1024**2
Write = Callable[[Iterable[Snapshot]], str]
FORMATS = ((NvidiaSmiQ, nvidia_smi_q.write), (NvidiaSmiXml, nvidia_smi_xml.write))

both = pytest.mark.parametrize(("kind", "write"), FORMATS)


def back(kind: type[Reader], text: str) -> list[Snapshot]:
    fed, assembly = feed(kind, text), Assembly()
    assert fed.left_out == []
    found = [snapshot for reading in fed.readings for snapshot in assembly.take(kind.kind, reading)]
    return [*found, *assembly.end()]


FACTS = {
    "uuid": "GPU-33333333-aaaa-bbbb-cccc-000000000001",
    "pci_bus_id": "00000000:3b:00.0",
    "memory_reserved_bytes": 500 * MIB,
    "memory_utilization_pct": 40.0,
    "encoder_pct": 12.0,
    "decoder_pct": 7.0,
    "temperature_slowdown_c": 90.0,
    "temperature_shutdown_c": 95.0,
    "memory_temperature_c": 70.0,
    "memory_temperature_max_c": 95.0,
    "fan_pct": 45.0,
    "memory_clock_mhz": 2619.0,
    "memory_clock_max_mhz": 2619.0,
    "pcie_gen": 4,
    "pcie_gen_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 3,
    "pcie_tx_bytes_per_s": 1_024_000.0,
    "pcie_rx_bytes_per_s": 2_048_000.0,
    "ecc_enabled": True,
    "ecc_enabled_pending": True,
    "ecc_corrected": 4,
    "ecc_uncorrected": 0,
    "ecc_sram_uncorrected": 2,
    "remapped_rows_corrected": 0,
    "remapped_rows_uncorrected": 1,
    "remap_pending": True,
    "remap_failed": False,
    "recovery_action": 1,
    "mig_enabled": False,
    "compute_mode": "default",
    "persistence": True,
    "fabric_state": "completed",
    "age_s": None,
}


def run(*gpus: dict[str, object]) -> list[Snapshot]:
    """A second apart."""
    return [
        builders.snapshot(
            builders.NOON + number,
            [builders.gpu(0, **{**FACTS, **gpu})],
            [builders.process(7, (), gpu_memory_bytes={FACTS["uuid"]: 70 * 1024 * MIB})],
            interval_s=1.0 if number else None,
        )
        for number, gpu in enumerate(gpus)
    ]


@both
def test_every_fact_comes_back(kind: type[Reader], write: Write) -> None:
    given = run({}, {"temperature_c": 63.0, "clocks_event_reasons": ()})
    first, second = back(kind, write(given))
    assert first.gpus == (msgspec.structs.replace(given[0].gpus[0], throttled_pct=None),)
    assert second.gpus == given[1].gpus
    assert (second.time_s, second.interval_s) == (given[1].time_s, 1.0)
    assert (second.host.driver_version, second.host.cuda_version) == (
        given[1].host.driver_version,
        given[1].host.cuda_version,
    )


@both
def test_processes_come_back(kind: type[Reader], write: Write) -> None:
    (snapshot,) = back(kind, write(run({})))
    (process,) = snapshot.processes
    assert (process.pid, process.command, process.gpu_memory_bytes) == (
        7,
        "python train.py",
        {FACTS["uuid"]: 70 * 1024 * MIB},
    )


@both
def test_unknown_values_stay_unknown(kind: type[Reader], write: Write) -> None:
    bare = {name: None for name in FACTS if name not in {"uuid", "pci_bus_id"}}
    bare |= {"utilization_pct": None, "clocks_event_reasons": None, "throttled_pct": None, "power_w": None}
    given = run(bare)
    assert back(kind, write(given))[0].gpus == given[0].gpus


@both
def test_instances_come_back_under_their_gpu(kind: type[Reader], write: Write) -> None:
    parent = builders.gpu(0, **{**FACTS, "mig_enabled": True, "utilization_pct": None})
    instance = builders.gpu(1, uuid="MIG-1", mig_parent_uuid=parent.uuid, sm_count=42)
    (snapshot,) = back(kind, write([builders.snapshot(builders.NOON, [parent, instance])]))
    mine = snapshot.gpus[-1]
    assert (mine.mig_parent_uuid, mine.sm_count, mine.index) == (parent.uuid, 42, 1)
    assert mine.memory_used_bytes == instance.memory_used_bytes


@both
def test_lost_gpu_comes_back_lost(kind: type[Reader], write: Write) -> None:
    first, second = back(kind, write(run({}, {"is_lost": True})))
    assert not first.gpus[0].is_lost
    assert second.gpus[0].is_lost
    assert [event.kind for event in second.events] == ["gpu-lost"]
