"""Knows what a stack of a training process tells: how py-spy writes one, and which functions wait for data."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gpumon.text import clean

MOST_BYTES = 1 << 22
"""Of one dump; a process of a thousand threads stays below."""
_LONGEST_NAME = 80
_MOST_FRAMES = 2000
_OF_NEXT = frozenset({"__next__", "next"})
_OF_TORCH = frozenset({"__next__", "_next_data", "_get_data", "_try_get_data"})

LOADERS: tuple[tuple[str, frozenset[str] | None], ...] = (
    ("/torch/utils/data/dataloader.py", _OF_TORCH),
    ("/torch/utils/data/_utils/fetch.py", frozenset({"fetch"})),
    ("/torchdata/stateful_dataloader/stateful_dataloader.py", _OF_TORCH),
    ("/torchdata/nodes/", _OF_NEXT),
    # Ranks that a dispatcher feeds wait for it here.
    ("/accelerate/data_loader.py", frozenset({"_fetch_batches"})),
    ("/tensorflow/python/data/ops/iterator_ops.py", frozenset({"__next__", "next", "_next_internal", "get_next"})),
    ("/datasets/arrow_dataset.py", frozenset({"__iter__", "__getitem__", "__getitems__", "_getitem"})),
    ("/datasets/iterable_dataset.py", frozenset({"__iter__", "__next__", "_iter_pytorch"})),
    ("/grain/_src/python/", frozenset({"__next__", "__getitem__", "_getitem"})),
    ("/webdataset/", None),
    ("/nvidia/dali/plugin/", _OF_NEXT),
    ("/nvidia/dali/pipeline.py", frozenset({"run", "outputs", "share_outputs"})),
    ("/ffcv/loader/", _OF_NEXT),
    ("/streaming/base/dataset.py", frozenset({"__iter__", "__getitem__"})),
    ("/ray/data/", _OF_NEXT),
    ("/prefetch_generator/", _OF_NEXT),
)
"""Part of a file's path, and the functions in it in which the caller waits for its next batch; None: in any."""

_QUEUES = (
    ("/queue.py", frozenset({"get"})),
    ("/multiprocessing/queues.py", frozenset({"get"})),
    ("/multiprocessing/connection.py", frozenset({"poll", "_poll", "wait", "recv", "recv_bytes"})),
)
_NEAR = 4
"""Calls between an iterator and the queue that it takes its items from."""
_OF_OTHERS = re.compile(r"^<frozen |/(?:site|dist)-packages/|/lib(?:64)?/python\d")


class Frame(msgspec.Struct, frozen=True):
    """One call."""

    name: str = ""
    """Of the function; from Python 3.11 on with what it is in: ``Loader.__next__``."""
    filename: str = ""
    line: int = 0

    @property
    def function(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


class _Thread(msgspec.Struct, frozen=True):
    os_thread_id: int | None = None
    thread_name: str | None = None
    frames: tuple[Frame, ...] = ()


_DUMP = msgspec.json.Decoder(tuple[_Thread, ...])


def main_thread(dump: bytes, pid: int) -> tuple[Frame, ...] | None:
    """The main thread's calls, innermost first; None where the dump does not hold them.

    Args:
        dump: What ``py-spy dump --json`` wrote; any of it may be a lie.
        pid: Of the process, which is the number of its main thread too.
    """
    if len(dump) > MOST_BYTES:
        return None
    try:
        threads = _DUMP.decode(dump)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    by_number = [thread for thread in threads if thread.os_thread_id == pid]
    by_name = [thread for thread in threads if thread.os_thread_id is None and thread.thread_name == "MainThread"]
    found = next((thread.frames for thread in (*by_number, *by_name) if thread.frames), None)
    return None if found is None else found[:_MOST_FRAMES]


def waits_for_data(stack: Sequence[Frame]) -> bool:
    """Whether a thread with these calls waits for its next batch, or makes it itself."""
    if any(_is_one_of(frame, LOADERS) for frame in stack):
        return True
    # A prefetcher of one's own: an iterator that takes its items from a queue.
    for depth, frame in enumerate(stack):
        if _is_one_of(frame, _QUEUES):
            return any(caller.function == "__next__" for caller in stack[depth + 1 : depth + 1 + _NEAR])
    return False


def place_of(stack: Sequence[Frame]) -> str | None:
    """``Slow.__getitem__ (train.py:31)``: the innermost call in the program's own code, else the innermost of all."""
    own = next((frame for frame in stack if frame.filename and not _OF_OTHERS.search(frame.filename)), None)
    frame = own or (stack[0] if stack else None)
    if frame is None:
        return None
    name, file = clean(frame.name, _LONGEST_NAME), clean(frame.filename.rpartition("/")[2], _LONGEST_NAME)
    return f"{name} ({file}:{frame.line})" if file else name


def _is_one_of(frame: Frame, table: Sequence[tuple[str, frozenset[str] | None]]) -> bool:
    return any(part in frame.filename and (names is None or frame.function in names) for part, names in table)
