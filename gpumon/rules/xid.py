"""Knows ``xid``: the driver reported a fault of a GPU or of a program on it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpumon.model import Evidence, Finding, Gpu, Job, Severity, Subject
from gpumon.rules import xids
from gpumon.rules.incidents import PROGRAMS, RECOVERY_CODE, Incident, incidents, job_of, programs_on
from gpumon.rules.logged import address, name_of, subject_of
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
        explain, and raise nothing; in a kernel's log that is read afterwards they are what it is about, and broken
        hardware stays so until the driver is loaded anew. An exporter's gauge keeps the last number for ever: at first
        sight it is information, of unknown age.
    """
    gpus = {gpu.uuid: gpu for gpu in window.last.gpus}
    by_subject: dict[str, Finding] = {}
    current = incidents(window, limits.shown_s)
    linked = sum(one.lead.action == "nvlink" for one in current)
    for incident in current:
        job = job_of(window, incident)
        if incident.lead.blame == "program" and _has_recovered(window, incident, job):
            continue
        found = _finding(window, incident, gpus.get(incident.uuid or ""), job, limits)
        others = linked - (incident.lead.action == "nvlink")
        if others and (incident.lead.action == "nvlink" or incident.lead.code == RECOVERY_CODE):
            whose = f"{others} other GPU{'s' * (others > 1)}"
            found = msgspec.structs.replace(found, cause_text=f"NVLink errors of {whose} at the same time: the fabric")
        if incident.is_remembered():
            found = _remembered(found, incident, gpus.get(incident.uuid or ""))
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
    lead = incident.lead
    first = next(line for line in incident.lines if line.xid.code == lead.code)
    who = name_of(gpu, incident.uuid, first.event.text)
    which = gpu.index if gpu is not None else address(incident.uuid, first.event.text)
    processes = programs_on(window, incident.uuid) if lead.code in PROGRAMS else 0
    is_suspect = processes >= limits.suspect_programs
    is_about_job = lead.blame == "program" and job is not None and not is_suspect
    severity: Severity = incident.severity
    name = who if job is None or not is_about_job else job.name[:20]
    text = next((line.event.text for line in incident.lines if line.event.text and line.xid.code == lead.code), None)
    wish = incident.wish() if lead.code != RECOVERY_CODE else None
    return Finding(
        rule="xid",
        severity=severity,
        confidence="likely" if lead.blame in ("program", "either") else "certain",
        subject=_subject(incident, gpu, job if is_about_job else None),
        summary=f"{name}: {lead.meaning} (Xid {lead.code})",
        cause=f"xid-{lead.code}",
        cause_text=_cause(incident, who, processes if is_suspect else 0),
        fix_text=xids.fix_of(lead, which),
        evidence=(
            Evidence(name="reported", value=incident.counted()),
            *(Evidence(name="address", value=which) for _ in range(isinstance(which, str))),
            *(Evidence(name="the driver asks for", value=wish) for _ in range(wish is not None)),
            *(Evidence(name="process", value=incident.process(pid)) for pid in incident.pids(2)),
            *(Evidence(name="the driver's line", value=text) for _ in range(text is not None)),
        ),
        fixes=(*_first_fixes(incident, wish, is_suspect=is_suspect), *xids.fixes_of(lead, which)),
        command=xids.command_of(lead, which),
        onset_s=first.age_s(window),
    )


def _remembered(found: Finding, incident: Incident, gpu: Gpu | None) -> Finding:
    """The same as information: an exporter's gauge may tell of what was over days ago."""
    tell = "dmesg -T | grep -i xid   # tells when; the kernel's lines also show the same number again"
    who = name_of(gpu, incident.uuid)
    return msgspec.structs.replace(
        found,
        severity="info",
        confidence="possible",
        summary=f"{who}: Xid {incident.lead.code} on record, of unknown age",
        cause_text=f"{incident.lead.meaning}; an exporter keeps the last number that it saw",
        fix_text="dmesg -T | grep -i xid tells when",
        fixes=(tell, *found.fixes),
        command="dmesg -T | grep -i xid",
    )


def _first_fixes(incident: Incident, wish: str | None, *, is_suspect: bool) -> Iterator[str]:
    """What this incident needs before what its number always needs."""
    if is_suspect:
        yield "the same program each time? mostly that one's fault. Different ones? test the GPU, use another meanwhile"
    if wish is not None:
        yield f"the driver asks for {wish}: no new jobs on it before that"
    if 64 in incident.codes():
        yield "stop using it and return the card: its spare memory rows are used up"


def _cause(incident: Incident, who: str, processes: int) -> str | None:
    if processes:
        return f"{processes} processes failed so on {who}: the program, or the GPU"
    if incident.lead.action == "memory-error":
        return _memory_cause(incident.codes())
    if incident.lead.code in (119, 120):
        return "driver or firmware (GSP); the processes named are its victims"
    return {
        "program": f"mostly the program's own fault; {who} is healthy",
        "hardware": "the GPU's hardware",
        "driver": "driver or firmware",
        "either": "the program, or the GPU",
        "nobody": None,
    }[incident.lead.blame]


def _memory_cause(codes: frozenset[int]) -> str:
    """The GPU's memory, and what the numbers that followed say of it."""
    reach = "; every program on it is hit" if 95 in codes else "; contained to one program" if 94 in codes else ""
    rows = ", no spare row left" if 64 in codes else ", a reset replaces the row" if 63 in codes else ""
    return f"the GPU's memory{reach}{rows}"


def _subject(incident: Incident, gpu: Gpu | None, job: Job | None) -> Subject:
    if job is not None:
        return Subject(kind="job", job=job.id, gpu=None if gpu is None else gpu.index)
    return subject_of(gpu, incident.uuid)
