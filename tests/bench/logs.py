"""How fast long CSV logs are read, and in how much memory: ``python -m tests.bench.logs [--megabytes 64] [--gpus 8]``.

The log is made up in a temporary folder: ``nvidia-smi --query-gpu … -l 1`` of a node that trains and pauses, units in
the cells. Each stage runs in a process of its own, on one core; MB/s are of CPU time, without the start of Python.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count, islice
from pathlib import Path
from random import Random

from gpumon.commands.inputs import Input
from gpumon.diagnosis import diagnose
from gpumon.logs.lines import lines
from gpumon.logs.nvidia_smi_csv import NvidiaSmiCsv
from gpumon.logs.reading import Reading
from gpumon.opened import Opened

HEADER = (
    "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB],"
    " temperature.gpu, power.draw [W], clocks.current.sm [MHz], clocks.current.memory [MHz], pstate"
)
START = datetime(2026, 3, 2, 8, tzinfo=timezone.utc)
HOUR_S = 3600
BATCH = 50_000
FLOORS_MB_PER_S = {"reader": 20.0, "diagnose": 2.0}
RSS_MAX_MB = 200.0


def rows(gpus: int) -> Iterator[str]:
    """Rows without end; the same hour again and again, only the times go on."""
    rng = Random(6)
    hour = [[_values(rng, gpu, second) for gpu in range(gpus)] for second in range(HOUR_S)]
    for second in count():
        when = START + timedelta(seconds=second)
        stamp = f"{when:%Y/%m/%d %H:%M:%S}."
        for gpu, tail in enumerate(hour[second % HOUR_S]):
            yield f"{stamp}{100 + 3 * gpu:03d}, {gpu}, {tail}\n"


def _values(rng: Random, gpu: int, second: int) -> str:
    is_paused = second % 900 > 840
    busy, memory = (0, 0) if is_paused else (rng.randint(88, 100), rng.randint(35, 60))
    power = rng.gauss(120, 2) if is_paused else rng.gauss(580, 25)
    clock = 1980 - 15 * rng.randint(0, 12)
    warm = rng.randint(38, 41) if is_paused else rng.randint(58, 66)
    uuid = f"GPU-1d0c7a3e-5b1f-4c55-9c1a-6b3f1f2e4a{gpu:02d}"
    return (
        f"{uuid}, NVIDIA H100 80GB HBM3, {busy} %, {memory} %, {61440 + rng.randint(0, 40)} MiB, 81559 MiB, {warm},"
        f" {power:.2f} W, {clock} MHz, 2619 MHz, P0"
    )


def write(path: Path, megabytes: float, gpus: int) -> int:
    """Write a log of about this size; returns its bytes."""
    written = 0
    with path.open("w", encoding="ascii") as file:
        written += file.write(HEADER + "\n")
        source = rows(gpus)
        while written < megabytes * 1e6:
            written += file.write("".join(islice(source, 1000 * gpus)))
    return written


# --- stages --------------------------------------------------------------------------------------


def read_only(path: Path) -> float:
    """CPU seconds of the reader alone: the lines are there already, batch by batch."""
    reader = NvidiaSmiCsv(_drop, print)
    spent_s = 0.0
    with path.open(encoding="ascii") as file:
        text = map(str.rstrip, file)
        first = next(text)
        assert reader.starts(first)
        assert reader.take(first)
        while batch := list(islice(text, BATCH)):
            began_s = time.process_time()
            take = reader.take
            for line in batch:
                take(line)
            spent_s += time.process_time() - began_s
    reader.end()
    return spent_s


def read_lines(path: Path) -> float:
    """CPU seconds from bytes to readings."""
    began_s = time.process_time()
    reader = NvidiaSmiCsv(_drop, print)
    take = reader.take
    opened = Opened(path)
    for _, line in lines(opened, lambda number, because: print(number, because)):
        take(line)
    reader.end()
    opened.close()
    return time.process_time() - began_s


def judge(path: Path) -> float:
    """CPU seconds from bytes to findings."""
    began_s = time.process_time()
    source = Input([path])
    found = source.told(diagnose(source, kind="trace"))
    source.close()
    spent_s = time.process_time() - began_s
    said = sorted({alert.finding.rule for alert in found.alerts}) or ["nothing"]
    every = "" if found.judged_every_s is None else f", one per {found.judged_every_s:.0f} s at the end"
    print(f"{'':18}  {found.samples} samples judged{every}; found: {', '.join(said)}", flush=True)
    return spent_s


def _drop(_reading: Reading) -> None:
    pass


STAGES: dict[str, tuple[str, Callable[[Path], float]]] = {
    "reader": ("reader alone", read_only),
    "lines": ("lines + reader", read_lines),
    "diagnose": ("whole diagnosis", judge),
}


def run_stage(name: str, path: Path) -> None:
    """Measure one stage in this process, and print it."""
    title, stage = STAGES[name]
    spent_s = stage(path)
    speed = path.stat().st_size / 1e6 / spent_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    floor = FLOORS_MB_PER_S.get(name, 0.0)
    is_short = speed < floor or peak_mb > RSS_MAX_MB
    print(f"{title:18} {speed:7.1f} MB/s  {peak_mb:6.0f} MB peak{'  ** too much **' if is_short else ''}", flush=True)


def main() -> None:
    """Make the log, then measure stage by stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=64.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--one", nargs=2, metavar=("STAGE", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_stage(options.one[0], Path(options.one[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gpus.csv"
        size = write(path, options.megabytes, options.gpus)
        print(f"{size / 1e6:.0f} MB, {options.gpus} GPUs, {len(HEADER.split(','))} columns")
        for name in options.stages.split(","):
            subprocess.run([sys.executable, "-m", "tests.bench.logs", "--one", name, str(path)], check=True)


if __name__ == "__main__":
    main()
