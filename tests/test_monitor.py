"""The whole engine on simulated machines: right alarm, right cause, right time, and silence when all is well."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from gpumon.alerts import Headline
from gpumon.fields import BUDGET_FIELDS
from gpumon.model import Abstention, Alert, Event, Snapshot
from gpumon.monitor import Frame, Monitor, SourceInfo, frames
from gpumon.rules.sw_thermal import Limits
from gpumon.sources.demo import TRACE_START_S, simulate
from gpumon.window import Window
from tests import builders

ONSET_S = 225.0
"""When the demo's troubles begin."""
VARIANTS: tuple[dict[str, Any], ...] = (
    {"seed": 1},
    {"window_s": 1 / 6},
    {"window_s": 1.0},
    {"interval_s": 0.5},
    {"interval_s": 2.0},
    {"seed": 3, "dropped": 0.05},
)


class Outcome(NamedTuple):
    """The end of a run and everything that fired on the way, what another alert explains left out."""

    window: Window
    alerts: tuple[Alert, ...]
    headline: Headline
    fired: dict[tuple[str, int | None], Alert]
    abstained: tuple[Abstention, ...]


def run(scenario: str, seconds: float = 420.0, *, dropped: float = 0.0, **fields: Any) -> Outcome:
    """A simulated run through the whole engine."""
    taken: Iterable[Snapshot] = simulate(scenario, seconds, **fields)
    return watched(without_some(taken, dropped) if dropped else taken)


def watched(taken: Iterable[Snapshot]) -> Outcome:
    monitor = Monitor()
    fired: dict[tuple[str, int | None], Alert] = {}
    for snapshot in taken:
        window, alerts, abstained, headline = monitor.take(snapshot)
        for alert in alerts:
            if alert.is_firing() and alert.suppressed_by is None:
                fired[alert.finding.rule, alert.finding.subject.gpu] = alert
    return Outcome(window, alerts, headline, fired, abstained)


def without_some(taken: Iterable[Snapshot], share: float) -> Iterator[Snapshot]:
    """Drop samples at random; the next one stands for the time of those before it."""
    chance = random.Random(5)
    missed = 0.0
    for number, snapshot in enumerate(taken):
        if number and chance.random() < share:
            missed += snapshot.interval_s or 0.0
        else:
            interval = None if snapshot.interval_s is None else snapshot.interval_s + missed
            missed = 0.0
            yield msgspec.structs.replace(snapshot, interval_s=interval)


def since(alert: Alert) -> float:
    return alert.since_s - TRACE_START_S


def raised(alert: Alert) -> float:
    assert alert.raised_s is not None
    return alert.raised_s - TRACE_START_S


@pytest.mark.parametrize("variant", [{}, *VARIANTS], ids=str)
def test_throttled(variant: dict[str, Any]) -> None:
    """GPU 5 is named, critical, with its onset; its seven victims are not, and nobody starves."""
    outcome = run("throttled", **variant)
    assert set(outcome.fired) == {("sw-thermal", 5)}
    alert = outcome.fired["sw-thermal", 5]
    assert (alert.finding.severity, alert.finding.confidence) == ("critical", "certain")
    # Heat needs about a quarter of a minute to reach the limit after the air is blocked.
    assert ONSET_S <= since(alert) <= ONSET_S + 30
    assert raised(alert) - since(alert) <= 150
    assert alert.finding.cost is not None
    assert alert.finding.cost.lost_pct == pytest.approx(33, abs=4)
    assert outcome.headline.text == "GPU 5 throttles at its temperature limit"
    assert outcome.headline.cause is not None
    assert outcome.headline.cause.startswith("87 °C, siblings ")


def test_the_victims_of_a_throttled_gpu_wait_for_it() -> None:
    """The budget shows grey on seven and red on one, and all lose the same."""
    outcome = run("throttled")
    for gpu in outcome.window.last.gpus:
        shares = {
            name: outcome.window.mean(gpu, f"budget.{name}_pct", 60.0) for name in ("throttled", "peer", "useful")
        }
        mine = "throttled" if gpu.index == 5 else "peer"
        assert shares[mine] == pytest.approx(33, abs=4)
        assert shares["useful"] == pytest.approx(67, abs=4)


@pytest.mark.parametrize("variant", [{}, *VARIANTS], ids=str)
@pytest.mark.parametrize(
    ("scenario", "cause"),
    [("input-bound", "workers-saturated"), ("cpu-contention", "cpu-contention"), ("disk-bound", "disk-bound")],
)
def test_starved(scenario: str, cause: str, variant: dict[str, Any]) -> None:
    """The right cause, whatever the driver's window, the interval and the samples lost."""
    outcome = run(scenario, **variant)
    assert set(outcome.fired) == {("data-starved", 0)}
    alert = outcome.fired["data-starved", 0]
    assert (alert.finding.severity, alert.finding.cause) == ("warning", cause)
    assert ONSET_S - 1 <= since(alert) <= ONSET_S + 20
    assert raised(alert) - since(alert) <= 90
    assert outcome.headline.state == "warning"
    assert outcome.headline.cost is not None
    assert outcome.headline.cost.startswith("gain ≤ 1.")


@pytest.mark.parametrize("variant", [{}, {"window_s": 1.0}, {"interval_s": 2.0}], ids=str)
def test_a_straggler_is_named_alone(variant: dict[str, Any]) -> None:
    """Rank 2 waits for its loader; the ranks that wait for it get no alert of their own."""
    outcome = run("straggler", **variant)
    assert set(outcome.fired) == {("data-starved", 2)}
    assert outcome.fired["data-starved", 2].finding.cause == "workers-saturated"


@pytest.mark.parametrize("seed", range(4))
def test_healthy_is_silent(seed: int) -> None:
    """Ten minutes of a healthy run raise nothing."""
    outcome = run("healthy", 600.0, seed=seed)
    assert outcome.fired == {}
    assert outcome.headline.state == "healthy"
    assert outcome.headline.text.startswith("1 job, 1 GPU busy, useful 9")


@pytest.mark.parametrize("scenario", ["many", "no-gpm", "idle"])
def test_quiet_stories_raise_nothing(scenario: str) -> None:
    """Machines on which all is well, large or idle or of few words."""
    outcome = run(scenario, 500.0, interval_s=2.0)
    assert outcome.fired == {}


@pytest.mark.parametrize("variant", [{}, {"probe": False}, *VARIANTS], ids=str)
def test_a_hang_names_the_culprit(variant: dict[str, Any]) -> None:
    """Rank 2 left a collective: critical 60 s after the onset, about the job and the GPU at fault, with or without
    the probe; the victims count as waiting for a peer."""
    outcome = run("hang", 300.0, **variant)
    loud = {key for key, one in outcome.fired.items() if one.finding.severity != "info"}
    assert loud == {("collective-hang", 2)}
    alert = outcome.fired["collective-hang", 2]
    assert (alert.finding.severity, alert.finding.confidence) == ("critical", "likely")
    assert since(alert) == pytest.approx(ONSET_S, abs=4)
    assert raised(alert) - ONSET_S <= 60 + 10
    assert outcome.headline.text == "GPU 2 left a collective, 3 wait"
    assert [job.phase for job in outcome.window.jobs] == ["stall"]
    victims = [gpu for gpu in outcome.window.last.gpus if gpu.index != 2]
    assert all((outcome.window.mean(gpu, "budget.peer_pct", 30.0) or 0.0) >= 99 for gpu in victims)


@pytest.mark.parametrize("variant", [{}, *VARIANTS], ids=str)
def test_a_leak_is_found_long_before_it_ends_the_run(variant: dict[str, Any]) -> None:
    """Within a quarter of the time that it has left, and then critical in the last ten minutes."""
    outcome = run("leaking", 700.0, **variant)
    assert set(outcome.fired) == {("memory-leak", 0), ("oom-risk", 0)}
    leak = outcome.fired["memory-leak", 0]
    assert (leak.finding.severity, leak.finding.confidence) == ("warning", "likely")
    assert raised(leak) - ONSET_S <= 190
    risk = outcome.fired["oom-risk", 0]
    assert (risk.finding.severity, risk.finding.cause) == ("critical", "memory-leak")
    assert outcome.headline.text == "GPU 0 is about to run out of memory"


def test_without_a_probe_a_leak_shows_late() -> None:
    """Nearly full and rising is all that the driver can show: possible, a few minutes before the end."""
    outcome = run("leaking", 900.0, probe=False)
    assert set(outcome.fired) == {("oom-risk", 0)}
    assert outcome.fired["oom-risk", 0].finding.confidence == "possible"


@pytest.mark.parametrize("variant", [{}, *VARIANTS], ids=str)
def test_fragmented_memory(variant: dict[str, Any]) -> None:
    """The allocator's own count is certain, and both rules name the pieces as the cause."""
    outcome = run("fragmented", 420.0, **variant)
    assert set(outcome.fired) == {("fragmentation", 0), ("alloc-retry", 0)}
    retries = outcome.fired["alloc-retry", 0].finding
    assert (retries.confidence, retries.cause) == ("certain", "fragmentation")
    assert outcome.headline.fix is not None
    assert "expandable_segments:True" in outcome.headline.fix


def test_an_evaluation_does_not_end_the_alert() -> None:
    """Starvation interrupted by an evaluation is one alert, raised once, and recovers at its end."""
    outcome = run("input-bound", 2300.0, seed=5, interval_s=2.0)
    (alert,) = outcome.alerts
    assert (alert.state, alert.times_raised) == ("resolved", 1)
    assert alert.cleared_s is not None
    assert alert.cleared_s - TRACE_START_S == pytest.approx(ONSET_S + 1800, abs=75)


def test_the_first_epoch_is_information() -> None:
    """A cold cache in the first ten minutes of a process has no badge."""
    outcome = run("first-epoch", 620.0)
    alert = outcome.fired["data-starved", 0]
    assert (alert.finding.severity, alert.finding.cause) == ("info", "disk-bound")
    assert outcome.headline.state == "training"


def test_a_lost_gpu() -> None:
    """Critical within five seconds, with the Xid; the others wait for it."""
    outcome = run("lost-gpu", 430.0)
    assert set(outcome.fired) == {("gpu-lost", 3)}
    alert = outcome.fired["gpu-lost", 3]
    assert raised(alert) <= 390 + 5
    assert alert.finding.summary == "GPU 3 lost (fell off the bus, Xid 79)"
    assert outcome.headline.cost == "cost its job (rank 3)"
    assert outcome.headline.fix == "save what you can, reboot the node"


def test_an_instance_is_named_by_its_parent() -> None:
    """On a split GPU the starved instance is 0.1, and the alert is about it alone."""
    outcome = run("mig", 330.0)
    (alert,) = outcome.fired.values()
    assert alert.finding.summary.startswith("GPU 0.1 waits for data")


def test_xids_are_read_from_the_kernels_line() -> None:
    """Without a number of its own the event's text gives it."""
    gone = [builders.gpu(2, is_lost=True)]
    told = Event(
        kind="xid", gpu_uuid=builders.uuid(2), text="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
    )
    outcome = watched([builders.snapshot(), builders.snapshot(builders.NOON + 1, gone, events=[told])])
    assert outcome.headline.text.endswith("(fell off the bus, Xid 79)")


def test_frames_carry_everything() -> None:
    """One frame per snapshot, with the source's kind and name and what it cost."""
    source = builders.ListSource(builders.snapshots(5), name="throttled")
    taken = list(frames(source))
    assert len(taken) == 5
    assert taken[-1].info == SourceInfo(kind="demo", name="throttled")
    assert all(frame.sample_ms is not None and frame.sample_ms >= 0 for frame in taken)
    assert taken[-1].window.last.time_s == builders.NOON + 4


def last_of(taken: Iterator[Frame]) -> Frame:
    frame = None
    for frame in taken:  # noqa: B007
        pass
    assert frame is not None
    return frame


def test_limits_and_muted_rules_are_obeyed() -> None:
    """A rule can be made less eager, or not be judged at all."""
    hot = [builders.gpu(sm_clock_mhz=1600.0, temperature_c=87.0, throttled_pct={"sw_thermal": 60.0})]
    series = [*builders.snapshots(100), *builders.snapshots(200, start_s=builders.NOON + 100, gpus=hot)]
    series = [msgspec.structs.replace(one, interval_s=1.0) for one in series]
    assert [alert.finding.rule for alert in last_of(frames(builders.ListSource(series))).alerts] == ["sw-thermal"]
    tolerant = {"sw-thermal": Limits(clock_lost_pct=20.0)}
    assert last_of(frames(builders.ListSource(series), limits=tolerant)).alerts == ()
    assert last_of(frames(builders.ListSource(series), muted_rules=frozenset({"sw-thermal"}))).alerts == ()


def test_a_backlog_folds_quickly() -> None:
    """Ten minutes of eight GPUs and 72 processes open within a second of CPU (measured: 0.35 s)."""
    taken = list(simulate("throttled", 600.0))
    monitor = Monitor()
    began = time.process_time()
    for snapshot in taken:
        monitor.take(snapshot)
    assert time.process_time() - began < 2.0


MAYBE_GPU = (
    "name utilization_pct memory_used_bytes power_w power_limit_w temperature_c temperature_max_c sm_clock_mhz "
    "sm_clock_max_mhz clocks_event_reasons throttled_pct age_s"
).split()
MAYBE_PROCESS = (
    "ppid started_s user name command state cpu_pct main_thread_cpu_pct main_thread_state role framework cpus_allowed"
).split()
MAYBE_HOST = "driver_age_s sees_host_pids cpu_count cpu_pct io_pressure_pct disk_busy_pct net_rx_bytes_per_s".split()


def withheld(chance: random.Random, record: Any, names: list[str]) -> Any:
    """A record in which some fields are not reported."""
    return msgspec.structs.replace(record, **{name: None for name in names if chance.random() < 0.3})


def jumbled(seed: int, count: int) -> Iterator[Snapshot]:
    """Snapshots in which anything may be missing, vanish, come back, be lost or be old."""
    chance = random.Random(seed)
    at = builders.NOON
    for number in range(count):
        interval = chance.choice([0.1, 1.0, 1.0, 5.0, 400.0])
        at += interval + chance.choice([0.0, 0.0, 0.0, -7200.0])
        gpus = [
            withheld(
                chance,
                builders.gpu(
                    index,
                    is_lost=chance.random() < 0.05,
                    utilization_pct=chance.choice([0.0, 40.0, 100.0]),
                    age_s=chance.choice([0.0, 9.0]),
                    throttled_pct={"sw_thermal": chance.choice([0.0, 100.0]), "hw_thermal": chance.choice([0.0, 9.0])},
                ),
                MAYBE_GPU,
            )
            for index in range(4)
            if chance.random() < 0.9
        ]
        processes = [
            withheld(chance, builders.process(pid, (pid % 4,), world_size=chance.choice([None, 4])), MAYBE_PROCESS)
            for pid in range(10, 14)
            if chance.random() < 0.9
        ]
        processes += [
            withheld(chance, builders.worker(20 + n, 10 + n % 4, cpu_pct=99.0), MAYBE_PROCESS) for n in range(6)
        ]
        machine = withheld(chance, builders.host(driver_age_s=chance.choice([0.0, 0.0, 20.0])), MAYBE_HOST)
        yield builders.snapshot(at, gpus, processes, interval_s=interval if number else None, host_=machine)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_missing_ever_breaks_it(seed: int) -> None:
    """Whatever is not reported, every frame has a headline, and shares add up to 100 or are all unknown."""
    monitor = Monitor()
    for snapshot in jumbled(seed, 250):
        window, _, _, headline = monitor.take(snapshot)
        assert headline.text
        for gpu in snapshot.gpus:
            shares = [window.series(gpu, name, 0.05)[-1] for name in BUDGET_FIELDS]
            known = [share for share in shares if share is not None]
            assert known == [] or sum(known) == pytest.approx(100, abs=0.01)
