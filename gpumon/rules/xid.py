"""Knows ``xid``: the driver reported a fault of a GPU or of a program on it."""

from __future__ import annotations

from gpumon.model import Evidence, Finding, Gpu, Job, Severity, Subject
from gpumon.rules import xids
from gpumon.rules.incidents import Incident, incidents, job_of, programs_on
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a fault is shown."""

    shown_s: float = 600.0
    """Seconds after the driver's last line about it."""
    suspect_programs: int = 2
    """From so many different processes with the same program fault on one GPU, the GPU is suspected as well."""


@rule("xid", limits=Limits, every_s=0.0, suppressed_by=("gpu-lost",))
def xid(window: Window, limits: Limits) -> Conclusions:
    """The driver reported an Xid: a fault of the GPU, or of a program on it.

    What it sees:
        Xid events from NVML, and the kernel's NVRM lines where they may be read; also "fallen off the bus" without a
        number. Lines about one GPU are one incident, named after the number that began it. Codes of hardware are
        critical; codes that are mostly the program's own fault are a warning about the job.

    Why it matters:
        The number says whether to look at the program, to reset the GPU or to return the card. Training that goes on
        after an uncontained memory error may compute with wrong numbers.

    What to do:
        Follow the action of the number, as in NVIDIA's catalogue: restart the program, reset the GPU, reboot the node,
        check power and links, or call support.

    When it is wrong:
        Xid 45 comes by the thousand when programs end, and is no fault by itself. A program that fails with 13 or 31
        is mostly wrong itself; a GPU on which different programs fail so is not. Lines from before gpumon was started
        explain, and raise nothing.
    """
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    by_subject: dict[str, Finding] = {}
    for incident in incidents(window, limits.shown_s):
        job = job_of(window, incident)
        if incident.lead.blame == "program" and _has_recovered(window, incident, job):
            continue
        found = _finding(window, incident, gpus.get(incident.uuid or ""), job, limits)
        # The ranks of one job fail together: its first GPU tells.
        earlier = by_subject.get(found.subject.key())
        if earlier is None or (found.onset_s or 0.0) > (earlier.onset_s or 0.0):
            by_subject[found.subject.key()] = found
    yield from by_subject.values()


def _has_recovered(window: Window, incident: Incident, job: Job | None) -> bool:
    """Another run trains on the GPU since."""
    now = window.job_of(incident.uuid or "")
    return now is not None and (job is None or now.id != job.id) and now.phase == "train"


def _finding(window: Window, incident: Incident, gpu: Gpu | None, job: Job | None, limits: Limits) -> Finding:
    lead, index = incident.lead, None if gpu is None else gpu.index
    who = "a GPU" if index is None else f"GPU {index}"
    processes = programs_on(window, incident.uuid, (13, 31)) if lead.code in (13, 31) else 0
    is_suspect = processes >= limits.suspect_programs
    is_about_job = lead.blame == "program" and job is not None and not is_suspect
    severity: Severity = incident.severity
    name = who if job is None or not is_about_job else job.name[:20]
    first = next(line for line in incident.lines if line.xid.code == lead.code)
    texts = [line.event.text for line in incident.lines if line.event.text and line.xid.code == lead.code]
    return Finding(
        rule="xid",
        severity=severity,
        confidence="likely" if lead.blame in ("program", "either") else "certain",
        subject=_subject(gpu, job if is_about_job else None),
        summary=f"{name}: {lead.meaning} (Xid {lead.code})",
        cause=f"xid-{lead.code}",
        cause_text=_cause(incident, who, processes if is_suspect else 0),
        fix_text=xids.fix_of(lead, index),
        evidence=(
            Evidence(name="reported", value=incident.counted()),
            *(Evidence(name="process", value=f"pid {pid}") for pid in incident.pids()[:2]),
            *(Evidence(name="the driver's line", value=text) for text in texts[:1]),
        ),
        fixes=xids.fixes_of(lead, index),
        command=xids.command_of(lead, index),
        onset_s=first.age_s,
    )


def _cause(incident: Incident, who: str, processes: int) -> str | None:
    if processes:
        return f"{processes} processes failed so on {who}: the program, or the GPU"
    return {
        "program": f"mostly the program's own fault; {who} is healthy",
        "hardware": "the GPU's hardware",
        "driver": "driver or firmware",
        "either": "the program, or the GPU",
        "nobody": None,
    }[incident.lead.blame]


def _subject(gpu: Gpu | None, job: Job | None) -> Subject:
    if job is not None:
        return Subject(kind="job", job=job.id, gpu=None if gpu is None else gpu.index)
    if gpu is not None:
        return Subject(kind="gpu", gpu=gpu.index, uuid=gpu.uuid)
    return Subject(kind="host")
