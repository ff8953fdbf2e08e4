"""How readings of several streams become the snapshots of one machine."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.logs.assembly import EVENTS_MAX, GPUS_MAX, Assembly
from gpumon.logs.reading import Place, Reading, Use
from gpumon.model import Snapshot
from gpumon.trace import NO_PROCESSES

BUS = "00000000:3b:00.0"


def assembled(*readings: tuple[str, Reading]) -> list[Snapshot]:
    """The snapshots of readings, each with its stream."""
    assembly = Assembly()
    found = [snapshot for stream, reading in readings for snapshot in assembly.take(stream, reading)]
    return found + list(assembly.end())


def util(index: int, pct: float) -> tuple[Place, dict[str, float]]:
    return Place(index), {"utilization_pct": pct}


def series(times: Sequence[float], stream: str = "csv") -> list[tuple[str, Reading]]:
    return [(stream, Reading(time_s=time_s, gpus=[util(0, number)])) for number, time_s in enumerate(times)]


def test_a_series_keeps_its_times() -> None:
    """Each reading of a stream is a snapshot; intervals are the differences, whatever they are."""
    found = assembled(*series([100.0, 101.0, 103.5, 1000.0]))
    assert [one.time_s for one in found] == [100.0, 101.0, 103.5, 1000.0]
    assert [one.interval_s for one in found] == [None, 1.0, 2.5, 896.5]
    assert [one.gpus[0].utilization_pct for one in found] == [0, 1, 2, 3]
    assert found[0].gpus[0].uuid == "index:0"


def test_a_clock_set_back_is_an_ordinary_step() -> None:
    """Time that goes back counts as the usual interval."""
    found = assembled(*series([100.0, 101.0, 50.0, 51.0]))
    assert [one.interval_s for one in found] == [None, 1.0, 1.0, 1.0]


def test_a_format_without_times_is_given_an_interval() -> None:
    """The interval that the format implies, else one second; it is said that it was assumed."""
    assembly = Assembly()
    readings = [Reading(gpus=[util(0, value)], interval_s=5.0) for value in (1, 2, 3)]
    found = [snapshot for reading in readings for snapshot in assembly.take("dmon", reading)] + list(assembly.end())
    assert [one.interval_s for one in found] == [None, 5.0, 5.0]
    assert (assembly.assumed_s, assembly.has_times) == (5.0, False)


def test_stretches_about_one_moment_are_one_snapshot() -> None:
    """A bug report with a table and a dump: one reading, under the GPU's best name, what both say put together."""
    table = Reading(time_s=100.0, gpus=[(Place(0, BUS), {"utilization_pct": 97.0})], uses=[Use(7, Place(0), 1024)])
    dump = Reading(gpus=[(Place(bus=BUS, uuid="GPU-a"), {"power_w": 300.0, "pcie_gen_max": 4})])
    (found,) = assembled(("table", table), ("q", dump))
    (gpu,) = found.gpus
    assert (gpu.uuid, gpu.index, gpu.pci_bus_id) == ("GPU-a", 0, BUS)
    assert (gpu.utilization_pct, gpu.power_w, gpu.pcie_gen_max) == (97.0, 300.0, 4)
    assert found.processes[0].gpu_memory_bytes == {"GPU-a": 1024}
    assert found.host.processes_hidden is None


def test_a_gpu_keeps_the_name_under_which_it_appeared() -> None:
    """Its series must not break when a later stretch knows its UUID."""
    second = Reading(time_s=200.0, gpus=[(Place(0, BUS, "GPU-a"), {"utilization_pct": 2.0})])
    third = Reading(time_s=300.0, gpus=[(Place(uuid="GPU-a"), {"utilization_pct": 3.0})])
    found = assembled(*series([100.0, 110.0, 120.0]), ("csv", second), ("csv", third))
    assert [one.gpus[0].uuid for one in found] == ["index:0"] * 5
    assert {one.gpus[0].index for one in found} == {0}


def test_two_gpus_are_never_one() -> None:
    """The same index with another UUID or bus is another card."""
    first = Reading(gpus=[(Place(0, uuid="GPU-a"), {}), (Place(0, uuid="GPU-b"), {}), (Place(1, bus=BUS), {})])
    (found,) = assembled(("csv", first))
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-a", "GPU-b", f"bus:{BUS}"]


def test_what_stays_is_carried_and_what_is_measured_is_not() -> None:
    """Name and limits hold until told otherwise; use and power are of their moment."""
    first = Reading(time_s=100.0, gpus=[(Place(0), {"name": "H100", "power_limit_w": 700.0, "power_w": 300.0})])
    second = Reading(time_s=160.0, gpus=[util(0, 5.0)])
    _, found = assembled(("q", first), ("csv", second))
    (gpu,) = found.gpus
    assert (gpu.name, gpu.power_limit_w, gpu.power_w, gpu.utilization_pct) == ("H100", 700.0, None, 5.0)


def test_processes_stand_until_the_next_list() -> None:
    """Between two lists they are taken to live on; an empty complete list ends them; without any it is said."""
    (unknown,) = assembled(("csv", Reading(gpus=[util(0, 5.0)])))
    assert (unknown.processes, unknown.host.processes_hidden) == ((), NO_PROCESSES)
    listed = Reading(time_s=100.0, gpus=[util(0, 1.0)], uses=[Use(7, Place(0), 5, 40.0, {"name": "python"})])
    empty = Reading(time_s=300.0, gpus=[util(0, 1.0)], is_complete_process_list=True)
    found = assembled(("table", listed), ("csv", Reading(time_s=200.0, gpus=[util(0, 2.0)])), ("table", empty))
    assert [[one.pid for one in snapshot.processes] for snapshot in found] == [[7], [7], []]
    assert (found[0].processes[0].name, found[0].processes[0].gpu_sm_pct) == ("python", {"index:0": 40.0})


def test_events_join_the_measurement_that_follows() -> None:
    """A kernel line between two samples makes no snapshot without GPUs; its own time is kept."""
    xid = Reading(time_s=100.4, events=[(Place(bus=BUS), {"kind": "xid", "xid": 79})])
    late = Reading(time_s=150.0, events=[(None, {"kind": "oom-kill", "time_s": 149.0})])
    first = ("csv", Reading(time_s=100.0, gpus=[(Place(0, BUS), {})]))
    second = ("csv", Reading(time_s=101.0, gpus=[(Place(0), {})]))
    found = assembled(first, ("kernel", xid), second, ("kernel", late))
    assert [[event.kind for event in one.events] for one in found] == [[], ["xid", "oom-kill"]]
    assert [(event.time_s, event.gpu_uuid) for event in found[1].events] == [(100.4, f"bus:{BUS}"), (149.0, None)]


def test_events_alone_are_moments_of_their_own() -> None:
    """In a kernel log each second with lines is a snapshot, without GPUs; lines without a time are of one moment."""
    lines = [Reading(time_s=time_s, events=[(Place(bus=BUS), {"kind": "xid"})]) for time_s in (5.0, 5.2, 5.9, 60.0)]
    found = assembled(*(("kernel", line) for line in lines))
    assert [(one.time_s, len(one.events), one.gpus) for one in found] == [(5.0, 3, ()), (60.0, 1, ())]
    untimed = [Reading(events=[(None, {"kind": "cuda-oom"})]) for _ in range(3)]
    assert [len(one.events) for one in assembled(*(("torch", line) for line in untimed))] == [3]


def test_fast_readings_are_judged_together() -> None:
    """Ten readings a second become one snapshot a second: means, and every value of use as its driver windows."""
    times = [100.0 + number / 10 for number in range(25)]
    assembly = Assembly()
    found = [snapshot for stream, reading in series(times) for snapshot in assembly.take(stream, reading)]
    found += assembly.end()
    assert assembly.judged_every_s == 1.0
    assert sum(max(1, len(one.gpus[0].utilization_samples_pct)) for one in found) == 25
    assert found[0].gpus[0].utilization_samples_pct == tuple(range(len(found[0].gpus[0].utilization_samples_pct)))
    assert found[0].gpus[0].utilization_pct == sum(found[0].gpus[0].utilization_samples_pct) / len(
        found[0].gpus[0].utilization_samples_pct
    )
    assert all(0.7 <= (one.interval_s or 1.0) <= 1.0 for one in found[:-1])


def test_long_logs_are_judged_more_coarsely() -> None:
    """After an hour of seconds, steps of ten; nothing of the use is lost."""
    assembly = Assembly()
    times = [float(number) for number in range(4600)]
    found = [snapshot for stream, reading in series(times) for snapshot in assembly.take(stream, reading)]
    found += assembly.end()
    assert len(found) < 3600 + 140
    assert found[-1].time_s == 4599.0
    assert assembly.judged_every_s == 10.0
    assert sum(max(1, len(one.gpus[0].utilization_samples_pct)) for one in found) == 4600


def test_hostile_numbers_of_things_are_bounded() -> None:
    """More GPUs or events than any machine has are left out, and it is said."""
    assembly = Assembly()
    many = Reading(gpus=[(Place(number), {}) for number in range(5000)])
    storm = Reading(events=[(None, {"kind": "xid"})] * (EVENTS_MAX + 5))
    found = [*assembly.take("csv", many), *assembly.take("kernel", storm), *assembly.end()]
    assert [(len(one.gpus), len(one.events)) for one in found] == [(GPUS_MAX, EVENTS_MAX)]
    assert (assembly.has_more_gpus, assembly.lost_events) == (True, 5)


def test_a_laptop_is_told_by_its_gpus_name() -> None:
    """Logs do not say what kind of machine it is; some names do, and what a log does say stands."""
    laptop = Reading(gpus=[(Place(0), {"name": "NVIDIA GeForce RTX 4050 Laptop GPU"})])
    desktop = Reading(gpus=[(Place(0), {"name": "NVIDIA GeForce RTX 4090"})])
    assert [assembled(("q", one))[0].host.chassis for one in (laptop, desktop)] == ["laptop", None]
    virtual = Reading(gpus=[(Place(0), {"name": "Quadro T1000 with Max-Q Design"})], host={"chassis": "virtual"})
    assert assembled(("q", virtual))[0].host.chassis == "virtual"


def test_memory_is_the_hosts_by_the_gpus_name() -> None:
    names = ("NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)", "Xavier", "NVIDIA GB100", "Thorium X", "NVIDIA H100", None)
    readings = [Reading(gpus=[(Place(0), {} if name is None else {"name": name})]) for name in names]
    shared = [assembled(("csv", one))[0].gpus[0].memory_is_shared for one in readings]
    assert shared == [True, True, True, True, False, False, False, False]
