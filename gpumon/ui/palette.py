"""Which colour a role gets in a theme and a colour depth, as an SGR sequence and as a Rich style.

A style is ``[bold ][reverse ]ROLE[ on ROLE]``; the empty string is the terminal's own. ``useful`` and
``data`` are fills; their words take ``useful-text`` and ``data-text``, darker on a light background
(``reverse`` does so by itself). A badge is ``bold reverse ROLE``: its ink is the terminal's background.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from gpumon.ui.row import Row

if TYPE_CHECKING:
    from rich.style import Style

Theme = Literal["dark", "light", "high-contrast", "16", "mono"]
ThemeChoice = Literal["auto", "dark", "light", "high-contrast", "16", "mono"]
Depth = Literal[256, 16, 0]
"""How many colours are sent; 0 sends none, bold and reverse only."""

THEMES: tuple[ThemeChoice, ...] = get_args(ThemeChoice)
RESET = "\x1b[0m"


class Shade(msgspec.Struct, frozen=True):
    """One role's colour numbers; None is the terminal's own foreground."""

    dark: int | None
    light: int | None
    dark_16: int | None
    light_16: int | None


ROLES: dict[str, Shade] = {
    "useful": Shade(37, 30, 6, 6),
    "useful-text": Shade(37, 23, 6, 6),
    "data": Shade(221, 136, 11, 3),
    "data-text": Shade(221, 94, 11, None),
    "harm": Shade(203, 124, 9, 1),
    "peer": Shade(60, 245, 7, 7),
    "muted": Shade(246, 241, None, None),
    "accent": Shade(117, 25, 14, 4),
    "power": Shade(68, 68, 12, 12),
    "power-dim": Shade(24, 110, 12, 12),
    "memory": Shade(97, 140, 5, 5),
    "memory-dim": Shade(60, 182, 5, 5),
    "allocated": Shade(183, 55, 13, 5),
    "temperature": Shade(67, 67, 7, 7),
    "temperature-dim": Shade(240, 250, 7, 7),
    "clock": Shade(67, 67, 6, 6),
    "clock-dim": Shade(24, 110, 6, 6),
    "rule": Shade(238, 251, None, None),
    "text": Shade(None, None, None, None),
}
"""Temperature and clock share 67, the nearest to both in 256 colours: they never share a filled chart."""

_WORDS_OF = {"useful": "useful-text", "data": "data-text"}


class Parts(msgspec.Struct, frozen=True):
    """A style taken apart."""

    is_bold: bool
    is_reverse: bool
    role: str
    on: str | None


@cache
def parse(style: str) -> Parts:
    """Take a style apart; an unknown role is a ValueError that names it."""
    words = style.split()
    on = None
    if "on" in words:
        at = words.index("on")
        (on,) = words[at + 1 :]
        words = words[:at]
    is_bold, is_reverse = "bold" in words, "reverse" in words
    roles = [word for word in words if word not in ("bold", "reverse")]
    if len(roles) > 1:
        raise ValueError(f"style {style!r} names two roles: {roles}")
    role = roles[0] if roles else "text"
    for name in (role, on):
        if name is not None and name not in ROLES:
            raise ValueError(f"style {style!r} names an unknown role: {name}")
    if is_reverse:
        role = _WORDS_OF.get(role, role)
    return Parts(is_bold, is_reverse, role, on)


def muted(style: str) -> str:
    """The same style as old news: its colours give way to grey, its bold goes."""
    return "reverse muted" if "reverse" in style else "muted"


class Palette:
    """The colours of one theme at one depth; every answer is remembered."""

    def __init__(self, theme: Theme = "dark", depth: Depth = 256) -> None:
        """``16`` and ``mono`` lower the depth themselves; they are dark where that matters."""
        self.theme: Theme = theme
        self.depth: Depth = 0 if theme == "mono" else 16 if theme == "16" and depth else depth
        self._sgr: dict[str, str] = {"": ""}
        self._rich: dict[str, Style] = {}

    @property
    def has_color(self) -> bool:
        """False where states must be told apart by shades and words alone."""
        return self.depth > 0

    def number(self, role: str) -> int | None:
        """Colour number of a role, None for the terminal's own foreground."""
        if not self.depth or (self.theme == "high-contrast" and role in ("muted", "rule")):
            return None
        shade = ROLES[role]
        if self.depth == 16:
            return shade.light_16 if self.theme == "light" else shade.dark_16
        return shade.light if self.theme == "light" else shade.dark

    def sgr(self, style: str) -> str:
        """The escape sequence that switches the style on; empty when nothing is to be switched."""
        known = self._sgr.get(style)
        if known is None:
            known = self._sgr[style] = self._make_sgr(style)
        return known

    def text(self, row: Row) -> str:
        """A row as it is sent to the terminal."""
        sgr = self.sgr
        return "".join([f"{code}{text}{RESET}" if (code := sgr(style)) else text for text, style in row])

    def rich(self, style: str) -> Style:
        """The same as a Rich style, for whatever Textual draws."""
        known = self._rich.get(style)
        if known is None:
            known = self._rich[style] = self._make_rich(style)
        return known

    def _resolve(self, style: str) -> tuple[bool, bool, int | None, int | None]:
        parts = parse(style)
        is_bold = parts.is_bold or (self.theme == "high-contrast" and parts.role in ("text", "muted") and style != "")
        if self.depth == 16 and parts.role == "data-text" and self.theme == "light":
            is_bold = True  # yellow words are unreadable on white: bold says what the colour cannot
        on = None if parts.on is None else self.number(parts.on)
        return is_bold, parts.is_reverse, self.number(parts.role), on

    def _make_sgr(self, style: str) -> str:
        is_bold, is_reverse, ink, on = self._resolve(style)
        codes = ["1"] * is_bold + ["7"] * is_reverse
        if ink is not None:
            codes.append(_code(ink, self.depth, 30))
        if on is not None:
            codes.append(_code(on, self.depth, 40))
        return f"\x1b[{';'.join(codes)}m" if codes else ""

    def _make_rich(self, style: str) -> Style:
        from rich.color import Color
        from rich.style import Style

        if not style:
            return Style.null()
        is_bold, is_reverse, ink, on = self._resolve(style)
        return Style(
            color=None if ink is None else Color.from_ansi(ink),
            bgcolor=None if on is None else Color.from_ansi(on),
            bold=is_bold or None,
            reverse=is_reverse or None,
        )


def _code(number: int, depth: Depth, base: int) -> str:
    """SGR parameters of one colour; ``base`` is 30 for ink and 40 for ground."""
    if depth == 256:
        return f"{base + 8};5;{number}"
    return str(base + number if number < 8 else base + 52 + number)
