"""Frames of whole machines for the tests of panels and layout, with time budgets as the engine would give them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builders import GIB, NOON, alert, finding, gpu, host, job, process, uuid, worker
from gpumon.alerts import Headline
from gpumon.history import History
from gpumon.model import Alert, Gpu, Process, Snapshot
from gpumon.monitor import Frame, SourceInfo
from gpumon.ui.row import Row
from gpumon.ui.view import ViewState

NOW = NOON + 31.0
"""12:20:31, as far into its minute as the mockups are."""
ONSET = NOON - 360.0
STEP_S = 5.0
Budget = dict[str, float]


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clock times in tests are UTC wherever they run."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def budget(useful: float, *, data: float = 0.0, throttled: float = 0.0, peer: float = 0.0) -> Budget:
    """One sample's time budget as derived series."""
    return {
        "budget.useful_pct": useful,
        "budget.data_pct": data,
        "budget.throttled_pct": throttled,
        "budget.peer_pct": peer,
        "budget.idle_pct": 100.0 - useful - data - throttled - peer,
    }


def film(
    gpus_at: Callable[[float], tuple[Gpu, ...]],
    budget_at: Callable[[float, Gpu], Budget | None],
    *,
    end_s: float = NOW,
    seconds: float = 600.0,
    step_s: float = STEP_S,
    **frame_fields: Any,
) -> Iterator[Frame]:
    """Frames up to ``end_s``, one each ``step_s``."""
    history = History()
    jobs = frame_fields.pop("jobs", ())
    processes = frame_fields.pop("processes", ())
    ranks = frame_fields.pop("ranks", ())
    machine = frame_fields.pop("host", host(cpu_count=96, socket_count=2, memory_total_bytes=1031 * GIB))
    fields = {
        "headline": Headline(state="healthy", text="1 job, 1 GPU busy", detail="no alert in 2h14m"),
        "info": SourceInfo(kind="live", name="node07"),
        "sample_ms": 6.0,
        **frame_fields,
    }
    count = int(seconds / step_s)
    for number in range(count + 1):
        time_s = end_s - (count - number) * step_s
        gpus = gpus_at(time_s)
        snapshot = Snapshot(
            time_s=time_s, interval_s=step_s if number else None, gpus=gpus, processes=processes, host=machine,
            ranks=ranks,
        )  # fmt: skip
        derived = {one.uuid: budget_at(time_s, one) or {} for one in gpus}
        yield Frame(window=history.append(snapshot, jobs, derived), **fields)


def last(frames: Iterator[Frame]) -> Frame:
    """The newest frame of a film."""
    *_, newest = frames
    return newest


HOT = 5
"""The GPU that throttles in ``throttled``."""


def throttled_alert() -> Alert:
    """GPU 5 at its temperature limit since six minutes before noon."""
    return alert(finding=finding(index=HOT, severity="critical"), since_s=ONSET)


def throttled(count: int = 8, **fields: Any) -> Iterator[Frame]:
    """An eight-rank job of which GPU 5 runs hot; the others wait for it."""

    def gpus_at(time_s: float) -> tuple[Gpu, ...]:
        is_hot = time_s > ONSET
        return tuple(
            gpu(
                index,
                utilization_pct=99.0 if index == HOT else 100.0,
                power_w=(392.0 if index == HOT else 540.0) if is_hot else 690.0,
                temperature_c=(87.0 if is_hot else 82.0) if index == HOT else 61.0,
                sm_clock_mhz=1170.0 if is_hot and index == HOT else 1785.0,
                memory_used_bytes=int(76.1 * GIB),
                memory_total_bytes=int(79.6 * GIB),
                throttled_pct={"sw_thermal": 96.0 if is_hot and index == HOT else 0.0, "sw_power_cap": 0.0},
            )
            for index in range(count)
        )

    def budget_at(time_s: float, one: Gpu) -> Budget:
        if time_s <= ONSET:
            return budget(97.0)
        return budget(67.0, throttled=30.0) if one.index == HOT else budget(67.0, peer=30.0)

    pids = tuple(90211 + index for index in range(count))
    return film(
        gpus_at,
        budget_at,
        **{
            "alerts": (throttled_alert(),),
            "headline": Headline(
                state="critical",
                text="GPU 5 throttles at its temperature limit",
                alert=throttled_alert(),
                since_s=ONSET,
                confidence="certain",
                cause="87 °C, siblings 59–63",
                fix="airflow at GPU 5; until then nvidia-smi -i 5 -pl 600",
                cost="cost job −33%, 15 GPU-min",
            ),
            "jobs": (
                job(
                    name="torchrun train.py",
                    gpu_uuids=tuple(uuid(index) for index in range(count)),
                    trainers=pids,
                    helpers={pid: (1000 + 2 * pid, 1001 + 2 * pid) for pid in pids},
                ),
            ),
            "processes": _ranks(pids),
            **fields,
        },
    )


def _ranks(pids: tuple[int, ...]) -> tuple[Process, ...]:
    found = []
    for rank, pid in enumerate(pids):
        sm = {uuid(rank): 100.0}
        found.append(process(pid, (rank,), rank=rank, started_s=NOW - 8040.0, gpu_sm_pct=sm, cpu_pct=20.0))
        found += [worker(1000 + 2 * pid, pid, cpu_pct=60.0), worker(1001 + 2 * pid, pid, cpu_pct=10.0)]
    return tuple(found)


def texts(rows: list[Row] | tuple[Row, ...]) -> list[str]:
    """Rows as plain text."""
    return ["".join(text for text, _ in row) for row in rows]


def mono(**fields: Any) -> ViewState:
    """A view without colour, as the mockups are drawn."""
    return ViewState(has_color=False, part=fields.pop("part", "gpus"), **fields)
