import json
import sys

import lightning
import standin_events
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, _):
        self.log("val", self.layer(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


data = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4)
trainer = lightning.Trainer(
    max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, default_root_dir="out"
)
if sys.argv[1:] == ["events"]:
    standin_events.install()
trainer.fit(Model(), data, data)
print(json.dumps({"steps": trainer.global_step}))
