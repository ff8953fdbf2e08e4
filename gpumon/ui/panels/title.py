"""The first row: which machine, which cards, which driver, and the time that the picture shows."""

from __future__ import annotations

from collections import Counter

from gpumon import units
from gpumon.model import Gpu
from gpumon.monitor import Frame
from gpumon.ui.panels.line import cells, clip, fill, spread, width_of
from gpumon.ui.row import Piece, Row
from gpumon.ui.view import ViewState

_BRANDS = ("NVIDIA ", "GeForce ", "Quadro ", "Tesla ")
NARROW = 60
"""Below this the span and the driver make way for the machine and the time."""


def model(name: str | None) -> str:
    """A card's name without what every card is called: ``RTX 4090``, ``H100 80GB HBM3``."""
    if name is None:
        return "GPU"
    for brand in _BRANDS:
        name = name.removeprefix(brand)
    return name


def told(frame: Frame) -> tuple[object, ...]:
    """What of a frame is in the row, but for the time."""
    last = frame.window.last
    host = last.host
    cards = [(gpu.name, gpu.mig_parent_uuid) for gpu in last.gpus]
    return frame.info, host.name, host.driver_version, host.cuda_version, cards


def title_row(frame: Frame, view: ViewState, column_s: float, width: int) -> Row:
    """Name, cards, driver at the left; span and clock at the right."""
    end = _time(frame, view, column_s, width)
    room = width - width_of(end) - 2
    start: list[Piece] = [(" gpumon ", "bold")]
    if frame.info.kind == "demo":
        start += [(" DEMO ", "bold reverse accent"), (" ", "")]
        texts = [f"simulated GPUs · scenario {frame.info.name}", f"scenario {frame.info.name}", "simulated", ""]
    else:
        if frame.info.kind == "replay":
            start += [(" REPLAY ", "bold reverse accent"), (" ", "")]
        texts = _machine(frame)
    free = room - width_of(start)
    text = next((text for text in texts if cells(text) <= free), clip(texts[-1], max(0, free)))
    return spread([*start, (text, "muted")], end, width)


def _time(frame: Frame, view: ViewState, column_s: float, width: int) -> list[Piece]:
    now = units.clock(frame.window.last.time_s)
    if width < 30:
        return [(now, ""), (" ", "")]
    pieces: list[Piece] = []
    if view.paused_at_s is not None:
        pieces += [(f" PAUSED {now} ", "bold reverse accent"), (" ", "")]
    elif view.scroll_blocks:
        back = units.duration(view.scroll_blocks * view.block_s)
        pieces += [(f" {back} BACK ", "bold reverse accent"), (" · ", "muted"), (now, ""), (" ", "")]
    if not view.paused_at_s and not view.scroll_blocks:
        pieces += [(now, ""), (" ", "")]
    if width >= NARROW:
        pieces.insert(0, (f"{units.duration(view.span_s)}, {_seconds(column_s)}/col · ", "muted"))
    return pieces


def _seconds(column_s: float) -> str:
    return f"{column_s:.3g} s" if column_s < 120 else units.duration(column_s)


def _machine(frame: Frame) -> list[str]:
    """The same facts at falling length."""
    last = frame.window.last
    host = last.host
    name = host.name or frame.info.name
    driver = f" · driver {host.driver_version}" if host.driver_version else ""
    cuda = f" · CUDA {host.cuda_version}" if host.cuda_version else ""
    cards = _cards(last.gpus)
    texts = [f"{name} · {card}{driver}{cuda}" for card in cards[:1]]
    texts += [f"{name} · {card}{driver}" for card in cards]
    texts += [f"{name} · {card}" for card in cards[-2:]]
    count = sum(1 for gpu in last.gpus if gpu.mig_parent_uuid is None)
    return [*texts, f"{name} · {count} GPU{'s' if count != 1 else ''}", name]


def _cards(gpus: tuple[Gpu, ...]) -> list[str]:
    """``8 × H100 80GB HBM3``, then with fewer words of the name."""
    names = Counter(model(gpu.name) for gpu in gpus if gpu.mig_parent_uuid is None)
    if not names:
        return ["no GPU"]
    longest = max(len(name.split()) for name in names)
    return [
        " + ".join(f"{count} × {' '.join(name.split()[:words])}" for name, count in names.items())
        for words in range(longest, max(0, min(longest, 2) - 1), -1)
    ]


def empty_title(width: int) -> Row:
    """Before there is anything to say."""
    return fill([(" gpumon", "bold")], width)
