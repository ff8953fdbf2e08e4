"""How values become cells: stacked time budgets, sparklines, limiter bands, budget bars, the time axis.

Nothing here knows where a value came from. A chart is a tuple of rows, top row first, each exactly as wide
as it has columns; columns that are not given yet lie in the future and stay blank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from gpumon import units
from gpumon.ui.glyphs import EIGHTHS, Tier, band, shade
from gpumon.ui.panels.line import merged
from gpumon.ui.row import Piece

LOSSES: tuple[tuple[str, str], ...] = (("data", "data"), ("throttled", "harm"), ("peer", "peer"))
"""What time is lost to, and its colour role."""
ROLE_OF = {"useful": "useful", **dict(LOSSES)}
VISIBLE_LOSS_PCT = 3.0
SHADED_LOSS_PCT = 15.0
"""Of a one-line slice without colour: from here on the cell shows the loss, not the level."""

Chart = tuple[tuple[Piece, ...], ...]
Column = tuple[Piece, ...]
"""The cells of one column, bottom first."""


class Look(msgspec.Struct, frozen=True):
    """What the terminal can show."""

    tier: Tier = "blocks"
    has_color: bool = True


class Shares(NamedTuple):
    """A time budget in percent; the rest of the 100 is idle."""

    useful: float
    data: float
    throttled: float
    peer: float

    @property
    def idle(self) -> float:
        """What nothing explains: the GPU had nothing to do."""
        return max(0.0, 100.0 - self.useful - self.data - self.throttled - self.peer)

    def worst(self) -> tuple[str, float]:
        """The biggest loss, by name."""
        if self.data >= self.throttled and self.data >= self.peer:
            return "data", self.data
        return ("throttled", self.throttled) if self.throttled >= self.peer else ("peer", self.peer)

    def rounded(self, whole: int = 100) -> dict[str, int]:
        """Whole parts that add up to ``whole``."""
        exact = {
            name: amount * whole / 100.0
            for name, amount in (*zip(self._fields, self, strict=True), ("idle", self.idle))
        }
        parts = {name: int(amount) for name, amount in exact.items()}
        missing = whole - sum(parts.values())
        for name in sorted(exact, key=lambda name: parts[name] - exact[name])[: max(0, missing)]:
            parts[name] += 1
        return parts


@lru_cache(maxsize=4096)
def slice_of(
    useful: float | None, data: float | None, throttled: float | None, peer: float | None
) -> Shares | None:  # fmt: skip
    """The budget of a slice of time; the same object for the same values, since most columns were there before."""
    return None if useful is None else Shares(useful, data or 0.0, throttled or 0.0, peer or 0.0)


def timeline(slices: Sequence[Shares | None], count: int, height: int, look: Look) -> Chart:
    """Stacked shares of each slice of time: useful below, the biggest loss above it, idle blank."""
    cells = (_slice_cells(part, height, look) for part in slices)
    return _stacked(cells, count, height)


@lru_cache(maxsize=4096)
def visible_loss(part: Shares | None) -> str | None:
    """The biggest loss of a slice of time, where it is big enough to be seen."""
    kind, loss = (None, 0.0) if part is None else part.worst()
    return kind if loss >= VISIBLE_LOSS_PCT else None


@lru_cache(maxsize=4096)
def _slice_cells(part: Shares | None, height: int, look: Look) -> Column:
    """One column, bottom cell first."""
    if part is None:
        return _gap_cells(height, look)
    steps = 8 * height
    kind, loss = part.worst()
    top = round((100.0 - part.idle) * steps / 100.0)
    useful = round(part.useful * steps / 100.0)
    if loss < VISIBLE_LOSS_PCT or top <= useful:
        return _level_cells(min(useful, steps - 1), height, look, ("useful",) * height)
    is_shade = loss >= SHADED_LOSS_PCT if height == 1 else None
    return _loss_cells((useful, steps if top >= steps - 1 else top), kind, height, look, is_shade=is_shade)


@lru_cache(maxsize=4096)
def _loss_cells(levels: tuple[int, int], kind: str, height: int, look: Look, *, is_shade: bool | None) -> Column:
    """Useful up to one level, the loss up to another; ``is_shade`` decides where None leaves it to each cell."""
    useful, top = levels
    is_shaded = not look.has_color or look.tier == "ascii"
    cells: list[Piece] = []
    for floor in range(0, 8 * height, 8):
        low, high = _within(useful - floor), _within(top - floor)
        if not is_shaded:
            cells.append(_stacked_cell(low, high, ROLE_OF[kind], look.tier))
        elif high - low >= 4 if is_shade is None else is_shade:
            cells.append((shade(kind, look.tier), ROLE_OF[kind]))
        else:
            cells.append((EIGHTHS[look.tier][low], "useful"))
    return tuple(cells)


def _stacked_cell(low: int, high: int, role: str, tier: Tier) -> Piece:
    """Useful up to ``low`` eighths, the loss up to ``high``; only two colours fit, so the smaller rest goes."""
    if low in {8, high}:
        return (EIGHTHS[tier][low], "useful")
    if low == 0:
        return (EIGHTHS[tier][high], role)
    return (EIGHTHS[tier][low], f"useful on {role}" if high - low >= 8 - high else "useful")


def sparkline(
    values: Sequence[float | None],
    scale: tuple[float, float],
    count: int,
    height: int,
    *,
    role: str,
    look: Look,
    wrong: Sequence[bool] = (),
) -> Chart:
    """Filled columns on a fixed scale; ``wrong`` columns turn red. The top eighth stays free."""
    low, high = scale
    steps = 8 * height
    per_unit = steps / (high - low) if high > low else 0.0
    roles = (*[f"{role}-dim"] * (height - 1), role)
    red = ("harm",) * height
    levels = [None if value is None else min(steps - 1, max(0, round((value - low) * per_unit))) for value in values]
    plain = {level: _column(level, height, look, roles) for level in {*levels}}
    cells = [plain[level] for level in levels]
    for column, is_wrong in enumerate(wrong):
        if is_wrong:
            cells[column] = _column(levels[column], height, look, red)
    return _stacked(cells, count, height)


def _column(level: int | None, height: int, look: Look, roles: tuple[str, ...]) -> Column:
    return _gap_cells(height, look) if level is None else _level_cells(level, height, look, roles)


@lru_cache(maxsize=4096)
def _level_cells(level: int, height: int, look: Look, roles: tuple[str, ...]) -> Column:
    if level == 0:
        return ((shade("idle", look.tier), "muted"), *[(" ", "")] * (height - 1))
    filled = EIGHTHS[look.tier]
    return tuple((filled[_within(level - 8 * row)], roles[row]) for row in range(height))


def _gap_cells(height: int, look: Look) -> Column:
    return (("?" if look.tier == "ascii" else "·", "muted"), *[(" ", "")] * (height - 1))


def _within(level: int) -> int:
    return min(8, max(0, level))


def _stacked(columns: Iterable[Column], count: int, height: int) -> Chart:
    given = list(columns)[:count]
    future = (" " * (count - len(given)), "")
    rows = list(zip(*given, strict=True)) or [()] * height
    return tuple([merged([*row, future]) for row in reversed(rows)])


def limiter_band(
    harmful: Sequence[float | None], normal: Sequence[float | None], count: int, look: Look
) -> list[Piece]:
    """One cell a column: heat and brake in red, a power cap in grey, ``·`` for neither, blank for unknown."""
    cells: list[Piece] = []
    for bad, cap in zip(harmful, normal, strict=True):
        if bad is None and cap is None:
            cells.append((" ", ""))
        elif bad is not None and bad >= 1.0:
            cells.append(("T" if look.tier == "ascii" else band(bad), "harm"))
        elif cap is not None and cap >= 1.0:
            cells.append(("=" if look.tier == "ascii" else "░", "peer"))
        else:
            cells.append(("." if look.tier == "ascii" else "·", "muted"))
    return cells[:count] + [(" ", "")] * (count - len(cells))


def budget_bar(shares: Shares | None, width: int, look: Look) -> tuple[Piece, ...]:
    """The time budget of the whole span as ``width`` cells; blank while nothing is known."""
    if shares is None:
        return ((" " * width, ""),)
    parts = shares.rounded(width)
    full = "#" if look.tier == "ascii" else EIGHTHS[look.tier][7]
    pieces: list[Piece] = [(full * parts["useful"], "useful")]
    for name, role in LOSSES:
        glyph = full if look.has_color and look.tier != "ascii" else shade(name, look.tier)
        pieces.append((glyph * parts[name], role))
    return merged([*pieces, (" " * parts["idle"], "")])


def legend(names: Sequence[str], look: Look, gap: str = "  ") -> tuple[Piece, ...]:
    """Which fill means what: ``█ useful  ▒ data  ░ peer  ▓ throttled``."""
    pieces: list[Piece] = []
    for number, name in enumerate(names):
        glyph = shade(name, look.tier) if not look.has_color or look.tier == "ascii" else "█"
        pieces += [(gap if number else "", "muted"), (glyph, ROLE_OF[name]), (f" {name}", "muted")]
    return merged(pieces)


def axis(end_s: float, span_s: float, count: int) -> str:
    """Labels under their exact column, every second block; one cell may stick out at the right."""
    block_s, column_s = span_s / 10, span_s / count
    form = "%M:%S" if span_s < 300 else "%H:%M" if span_s < 72_000 else "%d. %H"
    every = 2
    while every * count / 10 < 6:
        every *= 2
    cells = [" "] * (count + 1)
    first = round((end_s - span_s) / block_s)
    for number in range(10):
        if (first + number) % every == 0:
            label = units.clock((first + number) * block_s, form)
            x = round(number * block_s / column_s)
            if x + len(label) <= len(cells):
                cells[x : x + len(label)] = label
    return "".join(cells)
