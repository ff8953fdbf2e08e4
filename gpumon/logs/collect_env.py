"""Reads what ``torch.utils.collect_env`` prints: which CUDA PyTorch was built with, and what it finds here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from gpumon.logs.reading import Facts, Place, Reading

_LINES_MAX = 120
_LINE = re.compile(r"^\s{0,8}([A-Za-z][\w ()./*,'-]{1,60}): {0,4}(.{0,300})")
_GPU = re.compile(r"GPU (\d{1,3})")
_BUILD = re.compile(r"\d{1,2}\.\d{1,2}")
_DRIVER = re.compile(r"\d{3}\.\d{2,3}(?:\.\d{2})?")
_OPENS = ("Collecting environment information", "PyTorch version: ", "CUDA used to build PyTorch: ")


class CollectEnv:
    """One reading: the driver, the GPUs' names, and an event where PyTorch has no CUDA."""

    kind: ClassVar[str] = "torch-log"

    def __init__(self, give: Callable[[Reading], None], leave_out: Callable[[str], None]) -> None:
        self._give = give
        self._leave_out = leave_out
        self._said: dict[str, str] = {}
        self._gpus: dict[int, str] = {}
        self._lines = 0

    def starts(self, line: str) -> bool:
        """The title, or one of the two lines by which PyTorch tells its build."""
        return line.lstrip().startswith(_OPENS)

    def take(self, line: str) -> bool:
        """Lines ``key: value`` until something else comes."""
        self._lines += 1
        if not line.strip() or line.lstrip().startswith(_OPENS[0]):
            return self._lines < _LINES_MAX
        match = _LINE.fullmatch(line)
        if match is None or self._lines >= _LINES_MAX or match[1].endswith(("Error", "Warning", "Exception")):
            return False
        gpu = _GPU.fullmatch(match[1])
        if gpu is not None:
            self._gpus[int(gpu[1])] = match[2].partition(" (UUID")[0].strip()
        else:
            self._said.setdefault(match[1].strip(), match[2].strip())
        return True

    def end(self) -> None:
        """Give what was said."""
        said, gpus = self._said, self._gpus
        self._said, self._gpus, self._lines = {}, {}, 0
        driver = _DRIVER.match(said.get("Nvidia driver version", ""))
        found = tuple(_events(said))
        names: list[tuple[Place, Facts]] = [(Place(index=index), {"name": name}) for index, name in gpus.items()]
        if driver is not None or names or found:
            host = {} if driver is None else {"driver_version": driver.group()}
            self._give(Reading(gpus=names, host=host, events=[(None, facts) for facts in found]))


def _events(said: dict[str, str]) -> list[dict[str, Any]]:
    """What is wrong with this PyTorch; one for AMD's GPUs is none of ours."""
    version, build = said.get("PyTorch version", ""), said.get("CUDA used to build PyTorch")
    if said.get("ROCM used to build PyTorch", "N/A") not in {"N/A", "None"}:
        return []
    number = _BUILD.match(build or "")
    is_cpu_build = build in {"None", "Could not collect"} or "+cpu" in version
    if not is_cpu_build and said.get("Is CUDA available") != "False":
        return []
    values = {"is_cpu_build" if is_cpu_build else "is_on_cpu": 1.0}
    if number is not None:
        values["cuda_build"] = float(number.group())
    told = f"PyTorch {version or '?'}, CUDA used to build it: {build or '?'}"
    return [{"kind": "no-cuda", "text": told, "values": values}]
