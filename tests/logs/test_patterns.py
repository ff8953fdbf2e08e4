"""Every regular expression that meets text from outside takes linear time."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType

import pytest

from gpumon import kernel_lines, logs, opened, text

SIZE = 100_000
LIMIT_S = 0.05
PARTS = (
    "a", "A", "aaaa!", " ", "\t", "0", "9", "0:", "0.", "-1", "| ", "|", ", ", "a,", "a=", '="', "a b", "x1 ", "[", "(",
    "N/A ", "12 %", "0 / ", "0x0", "a\n", "GPU ", "GPU-", "NVRM: Xid (PCI:", "Tried to allocate ", "CUDA ", '{a="',
    "1 MiB ", "é", "[0]", "ab.", "- ",
)  # fmt: skip
MODULES = (
    kernel_lines,
    text,
    opened,
    *(importlib.import_module(f"gpumon.logs.{found.name}") for found in pkgutil.iter_modules(logs.__path__)),
)


TEXTS = tuple((part * (SIZE // len(part) + 1))[:SIZE] for part in PARTS)
SOURCES = {module.__name__: inspect.getsource(module) for module in MODULES}


def patterns_in(value: object, name: str, depth: int = 0) -> Iterator[tuple[str, re.Pattern[str]]]:
    """A pattern, and those in tuples, lists and mappings."""
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield name, value
    elif depth < 4 and isinstance(value, Mapping):
        for key, part in value.items():
            yield from patterns_in(key, f"{name}[{key!r:.20}]", depth + 1)
            yield from patterns_in(part, f"{name}[{key!r:.20}]", depth + 1)
    elif depth < 4 and isinstance(value, (tuple, list, frozenset)):
        for number, part in enumerate(value):
            yield from patterns_in(part, f"{name}[{number}]", depth + 1)


def own_patterns(module: ModuleType) -> Iterator[tuple[str, re.Pattern[str]]]:
    """Of a module, each with its name."""
    short = module.__name__.removeprefix("gpumon.")
    for name, value in vars(module).items():
        if not name.startswith("__"):
            yield from patterns_in(value, f"{short}.{name}")


PATTERNS = list({id(pattern): (name, pattern) for module in MODULES for name, pattern in own_patterns(module)}.values())


def is_searched(name: str) -> bool:
    """Whether it is looked for anywhere in a text; by the source, and where that is hard to tell it is."""
    module, _, plain = name.rpartition(".")
    asked = set(re.findall(rf"\b{re.escape(plain)}\.(\w+)\(", SOURCES.get(f"gpumon.{module}", "")))
    return not asked or not asked <= {"match", "fullmatch"}


def slowest(name: str, pattern: re.Pattern[str]) -> tuple[float, str]:
    """The longest that it takes for any of the texts, and for which; the best of three where it seems long."""
    longest, of = 0.0, ""
    ways = (pattern.match, pattern.fullmatch, *([pattern.search] if is_searched(name) else []))
    for hostile in TEXTS:
        for ask in ways:
            took_s = spent_s(ask, hostile)
            for _ in range(2):
                if took_s >= LIMIT_S / 2:
                    took_s = min(took_s, spent_s(ask, hostile))
            if took_s > longest:
                longest, of = took_s, f"{ask.__name__} of {hostile[:12]!r}"
            if took_s > LIMIT_S:
                return longest, of
    return longest, of


def spent_s(ask: Callable[[str], object], hostile: str) -> float:
    began_s = time.thread_time()
    ask(hostile)
    return time.thread_time() - began_s


def test_there_are_patterns() -> None:
    assert len(PATTERNS) > 150


@pytest.mark.parametrize(("name", "pattern"), PATTERNS, ids=[name for name, _ in PATTERNS])
def test_a_pattern_is_linear(name: str, pattern: re.Pattern[str]) -> None:
    took_s, of = slowest(name, pattern)
    assert took_s < LIMIT_S, f"{name}: {1000 * took_s:.0f} ms for {of}: {pattern.pattern}"
