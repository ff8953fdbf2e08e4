"""Knows which driver carries which CUDA, what PyTorch's builds need of both, and which of them have code for a GPU."""

from __future__ import annotations

from typing import NamedTuple

Version = tuple[int, ...]

_OF_BRANCH: dict[int, Version] = {
    390: (9, 1),
    396: (9, 2),
    410: (10, 0),
    418: (10, 1),
    430: (10, 2),
    435: (10, 1),
    440: (10, 2),
    450: (11, 0),
    455: (11, 1),
    460: (11, 2),
    465: (11, 3),
    470: (11, 4),
    495: (11, 5),
    510: (11, 6),
    515: (11, 7),
    520: (11, 8),
    525: (12, 0),
    530: (12, 1),
    535: (12, 2),
    545: (12, 3),
    550: (12, 4),
    555: (12, 5),
    560: (12, 6),
    565: (12, 7),
    570: (12, 8),
    575: (12, 9),
    580: (13, 0),
    590: (13, 1),
    595: (13, 2),
    610: (13, 3),
}
"""Branch of the driver -> the newest CUDA that it can run by itself."""
_FLOORS: dict[int, str] = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""CUDA's major number -> the oldest driver on which any program of it starts."""


class Build(NamedTuple):
    """PyTorch as it is offered for one CUDA."""

    name: str
    cuda: Version
    oldest_arch: int
    newest_arch: int

    def command(self) -> str:
        """How to install it."""
        return f"pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/{self.name}"

    def with_driver(self) -> str:
        """The same, with the driver that it needs."""
        return f"{self.command()}   # driver {driver_for(self.cuda)} or newer"


BUILDS = (
    Build("cu118", (11, 8), 50, 90),
    Build("cu126", (12, 6), 50, 90),
    Build("cu128", (12, 8), 75, 120),
    Build("cu130", (13, 0), 75, 121),
)
"""Oldest first."""


def version_of(text: str | None) -> Version | None:
    """``570.26`` and ``12.4`` as numbers that can be compared; None where it is none."""
    parts = (text or "").split(".")
    if not parts or not all(part.isdecimal() and len(part) < 6 for part in parts):
        return None
    return tuple(map(int, parts))


def cuda_of_driver(driver: str | None) -> Version | None:
    """The newest CUDA of a driver's branch; None where it is not known."""
    version = version_of(driver)
    if version is None:
        return None
    known = [branch for branch in _OF_BRANCH if branch <= version[0] < branch + 5]
    return _OF_BRANCH[max(known)] if known else None


def driver_for(cuda: Version) -> str | None:
    """The oldest driver for a program's CUDA."""
    return _FLOORS.get(cuda[0])


def build_for(cuda: Version | None, arch: int | None = None) -> Build | None:
    """The newest build that a driver with this CUDA runs and that has code for the GPU; None where there is none.

    A program may be newer than the driver's CUDA within one major number.
    """
    fitting = [
        build
        for build in BUILDS
        if (cuda is None or build.cuda[0] <= cuda[0])
        and (arch is None or build.oldest_arch <= arch <= build.newest_arch)
    ]
    if cuda is None:
        # Nothing is known of the driver: what most of them run.
        fitting = [build for build in fitting if build.cuda < (13,)] or fitting
    return fitting[-1] if fitting else None


def written(version: Version) -> str:
    """``12.4``."""
    return ".".join(map(str, version))
