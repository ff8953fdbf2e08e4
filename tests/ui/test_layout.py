"""The overview as a whole: sizes, sections, stability, and which row is whose."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from scenes import HOT, NOW, budget, film, last, mono, texts, throttled, utc  # noqa: F401

from builders import GIB, alert, finding, gpu, host, job, process, uuid
from gpumon.model import Gpu
from gpumon.monitor import Frame, SourceInfo
from gpumon.ui.glyphs import ascii_text
from gpumon.ui.layout import Layout, Target, layout
from gpumon.ui.plan import plan
from gpumon.ui.view import ViewState, process_key

MOCKUPS = Path(__file__).parent / "mockups"
SIZES = [(1, 1), (7, 3), (20, 5), (33, 8), (40, 10), (59, 20), (60, 15), (70, 24), (79, 24), (80, 24), (80, 25),
         (100, 30), (109, 40), (110, 40), (118, 40), (120, 40), (140, 43), (180, 50), (200, 60), (250, 70)]  # fmt: skip


def _odd(count: int) -> Frame:
    """GPUs of which one is lost, one says nothing and the last one is split into two instances."""

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        cards = [gpu(index, power_limit_w=1200.0, memory_total_bytes=288 * GIB) for index in range(count)]
        if count > 2:
            cards[1] = gpu(1, is_lost=True, utilization_pct=None, power_w=None, temperature_c=None)
            nothing = dict.fromkeys(
                ("name", "utilization_pct", "memory_used_bytes", "memory_total_bytes", "power_w", "power_limit_w",
                 "power_default_limit_w", "temperature_c", "temperature_max_c", "sm_clock_mhz", "sm_clock_max_mhz",
                 "performance_state", "clocks_event_reasons", "throttled_pct", "age_s")
            )  # fmt: skip
            cards[2] = gpu(2, **nothing)
        parent = cards[-1]
        for number, profile in enumerate(("3g.40gb", "1g.10gb")):
            cards.append(
                gpu(number, uuid=f"MIG-{number}", mig_parent_uuid=parent.uuid, mig_profile=profile, power_w=None)
            )
        return tuple(cards)

    names = {"user": "训练用户", "command": "python 训练.py --data /数据"}
    return last(
        film(
            gpus_at,
            lambda _, __: budget(50.0, data=40.0),
            seconds=120.0,
            jobs=(job(trainers=(1, 2), gpu_uuids=(uuid(0),)), job(id="other", trainers=(3,))),
            processes=(process(1, **names), process(2, command=None), process(3, gpu_memory_bytes={uuid(0): None})),
        )
    )


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_every_size_is_filled_exactly(count: int) -> None:
    """Height rows of width cells each, in every size and tier, with odd GPUs, and never an exception."""
    frame = _odd(count)
    views = [ViewState(), mono(tier="ascii"), ViewState(tier="half", age_s=12.0, toast="x" * 300)]
    views += [ViewState(part="jobs", density=density) for density in ("panel", "R2", "R1", "cells")]
    for (width, height), view in itertools.product(SIZES, views):
        drawing = Layout()
        rows = drawing.rows(frame, view, width, height)
        assert len(rows) == height == len(drawing.targets)
        assert {cell_len(text) for text in texts(rows)} == {width}, (width, height, view)


@pytest.mark.parametrize(("width", "height"), SIZES[2:])
def test_the_last_row_names_the_way_out(width: int, height: int) -> None:
    """``q quit`` is on the screen in every size."""
    assert "q quit" in texts(layout(last(throttled()), ViewState(), width, height))[-1]


def _drawn(name: str) -> list[str]:
    return (MOCKUPS / f"{name}.txt").read_text(encoding="utf-8").splitlines()


def _shown(frame: Frame, view: ViewState, width: int, height: int) -> list[str]:
    return [row.rstrip() for row in texts(layout(frame, view, width, height))]


@pytest.mark.parametrize(("name", "width", "height"), [("eight-120x40", 120, 40), ("eight-80x24", 80, 24)])
def test_eight_gpus_read_as_designed(name: str, width: int, height: int) -> None:
    """Two lines a GPU with sparklines, or one with numbers: culprit loud, victims named after it."""
    view = mono(gpu=uuid(HOT), self_cpu_pct=0.4)
    assert _shown(last(throttled()), view, width, height) == _drawn(name)


@pytest.mark.parametrize(("width", "height"), [(40, 10), (20, 5)])
def test_tiny_screens_keep_headline_cells_and_quit(width: int, height: int) -> None:
    """A cell per GPU, its mark, the headline in few words, and the way out."""
    assert _shown(last(throttled()), mono(part="jobs"), width, height) == _drawn(f"eight-{width}x{height}")


def test_one_gpu_at_80x24_shows_all_signals() -> None:
    """The panel: fourteen lines, a budget in numbers that add up, the alert's mark among the events."""
    assert _shown(last(_starved()), mono(part="jobs"), 80, 24) == _drawn("one-80x24")


def test_ascii_has_the_same_columns_in_letters() -> None:
    """Every chart cell is ASCII; the board translates what words are left."""
    shown = [ascii_text(row) for row in _shown(last(_starved()), mono(part="jobs", tier="ascii"), 80, 24)]
    assert shown == _drawn("one-80x24-ascii")


def _starved() -> Iterator[Frame]:
    onset = NOW - 391.0

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        is_late = time_s > onset
        return (
            gpu(
                name="NVIDIA GeForce RTX 4090", utilization_pct=55.0 if is_late else 98.0, fan_pct=38.0,
                power_w=251.0 if is_late else 436.0, power_limit_w=450.0, temperature_c=54.0, temperature_max_c=83.0,
                memory_used_bytes=int(19.8 * GIB), memory_total_bytes=24 * GIB - 2**20, sm_clock_mhz=2745.0,
                sm_clock_max_mhz=3105.0, performance_state="P2", pcie_gen=4, pcie_width=16,
                throttled_pct={"sw_power_cap": 0.0 if is_late else 90.0, "sw_thermal": 0.0},
            ),
        )  # fmt: skip

    starved = alert(finding=finding("data-starved", severity="warning", confidence="likely"), since_s=onset)
    return film(
        gpus_at,
        lambda time_s, _: budget(56.0, data=44.0) if time_s > onset else budget(97.0),
        alerts=(starved,),
        seconds=571.0,
        step_s=1.0,
    )


def test_nothing_but_values_changes_from_minute_to_minute() -> None:
    """A minute later every label, rule and column is where it was; charts have moved by one block."""
    drawing = Layout()
    before, after = (texts(drawing.rows(last(throttled(end_s=NOW + later)), mono(), 120, 40)) for later in (0.0, 60.0))
    marks = 4
    assert before[marks].split() == after[marks].split()
    for old, new in zip(before[:marks] + before[marks + 1 :], after[:marks] + after[marks + 1 :], strict=True):
        for x, (was, now) in enumerate(zip(old, new, strict=True)):
            if was != now:
                assert x >= 5, (x, old, new)
                assert was in "0123456789:▁▂▃▄▅▆▇█░▒▓· ", (x, old, new)


def test_an_unchanged_row_is_the_same_object() -> None:
    """The board compares rows by identity: a second frame without news costs nothing."""
    frames = list(throttled(seconds=300.0))
    drawing = Layout()
    drawing.rows(frames[-2], ViewState(), 120, 40)
    first = drawing.rows(frames[-1], ViewState(), 120, 40)
    again = drawing.rows(frames[-1], ViewState(), 120, 40)
    assert sum(one is other for one, other in zip(first, again, strict=True)) >= 30


def test_charts_change_only_when_a_column_closes() -> None:
    """Within half a bin the very same pieces are handed out."""
    frames = list(throttled(step_s=1.0, seconds=60.0, end_s=NOW + 7.0))
    drawing = Layout()
    charts = []
    for frame in frames[-20:]:
        drawing.rows(frame, ViewState(), 120, 40)
        charts.append(drawing._charts.timeline(uuid(0), 40, 2))
    changes = sum(one is not other for one, other in itertools.pairwise(charts))
    assert 2 <= changes <= 3  # 20 s: one column closes, one or two are half full


def test_slow_numbers_are_means_of_two_seconds_from_five_gpus_on() -> None:
    """With eight GPUs power moves every other second and says what it was on average."""

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        return tuple(gpu(index, power_w=500.0 + 10.0 * (time_s % 10.0)) for index in range(8))

    drawing = Layout()
    frames = film(gpus_at, lambda *_: None, seconds=6.0, step_s=1.0, end_s=NOW - 1.0)
    shown = [texts(drawing.rows(frame, ViewState(), 80, 24))[4][51:56] for frame in frames]
    assert shown == ["  540", "  540", "  555", "  555", "  575", "  575", "  545"]


def test_a_lost_gpu_keeps_its_row_and_its_past() -> None:
    """Every number of it is a dash at once; its chart goes on as a gap."""

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        return (gpu(0), gpu(1, is_lost=time_s > NOW - 120.0), gpu(2), gpu(3))

    rows = texts(layout(last(film(gpus_at, lambda *_: budget(97.0))), mono(density="R1"), 80, 30))
    assert rows[5].rstrip() == " ■ 1 lost          – ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇······     –   –    –    –   –"


def test_stale_numbers_turn_grey_and_the_headline_says_so() -> None:
    """No frame for twelve seconds: badge, age, and nothing that looks new."""
    view = ViewState(age_s=12.0)
    rows = layout(last(throttled()), view, 80, 24)
    assert texts(rows)[1].startswith(" ? STALE  no new sample for 12 s; numbers are from 12:20:31")
    assert texts(rows)[4].startswith("›  0 stale")
    assert {style for text, style in rows[4] if text.strip() in {"540", "61", "1785", "76.1"}} == {"muted"}


@pytest.mark.parametrize(
    ("phase", "shares", "word"),
    [
        ("start", None, "3g start"),
        ("train", budget(60.0, throttled=30.0), "3g slowed"),
        ("train", budget(60.0, data=30.0), "3g data"),
        ("train", budget(97.0), "3g busy"),
        ("pause", budget(0.0), "3g paused"),
        ("stall", budget(0.0), "3g stalled"),
    ],
)
def test_words_fit_beside_a_mig_profile(phase: Any, shares: dict[str, float] | None, word: str) -> None:
    """No word is cut: ten cells are a profile and seven letters."""
    parent = gpu(0, utilization_pct=None)
    instance = gpu(0, uuid="MIG-a", mig_parent_uuid=parent.uuid, mig_profile="3g.40gb")
    training = job(gpu_uuids=("MIG-a",), trainers=(7,), phase=phase)
    trainer = process(7, (), gpu_memory_bytes={"MIG-a": GIB})
    frame = last(film(lambda _: (parent, instance), lambda *_: shares, jobs=(training,), processes=(trainer,)))
    (row,) = [row for row in texts(layout(frame, mono(density="R1"), 80, 24)) if row.startswith("  .0 ")]
    assert row[5:16] == word.ljust(10) + " "


def test_a_silent_gpu_turns_its_own_numbers_grey() -> None:
    """Its row and what the driver says of its process; other GPUs, the host and CPU time stay bright."""

    def gpus_at(_: float) -> tuple[Gpu, ...]:
        return (gpu(0, age_s=40.0), gpu(1))

    processes = (process(7, (0,), gpu_sm_pct={uuid(0): 98.0}), process(8, (1,), gpu_sm_pct={uuid(1): 98.0}))
    jobs = tuple(job(id=str(pid), gpu_uuids=(uuid(at),), trainers=(pid,)) for at, pid in enumerate((7, 8)))
    frame = last(film(gpus_at, lambda *_: budget(97.0), jobs=jobs, processes=processes))
    rows = layout(frame, ViewState(density="R1"), 80, 24)
    styles = [{text.strip(): style for text, style in row if text.strip()} for row in rows]
    assert [styles[y]["640"] for y in (4, 5)] == ["muted", ""]
    (silent,) = [row for row in styles if "7" in row]
    (other,) = [row for row in styles if "8" in row]
    assert [row["76.0G   98"] for row in (silent, other)] == ["muted", ""]
    assert [row["60"] for row in (silent, other)] == ["", ""]
    assert not any("muted" in style for text, style in rows[8] if text.strip().endswith("%"))


def test_everything_turns_grey_while_no_frame_comes() -> None:
    """Host and jobs too."""
    rows = layout(last(throttled()), ViewState(age_s=12.0), 120, 40)
    starts = [text[:8] for text in texts(rows)]
    for row in rows[starts.index("─ HOST 9") : starts.index("─ ALERTS")]:
        assert {style for text, style in row if text.strip()} <= {"muted", "rule"}


def test_mig_instances_have_their_own_use_and_share_the_rest() -> None:
    """The parent carries heat and clocks; an instance's cells there are empty, not missing."""

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        parent = gpu(0, utilization_pct=None)
        instances = (
            gpu(0, uuid="MIG-a", mig_parent_uuid=parent.uuid, mig_profile="3g.40gb", power_w=None),
            gpu(1, uuid="MIG-b", mig_parent_uuid=parent.uuid, mig_profile="2g.20gb", utilization_pct=None),
        )
        return (parent, *instances)

    def budget_at(_: float, one: Gpu) -> dict[str, float] | None:
        return budget(97.0) if one.uuid == "MIG-a" else None

    rows = [row.rstrip() for row in texts(layout(last(film(gpus_at, budget_at)), mono(density="R1"), 80, 24))]
    assert rows[4:7] == [
        "›  0 MIG ×2        – 2 instances share heat, clocks  640  62 1755 76.0",
        "  .0 3g busy     98% ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇                76.0  97",
        "  .1 2g –          – ·····························                76.0   –",
    ]


def test_scrolled_gpus_are_counted_below_the_rows() -> None:
    """An override that does not fit scrolls, keeps the selected GPU in sight and counts what is wrong."""
    frame = last(throttled(16))
    drawing = Layout()
    rows = texts(drawing.rows(frame, mono(density="R2"), 80, 24))
    below = next(row for row in rows if "more" in row)
    assert below.startswith(" ↓ ")
    assert "more" in below
    assert drawing.target(4) == Target("gpus", uuid(0))
    end = texts(drawing.rows(frame, mono(density="R2", gpu=uuid(15)), 80, 24))
    assert any(row.startswith("› 15") for row in end)
    assert any("↑" in row and "1 ■" in row for row in end)


def test_every_selectable_row_names_its_subject() -> None:
    """Rows of a GPU, a process and an alert give what a click or Enter needs."""
    frame = last(throttled())
    drawing = Layout()
    drawing.rows(frame, ViewState(), 120, 40)
    assert [drawing.target(y) for y in (5, 6, 15)] == [Target("gpus", uuid(index)) for index in (0, 0, HOT)]
    first = frame.window.last.processes[0]
    assert drawing.target(27) == Target("jobs", process_key(first))
    assert drawing.target(36) is not None
    assert drawing.target(36).part == "alerts"  # type: ignore[union-attr]
    assert drawing.target(0) is None
    assert drawing.target(39) is None
    assert drawing.target(99) is None


@pytest.mark.parametrize(
    ("count", "width", "height", "density"),
    [
        (1, 80, 24, "panel"), (2, 120, 40, "panel"), (8, 120, 40, "R2"), (8, 80, 24, "R1"), (8, 200, 60, "R2"),
        (16, 120, 40, "R1"), (16, 80, 24, "R1"), (16, 80, 20, "cells"), (4, 80, 24, "R2"), (8, 40, 10, "cells"),
        (8, 39, 10, "tiny"), (8, 20, 5, "tiny"), (0, 80, 24, "R2"), (1, 60, 24, "R1"), (64, 80, 24, "cells"),
    ],
)  # fmt: skip
def test_the_richest_density_that_fits_is_chosen(count: int, width: int, height: int, density: str) -> None:
    """By number of GPUs and size."""
    assert plan(count, width, height).density == density


@pytest.mark.parametrize(
    ("count", "width", "height", "lines"),
    [(8, 120, 40, 2), (8, 120, 49, 3), (8, 200, 60, 4), (4, 120, 40, 4), (16, 200, 60, 2), (4, 80, 24, 2)],
)
def test_tall_screens_give_each_gpu_more_lines(count: int, width: int, height: int, lines: int) -> None:
    """Jobs get a row for each rank and alerts four; what is left makes the charts taller."""
    rows = plan(count, width, height)
    assert (rows.lines, rows.gpus) == (lines, lines * count)
    assert sum((rows.title, rows.headline, rows.heads, rows.gpus, rows.axis, rows.host, rows.jobs, rows.alerts)) <= (
        height - 1
    )


def test_four_lines_a_gpu() -> None:
    """State, power and temperature begin above, budget, memory and clock in the middle; each chart has its half."""
    frame = last(throttled())
    rows = [row.rstrip() for row in texts(layout(frame, mono(), 200, 60))]
    assert rows[5].startswith("›  0 waits on 5 100% ")
    assert "  540/700 ▇" in rows[5]
    assert rows[5].endswith("▄    61")  # 30 °C above the base of 30: below the upper half
    assert rows[6].startswith(" " * 21 + "█")
    assert rows[7].startswith("     ▇▇▇▇▇▇▇▇░░  76% █")
    assert "76.1/79.6 ▇" in rows[7]
    assert "1785 ▆" in rows[7]
    assert rows[8].startswith(" " * 21 + "█")
    assert rows[9].startswith("   1 waits on 5 ")
    jobs = next(y for y, row in enumerate(rows) if row.startswith("─ JOBS"))
    alerts = next(y for y, row in enumerate(rows) if row.startswith("─ ALERTS"))
    assert all(rows[jobs:alerts])


def test_sections_stand_still_whatever_runs_and_fires() -> None:
    """Jobs that end and alerts that come move nothing."""
    quiet = throttled(alerts=(), jobs=(), processes=())
    busy, empty = (texts(layout(last(frames), mono(), 120, 40)) for frames in (throttled(), quiet))
    for title in ("─ HOST", "─ JOBS", "─ ALERTS"):
        places = [[row.startswith(title) for row in rows].index(True) for rows in (busy, empty)]
        assert places[0] == places[1]


def test_without_a_process_or_an_alert_the_screen_says_so() -> None:
    """The exact sentences of the empty states."""
    frame = last(throttled(alerts=(), jobs=(), processes=(), abstained=()))
    rows = [row.rstrip() for row in texts(layout(frame, mono(), 120, 40))]
    assert " No job is using these GPUs. Start one; it appears here within 2 s." in rows
    assert " No alert in 10 min." in rows


def test_host_pids_are_explained() -> None:
    """Inside a PID namespace the table says how to see processes."""
    frame = last(throttled(jobs=(), processes=(), host=host(sees_host_pids=False)))
    rows = [row.rstrip() for row in texts(layout(frame, mono(), 120, 40))]
    assert " PIDs belong to the host: run the container with --pid=host to see processes" in rows


def test_a_demo_is_labelled_in_the_title_whatever_the_width() -> None:
    """The badge stays when everything else goes."""
    frame = last(throttled(info=SourceInfo(kind="demo", name="throttled")))
    wide = layout(frame, ViewState(), 120, 40)[0]
    assert texts((wide,))[0].startswith(" gpumon  DEMO  simulated GPUs · scenario throttled ")
    assert (" DEMO ", "bold reverse accent") in wide
    for width, height in ((200, 60), (80, 24), (60, 20), (40, 10)):
        assert "DEMO" in texts(layout(frame, ViewState(), width, height))[0]


def test_columns_that_no_card_reports_are_left_out_and_stay_once_seen() -> None:
    """No power at the start: no column; a value that goes missing later is a dash."""

    def silent(power_w: float | None, later_w: float | None) -> Iterator[Frame]:
        def gpus_at(time_s: float) -> tuple[Gpu, ...]:
            return tuple(gpu(index, power_w=power_w if time_s < NOW else later_w) for index in range(8))

        return film(gpus_at, lambda *_: budget(97.0), seconds=20.0)

    never = layout(last(silent(None, None)), ViewState(), 80, 24)
    assert texts(never)[3].rstrip().endswith("°C  MHz  GiB use%")
    assert " W " not in texts(never)[3]
    drawing = Layout()
    for frame in silent(640.0, None):
        rows = drawing.rows(frame, ViewState(), 80, 24)
    assert texts(rows)[4][51:56] == "    –"


def test_a_big_card_widens_its_columns_at_the_start() -> None:
    """1200 W and 288 GiB fit beside the charts."""
    frame = _odd(1)
    rows = texts(layout(frame, ViewState(density="R2"), 120, 40))
    assert "640/1200" in rows[5]
    assert " 76.0/288.0 " in rows[7]
