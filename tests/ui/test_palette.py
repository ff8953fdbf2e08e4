"""Styles become the right escape sequences in every theme and depth."""

from __future__ import annotations

import itertools

import pytest
from rich.color import Color

from gpumon.ui.palette import ROLES, Palette, muted, parse

THEMES = ("dark", "light", "high-contrast", "16", "mono")
DEPTHS = (256, 16, 0)


@pytest.mark.parametrize(
    ("theme", "depth", "style", "sgr"),
    [
        ("dark", 256, "useful", "\x1b[38;5;37m"),
        ("light", 256, "useful", "\x1b[38;5;30m"),
        ("light", 256, "bold useful-text", "\x1b[1;38;5;23m"),
        ("dark", 256, "useful on data", "\x1b[38;5;37;48;5;221m"),
        ("dark", 256, "bold reverse harm", "\x1b[1;7;38;5;203m"),
        ("light", 256, "bold reverse data", "\x1b[1;7;38;5;94m"),
        ("dark", 16, "useful", "\x1b[36m"),
        ("dark", 16, "data", "\x1b[93m"),
        ("dark", 16, "useful on data", "\x1b[36;103m"),
        ("light", 16, "data", "\x1b[33m"),
        ("light", 16, "data-text", "\x1b[1m"),
        ("dark", 16, "muted", ""),
        ("dark", 0, "useful on data", ""),
        ("dark", 0, "bold reverse harm", "\x1b[1;7m"),
        ("mono", 256, "harm", ""),
        ("mono", 256, "bold", "\x1b[1m"),
        ("16", 256, "harm", "\x1b[91m"),
        ("high-contrast", 256, "muted", "\x1b[1m"),
        ("high-contrast", 256, "useful", "\x1b[38;5;37m"),
        ("dark", 256, "", ""),
        ("dark", 256, "text", ""),
        ("dark", 256, "bold", "\x1b[1m"),
    ],
)
def test_sgr(theme: str, depth: int, style: str, sgr: str) -> None:
    """One style, one sequence."""
    assert Palette(theme, depth).sgr(style) == sgr  # type: ignore[arg-type]


@pytest.mark.parametrize(("theme", "depth"), list(itertools.product(THEMES, DEPTHS)))
def test_rich_style_says_the_same_as_the_sequence(theme: str, depth: int) -> None:
    """What Textual draws has the colours that the painter sends."""
    palette = Palette(theme, depth)  # type: ignore[arg-type]
    for role, before, on in itertools.product(ROLES, ("", "bold ", "reverse ", "bold reverse "), ("", " on data")):
        style = palette.rich(f"{before}{role}{on}")
        sgr = palette.sgr(f"{before}{role}{on}")
        codes = ["1"] * bool(style.bold) + ["7"] * bool(style.reverse)
        codes += _codes(style.color, is_ink=True) + _codes(style.bgcolor, is_ink=False)
        assert sgr == (f"\x1b[{';'.join(codes)}m" if codes else "")


def _codes(color: Color | None, *, is_ink: bool) -> list[str]:
    return [] if color is None else [";".join(color.get_ansi_codes(foreground=is_ink))]


def test_no_depth_sends_another_depths_colours() -> None:
    """16 colours never send a 256-colour code, and no bright black (invisible on Solarized)."""
    for theme in THEMES:
        for role in ROLES:
            sgr = Palette(theme, 16).sgr(role)  # type: ignore[arg-type]
            assert "38;5" not in sgr
            assert "90" not in sgr


def test_dark_16_has_no_plain_blue() -> None:
    """Blue 4 on black has a contrast of 1.6."""
    assert all("[34m" not in Palette("dark", 16).sgr(role) for role in ROLES)


def test_unknown_role_is_refused_by_name() -> None:
    """A typing error in a panel fails its test, not the user's screen silently."""
    with pytest.raises(ValueError, match="usefull"):
        parse("bold usefull")
    with pytest.raises(ValueError, match="dtaa"):
        parse("useful on dtaa")


def test_muted_greys_badges_too() -> None:
    """Old news keeps its shape and loses its colour."""
    assert muted("bold reverse harm") == "reverse muted"
    assert muted("useful on data") == "muted"
