"""Feeds damaged logs to the whole diagnosis: ``python -m tests.logs.fuzz --inputs 100000 [--seed 1] [--also FOLDER]``.

Inputs are the readers' sample texts (and the files of the folders named), mutated: bytes flipped, lines cut, doubled,
swapped, joined with another format's, cells replaced by hostile ones, encodings and compression changed. Anything but
a diagnosis or the one clear line is a failure, as is an input that takes longer than two seconds.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import pkgutil
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpumon.commands.diagnose import to_lines
from gpumon.diagnosis import diagnose, to_json
from gpumon.errors import UsageError
from gpumon.logs.log import Log
from gpumon.opened import Opened

SLOWEST_S = 2.0
LARGEST_BYTES = 60_000
HOSTILE = (
    "",
    "-",
    "N/A",
    "[Unknown Error]",
    "ERR!",
    "nan",
    "inf",
    "1e400",
    "-1",
    "0",
    "9" * 400,
    "18446744073709551615",
    "9223372036854775794",
    "140737488355328",
    "0x" + "f" * 40,
    "٣٤",
    "½",
    "²",
    "1.2.3.4",
    "99:99:99",
    "9999/99/99 99:99:99.999",
    "0001-01-01T00:00:00Z",
    "GPU-" + "0" * 100,
    "00000000:00:00.0",
    "MIG-",
    "\x1b[31m",
    "\x1b]0;x",
    "\x9b2J",
    "\u202e",
    "\ufeff",
    "\x00",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "<!ENTITY a 'b'>",
    "&a;",
    "]]>",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "%s%n",
    "|",
    ",",
    "=" * 300,
    "a" * 5000,
    " " * 5000,
)
Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def samples() -> list[bytes]:
    """Every reader's sample texts."""
    package = importlib.import_module("tests.logs.samples")
    names = [info.name for info in pkgutil.iter_modules(package.__path__)]
    modules = (importlib.import_module(f"tests.logs.samples.{name}") for name in names)
    return [text.encode() for module in modules for text in module.SAMPLES]


def files_below(folder: Path) -> list[bytes]:
    """The files of a folder that are not its documentation, each as far as fuzzing wants it."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in {".md", ".py"})
    return [
        (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())[:LARGEST_BYTES]
        for path in paths
    ]


# --- mutations -----------------------------------------------------------------------------------


def _flip(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    found = bytearray(data)
    for _number in range(rng.randint(1, 8)):
        if found:
            found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    first = rng.randrange(len(data) + 1)
    return data[first:] if rng.random() < 0.5 else data[:first]


def _lines(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    rows = data.split(b"\n")
    for _number in range(rng.randint(1, 6)):
        where = rng.randrange(len(rows))
        match rng.randrange(4):
            case 0:
                rows.insert(where, rows[rng.randrange(len(rows))])
            case 1 if len(rows) > 1:
                del rows[where]
            case 2:
                other = rng.randrange(len(rows))
                rows[where], rows[other] = rows[other], rows[where]
            case _:
                half = rng.randrange(len(rows[where]) + 1)
                rows[where : where + 1] = [rows[where][:half], rows[where][half:]]
    return b"\n".join(rows)


def _cells(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    separator = rng.choice([b",", b" ", b"|", b":", b"=", b";", b"\t", b">"])
    parts = data.split(separator)
    for _number in range(rng.randint(1, 5)):
        parts[rng.randrange(len(parts))] = rng.choice(HOSTILE).encode("utf-8", "replace")
    return separator.join(parts)


def _insert(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    where = rng.randrange(len(data) + 1)
    return data[:where] + rng.choice(HOSTILE).encode("utf-8", "replace") + data[where:]


def _join(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    if rng.random() < 0.5:
        return data + b"\n" + other
    mine, theirs = data.split(b"\n"), other.split(b"\n")
    return b"\n".join(row for pair in zip(mine, theirs, strict=False) for row in pair)


def _repeat(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return (data + rng.choice([b"", b"\n"])) * rng.randint(2, 6)


def _quote(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    mark = rng.choice([b"> ", b"    ", b"\t", b">> ", b"# ", b"[rank3]: ", b"2024-06-03T12:00:00Z "])
    return mark + data.replace(b"\n", b"\n" + mark)


def _encode(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    text = data.decode("utf-8", "replace")
    match rng.randrange(5):
        case 0:
            return text.encode("utf-16")
        case 1:
            return text.encode("utf-16-be")
        case 2:
            return b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
        case 3:
            return text.replace(".", ",").encode("latin-1", "replace")
        case _:
            return gzip.compress(data, 1)


MUTATIONS: tuple[Mutation, ...] = (_flip, _cut, _lines, _cells, _cells, _insert, _join, _repeat, _quote, _encode)


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One damaged input."""
    data = rng.choice(seeds)
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        data = rng.choice(MUTATIONS)(rng, data, seeds)[:LARGEST_BYTES]
    return data


def inputs(seed: int, count: int, seeds: Sequence[bytes]) -> Iterator[bytes]:
    """Damaged inputs, the same ones for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        yield mutated(rng, seeds)


def judge(path: Path, data: bytes) -> str:
    """What became of an input: ``read``, ``refused``; what is wrong raises."""
    path.write_bytes(data)
    began_s = time.process_time()
    log = Log([Opened(path)])
    try:
        found = diagnose(log, kind="log")
        said = "\n".join(to_lines(found))
        to_json(found)
    except UsageError as error:
        found, said = None, str(error)
    finally:
        log.close()
    took_s = time.process_time() - began_s
    assert took_s < SLOWEST_S, f"took {took_s:.1f} s"
    assert all(character.isprintable() or character == "\n" for character in said), f"unprintable: {said!r:.500}"
    return "refused" if found is None or not found.samples else "read"


def main() -> int:
    """Fuzz; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", type=Path, action="append", default=[], help="a folder of real logs to start from")
    parser.add_argument("--keep", type=Path, help="where failing inputs are written")
    options = parser.parse_args()
    seeds = [*samples(), *(data for folder in options.also for data in files_below(folder))]
    counts = {"read": 0, "refused": 0, "failed": 0}
    slowest_s, began_s = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.log"
        for number, data in enumerate(inputs(options.seed, options.inputs, seeds)):
            started_s = time.process_time()
            try:
                counts[judge(path, data)] += 1
            except Exception:  # noqa: BLE001 - any of them is what is looked for
                counts["failed"] += 1
                sys.stderr.write(f"--- input {number} of seed {options.seed}\n{traceback.format_exc(limit=-4)}\n")
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{options.seed}-{number}.log").write_bytes(data)
            slowest_s = max(slowest_s, time.process_time() - started_s)
    passed_s = time.monotonic() - began_s
    sys.stdout.write(
        f"{options.inputs} inputs from {len(seeds)} seeds in {passed_s:.0f} s: {counts['read']} read,"
        f" {counts['refused']} refused, {counts['failed']} failed; slowest {slowest_s:.2f} s\n"
    )
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
