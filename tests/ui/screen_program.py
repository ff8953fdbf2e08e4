"""The real screen over a small source that the test steers: the program that the pty tests start.

Arguments: ``key=value``; ``interval=0.2``, ``gpus=2``, ``stop_after=5``, ``fail_after=3``, ``hang=1``,
``overlay=1`` (every row changes all over in every frame; F2 shows a toast over them, F3 a dialog that one can see
through), ``mutant=1`` (the painter paints without looking), ``first_after=1`` (seconds until the first sample),
``kind=demo``, ``hold=FILE`` (Textual is not there before the file is, and never if it says ``fail``), ``unjudged=1``
(the first values get no verdict).
"""

from __future__ import annotations

import math
import random
import sys
import threading
import time
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from gpumon.config import Config
from gpumon.errors import GpumonError
from gpumon.model import Gpu, Host, Process, Snapshot
from gpumon.monitor import Monitor
from gpumon.sources import SourceKind


class SteadySource:
    """GPUs whose values move a little in every sample."""

    name = "steady"

    def __init__(
        self, interval_s: float, gpus: int, stop_after: int, fail_after: int, *, kind: SourceKind, is_hanging: bool
    ) -> None:
        self.kind = kind
        self.interval_s = interval_s
        self.is_catching_up = False
        self._gpus = gpus
        self._stop_after = stop_after
        self._fail_after = fail_after
        self._is_hanging = is_hanging
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Snapshot]:
        step = 0
        while not self._closed.is_set():
            if self._fail_after and step >= self._fail_after:
                raise ZeroDivisionError("the fake source fails as told")
            if self._stop_after and step >= self._stop_after:
                threading.Event().wait()  # a driver call that never returns
            yield self._snapshot(step)
            step += 1
            self._closed.wait(self.interval_s)

    def close(self) -> None:
        if self._is_hanging:
            threading.Event().wait()
        self._closed.set()

    def _snapshot(self, step: int) -> Snapshot:
        gpus = tuple(
            Gpu(
                uuid=f"GPU-{i}",
                index=i,
                name="NVIDIA H100 80GB HBM3",
                utilization_pct=float(50 + (step * 7 + i * 3) % 50),
                memory_used_bytes=(40 + (step + i) % 30) << 30,
                memory_total_bytes=80 << 30,
                power_w=400.0 + 100.0 * math.sin(step / 5 + i),
                power_limit_w=700.0,
                temperature_c=float(60 + (step + i) % 20),
                temperature_slowdown_c=87.0,
                sm_clock_mhz=1755.0,
                sm_clock_max_mhz=1980.0,
                age_s=0.0,
            )
            for i in range(self._gpus)
        )
        processes = tuple(
            Process(
                pid=4000 + i,
                started_s=1.0,
                user="ana",
                name="python",
                command="python 訓練.py" if i == 1 else "python train.py",
                gpu_memory_bytes={f"GPU-{i}": 30 << 30},
                cpu_pct=float(90 + (step + i) % 30),
                role="trainer",
            )
            for i in range(self._gpus)
        )
        return Snapshot(
            time_s=time.time(),
            interval_s=self.interval_s if step else None,
            gpus=gpus,
            processes=processes,
            host=Host(name="node07", driver_version="580.95", cpu_count=16, cpu_pct=20.0 + step % 9),
        )


class TextualWaits(MetaPathFinder):
    """Holds the import of Textual until a file is there."""

    def __init__(self, go: Path) -> None:
        self._go = go

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "textual":
            try:
                while not self._go.exists():
                    time.sleep(0.01)
            except BaseException as error:  # as Python 3.11 does where a class is being made
                raise RuntimeError("an exception that was not meant for it") from error
            if self._go.read_text(encoding="utf-8") == "fail":
                raise ZeroDivisionError("Textual fails as told")


def _add_overlays() -> None:
    """Keys for what the program itself never does: cover the board without leaving it."""
    from textual.binding import Binding
    from textual.screen import ModalScreen
    from textual.widgets import Static

    from gpumon.ui import app, overview

    class Dialog(ModalScreen[None]):
        CSS = "Dialog { align: center middle; } Dialog Static { width: 30; height: 6; border: solid ansi_red; }"
        BINDINGS = (Binding("f4", "dismiss"),)

        def compose(self) -> Iterator[Static]:
            yield Static("a dialog over the board")

    class Covered(app.GpumonApp):
        BINDINGS = (Binding("f2", "toast"), Binding("f3", "dialog"))

        def action_toast(self) -> None:
            self.notify("\n".join(["a toast over what moves"] * 12), timeout=60)

        def action_dialog(self) -> None:
            self.push_screen(Dialog())

    overview.Overview.rows = _churning_rows  # type: ignore[method-assign]
    app.GpumonApp = Covered  # type: ignore[misc]


def _churning_rows(_screen: Any, frame: Any, _view: Any, width: int, height: int) -> list[Any]:
    """Title, then rows of pieces of random text and style, one of them with wide characters."""
    rng = random.Random(frame.window.last.time_s)
    styles = ("", "useful", "bold", "data", "useful on data", "bold reverse harm", "muted")
    rows: list[Any] = [((" node07 ", "bold"),)]
    for y in range(1, height - 1):
        pieces = [("".join(rng.choices("0123456789▇▒ ", k=8)), rng.choice(styles)) for _ in range(-(-width // 8))]
        if y == 5:
            pieces[2] = (rng.choice(("訓練 1  ", "12 訓練  ")), rng.choice(styles))
        rows.append(tuple(pieces))
    return [*rows, ((" self ", "muted"),)]


def main() -> int:
    options = dict(argument.split("=", 1) for argument in sys.argv[1:])
    from gpumon.ui.run import run_app

    def make_source() -> SteadySource:
        if "error" in options:
            raise GpumonError(options["error"])
        time.sleep(float(options.get("first_after", "0")))
        return SteadySource(
            float(options.get("interval", "0.2")),
            int(options.get("gpus", "2")),
            int(options.get("stop_after", "0")),
            int(options.get("fail_after", "0")),
            kind=options.get("kind", "live"),  # type: ignore[arg-type]
            is_hanging="hang" in options,
        )

    if "overlay" in options:
        _add_overlays()
    if "mutant" in options:
        from gpumon.ui.painter import Painter

        Painter.may_paint = lambda *_: True  # type: ignore[method-assign]
    if "unjudged" in options:
        Monitor.load = lambda _: threading.Event().wait()  # type: ignore[method-assign,assignment]
    if "hold" in options:
        sys.meta_path.insert(0, TextualWaits(Path(options["hold"])))
    config = Config(theme=options.get("theme", "auto"), interval_s=float(options.get("interval", "0.2")))
    try:
        return run_app(make_source, config)
    except GpumonError as error:
        sys.stderr.write(f"gpumon: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
