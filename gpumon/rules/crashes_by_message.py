"""Knows what a program's last words say of its end, where they name no shortage: CUDA's, NCCL's and workers' errors."""

from __future__ import annotations

from gpumon.model import Confidence, Event, Evidence, Finding, Subject
from gpumon.rules.faults import Fault, program_fault
from gpumon.rules.logged import is_logged
from gpumon.rules.reports import FATAL, number, ranks_named, reports
from gpumon.window import Window

_NCCL: dict[int, Fault] = {
    1: Fault(
        "nccl-cuda",
        "a collective failed: a CUDA error in NCCL",
        "an earlier error of this process, or its memory is full",
        ("read the first error above it in the log", "next run: NCCL_DEBUG=INFO; it names the call"),
        "likely",
    ),
    2: Fault(
        "nccl-system",
        "a collective failed: a system error in NCCL",
        "a socket, shared memory or a peer that went away",
        (
            "next run: NCCL_DEBUG=INFO; its WARN line names the call",
            "wrong network interface: NCCL_SOCKET_IFNAME=eth0 (ip addr shows the names)",
            "in a container: --shm-size=1g --ulimit memlock=-1   # /dev/shm may be too small",
            "was it the first to fail? Read the logs of the other ranks",
        ),
        "likely",
    ),
    3: Fault(
        "nccl-internal",
        "a collective failed inside NCCL",
        "NCCL, its plugin or another version on a rank",
        ("next run: NCCL_DEBUG=INFO", "the same NCCL on all nodes: torch.cuda.nccl.version()"),
        "possible",
    ),
    5: Fault(
        "nccl-usage",
        "a collective was called wrongly",
        "mostly two ranks on one GPU",
        (
            "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
            "as many ranks as GPUs: torchrun --nproc-per-node=gpu; echo $CUDA_VISIBLE_DEVICES",
        ),
        "likely",
    ),
    6: Fault(
        "rank-gone",
        "another rank went away",
        "this one only noticed: the cause is in the log of the first",
        (
            "look for the rank that failed first: its log has the error (out of memory, killed, a traceback)",
            "torchrun --log-dir logs --tee 3   # one log per rank; torchrun's summary names the first failure",
            "dmesg | grep -iE 'xid|killed process' on its node",
        ),
        "likely",
    ),
}
_SEGFAULT = Fault(
    "segfault",
    "a loader worker crashed",
    "segmentation fault: a library of the dataset, or one that does not survive fork",
    (
        "python -X faulthandler …; num_workers=0 shows the traceback",
        "multiprocessing_context='spawn' for the DataLoader, or cv2.setNumThreads(0) in the workers",
    ),
    "likely",
)
_WORKER = Fault(
    "worker-died",
    "a loader worker ended",
    "the message does not say why: an error in the dataset, or memory",
    (
        "num_workers=0 for one run: the traceback then shows the line at fault",
        "dmesg | grep -i 'killed process'   # or was it killed for memory?",
        "Windows and macOS: the script needs if __name__ == '__main__':",
    ),
    "possible",
)


def ended(window: Window) -> Finding | None:
    """The first error that ended the program, where no rule about memory, driver or hangs has it."""
    told = reports(window, "cuda-error", "nccl-error", "segfault", "worker-exited")
    found = [(age_s, event, fault) for age_s, event in told if (fault := _fault(event)) is not None]
    if not found:
        return None
    age_s, event, fault = found[0]
    if event.kind != "cuda-error" and _is_consequence(window):
        return None
    ranks = [
        rank for _, one, other in found if other.cause == fault.cause and (rank := number(one, "rank")) is not None
    ]
    others = {other.summary for _, _, other in found if other.cause != fault.cause}
    confidence: Confidence = fault.confidence
    return Finding(
        rule="training-died",
        severity="critical",
        confidence=confidence,
        subject=Subject(kind="host"),
        summary=fault.summary,
        cause=fault.cause,
        cause_text=fault.text,
        fix_text=fault.fix(),
        evidence=(
            *((Evidence(name="reported", value=event.text[:200]),) if event.text else ()),
            *((Evidence(name="on", value=ranks_named(ranks)),) if ranks else ()),
            *(Evidence(name="reported later", value=summary) for summary in sorted(others)[:3]),
            *(
                Evidence(name="NCCL warned", value=one.text[:120])
                for _, one in reports(window, "nccl-warning")[:2]
                if one.text
            ),
        ),
        fixes=(*fault.fixes, "resume from the last checkpoint"),
        onset_s=age_s,
        has_happened=True,
    )


def _fault(event: Event) -> Fault | None:
    if event.kind == "cuda-error":
        return program_fault(event)
    if event.kind == "nccl-error":
        return _NCCL.get(int(number(event, "code") or 0))
    if event.kind == "segfault":
        # A kernel's line about it tells more, and is judged as such.
        return None if is_logged(event) else _SEGFAULT
    return _WORKER


def _is_consequence(window: Window) -> bool:
    """Something surer was reported: memory, a hang, a fault of the GPU."""
    kinds = (*(kind for kind in FATAL if kind not in {"cuda-error", "segfault"}), "nccl-timeout", "shm-error")
    return bool(reports(window, *kinds))
