"""Knows ``memory-hot``: the GPU's memory, not its core, is at its temperature limit."""

from __future__ import annotations

from gpumon.model import Abstention, Evidence, Finding, Gpu
from gpumon.rules import heat_at_once, thermal
from gpumon.rules.limiters import boards
from gpumon.rules.onset import began_ago_s
from gpumon.rules.rule import Conclusions, rule
from gpumon.rules.rule import Limits as Base
from gpumon.signals import temperature_limit_c
from gpumon.window import Window


class Limits(Base, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the memory's temperature counts as trouble."""

    window_s: float = 60.0
    """The seconds looked at."""
    margin_c: float = 3.0
    """So near to its limit the memory is hot."""
    share_pct: float = 90.0
    """Share of the window in which it must be so near."""
    core_margin_c: float = 8.0
    """How far the core must stay below its own limit; nearer, the whole card is hot: information only."""
    slowed_pct: float = 1.0
    """Share of the window in which the thermal limiter held the clock: from there on it is critical."""


_SERIES = "memory_temperature_c"


@rule(
    "memory-hot",
    limits=Limits,
    every_s=5.0,
    clear_s=60.0,
    suppressed_by=("gpu-lost", "driver-stuck", "hw-thermal", "sw-thermal"),
    at_once=heat_at_once.memory_hot,
)
def memory_hot(window: Window, limits: Limits) -> Conclusions:
    """The GPU's memory is at its temperature limit, whatever the temperature of the core.

    What it sees:
        For 60 s the memory was within 3 °C of the limit that the driver reports for it (95 °C for HBM and 104 °C for
        GDDR where it reports none). It is critical once the thermal limiter holds the clock while the core stays at
        least 5 °C below its own limit: then the memory is what slows the card. A single reading at the limit is
        possible trouble.

    Why it matters:
        Hot memory slows the whole card although the core looks cool, and wears out: rows get remapped sooner. HBM can
        sit 30 °C above the core under load.

    What to do:
        Get air over the back of the card and its pads. A lower power limit or memory clock helps at once; so does
        moving a job that is bound by bandwidth to another card.

    When it is wrong:
        A limit that is only assumed may not be this card's, so the word is possible there. A card whose core is within
        8 °C of its own limit is hot as a whole, which is no fault as long as the clock stays: information only. Most
        consumer cards have no sensor for it, or none that the driver shows.
    """
    for gpu in boards(window):
        if gpu.memory_temperature_c is None:
            job = window.job_of(gpu.uuid)
            if job is not None and job.phase == "train":
                because = "the memory's temperature is not reported"
                yield Abstention(rule="memory-hot", because=because, subject=thermal.subject_of(gpu))
            continue
        limit, whose = thermal.memory_limit_c(gpu)
        hot_pct = window.share(gpu, _SERIES, limits.window_s, at_least=limit - limits.margin_c)
        if hot_pct is not None and hot_pct >= 0.8 * limits.share_pct and window.covers(limits.window_s):
            yield _finding(window, gpu, (limit, whose), hot_pct / limits.share_pct, limits)


def _finding(window: Window, gpu: Gpu, limit: tuple[float, str], strength: float, limits: Limits) -> Finding:
    limit_c, whose = limit
    memory = window.mean(gpu, _SERIES, 30.0) or limit_c
    core, slowed = window.mean(gpu, "temperature_c", 30.0), window.mean(gpu, "throttled_pct.sw_thermal", 60.0)
    is_slowed = slowed is not None and slowed >= limits.slowed_pct
    margin_c = thermal.core_margin_c(window, gpu)
    is_core_cool = margin_c is None or margin_c >= limits.core_margin_c
    is_the_limit = is_slowed and thermal.is_memory_the_limit(window, gpu, limits.window_s)
    began_s = began_ago_s(window, gpu, _SERIES, lambda value: value >= limit_c - limits.margin_c)
    watts = thermal.power_limit_w(window, gpu)
    lower = () if watts is None else (f"at once: nvidia-smi -i {gpu.index} -pl {watts} (root)",)
    core_limit = temperature_limit_c(gpu)
    core_text = "" if core is None else f", core {core:.0f}"
    return Finding(
        rule="memory-hot",
        severity="critical" if is_the_limit else "warning" if is_core_cool else "info",
        confidence="possible" if gpu.memory_temperature_max_c is None else "certain" if is_the_limit else "likely",
        subject=thermal.subject_of(gpu),
        summary=f"memory of GPU {gpu.index} {'slows it down: too hot' if is_the_limit else 'is at its heat limit'}",
        strength=strength,
        cause="memory-temperature",
        cause_text=f"memory {memory:.0f} °C ({whose}){core_text}",
        fix_text=f"air over the back of GPU {gpu.index}",
        evidence=(
            Evidence(name="memory temperature", value=thermal.whole(memory), unit="°C", judged_by=whose, field=_SERIES),
            Evidence(
                name="core temperature",
                value=thermal.whole(core),
                unit="°C",
                judged_by=None if core_limit is None else f"limit {core_limit:.0f}",
                field="temperature_c",
            ),
            Evidence(
                name="SW thermal time",
                value=thermal.whole(slowed),
                unit="%",
                judged_by="slows down if above 0",
                field="throttled_pct.sw_thermal",
            ),
        ),
        fixes=(
            f"get air over the back of GPU {gpu.index} and check its pads",
            *lower,
            f"lower the memory clock: nvidia-smi -i {gpu.index} -lmc 0,MHZ (root)",
            "move work that is bound by memory bandwidth to a cooler card",
        ),
        onset_s=began_s,
    )
