"""Notices that a framework is imported, by whoever does it, and then calls the hook for that module.

It imports no framework and no part of the probe until then. The loader's class, the module's ``__spec__`` and its
source stay what they were: only the loader instance of that one module is armed, once.
"""

from __future__ import annotations

import sys
from typing import Any

HOOKS = {
    "torch.optim.optimizer": ("on_torch", "optimizer"),
    "torch.utils.data.dataloader": ("on_torch", "dataloader"),
    "torch.serialization": ("on_torch", "serialization"),
    "torch.distributed.checkpoint.state_dict_saver": ("on_torch", "distributed_checkpoint"),
    "torch.nn.parallel.distributed": ("on_torch", "distributed"),
    "torch.amp.grad_scaler": ("on_torch", "scaler"),
    "torch._dynamo.callback": ("on_torch", "compiler"),
    "safetensors.torch": ("on_torch", "safetensors"),
    "lightning.pytorch.trainer.call": ("on_trainers", "lightning_calls"),
    "lightning.pytorch.trainer.trainer": ("on_trainers", "lightning_trainer"),
    "lightning.pytorch.core.module": ("on_trainers", "lightning_module"),
    "lightning.fabric.wrappers": ("on_trainers", "fabric"),
    "pytorch_lightning.trainer.call": ("on_trainers", "lightning_calls"),
    "pytorch_lightning.trainer.trainer": ("on_trainers", "lightning_trainer"),
    "pytorch_lightning.core.module": ("on_trainers", "lightning_module"),
    "lightning_fabric.wrappers": ("on_trainers", "fabric"),
    "accelerate.data_loader": ("on_trainers", "accelerate_data"),
    "transformers.trainer_callback": ("on_trainers", "transformers_events"),
    "transformers.trainer": ("on_trainers", "transformers_trainer"),
    "deepspeed.runtime.engine": ("on_trainers", "deepspeed"),
    "keras.src.callbacks.callback_list": ("on_tensorflow", "callbacks"),
    "keras.src.saving.saving_lib": ("on_tensorflow", "saving"),
    "tensorflow.python.eager.polymorphic_function.polymorphic_function": ("on_tensorflow", "functions"),
    "tensorflow.python.data.ops.iterator_ops": ("on_tensorflow", "tensorflow_data"),
    "jax._src.monitoring": ("on_tensorflow", "jax_events"),
    "jax._src.array": ("on_tensorflow", "jax_arrays"),
    "jax._src.api": ("on_tensorflow", "jax_calls"),
}
"""Module: the probe's module and the function in it that is given the module."""


class Finder:
    """The first on ``sys.meta_path``; for any other name than the watched ones it costs one look-up."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Whatever the others find; armed, if it is watched."""
        if name not in HOOKS or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = self._of_others(name, path, target)
        finally:
            self._looking.discard(name)
        try:
            if spec is not None and spec.loader is not None:
                _arm(spec.loader, name)
        except Exception:
            pass
        return spec

    def _of_others(self, name: str, path: Any, target: Any) -> Any:
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        return None


def _arm(loader: Any, name: str) -> None:
    original = loader.exec_module

    def exec_module(module: Any) -> None:
        try:
            del loader.exec_module
        except AttributeError:
            pass
        original(module)
        hook(name, module)

    loader.exec_module = exec_module


def hook(name: str, module: Any) -> None:
    """Call what is meant for this module; a module of another version than was known leaves the job alone."""
    try:
        where, what = HOOKS[name]
        package = __package__
        __import__(f"{package}.publisher")
        __import__(f"{package}.{where}")
        getattr(sys.modules[f"{package}.{where}"], what)(module)
    except Exception:
        pass


def install() -> None:
    """Watch from now on, and take what is imported already."""
    if any(type(finder).__name__ == "Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, Finder())
    for name in HOOKS:
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            hook(name, module)
