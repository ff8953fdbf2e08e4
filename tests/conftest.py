"""Fixtures for every test; being here it also puts this directory on the import path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fakenvml import FakeDriver, Profile

REAL_TIME = frozenset(
    "test_faults test_numbers test_signalling test_terminal_output test_terminal test_opening test_live".split()
)
"""Modules in which the real program meets a real terminal, or a real clock: once late is a busy machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what depends on the machine's moment a second chance; the summary names it."""
    for item in items:
        if item.path.stem in REAL_TIME:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture
def fake_driver(tmp_path: Path) -> Callable[..., FakeDriver]:
    """Makes fake drivers, `fake_driver([h100(), h100()])`, each in a directory of its own."""
    made: list[FakeDriver] = []

    def make(gpus: Iterable[Profile] = (), **options: Any) -> FakeDriver:
        driver = FakeDriver(tmp_path / f"driver{len(made)}", gpus, **options)
        made.append(driver)
        return driver

    return make
