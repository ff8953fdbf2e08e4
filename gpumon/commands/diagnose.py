"""``gpumon diagnose``: findings without a screen, live or from files, for people and for scripts."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Literal

import msgspec

from gpumon import __version__, units
from gpumon.commands.inputs import Input
from gpumon.config import Config
from gpumon.diagnosis import SHORTEST_S, Diagnosis, diagnose, to_json
from gpumon.errors import UsageError
from gpumon.model import Alert, Evidence, Snapshot
from gpumon.sources import Source

MARKS = {"info": "·", "warning": "▲", "critical": "■"}
_SO_FAR = ", as far as one moment shows: log a minute or more to see whether it is fast"
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s{0,2}(s|m|min|h|)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LONGEST_S = 7 * 86_400.0


def seconds_of(text: str) -> float:
    """``30s``, ``2m``, ``1h`` or plain seconds; UsageError otherwise."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match.group(1)) * _SECONDS[match.group(2)] if match else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f"--for: {text!r} is not a time; write 30s, 2m or 1h")
    return seconds


def live(source: Source, seconds: float, config: Config, *, as_json: bool) -> int:
    """Watch this machine for a while, then print; returns the exit code."""
    if sys.stderr.isatty():
        sys.stderr.write(f"gpumon: watching for {units.duration(seconds)}; Ctrl-C ends it earlier\n")
    limited = _Limited(source, seconds)
    try:
        found = diagnose(limited, kind="live", limits=config.rules, muted_rules=frozenset(config.mute))
    finally:
        source.close()
    return _print(found, as_json=as_json)


def files(paths: Sequence[Path], config: Config, *, as_json: bool) -> int:
    """Judge recordings and logs of one machine, merged by time; returns the exit code.

    Raises:
        UsageError: a file that cannot be read or is not recognised.
    """
    source = Input(paths)
    try:
        found = diagnose(source, kind="trace", limits=config.rules, muted_rules=frozenset(config.mute))
    finally:
        source.close()
    if not found.samples:
        unread = source.unread
        because = f": line {unread[0].line}: {unread[0].because}" if unread else ""
        raise UsageError(f"{source.name}: no snapshot could be read{because}")
    return _print(source.told(found), as_json=as_json)


class _Limited:
    """A live source that ends after some seconds."""

    def __init__(self, source: Source, seconds: float) -> None:
        self.kind: Literal["live", "demo", "replay"] = source.kind
        self.name = source.name
        self._source = source
        self._seconds = seconds

    def __iter__(self) -> Iterator[Snapshot]:
        until_s = monotonic() + self._seconds
        for snapshot in self._source:
            yield snapshot
            if monotonic() >= until_s:
                return

    def close(self) -> None:
        self._source.close()


# --- printing ------------------------------------------------------------------------------------


def _print(found: Diagnosis, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(to_json(found)), indent=2).decode() + "\n")
    else:
        sys.stdout.write("\n".join(to_lines(found)) + "\n")
    sys.stdout.flush()
    return 0 if found.is_healthy() else 1


def to_lines(found: Diagnosis) -> list[str]:
    """The diagnosis for people: what, since when, evidence, cost, fixes; then what could not be judged."""
    facts = [
        f"gpumon {__version__}",
        f"{found.kind} {found.name}",
        "one reading" if found.samples == 1 else f"{units.duration(found.duration_s)}, {found.samples} samples",
        _counted(sum(gpu.mig_parent_uuid is None for gpu in found.gpus), "GPU") if found.gpus else "",
    ]
    lines = [" · ".join(filter(None, facts)), *_caveats(found)]
    if found.is_healthy():
        lines.append(f"● HEALTHY  nothing of warning or worse{_SO_FAR if _is_brief(found) else ''}")
    for alert in found.alerts:
        lines += ["", *_alert_lines(alert, found)]
    if found.abstained or found.unread:
        lines.append("")
    for because, rules in _by_reason(found):
        lines += textwrap.wrap(
            f"{', '.join(rules)}: {because}",
            width=108,
            initial_indent="not judged  ",
            subsequent_indent=" " * 12,
            break_on_hyphens=False,
        )
    lines += [f"not read    line {one.line}: {one.because}" for one in found.unread[:20]]
    if len(found.unread) > 20:
        lines.append(f"not read    … {len(found.unread) - 20} more")
    return lines


def _caveats(found: Diagnosis) -> Iterator[str]:
    """What the input does not say and had to be taken for granted."""
    if not found.has_times:
        yield "the input has no times: the clock starts at its beginning"
    if found.time_zone == "since-boot":
        yield "times count from the boot: the input has no dates"
    elif found.time_zone is not None:
        yield "times are as written, their zone is not known"
    if found.assumed_interval_s is not None:
        yield f"assumed {found.assumed_interval_s:g} s between readings, which the input does not say"
    if found.judged_every_s is not None:
        yield f"readings that follow each other faster were judged together, every {found.judged_every_s:g} s"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _is_brief(found: Diagnosis) -> bool:
    return found.duration_s < SHORTEST_S and bool(found.gpus)


def _by_reason(found: Diagnosis) -> Iterator[tuple[str, list[str]]]:
    """What could not be judged, one entry a reason."""
    rules: dict[str, list[str]] = {}
    for one in found.abstained:
        rules.setdefault(one.because, []).append(one.rule)
    yield from rules.items()


def _moment(time_s: float, found: Diagnosis, word: str) -> str:
    """``since 12:20``; ``41 s in`` and ``2h14m after boot`` where there is no date to tell."""
    if not found.has_times:
        return f"{units.duration(time_s)} in"
    if found.time_zone == "since-boot":
        return f"{units.duration(time_s)} after boot"
    return f"{word} {units.clock(time_s, '%H:%M')}"


def _alert_lines(alert: Alert, found: Diagnosis) -> list[str]:
    finding = alert.finding
    since = f" {_moment(alert.since_s, found, 'since')}" if found.has_times or alert.since_s > 0 else ""
    ended = "" if alert.cleared_s is None else f", over {_moment(alert.cleared_s, found, 'at')}"
    mark = f"{MARKS[finding.severity]} {finding.severity.upper()}"
    lines = [f"{mark}  {finding.summary}{since}{ended} {finding.confidence}  [{finding.rule}]"]
    if finding.cause_text:
        lines.append(f"  cause     {finding.cause_text}")
    lines += [
        f"  {'evidence' if first else '':<8}  {_evidence(one)}"
        for first, one in zip((True, *(False,) * len(finding.evidence)), finding.evidence, strict=False)
    ]
    if finding.cost is not None and finding.cost.lost_pct is not None:
        gain = finding.cost.speedup_max
        lines.append(f"  cost      −{finding.cost.lost_pct:.0f}%" + (f", gain ≤ {gain:.1f}×" if gain else ""))
    lines += [f"  {'fix' if number == 1 else '':<8}  {number} {fix}" for number, fix in enumerate(finding.fixes, 1)]
    return lines


def _evidence(one: Evidence) -> str:
    def written(value: float | str | None) -> str:
        if value is None or isinstance(value, str):
            return value or units.MISSING
        return f"{value:g}{one.unit}" if one.unit in {"%", ""} else f"{value:g} {one.unit}"

    was = "" if one.was is None else f", was {written(one.was)}"
    judged = "" if one.judged_by is None else f"  ({one.judged_by})"
    return f"{one.name} {written(one.value)}{was}{judged}"
