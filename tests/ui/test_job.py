"""The screen of one job: its pace and memory, its ranks, and how long it stands still; at any size."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from builders import GIB, NOON, alert, finding, frame, gpu, job, process, rank, snapshot, snapshots, uuid, worker
from gpumon.model import Subject
from gpumon.monitor import Frame
from gpumon.ui.app import GpumonApp
from gpumon.ui.panels import rank_charts
from gpumon.ui.panels.charts import Charts
from gpumon.ui.row import Row
from gpumon.ui.screens import job_ranks
from gpumon.ui.screens.job_page import Page
from gpumon.ui.screens.job_ranks import Sort
from gpumon.ui.view import ViewState
from ui.stage import demo, lines, play, probed, screen_rows, style_at, text

SIZES = [(20, 5), (40, 10), (60, 16), (80, 24), (100, 30), (120, 40), (200, 60), (300, 3)]


def page(shown: Frame, width: int = 80, height: int = 24, *, sort: Sort | None = None, **view: Any) -> list[Row]:
    """The rows of the first job."""
    return Page(shown, ViewState(**view), shown.window.jobs[0], Charts(), width, sort=sort or Sort()).rows(height)


def line_of(told: list[str], start: str) -> str:
    """The row that begins with a label."""
    return next(line for line in told if line.strip(" ›■▲").startswith(start))


def training(ranks: int = 2, seconds: int = 60, **fields: Any) -> Frame:
    """A job of some ranks with probes, each on its own GPU."""
    pids = tuple(range(4242, 4242 + ranks))
    reports = [rank(pid, rank=number, **fields) for number, pid in enumerate(pids)]
    running = [process(pid, (number,), rank=number, world_size=ranks) for number, pid in enumerate(pids)]
    cards = [gpu(number) for number in range(ranks)]
    mine = job(trainers=pids, gpu_uuids=tuple(uuid(number) for number in range(ranks)), trained_since_s=NOON - 100)
    return frame(snapshots(seconds, gpus=cards, processes=running, ranks=reports), jobs=[mine])


@pytest.mark.parametrize("scenario", ["straggler", "hang", "input-bound", "many", "first-epoch"])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_is_filled_exactly_and_shows_the_way_back(scenario: str, size: tuple[int, int]) -> None:
    """With and without probes no row is wider than the screen or missing, and the last one names Esc."""
    width, height = size
    for shown in (probed(scenario), demo(scenario)):
        for options in ({}, {"has_color": False, "tier": "half"}, {"scroll_blocks": 3}):
            told = lines(page(shown, width, height, **options))
            assert len(told) == height
            assert max(map(len, told)) <= width, (size, options)
            assert "Esc" in told[-1]


def test_eighty_by_twenty_four_holds_everything_in_order() -> None:
    """Title, headline, what job it is, time, pace, memory, phase, axis, ranks, the sentence, keys."""
    told = lines(page(probed("straggler")))
    starts = [
        "gpumon", "■ CRITICAL", "cause", "─ train.py yuki · torch · 4 ranks · GPUs 0–3", "util", "", "", "step", "wait",
        "rate", "device", "reserv", "alloc", "phase", "", "─ RANKS workers", "RANK GPU", "›   0", "1", "■  2", "3", "",
        "all ranks show the same step time: they wait for the slowest, rank 2 on GPU 2", "?",
    ]  # fmt: skip
    assert [line.strip().startswith(start) for line, start in zip(told, starts, strict=True)] == [True] * 24


def test_the_straggler_alone_is_marked_and_yellow() -> None:
    """Its mark, its wait and its busy workers; the others, which wait for it, are plain."""
    rows = page(probed("straggler"))
    told = lines(rows)
    wait = told[16].index("WAIT") + 2
    for number, y in enumerate(range(17, 21)):
        assert ("■" in told[y]) == (number == 2)
        assert ("data-text" in style_at(rows[y], wait)) == (number == 2)
    assert " 43% " in told[19]
    assert " BBBBBB " in told[19]


def test_a_hang_tells_its_seconds_and_who_keeps_it() -> None:
    """No rank has a pace any more, every heart is silent, and the culprit is named."""
    rows = page(probed("hang"))
    told = lines(rows)
    y = next(y for y, line in enumerate(told) if "stands still for 6 min: rank 2 idles" in line)
    assert style_at(rows[y], 3) == "bold harm"
    assert line_of(told, "step").split()[1] == "–"
    assert "··" in line_of(told, "step")
    for number in range(4):
        line = next(line for line in told if line[2:5].strip() == str(number) and "31" in line)
        assert line.rstrip().endswith("6 min")


def test_every_fourth_step_stalls() -> None:
    """Four workers that are too slow: said in the sentence, beside the waits where there is room."""
    assert "every 4th step stalls; the longest waits take 1.1" in lines(page(probed("input-bound")))[-2]
    assert "every 4th" in line_of(lines(page(probed("input-bound"))), "wait")
    wide = line_of(lines(page(probed("input-bound"), 120, 40)), "wait")
    assert wide.endswith(" every 4th step stalls")
    assert "p50 0.2" in line_of(lines(page(probed("input-bound"), 120, 40)), "step")


def test_a_wait_that_a_framework_hides_is_not_none() -> None:
    """Keras fetches within its compiled function: a dash, and in words that it is not seen."""
    told = lines(page(training(data_wait_s=None, data_wait_samples_s=())))
    assert line_of(told, "wait").split()[1] == "–"
    assert line_of(told, "wait").endswith(" not seen")
    assert "not seen" not in "".join(lines(page(training())))


def test_a_program_that_compiles_again_and_again() -> None:
    """Its steps are long now and then, and what they do meanwhile is said."""
    series = [
        snapshot(
            NOON + second,
            ranks=(rank(4242, step=2 * second, compiles=second // 5, compile_s=1.5 if second % 5 == 0 else 0.0),),
            interval_s=1.0 if second else None,
        )
        for second in range(70)
    ]
    shown = frame(series, jobs=[job(trained_since_s=NOON - 100)])
    assert lines(page(shown))[-2].strip() == "compiled 11 times in the last minute, 30% of the time: shapes change"


def test_the_budget_is_measured_with_a_probe_and_else_an_estimate() -> None:
    """The word stands where nobody looked inside the process."""
    assert not any("estimate" in line for line in lines(page(probed("input-bound"))))
    assert any("estimate" in line for line in lines(page(demo("input-bound"))))


def test_without_a_probe_it_says_how_to_get_one() -> None:
    """Dashes in its columns, no charts of it, and the command."""
    told = lines(page(demo("input-bound")))
    assert "for step time, alloc:  gpumon run -- python …" in line_of(told, "step")
    assert line_of(lines(page(demo("input-bound"), 120, 40)), "step").endswith("for step time and allocated memory")
    assert told[3].endswith(" no probe ─")
    assert not any(line.strip().startswith(("wait", "rate", "reserv", "alloc")) for line in told)
    assert line_of(told, "0  48213").split()[-6:] == ["–"] * 6


def test_memory_of_the_framework_stands_under_that_of_the_device() -> None:
    """What is reserved and how many times what is used; the floor between two steps."""
    told = lines(page(probed("fragmented"), 120, 40))
    assert "2.1× alloc" in line_of(told, "reserv")
    assert "floor 21.0 G" in line_of(told, "alloc")
    assert "of 80.0 G" in line_of(told, "device")
    even = lines(page(training(reserved_bytes=70 * GIB)))
    assert "+2.0 unused" in line_of(even, "reserv")


def test_the_charts_are_those_of_the_selected_rank() -> None:
    """The rule names it, and the cursor stands on it."""
    shown = probed("straggler")
    key = f"31879:{next(one.started_s for one in shown.window.last.processes if one.pid == 31879)}"
    told = lines(page(shown, 120, 40, process=key))
    assert told[3].endswith("charts: rank 2 ─")
    assert line_of(told, "wait").split()[1] == "43%"
    assert any(line.startswith("›■  2") for line in told)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (Sort(), "0 1 2 3"),
        (Sort("RANK", is_reversed=True), "3 2 1 0"),
        (Sort("WAIT"), "2 0 1 3"),
        (Sort("ALLOC"), "2 1 3 0"),
        (Sort("ALLOC", is_reversed=True), "0 3 1 2"),
        (Sort("CPU%", is_reversed=True), "2 3 0 1"),
    ],
)
def test_ranks_are_sorted_as_the_reader_likes(sort: Sort, order: str) -> None:
    """Largest first, ranks from 0 on; ties in rank order."""
    told = lines(page(probed("straggler"), sort=sort))
    assert [line[2:5].strip() for line in told[17:21]] == order.split()
    assert told[15].endswith(f"sort {sort.column} {'↓' if sort.is_descending else '↑'} ─")


def test_ranks_without_a_value_stay_behind() -> None:
    """A dash is neither the largest nor the smallest."""
    shown = training(3)
    members = job_ranks.members_of(shown, shown.window.jobs[0])
    silent = members[0]._replace(rank=None)
    for is_reversed in (False, True):
        ordered = job_ranks.in_order([silent, *members[1:]], Sort("BEAT", is_reversed=is_reversed))
        assert [one.number for one in ordered] == [1, 2, 0]


def test_the_selected_rank_of_many_stays_in_sight() -> None:
    """Sixteen ranks in few rows: a stretch with the selected one, and the count of the others."""
    shown = probed("many")
    last = shown.window.last.processes
    pids = shown.window.jobs[0].trainers
    key = next(f"{one.pid}:{one.started_s}" for one in last if one.pid == pids[-1])
    told = lines(page(shown, process=key))
    assert any(line.startswith("›  15") for line in told)
    assert any(" more: j k" in line for line in told)


def test_workers_are_letters_and_a_count_where_they_are_many() -> None:
    """Busy, on disk, asleep, gone."""
    crew = [worker(1, cpu_pct=90.0), worker(2, state="D"), worker(3, cpu_pct=1.0), worker(4, state="Z", cpu_pct=0.0)]
    for workers, letters in ((crew, " BDs! "), (crew * 3, " 6/12 ")):
        named = [worker(10 + number, cpu_pct=one.cpu_pct, state=one.state) for number, one in enumerate(workers)]
        mine = job(helpers={4242: tuple(one.pid for one in named)})
        shown = frame(snapshots(3, processes=[process(rank=0), *named], ranks=[rank()]), jobs=[mine])
        assert letters in line_of(lines(page(shown)), "0   0")


def test_a_rank_that_waits_and_one_that_is_blamed_say_so() -> None:
    """The note of a wide table: the rule, the wait for a batch, else the command."""
    blamed = alert(finding=finding("straggler", index=1, subject=Subject(kind="job", uuid=uuid(1), job="4242:1")))
    told = lines(page(frame_with(training(3), [blamed]), 140, 40))
    assert "straggler" in line_of(told, "1   1")
    assert "python train.py" in line_of(told, "2   2")
    waiting = lines(page(training(2, waiting_s=41.0), 140, 40))
    assert "waits for a batch for 41 s" in line_of(waiting, "0   0")


def frame_with(shown: Frame, alerts: list[Any]) -> Frame:
    """The same frame with other alerts."""
    return Frame(window=shown.window, headline=shown.headline, info=shown.info, alerts=tuple(alerts))


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1.0), (0.043, 0.05), (0.618, 1.0), (1.0, 1.0), (1.01, 2.0), (12.4, 20.0), (311.0, 500.0)]
)
def test_scales_climb_a_ladder(value: float, top: float) -> None:
    """1, 2, 5, 10: they seldom change."""
    assert rank_charts.ladder(value) == pytest.approx(top)


def test_keys_select_sort_and_open() -> None:
    """The rank that is to blame is chosen first; j and k follow the table's order; Enter opens its GPU."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        def cursor() -> str:
            return next(line for line in text(app) if line.startswith("›") and "›   job" not in line)[2:5].strip()

        await pilot.press("tab", "enter")
        assert cursor() == "2"
        await pilot.press("j", "j", "j")
        assert cursor() == "3"
        await pilot.press("home")
        assert cursor() == "0"
        await pilot.press("full_stop", "full_stop", "full_stop")
        assert "sort WAIT ↓" in "".join(text(app))
        await pilot.press("k")
        assert cursor() == "2"
        await pilot.press("r")
        assert "sort WAIT ↑" in "".join(text(app))
        await pilot.press("comma", "n", "p")
        assert "sort STEP ↓" in "".join(text(app))
        await pilot.press("end", "less_than_sign", "escape")
        assert type(app.screen).__name__ == "JobScreen"
        await pilot.press("enter")
        assert "GPU 3" in text(app)[0]
        await pilot.press("escape", "escape")
        assert type(app.screen).__name__ == "Overview"

    play(probed("straggler"), story)


def test_a_job_that_is_over_says_so() -> None:
    """The screen stays, and names the way back."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "enter")
        app.frame = frame(snapshots(3, processes=[]))
        app.draw()
        assert "this job is over   Esc back" in text(app)[0]
        await pilot.press("j", "n", "end", "full_stop")

    play(probed("straggler"), story)


def test_a_frame_that_changes_nothing_makes_the_same_rows() -> None:
    """Drawing twice gives equal rows, so that the board sends nothing; in ASCII every byte is below 128."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "enter")
        before = screen_rows(app)
        app.draw()
        assert all(a is b for a, b in zip(before, screen_rows(app), strict=True))
        assert all(line.isascii() for line in text(app))

    play(probed("straggler"), story, view=ViewState(tier="ascii", has_color=False), theme="mono")


def test_numbers_end_under_their_heads() -> None:
    """Every right-aligned column, and the words of a wide table begin where theirs do."""
    told = lines(page(probed("straggler"), 140, 40))
    y = next(y for y, line in enumerate(told) if "RANK GPU" in line)
    heads, row = told[y], told[y + 1]
    for head in ("RANK", "GPU", "PID", "CPU%", "STEP s", "WAIT", "ALLOC", "RESV", "RETRY", "BEAT", "P95 s"):
        end = heads.index(head) + len(head)
        assert row[end - 1] != " ", head
        assert row[end] == " ", head
    for head in ("MAIN", "WORKERS", "PHASE", "NOTE"):
        assert row[heads.index(head) - 1] == " ", head
        assert row[heads.index(head)] != " ", head
