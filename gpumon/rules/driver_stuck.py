"""Knows ``driver-stuck``: the driver has not answered for too long."""

from __future__ import annotations

from gpumon.model import Evidence, Finding, Subject
from gpumon.rules import driver_by_log
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the driver may be silent."""

    silent_s: float = 10.0
    """Seconds without any answer that raise it."""
    silent_unloaded_s: float = 30.0
    """The same where persistence mode is off: healthy answers can take many seconds there."""


@rule("driver-stuck", limits=Limits, every_s=0.0)
def driver_stuck(window: Window, limits: Limits) -> Conclusions:
    """The driver does not answer: numbers are old, and programs that ask it hang as well.

    What it sees:
        A call into the driver has been waiting for more than 10 s (30 s with persistence mode off), or the driver went
        away while gpumon was running. Where it answers for other GPUs, only the silent one is named. In a kernel's log:
        a task that hangs with NVIDIA's modules in its stack.

    Why it matters:
        Old numbers must not be read as new ones. A sick GPU often shows itself like this first. It does not prove that
        a GPU is lost: training may go on.

    What to do:
        Wait a little; then read ``dmesg | grep -i nvrm``. Do not start ``nvidia-smi`` in a loop: each one will hang
        too. If Xid lines appear, save what you can and reboot.

    When it is wrong:
        With persistence mode off the first answer after a pause can take many seconds. A container loses the driver
        after ``systemctl daemon-reload`` on its host; gpumon connects again by itself.
    """
    yield from driver_by_log.hung_calls(window)
    host, gpus = window.last.host, window.last.gpus
    is_unloaded = any(gpu.persistence is False for gpu in gpus)
    limit_s = limits.silent_unloaded_s if is_unloaded else limits.silent_s
    if host.driver_age_s is not None and host.driver_age_s >= 0.8 * limit_s:
        subject = Subject(kind="host")
        yield _finding(subject, "the driver does not answer", host.driver_age_s, limit_s, host.driver_error)
        return
    for gpu in gpus:
        if gpu.age_s is not None and gpu.age_s >= 0.8 * limit_s and not gpu.is_lost and gpu.mig_parent_uuid is None:
            subject = Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid)
            yield _finding(subject, f"the driver does not answer for GPU {gpu.index}", gpu.age_s, limit_s, None)


def _finding(subject: Subject, summary: str, age_s: float, limit_s: float, cause: str | None) -> Finding:
    return Finding(
        rule="driver-stuck",
        severity="critical",
        confidence="certain",
        subject=subject,
        summary=summary,
        strength=age_s / limit_s,
        cause_text=cause,
        fix_text="wait; then dmesg | grep -i nvrm",
        evidence=(Evidence(name="last answer", value=float(round(age_s)), unit="s ago", judged_by=f"≥ {limit_s:g} s"),),
        fixes=("wait: it may answer again", "dmesg | grep -i nvrm", "with Xid lines there: save, then reboot the node"),
        command="dmesg | grep -i nvrm",
        onset_s=age_s,
    )
