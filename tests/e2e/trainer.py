"""A process that looks like a training run to /proc: `trainer.py workers=N [comm=HEX] …`, until its stdin closes."""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15


def main() -> None:
    options = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
    prctl = ctypes.CDLL(None).prctl
    for _ in range(int(options["workers"])):
        if os.fork() == 0:
            prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
            prctl(PR_SET_NAME, b"pt_data_worker", 0, 0, 0)
            os.close(1)
            os.read(0, 1)
            os._exit(0)
    if "comm" in options:
        prctl(PR_SET_NAME, bytes.fromhex(options["comm"]), 0, 0, 0)
    os.write(1, b"ready\n")
    os.read(0, 1)


main()
