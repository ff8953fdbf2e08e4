"""The benchmark of log reading reads what it writes."""

from __future__ import annotations

from pathlib import Path

from gpumon.commands.inputs import Input
from tests.bench import logs


def test_every_row_of_the_made_up_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gpus.csv"
    assert logs.write(path, 0.3, 2) == path.stat().st_size
    rows = path.read_text(encoding="ascii").count("\n") - 1
    source = Input([path])
    snapshots = list(source)
    assert source.unread == ()
    assert sum(len(snapshot.gpus) for snapshot in snapshots) == rows
    assert all(stage(path) > 0 for _, stage in logs.STAGES.values())
