"""Knows what DCGM's health watch says of a GPU, in the host engine's log and in ``dcgmi health``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from gpumon.logs.reading import Place, Reading

_LIMITED = re.compile(
    r"Detected clock(?:s event| throttling) due to (thermal|power) violation in GPU (\d{1,3})\b", re.IGNORECASE
)
_DOUBLE_BIT = re.compile(r"Detected (\d{1,9}) volatile double-bit ECC error\(?s?\)? in GPU (\d{1,3})\b", re.IGNORECASE)
_REASONS: Mapping[str, str] = {"thermal": "sw_thermal", "power": "sw_power_cap"}


class DcgmHealth:
    """Each warning is a reading of what it names: DCGM judges counters, which see what samples miss."""

    kind: ClassVar[str] = "dcgm-health"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out

    def starts(self, line: str) -> bool:
        """A warning about a GPU."""
        return "Detected " in line and (_LIMITED.search(line) or _DOUBLE_BIT.search(line)) is not None

    def take(self, line: str) -> bool:
        """Read a warning."""
        limited, errors = _LIMITED.search(line), _DOUBLE_BIT.search(line)
        facts: dict[str, Any] = {}
        if limited is not None:
            facts["clocks_event_reasons"] = (_REASONS[limited[1].lower()],)
        elif errors is not None:
            facts["ecc_uncorrected"] = int(errors[1])
        else:
            return False
        index = int((limited or errors or "")[2])
        self._give(Reading(gpus=((Place(index=index), facts),)))
        return True

    def end(self) -> None:
        """Every warning was given when it was read."""
