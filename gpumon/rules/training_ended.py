"""Knows ``training-ended``: a job is over, and nothing says that it failed."""

from __future__ import annotations

from gpumon.rules import ended_by_memory
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.rules.training_died import finding_of, is_watched, latest
from gpumon.rules.verdict import verdict_of
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which ends are reported, and for how long."""

    least_s: float = 120.0
    """A job that lived for less is a short script."""
    shown_s: float = 600.0
    """How long it is shown, unless the same program trains again before."""


@rule(
    "training-ended",
    limits=Limits,
    every_s=1.0,
    clear_s=2.0,
    suppressed_by=("training-died",),
    at_end=ended_by_memory.ended,
)
def training_ended(window: Window, limits: Limits) -> Conclusions:
    """A training job is over; it finished, was ended or was started again, as far as can be seen.

    What it sees:
        All processes of a job are gone within ten seconds, without a trace of a fault. It says finished where the
        probe or the parent told so, probably finished where something was written in the last two minutes, and
        otherwise that the reason is unknown. In a log without processes: the memory of a GPU, which was in use, is free
        to the log's end.

    Why it matters:
        The GPUs are free: for the next run, or for others.

    What to do:
        Look at its result. If it was not meant to end, read the end of its log.

    When it is wrong:
        A program that ends with an error of its own looks the same from outside as one that is done: the exit code is
        known to its parent alone. Scripts shorter than two minutes, notebooks and servers are not reported.
    """
    for ending in latest(window):
        if ending.remaining or ending.lived_s < limits.least_s or not is_watched(window, ending, limits.shown_s):
            continue
        verdict = verdict_of(window, ending)
        if verdict is not None and not verdict.is_death:
            yield finding_of(window, ending, verdict)
