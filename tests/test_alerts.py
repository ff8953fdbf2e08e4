"""Alerts over time: hold, hysteresis, clearing, gaps, suppression, mutes; and the headline they take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from gpumon.alerts import AlertFold, Headline, Mute, MuteList
from gpumon.headline import HeadlineFold
from gpumon.history import History
from gpumon.jobs import JobFold
from gpumon.model import Abstention, Alert, Cost, Finding, Gpu, Host, Process, Severity, Subject
from gpumon.window import Window
from tests import builders


class Keeping(msgspec.Struct, frozen=True, kw_only=True):
    """How a rule of these tests is kept over time."""

    id: str
    hold_s: float = 0.0
    clear_s: float = 0.0
    suppressed_by: tuple[str, ...] = ()


class Run:
    """History, alerts and headline together, second by second."""

    def __init__(self, *rules: Keeping, mutes: MuteList | None = None) -> None:
        self.history = History()
        self.jobs = JobFold()
        self.fold = AlertFold(rules or (Keeping(id="sw-thermal"),), mutes)
        self.headlines = HeadlineFold()
        self.at = 0.0
        self.headline = Headline(state="empty", text="")
        self.window: Window | None = None

    def step(
        self,
        findings: Iterable[Finding] = (),
        *,
        seconds: int = 1,
        interval_s: float = 1.0,
        gpus: list[Gpu] | None = None,
        processes: list[Process] | None = None,
        host: Host | None = None,
        abstained: Iterable[Abstention] = (),
    ) -> tuple[Alert, ...]:
        """The alerts after some seconds with the same findings."""
        alerts: tuple[Alert, ...] = ()
        for _ in range(seconds):
            self.at += interval_s
            taken = builders.snapshot(builders.NOON + self.at, gpus, processes, interval_s=interval_s, host_=host)
            self.window = self.history.append(taken, self.jobs.append(taken))
            alerts = self.fold.append(self.window, tuple(findings), tuple(abstained))
            self.headline = self.headlines.append(self.window, alerts)
        return alerts


HOT = builders.finding(cost=Cost(lost_pct=30.0))


def strong(strength: float, **fields: Any) -> Finding:
    return builders.finding(strength=strength, **fields)


def test_it_is_raised_after_its_hold_with_its_onset() -> None:
    """Ten seconds of hold; since is when the trouble began, not when it was raised."""
    run = Run(Keeping(id="sw-thermal", hold_s=10))
    run.step(seconds=5)
    assert run.step([strong(1.2, onset_s=4.0)], seconds=10) == ()
    (alert,) = run.step([strong(1.2, onset_s=15.0)])
    assert alert.state == "firing"
    assert alert.since_s == pytest.approx(builders.NOON + 2)
    assert alert.raised_s == pytest.approx(builders.NOON + 16)


def test_below_the_threshold_nothing_is_raised() -> None:
    """A finding at 0.9 of its threshold keeps an alert but starts none."""
    run = Run()
    assert run.step([strong(0.9)], seconds=30) == ()
    run.step([strong(1.0)])
    (alert,) = run.step([strong(0.85)], seconds=30)
    assert alert.state == "firing"


def test_what_is_only_kept_does_not_become_worse() -> None:
    """At 0.9 of its threshold an information stays one; above it, it may become a warning."""
    run = Run()
    run.step([strong(1.2, severity="info")])
    (alert,) = run.step([strong(0.9, severity="warning")])
    assert alert.finding.severity == "info"
    (alert,) = run.step([strong(1.1, severity="warning")])
    assert alert.finding.severity == "warning"


def test_a_pending_condition_that_goes_away_starts_anew() -> None:
    """Five seconds, a break, five seconds are not ten."""
    run = Run(Keeping(id="sw-thermal", hold_s=8))
    run.step([strong(1.0)], seconds=6)
    run.step(seconds=2)
    assert run.step([strong(1.0)], seconds=6) == ()


def test_it_clears_after_its_clear_hold() -> None:
    """Clearing still counts as firing; resolved keeps when the trouble ended."""
    run = Run(Keeping(id="sw-thermal", clear_s=20))
    run.step([HOT], seconds=60)
    (alert,) = run.step(seconds=19)
    assert (alert.state, alert.is_firing()) == ("clearing", True)
    (alert,) = run.step(seconds=2)
    assert alert.state == "resolved"
    assert alert.cleared_s == pytest.approx(builders.NOON + 61)


def test_it_comes_back_while_clearing() -> None:
    """A short good stretch is no recovery."""
    run = Run(Keeping(id="sw-thermal", clear_s=20))
    run.step([HOT], seconds=10)
    run.step(seconds=10)
    (alert,) = run.step([HOT])
    assert (alert.state, alert.times_raised) == ("firing", 1)


def test_the_same_trouble_within_fifteen_minutes_is_the_same_alert() -> None:
    """One entry goes on; later it is a new one."""
    run = Run()
    run.step([HOT], seconds=5)
    run.step(seconds=600)
    (alert,) = run.step([HOT])
    assert (alert.state, alert.times_raised) == ("firing", 2)
    assert alert.since_s == pytest.approx(builders.NOON + 1)
    run.step(seconds=901)
    now, before = run.step([HOT])
    assert (now.state, now.times_raised, before.state) == ("firing", 1, "resolved")


def test_a_gap_freezes_the_clocks() -> None:
    """Five minutes without a sample are neither hold nor recovery."""
    run = Run(Keeping(id="sw-thermal", hold_s=30, clear_s=30))
    run.step([HOT], seconds=10)
    assert run.step([HOT], interval_s=300.0) == ()
    run.step([HOT], seconds=30)
    run.step(seconds=5)
    (alert,) = run.step(interval_s=300.0)
    assert alert.state == "clearing"


def test_an_abstaining_rule_neither_raises_nor_clears() -> None:
    """Not measured is not recovered."""
    run = Run()
    run.step([HOT], seconds=5)
    silent = Abstention(rule="sw-thermal", because="no counters", subject=HOT.subject)
    (alert,) = run.step(seconds=60, abstained=[silent])
    assert alert.state == "firing"


def test_stale_values_and_pauses_freeze_too() -> None:
    """While the driver hangs, or the job writes a checkpoint, an alert stays as it is."""
    run = Run()
    run.step([HOT], seconds=5)
    (alert,) = run.step(seconds=60, gpus=[builders.gpu(age_s=30.0)])
    assert alert.state == "firing"
    run = Run()
    run.step([HOT], seconds=5)
    paused = [builders.process(write_bytes_per_s=5e8)]
    (alert,) = run.step(seconds=60, gpus=[builders.gpu(utilization_pct=3.0)], processes=paused)
    assert alert.state == "firing"


def test_a_cause_suppresses_its_symptom_on_the_same_gpu_only() -> None:
    """A lost GPU explains what else is said about it, not about its neighbour."""
    run = Run(Keeping(id="gpu-lost"), Keeping(id="sw-thermal", suppressed_by=("gpu-lost",)))
    gpus = [builders.gpu(0), builders.gpu(1)]
    lost = builders.finding("gpu-lost", 0, severity="critical")
    alerts = run.step([builders.finding(index=0), builders.finding(index=1), lost], gpus=gpus)
    explained = {(alert.finding.rule, alert.finding.subject.gpu): alert.suppressed_by for alert in alerts}
    assert explained == {("gpu-lost", 0): None, ("sw-thermal", 0): "gpu-lost", ("sw-thermal", 1): None}
    assert alerts[-1].finding.subject.gpu == 0, "a suppressed alert comes last"
    assert run.headline.alert is not None
    assert run.headline.alert.finding.rule == "gpu-lost"
    assert run.headline.more == 0


def test_a_symptom_that_outlives_its_cause_for_a_moment_stays_explained() -> None:
    """What was explained stays so for three minutes after its cause; what comes later is trouble of its own."""
    run = Run(Keeping(id="sw-thermal"), Keeping(id="straggler", suppressed_by=("sw-thermal",)))
    symptom = builders.finding(rule="straggler", severity="warning")
    run.step([HOT, symptom], seconds=10)
    alerts = run.step([symptom], seconds=30)
    assert [(a.finding.rule, a.suppressed_by) for a in alerts if a.is_firing()] == [("straggler", "sw-thermal")]
    assert run.headline.state == "healthy"
    alerts = run.step([symptom], seconds=200)
    assert [(a.finding.rule, a.suppressed_by) for a in alerts if a.is_firing()] == [("straggler", None)]
    fresh = Run(Keeping(id="sw-thermal"), Keeping(id="straggler", suppressed_by=("sw-thermal",)))
    fresh.step([HOT], seconds=10)
    fresh.step(seconds=5)
    alerts = fresh.step([symptom], seconds=10)
    assert [(a.finding.rule, a.suppressed_by) for a in alerts if a.is_firing()] == [("straggler", None)]


def test_mere_information_explains_no_warning() -> None:
    """A cause that is information only explains information, never a warning."""
    run = Run(Keeping(id="memory-hot"), Keeping(id="throughput-drop", suppressed_by=("memory-hot",)))
    cause = builders.finding(rule="memory-hot", severity="info")
    symptom = builders.finding(rule="throughput-drop", severity="warning")
    alerts = run.step([cause, symptom], seconds=5)
    assert {a.finding.rule: a.suppressed_by for a in alerts} == {"memory-hot": None, "throughput-drop": None}


@pytest.mark.parametrize(("severity", "explained"), [("warning", "ram-pressure"), ("info", None)])
def test_a_finding_may_name_what_explains_it(severity: Severity, explained: str | None) -> None:
    """What explains one finding of a rule need not explain the others; a piece of information explains no warning."""
    run = Run(Keeping(id="ram-pressure"), Keeping(id="sw-thermal"))
    cause = builders.finding("ram-pressure", 0, severity=severity)
    (alert,) = (one for one in run.step([cause, builders.finding()]) if one.finding.rule == "sw-thermal")
    assert alert.suppressed_by is None
    finding = builders.finding(explained_by=("ram-pressure",))
    (alert,) = (one for one in run.step([cause, finding]) if one.finding.rule == "sw-thermal")
    assert alert.suppressed_by == explained


def test_loss_is_counted_in_gpu_time() -> None:
    """Thirty per cent of two GPUs for a minute, from the onset on."""
    run = Run()
    gpus = [builders.gpu(0), builders.gpu(1)]
    ranks = [builders.process(10 + n, (n,), ppid=5, rank=n, world_size=2) for n in range(2)]
    finding = builders.finding(cost=Cost(lost_pct=30.0), onset_s=10.0)
    run.step(seconds=20, gpus=gpus, processes=ranks)
    (alert,) = run.step([finding], seconds=51, gpus=gpus, processes=ranks)
    assert alert.lost_gpu_s == pytest.approx(0.3 * 2 * 60, abs=1)
    assert run.headline.cost == "cost job −30%"


def test_mutes_are_by_rule_and_subject_and_end() -> None:
    """A muted alert stays in the log and out of the headline, until its time is over."""
    mutes = MuteList()
    run = Run(mutes=mutes)
    run.step([HOT])
    mutes.add(Mute(rule="sw-thermal", subject=builders.uuid(0), until_s=builders.NOON + 30))
    (alert,) = run.step([HOT], seconds=10)
    assert alert.muted_until_s == builders.NOON + 30
    assert run.headline.state == "healthy"
    (alert,) = run.step([HOT], seconds=25)
    assert alert.muted_until_s is None
    assert run.headline.state == "warning"


def test_a_mute_until_it_recovers_ends_with_the_alert() -> None:
    """The next time it is heard again."""
    mutes = MuteList()
    run = Run(mutes=mutes)
    run.step([HOT])
    mutes.add(Mute(rule="sw-thermal", subject=builders.uuid(0), until_s=builders.NOON + 1e9, until_recovered=True))
    (alert,) = run.step([HOT])
    assert alert.muted_until_s is not None
    run.step(seconds=5)
    (alert,) = run.step([HOT])
    assert alert.muted_until_s is None


def test_the_headline_is_the_worst_then_the_oldest() -> None:
    """Others of its rank are counted."""
    run = Run()
    gpus = [builders.gpu(index) for index in range(4)]
    run.step([builders.finding(index=1)], gpus=gpus)
    run.step([builders.finding(index=0), builders.finding(index=1)], seconds=10, gpus=gpus)
    assert run.headline.text == "GPU 1 throttles at its temperature limit"
    assert (run.headline.state, run.headline.more) == ("warning", 1)
    worse = builders.finding(index=3, severity="critical")
    run.step([builders.finding(index=0), builders.finding(index=1), worse], gpus=gpus)
    assert run.headline.text == "GPU 3 throttles at its temperature limit"
    assert (run.headline.state, run.headline.more) == ("critical", 0)
    assert (run.headline.cause, run.headline.fix) == ("87 °C, limit 87", "airflow at GPU 3")


def test_the_headline_changes_at_most_every_five_seconds_except_for_the_worse() -> None:
    """It stays readable."""
    run = Run()
    run.step(seconds=10)
    run.step([builders.finding(index=0)])
    assert run.headline.state == "warning"
    run.step(seconds=3)
    assert run.headline.state == "warning", "it has recovered, but the eye needs time"
    run.step(seconds=3)
    assert run.headline.state == "healthy"
    run.step([builders.finding(index=1, severity="critical")], gpus=[builders.gpu(0), builders.gpu(1)])
    assert run.headline.state == "critical"


def test_a_recovery_is_told_for_a_minute() -> None:
    """With how long it lasted and what it cost; then the last alert stands in the second row."""
    run = Run()
    run.step([HOT], seconds=400)
    run.step(seconds=6)
    assert (run.headline.state, run.headline.text) == ("healthy", "GPU 0 recovered after 6 min (cost 2 GPU-min)")
    run.step(seconds=60)
    assert run.headline.text.startswith("1 job, 1 GPU busy")
    assert ("sw-thermal, recovered after 6 min   energy") in run.headline.detail


def test_the_quiet_headline_counts() -> None:
    """Jobs, busy GPUs, time without an alert, energy."""
    run = Run()
    run.step(seconds=661)
    assert run.headline.text == "1 job, 1 GPU busy"
    assert run.headline.detail == "no alert in 11 min   energy 0.12 kWh"


def test_no_job() -> None:
    """The exact text."""
    run = Run()
    run.step(gpus=[builders.gpu(utilization_pct=0.0)], processes=[])
    assert (run.headline.state, run.headline.text) == (
        "empty",
        "No job is using these GPUs. Start one; it appears here within 2 s.",
    )


def test_a_job_that_starts() -> None:
    """Its name and its age."""
    run = Run()
    run.step(seconds=35, processes=[builders.process(started_s=builders.NOON - 5.0, command="python llama.py")])
    assert (run.headline.state, run.headline.text) == (
        "starting",
        "llama.py for 40 s: rules wait until it trains steadily",
    )


def test_a_pid_that_cannot_be_looked_up_starts_nothing() -> None:
    """The driver lists a process that has ended, or that is hidden from us: no STARTING, the others decide."""
    bare = Process(pid=555, gpu_memory_bytes={builders.uuid(0): None})
    run = Run()
    run.step(seconds=5, gpus=[builders.gpu(utilization_pct=0.0)], processes=[bare])
    assert (run.headline.state, run.headline.text) == ("healthy", "1 job, GPU idle")
    run.step(seconds=35, processes=[bare, builders.process(started_s=builders.NOON, command="python llama.py")])
    assert run.headline.state == "starting"
    assert run.headline.text.startswith("llama.py for ")


def test_the_first_epoch_waits_for_data() -> None:
    """Information from a cold cache has its own quiet headline."""
    run = Run(Keeping(id="data-starved"))
    cold = builders.finding("data-starved", severity="info", cost=Cost(lost_pct=44.0, speedup_max=1.8))
    run.step([cold])
    assert (run.headline.state, run.headline.text) == (
        "training",
        "waits for data 44% in the first epoch; judged when the cache is warm",
    )


def test_a_silent_driver() -> None:
    """The age and the time of the last numbers; what it hides stays hidden."""
    run = Run(Keeping(id="driver-stuck"), Keeping(id="sw-thermal", suppressed_by=("driver-stuck",)))
    run.step([HOT], seconds=5)
    stuck = builders.finding("driver-stuck", severity="critical", subject=Subject(kind="host"))
    run.step([HOT, stuck], host=builders.host(driver_age_s=12.0), gpus=[builders.gpu(age_s=12.0)])
    assert run.headline.state == "stale"
    assert run.headline.text.startswith("driver not answering for 12 s; numbers are from ")
    assert (run.headline.cause, run.headline.fix) == ("unknown yet", "wait; then dmesg | grep -i nvrm")
    assert run.headline.cost == "q still quits"


def test_a_silent_gpu() -> None:
    """While the driver answers for the other GPUs, the one whose calls hang is named: nothing is called healthy."""
    run = Run(Keeping(id="sw-thermal"))
    run.step([], host=builders.host(driver_age_s=0.1), gpus=[builders.gpu(0, age_s=0.1), builders.gpu(1, age_s=15.0)])
    assert run.headline.state == "stale"
    assert run.headline.text.startswith("GPU 1 not answering for 15 s; numbers are from ")


def test_the_cause_of_silence_is_the_fault_without_its_cure() -> None:
    """The driver's line is longer than the headline's second row: what follows the colon is left out."""
    run = Run(Keeping(id="sw-thermal"))
    run.step([], host=builders.host(driver_age_s=12.0, driver_error="NVML says Unknown Error: in a container, …"))
    assert run.headline.cause == "NVML says Unknown Error"


def test_a_lost_gpu_is_told_with_its_time_inside_the_sentence() -> None:
    """``GPU 3 lost since 14:05 (fell off the bus, Xid 79)``."""
    run = Run(Keeping(id="gpu-lost"))
    lost = builders.finding("gpu-lost", 3, severity="critical", summary="GPU 3 lost (fell off the bus, Xid 79)")
    run.step([lost], gpus=[builders.gpu(3, is_lost=True)])
    assert run.headline.text.startswith("GPU 3 lost since ")
    assert run.headline.text.endswith(" (fell off the bus, Xid 79)")
    assert run.headline.since_s is None


def test_a_gain_is_named_where_a_cure_gives_one() -> None:
    """Waiting for data: what the run could win."""
    run = Run(Keeping(id="data-starved"))
    run.step([builders.finding("data-starved", cost=Cost(lost_pct=44.0, speedup_max=1.8))])
    assert run.headline.cost == "gain ≤ 1.8×"


def test_muted_alerts_are_counted_in_the_quiet_headline() -> None:
    """HEALTHY over a muted alert says so in its second row, at once and until the mute or the trouble ends."""
    mutes = MuteList()
    run = Run(mutes=mutes)
    run.step(seconds=70)
    run.step([HOT])
    mutes.add(Mute(rule="sw-thermal", subject=builders.uuid(0), until_s=builders.NOON + 100))
    run.step([HOT], seconds=6)
    assert run.headline.state == "healthy"
    assert run.headline.detail.startswith("1 alert muted   energy")
    run.step([HOT], seconds=40)
    assert run.headline.state == "warning", "the mute is over"
    quiet = Run(mutes=mutes)
    quiet.step(seconds=70)
    assert "muted" not in quiet.headline.detail


def test_a_muted_piece_of_information_is_not_counted() -> None:
    """What would not have led the screen is no news."""
    mutes = MuteList()
    run = Run(mutes=mutes)
    mutes.add(Mute(rule="sw-thermal", subject=builders.uuid(0), until_s=builders.NOON + 1e6))
    run.step([builders.finding(severity="info")], seconds=70)
    assert run.headline.detail.startswith("no alert in")


def test_health_is_not_claimed_before_it_can_be_judged() -> None:
    """In a job's first minute the second row says from when on waiting for data is judged; then it says no alert."""
    run = Run()
    run.step(seconds=13)
    assert run.headline.detail == "watching for 10 s: waiting for data is judged from 60 s on"
    run.step(seconds=60)
    assert run.headline.detail.startswith("no alert in 1 min")
    run.step(seconds=10, processes=[])
    assert "watching" not in run.headline.detail


def test_a_later_job_is_watched_first_as_well() -> None:
    """A second job that begins to train starts the minute anew, and its row is shown at once."""
    run = Run()
    run.step(seconds=100)
    gpus = [builders.gpu(0), builders.gpu(1)]
    run.step(seconds=3, gpus=gpus, processes=[builders.process(), builders.process(77, (1,), started_s=builders.NOON)])
    assert run.headline.state == "healthy"
    assert "watching" not in run.headline.detail, "it has only started: rules wait until it trains"
    run.step(
        seconds=3, gpus=gpus, processes=[builders.process(), builders.process(78, (1,), started_s=builders.NOON - 3600)]
    )
    assert run.headline.detail.startswith("watching for")
