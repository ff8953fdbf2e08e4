"""``python -m tests.bench``: what gpumon costs, as a table of the targets. See cost/README.md."""

from __future__ import annotations

import argparse
import sys

from tests.bench.cost import parts, report


def main() -> int:
    """Run the parts that were asked for, and print what they found as they find it."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts.PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="of each measurement (default 3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default 30)")
    parser.add_argument("--quick", action="store_true", help="one round of ten seconds: a look, not a result")
    options = parser.parse_args()
    unknown = [part for part in options.parts if part not in parts.PARTS]
    if unknown:
        parser.error(f"{unknown[0]} is not one of {', '.join(parts.PARTS)}")
    effort = parts.Effort(1, 10.0) if options.quick else parts.Effort(options.rounds, options.seconds)

    sys.stdout.write(f"{report.machine()}\n{effort.words()}\n\n")
    lines: list[report.Line] = []
    for name in options.parts or parts.PARTS:
        table, found = parts.PARTS[name](effort)
        if table:
            sys.stdout.write(f"{table}\n\n")
            sys.stdout.flush()
        lines += found
    sys.stdout.write(f"{report.lines_table(lines)}\n\n{report.machine()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
