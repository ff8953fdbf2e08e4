"""How one limiter looks over time: a cell a column, in steps of how much of it the limiter was active."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.ui.glyphs import band
from gpumon.ui.panels.chart import Look
from gpumon.ui.panels.line import merged
from gpumon.ui.row import Piece


def band_cells(shares: Sequence[float | None], count: int, look: Look, style: str) -> tuple[Piece, ...]:
    """``·`` where it was not active, ``░ ▒ ▓`` for less than a quarter, less than half, more; letters in ASCII."""
    is_ascii = look.tier == "ascii"
    cells: list[Piece] = []
    for share in shares:
        if share is None:
            cells.append(("?" if is_ascii else " ", "muted"))
        elif share < 1.0:
            cells.append(("." if is_ascii else "·", "rule"))
        else:
            cells.append((("T" if style == "harm" else "=") if is_ascii else band(share), style))
    return merged([*cells, (" " * (count - len(shares)), "")])
