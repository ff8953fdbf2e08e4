"""The driver's library on disk, which an update replaces under a running driver."""

from __future__ import annotations

from pathlib import Path

from proctree import FakeProc

from gpumon.sources.host.driver_files import library_version


def test_library_that_was_replaced(tmp_path: Path) -> None:
    """What is mapped is gone from disk; what lies there now says its version by its name."""
    fake = FakeProc(tmp_path)
    folder = tmp_path / "lib"
    folder.mkdir()
    assert library_version(str(fake.proc)) is None
    fake.write("self/maps", f"7f-80 r-xp 0 08:01 1    {folder}/libnvidia-ml.so.580.95.05 (deleted)\n")
    assert library_version(str(fake.proc)) is None
    (folder / "libnvidia-ml.so.590.44.01").write_bytes(b"")
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.590.44.01")
    assert library_version(str(fake.proc)) == "590.44.01"
