"""PyTorch: steps by the optimizers' own hook, waits for data around the loader's iterator, checkpoints, forward."""

from __future__ import annotations

import sys
from _thread import get_ident
from functools import wraps
from time import monotonic_ns
from typing import Any, Callable

from .compiling import Compiling
from .loop import loop
from .tellers import OPTIMIZER
from .wraps import checkpoint

_traced: list[Callable[[], bool]] = []
"""Whether torch.compile traces this very code: a constant True there, which leaves nothing of a hook."""


def _learn_traced() -> None:
    """Looked up late: a hook that imports while torch is being imported breaks it."""
    compiler = sys.modules.get("torch.compiler")
    if compiler is not None and hasattr(compiler, "is_compiling"):
        _traced.append(compiler.is_compiling)
    else:
        _traced.append(_never)


def _never() -> bool:
    return False


def optimizer(module: Any) -> None:
    """``torch.optim.optimizer`` is there: its global hook sees each step of each optimizer."""

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if _traced and _traced[0]():
            return
        try:
            if not _traced:
                _learn_traced()
            loop.one_stepped(OPTIMIZER, id(optimizer))
        except Exception:
            pass

    module.register_optimizer_step_post_hook(stepped)


def dataloader(module: Any) -> None:
    """``torch.utils.data.dataloader`` is there: how long the loop waits for its next batch."""
    module._BaseDataLoaderIter.__next__ = _timed_next(module._BaseDataLoaderIter.__next__)
    module.DataLoader.__iter__ = _timed_iter(module.DataLoader.__iter__)


def _timed_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def __next__(self: Any) -> Any:
        if get_ident() != loop.thread:
            return _fetched_aside(original, self)
        data = id(getattr(self, "_dataset", None))
        asked = loop.data_asked(data)
        try:
            batch = original(self)
        except BaseException:
            loop.data_ended(asked)
            raise
        loop.data_came(data, asked)
        return batch

    return __next__


def _fetched_aside(original: Callable[[Any], Any], iterator: Any) -> Any:
    """A prefetcher's own thread: no wait of the loop's."""
    asked = monotonic_ns()
    try:
        return original(iterator)
    finally:
        loop.background += monotonic_ns() - asked


def _timed_iter(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def __iter__(self: Any) -> Any:
        if get_ident() != loop.thread:
            return original(self)
        data = id(getattr(self, "dataset", None))
        _learn_gradients()
        begun = loop.loader_starts(data)
        try:
            return original(self)
        finally:
            loop.loader_started(data, begun, getattr(self, "batch_size", None))

    return __iter__


def _learn_gradients() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "is_grad_enabled"):
        loop.is_grad_enabled = torch.is_grad_enabled


serialization = checkpoint("save")
safetensors = checkpoint("save_file")
distributed_checkpoint = checkpoint("save", "save_state_dict")


def distributed(module: Any) -> None:
    """``torch.nn.parallel.distributed``: where a rank's own forward ends, before it waits for others in backward."""
    original = module.DistributedDataParallel.forward

    @wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        if _traced and not _traced[0]():
            loop.forward_ended()
        return output

    module.DistributedDataParallel.forward = forward


def compiler(module: Any) -> None:
    """``torch._dynamo.callback``: each time that torch.compile compiles, the first and every other."""
    handler = module.callback_handler
    handler.register_start_callback(lambda *_: loop.compiles(Compiling.began))
    handler.register_end_callback(lambda *_: loop.compiles(Compiling.ended))


def scaler(module: Any) -> None:
    """``torch.amp.grad_scaler``: a step that is skipped for an overflow calls no optimizer."""
    original = module.GradScaler.update

    @wraps(original)
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        loop.scale_updated()
        return result

    module.GradScaler.update = update
