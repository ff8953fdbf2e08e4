"""What gpumon costs, beside its peers and the floors: `python -m tests.bench`."""

from __future__ import annotations

import sys
from pathlib import Path

# The fake driver is found as the tests find it.
sys.path.insert(0, str(Path(__file__).parents[2]))
