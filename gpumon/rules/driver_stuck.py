"""Knows ``driver-stuck``: the driver has not answered for too long."""

from __future__ import annotations

from gpumon.model import Evidence, Finding, Subject
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the driver may be silent."""

    silent_s: float = 10.0
    """Seconds without any answer that raise it."""


@rule("driver-stuck", limits=Limits, every_s=0.0)
def driver_stuck(window: Window, limits: Limits) -> Conclusions:
    """The driver does not answer: numbers are old, and programs that ask it hang as well.

    What it sees:
        A call into the driver has been waiting for more than 10 s, or the driver went away while gpumon was running.

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
    host = window.last.host
    if host.driver_age_s is None or host.driver_age_s < 0.8 * limits.silent_s:
        return
    yield Finding(
        rule="driver-stuck",
        severity="critical",
        confidence="certain",
        subject=Subject(kind="host"),
        summary="the driver does not answer",
        strength=host.driver_age_s / limits.silent_s,
        cause_text=host.driver_error,
        fix_text="wait; then dmesg | grep -i nvrm",
        evidence=(
            Evidence(
                name="last answer",
                value=float(round(host.driver_age_s)),
                unit="s ago",
                judged_by=f"≥ {limits.silent_s:g} s",
            ),
        ),
        fixes=("wait: it may answer again", "dmesg | grep -i nvrm", "with Xid lines there: save, then reboot the node"),
        onset_s=host.driver_age_s,
    )
