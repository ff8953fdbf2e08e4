"""Which parts the benchmark has, and which targets each of them judges."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench.cost import contenders, effect, growth, start, steady, unseen
from tests.bench.cost.box import Box, plain_environment
from tests.bench.cost.contenders import BARE, GPUMON, HOUR_S, IDLE
from tests.bench.cost.report import Line, Spread, judged, ratio, spread

NVTOP_TWICE_PCT = 0.6
"""Where nvtop is not installed: twice the 0.27–0.31 % of a core that it took on this work."""
_RULES = Path(__file__).with_name("programs") / "rules_at_work.py"

Found = tuple[str, list[Line]]


class Effort(NamedTuple):
    """How long to measure."""

    rounds: int
    seconds: float

    def words(self) -> str:
        """For the head of the report."""
        return f"{self.rounds} rounds of {self.seconds:g} s, medians (least–most)"


def _tell(text: str) -> None:
    sys.stderr.write(f"  {text}\n")


def start_up(effort: Effort) -> Found:
    """First frame, ``once``, ``--version``."""
    count = 3 * effort.rounds
    with Box() as box:
        opened = start.screens([GPUMON, IDLE, *contenders.peers()], box, count)
        ended = start.verbs(box, count)
    rows = ["| | wall s | CPU s |", "|---|---|---|"]
    rows += [f"| {name} | {one.wall_s.text(3)} | {one.cpu_s.text(3)} |" for name, one in (opened | ended).items()]
    own, idle = opened[GPUMON.name], opened[IDLE.name]
    return "\n".join(rows), [
        judged("first frame, CPU, against an idle Textual app", ratio(own.cpu_s, idle.cpu_s), 1.2, " ×"),
        judged("first frame, wall", own.wall_s, 0.45, " s"),
        judged("`gpumon once`", ended["gpumon once"].wall_s, 0.2, " s"),
        judged("`gpumon --version`", ended["gpumon --version"].wall_s, 0.05, " s", 3),
    ]


def open_screen(effort: Effort) -> Found:
    """CPU, bytes, driver calls, memory and the footer, beside the peers."""
    others = contenders.peers()
    with Box() as box:
        found = steady.rounds([GPUMON, *others, IDLE, BARE], box, effort.rounds, effort.seconds, _tell)
        later = steady.run_once(GPUMON, box, 5.0, 2 * HOUR_S)
    own, idle = found[GPUMON.name], found[IDLE.name]
    cpu = steady.cpu_of(own)
    uss = spread(cost.uss_mib for cost in own)
    said = spread(cost.own_cpu_pct / cost.cpu_pct for cost in own if cost.own_cpu_pct is not None)
    lines = []
    if nvitop := found.get("nvitop"):
        lines += [
            judged("CPU, screen open, against nvitop", ratio(cpu, steady.cpu_of(nvitop)), 0.1, " ×"),
            judged(
                "bytes to the terminal, against nvitop",
                ratio(spread(cost.bytes_per_s for cost in own), spread(cost.bytes_per_s for cost in nvitop)),
                1.0,
                " ×",
            ),
            judged(
                "driver calls, against nvitop",
                ratio(spread(cost.calls_per_s for cost in own), spread(cost.calls_per_s for cost in nvitop)),
                1.0,
                " ×",
            ),
        ]
    nvtop = found.get("nvtop")
    lines += [
        judged("CPU, against nvtop", ratio(cpu, steady.cpu_of(nvtop)), 2.0, " ×")
        if nvtop
        else judged("CPU, against what nvtop took elsewhere", cpu, NVTOP_TWICE_PCT, " %"),
        judged("memory after an hour, against an idle Textual app",
               ratio(uss, spread(cost.uss_mib for cost in idle)), 1.3, " ×"),
        judged("memory after two hours, against one", Spread((later.uss_mib / uss.middle,)), 1.05, " ×"),
    ]  # fmt: skip
    if said.readings:
        is_met = 0.8 <= said.middle <= 1.2
        lines.append(Line("CPU as the footer says, against measured", f"{said.text()} ×", "0.8–1.2 ×", is_met))
    return steady.table(found), lines


def more_gpus(effort: Effort) -> Found:
    """1 → 16 GPUs."""
    few, many, growth_ = growth.with_gpus(effort.rounds, effort.seconds, _tell)
    most = 0.6 * growth.MANY / growth.FEW
    what = f"CPU from {growth.FEW} GPU ({few.text()} %) to {growth.MANY} ({many.text()} %)"
    return "", [judged(what, growth_, most, " ×")]


def strangers(effort: Effort) -> Found:
    """Thousands of processes that hold no GPU."""
    count, found = growth.with_strangers(effort.rounds, effort.seconds, _tell)
    return "", [judged(f"CPU beside {count} unrelated processes, against none", found, 1.2, " ×")]


def nobody_looks(effort: Effort) -> Found:
    """A stalled terminal, a hidden window."""
    with Box() as box:
        stuck = unseen.stalled(box, effort.seconds)
        hidden = unseen.hidden(box, effort.seconds)
    lines = [
        judged("CPU on a stalled terminal, against one that is read", _against(stuck), 1.05, " ×"),
        judged("`q` on a stalled terminal", Spread((stuck.quit_s or 0.0,)), 1.0, " s"),
    ]
    if hidden is not None:
        lines.append(judged("CPU in a hidden tmux window, against a visible one", _against(hidden), 1.1, " ×"))
    return "", lines


def _against(found: unseen.Unseen) -> Spread:
    return Spread((found.unseen_pct / found.seen_pct,))


def busy_job(effort: Effort) -> Found:
    """The A/B beside a loop that keeps every core busy."""
    with Box() as box:
        loss_pct, uncertainty = effect.slowdown_pct(box, max(6, int(effort.rounds * effort.seconds / 3)))
    measured = f"{loss_pct:.2f} ± {uncertainty:.2f} %"
    is_met = loss_pct <= 0.5 if uncertainty <= 0.5 else None
    return "", [Line("a busy job on all cores is slower by", measured, "≤ 0.5 %", is_met)]


def rules(effort: Effort) -> Found:
    """The diagnoses alone."""
    done = subprocess.run(
        [sys.executable, _RULES, str(int(effort.seconds))],
        env=dict(plain_environment()), check=True, capture_output=True,
    )  # fmt: skip
    told = json.loads(done.stdout)
    dearest = ", ".join(f"{rule} {spent_ms:.2f}" for rule, spent_ms in told["dearest_ms"].items())
    return f"Dearest rules, ms when judged: {dearest}", [
        judged("rules, one frame of 8 GPUs judged in full", Spread((told["full_ms"],)), 3.0, " ms"),
        judged("rules, on average", Spread((told["usual_ms"],)), 0.8, " ms/s"),
    ]


PARTS: dict[str, Callable[[Effort], Found]] = {
    "steady": open_screen,
    "start": start_up,
    "rules": rules,
    "gpus": more_gpus,
    "strangers": strangers,
    "unseen": nobody_looks,
    "effect": busy_job,
}
