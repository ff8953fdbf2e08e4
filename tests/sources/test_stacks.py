"""What stacks of other processes tell, as py-spy writes them: who waits for data, and where the main thread is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.sources.stacks import LOADERS, MOST_BYTES, Frame, main_thread, place_of, waits_for_data

SITE = "/venv/lib/python3.11/site-packages"


def frame(name: str, filename: str = "/home/me/train.py", line: int = 7) -> dict[str, Any]:
    """One call as py-spy 0.4 writes it."""
    return {
        "name": name, "filename": filename, "module": None, "short_filename": filename, "line": line, "locals": None,
        "is_entry": False, "is_shim_entry": False,
    }  # fmt: skip


def dump(*threads: tuple[int | None, str | None, list[dict[str, Any]]]) -> bytes:
    return json.dumps(
        [
            {
                "pid": 42, "thread_id": 140419875052416, "thread_name": name, "os_thread_id": number, "active": True,
                "owns_gil": False, "frames": frames, "process_info": None,
            }
            for number, name, frames in threads
        ]
    ).encode()  # fmt: skip


def stack(*frames: dict[str, Any]) -> tuple[Frame, ...]:
    found = main_thread(dump((42, "MainThread", list(frames))), 42)
    assert found is not None
    return found


def test_the_main_thread_is_the_one_with_the_process_number() -> None:
    """Whatever it calls itself; by its name only where no number is known."""
    others = [(43, "MainThread", [frame("worker")]), (44, "pt_data_pin", [frame("pin")])]
    found = main_thread(dump(*others, (42, None, [frame("train")])), 42)
    assert found is not None
    assert found[0].name == "train"
    by_name = main_thread(dump((None, "other", [frame("a")]), (None, "MainThread", [frame("b")])), 42)
    assert by_name is not None
    assert by_name[0].name == "b"
    assert main_thread(dump(*others), 42) is None
    assert main_thread(dump((42, "MainThread", [])), 42) is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"{}",
        b"[1, 2]",
        b'[{"os_thread_id": "42", "frames": []}]',
        b'[{"os_thread_id": 42, "frames": [{"name": 7}]}]',
        b'[{"os_thread_id": 42, "frames": [{"line": 1e99}]}]',
        b"\xff\xfe[",
        b"[" * 100_000,
        b"Error: Failed to get process",
        b" " * (MOST_BYTES + 1),
    ],
)
def test_what_is_no_dump_shows_nothing(text: bytes) -> None:
    assert main_thread(text, 42) is None


TRAIN = frame("<module>")
WAITS = {
    "a worker's batch, Python 3.11 and later": [
        frame("Connection._poll", "/usr/lib/python3.11/multiprocessing/connection.py"),
        frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py"),
        frame("_MultiProcessingDataLoaderIter._try_get_data", f"{SITE}/torch/utils/data/dataloader.py"),
        frame("_BaseDataLoaderIter.__next__", f"{SITE}/torch/utils/data/dataloader.py"),
    ],
    "the same in older ones": [
        frame("select", "/usr/lib/python3.9/selectors.py"),
        frame("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py"),
    ],
    "a batch that it makes itself": [
        frame("Images.__getitem__", "/home/me/data.py"),
        frame("_MapDatasetFetcher.fetch", f"{SITE}/torch/utils/data/_utils/fetch.py"),
        frame("_SingleProcessDataLoaderIter._next_data", f"{SITE}/torch/utils/data/dataloader.py"),
    ],
    "tf.data": [frame("OwnedIterator.__next__", f"{SITE}/tensorflow/python/data/ops/iterator_ops.py")],
    "datasets": [frame("Dataset.__getitem__", f"{SITE}/datasets/arrow_dataset.py")],
    "grain": [frame("PyGrainDatasetIterator.__next__", f"{SITE}/grain/_src/python/data_loader.py")],
    "webdataset": [frame("DataPipeline.iterator1", f"{SITE}/webdataset/pipeline.py")],
    "DALI": [frame("DALIGenericIterator.__next__", f"{SITE}/nvidia/dali/plugin/pytorch/__init__.py")],
    "a prefetcher of one's own": [
        frame("Condition.wait", "/usr/lib/python3.11/threading.py"),
        frame("Queue.get", "/usr/lib/python3.11/queue.py"),
        frame("Prefetcher.__next__", "/home/me/data.py"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_who_waits_for_data(name: str) -> None:
    assert waits_for_data(stack(*WAITS[name], TRAIN))


WORKS = {
    "a step": [frame("SGD.step", f"{SITE}/torch/optim/sgd.py")],
    "the model": [frame("Module._call_impl", f"{SITE}/torch/nn/modules/module.py")],
    "workers that start": [
        frame("Popen._launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py"),
        frame("_MultiProcessingDataLoaderIter.__init__", f"{SITE}/torch/utils/data/dataloader.py"),
        frame("DataLoader.__iter__", f"{SITE}/torch/utils/data/dataloader.py"),
    ],
    "a queue of results": [
        frame("Queue.get", "/usr/lib/python3.11/queue.py"),
        frame("collect_rollouts", "/home/me/rl.py"),
    ],
    "a namesake of a loader's function": [frame("Cursor.__next__", "/home/me/database.py")],
    "nothing": [],
}  # fmt: skip


@pytest.mark.parametrize("name", WORKS)
def test_who_does_not(name: str) -> None:
    assert not waits_for_data(stack(*WORKS[name], TRAIN))


def test_every_row_of_the_table_counts() -> None:
    """Each of its functions, in a file of that place, is waiting; another function there is not."""
    for part, names in LOADERS:
        file = f"{SITE}{part}" + ("" if part.endswith(".py") else "module.py")
        for name in names or {"anything"}:
            assert waits_for_data(stack(frame(f"Some.{name}", file), TRAIN)), (part, name)
        assert waits_for_data(stack(frame("build", file), TRAIN)) == (names is None)


def test_where_it_is_is_told_by_the_programs_own_code() -> None:
    """The innermost call outside of libraries; where there is none the innermost of all; safe to print."""
    own = stack(frame("linear", f"{SITE}/torch/nn/functional.py"), frame("Net.forward", "/home/me/net.py", 31), TRAIN)
    assert place_of(own) == "Net.forward (net.py:31)"
    assert place_of(stack(frame("run", "/usr/lib/python3.11/runpy.py", 3))) == "run (runpy.py:3)"
    assert place_of(stack(frame("<module>", "<string>", 1))) == "<module> (<string>:1)"
    assert place_of(stack(frame("a\x1b]0;x\x07", "/tmp/\x1b[31m.py", 1))) == "a·]0;x· (·[31m.py:1)"
    assert place_of(()) is None
