"""The program's entry: answers --version before anything is imported, and turns a crash into exit code 70."""

from __future__ import annotations

import sys


def main() -> int:
    """Run gpumon with the command line's arguments; returns its exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]) and sys.stdout is not None:
        return _version()
    from gpumon.cli import run

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a stream in another encoding than UTF-8 shows `?` for `–` and `°`
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    return run(arguments)


def _version() -> int:
    from gpumon import __version__

    try:
        sys.stdout.write(f"gpumon {__version__}\n")
        sys.stdout.flush()
    except OSError as error:
        from gpumon.cli import cannot_write

        return cannot_write(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
