"""What programs print when memory, CUDA, a collective or a worker fails: the events, and what rules make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.errors import UsageError
from gpumon.logs.collect_env import CollectEnv
from gpumon.logs.log import Log
from gpumon.logs.reading import Place, Reading
from gpumon.logs.torch_log import TorchLog, messages_of, reads_like_output, without_prefix
from gpumon.opened import Opened
from tests import builders
from tests.logs.feeding import feed
from tests.logs.samples import torch_log as samples
from tests.logs.writers import torch_log as writer

GIB = 1024**3
MIB = 1024**2


def readings(text: str) -> list[Reading]:
    return feed(TorchLog, text).readings


def events(text: str) -> list[tuple[Place | None, dict[str, Any]]]:
    return [(place, dict(facts)) for reading in readings(text) for place, facts in reading.events]


def kinds(text: str) -> list[str]:
    return [facts["kind"] for _, facts in events(text)]


def numbers(text: str) -> dict[str, float]:
    """Of the only event."""
    ((_, facts),) = events(text)
    return dict(facts.get("values", {}))


def diagnosed(tmp_path: Path, text: str) -> Diagnosis:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    return diagnose(Log([Opened(path)]), kind="torch-log")


def said(tmp_path: Path, text: str) -> list[tuple[str, str, str | None]]:
    return [(one.finding.rule, one.finding.severity, one.finding.cause) for one in diagnosed(tmp_path, text).alerts]


# --- memory that ran out ---------------------------------------------------------------------------


def test_the_numbers_of_a_message_in_every_generation() -> None:
    """Cached, reserved in total, reserved but unallocated: the same numbers under the same names."""
    cached, reserved, newest = (numbers(text) for text in (samples.OOM_CACHED, samples.OOM_RESERVED, samples.OOM_FULL))
    assert cached["requested_bytes"] == 24 * MIB
    assert cached["reserved_unallocated_bytes"] == pytest.approx(410.5 * MIB)
    assert cached["reserved_bytes"] == pytest.approx(9.75 * GIB + 410.5 * MIB)
    assert reserved["total_bytes"] == pytest.approx(14.76 * GIB)
    assert reserved["reserved_unallocated_bytes"] == pytest.approx(3.9 * GIB)
    assert newest["free_bytes"] == 260 * MIB
    assert newest["process_bytes"] == pytest.approx(39.13 * GIB)
    assert newest["private_pool_bytes"] == 120 * MIB
    assert newest["other_processes_bytes"] == 0
    assert newest["rank"] == 3


def test_the_gpu_and_the_neighbours_are_named() -> None:
    """In numbers of the event: the message is no list of processes, by which the rest would belong to nobody."""
    (reading,) = readings(samples.OOM_NEIGHBOUR)
    ((place, facts),) = reading.events
    assert place == Place(index=0)
    assert reading.uses == ()
    assert facts["values"]["other_processes"] == 2
    assert facts["values"]["other_processes_bytes"] == pytest.approx(10.5 * GIB)
    assert facts["values"]["largest_other_pid"] == 90210


def test_in_a_container_the_program_itself_is_listed_under_the_hosts_number() -> None:
    """What holds as much as the message's own numbers is the program."""
    found = numbers(samples.OOM_IN_CONTAINER)
    assert found["process_bytes"] == pytest.approx(23.16 * GIB)
    assert found["other_processes_bytes"] == 0


def test_a_limit_and_none() -> None:
    """2^64 is what PyTorch prints where nobody set one."""
    assert numbers(samples.OOM_LIMIT)["allowed_bytes"] == pytest.approx(38.9 * GIB)
    asynchronous = numbers(samples.OOM_ASYNC)
    assert "allowed_bytes" not in asynchronous
    assert asynchronous["requested_bytes"] == 1.25 * GIB
    assert asynchronous["free_bytes"] == 0


def test_bytes_are_bytes() -> None:
    text = samples.OOM_FULL.replace("260.00 MiB is free", "512 bytes is free")
    assert numbers(text)["free_bytes"] == 512


@pytest.mark.parametrize("text", [samples.OOM_WRAPPED, samples.OOM_CUT_AT_80], ids=["sentences", "terminal"])
def test_a_wrapped_message_is_one(text: str) -> None:
    """At its sentences, or in the middle of words; what follows is not swallowed."""
    fed = feed(TorchLog, text)
    ((_, facts),) = [event for reading in fed.readings for event in reading.events]
    assert {"requested_bytes", "total_bytes", "free_bytes", "allocated_bytes", "reserved_unallocated_bytes"} <= set(
        facts["values"]
    )
    assert fed.left_out == []
    assert fed.others == (["step 12 loss 0.3"] if "step 12" in text else [])


def test_each_rank_wraps_its_own() -> None:
    """A prefix on every line of a wrapped message."""
    text = "".join(f"[rank1]: {line}\n" for line in samples.OOM_WRAPPED.splitlines()[:5])
    assert numbers(text)["allocated_bytes"] == pytest.approx(29.03 * GIB)


def test_a_message_that_breaks_off_is_told_so() -> None:
    fed = feed(TorchLog, "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\nstep 3\n")
    assert len(fed.readings) == 1
    assert "breaks off" in fed.left_out[0]
    assert fed.others == ["step 3"]


def test_many_messages_are_many() -> None:
    text = samples.OOM_CACHED + samples.OOM_RESERVED + samples.OOM_ADVICE + samples.OOM_FULL
    assert [place.index for place, _ in events(text) if place] == [2, 1, 0, 3]


def test_other_frameworks() -> None:
    """llama.cpp, JAX and TensorFlow; what TensorFlow calls no failure is none."""
    found = events(samples.OOM_OTHERS)
    assert [facts["values"]["requested_bytes"] for _, facts in found] == [
        pytest.approx(6144.5 * MIB),
        12 * GIB,
        pytest.approx(3.2 * GIB),
        64 * 512 * 512 * 4 * 4,
    ]
    assert [None if place is None else place.index for place, _ in found] == [1, None, 0, 0]


def test_a_time_before_the_message_is_its_time() -> None:
    stamped = "2024-05-02 10:11:12,500 - ERROR - " + samples.OOM_CACHED
    (reading,) = readings(stamped)
    assert reading.time_s == pytest.approx(1_714_644_672.5)
    assert not reading.has_zone
    assert readings(samples.OOM_CACHED)[0].time_s is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.OOM_FULL, [("oom-risk", "critical", "full")]),
        (samples.OOM_CACHED, [("oom-risk", "critical", "full")]),
        (samples.OOM_ABSURD, [("oom-risk", "critical", "impossible-request")]),
        (samples.OOM_WITHHELD, [("oom-risk", "critical", "free-not-allocatable")]),
        (samples.OOM_LIMIT, [("oom-risk", "critical", "memory-fraction")]),
        (samples.OOM_NEIGHBOUR, [("gpu-contention", "critical", "neighbour")]),
        (samples.OOM_NOBODY, [("vram-orphaned", "warning", "unlisted")]),
        (samples.OOM_IN_CONTAINER, [("oom-risk", "critical", "full")]),
        (samples.OOM_PIECES, [("fragmentation", "critical", "pieces"), ("oom-risk", "warning", "full")]),
        (samples.OOM_RESERVED, [("fragmentation", "critical", "pieces"), ("oom-risk", "warning", "full")]),
        (samples.OOM_BARE, [("oom-risk", "critical", "unknown")]),
        (samples.OOM_ASYNC, [("oom-risk", "critical", "full")]),
    ],
)
def test_the_verdict_follows_from_the_numbers(
    tmp_path: Path, text: str, expected: list[tuple[str, str, str | None]]
) -> None:
    """Not from the advice, which every message carries."""
    assert said(tmp_path, text) == expected


def test_a_full_gpu_is_told_that_the_advice_will_not_help(tmp_path: Path) -> None:
    (alert,) = diagnosed(tmp_path, samples.OOM_FULL).alerts
    assert any("expandable_segments will not help: only 2%" in fix for fix in alert.finding.fixes)


def test_eight_ranks_are_one_incident(tmp_path: Path) -> None:
    text = "".join(samples.OOM_FULL.replace("rank3", f"rank{n}").replace("GPU 3", f"GPU {n}") for n in range(8))
    (alert,) = diagnosed(tmp_path, text).alerts
    assert alert.finding.summary == "GPUs 0–7 ran out of memory"
    assert alert.finding.subject.kind == "host"


# --- collectives ---------------------------------------------------------------------------------


def test_watchdogs_and_statuses() -> None:
    """The ranks that gave up with their collective, and the last one that a rank began which did not."""
    found = events(samples.NCCL_BEHIND)
    assert [facts["kind"] for _, facts in found] == ["nccl-timeout"] * 2 + ["nccl-status"] * 2
    assert found[0][1]["values"] == {
        "rank": 1.0,
        "seq": 412.0,
        "numel_in": 524288.0,
        "numel_out": 524288.0,
        "timeout_s": 600.0,
        "ran_s": pytest.approx(600.021),
    }
    assert found[3][1]["values"] == {"rank": 0.0, "last_enqueued": 411.0, "last_completed": 411.0, "group": 0.0}


def test_old_watchdogs_stores_and_monitors() -> None:
    assert kinds(samples.NCCL_OLD) == ["nccl-timeout"]
    assert numbers(samples.NCCL_OLD)["rank"] == 5
    assert [facts["values"]["joined"] for _, facts in events(samples.NCCL_START)] == [6.0, 6.0]
    assert numbers(samples.NCCL_STUCK)["stuck_s"] == 480
    assert [facts["values"]["rank"] for _, facts in events(samples.NCCL_DESYNC)] == [0.0, 3.0]
    assert kinds(samples.NCCL_ERRORS) == ["nccl-warning", "nccl-error", "nccl-error"]


def test_the_rank_that_is_behind_is_named(tmp_path: Path) -> None:
    (alert,) = diagnosed(tmp_path, samples.NCCL_BEHIND).alerts
    assert alert.finding.rule == "collective-hang"
    assert alert.finding.cause_text == "rank 0 had not begun collective 412; 2 waited there"


def test_what_failed_before_explains_the_hang(tmp_path: Path) -> None:
    found = said(tmp_path, samples.OOM_FULL + samples.NCCL_BEHIND)
    assert found == [("oom-risk", "critical", "full"), ("collective-hang", "warning", "rank-failed")]


def test_a_remote_error_points_to_another_rank(tmp_path: Path) -> None:
    assert said(tmp_path, samples.NCCL_ERRORS) == [("training-died", "critical", "rank-gone")]


# --- CUDA ----------------------------------------------------------------------------------------


def codes(text: str) -> list[float]:
    return [facts["values"]["code"] for _, facts in events(text) if facts["kind"] == "cuda-error"]


def test_errors_have_cudas_numbers() -> None:
    assert codes(samples.CUDA_OLD_DRIVER) == [35]
    assert numbers(samples.CUDA_OLD_DRIVER)["driver_cuda_version"] == 11.4
    assert codes(samples.CUDA_FABRIC) == [802]
    assert codes(samples.CUDA_ASSERT) == [710]
    assert codes(samples.CUDA_OTHERS) == [700, 100, 999, 35, 719]


def test_a_new_gpu_and_an_old_build_are_one_message_and_its_error() -> None:
    first, second = (dict(facts["values"]) for _, facts in events(samples.CUDA_NEW_GPU))
    assert first == {"code": 209.0, "gpu_arch": 120.0, "oldest_arch": 50.0, "newest_arch": 90.0}
    assert second == {"code": 209.0}


def test_a_build_without_cuda_in_five_wordings() -> None:
    flags = [set(facts["values"]) for _, facts in events(samples.NO_CUDA)]
    assert flags == [{"is_cpu_build"}, {"is_cpu_build"}, {"is_gpu_unused"}, {"is_cpu_build"}, {"is_cpu_build"}]


def test_collect_env() -> None:
    """Driver, names of GPUs, and that PyTorch has CUDA 12 and finds none."""
    (reading,) = feed(CollectEnv, samples.COLLECT_ENV).readings
    assert reading.host == {"driver_version": "470.182.03"}
    assert [(place.index, facts["name"]) for place, facts in reading.gpus] == [(0, "NVIDIA A10G"), (1, "NVIDIA A10G")]
    ((_, event),) = reading.events
    assert event["values"] == {"is_on_cpu": 1.0, "cuda_build": 12.1}


def test_a_healthy_collect_env_is_read_and_raises_nothing(tmp_path: Path) -> None:
    text = samples.COLLECT_ENV.replace("available: False", "available: True").replace("470.182.03", "535.54.03")
    found = diagnosed(tmp_path, text)
    assert found.is_healthy()
    assert [gpu.name for gpu in found.gpus] == ["NVIDIA A10G", "NVIDIA A10G"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.CUDA_OLD_DRIVER, [("driver-mismatch", "critical", "driver-too-old")]),
        (samples.CUDA_NEW_GPU, [("driver-mismatch", "critical", "no-kernel-image")]),
        (samples.CUDA_FABRIC, [("driver-mismatch", "critical", "fabric-manager")]),
        (samples.CUDA_ASSERT, [("training-died", "critical", "device-assert")]),
        (samples.NO_CUDA, [("cpu-training", "warning", "cpu-only-wheel")]),
        (
            samples.COLLECT_ENV,
            [("driver-mismatch", "critical", "driver-too-old"), ("cpu-training", "warning", "no-cuda")],
        ),
        (
            samples.LOADER_BUS,
            [("shm-full", "critical", "shm-used-up"), ("gpu-misconfigured", "info", "loader-workers")],
        ),
    ],
)
def test_who_is_told_what_to_do(tmp_path: Path, text: str, expected: list[tuple[str, str, str | None]]) -> None:
    assert said(tmp_path, text) == expected


# --- loaders ---------------------------------------------------------------------------------------


def test_how_loaders_and_allocators_die() -> None:
    assert kinds(samples.LOADER_BUS) == ["many-workers", "bus-error", "bus-error"]
    found = events(samples.LOADER_OTHERS)
    assert [facts["kind"] for _, facts in found] == [
        "shm-error",
        "shm-error",
        "shm-error",
        "worker-killed",
        "segfault",
        "worker-exited",
        "ram-exhausted",
        "ram-exhausted",
        "oom-kill",
        "worker-killed",
    ]
    assert [facts["values"]["errno"] for _, facts in found[:3]] == [24.0, 28.0, 24.0]
    assert [facts.get("pid") for _, facts in found[3:6]] == [501, 502, 503]


# --- what is none --------------------------------------------------------------------------------


def test_prose_comments_and_source_are_no_output() -> None:
    """Words of a message in a sentence, a comment, a program's text or a table."""
    assert readings(samples.PROSE) == []


def test_a_text_without_any_message_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not recognised"):
        diagnosed(tmp_path, samples.PROSE)


@pytest.mark.parametrize(
    "line",
    [
        "[rank12]: rest",
        "[rank0]:[E801 03:04:10.851 ProcessGroupNCCL.cpp:683] rest",
        "(WorkerDict pid=3490362, ip=10.0.0.2) [rank1]: rest",
        "[1,3]<stderr>:rest",
        "3: rest",
        "trainer-1  | 2024-05-02 10:11:12,500 - ERROR - rest",
        "[2024-05-02 10:11:12] ERROR: rest",
        "2024-05-02T10:11:12Z rest",
    ],
)
def test_prefixes_of_launchers_and_loggers(line: str) -> None:
    assert without_prefix(line).strip() == "rest"


def test_what_may_stand_before_a_message() -> None:
    for before in ("", "RuntimeError: ", "torch.AcceleratorError: ", "  what():  ", "[Trial 3] failed: ", "ERROR - "):
        assert reads_like_output(before + "X", len(before)), before
    for before in ("the error was ", 'raise RuntimeError("', "see `", "because of "):
        assert not reads_like_output(before + "X", len(before)), before


def test_what_a_program_prints_is_clean_and_short() -> None:
    ((_, facts),) = events("RuntimeError: CUDA error: device-side assert triggered " + "x" * 5000)
    assert len(facts["text"]) <= 300


@pytest.mark.parametrize("size", ["9" * 5000, "nan", "1e400", "-5", "٣٤", "0.0.0", ""])
def test_no_size_is_too_odd(size: str) -> None:
    """Whatever stands where a number should."""
    for text in samples.SAMPLES:
        for found in ("24.00", "1.50", "600000", "412", "11040", "16", "5120"):
            feed(TorchLog, text.replace(found, size))
    messages_of(samples.OOM_FULL.replace("384.00", size))


# --- round trip ----------------------------------------------------------------------------------


def test_a_message_written_from_a_snapshot_reads_back(tmp_path: Path) -> None:
    gpu = builders.gpu(memory_used_bytes=79 * GIB)
    rank = builders.rank(gpu_uuid=gpu.uuid, allocated_bytes=52 * GIB, reserved_bytes=76 * GIB)
    taken = builders.snapshot(builders.NOON, [gpu], [builders.process()], ranks=[rank])
    text = writer.out_of_memory(taken, asks_bytes=6 * GIB)
    found = numbers(text)
    assert found["reserved_bytes"] == pytest.approx(76 * GIB)
    assert found["free_bytes"] == GIB
    assert said(tmp_path, text)[0] == ("fragmentation", "critical", "pieces")


def test_the_quick_look_overlooks_nothing() -> None:
    """Every line of the samples that is a message passes it."""
    reader = TorchLog(lambda _: None, lambda _: None)
    for line in "".join(samples.SAMPLES).splitlines():
        if messages_of(line):
            assert reader.starts(line), line
