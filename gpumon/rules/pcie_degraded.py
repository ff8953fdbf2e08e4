"""Knows ``pcie-degraded``: a PCIe link that stays below what card and slot can do while the GPU needs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon import units
from gpumon.model import Abstention, Confidence, Evidence, Finding, Gpu, Severity
from gpumon.rules import links_by_log, thermal
from gpumon.rules.lanes import narrower_than_siblings
from gpumon.rules.limiters import boards, together
from gpumon.rules.links import growth, has_slot, pcie_bytes_per_s, replay_budget, traffic_bytes_per_s
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a PCIe link counts as degraded."""

    window_s: float = 30.0
    """The seconds looked at."""
    below_pct: float = 80.0
    """Share of the window in which the link was below its best."""
    busy_pct: float = 50.0
    """Utilization from which on the link must be awake."""
    traffic_bytes_per_s: float = 500e6
    """Traffic from which on a slow link costs time (or 40 % of what the slow link carries, if that is less)."""
    replays_window_s: float = 120.0
    """The seconds in which errors are counted; what is allowed depends on lanes and generation."""


_FULL_SHARE = 0.4


class _Link(NamedTuple):
    gpu: Gpu
    gen: int
    width: int
    gen_max: int
    width_max: int
    below_pct: float

    def now(self) -> str:
        return f"Gen{self.gen} x{self.width}"

    def best(self) -> str:
        return f"Gen{self.gen_max} x{self.width_max}"

    def is_severe(self) -> bool:
        """A quarter of the lanes, or two generations down."""
        return self.width * 4 <= self.width_max or self.gen_max - self.gen >= 2


@rule(
    "pcie-degraded",
    limits=Limits,
    every_s=5.0,
    clear_s=30.0,
    suppressed_by=("gpu-lost", "driver-stuck"),
    at_once=narrower_than_siblings,
)
def pcie_degraded(window: Window, limits: Limits) -> Conclusions:
    """The PCIe link runs slower or narrower than card and slot can, or repeats itself, under load.

    What it sees:
        While the GPU was at work (50 % utilization, P0 to P2) and moved 500 MB/s or more, its link had a lower
        generation or fewer lanes than the driver gives as possible for this card in this system, in 80 % of 30 s. A
        quarter of the lanes or two generations less are critical; where the traffic is not reported, only those count,
        as a warning. Also: more replays or corrected errors per minute than the PCIe error rate allows. In a kernel's
        log: AER errors of the GPU's link or of a port that may be its, and links that came up on a part of their lanes.
        From a single reading: cards with fewer lanes than others of their model, as information.

    Why it matters:
        Copies of batches and, without NVLink, all traffic between GPUs crawl, while utilization says 100 % and nothing
        logs an error.

    What to do:
        Reseat card and riser, use a slot that hangs on the CPU with all its lanes, look at the slot's setting in the
        BIOS, try pcie_aspm.policy=performance. A reboot trains the link anew.

    When it is wrong:
        An idle GPU lowers its link to save power; that is never judged. Boards that split x16 into two x8 report 8
        lanes as their most. Virtual machines and chip-to-chip systems (GB10, GH200) show links that do not exist, and
        are left out. A Thunderbolt enclosure has four lanes by design.
    """
    yield from links_by_log.pcie_errors(window)
    yield from links_by_log.narrow_links(window)
    if window.last.host.chassis == "virtual":
        return
    cards = tuple(boards(window))
    slow: list[Finding] = []
    for gpu in cards:
        busy = window.mean(gpu, "utilization_pct", limits.window_s)
        is_awake = gpu.performance_state in {None, "P0", "P1", "P2"}
        if not has_slot(gpu) or busy is None or not is_awake:
            continue
        if busy < limits.busy_pct and not _is_full(window, gpu, limits):
            continue
        if None in (gpu.pcie_gen, gpu.pcie_width, gpu.pcie_gen_max, gpu.pcie_width_max):
            because = "the PCIe link and its best are not reported"
            yield Abstention(rule="pcie-degraded", because=because, subject=thermal.subject_of(gpu))
            continue
        found = _degraded(window, gpu, limits) or _repeating(window, gpu, limits)
        if isinstance(found, Finding) and found.cause != "replays":
            slow.append(found)
        elif found is not None:
            yield found
    yield from _alike(slow, len(cards))


def _is_full(window: Window, gpu: Gpu, limits: Limits) -> bool:
    """The link is awake by what it carries: a GPU that waits for copies over a slow one is not busy."""
    most = pcie_bytes_per_s(gpu.pcie_gen, gpu.pcie_width)
    traffic = traffic_bytes_per_s(window, gpu, limits.window_s)
    return most is not None and traffic is not None and traffic >= _FULL_SHARE * most


def _alike(slow: Sequence[Finding], cards: int) -> Iterator[Finding]:
    """One finding where most cards have the same slow link: it is the board's, or the riser's of each."""
    links = {(one.severity, one.evidence[0].value, one.evidence[0].was) for one in slow}
    if len(links) != 1:
        yield from slow
        return
    _, now, best = links.pop()
    yield from together(slow, cards, f"are on {now} links, not {best}")


def _degraded(window: Window, gpu: Gpu, limits: Limits) -> Finding | Abstention | None:
    if gpu.pcie_gen == gpu.pcie_gen_max and gpu.pcie_width == gpu.pcie_width_max:
        return None
    link = _link(window, gpu, limits.window_s)
    strength = link.below_pct / limits.below_pct
    if strength < 0.8 or not window.covers(limits.window_s):
        return None
    traffic = traffic_bytes_per_s(window, gpu, limits.window_s)
    if traffic is None:
        if not link.is_severe():
            because = "the traffic on the PCIe link is not reported"
            return Abstention(rule="pcie-degraded", because=because, subject=thermal.subject_of(gpu))
        return _slow_link(window, link, ("warning", "likely"), None, strength)
    most = pcie_bytes_per_s(link.gen, link.width) or limits.traffic_bytes_per_s
    if traffic < min(limits.traffic_bytes_per_s, _FULL_SHARE * most):
        return None
    is_laptop = window.last.host.chassis == "laptop"
    severity: Severity = "critical" if link.is_severe() and not is_laptop else "warning"
    return _slow_link(window, link, (severity, "certain"), traffic, strength)


def _link(window: Window, gpu: Gpu, seconds: float) -> _Link:
    gens, widths = window.series(gpu, "pcie_gen", seconds), window.series(gpu, "pcie_width", seconds)
    gen_max, width_max = gpu.pcie_gen_max or 0, gpu.pcie_width_max or 0
    known = [(gen, width) for gen, width in zip(gens, widths, strict=True) if gen is not None and width is not None]
    below = sum(gen < gen_max or width < width_max for gen, width in known)
    share = 100.0 * below / len(known) if known else 0.0
    return _Link(gpu, int(gpu.pcie_gen or 0), int(gpu.pcie_width or 0), gen_max, width_max, share)


def _slow_link(
    window: Window, link: _Link, words: tuple[Severity, Confidence], traffic: float | None, strength: float
) -> Finding:
    gpu = link.gpu
    shown = "traffic not reported" if traffic is None else f"moving {units.rate(traffic).strip()}"
    is_narrow = link.width < link.width_max
    field, best = ("pcie_width", link.width_max) if is_narrow else ("pcie_gen", link.gen_max)
    return Finding(
        rule="pcie-degraded",
        severity=words[0],
        confidence=words[1],
        subject=thermal.subject_of(gpu),
        summary=f"GPU {gpu.index} is on a {link.now()} link, not {link.best()}",
        strength=strength,
        cause="fewer-lanes" if is_narrow else "lower-generation",
        cause_text=f"PCIe {link.now()} of {link.best()} under load, {shown}",
        fix_text="reseat card and riser; slot on the CPU; BIOS slot setting",
        evidence=(
            Evidence(
                name="PCIe link", value=link.now(), was=link.best(), judged_by="best of card and slot", field=field
            ),
            Evidence(name="below its best", value=thermal.whole(link.below_pct), unit="%", judged_by="≥ 80% of 30 s"),
            Evidence(
                name="PCIe traffic",
                value=None if traffic is None else units.rate(traffic).strip(),
                judged_by="≥ 500 M/s",
                field="pcie_rx_bytes_per_s",
            ),
            *links_by_log.kernel_line(window, gpu.uuid),
        ),
        fixes=_fixes(window, is_narrow=is_narrow),
        onset_s=began_ago_s(window, gpu, field, lambda value: value < best),
    )


def _fixes(window: Window, *, is_narrow: bool) -> tuple[str, ...]:
    lanes = "use a slot wired to the CPU with all its lanes; M.2 drives may take lanes away"
    found = ["reseat the card and its riser or cable", "BIOS: set the slot's generation by hand; disable ASPM"]
    found.insert(1 if is_narrow else 2, lanes)
    if window.last.host.chassis == "laptop":
        found.insert(0, "Thunderbolt or OCuLink enclosure? four lanes are all it has")
    return (*found, "kernel option pcie_aspm.policy=performance; a reboot trains the link anew")


def _repeating(window: Window, gpu: Gpu, limits: Limits) -> Finding | None:
    """More replays or corrected errors than the error rate of PCIe allows."""
    seconds = limits.replays_window_s
    grown = {
        "replays": growth(window, gpu, "pcie_replays", seconds),
        "corrected errors": growth(window, gpu, "pcie_correctable_errors", seconds),
    }
    # One step alone may be the link being trained anew.
    rates = {what: found.grown * 60.0 / seconds for what, found in grown.items() if found and found.steps >= 2}
    if not rates or not window.covers(seconds):
        return None
    what = max(rates, key=lambda name: rates[name])
    budget = replay_budget(gpu.pcie_gen, gpu.pcie_width)
    if rates[what] < 0.8 * budget:
        return None
    field = "pcie_replays" if what == "replays" else "pcie_correctable_errors"
    return Finding(
        rule="pcie-degraded",
        severity="warning",
        confidence="certain",
        subject=thermal.subject_of(gpu),
        summary=f"the PCIe link of GPU {gpu.index} repeats transfers",
        strength=rates[what] / budget,
        cause="replays",
        cause_text=f"{rates[what]:.0f} {what} per minute, {budget} are allowed",
        fix_text="reseat card, riser and cable",
        evidence=(
            Evidence(
                name=what,
                value=float(round(rates[what])),
                unit="/min",
                judged_by=f"≤ {budget} at Gen{gpu.pcie_gen} x{gpu.pcie_width}",
                field=field,
            ),
        ),
        fixes=(
            "reseat the card and its riser or cable; a worn riser is the usual cause",
            "BIOS: try one PCIe generation less: slower, but without errors",
            "errors that grow end in a lost GPU (Xid 79): plan a check of slot and power",
        ),
    )
