"""Which character stands for a level, a loss or a state in each tier of terminal: blocks, half, ASCII."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from gpumon.ui.row import Piece, Row

Tier = Literal["blocks", "half", "ascii"]
"""``half`` has only the characters of code page 437 (``TERM=linux``)."""

EIGHTHS: dict[Tier, str] = {
    "blocks": " ▁▂▃▄▅▆▇█",
    "half": " ___▄▄▄▄█",
    "ascii": " ____####",
}
"""Nine characters each: 0/8 to 8/8. Only 8/8 is full, so that a chart that stops at 7/8 touches no other."""

SHADES: dict[str, str] = {"useful": "█", "data": "▒", "throttled": "▓", "peer": "░", "idle": "▁"}
"""What a timeline cell shows without colour."""

LETTERS: dict[str, str] = {"useful": "#", "data": "w", "throttled": "T", "peer": "p", "idle": "."}
"""The same in ASCII."""

MARKS: dict[str, str] = {
    "healthy": "●",
    "starting": "●",
    "training": "●",
    "empty": "●",
    "info": "·",
    "warning": "▲",
    "critical": "■",
    "stale": "?",
    "muted": "m",
    "recovered": "·",
    "gap": "·",
    "none": "–",
    "cursor": "›",
}
WORDS: dict[str, str] = {
    "healthy": "HEALTHY",
    "starting": "STARTING",
    "training": "TRAINING",
    "warning": "WARNING",
    "critical": "CRITICAL",
    "stale": "STALE",
    "empty": "IDLE",
}
"""The word beside a headline's mark; a mark never stands alone in a badge."""

BANDS = "·░▒▓"
"""A limiter: not active, < 25 %, < 50 %, more of the bin."""

_ASCII: dict[str, str] = {
    "█": "#", "▇": "#", "▆": "#", "▅": "#", "▄": "_", "▃": "_", "▂": "_", "▁": "_",
    "▒": "w", "▓": "T", "░": "p",
    "●": "o", "▲": "!", "■": "X", "·": ".", "›": ">", "–": "-", "—": "-", "─": "-", "−": "-", "…": "~",
    "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "≤": "<", "≥": ">", "°": " ", "µ": "u", "‹": "<",
    "│": "|", "±": "~", "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip
_ASCII_TABLE = str.maketrans(_ASCII)
_PAIRS = ((" ≤ ", " <="), (" ≥ ", " >="), (" · ", " - "), (" → ", " ->"))
"""Longer forms that keep the columns."""


def eighth(fraction: float | None, tier: Tier = "blocks") -> str:
    """The character that fills a cell from below to ``fraction``; anything above zero shows at least a trace."""
    if fraction is None or fraction <= 0.0:
        return " "
    level = min(8, max(1, round(fraction * 8)))
    return EIGHTHS[tier][level]


def shade(kind: str, tier: Tier = "blocks") -> str:
    """The full cell of a share of the time budget where there is no colour."""
    if tier == "ascii":
        return LETTERS[kind]
    return "_" if tier == "half" and kind == "idle" else SHADES[kind]


def band(share_pct: float | None) -> str:
    """How much of a bin a limiter was active, as one of ``BANDS``."""
    if share_pct is None or share_pct <= 0.0:
        return BANDS[0]
    return BANDS[1] if share_pct < 25.0 else BANDS[2] if share_pct < 50.0 else BANDS[3]


@lru_cache(maxsize=4096)
def ascii_text(text: str) -> str:
    """The text with every character below 128, in the same number of characters."""
    if text.isascii():
        return text
    for wide, plain in _PAIRS:
        text = text.replace(wide, plain.ljust(len(wide)))
    text = text.translate(_ASCII_TABLE)
    return text if text.isascii() else "".join(c if c.isascii() else "?" for c in text)


def ascii_row(row: Row) -> Row:
    """A row as ``--ascii`` shows it; an ASCII row is returned as the same object."""
    if all(text.isascii() for text, _ in row):
        return row
    pieces: list[Piece] = [(ascii_text(text), style) for text, style in row]
    return tuple(pieces)
