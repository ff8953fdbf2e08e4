"""The demo's physics: what it shows must follow from one model, be the same for the same seed, and stay plausible."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice, pairwise
from math import isfinite
from random import Random
from statistics import fmean

import msgspec
import pytest

from gpumon.errors import UsageError
from gpumon.model import Gpu, Host, Process, Snapshot
from gpumon.sources.demo import DEFAULT, SCENARIOS, DemoSource, simulate
from gpumon.sources.simulator.chips import H100, RTX_4090
from gpumon.sources.simulator.heat import Heat, clock_for, relative_power
from gpumon.sources.simulator.loader import Disk, Loader
from gpumon.sources.simulator.scenarios import Story
from gpumon.sources.simulator.troubles import STARVED_PREP_S

GIB = 1 << 30
CONTRACT = "healthy input-bound throttled leaking fragmented hang straggler lost-gpu".split()
BOUNDS = {
    "_pct": (0.0, 100.0),
    "_c": (15.0, 110.0),
    "_mhz": (100.0, 11_000.0),
    "_w": (5.0, 720.0),
    "_bytes": (0.0, 2e12),
    "_bytes_per_s": (0.0, 7e9),
    "nvlink_rx_bytes_per_s": (0.0, 4.5e11),
    "nvlink_tx_bytes_per_s": (0.0, 4.5e11),
    "_s": (0.0, 2e9),
    "_j": (0.0, 1e9),
}
"""What a number with this suffix may be, on any of the simulated machines."""
OF_A_PROCESS = {"cpu_pct": (0.0, 200.0)}


@pytest.fixture(scope="module")
def backlogs() -> dict[str, list[Snapshot]]:
    """The ten minutes that a viewer sees first, of every scenario."""
    return {name: list(simulate(name, 600)) for name in SCENARIOS}


def _between(trace: list[Snapshot], begin_s: int, end_s: int) -> list[Snapshot]:
    return [snapshot for snapshot in trace if begin_s <= snapshot.time_s - trace[0].time_s < end_s]


def _mean(trace: list[Snapshot], gpu: int, field: str) -> float:
    return fmean(getattr(snapshot.gpus[gpu], field) for snapshot in trace)


def _windows(trace: list[Snapshot], gpu: int = 0) -> list[float]:
    return [window for snapshot in trace for window in snapshot.gpus[gpu].utilization_samples_pct]


def _workers(snapshot: Snapshot) -> list[Process]:
    return [process for process in snapshot.processes if process.role == "dataloader-worker"]


def _numbers(record: Gpu | Host | Process, own: dict[str, tuple[float, float]] | None = None) -> list[str]:
    """Names of the fields whose number is out of its bounds."""
    wrong = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        suffix = max((end for end in BOUNDS if name.endswith(end)), key=len, default=None)
        low, high = (own or {}).get(name) or BOUNDS.get(suffix or "", (0, float("inf")))
        if not isfinite(value) or not low <= value <= high:
            wrong.append(f"{name}={value}")
    return wrong


# --- what every scenario promises -------------------------------------------------------------------


def test_names_of_the_contract_are_there() -> None:
    """Every scenario that the command line promises exists, describes itself in a line, and one is the default."""
    assert set(CONTRACT) <= set(SCENARIOS)
    assert DEFAULT in SCENARIOS
    assert all(name == one.name and 20 < len(one.description) < 90 for name, one in SCENARIOS.items())


def test_unknown_scenario_names_the_nearest() -> None:
    """A misspelt scenario is a usage error with the right name in it."""
    with pytest.raises(UsageError, match="did you mean throttled"):
        DemoSource("throtled")
    with pytest.raises(UsageError, match="healthy, input-bound"):
        next(simulate("zzz", 1))


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_seed_same_trace(name: str) -> None:
    """A trace is a function of its arguments; another seed gives another one of the same machine."""
    first, again, other = (list(simulate(name, 30, seed=seed)) for seed in (3, 3, 4))
    assert first == again
    assert other != first
    assert [gpu.uuid for gpu in other[0].gpus] == [gpu.uuid for gpu in first[0].gpus]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_number_is_plausible(name: str, backlogs: dict[str, list[Snapshot]]) -> None:
    """No NaN, nothing below zero, shares within 100, temperatures and powers of real cards; survives JSON."""
    for snapshot in backlogs[name][::7]:
        for gpu in snapshot.gpus:
            assert not _numbers(gpu), gpu.index
            assert all(0 <= window <= 100 and window == int(window) for window in gpu.utilization_samples_pct)
        for process in snapshot.processes:
            assert not _numbers(process, OF_A_PROCESS), process.pid
        assert not _numbers(snapshot.host)
        assert msgspec.json.decode(msgspec.json.encode(snapshot), type=Snapshot) == snapshot


@pytest.mark.parametrize("name", SCENARIOS)
def test_memory_adds_up(name: str, backlogs: dict[str, list[Snapshot]]) -> None:
    """A GPU holds what its processes hold and a little more, and never more than it has."""
    for before, snapshot in list(pairwise(backlogs[name]))[::20]:
        for was, gpu in zip(before.gpus, snapshot.gpus, strict=True):
            if gpu.is_lost or gpu.mig_enabled or (gpu.memory_used_bytes or 0) < (was.memory_used_bytes or 0):
                continue  # processes are read less often than memory falls
            held = sum(process.gpu_memory_bytes.get(gpu.uuid) or 0 for process in snapshot.processes)
            assert gpu.memory_used_bytes is not None
            assert gpu.memory_total_bytes is not None
            assert held <= gpu.memory_used_bytes <= held + GIB // 2
            assert gpu.memory_used_bytes <= gpu.memory_total_bytes


@pytest.mark.parametrize("name", SCENARIOS)
def test_processor_time_adds_up(name: str, backlogs: dict[str, list[Snapshot]]) -> None:
    """The host is as busy as its processes make it, and the workers belong to trainers that are there."""
    for snapshot in backlogs[name][10::50]:
        used = sum(process.cpu_pct or 0 for process in snapshot.processes)
        assert used <= (snapshot.host.cpu_pct or 0) * (snapshot.host.cpu_count or 0) + 1
        pids = {process.pid for process in snapshot.processes}
        assert len(pids) == len(snapshot.processes)
        assert {worker.ppid for worker in _workers(snapshot)} <= pids


@pytest.mark.parametrize("name", ["throttled", "input-bound", "no-gpm"])
def test_power_is_the_energy_counters_slope(name: str, backlogs: dict[str, list[Snapshot]]) -> None:
    """Mean power times the interval is what the energy counter grew by."""
    for before, after in pairwise(backlogs[name][:200]):
        for old, new in zip(before.gpus, after.gpus, strict=True):
            grown = (new.energy_j or 0) - (old.energy_j or 0)
            assert grown == pytest.approx(new.power_w, abs=0.11)


@pytest.mark.parametrize("name", ["healthy", "many", "no-gpm"])
def test_nothing_is_wrong_where_nothing_should_be(name: str, backlogs: dict[str, list[Snapshot]]) -> None:
    """Healthy scenarios: ≥ 95 % busy, no thermal limiter, temperatures below the limit, one steady memory."""
    trace = backlogs[name][5:]
    for number, gpu in enumerate(trace[-1].gpus):
        assert fmean(_windows(trace, number)) > 95
        assert all("sw_thermal" not in (one.gpus[number].clocks_event_reasons or ()) for one in trace)
        assert max(one.gpus[number].temperature_c or 0 for one in trace) < (gpu.temperature_max_c or 0) - 5
        memory = [one.gpus[number].memory_used_bytes or 0 for one in trace]
        assert max(memory) - min(memory) < GIB // 4


# --- the driver's windows ---------------------------------------------------------------------------


@pytest.mark.parametrize("window_s", [1 / 6, 1 / 2, 1.0])
def test_mean_of_windows_does_not_depend_on_their_length(window_s: float) -> None:
    """The same hour cut into other windows has the same mean, and the windows fill the time."""
    trace = list(simulate("input-bound", 300, window_s=window_s, at_s=260))[1:]
    windows = _windows(trace)
    assert len(windows) == pytest.approx(300 / window_s, abs=1)
    assert fmean(windows) == pytest.approx(_mean_at_one_sixth(), abs=0.7)


def _mean_at_one_sixth() -> float:
    return fmean(_windows(list(simulate("input-bound", 300, at_s=260))[1:]))


def test_short_windows_show_the_dips_that_long_ones_hide() -> None:
    """A starved loop with pauses below a second is spiky at 1/6 s and smooth at 1 s."""
    low = {}
    for window_s in (1 / 6, 1.0):
        windows = _windows(list(simulate("input-bound", 200, window_s=window_s, at_s=260)))
        low[window_s] = fmean(window < 20 for window in windows)
    assert low[1 / 6] > 0.2
    assert low[1.0] < low[1 / 6] / 2


def test_ring_of_an_idle_gpu_is_empty(backlogs: dict[str, list[Snapshot]]) -> None:
    """Without kernels the driver's ring gives nothing and utilization is a measured 0."""
    for gpu in backlogs["idle"][-1].gpus:
        assert gpu.utilization_samples_pct == ()
        assert gpu.utilization_pct == 0
        assert gpu.clocks_event_reasons == ("gpu_idle",)
    assert backlogs["idle"][-1].processes == ()


# --- heat -------------------------------------------------------------------------------------------


def test_heat_conserves_energy() -> None:
    """Joules in are joules stored in die and sink plus joules carried away by the air, at any step length."""
    heat = Heat(H100, 30.0)
    rng = Random(7)
    put_in = 0.0
    for _ in range(500):
        power, seconds = rng.uniform(50, 700), rng.choice((0.1, 0.5, 1.0))
        heat.advance(power, seconds)
        put_in += power * seconds
    stored = H100.die_j_per_k * (heat.die_c - 30.0) + H100.sink_j_per_k * (heat.sink_c - 30.0)
    assert heat.vented_j + stored == pytest.approx(put_in, rel=1e-9)


def test_heat_settles_at_power_times_resistance() -> None:
    """Constant power ends at inlet + P · R, with or without living through the time."""
    lived, jumped = Heat(H100, 30.0), Heat(H100, 30.0)
    for _ in range(400):
        lived.advance(600.0, 1.0)
    jumped.settle(600.0)
    expected = 30.0 + 600.0 * (H100.die_k_per_w + H100.sink_k_per_w)
    assert lived.die_c == pytest.approx(expected, abs=0.05)
    assert jumped.die_c == pytest.approx(expected, abs=0.05)


def test_fan_answers_heat() -> None:
    """A card with a fan turns it up under load and is cooler for it than with the fan of before."""
    heat = Heat(RTX_4090, 24.0)
    heat.settle(100.0)
    quiet = heat.fan_pct
    resistance = heat.sink_k_per_w
    for _ in range(300):
        heat.advance(440.0, 1.0)
    assert heat.fan_pct > quiet + 15
    assert heat.die_c < 24.0 + 440.0 * (RTX_4090.die_k_per_w + resistance) - 10


def test_clock_and_power_are_inverse() -> None:
    """The clock found for a power draws that power."""
    for power in (0.4, 0.55, 0.8, 1.0):
        assert relative_power(clock_for(power)) == pytest.approx(power, abs=1e-4)


def test_throttled_gpu_is_pinned_at_its_limit(backlogs: dict[str, list[Snapshot]]) -> None:
    """Ten good minutes' beginning, then GPU 5 stands at 87 °C, its clock a third lower, its limiter active."""
    good = _between(backlogs["throttled"], 30, 220)
    bad = _between(backlogs["throttled"], 320, 601)
    assert all((one.gpus[5].temperature_c or 0) <= 83 for one in good)
    assert _mean(good, 5, "sm_clock_mhz") == pytest.approx(1755, abs=15)
    assert {one.gpus[5].temperature_c for one in bad} == {87.0}
    assert _mean(bad, 5, "sm_clock_mhz") == pytest.approx(1170, abs=25)
    assert _mean(bad, 5, "power_w") == pytest.approx(392, abs=12)
    shares = [(one.gpus[5].throttled_pct or {})["sw_thermal"] for one in bad]
    assert min(shares) > 90
    assert all((one.gpus[5].throttled_pct or {"sw_thermal": 0.0})["sw_thermal"] == 0 for one in good)


def test_victims_of_a_throttled_rank_wait_busily(backlogs: dict[str, list[Snapshot]]) -> None:
    """The other ranks show 100 % at full clock but draw and compute less: they wait in the collective."""
    good = _between(backlogs["throttled"], 30, 220)
    bad = _between(backlogs["throttled"], 320, 601)
    for number in (0, 3, 7):
        assert fmean(_windows(bad, number)) > 98
        assert _mean(bad, number, "sm_clock_mhz") >= 1765
        assert 0.70 < _mean(bad, number, "power_w") / _mean(good, number, "power_w") < 0.82
        assert _mean(bad, number, "sm_active_pct") < 0.8 * _mean(good, number, "sm_active_pct")
        assert 55 <= (bad[-1].gpus[number].temperature_c or 0) <= 65


@pytest.mark.parametrize("interval_s", [0.5, 2.0, 5.0])
def test_physics_does_not_depend_on_the_interval(interval_s: float) -> None:
    """Sampling more or less often shows the same throttled GPU."""
    trace = list(simulate("throttled", 60, interval_s=interval_s, at_s=400))[1:]
    assert {one.gpus[5].temperature_c for one in trace} == {87.0}
    assert _mean(trace, 5, "sm_clock_mhz") == pytest.approx(1170, abs=25)
    assert all(one.interval_s == interval_s for one in trace)


# --- data -------------------------------------------------------------------------------------------


def test_loader_delivers_workers_over_preparation_time() -> None:
    """N saturated workers give N batches per preparation time, whatever the step."""
    rng = Random(1)
    loader = Loader(workers=4, prefetch=2, prep_s=1.6, batch_bytes=0.0, disk=Disk(1e9, 1.0))
    loader.start(0.0, rng)
    now = 0.0
    for _ in range(2000):
        now = loader.take(now, rng) + 0.2
    assert now / 2000 == pytest.approx(1.6 / 4, rel=0.01)


def test_loader_that_is_fast_enough_is_never_waited_for() -> None:
    """With preparation below N steps the step alone sets the pace, and workers sleep the rest."""
    rng = Random(1)
    loader = Loader(workers=4, prefetch=2, prep_s=0.4, batch_bytes=0.0, disk=Disk(1e9, 1.0))
    loader.start(0.0, rng)
    now = 5.0
    for _ in range(1000):
        now = loader.take(now, rng) + 0.2
    assert now - 5.0 == pytest.approx(1000 * 0.2, rel=1e-6)
    assert fmean(loader.usage(worker, 20.0, 200.0).running_s for worker in range(4)) == pytest.approx(90, rel=0.03)


def test_starved_share_is_the_loaders_arithmetic(backlogs: dict[str, list[Snapshot]]) -> None:
    """Utilization is step time over the time in which four workers prepare one batch; the workers are at 99 %."""
    bad = _between(backlogs["input-bound"], 260, 601)
    step_s = SCENARIOS["input-bound"].jobs[0].step_s
    expected = 100 * step_s / (STARVED_PREP_S / 4)
    assert fmean(_windows(bad)) == pytest.approx(expected, abs=1.5)
    assert fmean(worker.cpu_pct or 0 for one in bad for worker in _workers(one)) > 97
    assert all(len(_workers(one)) == 4 for one in bad)
    asleep = fmean(100 - (one.processes[0].main_thread_cpu_pct or 0) for one in bad)
    assert asleep > 50


def test_starved_gpu_cools_down_and_speeds_up(backlogs: dict[str, list[Snapshot]]) -> None:
    """Power, heat and fan fall with the load, and the clock rises for want of a limit."""
    good = _between(backlogs["input-bound"], 60, 220)
    bad = _between(backlogs["input-bound"], 300, 601)
    assert _mean(good, 0, "power_w") == pytest.approx(438, abs=10)
    assert _mean(bad, 0, "power_w") == pytest.approx(270, abs=20)
    assert _mean(bad, 0, "temperature_c") < _mean(good, 0, "temperature_c") - 8
    assert _mean(bad, 0, "fan_pct") < _mean(good, 0, "fan_pct") - 15
    assert _mean(bad, 0, "sm_clock_mhz") > _mean(good, 0, "sm_clock_mhz") + 90
    assert _mean(good, 0, "memory_used_bytes") / GIB == pytest.approx(19.8, abs=0.3)


def test_disk_bound_workers_wait_on_a_saturated_disk(backlogs: dict[str, list[Snapshot]]) -> None:
    """The disk reads at its limit, the workers stand in D, and their CPU is mostly idle."""
    bad = _between(backlogs["disk-bound"], 320, 601)
    assert 40 < fmean(_windows(bad)) < 65
    assert fmean(one.host.disk_busy_pct or 0 for one in bad) > 90
    assert (
        max(one.host.disk_read_bytes_per_s or 0 for one in bad) <= SCENARIOS["disk-bound"].machine.disk_bytes_per_s + 1
    )
    assert fmean(worker.disk_wait_pct or 0 for one in bad for worker in _workers(one)) > 60
    assert fmean(one.host.io_pressure_pct or 0 for one in bad) > 60


def test_contended_workers_are_runnable_but_do_not_run(backlogs: dict[str, list[Snapshot]]) -> None:
    """With another user's build on all cores the workers get a part of one each and say so by their run delay."""
    good = _between(backlogs["cpu-contention"], 30, 220)
    bad = _between(backlogs["cpu-contention"], 300, 601)
    assert fmean(_windows(good)) > 95
    assert fmean(_windows(bad)) < 65
    assert fmean(worker.run_delay_pct or 0 for one in bad for worker in _workers(one)) > 40
    assert fmean(one.host.cpu_pct or 0 for one in bad) > 90
    assert fmean(one.host.cpu_pressure_pct or 0 for one in bad) > 50


def test_first_epoch_is_young_and_reads_everything(backlogs: dict[str, list[Snapshot]]) -> None:
    """When the viewer joins the job is minutes old, waits for the disk, and later runs from the page cache."""
    trace = backlogs["first-epoch"]
    assert trace[60].processes == ()
    trainer = trace[-1].processes[0]
    assert 120 < trace[-1].time_s - (trainer.started_s or 0) < 600
    assert fmean(worker.disk_wait_pct or 0 for one in trace[400:] for worker in _workers(one)) > 50
    warm = _between(_long("first-epoch", 1000), 900, 1001)
    assert fmean(_windows(warm)) > 95


def _long(name: str, seconds: float) -> list[Snapshot]:
    return list(simulate(name, seconds, interval_s=1.0))


# --- memory, hangs, losses --------------------------------------------------------------------------


def test_leak_ends_in_out_of_memory_and_starts_again() -> None:
    """Memory grows steadily to the card's limit, the process dies, a new one takes its place."""
    trace = _long("leaking", 1500)
    used = [(one.gpus[0].memory_used_bytes or 0) / GIB for one in trace]
    assert used[200] == pytest.approx(used[20], abs=0.2)
    assert used[600] > used[200] + 4
    assert all(later >= earlier for earlier, later in pairwise(used[:900:30]))
    exits = [event for one in trace for event in one.events if event.kind == "process-exit"]
    assert len(exits) == 1
    assert max(used) > 22.5
    assert {process.pid for process in trace[0].processes}.isdisjoint(process.pid for process in trace[-1].processes)
    assert used[-1] < 20


def test_fragmented_memory_is_a_saw_and_steps_stall(backlogs: dict[str, list[Snapshot]]) -> None:
    """At the limit the allocator flushes again and again: memory falls by gigabytes and the GPU stands still."""
    bad = _between(backlogs["fragmented"], 260, 601)
    used = [(one.gpus[0].memory_used_bytes or 0) / GIB for one in bad]
    assert sum(earlier - later > 1.5 for earlier, later in pairwise(used)) >= 5
    assert min(used) > 65
    assert fmean(window < 20 for window in _windows(bad)) > 0.02


def test_hang_shows_spinning_victims_and_an_idle_culprit(backlogs: dict[str, list[Snapshot]]) -> None:
    """Three GPUs at 100 % with little power and no copies, one at 0 % whose main thread sleeps."""
    last = backlogs["hang"][-1]
    culprit = last.gpus[2]
    assert culprit.utilization_pct == 0
    assert culprit.utilization_samples_pct == ()
    for victim in (last.gpus[0], last.gpus[1], last.gpus[3]):
        assert victim.utilization_pct == 100
        assert (victim.power_w or 0) < 0.4 * (victim.power_limit_w or 0)
        assert (victim.pcie_rx_bytes_per_s or 0) < 5e6
    ranks = {process.rank: process for process in last.processes if process.role == "trainer"}
    assert ranks[2].main_thread_state == "S"
    assert ranks[0].main_thread_state == "R"
    assert (ranks[0].main_thread_cpu_pct or 0) > 90
    assert all((worker.cpu_pct or 0) < 1 for worker in _workers(last))


def test_hang_ends_in_the_watchdog_and_the_job_comes_back() -> None:
    """A demo left open sees the watchdog abort the job, a new attempt train, and the hang return."""
    trace = list(simulate("hang", 4600, interval_s=10))
    exits = [event for one in trace for event in one.events if event.kind == "process-exit"]
    assert len(exits) % 4 == 0
    assert len(exits) >= 4
    recovered = _between(trace, 2250, 2800)
    assert fmean(_windows(recovered, 2)) > 90
    assert trace[-1].gpus[2].utilization_pct == 0


def test_straggler_alone_has_dips(backlogs: dict[str, list[Snapshot]]) -> None:
    """The slow rank's GPU shows gaps, its peers are steadily busy with waiting, and its workers are saturated."""
    bad = _between(backlogs["straggler"], 280, 601)
    assert 55 < fmean(_windows(bad, 2)) < 80
    assert all(fmean(_windows(bad, number)) > 97 for number in (0, 1, 3))
    pid = next(process.pid for process in bad[-1].processes if process.rank == 2)
    busy = {own: fmean(w.cpu_pct or 0 for w in _workers(bad[-1]) if (w.ppid == pid) is own) for own in (True, False)}
    assert busy[True] > 90
    assert busy[False] < 60


def test_lost_gpu_reports_nothing_and_its_neighbours_do(backlogs: dict[str, list[Snapshot]]) -> None:
    """GPU 3 is lost with an Xid 79, once; its numbers are None; the seven others go on in their places."""
    trace = backlogs["lost-gpu"]
    xids = [event for one in trace for event in one.events if event.kind == "xid"]
    assert [(event.xid, event.gpu_uuid) for event in xids] == [(79, trace[0].gpus[3].uuid)]
    last = trace[-1]
    assert [gpu.uuid for gpu in last.gpus] == [gpu.uuid for gpu in trace[0].gpus]
    assert last.gpus[3].is_lost
    assert last.gpus[3].utilization_pct is None
    assert last.gpus[3].power_w is None
    for number in (0, 2, 7):
        assert last.gpus[number].utilization_pct == 100
        assert 190 < (last.gpus[number].power_w or 0) < 240
    assert xids[0].time_s == pytest.approx(trace[0].time_s + 391, abs=2)


# --- what cards report ------------------------------------------------------------------------------


def test_each_card_reports_what_its_kind_has(backlogs: dict[str, list[Snapshot]]) -> None:
    """GPM and NVLink on H100, a fan on consumer cards, no ns counters with an old driver; None for the rest."""
    h100 = backlogs["throttled"][-1].gpus[0]
    rtx = backlogs["healthy"][-1].gpus[0]
    old = backlogs["no-gpm"][-1].gpus[0]
    assert h100.sm_active_pct is not None
    assert (h100.nvlinks_active, h100.nvlinks_total, h100.pcie_gen, h100.fan_pct) == (18, 18, 5, None)
    assert (rtx.sm_active_pct, rtx.nvlinks_total, rtx.pcie_gen, rtx.pcie_width) == (None, None, 4, 16)
    assert rtx.fan_pct is not None
    assert rtx.ecc_uncorrected is None
    assert old.throttled_pct is None
    assert old.clocks_event_reasons is not None


def test_mig_instances_follow_their_parent(backlogs: dict[str, list[Snapshot]]) -> None:
    """The parent has power, heat and clocks and no utilization; each instance its own memory and activity."""
    parent, *instances = backlogs["mig"][-1].gpus
    assert parent.mig_enabled
    assert parent.utilization_pct is None
    assert parent.power_w is not None
    assert [one.mig_profile for one in instances] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert {one.mig_parent_uuid for one in instances} == {parent.uuid}
    bad = _between(backlogs["mig"], 300, 601)
    busy = [_mean(bad, number, "graphics_active_pct") for number in (1, 2, 3)]
    assert busy[0] > 95
    assert 40 < busy[1] < 65
    assert busy[2] == 0
    assert instances[2].memory_used_bytes is not None
    assert instances[2].memory_used_bytes > 7 * GIB


@pytest.mark.parametrize("name", ["mig", "idle", "lost-gpu"])
def test_nothing_piles_up(name: str) -> None:
    """A demo left open keeps no more of the past after half an hour than after a minute."""
    story = Story(SCENARIOS[name])
    for _ in range(180):
        story.advance(10.0)
        story.world.snapshot(10.0)
    activities = [part.activity for card in story.world.cards if not card.is_lost for part in card.slices]
    assert max(len(activity._gaps) + len(activity._segments) for activity in activities) < 100


def test_number_of_gpus_can_be_chosen() -> None:
    """Any scenario runs with another number of GPUs, the trouble on one that exists."""
    trace = list(simulate("throttled", 60, gpus=2, at_s=400))
    assert len(trace[-1].gpus) == 2
    assert trace[-1].gpus[1].temperature_c == 87


def test_first_snapshot_has_no_rates(backlogs: dict[str, list[Snapshot]]) -> None:
    """Like one reading of a real machine: no interval, rates None, power the instant value."""
    first = backlogs["throttled"][0]
    assert first.interval_s is None
    assert first.gpus[0].pcie_rx_bytes_per_s is None
    assert first.gpus[0].throttled_pct is None
    assert (first.gpus[0].power_w or 0) > 500
    assert first.processes[0].cpu_pct is None
    assert first.host.cpu_pct is None
    assert backlogs["throttled"][1].processes[0].cpu_pct is not None


# --- the source -------------------------------------------------------------------------------------


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 5.0])
def test_backlog_ends_now(interval_s: float) -> None:
    """The backlog comes at once, is evenly spaced, rises, and its last time is the wall clock's."""
    source = DemoSource("healthy", interval_s=interval_s, backlog_s=120, now=lambda: 1_800_000_000.0)
    trace = list(islice(source, int(120 / interval_s) + 1))
    assert trace[-1].time_s == pytest.approx(1_800_000_000.0, abs=1e-3)
    assert all(
        later.time_s - earlier.time_s == pytest.approx(interval_s, abs=1e-6) for earlier, later in pairwise(trace)
    )
    assert trace[0].interval_s is None
    assert {one.interval_s for one in trace[1:]} == {interval_s}


def test_backlog_of_any_length_ends_in_the_same_moment_of_the_story() -> None:
    """A short backlog joins the story where a long one ends: in the trouble."""
    source = DemoSource("throttled", backlog_s=20, now=lambda: 1_800_000_000.0)
    last = list(islice(source, 21))[-1]
    assert last.gpus[5].temperature_c == 87


def test_live_part_is_paced_and_takes_a_new_interval() -> None:
    """After the backlog a snapshot comes per interval, and an interval assigned meanwhile is used."""
    source = DemoSource("healthy", interval_s=0.1, backlog_s=1.0)
    snapshots = iter(source)
    began = time.monotonic()
    for _ in range(11):
        next(snapshots)
    assert next(snapshots).interval_s == pytest.approx(0.1)
    source.interval_s = 0.3
    assert next(snapshots).interval_s == pytest.approx(0.3)
    assert time.monotonic() - began == pytest.approx(0.4, abs=0.15)
    source.close()


def test_slow_consumer_misses_nothing() -> None:
    """Who takes long over the backlog gets the seconds since then at once, evenly spaced, and is in time again."""
    source = DemoSource("healthy", interval_s=0.1, backlog_s=1.0)
    snapshots = iter(source)
    taken = [next(snapshots) for _ in range(11)]
    time.sleep(0.5)
    began = time.monotonic()
    taken += [next(snapshots) for _ in range(5)]
    assert time.monotonic() - began < 0.15
    steps = [later.time_s - earlier.time_s for earlier, later in pairwise(taken)]
    assert steps == pytest.approx([0.1] * 15, abs=1e-4)
    assert time.time() - taken[-1].time_s < 0.4
    source.close()


def test_close_ends_a_waiting_source_at_once() -> None:
    """Closing from another thread ends the iteration without waiting for the interval."""
    import threading

    source = DemoSource("healthy", interval_s=60.0, backlog_s=0.0)
    snapshots = iter(source)
    next(snapshots)
    threading.Timer(0.1, source.close).start()
    began = time.monotonic()
    assert list(snapshots) == []
    assert time.monotonic() - began < 1.0


def test_source_says_that_it_is_a_demo() -> None:
    """Nothing that signals processes or trusts numbers may take it for a real machine."""
    source = DemoSource()
    assert (source.kind, source.name) == ("demo", DEFAULT)


def test_ten_minutes_of_eight_gpus_cost_half_a_second() -> None:
    """The backlog must not delay the first frame (0.3–0.4 s of CPU measured; the bound allows a busy machine)."""
    began = time.process_time()
    count = sum(1 for _ in simulate("throttled", 600))
    assert count == 601
    assert time.process_time() - began < 1.2


def test_simulator_needs_only_the_model() -> None:
    """The demo runs without numpy, without the driver's library and without a screen library."""
    code = (
        "import sys; from gpumon.sources.demo import simulate; next(simulate('healthy', 1));"
        "print([m for m in ('numpy', 'pynvml', 'textual', 'rich', 'psutil', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- the probe --------------------------------------------------------------------------------------


def test_probe_reports_where_the_scenario_or_the_caller_says_so() -> None:
    """Probe data are there in the memory scenarios and the hang, and elsewhere on request only."""
    probed = {name for name, one in SCENARIOS.items() if one.is_probed}
    assert probed == {"leaking", "fragmented", "hang"}
    assert all("probe" in SCENARIOS[name].description for name in probed)
    assert not list(simulate("healthy", 5))[-1].ranks
    assert list(simulate("healthy", 5, probe=True))[-1].ranks
    assert not list(simulate("hang", 5, probe=False))[-1].ranks


def test_probe_counts_the_steps_that_the_gpu_did() -> None:
    """Steps, their times and the wait for data follow from the loader's arithmetic; nothing is counted twice."""
    trace = list(simulate("input-bound", 300, at_s=300, probe=True))[5:]
    ranks = [one.ranks[0] for one in trace]
    samples = [step for rank in ranks for step in rank.step_samples_s]
    counted = (ranks[-1].step or 0) - (ranks[0].step or 0) + len(ranks[0].step_samples_s)
    assert counted == len(samples)
    assert fmean(samples) == pytest.approx(STARVED_PREP_S / 4, rel=0.02)
    waits = [wait for rank in ranks for wait in rank.data_wait_samples_s]
    assert len(waits) == len(samples)
    # The main thread sleeps for the batch from the moment it has launched the step before.
    asleep = fmean(100 - (one.processes[0].main_thread_cpu_pct or 0) for one in trace) / 100
    assert fmean(waits) / fmean(samples) == pytest.approx(asleep, abs=0.05)


def test_probe_sees_the_leak_in_the_floor() -> None:
    """What is allocated between two steps grows by the leak; reserved memory follows in segments."""
    trace = list(simulate("leaking", 600))
    first, last = trace[300].ranks[0], trace[600].ranks[0]
    grown = (last.allocated_min_bytes or 0) - (first.allocated_min_bytes or 0)
    steps = (last.step or 0) - (first.step or 0)
    assert grown / steps == pytest.approx(5.1 * (1 << 20), rel=0.02)
    assert trace[200].ranks[0].allocated_min_bytes == trace[20].ranks[0].allocated_min_bytes
    for one in (first, last):
        assert (one.allocated_min_bytes or 0) < (one.allocated_peak_bytes or 0) <= (one.reserved_bytes or 0)


def test_probe_shows_fragmentation(backlogs: dict[str, list[Snapshot]]) -> None:
    """Reserved memory is twice what is ever allocated, much of it split, and retries are counted."""
    last = backlogs["fragmented"][-1].ranks[0]
    assert (last.reserved_bytes or 0) > 1.9 * (last.allocated_peak_bytes or 0)
    assert (last.inactive_split_bytes or 0) > 0.15 * (last.reserved_bytes or 0)
    assert (last.alloc_retries or 0) >= 5


def test_heartbeat_stops_with_the_hang(backlogs: dict[str, list[Snapshot]]) -> None:
    """Before the hang the last step is moments old, afterwards its age grows with time on every rank."""
    trace = backlogs["hang"]
    assert all((rank.heartbeat_age_s or 0) < 2 for rank in trace[200].ranks)
    assert [round(rank.heartbeat_age_s or 0) for rank in trace[600].ranks] == pytest.approx([375] * 4, abs=3)
    later = list(simulate("hang", 900, interval_s=5))
    assert all(rank.phase == "train" for one in later[50:] for rank in one.ranks)


def test_without_workers_the_main_thread_loads() -> None:
    """With num_workers=0 the trainer's own thread computes and reads, and the GPU waits meanwhile."""
    scenario = SCENARIOS["healthy"]
    job = msgspec.structs.replace(scenario.jobs[0], workers=0, prep_s=0.2, syncs=True)
    story = Story(msgspec.structs.replace(scenario, jobs=(job,)), is_probed=True)
    for _ in range(60):
        story.advance(1.0)
        last = story.world.snapshot(1.0)
    trainer = last.processes[0]
    assert len(last.processes) == 1
    assert (trainer.main_thread_cpu_pct or 0) > 90
    assert (trainer.rchar_bytes_per_s or 0) > 2e7
    assert (last.ranks[0].data_wait_s or 0) == pytest.approx(0.2, rel=0.1)
    assert last.gpus[0].utilization_samples_pct
    assert 35 < fmean(last.gpus[0].utilization_samples_pct) < 75
