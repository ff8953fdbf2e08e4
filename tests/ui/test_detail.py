"""The screen of one GPU: charts on one axis, facts, processes; at any size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

import gpumon
from builders import GIB, NOON, alert, finding, frame, gpu, host, job, process, rank, snapshot, snapshots, uuid, worker
from gpumon.model import Event
from gpumon.monitor import Frame
from gpumon.ui import plot
from gpumon.ui.app import GpumonApp
from gpumon.ui.panels.charts import Charts
from gpumon.ui.row import Row
from gpumon.ui.screens.detail import Page
from gpumon.ui.view import ViewState
from terminal import PtyProgram, python
from ui.stage import demo, lines, play, probed, screen_rows, style_at, text

GUTTER = 9


def page(shown: Frame, index: int = 0, width: int = 80, height: int = 24, **view: Any) -> list[Row]:
    """The rows of one GPU."""
    chosen = shown.window.last.gpus[index]
    return Page(shown, ViewState(gpu=chosen.uuid, **view), chosen, Charts(), width).rows(height)


def line_of(told: list[str], start: str) -> str:
    """The row that begins with a label."""
    return next(line for line in told if line.strip().startswith(start))


@pytest.mark.parametrize("scenario", ["throttled", "input-bound", "mig", "lost-gpu", "no-gpm", "idle"])
@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 16), (80, 24), (100, 30), (120, 40), (200, 60), (300, 3)])
def test_every_size_is_filled_exactly_and_shows_the_way_back(scenario: str, size: tuple[int, int]) -> None:
    """No row is wider than the screen or missing, and the last one names Esc."""
    width, height = size
    shown = demo(scenario)
    for index in {0, len(shown.window.last.gpus) // 2}:
        for options in ({}, {"crosshair": 7}, {"has_color": False, "tier": "half"}, {"scroll_blocks": 3}):
            told = lines(page(shown, index, width, height, **options))
            assert len(told) == height
            assert max(map(len, told)) <= width, (size, options)
            assert "Esc" in told[-1]


def test_eighty_by_twenty_four_holds_everything_in_order() -> None:
    """Title, headline, budget, temperature, clock, limiters, power, memory, axis, facts, process, keys."""
    told = lines(page(demo("throttled"), 5))
    starts = [
        "gpumon", "■ CRITICAL", "cause", "─ time budget", "100%", "", "0", "─ temperature", "100", "", "40",
        "─ SM clock", "1980", "", "990", "SW therm", "SW power", "HW/brake", "power", "memory", "", "limit", "rank 5",
        "?",
    ]  # fmt: skip
    assert [line.strip().startswith(start) for line, start in zip(told, starts, strict=True)] == [True] * 24


def test_the_values_beside_the_charts_are_those_of_the_newest_sample() -> None:
    """Temperature, clock, power, memory and utilization are written with their limits."""
    newest = gpu(
        utilization_pct=98.0, temperature_c=71.0, sm_clock_mhz=1605.0, power_w=512.4, memory_used_bytes=int(70.25 * GIB)
    )
    told = lines(page(frame(snapshots(60, gpus=[newest]))))
    assert told[5].endswith("98%       ")
    assert any(line.rstrip().endswith("71 °C") for line in told)
    assert any(line.rstrip().endswith("1605 MHz") for line in told)
    assert line_of(told, "power").rstrip().endswith("512/700W")
    assert line_of(told, "memory").rstrip().endswith("70.2/80.0G")


def test_what_is_missing_is_a_dash_and_never_zero() -> None:
    """A card that reports nothing but its name shows dashes and dots, at every row."""
    bare = gpu(
        utilization_pct=None, temperature_c=None, sm_clock_mhz=None, power_w=None, memory_used_bytes=None,
        memory_total_bytes=None, power_limit_w=None, power_default_limit_w=None, temperature_max_c=None,
        sm_clock_max_mhz=None, clocks_event_reasons=None, throttled_pct=None, performance_state=None,
    )  # fmt: skip
    told = lines(page(frame(snapshots(60, gpus=[bare]))))
    for label, value in (("SW therm", "–"), ("power", "– W"), ("memory", "– G")):
        assert line_of(told, label).rstrip().endswith(value)
    assert not any("0 °C" in line or "0 MHz" in line or " 0%" in line for line in told)


def test_facts_are_left_out_whole() -> None:
    """Where the facts do not fit side by side, no word of them is cut in two; what is unknown goes first."""
    fields = {"nvlinks_active": 18, "nvlinks_total": 18, "pcie_gen": 5, "pcie_width": 16, "ecc_uncorrected": 0}
    xid = Event(kind="xid", time_s=NOON, gpu_uuid=uuid(0), xid=79, text="fell off")
    for fan_pct, health in (
        (None, "ECC 0 · Xid 79 at 12:20 · P0 · fan –"),
        (61.0, "ECC 0 · Xid 79 at 12:20 · P0 · fan 61%"),
    ):
        card = gpu(fan_pct=fan_pct, power_limit_w=300.0, **fields)
        shown = frame([*snapshots(60, gpus=[card]), snapshot(NOON + 61, gpus=[card], events=(xid,))])
        told = lines(page(shown, width=160, height=40))
        assert line_of(told, "throttled").rstrip().endswith(health)
    told = lines(page(shown, width=120, height=40))
    assert line_of(told, "throttled").rstrip().endswith(" · P0")


def test_the_red_begins_at_the_minute_that_the_headline_names() -> None:
    """Budget, limiter band and the mark on the axis stand at the alert's onset."""
    shown = demo("throttled")
    rows = page(shown, 5, 120, 40)
    told = lines(rows)
    axis = next(line for line in told if line.count(":") >= 3 and "node07" not in line)
    mark = axis.index("■")
    band = line_of(told, "SW therm")
    assert abs(next(x for x, char in enumerate(band) if char in "░▒▓") - mark) <= 1
    budget = rows[told.index(next(line for line in told if line.strip().startswith("100%")))]
    first_red = next(x for x in range(GUTTER, 109) if "harm" in style_at(budget, x))
    assert abs(first_red - mark) <= 1
    assert style_at(rows[told.index(axis)], mark).endswith("harm")


def test_wide_screens_with_colour_lay_the_clock_over_the_temperature() -> None:
    """From 100 columns on there is one chart with both; narrower, colourless, or after ``o`` there are two."""
    shown = demo("throttled")
    assert sum("SM clock" in line for line in lines(page(shown, 5, 120, 40))) == 1
    assert "against  SM clock" in "".join(lines(page(shown, 5, 120, 40)))
    for width, options in ((80, {}), (120, {"has_color": False}), (120, {"is_overlaid": False})):
        told = lines(page(shown, 5, width, 40, **options))
        assert any(line.startswith("─ SM clock MHz") for line in told)


def test_the_limit_is_a_line_with_its_number() -> None:
    """The limit stands at its height, named at the left; columns at the limit are red."""
    rows = page(demo("throttled"), 5, 120, 40)
    at = next(y for y, line in enumerate(lines(rows)) if line.strip().startswith("lim 87"))
    assert style_at(rows[at], GUTTER + 5) == "harm"
    assert "─" in lines(rows)[at]
    assert style_at(rows[at], GUTTER + 80) == "harm"


def test_scales_are_fixed_and_open_downwards_only_when_needed() -> None:
    """40–100 °C and half to full clock; from 0 where the card is cooler or slower; to 110 for hot limits."""
    warm = lines(page(frame(snapshots(60))))
    assert line_of(warm, "40")
    assert line_of(warm, "990")
    cool = lines(page(frame(snapshots(60, gpus=[gpu(temperature_c=31.0, sm_clock_mhz=210.0)]))))
    assert [line.strip().split(" ")[0] for line in cool].count("0") == 3
    hot = lines(page(frame(snapshots(60, gpus=[gpu(temperature_max_c=105.0)]))))
    assert line_of(hot, "110")


def test_a_gap_is_a_gap_in_every_chart() -> None:
    """Without samples there are dots on the base line; no line or area runs through."""
    series = [*snapshots(200), *snapshots(200, start_s=NOON + 400)]
    series[200] = snapshot(NOON + 400, interval_s=201.0)
    told = lines(page(frame(series)))
    for label in ("0 ", "40 ", "990 ", "power", "memory"):
        line = line_of(told, label)
        assert line[GUTTER : GUTTER + 60].count("·") >= 15, line


def test_the_future_is_blank() -> None:
    """Right of now nothing is drawn, not even the dot of a missing sample."""
    told = lines(page(frame(snapshots(301))))
    columns = [line[GUTTER + 55 : GUTTER + 60].strip() for line in told[4:7]]
    assert columns == ["", "", ""]


def test_the_crosshair_tells_least_mean_and_greatest_of_its_column() -> None:
    """``←`` marks a column in every chart and writes its values in place of the facts."""
    series = [
        snapshot(
            NOON + second, [gpu(temperature_c=60.0 + second % 10, power_w=600.0)], interval_s=1.0 if second else None
        )
        for second in range(300)
    ]
    told = lines(page(frame(series), crosshair=3))
    readout = next(line for line in told if "min mean max" in line)
    assert "°C 60 64 69" in readout.replace("65", "64")
    assert "W 600" in readout
    assert sum("│" in line for line in told) >= 10


def test_n_shows_the_next_gpu_and_escape_ends_the_crosshair_first() -> None:
    """Keys of the detail screen on the real app."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "enter")
        assert "GPU 5" in text(app)[0]
        await pilot.press("n")
        assert "GPU 6" in text(app)[0]
        await pilot.press("p", "p")
        assert "GPU 4" in text(app)[0]
        await pilot.press("left", "left", "shift+left")
        assert app.view.crosshair == 7
        await pilot.press(*["left"] * 80)
        assert app.view.crosshair == 56  # the oldest column, and no further
        await pilot.press("escape")
        assert app.view.crosshair is None
        assert type(app.screen).__name__ == "DetailScreen"
        await pilot.press("escape")
        assert type(app.screen).__name__ == "Overview"

    play(demo("throttled"), story)


def test_span_keys_change_every_chart() -> None:
    """``+`` doubles the span; title and axis say so."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("enter", "plus")
        assert "20 min, 20 s/col" in text(app)[0]
        await pilot.press("minus", "minus", "minus", "minus", "minus")
        assert "1 min, 1 s/col" in text(app)[0]

    play(demo("throttled"), story)


def test_charts_cost_nothing_while_the_screen_is_not_shown() -> None:
    """Frames that come while another screen is on top make no chart."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        await pilot.press("a")
        before = plot.line.cache_info()
        for _ in range(3):
            app.call_later(app.take, demo("throttled"))
            await pilot.pause()
        assert plot.line.cache_info() == before
        await pilot.press("escape")
        assert plot.line.cache_info() != before

    play(demo("throttled"), story)


def inside(scenario: str, index: int = 0, width: int = 80, height: int = 24, **view: Any) -> list[str]:
    """The page of a GPU whose process carries a probe."""
    return lines(page(probed(scenario), index, width, height, **view))


@pytest.mark.parametrize("scenario", ["straggler", "hang", "fragmented"])
@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 16), (80, 24), (100, 30), (120, 40), (200, 60), (300, 3)])
def test_with_a_probe_every_size_is_filled_exactly_too(scenario: str, size: tuple[int, int]) -> None:
    """No row is wider than the screen or missing, and the last one names Esc."""
    for options in ({}, {"crosshair": 7}, {"has_color": False, "tier": "half"}, {"scroll_blocks": 3}):
        told = inside(scenario, 0, *size, **options)
        assert len(told) == size[1]
        assert max(map(len, told)) <= size[0], (size, options)
        assert "Esc" in told[-1]


def test_with_a_probe_memory_is_three_lines_over_step_and_wait() -> None:
    """Device, reserved, allocated, step, wait and what single steps tell; nothing else is lost at 80 by 24."""
    told = inside("input-bound")
    starts = [
        "gpumon", "■ CRITICAL", "cause", "─ time budget", "100%", "0", "─ temperature", "100", "40",
        "─ SM clock", "3105", "1552", "SW power", "power", "device", "reserv", "alloc", "step", "wait",
        "every 4th step stalls · p50 0.2", "", "limit", "48213", "?",
    ]  # fmt: skip
    assert [line.strip().startswith(start) for line, start in zip(told, starts, strict=True)] == [True] * 24
    assert line_of(told, "device").rstrip().endswith("19.8/24.0G")
    assert line_of(told, "reserv").rstrip().endswith("18.8 G")
    assert line_of(told, "wait").rstrip().endswith("%")
    assert "reserved 2.1× alloc" in "".join(inside("fragmented"))


def test_with_a_probe_the_budget_is_measured() -> None:
    """Wide screens say so; the word estimate goes where it does not hold, and is never cut."""
    assert inside("input-bound", width=120, height=40)[3].startswith("─ time budget useful")
    assert " of the last 10 min, measured ─" in inside("input-bound", width=120, height=40)[3]
    assert "estimate" not in inside("input-bound")[3]
    assert " of the last 10 min, estimate ─" in lines(page(demo("input-bound"), 0, 120, 40))[3]
    assert "estimat" not in inside("hang", 1)[3].replace("estimate", "")


def test_a_rank_that_stands_still_says_for_how_long() -> None:
    """Its step and wait are dashes, their past stays."""
    told = inside("hang", 1)
    assert line_of(told, "step").rstrip().endswith(" –")
    assert line_of(told, "no step for 6 min")
    assert "▄··" in line_of(told, "step")


def test_jax_without_a_line_of_its_own_is_said_to_be_unseen() -> None:
    """Nobody tells its steps: that is no program which has not done one yet."""
    unknown = {"step": None, "step_s": None, "data_wait_s": None, "phase": None, "heartbeat_age_s": None}
    for framework, words in (("jax", "steps not seen: gpumon.integrations.jax"), ("pytorch", "no step yet")):
        reports = [rank(framework=framework, **unknown)]
        shown = frame(snapshots(60, ranks=reports), jobs=[job()])
        assert any(words in line for line in lines(page(shown, height=40)))


def test_the_crosshair_reads_the_probes_charts_too() -> None:
    """Half a minute before the trouble the wait was nothing."""
    told = inside("input-bound", crosshair=50)
    assert line_of(told, "wait").rstrip().endswith(" 0%")
    assert line_of(told, "step").rstrip().endswith(" 0.245 s")


def test_a_probe_that_falls_silent_moves_nothing() -> None:
    """The sections stay where they are; the values are dashes and the past is there."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        before = text(app)
        history = list(snapshots(60, ranks=[rank()]))
        silent = [*history, *snapshots(5, start_s=NOON + 60)]
        app.frame = frame(silent, jobs=[job()])
        app.draw()
        after = text(app)
        assert [line[:8] for line in after[12:19]] == [line[:8] for line in before[12:19]]
        assert line_of(after, "step").rstrip().endswith(" –")
        assert line_of(after, "the probe has fallen silent")

    play(frame(snapshots(60, ranks=[rank()]), jobs=[job()]), story)


def test_a_lost_gpu_keeps_its_past() -> None:
    """Its values are dashes, its charts stop, the title says so."""
    told = lines(page(demo("lost-gpu"), 3))
    assert " · lost" in told[0]
    assert line_of(told, "power").rstrip().endswith("– W")
    assert line_of(told, "power")[GUTTER] == "▇"
    assert "·····" in line_of(told, "power")
    assert any("Xid 79 at" in line for line in told)


def test_a_mig_instance_shows_the_heat_of_its_card() -> None:
    """Power, heat and clocks are the parent's; the parent says who works on it."""
    shown = demo("mig")
    instance = lines(page(shown, 2))
    assert "GPU 0.1 · 2g.20gb" in instance[0]
    assert any("°C limit 87 of the card" in line for line in instance)
    assert "/700W" in line_of(instance, "power")
    assert any("3 MIG instances carry the work: n" in line for line in lines(page(shown, 0)))


def test_seconds_under_a_limiter_are_counted_over_the_run() -> None:
    """Half of each of 400 seconds is 200 s; a minute that has just begun counts only its own seconds."""
    limited = gpu(throttled_pct={"sw_power_cap": 0.0, "sw_thermal": 50.0, "hw_thermal": 0.0, "hw_power_brake": 0.0})
    told = lines(page(frame(snapshots(401, gpus=[limited])), width=120, height=40))
    assert "SW thermal 3 min · HW thermal 0 s · power brake 0 s this run" in line_of(told, "throttled")


def test_facts_show_what_is_and_what_could_be() -> None:
    """A slower link than possible, a lowered power limit, memory errors and Xids are named."""
    odd = gpu(
        pcie_gen=1, pcie_width=8, pcie_gen_max=4, pcie_width_max=16, power_limit_w=300.0, ecc_uncorrected=2,
        nvlinks_active=17, nvlinks_total=18,
    )  # fmt: skip
    series = list(snapshots(60, gpus=[odd]))
    series[30] = snapshot(
        NOON + 30, [odd], events=[Event(kind="xid", xid=31, gpu_uuid=uuid(0), time_s=NOON + 30, text="NVRM: Xid")]
    )
    rows = page(frame(series), width=120, height=40)
    told = lines(rows)
    assert "PCIe 1 ×8 of 4 ×16 · NVLink 17/18" in line_of(told, "limits")
    assert "power 300 W (default 700)" in line_of(told, "limits")
    assert "ECC 2 · Xid 31 at" in line_of(told, "throttled")
    health = rows[told.index(line_of(told, "throttled"))]
    assert any(style == "harm" and text.startswith("ECC 2") for text, style in health)


def test_processes_are_shown_with_their_workers_and_as_they_are_written() -> None:
    """The largest first; what is markup elsewhere is text here; those without room are counted."""
    trainer = process(
        90216, command="python [bold red]train[/] --lr 1", rank=5, gpu_sm_pct={uuid(0): 99.0}, cpu_pct=105.0
    )
    small = process(777, gpu_memory_bytes={uuid(0): GIB}, command="jupyter")
    workers = [worker(91000 + n, 90216, cpu_pct=90.0 if n < 3 else 2.0) for n in range(8)]
    training = job(trainers=(90216,), helpers={90216: tuple(range(91000, 91008))})
    shown = frame(snapshots(60, processes=[small, trainer, *workers]), jobs=[training])
    (line,) = [line for line in lines(page(shown)) if "90216" in line]
    assert "rank 5  90216 ana  76.0 G  SM 99%  CPU 105%  workers 3/8" in line
    assert line.endswith("  +1 more")
    wide = lines(page(shown, width=160, height=40))
    assert [line.split()[0] for line in wide if "ana" in line] == ["rank", "777"]
    assert any("python [bold red]train[/] --lr 1" in line for line in wide)


def test_no_process_says_why() -> None:
    """A GPU without processes says so; with foreign PIDs it says what to do."""
    told = lines(page(frame(snapshots(30, processes=[]))))
    assert any("no process on this GPU" in line for line in told)
    hidden = frame(snapshots(30, processes=[], host_=host(sees_host_pids=False)))
    assert any("PIDs belong to the host: run the container with --pid=host" in line for line in lines(page(hidden)))


def test_recovered_alerts_leave_a_grey_dot_on_the_axis() -> None:
    """A firing alert about this GPU marks its onset; one about another GPU does not; a recovered one is grey."""
    over = alert(state="resolved", since_s=NOON - 30.0, cleared_s=NOON, finding=finding(severity="critical"))
    other = alert(since_s=NOON - 60.0, finding=finding(index=1))
    shown = frame(snapshots(120, start_s=NOON - 120), alerts=[over, other])
    rows = page(shown)
    told = lines(rows)
    axis = next(y for y, line in enumerate(told) if line.count(":") >= 3 and "gpumon" not in line)
    assert "▲" not in told[axis]
    assert style_at(rows[axis], told[axis].index("·")) == "muted"


def test_without_blocks_the_lines_are_plain_characters() -> None:
    """On consoles without braille lines are stars; in ASCII every byte is below 128."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("5", "enter")
        told = text(app)
        assert all(line.isascii() for line in told)
        assert any("*****" in line for line in told)
        assert any(line.startswith("SW therm") and "TTTT" in line for line in told)

    play(demo("throttled"), story, view=ViewState(tier="ascii", has_color=False), theme="mono")


def test_old_values_are_grey() -> None:
    """When the driver is silent for three intervals the values beside the charts lose their colour."""
    rows = page(frame(snapshots(60, gpus=[gpu(age_s=30.0)])))
    told = lines(rows)
    power = rows[told.index(line_of(told, "power"))]
    assert style_at(power, 72) == "muted"


def test_a_frame_that_changes_nothing_makes_the_same_rows() -> None:
    """Drawing twice gives equal rows, so that the board sends nothing."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("enter")
        before = screen_rows(app)
        app.draw()
        assert all(a is b for a, b in zip(before, screen_rows(app), strict=True))

    play(demo("throttled"), story)


def test_the_real_program_opens_it_in_a_terminal_and_quits_from_it() -> None:
    """Under a pty, on the demo: Enter shows the charts, a resize redraws them, q ends with 0."""
    with PtyProgram(python("-W", "error", "-m", "gpumon", "--demo", "throttled"), width=120, height=40) as program:
        program.wait_for("GPU 5 throttles")
        program.type("5\r")
        program.wait_for("against  SM clock")
        program.resize(80, 24)
        shown = program.wait_for("─ SM clock MHz")
        assert "SW therm" in shown
        program.type("q")
        assert program.wait_for_exit(5.0) == 0


def test_plotext_is_loaded_with_the_first_detail_screen_only() -> None:
    """The program starts without it: it costs a quarter of a start and 20 MB; one file alone imports it."""
    code = "import sys, gpumon.ui.app; sys.exit('plotext' in sys.modules or 'gpumon.ui.screens.detail' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    users = [path.name for path in Path(gpumon.__file__).parent.rglob("*.py") if "import plotext" in path.read_text()]
    assert users == ["plot.py"]
