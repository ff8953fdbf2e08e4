"""Knows which version of the driver's library a program that starts now would load: it may be newer than the driver."""

from __future__ import annotations

import os
import re

from gpumon import text
from gpumon.sources.host.procfs import read

_MAPPED = re.compile(rb"\s(/\S*/libnvidia-ml\.so[.\d]*)(?: \(deleted\))?$", re.MULTILINE)
_VERSIONED = re.compile(r"libnvidia-ml\.so\.(\d{3,}(?:\.\d+)+)$")


def library_version(proc: str) -> str | None:
    """Version of the NVML library on disk, beside the one that is loaded; None where the name of its file tells none.

    A package that was updated replaces the file; what was loaded before stays as it was, and so does the driver.
    """
    mapped = _MAPPED.search(read(f"{proc}/self/maps", 1 << 22) or b"")
    if mapped is None:
        return None
    folder = os.path.dirname(os.fsdecode(mapped[1]))  # noqa: PTH120 - a string from /proc stays one
    named = _VERSIONED.search(os.path.realpath(f"{folder}/libnvidia-ml.so.1"))
    return text.clean(named[1]) if named else None
