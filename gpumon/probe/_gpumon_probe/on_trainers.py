"""Lightning, Transformers and DeepSpeed: their own events tell steps and phases better than the optimizers below them.

No callback is added to anybody's list, so checkpoints and the program's own callbacks stay what they were.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from . import layout
from .loop import loop
from .tellers import DEEPSPEED, TRANSFORMERS
from .wraps import after, before, copied, pause, tell_loss

EVALUATIONS = ("sanity_check", "validation", "test", "predict")
_entered: list[bool] = []


def lightning_calls(module: Any) -> None:
    """``lightning.pytorch.trainer.call``: every event of the trainer passes through one function."""
    before(module, "_call_callback_hooks", _lightning_event)


def _lightning_event(_trainer: Any, name: str, *_args: Any, **_kwargs: Any) -> None:
    if name in {"on_train_start", "on_fit_start"}:
        loop.framework = "lightning"
    elif name.startswith("on_") and name.endswith("_start") and name[3:-6] in EVALUATIONS:
        _entered.append(loop.entered(layout.EVAL))
    elif name.startswith("on_") and name.endswith("_end") and name[3:-4] in EVALUATIONS and _entered and _entered.pop():
        loop.left()


def lightning_trainer(module: Any) -> None:
    """``lightning.pytorch.trainer.trainer``: no event tells when a checkpoint begins and ends."""
    pause(module.Trainer, layout.CHECKPOINT, "save_checkpoint")


def lightning_module(module: Any) -> None:
    """``lightning.pytorch.core.module``: of the three hooks of a batch, the one that copies it."""
    owner = module.LightningModule
    original = owner._call_batch_hook
    copy = copied(original)

    @wraps(original)
    def called(self: Any, hook_name: str, *args: Any, **kwargs: Any) -> Any:
        return (copy if hook_name == "transfer_batch_to_device" else original)(self, hook_name, *args, **kwargs)

    owner._call_batch_hook = called


def fabric(module: Any) -> None:
    """``lightning.fabric.wrappers``: its loader copies each batch."""
    module.move_data_to_device = copied(module.move_data_to_device)


def accelerate_data(module: Any) -> None:
    """``accelerate.data_loader``: the same; Transformers hands its loaders to it."""
    module.send_to_device = copied(module.send_to_device)


def transformers_events(module: Any) -> None:
    """``transformers.trainer_callback``: the end of each step, with its number, and the logged loss."""
    before(module.CallbackHandler, "call_event", _transformers_event)


def _transformers_event(_handler: Any, event: str, _args: Any, state: Any, *_rest: Any, **more: Any) -> None:
    if event == "on_step_end":
        loop.step_ended(TRANSFORMERS, absolute=int(state.global_step))
    elif event == "on_log":
        tell_loss((more.get("logs") or {}).get("loss"))


def transformers_trainer(module: Any) -> None:
    """``transformers.trainer``: events tell of an evaluation and of a checkpoint only when they are over."""
    pause(module.Trainer, layout.EVAL, "evaluate", "predict")
    pause(module.Trainer, layout.CHECKPOINT, "_save_checkpoint")
    module.Trainer._prepare_inputs = copied(module.Trainer._prepare_inputs)


def deepspeed(module: Any) -> None:
    """``deepspeed.runtime.engine``: a step when its counter moves; it may step inner optimizers many times for it."""
    engine = module.DeepSpeedEngine
    original = engine.step

    @wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = getattr(self, "global_steps", None)
        result = original(self, *args, **kwargs)
        try:
            if done is not None and self.global_steps != done:
                if not self.was_step_applied():
                    loop.skipped += 1
                loop.step_ended(DEEPSPEED, absolute=int(self.global_steps))
        except Exception:
            pass
        return result

    engine.step = step
    after(engine, "forward", _forward_ended)
    pause(engine, layout.CHECKPOINT, "save_checkpoint")


def _forward_ended(*_args: Any, **_kwargs: Any) -> None:
    loop.forward_ended()
