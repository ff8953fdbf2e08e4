"""What the rows say: headline, states of GPUs, the job table, alerts, footer."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from scenes import HOT, NOW, ONSET, budget, film, last, mono, texts, throttled, utc  # noqa: F401

from builders import GIB, NOON, alert, finding, gpu, host, job, process, rank, uuid, worker
from gpumon.alerts import Headline
from gpumon.model import Job, Process, Subject
from gpumon.monitor import Frame
from gpumon.rules import RULES
from gpumon.ui.panels import alerts, footer, headline, jobs, title
from gpumon.ui.panels.state import GpuState, recent, states
from gpumon.ui.view import ViewState

CRITICAL = Headline(
    state="critical",
    text="GPU 5 throttles at its temperature limit",
    alert=alert(finding=finding(index=5, severity="critical"), since_s=ONSET),
    since_s=ONSET,
    confidence="certain",
    cause="87 °C, siblings 59–63",
    fix="airflow at GPU 5; until then nvidia-smi -i 5 -pl 600",
    cost="cost job −33%, 15 GPU-min",
    more=2,
)
STARVED = Headline(
    state="warning",
    text="GPU 0 waits for data 44% of the time",
    since_s=ONSET,
    confidence="likely",
    cause="4/4 workers at 99% CPU",
    fix="num_workers 4 → 8",
    cost="gain ≤ 1.8×",
)


def _rows(shown: Headline, width: int, **view: Any) -> list[str]:
    frame = last(throttled(headline=shown, seconds=20.0))
    return [row.rstrip() for row in texts(headline.headline_rows(frame, ViewState(**view), width))]


def test_the_headline_says_who_since_when_why_and_what_to_do() -> None:
    """Both rows of the starved mockup, unclipped at 80 columns."""
    assert _rows(STARVED, 80) == [
        " ▲ WARNING  GPU 0 waits for data 44% of the time since 12:14 (6 min) likely",
        " cause 4/4 workers at 99% CPU   fix num_workers 4 → 8   gain ≤ 1.8×",
    ]


@pytest.mark.parametrize(
    ("width", "first"),
    [
        (100, " ■ CRITICAL  GPU 5 throttles at its temperature limit since 12:14 (6 min) certain            +2 · a"),
        (85, " ■ CRITICAL  GPU 5 throttles at its temperature limit since 12:14 (6 min)     +2 · a"),
        (78, " ■ CRITICAL  GPU 5 throttles at its temperature limit since 12:14 (6 min)"),
        (60, " ■ CRITICAL  GPU 5 throttles at its tem… since 12:14 (6 min)"),
    ],
)
def test_a_narrow_headline_drops_confidence_then_the_count_never_the_time(width: int, first: str) -> None:
    """Who and since stay to the last."""
    assert _rows(CRITICAL, width)[0] == first


def test_the_value_goes_before_who_and_since() -> None:
    """``44% of the time`` is what a narrow screen can do without."""
    assert _rows(STARVED, 60)[0] == " ▲ WARNING  GPU 0 waits for data since 12:14 (6 min)"


def test_long_fixes_are_shortened_at_their_first_clause() -> None:
    """The second row stays whole words on 80 columns."""
    assert _rows(CRITICAL, 79)[1] == " cause 87 °C, siblings 59–63   fix airflow at GPU 5   cost job −33%, 15 GPU-min"
    assert _rows(CRITICAL, 76)[1] == " cause 87 °C, siblings 59–63   fix airflow at GPU 5   cost job −33%"


def test_a_toast_answers_a_key_in_the_second_row() -> None:
    """It covers no data."""
    assert _rows(CRITICAL, 80, toast="interval 2 s")[1] == " interval 2 s"


def test_ascii_badges_are_brackets() -> None:
    """Same width as the coloured badge."""
    assert _rows(STARVED, 80, tier="ascii")[0].startswith("[▲ WARNING] GPU 0")


def _state(frame: Frame, index: int) -> GpuState:
    shares = {one.uuid: recent(frame.window, one) for one in frame.window.last.gpus}
    return states(frame, shares, is_stale_frame=False)[uuid(index)]


def test_culprits_shout_and_victims_are_grey() -> None:
    """The hot GPU is red with a mark; the ranks that wait for it name it in grey."""
    frame = last(throttled())
    assert _state(frame, HOT) == GpuState("throttled", "bold harm", "■", "bold harm", is_hot=True)
    assert _state(frame, 0) == GpuState("waits on 5", "muted")


def test_a_merely_possible_cause_stays_muted() -> None:
    """No colour for what may be wrong."""
    doubtful = alert(finding=finding(index=HOT, confidence="possible"), since_s=ONSET)
    state = _state(last(throttled(alerts=(doubtful,))), HOT)
    assert (state.word, state.style, state.mark_style) == ("throttled", "muted", "muted")


@pytest.mark.parametrize("fields", [{"muted_until_s": NOW + 60.0}, {"suppressed_by": "x"}, {"state": "resolved"}])
def test_muted_suppressed_and_past_alerts_mark_nothing(fields: dict[str, Any]) -> None:
    """The row says what the GPU does, in grey, without a mark."""
    silent = alert(**{"finding": finding(index=HOT), "since_s": ONSET, **fields})
    assert _state(last(throttled(alerts=(silent,))), HOT) == GpuState("throttled", "muted")


@pytest.mark.parametrize(
    ("shares", "phase", "word"),
    [
        (budget(97.0), "train", "busy"),
        (budget(0.0), "train", "idle"),
        (budget(60.0, data=38.0), "train", "waits data"),
        (budget(50.0), "start", "starting"),
        (budget(0.0), "pause", "paused"),
        (budget(0.0), "stall", "stalled"),
    ],
)
def test_without_an_alert_the_word_is_what_it_does(shares: dict[str, float], phase: Any, word: str) -> None:
    """From the job's phase, else from the last seconds."""
    frame = last(film(lambda _: (gpu(),), lambda *_: shares, seconds=60.0, jobs=(job(phase=phase),)))
    assert _state(frame, 0).word == word


def test_a_job_alert_marks_all_its_gpus() -> None:
    """An alert that names a job, not a GPU, is about each GPU of it."""
    slow = finding("data-starved", subject=Subject(kind="job", job="4242:1"), severity="warning")
    frame = last(film(lambda _: (gpu(),), lambda *_: budget(50.0), jobs=(job(),), alerts=(alert(finding=slow),)))
    state = _state(frame, 0)
    assert (state.word, state.style, state.mark) == ("waits data", "bold data-text", "▲")


def _table(width: int, height: int, *, view: ViewState | None = None, **fields: Any) -> list[str]:
    frame = last(film(lambda _: tuple(gpu(index) for index in range(4)), lambda *_: None, seconds=20.0, **fields))
    lines = jobs.job_lines(frame, view or ViewState(), width, height)
    assert len(lines.rows) == len(lines.keys) == height
    shown = texts(lines.rows)
    assert {cell_len(row) for row in shown} == {width}
    return [row.rstrip() for row in shown]


def _job(number: int, ranks: int = 1, **fields: Any) -> tuple[Job, list[Process]]:
    pids = [1000 * number + rank for rank in range(ranks)]
    members = [process(pid, (rank,), rank=rank, started_s=NOW - 60.0, **fields) for rank, pid in enumerate(pids)]
    return job(id=str(number), name=f"job{number}.py", trainers=tuple(pids)), members


def test_a_single_process_is_one_row() -> None:
    """Load with its children, workers as bars, time and command; numbers under their heads."""
    one = process(
        48213, user="marco", cpu_pct=35.0, gpu_sm_pct={uuid(0): 55.0}, command="python train.py --config x.yaml",
        gpu_memory_bytes={uuid(0): int(19.3 * GIB)}, started_s=NOW - 8040.0,
    )  # fmt: skip
    workers = [worker(48300 + number, 48213, cpu_pct=99.0) for number in range(4)]
    mine = job(trainers=(48213,), helpers={48213: tuple(one.pid for one in workers)})
    rows = _table(80, 4, jobs=(mine,), processes=(one, *workers))
    assert rows[:3] == [
        "─ JOBS 1 ──────────────── step – for step time, alloc:  gpumon run -- python … ─",
        "     PID USER     GPU    MEM  SM%  CPU%  WORKERS  busy   TIME COMMAND",
        "   48213 marco      0  19.3G   55   431  ▇▇▇▇     4/4   2h14m python train.py -…",
    ]


def _probed_film(
    width: int, *, ranks: int = 2, jobs_count: int = 1, view: ViewState | None = None, **fields: Any
) -> list[str]:
    """A table whose first job's processes carry probes; rank 1 waits for data."""
    made = [_job(number, ranks) for number in range(1, jobs_count + 1)]
    members = tuple(member for _, group in made for member in group)
    reports = tuple(
        rank(1000 + number, rank=number, data_wait_s=0.2 * (number == 1), step_s=0.5, **fields)
        for number in range(ranks)
    )
    frame = last(
        film(
            lambda _: tuple(gpu(index) for index in range(ranks)), lambda *_: None, seconds=20.0,
            jobs=tuple(one for one, _ in made), processes=members, ranks=reports,
        )
    )  # fmt: skip
    rows = texts(jobs.job_lines(frame, view or ViewState(), width, 8).rows)
    assert {cell_len(row) for row in rows} == {width}
    return [row.rstrip() for row in rows]


def test_probed_ranks_have_columns_for_step_wait_and_memory() -> None:
    """The job's line has the shared pace, the longest wait and the sum of memory; nothing tells how to get a probe."""
    assert [row[:96] for row in _probed_film(120)[:5]] == [
        "─ JOBS 1 " + "─" * 87,
        " RANK    PID USER      GPU    MEM  SM%  CPU%  WORKERS  busy      STEP  WAIT ALLOC/RESV G    TIME",
        "  job        ana       0–1 152.0G    –   120                  0.500 s   40%  136.0/148.0   1 min",
        "    0   1000 ana         0  76.0G    –    60                  0.500 s    0%    68.0/74.0   1 min",
        "    1   1001 ana         1  76.0G    –    60                  0.500 s   40%    68.0/74.0   1 min",
    ]


def test_what_a_probe_does_not_tell_is_a_dash() -> None:
    """A rank without steps and memory, and another job without a probe, keep their columns."""
    unknown = {"step_s": None, "allocated_bytes": None, "allocated_peak_bytes": None, "reserved_bytes": None}
    rows = _probed_film(120, ranks=1, jobs_count=2)
    assert rows[2][59:88].split() == ["0.500", "s", "0%", "68.0/74.0"]
    assert rows[3][59:88].split() == ["–", "–", "–"]
    one, members = _job(1)
    reports = (rank(1000, data_wait_s=None, **unknown),)
    (*_, row) = _table(120, 4, jobs=(one,), processes=tuple(members), ranks=reports)[:3]
    assert row[59:88].split() == ["–", "–", "–"]


def test_a_narrow_table_has_the_probes_in_its_rule() -> None:
    """Whose wait it is, where one rank's is longer; the name of the job, where there are several."""
    rule = _probed_film(80)[0]
    assert rule == "─ JOBS 1 ──────── step 0.500 s · data wait 40% on rank 1 · alloc 136.0/148.0 G ─"
    assert " 3 ranks · " in _probed_film(100, ranks=3)[0]
    assert " job1.py: step 0.500 s · data wait 0% · alloc 68.0/74.0 G ─" in _probed_film(80, ranks=1, jobs_count=2)[0]


def test_servers_are_not_asked_for_a_probe() -> None:
    """What never trains has no steps."""
    one, members = _job(1)
    served = msgspec.structs.replace(one, kind="serving")
    assert _table(80, 4, jobs=(served,), processes=tuple(members))[0].endswith("─" * 20)


def test_ranks_go_before_the_lines_of_other_jobs() -> None:
    """Three jobs of four ranks in eight rows: every job keeps its line, the first shows some ranks."""
    made = [_job(number, 4) for number in (1, 2, 3)]
    members = tuple(member for _, group in made for member in group)
    rows = _table(120, 8, jobs=tuple(one for one, _ in made), processes=members)
    assert [row.split()[0] for row in rows[2:]] == ["job", "0", "1", "…", "job", "job"]
    assert rows[5] == " … 2 more: j k"


def test_the_selected_rank_is_in_sight() -> None:
    """The window over a long job follows the selection."""
    one, members = _job(1, 4)
    view = ViewState(part="jobs", process=f"1003:{NOW - 60.0}")
    rows = _table(80, 5, view=view, jobs=(one,), processes=tuple(members))
    assert [row[:8].strip() for row in rows[2:4]] == ["1002", "›   1003"]


def test_names_of_two_cell_characters_move_no_column() -> None:
    """A user and a command in Chinese."""
    one, members = _job(1, user="训练用户训练", command="python 训练.py --数据 /数据/数据/数据")
    rows = _table(80, 4, jobs=(one,), processes=tuple(members))
    assert "0  76.0G" in rows[2]


def test_what_cannot_be_read_is_said_in_words() -> None:
    """Another user's command, memory that the driver does not tell, no CPU: words and dashes."""
    one, members = _job(1, command=None, cpu_pct=None, gpu_memory_bytes={uuid(2): None})
    rows = _table(80, 4, jobs=(one,), processes=tuple(members))
    assert rows[2].split() == ["1000", "ana", "2", "–", "–", "–", "1", "min", "–", "(other", "user)"]


def test_a_container_tells_more_than_the_only_user() -> None:
    """Where everybody is root, the scheduler's id or the container takes the column."""
    one, members = _job(1, user="root", container="trainer-7")
    rows = _table(120, 4, jobs=(one,), processes=tuple(members))
    assert "WHERE" in rows[1]
    assert "trainer…" in rows[2]


def test_many_workers_are_shown_as_eight_groups() -> None:
    """Sixteen workers, half of them busy: eight bars, and the exact count beside them."""
    one = process(1)
    workers = [worker(10 + number, 1, cpu_pct=100.0 if number < 8 else 0.0) for number in range(16)]
    mine = job(trainers=(1,), helpers={1: tuple(one.pid for one in workers)})
    assert "▇▇▇▇▁▁▁▁ 8/16" in _table(80, 4, jobs=(mine,), processes=(one, *workers))[2]


def test_recovered_alerts_turn_grey_and_at_most_three_stay() -> None:
    """Within the hour; older ones are in the log only."""
    past = [
        alert(state="resolved", since_s=NOW - 900.0, cleared_s=NOW - 60.0 * minute, finding=finding(index=minute))
        for minute in (1, 2, 3, 4)
    ]
    frame = last(throttled(alerts=(alert(since_s=ONSET, finding=finding(index=5)), *past)))
    lines = alerts.alert_lines(frame, ViewState(), 80, 8)
    shown = [row.rstrip() for row in texts(lines.rows)]
    assert shown[0].startswith("─ ALERTS 1 firing ─")
    assert shown[1] == " ▲ 12:14  GPU 5   sw-thermal    firing 6 min     GPU 5 throttles at its tempera…"
    assert shown[2].startswith(" · 12:05  GPU 1   sw-thermal    recovered 14 min")
    assert shown[5] == ""
    assert sum(key is not None for key in lines.keys) == 4


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_has_a_blank_behind_its_name(rule: str) -> None:
    """Whatever else is listed, what follows the names stands in one column."""
    listed = (alert(finding=finding("xid")), alert(finding=finding(rule, 1)))
    lines = alerts.alert_lines(msgspec.structs.replace(last(throttled()), alerts=listed), ViewState(), 80, 4)
    first, second = texts(lines.rows)[1:3]
    assert f" {rule} " in second
    assert first.index("firing") == second.index("firing")


@pytest.mark.parametrize(
    ("view", "width", "keys"),
    [
        (ViewState(), 80, " ? help  e why  Enter detail  a alerts  +- span  q quit"),
        (ViewState(part="jobs"), 80, " ? help  e why  Enter its job  K signal  a alerts  q quit"),
        (ViewState(part="jobs", is_read_only=True), 80, " ? help  e why  Enter its job  a alerts  +- span  q quit"),
        (ViewState(part="alerts"), 80, " ? help  e why  Enter diagnosis  m mute  a alerts  q quit"),
        (ViewState(paused_at_s=NOON), 80, " ? help  Space go on  e why  Enter detail  q quit"),
        (ViewState(scroll_blocks=2), 60, " ? help  End now  e why  q quit"),
    ],
)
def test_the_footer_names_the_keys_of_the_focused_part(view: ViewState, width: int, keys: str) -> None:
    """At most six on 80 columns, and always the way out and back."""
    frame = last(throttled(seconds=20.0))
    (text,) = texts((footer.footer_row(frame, view, width, 6.0),))
    assert text.startswith(keys + "  ")
    assert text.endswith("age 0s ")


def test_a_late_frame_makes_the_age_yellow() -> None:
    """Two intervals without news."""
    row = footer.footer_row(last(throttled(seconds=20.0)), ViewState(age_s=2.0), 80, None)
    assert ("age 2s", "data-text") in row


@pytest.mark.parametrize(
    ("ages_s", "driver_age_s", "frame_age_s", "piece"),
    [
        ((0.4, 0.9), 0.9, 0.0, ("age 0s", "muted")),
        ((0.4, 1.7), 0.4, 0.0, ("age 1s", "muted")),
        ((0.4, 2.3), 0.4, 0.0, ("age 2s", "data-text")),
        ((0.4, 12.3), 0.4, 0.0, ("age 12s", "bold data-text")),
        ((0.4, 0.4), 7.0, 0.0, ("age 7s", "bold data-text")),
        ((0.5, 0.0), 0.0, 2.0, ("age 2s", "data-text")),
        ((0.0, None), None, 0.0, ("age 0s", "muted")),
    ],
)
def test_the_age_is_that_of_the_oldest_source(
    ages_s: tuple[float, float | None], driver_age_s: float | None, frame_age_s: float, piece: tuple[str, str]
) -> None:
    """A GPU that has been silent, the driver, or the whole frame: the oldest counts; yellow, then bold."""
    gpus = tuple(gpu(index, age_s=age_s) for index, age_s in enumerate(ages_s))
    frame = last(film(lambda _: gpus, lambda *_: None, seconds=20.0, host=host(driver_age_s=driver_age_s)))
    assert piece in footer.footer_row(frame, ViewState(age_s=frame_age_s), 120, None)


def test_a_lost_gpu_does_not_age() -> None:
    """What it said last is not shown as current anywhere."""
    gpus = (gpu(0), gpu(1, is_lost=True, age_s=300.0))
    frame = last(film(lambda _: gpus, lambda *_: None, seconds=20.0))
    assert ("age 0s", "muted") in footer.footer_row(frame, ViewState(), 120, None)


@pytest.mark.parametrize("rule", headline.SYMPTOMS)
@pytest.mark.parametrize(("width", "whom"), [(40, "GPU 15"), (20, "15")])
def test_words_for_small_screens_fit(rule: str, width: int, whom: str) -> None:
    """Whom, what and since when are never cut: even GPU 15 for 59 min on twenty columns."""
    assert rule in {known.id for known in RULES}
    told = alert(finding=finding(rule, index=15, severity="critical"), since_s=NOW - 3540.0)
    lead = Headline(state="critical", text="something", alert=told, fix="look")
    frame = last(throttled(headline=lead, seconds=20.0))
    first, _ = texts(headline.small_rows(frame, ViewState(), width, is_tiny=width < 40))
    assert re.fullmatch(rf" ■ {whom} [^…]+, 59 min", first.rstrip()), first


def test_a_small_screen_drops_the_cost_before_it_cuts_the_fix() -> None:
    """Both where they fit, else the fix."""
    told = alert(finding=finding("collective-hang", severity="critical"), since_s=NOW - 60.0)
    for fix, second in (
        ("py-spy dump", " cost −100%   fix py-spy dump"),
        ("py-spy dump each of the ranks", " fix py-spy dump each of the ranks"),
    ):
        lead = Headline(state="critical", text="something", alert=told, cost="cost −100%", fix=fix)
        rows = texts(headline.small_rows(last(throttled(headline=lead, seconds=20.0)), ViewState(), 40, is_tiny=False))
        assert rows[1].rstrip() == second


def test_the_title_says_paused_and_scrolled_back() -> None:
    """A picture of the past never passes for now."""
    frame = last(throttled(seconds=20.0))
    (paused,) = texts((title.title_row(frame, ViewState(paused_at_s=NOW), 15.0, 80),))
    assert paused.rstrip().endswith(" PAUSED 12:20:31")
    (back,) = texts((title.title_row(frame, ViewState(scroll_blocks=3), 15.0, 80),))
    assert " 3 min BACK " in back


def test_mixed_cards_are_both_named() -> None:
    """Counts and models without what every name has."""
    frame = last(
        film(
            lambda _: (gpu(0, name="NVIDIA GeForce RTX 4090"), gpu(1, name="NVIDIA A100-SXM4-80GB")),
            lambda *_: None,
            seconds=10.0,
            host=host(name="lab7", driver_version=None),
        )
    )
    (row,) = texts((title.title_row(frame, ViewState(), 15.0, 100),))
    assert row.startswith(" gpumon lab7 · 1 × RTX 4090 + 1 × A100-SXM4-80GB ")
