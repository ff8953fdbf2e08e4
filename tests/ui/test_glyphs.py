"""Levels, shades and ASCII: the same columns in every tier."""

from __future__ import annotations

import pytest

from gpumon.ui import glyphs
from gpumon.ui.glyphs import ascii_row, ascii_text, band, eighth, shade


@pytest.mark.parametrize(
    ("fraction", "blocks", "half", "ascii_"),
    [
        (None, " ", " ", " "),
        (0.0, " ", " ", " "),
        (0.001, "▁", "_", "_"),
        (0.3, "▂", "_", "_"),
        (0.5, "▄", "▄", "_"),
        (0.7, "▆", "▄", "#"),
        (0.875, "▇", "▄", "#"),
        (1.0, "█", "█", "#"),
        (7.0, "█", "█", "#"),
    ],
)
def test_eighth(fraction: float | None, blocks: str, half: str, ascii_: str) -> None:
    """A level is drawn to the nearest eighth, and anything above zero leaves a trace."""
    assert (eighth(fraction), eighth(fraction, "half"), eighth(fraction, "ascii")) == (blocks, half, ascii_)


def test_half_tier_uses_code_page_437() -> None:
    """TERM=linux can show every character of its tier."""
    for character in (*glyphs.EIGHTHS["half"], *(shade(kind, "half") for kind in glyphs.SHADES)):
        character.encode("cp437")


def test_shades_without_colour() -> None:
    """Each kind of loss has a shade and a letter of its own."""
    kinds = ("useful", "data", "throttled", "peer", "idle")
    assert [shade(kind) for kind in kinds] == ["█", "▒", "▓", "░", "▁"]
    assert [shade(kind, "ascii") for kind in kinds] == ["#", "w", "T", "p", "."]


@pytest.mark.parametrize(("share", "glyph"), [(None, "·"), (0, "·"), (1, "░"), (25, "▒"), (49.9, "▒"), (50, "▓")])
def test_band(share: float | None, glyph: str) -> None:
    """A limiter's share of a bin in three steps."""
    assert band(share) == glyph


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (" gpumon lab7 · 1 × RTX 4090 · driver", " gpumon lab7 - 1 x RTX 4090 - driver"),
        ("num_workers 4 → 8   gain ≤ 1.8×", "num_workers 4 ->8   gain <=1.8x"),
        ("cost job −33%", "cost job -33%"),
        ("limit 83 °C ─", "limit 83  C -"),
        ("▇▇▒▒▓░▁", "##wwTp_"),
        ("訓練", "??"),
        ("plain", "plain"),
    ],
)
def test_ascii_text(text: str, plain: str) -> None:
    """Every byte is below 128 and every column stays where it is."""
    assert ascii_text(text) == plain
    assert len(ascii_text(text)) == len(text)


def test_every_glyph_has_an_ascii_form() -> None:
    """No mark, shade or level falls back to a question mark but the one that is one."""
    for glyph in (*glyphs.MARKS.values(), *glyphs.SHADES.values(), *glyphs.BANDS, *glyphs.EIGHTHS["blocks"]):
        assert ascii_text(glyph) != "?" or glyph == "?"


def test_ascii_row_keeps_plain_rows() -> None:
    """A row that is ASCII already is the same object, which is how the board knows that nothing changed."""
    row = (("abc", "bold"), ("def", ""))
    assert ascii_row(row) is row
    assert ascii_row((("a·", "muted"),)) == (("a.", "muted"),)
