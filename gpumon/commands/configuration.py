"""``gpumon config``: the effective configuration, commented; or a file to start from."""

from __future__ import annotations

import sys
from pathlib import Path

from gpumon import config
from gpumon.errors import UsageError


def print_effective(effective: config.Config, limits: config.KnownLimits) -> int:
    """What is in force, as a file that could be used."""
    sys.stdout.write(config.render(effective, limits))
    return 0


def print_path(path: Path) -> int:
    """Where the user's file is looked for, whether it exists or not."""
    sys.stdout.write(f"{path}\n")
    return 0


def write_defaults(path: Path, limits: config.KnownLimits) -> int:
    """Make the user's file with every default.

    Raises:
        UsageError: the file exists already, or its folder cannot be written.
    """
    text = config.render(config.Config(), limits)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path}: exists already; nothing was changed") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    sys.stdout.write(f"wrote {path}\n")
    return 0
