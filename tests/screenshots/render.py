"""Cells of a terminal as a picture: from rows of the screen or from a pyte screen to PNG and SVG.

Block characters, shades and rules are drawn as geometry, as terminals do, so that a picture does not depend on
a font's idea of them; everything else comes from a monospaced font. Run as a program it draws a demo scenario:

    python tests/screenshots/render.py throttled 120x40 out.png [--light|--mono|--16] [--ascii] [--at SECONDS]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from rich.cells import cell_len

from gpumon.ui.palette import Palette, parse
from gpumon.ui.row import Row

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 10, 21, 17
RGB = tuple[int, int, int]
DARK: tuple[RGB, RGB] = ((0xE6, 0xE9, 0xED), (0x0F, 0x14, 0x19))
LIGHT: tuple[RGB, RGB] = ((0x1B, 0x1F, 0x24), (0xFB, 0xFB, 0xF8))
"""Foreground and background of the terminal itself."""
FONTS = (
    "/usr/share/fonts/truetype/jetbrains-mono/JetBrainsMono-{}.ttf",
    "/usr/share/fonts/truetype/dejavu/DejaVuSansMono{}.ttf",
)
ANSI_16: tuple[RGB, ...] = (
    (0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16), (36, 114, 200), (188, 63, 188), (17, 168, 205),
    (229, 229, 229), (102, 102, 102), (241, 76, 76), (35, 209, 139), (245, 245, 67), (59, 142, 234), (214, 112, 214),
    (41, 184, 219), (255, 255, 255),
)  # fmt: skip
SHADE = {"░": 0.25, "▒": 0.5, "▓": 0.75}
EIGHTHS = " ▁▂▃▄▅▆▇█"


class Cell(NamedTuple):
    """One character cell; None is the terminal's own colour."""

    text: str
    ink: RGB | None = None
    ground: RGB | None = None
    is_bold: bool = False
    is_reverse: bool = False


def color(number: int | None, *, is_256: bool = True) -> RGB | None:
    """A colour number of the terminal's as red, green, blue."""
    if number is None:
        return None
    if number < 16 or not is_256:
        return ANSI_16[number]
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return (grey, grey, grey)
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return (steps[number // 36], steps[number // 6 % 6], steps[number % 6])


def cells_of_rows(rows: Iterable[Row], palette: Palette) -> list[list[Cell]]:
    """Rows as the board would send them."""
    found = []
    for row in rows:
        line: list[Cell] = []
        for text, style in row:
            is_bold, is_reverse, ink, ground = palette._resolve(style) if style else (False, False, None, None)
            assert style == "" or parse(style)
            for character in text:
                line.append(Cell(character, color(ink), color(ground), is_bold, is_reverse))
                line += [Cell("")] * (cell_len(character) - 1)
        found.append(line)
    return found


def cells_of_screen(screen: Any) -> list[list[Cell]]:
    """What a pyte screen shows."""
    return [
        [_pyte_cell(screen.buffer[y][x]) for x in range(screen.columns)]
        for y in range(screen.lines)
    ]  # fmt: skip


_PYTE_NAMES = ("black", "red", "green", "brown", "blue", "magenta", "cyan", "white")


def _pyte_cell(cell: Any) -> Cell:
    return Cell(cell.data, _pyte_color(cell.fg), _pyte_color(cell.bg), cell.bold, cell.reverse)


def _pyte_color(name: str) -> RGB | None:
    if name == "default":
        return None
    plain = name.removeprefix("bright")
    if plain in _PYTE_NAMES:
        return ANSI_16[_PYTE_NAMES.index(plain) + 8 * (plain != name)]
    return (int(name[0:2], 16), int(name[2:4], 16), int(name[4:6], 16))


def _colors(cell: Cell, theme: tuple[RGB, RGB]) -> tuple[RGB, RGB]:
    ink, ground = cell.ink or theme[0], cell.ground or theme[1]
    return (ground, ink) if cell.is_reverse else (ink, ground)


def _mixed(ink: RGB, ground: RGB, share: float) -> RGB:
    red, green, blue = (round(a * share + b * (1 - share)) for a, b in zip(ink, ground, strict=True))
    return (red, green, blue)


def write_png(lines: Sequence[Sequence[Cell]], path: Path, theme: tuple[RGB, RGB] = DARK, scale: int = 1) -> None:
    """Draw the cells with Pillow."""
    from PIL import Image, ImageDraw, ImageFont

    width, height = CELL_WIDTH * scale, CELL_HEIGHT * scale
    columns = max((len(line) for line in lines), default=1)
    image = Image.new("RGB", (columns * width, max(1, len(lines)) * height), theme[1])
    draw = ImageDraw.Draw(image)
    fonts = [
        [ImageFont.truetype(name, FONT_SIZE * scale) for name in _font_files(is_bold=is_bold)]
        for is_bold in (False, True)
    ]
    for y, line in enumerate(lines):
        for x, cell in enumerate(line):
            ink, ground = _colors(cell, theme)
            left, top = x * width, y * height
            if ground != theme[1]:
                draw.rectangle((left, top, left + width - 1, top + height - 1), fill=ground)
            if cell.text in SHADE:
                draw.rectangle(
                    (left, top, left + width - 1, top + height - 1), fill=_mixed(ink, ground, SHADE[cell.text])
                )
            elif cell.text in EIGHTHS and cell.text.strip():
                filled = round(height * EIGHTHS.index(cell.text) / 8)
                draw.rectangle((left, top + height - filled, left + width - 1, top + height - 1), fill=ink)
            elif cell.text == "─":
                middle = top + height // 2
                draw.rectangle((left, middle, left + width - 1, middle + scale - 1), fill=ink)
            elif is_braille(cell.text):
                for dot_x, dot_y in braille_dots(cell.text):
                    x0, y0 = left + round((dot_x + 0.5) * width / 2), top + round((dot_y + 0.5) * height / 4)
                    draw.rectangle((x0 - scale, y0 - scale, x0 + scale, y0 + scale), fill=ink)
            elif cell.text == "■":
                draw.rectangle((left + 1, top + 6 * scale, left + width - 2, top + 14 * scale), fill=ink)
            elif cell.text.strip():
                font = _font_with(cell.text, fonts[cell.is_bold])
                draw.text((left, top + height * 0.78), cell.text, font=font, fill=ink, anchor="ls")
    known = Image.new("P", (1, 1))
    known.putpalette([part for rgb in _used(lines, theme) for part in rgb])
    image.quantize(palette=known, dither=Image.Dither.NONE).save(path, optimize=True)


def _used(lines: Sequence[Sequence[Cell]], theme: tuple[RGB, RGB]) -> list[RGB]:
    """Every colour of the cells, and its blends with its background at the edges of letters: a third of the bytes."""
    pairs = {_colors(cell, theme) for line in lines for cell in line}
    solid = list(dict.fromkeys([*theme, *(rgb for pair in pairs for rgb in pair)]))
    shades = [_mixed(*pair, share) for share in (0.5, 0.25, 0.75) for pair in sorted(pairs)]
    edges = [_mixed(ink, theme[1], share) for share in (0.12, 0.37, 0.62, 0.87) for ink in solid]
    return list(dict.fromkeys([*solid, *shades, *edges]))[:256]


_BRAILLE_BITS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each of the eight dots."""


def is_braille(character: str) -> bool:
    """A pattern of dots, which many fonts lack."""
    return len(character) == 1 and 0x2800 <= ord(character) <= 0x28FF


def braille_dots(character: str) -> list[tuple[int, int]]:
    """Column (0, 1) and row (0 to 3) of the dots that are set."""
    bits = ord(character) - 0x2800
    return [place for number, place in enumerate(_BRAILLE_BITS) if bits >> number & 1]


def _font_files(*, is_bold: bool) -> list[str]:
    names = (FONTS[0].format("Bold" if is_bold else "Regular"), FONTS[1].format("-Bold" if is_bold else ""))
    found = [name for name in names if Path(name).exists()]
    if not found:
        raise SystemExit("no font: install fonts-jetbrains-mono or fonts-dejavu-core")
    return found


def _font_with(character: str, fonts: Sequence[Any]) -> Any:
    """The first font that knows the character: an unknown one looks like a private one."""
    for font in fonts:
        if font.getmask(character).getbbox() != font.getmask("\ue123").getbbox():
            return font
    return fonts[0]


def write_svg(lines: Sequence[Sequence[Cell]], path: Path, theme: tuple[RGB, RGB] = DARK) -> None:
    """The same cells as vectors: one rectangle or one positioned character each, so that nothing shifts."""
    columns = max((len(line) for line in lines), default=1)
    width, height = columns * CELL_WIDTH, len(lines) * CELL_HEIGHT
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="JetBrains Mono,DejaVu Sans Mono,monospace" font-size="{FONT_SIZE - 0.5}">'
        ),
        f'<rect width="{width}" height="{height}" fill="{_hex(theme[1])}"/>',
    ]
    for y, line in enumerate(lines):
        parts += _svg_fills(line, y, theme)
        parts += _svg_texts(line, y, theme)
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def _svg_fills(line: Sequence[Cell], y: int, theme: tuple[RGB, RGB]) -> list[str]:
    """Rectangles of backgrounds and block characters, neighbours of one kind joined."""
    boxes: list[tuple[int, float, float, str]] = []
    dots: list[str] = []
    for x, cell in enumerate(line):
        ink, ground = _colors(cell, theme)
        if ground != theme[1]:
            boxes.append((x, 0.0, 1.0, _hex(ground)))
        if cell.text in SHADE:
            boxes.append((x, 0.0, 1.0, _hex(_mixed(ink, ground, SHADE[cell.text]))))
        elif cell.text in EIGHTHS and cell.text.strip():
            level = EIGHTHS.index(cell.text) / 8
            boxes.append((x, 1.0 - level, level, _hex(ink)))
        elif cell.text == "─":
            boxes.append((x, 0.5, 0.05, _hex(ink)))
        elif is_braille(cell.text):
            found = braille_dots(cell.text)
            dots += [
                f'<circle cx="{(x + 0.25 + dot_x / 2) * CELL_WIDTH:.2f}" '
                f'cy="{(y + 0.125 + dot_y / 4) * CELL_HEIGHT:.2f}" r="1.4" fill="{_hex(ink)}"/>'
                for dot_x, dot_y in found
            ]
    joined: list[list[Any]] = []
    for kind in dict.fromkeys(box[1:] for box in boxes):
        for x in (box[0] for box in boxes if box[1:] == kind):
            if joined and joined[-1][2] == kind and joined[-1][1] == x:
                joined[-1][1] = x + 1
            else:
                joined.append([x, x + 1, kind])
    return [
        f'<rect x="{first * CELL_WIDTH}" y="{(y + top) * CELL_HEIGHT:.2f}" width="{(end - first) * CELL_WIDTH}" '
        f'height="{size * CELL_HEIGHT:.2f}" fill="{fill}" shape-rendering="crispEdges"/>'
        for first, end, (top, size, fill) in joined
    ] + dots


def _svg_texts(line: Sequence[Cell], y: int, theme: tuple[RGB, RGB]) -> list[str]:
    """Words of one style, with a place for every character."""
    found: list[str] = []
    run: list[tuple[int, str]] = []
    style: tuple[str, bool] | None = None

    def flush() -> None:
        if run and style is not None:
            places = " ".join(str(x * CELL_WIDTH) for x, _ in run)
            weight = ' font-weight="bold"' if style[1] else ""
            text = escape("".join(character for _, character in run))
            found.append(
                f'<text x="{places}" y="{(y + 0.78) * CELL_HEIGHT:.2f}" fill="{style[0]}"{weight}>{text}</text>'
            )
        run.clear()

    for x, cell in enumerate(line):
        if (
            not cell.text.strip()
            or cell.text in SHADE
            or cell.text in EIGHTHS
            or cell.text == "─"
            or is_braille(cell.text)
        ):
            continue
        now = (_hex(_colors(cell, theme)[0]), cell.is_bold)
        if now != style:
            flush()
            style = now
        run.append((x, cell.text))
    flush()
    return found


def _hex(rgb: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)


def write(rows: Iterable[Row], path: Path, palette: Palette) -> None:
    """Rows to PNG or SVG, by the name's ending."""
    theme = LIGHT if palette.theme == "light" else DARK
    lines = cells_of_rows(rows, palette)
    if path.suffix == ".svg":
        write_svg(lines, path, theme)
    else:
        write_png(lines, path, theme)


def main(argv: Sequence[str]) -> None:
    """Draw one frame of a demo scenario."""
    from gpumon.monitor import frames
    from gpumon.sources.demo import simulate
    from gpumon.ui.layout import Layout
    from gpumon.ui.view import ViewState

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from builders import ListSource

    scenario, size, target = argv[:3]
    flags = argv[3:]
    width, height = (int(part) for part in size.split("x"))
    seconds = float(flags[flags.index("--at") + 1]) if "--at" in flags else 631.0
    gpus = int(flags[flags.index("--gpus") + 1]) if "--gpus" in flags else None
    theme: Any = next((flag[2:] for flag in flags if flag in ("--light", "--mono", "--16", "--high-contrast")), "dark")
    palette = Palette(theme)
    view = ViewState(
        tier="ascii" if "--ascii" in flags else "blocks", has_color=palette.has_color, self_cpu_pct=0.3
    )  # fmt: skip
    layout = Layout()
    for frame in frames(ListSource(simulate(scenario, seconds, gpus=gpus), name=scenario)):
        newest = frame
    rows = layout.rows(newest, view, width, height)
    if target == "-":
        for row in rows:
            sys.stdout.write("".join(f"{palette.sgr(style)}{text}\x1b[0m" for text, style in row) + "\n")
    else:
        write(rows, Path(target), palette)


if __name__ == "__main__":
    main(sys.argv[1:])
