"""How pieces become a row that is exactly as wide as it must be, whatever characters came from outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from gpumon.ui.row import Piece, Row


def cells(text: str) -> int:
    """Cells a text takes on a terminal."""
    return len(text) if text.isascii() else cell_len(text)


def width_of(pieces: Iterable[Piece]) -> int:
    """Cells the pieces take together."""
    return sum([len(text) if text.isascii() else cell_len(text) for text, _ in pieces])


def left(text: str, width: int) -> str:
    """The text cut or padded on the right to ``width`` cells."""
    if text.isascii():
        return text[:width].ljust(width)
    return set_cell_size(text, width) if width > 0 else ""


def right(text: str, width: int) -> str:
    """The text padded on the left to ``width`` cells; cut at its end where it is longer."""
    missing = width - cells(text)
    return " " * missing + text if missing >= 0 else left(text, width)


def clip(text: str, width: int) -> str:
    """The text, ending in ``…`` where it had to be cut to ``width`` cells."""
    if cells(text) <= width:
        return text
    return left(text, width - 1).rstrip() + "…" if width > 1 else left(text, max(0, width))


def fill(pieces: Sequence[Piece], width: int) -> Row:
    """A row of exactly ``width`` cells from pieces that may be too short or too long."""
    missing = width - width_of(pieces)
    if missing == 0:
        return tuple(pieces)
    if missing > 0:
        return (*pieces, (" " * missing, ""))
    kept: list[Piece] = []
    for text, style in pieces:
        free = width - width_of(kept)
        if free <= 0:
            break
        kept.append((text if cells(text) <= free else left(text, free), style))
    return tuple(kept)


def pad(pieces: Sequence[Piece], width: int) -> Row:
    """``fill`` for text that is our own: every character is one cell, so counting them is enough."""
    missing = width - sum([len(text) for text, _ in pieces])
    if missing < 0:
        return fill(pieces, width)
    return (*pieces, (" " * missing, "")) if missing else tuple(pieces)


def spread(start: Sequence[Piece], end: Sequence[Piece], width: int) -> Row:
    """A row with one group at its left and one at its right end; the right one goes when both do not fit."""
    gap = width - width_of(start) - width_of(end)
    if gap < 1:
        return fill(start, width)
    return (*start, (" " * gap, ""), *end)


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same cells in as few pieces as there are changes of style."""
    kept: list[Piece] = []
    held = held_style = ""
    for text, style in pieces:
        if style == held_style:
            held += text
        elif text:
            if held:
                kept.append((held, held_style))
            held, held_style = text, style
    return (*kept, (held, held_style)) if held else tuple(kept)


def section(title: str, note: str, end: str, width: int, *, cursor: bool = False) -> Row:
    """A titled rule: ``─ HOST 16 cores ───── pressure cpu 0 ─``; the note gives way, then the end."""
    start = "›" if cursor else "─"
    room = width - 3 - cells(title) - 2
    if end and cells(end) + 4 > room:
        end = ""
    tail = cells(end) + 3 if end else 0
    note = clip(note, max(0, room - tail - 2)) if note else ""
    pieces: list[Piece] = [(start, "accent" if cursor else "rule"), (f" {title}", "bold")]
    pieces.append((f" {note} " if note else " ", "muted"))
    rule = width - width_of(pieces) - tail
    pieces.append(("─" * max(0, rule), "rule"))
    if end:
        pieces += [(f" {end} ", "muted"), ("─", "rule")]
    return fill(pieces, width)
