"""Keras, TensorFlow and JAX: what can be counted without adding callbacks or tracing anything."""

from __future__ import annotations

from functools import wraps
from time import monotonic_ns
from typing import Any

from . import layout
from .loop import loop
from .tellers import FUNCTION, KERAS
from .wraps import after, before, checkpoint


class _Batch:
    """The index of the batch that ended last: one call may be several steps."""

    last = -1


def callbacks(module: Any) -> None:
    """``keras.src.callbacks.callback_list``: the list itself, so that no callback makes it fetch logs."""
    batches = module.CallbackList
    before(batches, "on_train_batch_end", _batch_ended)
    before(batches, "on_test_begin", _test_began)
    after(batches, "on_test_end", _test_ended)


def _batch_ended(_list: Any, batch: int, *_rest: Any, **_more: Any) -> None:
    index, last = int(batch), _Batch.last
    _Batch.last = index
    loop.step_ended(KERAS, count=index - last if index > last else index + 1)


_entered: list[bool] = []


def _test_began(*_args: Any, **_kwargs: Any) -> None:
    _entered.append(loop.entered(layout.EVAL))


def _test_ended(*_args: Any, **_kwargs: Any) -> None:
    if _entered and _entered.pop():
        loop.left()


saving = checkpoint("save_model", "save_weights_only")


def functions(module: Any) -> None:
    """The module of ``tf.function``: of all of them, the one called most is the step."""
    after(module.Function, "__call__", _called)


def _called(function: Any, *_args: Any, **_kwargs: Any) -> None:
    loop.one_stepped(FUNCTION, id(function))


def tensorflow_data(module: Any) -> None:
    """``tensorflow.python.data.ops.iterator_ops``: loops that fetch for themselves; within ``fit`` nobody does."""
    original = module.OwnedIterator.__next__

    @wraps(original)
    def __next__(self: Any) -> Any:
        data = id(getattr(self, "_dataset", None))
        asked = loop.data_asked(data)
        try:
            batch = original(self)
        except BaseException:
            loop.data_ended(asked)
            raise
        loop.data_came(data, asked)
        return batch

    module.OwnedIterator.__next__ = __next__


def jax_arrays(module: Any) -> None:
    """``jax._src.array``: a call of a compiled function cannot be seen, but the program's waiting for it can."""
    for name in ("block_until_ready", "__float__"):
        after(module.ArrayImpl, name, _synchronised)


def jax_calls(module: Any) -> None:
    """``jax._src.api``: the same, for many arrays at once."""
    for name in ("block_until_ready", "device_get"):
        after(module, name, _synchronised)


COMPILED = "/jax/core/compile/"
BACKEND = COMPILED + "backend_compile_duration"


def jax_events(module: Any) -> None:
    """``jax._src.monitoring``: nothing while compiled functions run, one event for each part of a compilation."""
    module.register_event_duration_secs_listener(_jax_event)


def _jax_event(event: str, seconds: float, **_: Any) -> None:
    if event == BACKEND:
        loop.compiles(lambda compiling: compiling.took(int(1e9 * seconds)))
    elif event.startswith(COMPILED):
        loop.beat = monotonic_ns()


def _synchronised(*_args: Any, **_kwargs: Any) -> None:
    loop.synchronised()
