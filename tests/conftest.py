"""Fixtures for every test; being here it also puts this directory on the import path."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fakenvml import FakeDriver, Profile


@pytest.fixture
def fake_driver(tmp_path: Path) -> Callable[..., FakeDriver]:
    """Makes fake drivers, `fake_driver([h100(), h100()])`, each in a directory of its own."""
    made: list[FakeDriver] = []

    def make(gpus: Iterable[Profile] = (), **options: Any) -> FakeDriver:
        driver = FakeDriver(tmp_path / f"driver{len(made)}", gpus, **options)
        made.append(driver)
        return driver

    return make
