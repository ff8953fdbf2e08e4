"""Knows why an allocation on a GPU failed, by the numbers in the message: who or what took it, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpumon.model import Confidence, Event, Severity
from gpumon.rules.reports import number, size

GIB = 1024.0**3
_ABSURD = 4.0
"""From so many times the card on, the size itself is wrong."""
_NO_CARD_BYTES = 1024.0 * GIB
"""No card has so much: absurd, whatever the card."""
_SPARE, _SPARE_BYTES = 1.1, 0.25 * GIB
"""Free memory of so many times the request and this on top must do, were it to be had."""
_NEIGHBOUR = 0.10
"""Share of the card from which on a neighbour counts."""
_UNLISTED_BYTES, _CONTEXT_BYTES = 1.0 * GIB, 1.5 * GIB
"""Memory that no process accounts for counts from here on; beyond its pool a process holds this at most."""
_REST = 0.25
"""Share of the card that is in use and not by tensors, where the message does not say whether it is their pool's."""
_LARGE = 0.25
"""Share of the card from which on the one request is itself the trouble."""
PIECES, _MANY_PIECES, _CACHE = 0.10, 0.20, 1.0 / 3.0
"""Unused share of what PyTorch holds: helps to explain it, explains it, and half of it could be a cache."""


class Oom(NamedTuple):
    """One message; what it does not say is None."""

    event: Event
    age_s: float
    requested: float | None
    total: float | None
    free: float
    allocated: float | None
    reserved: float | None
    unused: float
    process: float | None
    others: float
    allowed: float | None

    def share(self) -> float:
        """Of what PyTorch holds: how much is not in use."""
        return self.unused / self.reserved if self.reserved else 0.0

    def unlisted(self) -> float:
        """In use, and held by no process that the message names."""
        if self.total is None or self.reserved is None:
            return 0.0
        mine = self.reserved + _CONTEXT_BYTES if self.process is None else self.process
        return max(0.0, self.total - self.free - mine - self.others)


class Reason(NamedTuple):
    """Why an allocation failed, in the words of one rule."""

    rule: str
    cause: str
    severity: Severity
    confidence: Confidence
    text: str
    fix: str
    fixes: tuple[str, ...]


def reasons(oom: Oom) -> tuple[Reason, ...]:
    """Why this allocation failed, the main reason first."""
    asked, total = oom.requested, oom.total
    if asked is not None and asked > (_NO_CARD_BYTES if total is None else total):
        return (_too_large(asked, total),)
    if asked is None or total is None:
        return (_unknown(asked),)
    if oom.free >= asked and oom.allowed is not None and (oom.reserved or 0.0) + asked > 0.999 * oom.allowed:
        return (_limited(oom.allowed, total),)
    if oom.free >= _SPARE * asked + _SPARE_BYTES:
        return (_withheld(asked, oom.free),)
    others = tuple(_others(oom, asked, total))
    return (*others, *_own(oom, asked, total, is_alone=not others))


def _own(oom: Oom, asked: float, total: float, *, is_alone: bool) -> Iterator[Reason]:
    """What the program itself can do about it."""
    share = oom.share()
    is_in_pieces = share >= PIECES and oom.unused + oom.free >= asked
    if is_in_pieces:
        yield _pieces(oom, asked, "critical" if share >= _MANY_PIECES else "warning")
    elif share >= _CACHE:
        yield _pieces(oom, asked, "warning")
    if is_alone:
        yield _full(oom, asked, total, "warning" if is_in_pieces and share >= _MANY_PIECES else "critical")


# --- the reasons ---------------------------------------------------------------------------------

LESS = (
    "a smaller micro-batch, and gradient accumulation for the rest",
    "checkpoint activations (torch.utils.checkpoint; Hugging Face: gradient_checkpointing=True)",
    "bf16 autocast; an 8-bit or sharded optimizer (ZeRO, FSDP)",
    "cap the longest sequence, or sort into buckets by length; evaluate under torch.no_grad()",
)
SEGMENTS = "export PYTORCH_ALLOC_CONF=expandable_segments:True   # older releases: PYTORCH_CUDA_ALLOC_CONF"


def _too_large(asked: float, total: float | None) -> Reason:
    limit = _NO_CARD_BYTES / _ABSURD if total is None else total
    if asked >= _ABSURD * limit:
        has = "more than any card has" if total is None else f"the card has {size(total)}"
        return Reason(
            "oom-risk",
            "impossible-request",
            "critical",
            "certain",
            f"asks for {size(asked)}, {has}: a bug",
            "print the shapes before the failing line",
            (
                "no memory setting helps: a shape, an index or corrupt data made the size; print the tensors' shapes",
                "look for a broadcast of (N,) against (N, 1), an outer product, or a negative or huge length",
                "CUDA_LAUNCH_BLOCKING=1 python …   # shows the line that asks",
            ),
        )
    return Reason(
        "oom-risk",
        "larger-than-gpu",
        "critical",
        "certain",
        f"asks for {size(asked)} at once, the card has {size(limit)}",
        "split it: smaller batch, shorter sequence",
        (
            "one tensor is larger than the card: a smaller batch, a shorter sequence or a lower resolution",
            "attention: torch.nn.functional.scaled_dot_product_attention does not hold the N × N matrix",
            "compute it in chunks along the batch",
        ),
    )


def _unknown(asked: float | None) -> Reason:
    text = "the message has no numbers" if asked is None else f"asks for {size(asked)}; how full it was is not said"
    return Reason(
        "oom-risk",
        "unknown",
        "critical",
        "likely",
        text,
        "nvidia-smi: who else is on it? then a smaller batch",
        (
            "nvidia-smi   # does another process hold the memory?",
            *LESS,
            "JAX takes 75% at the start: XLA_PYTHON_CLIENT_PREALLOCATE=false shows what it needs",
        ),
    )


def _limited(allowed: float, total: float) -> Reason:
    return Reason(
        "oom-risk",
        "memory-fraction",
        "critical",
        "certain",
        f"may use {size(allowed)} of {size(total)}: its own limit, and full",
        "raise set_per_process_memory_fraction, or a smaller batch",
        (
            f"this process is limited to {size(allowed)}: raise or drop torch.cuda.set_per_process_memory_fraction(…)",
            *LESS,
        ),
    )


def _withheld(asked: float, free: float) -> Reason:
    return Reason(
        "oom-risk",
        "free-not-allocatable",
        "critical",
        "likely",
        f"asks for {size(asked)}, {size(free)} are free: not for this process",
        "look for a limit: MPS, vGPU, WDDM; expandable_segments",
        (
            "free memory that it does not get: a limit of MPS, vGPU or MIG, or Windows' budget for a process",
            "env | grep -iE 'CUDA_MPS|PYTORCH.*ALLOC_CONF'; look for set_per_process_memory_fraction in the program",
            SEGMENTS,
            "Windows: close what else draws on this GPU; WSL2 and WDDM divide memory by themselves",
        ),
    )


def _others(oom: Oom, asked: float, total: float) -> Iterator[Reason]:
    """Somebody else has what was missing."""
    if oom.others >= _NEIGHBOUR * total and oom.others + oom.free + oom.unused >= asked:
        pid, count = number(oom.event, "largest_other_pid"), number(oom.event, "other_processes") or 1.0
        who = f"pid {pid:.0f}" if count < 2 and pid else f"{count:.0f} other processes"
        yield Reason(
            "gpu-contention",
            "neighbour",
            "critical",
            "certain",
            f"{who} hold{'s' * (count < 2)} {size(oom.others)} of {size(total)}",
            "move to a free GPU: CUDA_VISIBLE_DEVICES=…",
            (
                *(() if not pid else (f"ps -fp {pid:.0f}   # whose is it? In a container look on the host",)),
                "nvidia-smi --query-gpu=index,memory.free --format=csv   # then CUDA_VISIBLE_DEVICES=… a free one",
                "ask its owner, end it, or wait until it is done",
                "sudo nvidia-smi -c EXCLUSIVE_PROCESS   # one process per GPU from now on",
            ),
        )
        return
    unlisted = oom.unlisted()
    is_listed = oom.process is not None
    least = max((1.0 if is_listed else 2.0) * _UNLISTED_BYTES, _NEIGHBOUR * total)
    if unlisted < least or unlisted + oom.free + oom.unused < asked:
        return
    yield Reason(
        "vram-orphaned" if is_listed else "gpu-contention",
        "unlisted",
        "warning",
        "possible",
        f"{size(unlisted)} of {size(total)} are held by nobody it names",
        "nvidia-smi; sudo fuser -v /dev/nvidia*",
        (
            "nvidia-smi   # on the host, outside of any container: who holds the memory?",
            "sudo fuser -v /dev/nvidia*   # left-over workers hold it without being listed: end them",
            "nobody has it open: sudo nvidia-smi --gpu-reset, with no job on it; else reboot",
        ),
    )


def _pieces(oom: Oom, asked: float, severity: Severity) -> Reason:
    is_old = "already allocated" in (oom.event.text or "")
    would_do = oom.unused + oom.free >= asked
    split = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"
    text = f"{size(oom.unused)} held and unused ({100 * oom.share():.0f}%), asks for {size(asked)}"
    return Reason(
        "fragmentation",
        "pieces" if would_do else "cache",
        severity,
        "likely",
        text,
        split if is_old else "PYTORCH_ALLOC_CONF=expandable_segments:True",
        (
            *((f"export {split}   # before PyTorch 2.1; later: expandable_segments:True",) if is_old else (SEGMENTS,)),
            *(
                ()
                if would_do
                else (f"not enough by itself: free and unused are {size(oom.free + oom.unused)} together",)
            ),
            "pad batches to a few shapes, or sort them into buckets by length",
            "run the largest batch first, so that its blocks are there from the start",
            "torch.cuda.empty_cache() once between training and evaluation, never per step",
        ),
    )


def _full(oom: Oom, asked: float, total: float, severity: Severity) -> Reason:
    text = f"asks for {size(asked)}, {size(oom.free)} free"
    if oom.allocated is not None:
        text += f"; tensors hold {size(oom.allocated)} of {size(total)}"
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    is_large = asked >= _LARGE * total
    if is_large:
        share = 100 * asked / total
        text = f"asks for {size(asked)} at once; free and unused are {size(oom.free + oom.unused)} together"
        first = (
            f"one allocation takes {share:.0f}% of the card: mostly attention scores or logits; split or shorten it",
            "torch.nn.functional.scaled_dot_product_attention does not hold the N × N scores",
        )
    rest = total - oom.free - (oom.allocated or total)
    if oom.reserved is None and rest >= _REST * total:
        first = (f"nvidia-smi   # who holds the other {size(rest)}? The message does not tell", *first)
    elif oom.reserved is not None and oom.share() < PIECES:
        last = (f"expandable_segments will not help: only {100 * oom.share():.0f}% of what is held is unused",)
    return Reason(
        "oom-risk",
        "large-request" if is_large else "full",
        severity,
        "certain",
        text,
        "split the largest tensor; smaller batch" if is_large else "smaller micro-batch; checkpoint activations",
        (*first, *LESS, *last),
    )
