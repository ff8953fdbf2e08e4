"""Damaged and arbitrary input: a diagnosis or the one clear line, in short time, whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logs import fuzz

COUNT, BATCHES = 600, 6
SEEDS = fuzz.samples()
FRAGMENTS = sorted({line for text in SEEDS for line in text.split(b"\n")[:4] if line})
"""First lines, by which formats are recognised."""


@pytest.mark.parametrize("seed", range(BATCHES))
def test_damaged_samples(seed: int, tmp_path: Path) -> None:
    said = {fuzz.judge(tmp_path / "input.log", data) for data in fuzz.inputs(seed, COUNT // BATCHES, SEEDS)}
    assert said <= {"read", "refused"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "input.log"


part = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(FRAGMENTS),
    st.sampled_from([b"\n", b",", b" ", b"|", b"\r\n", b"\x1f\x8b\x08", b"\xff\xfe", b"\xef\xbb\xbf"]),
    st.sampled_from([text.encode("utf-8", "replace") for text in fuzz.HOSTILE if len(text) < 100]),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(parts=st.lists(part, max_size=30))
def test_arbitrary_bytes(path: Path, parts: list[bytes]) -> None:
    assert fuzz.judge(path, b"".join(parts)) in {"read", "refused"}
