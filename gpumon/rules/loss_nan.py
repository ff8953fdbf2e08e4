"""Knows ``loss-nan``: a program that says that its loss is no number any more."""

from __future__ import annotations

from gpumon.model import Abstention, Evidence, Finding, Job, Rank, Subject
from gpumon.rules.rule import Conclusions, rule
from gpumon.window import Window

_FIXES = (
    "stop it and go on from the last checkpoint before the moment: what is NaN once stays so",
    "look at the batch of that step; clip gradients, lower the learning rate, warm up longer",
    "fp16: a GradScaler, or bf16; torch.autograd.set_detect_anomaly(True) for a few steps names the operation",
)


@rule("loss-nan", every_s=2.0, hold_s=10.0, clear_s=60.0, suppressed_by=("gpu-lost", "driver-stuck"))
def loss_nan(window: Window, _limits: object) -> Conclusions:
    """The loss of a training run is NaN or infinite: it goes on and learns nothing.

    What it sees:
        Only the probe can see it, and only where the program passes its loss: for ten seconds what it reported last
        was no finite number.

    Why it matters:
        Every GPU works on at full power, and everything from that step on is worth nothing. Checkpoints written since
        then hold it too.

    What to do:
        Stop the run, look at the step at which it began, and go on from a checkpoint before it.

    When it is wrong:
        Programs that skip such a step on purpose recover from a single one. Why it happened does not show in anything
        that a GPU reports, so nothing is said about it.
    """
    for job in window.jobs:
        if job.kind == "serving":
            continue
        ranks = window.ranks_of(job)
        ill = [rank for rank in ranks if rank.loss_is_nan]
        if ill:
            yield _finding(job, ill, len(ranks))
        elif ranks and all(rank.loss_is_nan is None for rank in ranks):
            subject = Subject(kind="job", job=job.id)
            yield Abstention(
                rule="loss-nan", because="the program does not pass its loss to the probe", subject=subject
            )


def _finding(job: Job, ill: list[Rank], count: int) -> Finding:
    at = "" if ill[0].step is None else f" at step {ill[0].step}"
    return Finding(
        rule="loss-nan",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="job", job=job.id),
        summary=f"the loss of {job.name} is NaN or infinite",
        cause_text=f"{len(ill)} of {count} ranks{at}" if count > 1 else f"reported{at}" if at else None,
        fix_text="stop; go on from an earlier checkpoint",
        evidence=(Evidence(name="ranks whose loss is no number", value=float(len(ill)), judged_by=f"of {count}"),),
        fixes=_FIXES,
    )
