"""How good the diagnosis is: ``python -m tests.bench.diagnosis`` prints the table. See README.md beside this file."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from multiprocessing import Pool
from pathlib import Path

import msgspec

from gpumon.rules import RULES
from tests.bench.faults import FAULTS
from tests.bench.run import Case, Outcome, cases, watch
from tests.bench.score import Score, delays, headline_is_right, loud, score, shown

ABLATIONS: dict[str, dict[str, object]] = {
    "as drawn": {},
    "windows 1/6 s": {"window_s": 1 / 6},
    "windows 1 s": {"window_s": 1.0},
    "poll 0.5 s": {"interval_s": 0.5},
    "poll 1 s": {"interval_s": 1.0},
    "poll 2 s": {"interval_s": 2.0},
    "5 % dropped": {"dropped": 0.05},
    "without probe": {"probe": False},
    "with probe": {"probe": True},
    "without GPM": {"gpm": False},
}


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for and print it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.diagnosis", description=__doc__)
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--quick", action="store_true", help="one run of each kind, no ablations")
    parser.add_argument("--faults", type=int, default=8, help="runs of each fault")
    parser.add_argument("--first", type=int, default=0, help="number of the first run of each kind")
    parser.add_argument("--healthy", type=int, default=4, help="runs of each healthy kind")
    parser.add_argument("--long", type=int, default=1, help="long healthy runs of each kind, sampled every 10 s")
    parser.add_argument("--ablate", type=int, default=0, help="runs of each fault per ablation; 0: none")
    parser.add_argument("--only", help="faults and healthy kinds whose name contains this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="write what came of every run to this file")
    parser.add_argument("--wrong", action="store_true", help="list every wrong run")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    if given.quick:
        given.faults = given.healthy = 1
        given.long = given.ablate = 0
    chosen = _named(cases(given.split, faults=given.faults, healthy=given.healthy, first=given.first), given.only)
    chosen += _named(_long(given.split, given.long, given.first), given.only)
    outcomes = run(chosen, given.jobs)
    if given.keep:
        given.keep.write_bytes(msgspec.json.encode(outcomes))
    _say(_table(given.split, outcomes))
    if given.wrong:
        _say(_wrong(outcomes))
    if given.ablate:
        _say(_ablations(given.split, given.ablate, given.only, given.jobs))
    _say([f"\n{time.monotonic() - began:.0f} s"])
    return 0


def run(chosen: list[Case], jobs: int) -> list[Outcome]:
    """Every case, over so many processes; the longest first."""
    ordered = sorted(chosen, key=lambda case: -case.stretch)
    if jobs <= 1:
        return [watch(case) for case in ordered]
    with Pool(jobs) as pool:
        return list(pool.imap_unordered(watch, ordered, chunksize=2))


def _named(chosen: list[Case], part: str | None) -> list[Case]:
    return [case for case in chosen if part is None or part in case.name]


def _long(split: str, count: int, first: int) -> list[Case]:
    """Healthy runs of many hours; they differ from the short ones in their numbers."""
    drawn = cases(split, faults=0, healthy=count, first=first)  # type: ignore[arg-type]
    short = [case for case in drawn if case.kind == "healthy"]
    return [
        msgspec.structs.replace(case, number=1000 + case.number, interval_s=10.0, stretch=14.0)
        for case in short
        if case.name != "idle-notebooks"  # after half an hour they are what idle-reserved is for
    ]


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _table(split: str, outcomes: list[Outcome]) -> list[str]:
    found = score(outcomes)
    faults = [one for one in outcomes if one.case.kind == "fault"]
    labels = Counter(one.label for one in faults)
    lines = [
        (
            f"split {split}: {len(faults)} fault runs ({labels['faulty']} faulty, {labels['between']} between, "
            f"{labels['healthy']} too mild to be one), {found.healthy_runs} healthy runs"
        ),
        "",
        f"{'rule':<24}{'precision':<29}{'recall':<29}{'delay s p50 p90':<17}flaps",
    ]
    order = [rule.id for rule in RULES]
    for name in order:
        mine = found.rules.get(name)
        if mine is None:
            lines.append(f"{name:<24}never met and never fired")
            continue
        flaps = f"{sum(mine.flaps) / len(mine.flaps):.2f}" if mine.flaps else ""
        lines.append(f"{name:<24}{mine.precision.text():<29}{mine.recall.text():<29}{delays(mine):<17}{flaps}")
    lines += _missing(found, order)
    lines += ["", f"headline right in faulty runs   {found.headline.text()}"]
    lines += [f"cause of starvation right       {found.cause.text()}", *_budgets(outcomes), *_healthy(found)]
    lines += ["", "wrong headlines (fault → what led):"]
    lines += [f"  {name:<24}→ {head:<24}{count}" for (name, head), count in found.confusion.most_common()]
    lines += ["wrong causes:"] if found.causes_confused else []
    lines += [f"  {name:<24}→ {cause:<24}{count}" for (name, cause), count in found.causes_confused.most_common()]
    return lines


def _missing(found: Score, order: list[str]) -> list[str]:
    wanted = {one.rules[0] for one in FAULTS.values()} - set(order)
    return [f"{name:<24}no such rule yet" for name in sorted(wanted)]


def _budgets(outcomes: list[Outcome]) -> list[str]:
    """How many were found within the promised time."""
    lines = ["time to detect against budget:"]
    for name, fault in FAULTS.items():
        late = count = 0
        for one in outcomes:
            if one.case.name != name or one.label != "faulty" or fault.budget_s is None:
                continue
            mine = [e.begin_s for e in loud(one, info=fault.is_info) if e.rule in one.rules and e.end_s >= one.onset_s]
            if mine:
                count += 1
                late += min(mine) - one.onset_s > fault.budget_s + one.interval_s
        if count:
            lines.append(f"  {name:<24}{count - late}/{count} within {fault.budget_s:g} s")
    return lines


def _healthy(found: Score) -> list[str]:
    days = max(found.gpu_days, 1e-9)
    lines = [
        (
            f"healthy: {found.gpu_days:.1f} GPU-days in {found.healthy_runs} distinct runs "
            f"({found.gpu_days_fast:.1f} of them sampled every 0.5–2 s, the rest every 10 s)"
        )
    ]
    for severity in ("critical", "warning", "info"):
        count = sum(found.false_alarms.get(severity, Counter()).values())
        bound = f"; so many days allow ≤ {3 / days:.3f} at best" if not count else ""
        lines.append(f"  {severity:<9}{count:>4} = {count / days:.3f} per GPU-day{bound}")
        if severity != "info":
            lines += [f"      {name}: {n}" for name, n in found.false_alarms.get(severity, Counter()).most_common(25)]
    return lines


def _wrong(outcomes: list[Outcome]) -> list[str]:
    lines = ["", "every wrong run:"]
    for one in outcomes:
        said = "; ".join(f"{e.rule}/{e.cause} {e.severity[0]} {e.begin_s:.0f}–{e.end_s:.0f}" for e in one.episodes)
        where = f"{one.case.name}/{one.case.number} {one.machine}×{one.gpus} i{one.interval_s:g} {one.level or ''}"
        if one.case.kind == "healthy":
            if loud(one):
                lines.append(f"  {where}: {said}")
        elif one.label == "faulty" and not headline_is_right(one):
            truth = "" if one.truth is None else f"truth {one.truth:.0f} "
            lines.append(f"  {where} {truth}from {one.onset_s:.0f} led {shown(one)}: {said}")
        elif any(e.rule not in one.also and e.rule not in one.rules for e in loud(one)):
            lines.append(f"  {where} ({one.label}) from {one.onset_s:.0f} also: {said}")
        elif one.label == "healthy" and any(e.rule in one.rules for e in loud(one)):
            lines.append(f"  {where} too mild ({one.truth}) but: {said}")
    return lines


def _ablations(split: str, count: int, only: str | None, jobs: int) -> list[str]:
    """The same faults seen otherwise: how many headlines are right, and how many are other than as drawn."""
    base = [case for case in _named(cases(split, faults=count, healthy=0), only) if case.kind == "fault"]  # type: ignore[arg-type]
    base = [case for case in base if case.number < count]
    lines = ["", f"{'seen otherwise':<18}{'headline right':<29}another rule than as drawn    silent instead"]
    drawn: dict[tuple[str, int], str] = {}
    for name, changes in ABLATIONS.items():
        outcomes = run([msgspec.structs.replace(case, **changes) for case in base], jobs)
        found = score(outcomes)
        heads = {(one.case.name, one.case.number): shown(one) for one in outcomes if one.label == "faulty"}
        drawn = drawn or heads
        both = [(drawn[key], head) for key, head in heads.items() if key in drawn]
        other = sum(now not in {was, "(silent)"} and was != "(silent)" for was, now in both)
        silent = sum(now == "(silent)" and was != "(silent)" for was, now in both)
        lines.append(f"{name:<18}{found.headline.text():<29}{other:>3} of {len(both):<22}{silent:>3}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
