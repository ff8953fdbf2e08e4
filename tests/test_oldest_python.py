"""What Python 3.10, the oldest that gpumon runs on, does not have, and what neither linter nor type checker says."""

from __future__ import annotations

import ast
from pathlib import Path

GPUMON = Path(__file__).parent.parent / "gpumon"


def test_named_tuples_have_no_other_base() -> None:
    """Only since 3.11 may one be generic; before, the module that has it cannot be imported."""
    bases = {
        f"{path.relative_to(GPUMON)}:{node.lineno}": [ast.unparse(base) for base in node.bases]
        for path in GPUMON.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    tuples = {place: found for place, found in bases.items() if "NamedTuple" in found}
    assert len(tuples) > 30
    assert {place: found for place, found in tuples.items() if len(found) > 1} == {}
