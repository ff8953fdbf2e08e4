"""What gpumon raises on purpose; each becomes one line on stderr and an exit code.

GpumonError
├── UsageError          exit 2: wrong option, file, key or terminal
│   └── NotATerminal        no screen can be drawn, read or left here
└── NoSourceError       exit 3: nothing to watch
    ├── DriverMissing       no NVIDIA driver or GPU on this machine (the demo may open instead)
    └── DriverBroken        a driver is there but does not work (mismatch, permission …)
"""

from __future__ import annotations


class GpumonError(Exception):
    """Base: its text is one line that names what, where and the nearest right thing."""

    exit_code = 2


class UsageError(GpumonError):
    """You meet it when an option, a file, a key or the terminal is not what it should be."""


class NotATerminal(UsageError):
    """You meet it when the live screen is asked for where stdin, stdout or stderr is no terminal."""


class NoSourceError(GpumonError):
    """You meet it when there is nothing to sample."""

    exit_code = 3


class DriverMissing(NoSourceError):
    """You meet it on a machine without NVIDIA driver, library or GPU."""


class DriverBroken(NoSourceError):
    """You meet it when the driver is installed but refuses: version mismatch, no permission, too old."""
