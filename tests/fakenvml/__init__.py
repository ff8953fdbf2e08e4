"""A fake NVIDIA driver for tests: a real `libnvidia-ml.so.1` for the unmodified nvidia-ml-py, ruled by a text file.

    driver = FakeDriver(tmp_path, [h100(), h100()])
    subprocess.run([...], env={**os.environ, **driver.env})     # or driver.load_in_process()
    driver.set("gpu.0.utilization", wave(period_s=1, duty_pct=40, low=0, high=100))

Keys, functions of time and faults are described in README.md beside this file.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakenvml.profiles import (
    GIB,
    MIB,
    Profile,
    a100_mig,
    gb10,
    gb10_zero,
    h100,
    laptop,
    old_driver,
    rtx4090,
    rtx5090,
)

__all__ = [
    "GIB",
    "MIB",
    "FakeDriver",
    "Process",
    "Profile",
    "a100_mig",
    "build_library",
    "gb10",
    "gb10_zero",
    "h100",
    "laptop",
    "library_that_does_not_load",
    "old_driver",
    "ramp",
    "reasons",
    "rtx4090",
    "rtx5090",
    "steps",
    "wave",
]

Value = str | float | int | bool | Sequence[str]

_SOURCES = Path(__file__).parent
_COMPILE = "-std=gnu11 -O1 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -Wl,-soname,libnvidia-ml.so.1"
_COUNTER = struct.Struct("56sQ")
REASONS = {
    "gpu_idle": 0x1,
    "app_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clock": 0x100,
}


def wave(period_s: float, duty_pct: float, low: float, high: float) -> str:
    """`high` for the first `duty_pct` of every period, `low` for the rest."""
    return f"wave({period_s!r}, {duty_pct!r}, {low!r}, {high!r})"


def ramp(start: float, end: float, over_s: float) -> str:
    """A straight line, flat before and after."""
    return f"ramp({start!r}, {end!r}, {over_s!r})"


def steps(*at: tuple[float, float]) -> str:
    """Pairs (seconds, value); before the first one its value holds."""
    return "steps(" + ", ".join(f"{t!r}:{value!r}" for t, value in at) + ")"


def reasons(*names: str) -> int:
    """The bit mask of these clock event reasons."""
    return sum(REASONS[name] for name in names)


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU; `bytes` may be a function of time, None where the driver does not say."""

    pid: int
    bytes: int | str | None = 0
    sm_pct: float | str = 0
    kind: str = "C"
    gpu_instance: int | None = None
    compute_instance: int | None = None

    def line(self) -> str:
        """As in the state file."""
        used = "N/A" if self.bytes is None else self.bytes
        instances = f" gi={self.gpu_instance} ci={self.compute_instance or 0}" if self.gpu_instance is not None else ""
        return f"{self.pid} {used} {self.sm_pct} {self.kind}{instances}"


def build_library() -> Path:
    """Compiles the library once per version of its sources; safe when several test processes start together."""
    compiler = os.environ.get("CC") or next((cc for cc in ("cc", "gcc", "clang") if shutil.which(cc)), None)
    if compiler is None:
        message = "the fake driver needs a C compiler: none of cc, gcc, clang is on the PATH"
        raise RuntimeError(message)
    sources = sorted(_SOURCES.glob("*.c"))
    parts = [path.read_bytes() for path in [*sources, *sorted(_SOURCES.glob("*.h"))]]
    digest = hashlib.sha256(b"\0".join([f"{compiler} {_COMPILE}".encode(), *parts])).hexdigest()[:16]
    root = _SOURCES / "build" if os.access(_SOURCES, os.W_OK) else Path(tempfile.gettempdir()) / "fakenvml"
    library = root / digest / "libnvidia-ml.so.1"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    partial = library.with_name(f"{library.name}.{os.getpid()}")
    command = [*compiler.split(), *_COMPILE.split(), "-o", str(partial), *map(str, sources), "-lm", "-lpthread"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        message = f"the fake driver does not compile:\n{result.stderr}"
        raise RuntimeError(message)
    partial.replace(library)
    return library


def library_that_does_not_load(directory: Path) -> dict[str, str]:
    """Environment in which `libnvidia-ml.so.1` cannot be loaded, even on a machine with a driver."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "libnvidia-ml.so.1").write_bytes(b"")
    return {"LD_LIBRARY_PATH": str(directory)}


class FakeDriver:
    """One driver with its GPUs: writes the state file, names the environment, reads the call counts."""

    def __init__(
        self, directory: Path, gpus: Iterable[Profile] = (), *, uptime_s: float = 60.0, system: Mapping[str, Value] = {}
    ) -> None:
        """`uptime_s`: how long ago the driver started, the zero of all functions of time."""
        self.directory = Path(directory)
        self.state_path = self.directory / "nvml.state"
        self.counts_path = self.directory / "nvml-counts"
        self.counts_path.mkdir(parents=True, exist_ok=True)
        self._epoch = time.monotonic() - uptime_s
        self._values: dict[str, Value] = {}
        self._lines: dict[str, list[str]] = {}
        self._events: list[str] = []
        gpus = list(gpus)
        for gpu in gpus:
            self._values.update(gpu.system)
        self._values.update(system)
        for index, gpu in enumerate(gpus):
            self._values.update({f"gpu.{index}.{key}": value for key, value in gpu.values(index).items()})
        self._write()

    @property
    def env(self) -> dict[str, str]:
        """What a subprocess needs on top of its environment."""
        inherited = os.environ.get("LD_LIBRARY_PATH")
        path = str(build_library().parent)
        return {
            "LD_LIBRARY_PATH": f"{path}:{inherited}" if inherited else path,
            "FAKENVML_STATE": str(self.state_path),
            "FAKENVML_COUNTS": str(self.counts_path),
        }

    @property
    def now_s(self) -> float:
        """Seconds since the driver's start, on the clock of the functions of time."""
        return time.monotonic() - self._epoch

    def set(self, key: str, value: Value | None, *, from_now: bool = False) -> None:
        """Changes one value; None removes it (not supported). `from_now`: a function's time starts now."""
        self.update({key: value}, from_now=from_now)

    def update(self, values: Mapping[str, Value | None], *, from_now: bool = False) -> None:
        """Changes several values in one write."""
        for key, value in values.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = f"{value} @ {self.now_s:.6f}" if from_now else value
        self._write()

    def get(self, key: str) -> Value | None:
        """The value as it was set."""
        return self._values.get(key)

    def set_processes(self, gpu: int, processes: Iterable[Process]) -> None:
        """Replaces the processes of a GPU."""
        self._lines[f"gpu.{gpu}.process"] = [process.line() for process in processes]
        self._write()

    def queue_xid(self, gpu: int, xid: int) -> None:
        """An Xid, given once to everyone who waits for events of this GPU."""
        self._events.append(f"xid = {xid} gpu {gpu}")
        self._write()

    def queue_event(self, gpu: int, kind: int, data: int = 0) -> None:
        """An event of another kind: 0x2 double-bit ECC, 0x4000 GPU unavailable, 0x8000 recovery action."""
        self._events.append(f"event = {kind:#x} {data} gpu {gpu}")
        self._write()

    def _write(self) -> None:
        lines = [f"epoch = {self._epoch:.6f}", f"changed_at = {time.monotonic():.6f}"]
        lines += [f"{key} = {_text(value)}" for key, value in self._values.items()]
        lines += [f"{key} = {line}" for key, several in self._lines.items() for line in several]
        lines += self._events
        partial = self.state_path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
        partial.replace(self.state_path)

    def load_in_process(self) -> ctypes.CDLL:
        """Makes this driver the one that pynvml finds in this very process; call nvmlInit afterwards.

        The library is found by its soname because it is already loaded. One process has one driver at a time:
        loading the next one ends the session with the one before.
        """
        library = ctypes.CDLL(str(build_library()))
        library.fakenvml_use(str(self.state_path).encode(), str(self.counts_path).encode())
        return library

    def counts(self, pid: int | None = None) -> Counter[str]:
        """How often each function was called, by every process or one; up to date while they run."""
        total: Counter[str] = Counter()
        for path in self.counts_path.iterdir():
            if pid is None or path.name == str(pid):
                records = _COUNTER.iter_unpack(path.read_bytes())
                total.update({name.rstrip(b"\0").decode(): calls for name, calls in records if calls})
        return total


def _text(value: Value) -> str:
    """A value as in the state file: numbers plain, several reason names as their bit mask."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value)
    return str(reasons(*value))
