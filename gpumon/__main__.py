"""The program's entry: answers --version before anything is imported, and turns a crash into exit code 70."""

from __future__ import annotations

import sys


def main() -> int:
    """Run gpumon with the command line's arguments; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        from gpumon import __version__

        sys.stdout.write(f"gpumon {__version__}\n")
        return 0
    from gpumon.cli import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
