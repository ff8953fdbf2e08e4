"""The log of alerts and the diagnosis of the selected one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from textual.pilot import Pilot

from builders import NOON, alert, finding, frame, snapshots, uuid
from gpumon.alerts import Headline
from gpumon.model import Abstention, Alert, Cost, Evidence, Subject
from gpumon.monitor import Frame
from gpumon.rules import RULES
from gpumon.ui.app import GpumonApp
from gpumon.ui.view import ViewState
from ui.stage import demo, lines, play, screen_rows, style_at, text


def framed(*alerts: Alert, abstained: tuple[Abstention, ...] = (), seconds: int = 130) -> Frame:
    """A frame with these alerts, the first one in the headline."""
    first = alerts[0] if alerts else None
    headline = None
    if first is not None:
        headline = Headline(state="warning", text=first.finding.summary, alert=first, since_s=first.since_s)
    made = frame(snapshots(seconds, start_s=NOON - seconds + 1), alerts=alerts, headline=headline)
    return msgspec.structs.replace(made, abstained=abstained)


RECOVERED = alert(
    state="resolved", since_s=NOON - 2880.0, cleared_s=NOON - 2700.0,
    finding=finding("data-starved", summary="GPU 0 waits for data 41% of the time", severity="warning"),
)  # fmt: skip


def test_the_log_stands_under_its_heads() -> None:
    """Since, lasted, where, rule and what begin where their heads say; the selected row is marked and bold."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        told = text(app)
        head = told[4]
        first, second = told[5], told[6]
        assert first[head.index("SINCE") :].startswith("12:14")
        assert first[: head.index("LASTED") + 6].endswith(" 6 min")
        assert first[head.index("WHERE") :].startswith("GPU 0 ")
        assert first[head.index("RULE") :].startswith("sw-thermal ")
        assert first[head.index("WHAT") :].rstrip() == "throttles at its temperature limit"
        assert first.startswith("›▲")
        assert second.startswith(" ·")
        assert second[: head.index("LASTED") + 6].endswith(" 3 min")
        assert second[head.index("WHAT") :].startswith("recovered; waits for data 41%")
        assert style_at(screen_rows(app)[6], head.index("RULE")) == "muted"
        assert "1 firing · 1 recovered" in told[3]

    play(framed(alert(), RECOVERED), story)


def test_the_evidence_tells_now_was_and_what_it_is_judged_by() -> None:
    """The thermal diagnosis of the demo: numbers under their heads, red sparks from the onset on."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("e")
        told, rows = text(app), screen_rows(app)
        head_y = next(y for y, line in enumerate(told) if line.startswith(" evidence"))
        head = told[head_y]
        clock_y = next(y for y, line in enumerate(told) if line.strip().startswith("SM clock MHz"))
        now, was = head.index("NOW") + 3, head.index("WAS") + 3
        assert 1100 < int(told[clock_y][now - 6 : now]) < 1250
        assert 1700 < int(told[clock_y][was - 6 : was]) < 1800
        assert told[clock_y][head.index("JUDGED") :].rstrip() == "itself when cool"
        assert style_at(rows[clock_y], 19).startswith("clock")
        assert style_at(rows[clock_y], 35) == "harm"
        siblings = next(line for line in told if "siblings" in line)
        assert "59–6" in siblings[: now + 1]

    play(demo("throttled"), story)


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_name_in_the_evidence_never_runs_into_its_value(width: int) -> None:
    """Names widen their column as far as there is room, then are clipped; a text goes on beneath itself."""
    long = finding(
        "xid",
        evidence=(
            Evidence(name="step time since it is there", value=612.0, unit="ms", was=430.0, judged_by="before"),
            Evidence(name="memory of trainer and workers (PSS)", value=93.0, unit="%", judged_by="≥ 90 %"),
            Evidence(name="the driver's line", value="Xid 31 on GPU 0: " + "MMU fault " * 12 + "the end"),
            Evidence(name="CUDA runtime of the program and more", value="13.0 of libcudart.so", was="12.8 or so"),
        ),
    )

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        told = text(app)
        at = next(y for y, line in enumerate(told) if line.startswith(" evidence"))
        head = told[at]
        now = head.index("NOW") + 3
        assert told[at + 1].startswith("  step time since it is t" + ("… " if width == 80 else "here ms "))
        assert told[at + 1][now - 5 : now] == "  612"
        assert told[at + 2].startswith(
            "  memory of trainer and w… " if width == 80 else "  memory of trainer and workers (PSS) "
        )
        assert told[at + 2][now - 5 : now] == "  93%"
        line = "".join(one.strip() + " " for one in told[at + 3 :])
        assert told[at + 3][: head.index("NOW")].startswith("  the driver's line  ")
        assert "  Xid 31 on GPU 0: MMU fault" in told[at + 3]
        assert ("MMU fault " * 12 + "the end") in line
        assert "CUDA runtime of the program and more  13.0 of libcudart.so, was 12.8 or so" in "\n".join(told)

    play(framed(alert(finding=long)), story, size=(width, 40))


def test_fixes_are_numbered_and_wrapped_under_their_text() -> None:
    """A long fix continues under its own first letter."""
    long = finding(fixes=("word " * 40, "nvidia-smi -i 5 -pl 600"))

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        told = text(app)
        first = next(y for y, line in enumerate(told) if line.startswith(" fix   1 word"))
        assert told[first + 1].startswith("         word")
        assert any(line.startswith("       2 nvidia-smi -i 5 -pl 600") for line in told)

    play(framed(alert(finding=long)), story)


def test_what_could_not_be_judged_is_told_with_its_rule() -> None:
    """An abstention of the selected alert's rule is in its diagnosis; one of another rule is not."""
    missing = Abstention(rule="sw-thermal", because="memory temperature: not reported by this card")
    other = Abstention(rule="tensor-cores-idle", because="GPM not supported on this GPU")

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        joined = "\n".join(text(app))
        assert " not read  memory temperature: not reported by this card" in joined
        assert "GPM" not in joined

    play(framed(alert(), abstained=(missing, other)), story)


def test_no_alert_yet_says_for_how_long_and_what_was_not_judged() -> None:
    """The exact sentence, and Enter lists the rules with what they missed."""
    silent = tuple(Abstention(rule=rule, because="no counter") for rule in ("a-rule", "b-rule", "b-rule", "c-rule"))

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        assert " No alert in 10 min. Rules that could not judge: 3 (Enter lists why)." in [
            line.rstrip() for line in text(app)
        ]
        await pilot.press("enter")
        joined = "\n".join(text(app))
        assert " a-rule          no counter" in joined
        assert " b-rule          no counter (2 GPUs)" in joined

    play(framed(abstained=silent, seconds=620), story)


def test_nothing_unjudged_is_not_mentioned() -> None:
    """Without abstentions the sentence ends after the time."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        assert " No alert in 10 min." in [line.rstrip() for line in text(app)]

    play(framed(seconds=620), story)


def test_enter_opens_the_gpu_and_escape_comes_back() -> None:
    """From an alert to the GPU that it is about, and back to the alerts."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "enter")
        assert "GPU 5" in text(app)[0]
        await pilot.press("escape")
        assert "› alerts" in text(app)[0]

    play(demo("throttled"), story)


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_e_again_shows_the_rules_documentation(rule: str) -> None:
    """Every rule can be read on the screen under its four headings; PgDn reaches the end."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "e")
        seen: list[str] = []
        for _ in range(12):
            seen += text(app)
            await pilot.press("pagedown")
        for heading in ("What it sees", "Why it matters", "What to do", "When it is wrong"):
            assert any(line.strip() == heading for line in seen), heading
        assert any(f"gpumon explain {rule}" in line for line in seen)
        await pilot.press("e")
        assert not any("What it sees" in line for line in text(app)[:8])

    play(framed(alert(finding=finding(rule))), story)


def test_down_selects_the_next_alert_and_the_diagnosis_follows() -> None:
    """The selection moves in the log; below it is the diagnosis of that alert."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "down")
        told = text(app)
        assert told[6].startswith("›·")
        assert any(line.startswith("─ data-starved GPU 0 · warning") for line in told)

    play(framed(alert(), RECOVERED), story)


def test_mute_offers_an_hour_recovery_or_the_run() -> None:
    """The chosen time is what the fold gets, for rule and subject."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "m")
        assert any("›1 h    until it recovers    this run    cancel" in line for line in text(app))
        await pilot.press("enter")
        (mute,) = app.mutes.mutes
        assert (mute.rule, mute.subject, mute.until_s, mute.until_recovered) == (
            "sw-thermal", uuid(0), NOON + 3600.0, False,
        )  # fmt: skip
        assert " sw-thermal muted: 1 h" in text(app)[2]
        await pilot.press("m", "right", "enter")
        (mute,) = app.mutes.mutes
        assert mute.until_recovered

    play(framed(alert()), story)


def test_a_critical_alert_cannot_be_muted_beyond_its_recovery() -> None:
    """No ``this run`` for critical ones; even an hour ends with the trouble."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "m")
        assert not any("this run" in line for line in text(app))
        await pilot.press("enter")
        assert app.mutes.mutes[0].until_recovered

    play(framed(alert(finding=finding(severity="critical"))), story)


def test_cancel_and_escape_mute_nothing() -> None:
    """Leaving the question changes nothing; other keys wait until it is answered."""

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a", "m", "a", "question_mark")
        assert type(app.screen).__name__ == "MuteScreen"
        await pilot.press("escape", "m", "right", "right", "right", "right", "enter")
        assert app.mutes.mutes == ()
        assert type(app.screen).__name__ == "AlertsScreen"

    play(framed(alert()), story)


def test_a_muted_alert_says_until_when_and_can_speak_again() -> None:
    """The log shows ``m`` and the time; ``m`` offers to end it."""
    muted = alert(muted_until_s=NOON + 3600.0)

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        assert text(app)[5].startswith("›m")
        assert "muted until 13:20; throttles" in text(app)[5]
        await pilot.press("m", "enter")
        assert " sw-thermal speaks again" in text(app)[2]

    play(framed(muted), story)


def test_text_of_a_finding_is_never_markup() -> None:
    """Brackets in what a rule says, with a process's name in it, are shown as they are."""
    told = finding(
        summary="[red]job[/] of [@click=app.quit]x[/] waits",
        fixes=("kill [bold]1[/]",),
        subject=Subject(kind="job", job="x"),
    )

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        joined = "\n".join(text(app))
        assert "[red]job[/] of [@click=app.quit]x[/] waits" in joined
        assert "kill [bold]1[/]" in joined

    play(framed(alert(finding=told)), story)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (60, 16), (80, 24), (120, 40), (200, 60)])
def test_every_size_is_filled(size: tuple[int, int]) -> None:
    """The diagnosis is cut, not the way back; what is cut is said."""
    width, height = size
    many = [alert(since_s=NOON - 60.0 * n, finding=finding(index=n)) for n in range(12)]
    rich = finding(
        evidence=(
            Evidence(name="SM clock", value=1170.0, unit="MHz", was=1755.0, judged_by="itself", field="sm_clock_mhz"),
            Evidence(name="story", value="NVRM: Xid (PCI:0000:38:00): 79, pid='<unknown>'"),
            Evidence(name="half", value=0.5, unit="%"), Evidence(name="unknown", value=None),
        ),
        cost=Cost(lost_pct=33.0), fixes=("one " * 30, "two"),
    )  # fmt: skip

    async def story(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("a")
        told = lines(screen_rows(app))
        assert len(told) == height
        assert all(len(line) == width for line in told)
        assert "Esc" in told[-1]
        if size == (80, 24):
            assert any("more rows: PgDn" in line for line in told)

    play(framed(alert(finding=rich), *many), story, size=size, view=ViewState())
