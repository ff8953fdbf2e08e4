"""Each framework with gpumon's own callback, and nothing else of gpumon."""

import json
import sys


def of_lightning():
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from gpumon.integrations.lightning import GpumonCallback

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            loss = self.layer(batch[0]).mean() * float("nan")
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        callbacks=[GpumonCallback()],
    )  # fmt: skip
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4))
    return {"steps": 10, "is_nan": True}


def of_transformers():
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from gpumon.integrations.transformers import GpumonCallback

    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30)
    rows = [{"input_ids": torch.arange(8) % 30, "labels": torch.tensor(index % 2)} for index in range(40)]
    arguments = TrainingArguments(
        "out", max_steps=10, per_device_train_batch_size=2, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, gradient_accumulation_steps=2,
    )  # fmt: skip
    Trainer(BertForSequenceClassification(config), arguments, train_dataset=rows, callbacks=[GpumonCallback()]).train()
    return {"steps": 10, "samples": 40}


def of_accelerate():
    import torch
    from accelerate import Accelerator

    from gpumon.integrations.accelerate import GpumonTracker

    accelerator = Accelerator(cpu=True, log_with=[GpumonTracker()])
    accelerator.init_trackers("job")
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for index in range(10):
        loss = model(torch.ones(2, 4)).mean()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": loss.item()}, step=index)
    accelerator.end_training()
    return {"steps": 10, "is_nan": False}


def of_keras():
    import keras
    import numpy as np

    from gpumon.integrations.keras import GpumonCallback

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.full((40, 4), np.nan)
    model.fit(rows, rows[:, :1], batch_size=4, epochs=1, verbose=0, callbacks=[GpumonCallback()])
    return {"steps": 10, "is_nan": True}


print(json.dumps(globals()[f"of_{sys.argv[1]}"]()))
