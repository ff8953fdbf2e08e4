"""What the bytes of a log become before any format sees them."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from gpumon import opened
from gpumon.errors import UsageError
from gpumon.logs.lines import LINE_MAX, lines
from gpumon.opened import Opened


def read(path: Path, content: bytes) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """The numbered lines of a file with that content, and what was left out."""
    path.write_bytes(content)
    left_out: list[tuple[int, str]] = []
    file = Opened(path)
    found = list(lines(file, lambda number, because: left_out.append((number, because))))
    file.close()
    return found, left_out


TEXT = "gpu, 97 %\nhé · 71,5 °C\n\nlast"
WANTED = [(1, "gpu, 97 %"), (2, "hé · 71,5 °C"), (3, ""), (4, "last")]


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        b"\xfe\xff" + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r\n").encode("utf-16"),
        gzip.compress(TEXT.encode()),
        gzip.compress(TEXT[:9].encode()) + gzip.compress(TEXT[9:].encode()) + b"\0" * 512,
    ],
    ids=["utf-8", "bom", "utf-16", "utf-16-be", "le", "be", "crlf", "powershell", "gzip", "two members and padding"],
)
def test_encodings_and_line_ends(tmp_path: Path, content: bytes) -> None:
    """The same text, however it was written."""
    assert read(tmp_path / "x", content) == (WANTED, [])


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"\x1b[1;32mGPU\x1b[0m 0\x1b[K", ["GPU 0"]),
        (b"\x1b]0;title\x07x\x1b]52;c;ZWNo\x1b\\y", ["xy"]),
        (b"sparse \x00\x00file", ["sparse file"]),
        (b"N\x08NA\x08AM\x08ME\x08E", ["NAME"]),
        (b" 10%|#\r 20%|##\r 30%|###\n", [" 10%|#", " 20%|##", " 30%|###"]),
        (b"> | GPU  Name |\n>> deep\n  > spaced", ["| GPU  Name |", "deep", "spaced"]),
        (b"```text\n| x |\n```\n~~~", ["", "| x |", "", ""]),
        (b"a\tb", ["a\tb"]),
        (b"    indented stays", ["    indented stays"]),
        ("zero\u200bwidth \u202eright \ufeffmark".encode(), ["zero·width ·right mark"]),
        (b"\xff\xfeno utf-16 after all"[2:] + b"\xff", ["no utf-16 after all\ufffd"]),
    ],
)
def test_damage_of_terminals_and_copying(tmp_path: Path, content: bytes, wanted: list[str]) -> None:
    """Colours, overstrikes, progress bars, quotation and code marks are gone; nothing unprintable is left."""
    found, left_out = read(tmp_path / "x", content)
    assert [line for _, line in found] == wanted
    assert left_out == []


def test_long_lines_are_cut_and_named(tmp_path: Path) -> None:
    """Of a line of any length the first 64 KiB are read; the lines around it are whole and keep their numbers."""
    content = b"a\n" + b"x" * (3 * LINE_MAX) + b"\nb\n" + b"y" * 1_000_000 + b"\nc\n" + b"z" * (LINE_MAX + 1)
    found, left_out = read(tmp_path / "x", content)
    assert [(number, line[:1], len(line)) for number, line in found] == [
        (1, "a", 1),
        (2, "x", LINE_MAX),
        (3, "b", 1),
        (4, "y", LINE_MAX),
        (5, "c", 1),
        (6, "z", LINE_MAX),
    ]
    assert left_out == [(number, "longer than 64 KiB; its end is not read") for number in (2, 4, 6)]


def test_a_bomb_is_cut_off(tmp_path: Path) -> None:
    """What unpacks to hundreds of times its size is not read on, and quickly so."""
    began_s = time.process_time()
    found, left_out = read(tmp_path / "x", gzip.compress(b"\0" * (1 << 28)))
    assert time.process_time() - began_s < 5.0
    assert sum(len(line) for _, line in found) <= LINE_MAX
    assert left_out[-1][1] == "unpacks to more than 500 times its size; the rest is not read"


def test_a_large_file_is_cut_at_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output has a bound; what lies before it is read."""
    monkeypatch.setattr(opened, "OUTPUT_MAX_BYTES", 100_000)
    row = "".join(f"row {number}\n" for number in range(40_000)).encode()
    found, left_out = read(tmp_path / "x", gzip.compress(row))
    assert found[0] == (1, "row 0")
    assert 0 < len(found) < 40_000
    assert left_out[-1][1].startswith("more than")


@pytest.mark.parametrize("kept", [0.5, 0.9])
def test_a_cut_compressed_file_is_read_as_far_as_it_goes(tmp_path: Path, kept: float) -> None:
    """A copy that was interrupted loses its end, not its beginning."""
    whole = gzip.compress("".join(f"row {number * number}\n" for number in range(5000)).encode())
    found, left_out = read(tmp_path / "x", whole[: int(kept * len(whole))])
    assert found[0] == (1, "row 0")
    assert len(found) > 1000
    assert left_out == [(len(found), "the compressed file ends early; the rest is not read")]


def test_damaged_compression_is_named(tmp_path: Path) -> None:
    """A broken byte ends the reading there."""
    whole = bytearray(gzip.compress("".join(f"row {number * number}\n" for number in range(50_000)).encode()))
    whole[len(whole) // 2] ^= 0xFF
    found, left_out = read(tmp_path / "x", bytes(whole))
    assert found[0] == (1, "row 0")
    assert left_out[-1][1].startswith("the compressed data is damaged")


@pytest.mark.parametrize("name", ["missing.log", "."])
def test_what_cannot_be_opened_is_one_line(tmp_path: Path, name: str) -> None:
    """The line names the file and the reason."""
    with pytest.raises(UsageError, match=r"cannot be read: (No such file|Is a directory)"):
        Opened(tmp_path / name)
