"""Lightning wrapped as NeMo wraps one: its own Trainer and strategy, one optimizer of several, a step that fetches.

NeMo itself is not installed: this is the contract of what it builds on. ``nemo.lightning.Trainer`` is a Trainer of
Lightning, ``MegatronStrategy`` a strategy, ``MegatronOptimizerModule`` hands Lightning one optimizer that steps those
of Megatron's shards, and ``training_step`` takes the iterator of the loader and gets its micro-batches by itself.
"""

import json

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, TensorDataset

MICRO_BATCHES = 2


class MegatronStrategy(SingleDeviceStrategy):
    pass


class Trainer(pl.Trainer):
    pass


class McoreDistributedOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        self.shards = [torch.optim.SGD([each], lr=0.01) for each in parameters]
        super().__init__([each for shard in self.shards for each in shard.param_groups[0]["params"]], {})

    def step(self, closure=None):
        result = closure() if closure is not None else None
        for shard in self.shards:
            shard.step()
        return result


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))

    def training_step(self, dataloader_iter):
        total = 0.0
        for _ in range(MICRO_BATCHES):
            (batch,), _, _ = next(dataloader_iter)
            total = total + self.layers(batch).square().mean()
        return total

    def validation_step(self, dataloader_iter):
        (batch,), _, _ = next(dataloader_iter)
        self.log("val_loss", self.layers(batch).mean(), batch_size=4)

    def configure_optimizers(self):
        return McoreDistributedOptimizer(self.parameters())


data = DataLoader(TensorDataset(torch.randn(160, 4)), batch_size=4)
trainer = Trainer(
    strategy=MegatronStrategy("cpu"), accelerator="cpu", max_steps=30, val_check_interval=10, logger=False,
    enable_progress_bar=False, default_root_dir="out", limit_val_batches=4,
)  # fmt: skip
trainer.fit(Model(), data, DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=4))
print(json.dumps({"steps": trainer.global_step}))
