"""Knows what PyTorch's NCCL watchdog, its store and NCCL itself write when ranks lose each other."""

from __future__ import annotations

import re
from typing import NamedTuple

_TIMEOUT = re.compile(r"Watchdog caught collective operation timeout")
_RAN = re.compile(r"ran for (\d{1,12}) milliseconds")
_FIELDS: tuple[tuple[str, re.Pattern[str], float], ...] = (
    ("seq", re.compile(r"SeqNum=(\d{1,15})"), 1.0),
    ("timeout_s", re.compile(r"Timeout\(ms\)=(\d{1,12})"), 0.001),
    ("numel_in", re.compile(r"NumelIn=(\d{1,15})"), 1.0),
    ("numel_out", re.compile(r"NumelOut=(\d{1,15})"), 1.0),
)
_STATUS = re.compile(
    r"last enqueued (?:NCCL )?work: (-?\d{1,15}), last completed (?:NCCL )?work: (-?\d{1,15})", re.IGNORECASE
)
_FAILED = re.compile(r"failure detected by watchdog at work sequence id: (\d{1,15})")
_DUMP = re.compile(r"Received a dump signal due to a collective timeout from\s{1,3}(?:this local rank|rank (\d{1,6}))")
_GROUP = re.compile(r"\[PG ID (\d{1,6})")
_STUCK = re.compile(r"watchdog got stuck for (\d{1,9}) ?seconds|(Heartbeat monitor timed out!)")
_DESYNC = re.compile(
    r"\[(\d{1,6}(?:, ?\d{1,6}){0,200})\] finished collective #(\d{1,15}), but didn't join collective #(\d{1,15})"
)
_BARRIER = re.compile(
    r"(?:Timed out initializing process group )?in store based barrier on rank:? (\d{1,6})"
    r".{0,160}?world_size=(\d{1,6}), worker_count=(\d{1,6})"
)
_JOINED = re.compile(r"Timed out after (\d{1,9}) seconds waiting for clients\. (\d{1,6})/(\d{1,6}) clients joined")
_GLOO = re.compile(r"Timed out waiting (\d{1,12})ms for (?:send|recv) operation")
_RANK = re.compile(r"\[[Rr]ank ?(\d{1,6})\]|\bRank (\d{1,6})\]")

CUDA, SYSTEM, INTERNAL, USAGE, REMOTE = 1, 2, 3, 5, 6
_ERRORS: tuple[tuple[int, re.Pattern[str]], ...] = (
    (USAGE, re.compile(r"Duplicate GPU detected|ncclInvalidUsage")),
    (REMOTE, re.compile(r"ncclRemoteError|remote process exit(?:ed|ing)|Connection closed by remote peer")),
    (CUDA, re.compile(r"ncclUnhandledCudaError|unhandled cuda error", re.IGNORECASE)),
    (SYSTEM, re.compile(r"ncclSystemError|unhandled system error")),
    (INTERNAL, re.compile(r"ncclInternalError|NCCL error.{0,120}?internal error", re.IGNORECASE)),
)
_WARN = re.compile(r"(?:^|\s)NCCL WARN ")
PHRASES = (
    "Watchdog caught",
    "ast enqueued",
    "watchdog got stuck",
    "Heartbeat monitor",
    "didn't join",
    "store based barrier",
    "clients joined",
    "operation to complete",
    "NCCL WARN",
    "NCCL error",
    "ncclRemote",
    "ncclUnhandled",
    "ncclSystem",
    "ncclInternal",
    "ncclInvalid",
    "unhandled cuda error",
    "unhandled system error",
    "Duplicate GPU",
    "remote process exit",
)
"""A line without any of them reports nothing of this kind."""


class Told(NamedTuple):
    """One line of a rank."""

    kind: str
    """Of the event: nccl-timeout, nccl-status, nccl-error, nccl-warning."""
    values: dict[str, float]
    begins_at: int
    is_open: bool = False
    """Its numbers have not come yet: they may stand in the next line."""


def is_nccl(text: str) -> bool:
    """Whether this may be such a line; quick and generous."""
    return any(phrase in text for phrase in PHRASES)


def rank_of(text: str) -> int | None:
    """The rank that a line names as its own: ``[rank3]:``, ``[Rank 3]``, ``… Rank 3]``."""
    match = _RANK.search(text)
    return None if match is None else int(match[1] or match[2])


def told_of(text: str) -> tuple[Told, ...]:
    """What a line says of collectives; mostly nothing."""
    found = tuple(_waits(text))
    return found or tuple(_fails(text))


def _waits(text: str) -> list[Told]:
    timeout = _TIMEOUT.search(text)
    if timeout is not None:
        return _timeout(text, timeout)
    status = _STATUS.search(text)
    if status is not None:
        values = {"last_enqueued": float(status[1]), "last_completed": float(status[2])}
        failed, group, dump = _FAILED.search(text), _GROUP.search(text), _DUMP.search(text)
        if failed is not None:
            values["seq"] = float(failed[1])
        if group is not None:
            values["group"] = float(group[1])
        if failed is not None or dump is not None:
            return [Told("nccl-status", values, status.start())]
    stuck = _STUCK.search(text)
    if stuck is not None:
        seconds = {"stuck_s": float(stuck[1])} if stuck[1] else {"is_stuck": 1.0}
        return [Told("nccl-timeout", seconds, stuck.start())]
    barrier = _BARRIER.search(text)
    if barrier is not None:
        values = {"rank": float(barrier[1]), "world_size": float(barrier[2]), "joined": float(barrier[3])}
        return [Told("nccl-timeout", values, barrier.start())]
    joined = _JOINED.search(text)
    if joined is not None:
        values = {"ran_s": float(joined[1]), "joined": float(joined[2]), "world_size": float(joined[3])}
        return [Told("nccl-timeout", values, joined.start())]
    gloo = _GLOO.search(text)
    if gloo is not None:
        return [Told("nccl-timeout", {"timeout_s": float(gloo[1]) / 1000.0}, gloo.start())]
    return [
        Told("nccl-status", {"rank": float(rank), "last_enqueued": float(match[2]), "seq": float(match[3])}, 0)
        for match in _DESYNC.finditer(text)
        for rank in match[1].split(",")[:64]
    ]


def _timeout(text: str, match: re.Match[str]) -> list[Told]:
    values = {name: float(found[1]) * unit for name, pattern, unit in _FIELDS if (found := pattern.search(text))}
    ran = _RAN.search(text)
    if ran is not None:
        values["ran_s"] = float(ran[1]) / 1000.0
    is_open = not text[match.end() :].strip(" :")
    return [Told("nccl-timeout", values, match.start(), is_open=is_open)] if values or is_open else []


def _fails(text: str) -> list[Told]:
    warn = _WARN.search(text)
    if warn is not None:
        return [Told("nccl-warning", {}, warn.end())]
    if "NCCL" in text or "nccl" in text or "remote peer" in text:
        for code, pattern in _ERRORS:
            match = pattern.search(text)
            if match is not None:
                return [Told("nccl-error", {"code": float(code)}, match.start())]
    return []
