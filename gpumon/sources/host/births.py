"""Who was started since the last look: the kernel numbers processes in order, so only the newest are to be asked."""

from __future__ import annotations

import os

from gpumon.sources.host.procfs import ProcFile, read_link


class Births:
    """The numbers that were given out of late, by the newest one, which /proc/loadavg names."""

    def __init__(self, proc: str) -> None:
        self._file = ProcFile(f"{proc}/loadavg")
        self._is_ours = read_link(f"{proc}/self") == str(os.getpid())
        """It names the newest of the reader's own pid namespace, whichever /proc it is read in."""
        self._newest: int | None = None

    def numbers(self, most: int) -> range | None:
        """Numbers of processes and threads started since the last call; None where they cannot be told or are more."""
        before, self._newest = self._newest, self._read() if self._is_ours else None
        if before is None or self._newest is None or not 0 <= self._newest - before <= most:
            return None
        # The newest one of the last call may have been in the making then.
        return range(before, self._newest + 1)

    def close(self) -> None:
        """Give the descriptor back."""
        self._file.close()

    def _read(self) -> int | None:
        # Sandboxes write a 0.
        words = (self._file.read(keeps=True, size=128) or b"").split()
        return int(words[-1]) or None if words and words[-1].isdigit() else None
